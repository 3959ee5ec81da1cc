// SPDX-License-Identifier: Apache-2.0
/*
 * oneDNN as a peer, in its best mode: the matmul primitive with the weight reordered once into the
 * layout it asks for, and for bf16 with X handed over in bf16, for free. Present when the build
 * found it (cmake/dense_engine.cmake).
 */
#include "bench.h"

#if defined(S24_DENSE_ONEDNN)

#include <dlfcn.h>
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct library {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    void (*set_threads)(int threads);
} library;

typedef struct product {
    const library *library;
    int threads;
    uint16_t *narrow; /* x as bf16 */
    dnnl_memory_t x, w, y;
    dnnl_primitive_t primitive;
} product;

static void close_library(void *opaque)
{
    library *l = opaque;
    if (l->stream) dnnl_stream_destroy(l->stream);
    if (l->engine) dnnl_engine_destroy(l->engine);
    free(l);
}

static void *open_library(char *version, size_t bytes)
{
    library *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    const dnnl_version_t *v = dnnl_version();
    snprintf(version, bytes, "%d.%d.%d", v->major, v->minor, v->patch);
    /* Its threads are OpenMP's, and OpenMP came with it. */
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    memcpy(&l->set_threads, &symbol, sizeof symbol);
    if (!symbol || dnnl_engine_create(&l->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&l->stream, l->engine, dnnl_stream_default_flags) != dnnl_success) {
        close_library(l);
        return NULL;
    }
    return l;
}

static void release(void *opaque)
{
    product *p = opaque;
    if (!p) return;
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    if (p->x) dnnl_memory_destroy(p->x);
    if (p->w) dnnl_memory_destroy(p->w);
    if (p->y) dnnl_memory_destroy(p->y);
    free(p->narrow);
    free(p);
}

static dnnl_memory_desc_t matrix(int64_t rows, int64_t cols, dnnl_data_type_t type,
                                 dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t desc;
    const dnnl_dims_t dims = {rows, cols};
    memset(&desc, 0, sizeof desc);
    dnnl_memory_desc_init_by_tag(&desc, 2, dims, type, tag);
    return desc;
}

/* w [n, k] f32, which is [k, n] with its dimensions swapped, into the layout that md asks for. */
static int reorder_weight(product *p, const bench_problem *problem, const dnnl_memory_desc_t *md)
{
    dnnl_engine_t engine = p->library->engine;
    dnnl_memory_desc_t from = matrix(problem->shape.k, problem->shape.n, dnnl_f32, dnnl_ba);
    dnnl_memory_t plain = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t reorder = NULL;
    int ok = dnnl_memory_create(&plain, &from, engine, (void *)problem->w) == dnnl_success &&
             dnnl_memory_create(&p->w, md, engine, DNNL_MEMORY_ALLOCATE) == dnnl_success &&
             dnnl_reorder_primitive_desc_create(&desc, &from, engine, md, engine, NULL) ==
                 dnnl_success &&
             dnnl_primitive_create(&reorder, desc) == dnnl_success;
    if (ok) {
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, p->w}};
        ok = dnnl_primitive_execute(reorder, p->library->stream, 2, args) == dnnl_success &&
             dnnl_stream_wait(p->library->stream) == dnnl_success;
    }
    if (reorder) dnnl_primitive_destroy(reorder);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (plain) dnnl_memory_destroy(plain);
    return ok;
}

static int make_product(product *p, const bench_problem *problem)
{
    const bench_shape *s = &problem->shape;
    dnnl_data_type_t type = problem->dtype == S24_BF16 ? dnnl_bf16 : dnnl_f32;
    dnnl_memory_desc_t x = matrix(s->m, s->k, type, dnnl_ab);
    dnnl_memory_desc_t w = matrix(s->k, s->n, type, dnnl_format_tag_any);
    dnnl_memory_desc_t y = matrix(s->m, s->n, dnnl_f32, dnnl_ab);
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t desc = NULL;
    if (dnnl_matmul_desc_init(&matmul, &x, &w, NULL, &y) != dnnl_success ||
        dnnl_primitive_desc_create(&desc, &matmul, NULL, p->library->engine, NULL) != dnnl_success)
        return 0;
    const void *data = p->narrow ? (const void *)p->narrow : problem->x;
    int ok =
        dnnl_primitive_create(&p->primitive, desc) == dnnl_success &&
        dnnl_memory_create(&p->x, &x, p->library->engine, (void *)data) == dnnl_success &&
        dnnl_memory_create(&p->y, &y, p->library->engine, DNNL_MEMORY_NONE) == dnnl_success &&
        reorder_weight(p, problem, dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0));
    dnnl_primitive_desc_destroy(desc);
    return ok;
}

static void *prepare(void *opaque, const bench_problem *problem)
{
    product *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->library = opaque;
    p->threads = problem->threads;
    p->library->set_threads(p->threads);
    int ok = 1;
    if (problem->dtype == S24_BF16) {
        int64_t count = problem->shape.m * problem->shape.k;
        p->narrow = malloc((size_t)count * sizeof *p->narrow);
        ok = p->narrow && s24_convert(p->narrow, S24_BF16, problem->x, S24_F32, count) == S24_OK;
    }
    if (!ok || !make_product(p, problem)) {
        release(p);
        return NULL;
    }
    return p;
}

static int run(void *opaque, float *y)
{
    product *p = opaque;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->x}, {DNNL_ARG_WEIGHTS, p->w}, {DNNL_ARG_DST, p->y}};
    p->library->set_threads(p->threads);
    return dnnl_memory_set_data_handle(p->y, y) != dnnl_success ||
           dnnl_primitive_execute(p->primitive, p->library->stream, 3, args) != dnnl_success ||
           dnnl_stream_wait(p->library->stream) != dnnl_success;
}

#else

static void *open_library(char *version, size_t bytes)
{
    (void)version;
    (void)bytes;
    return NULL;
}

/* Never called: the library does not open. */
static void close_library(void *library)
{
    (void)library;
}

static void *prepare(void *library, const bench_problem *problem)
{
    (void)library;
    (void)problem;
    return NULL;
}

static int run(void *product, float *y)
{
    (void)product;
    (void)y;
    return 1;
}

static void release(void *product)
{
    (void)product;
}

#endif

const bench_peer peer_onednn = {
    .name = "onednn",
    .open = open_library,
    .close = close_library,
    .prepare = prepare,
    .run = run,
    .release = release,
};
