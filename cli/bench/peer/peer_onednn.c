// SPDX-License-Identifier: Apache-2.0
/*
 * Takes oneDNN as a peer, in its best mode: the matmul primitive with the weight reordered once
 * into the layout it asks for, and for bf16 and i8 with X handed over in bf16 or unsigned bytes,
 * for free: u8 by s8 with the rows' scales at the end is its fastest product of integers. Present
 * when the build found it (cmake/dense_engine.cmake).
 */
#include "bench/peer/peer_onednn.h"

#if defined(S24_DENSE_ONEDNN)

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef onednn_library library;
typedef onednn_product product;

void onednn_close(void *opaque)
{
    library *l = opaque;
    if (l->stream) l->dnnl.stream_destroy(l->stream);
    if (l->engine) l->dnnl.engine_destroy(l->engine);
    free(l);
}

void *onednn_open(char *version, size_t bytes)
{
    library *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    const char *reason = onednn_load(&l->dnnl);
    const dnnl_version_t *v = reason ? NULL : l->dnnl.version();
    if (v) snprintf(version, bytes, "%d.%d.%d", v->major, v->minor, v->patch);
    /* Its threads are OpenMP's. */
    if (!v || !l->dnnl.set_threads ||
        l->dnnl.engine_create(&l->engine, dnnl_cpu, 0) != dnnl_success ||
        l->dnnl.stream_create(&l->stream, l->engine, dnnl_stream_default_flags) != dnnl_success) {
        onednn_close(l);
        return NULL;
    }
    return l;
}

void onednn_release(void *opaque)
{
    product *p = opaque;
    if (!p) return;
    const onednn *dnnl = &p->library->dnnl;
    if (p->primitive) dnnl->primitive_destroy(p->primitive);
    if (p->x) dnnl->memory_destroy(p->x);
    if (p->w) dnnl->memory_destroy(p->w);
    if (p->y) dnnl->memory_destroy(p->y);
    if (p->start) dnnl->memory_destroy(p->start);
    free(p->starts);
    s24_ctx_free(p->ctx, p->narrow);
    free(p->scales);
    free(p);
}

static dnnl_memory_desc_t matrix(const onednn *dnnl, int64_t rows, int64_t cols,
                                 dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t desc;
    const dnnl_dims_t dims = {rows, cols};
    memset(&desc, 0, sizeof desc);
    dnnl->memory_desc_init_by_tag(&desc, 2, dims, type, tag);
    return desc;
}

/* Makes the reorder that turns w's rows into the integers that they are times a scale: 1/scale
   each. */
static dnnl_primitive_attr_t inverse_scales(const product *p, int64_t n)
{
    const onednn *dnnl = &p->library->dnnl;
    dnnl_primitive_attr_t attr = NULL;
    float *inverse = p->scales ? malloc((size_t)n * sizeof *inverse) : NULL;
    for (int64_t i = 0; inverse && i < n; i++)
        inverse[i] = p->scales[i] > 0 ? 1 / p->scales[i] : 0;
    if (inverse && dnnl->primitive_attr_create(&attr) == dnnl_success)
        dnnl->primitive_attr_set_output_scales(attr, n, 1 << 1, inverse);
    free(inverse);
    return attr;
}

/* Reorders w [n, k] f32, which is [k, n] with its dimensions swapped, into the layout that md asks
   for. */
static int reorder_weight(product *p, const bench_problem *problem, const dnnl_memory_desc_t *md)
{
    const onednn *dnnl = &p->library->dnnl;
    dnnl_primitive_attr_t attr = inverse_scales(p, problem->shape.n);
    dnnl_engine_t engine = p->library->engine;
    dnnl_memory_desc_t from = matrix(dnnl, problem->shape.k, problem->shape.n, dnnl_f32, dnnl_ba);
    dnnl_memory_t plain = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t reorder = NULL;
    int ok = dnnl->memory_create(&plain, &from, engine, (void *)problem->w) == dnnl_success &&
             dnnl->memory_create(&p->w, md, engine, DNNL_MEMORY_ALLOCATE) == dnnl_success &&
             dnnl->reorder_primitive_desc_create(&desc, &from, engine, md, engine, attr) ==
                 dnnl_success &&
             dnnl->primitive_create(&reorder, desc) == dnnl_success;
    if (ok) {
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, p->w}};
        ok = dnnl->primitive_execute(reorder, p->library->stream, 2, args) == dnnl_success &&
             dnnl->stream_wait(p->library->stream) == dnnl_success;
    }
    if (attr) dnnl->primitive_attr_destroy(attr);
    if (reorder) dnnl->primitive_destroy(reorder);
    if (desc) dnnl->primitive_desc_destroy(desc);
    if (plain) dnnl->memory_destroy(plain);
    return ok;
}

static dnnl_data_type_t type_of(s24_dtype dtype, dnnl_data_type_t integer)
{
    return dtype == S24_BF16 ? dnnl_bf16 : dtype == S24_I8 ? integer : dnnl_f32;
}

/* Sets the attributes of a product of integers: its rows' scales. */
static int product_scales(dnnl_primitive_attr_t *attr, const product *p, int64_t n)
{
    const onednn *dnnl = &p->library->dnnl;
    return !p->scales ||
           (dnnl->primitive_attr_create(attr) == dnnl_success &&
            dnnl->primitive_attr_set_output_scales(*attr, n, 1 << 1, p->scales) == dnnl_success);
}

static int make_product(product *p, const bench_problem *problem, int64_t tokens)
{
    const bench_shape *s = &problem->shape;
    const onednn *dnnl = &p->library->dnnl;
    dnnl_engine_t engine = p->library->engine;
    dnnl_memory_desc_t x = matrix(dnnl, tokens, s->k, type_of(problem->dtype, dnnl_u8), dnnl_ab);
    dnnl_memory_desc_t w =
        matrix(dnnl, s->k, s->n, type_of(problem->dtype, dnnl_s8), dnnl_format_tag_any);
    dnnl_data_type_t y_type = problem->activations == S24_BF16 ? dnnl_bf16 : dnnl_f32;
    dnnl_memory_desc_t y = matrix(dnnl, tokens, s->n, y_type, dnnl_ab);
    dnnl_memory_desc_t start = matrix(dnnl, 1, s->n, dnnl_s32, dnnl_ab);
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    int ok =
        product_scales(&attr, p, s->n) &&
        dnnl->matmul_desc_init(&matmul, &x, &w, p->starts ? &start : NULL, &y) == dnnl_success &&
        dnnl->primitive_desc_create(&desc, &matmul, attr, engine, NULL) == dnnl_success;
    if (attr) dnnl->primitive_attr_destroy(attr);
    if (!ok) return 0;
    const void *data = p->narrow ? p->narrow : problem->x;
    ok =
        dnnl->primitive_create(&p->primitive, desc) == dnnl_success &&
        dnnl->memory_create(&p->x, &x, engine, (void *)(uintptr_t)data) == dnnl_success &&
        dnnl->memory_create(&p->y, &y, engine, DNNL_MEMORY_NONE) == dnnl_success &&
        (!p->starts || dnnl->memory_create(&p->start, &start, engine, p->starts) == dnnl_success) &&
        reorder_weight(p, problem, dnnl->primitive_desc_query_md(desc, dnnl_query_weights_md, 0));
    dnnl->primitive_desc_destroy(desc);
    return ok;
}

/* Converts x to bf16, or to the integers that it is; of w then the scales. */
static int narrow_operands(product *p, const bench_problem *problem)
{
    const bench_shape *s = &problem->shape;
    const int64_t count = s->m * s->k;
    if (problem->dtype == S24_F32) return 1;
    p->narrow = s24_ctx_alloc(p->ctx, (size_t)count * (problem->dtype == S24_BF16 ? 2 : 1));
    if (!p->narrow) return 0;
    if (problem->dtype == S24_BF16)
        return s24_convert(p->narrow, S24_BF16, problem->x, S24_F32, count) == S24_OK;
    p->scales = calloc((size_t)s->n, sizeof *p->scales);
    for (int64_t i = 0; i < count; i++)
        ((uint8_t *)p->narrow)[i] = (uint8_t)problem->x[i];
    for (int64_t i = 0; i < s->n * s->k && p->scales; i++)
        p->scales[i / s->k] = fmaxf(p->scales[i / s->k], fabsf(problem->w[i]) / 127);
    return p->scales != NULL;
}

/* Computes what the sums of q + 128 begin with, so that those of q end: -128 times a row's
   integers. */
static int sums_begin(product *p, const bench_problem *problem)
{
    const bench_shape *s = &problem->shape;
    p->starts = calloc((size_t)s->n, sizeof *p->starts);
    for (int64_t i = 0; i < s->n * s->k && p->starts; i++)
        if (p->scales[i / s->k] > 0)
            p->starts[i / s->k] -= 128 * (int32_t)lrintf(problem->w[i] / p->scales[i / s->k]);
    return p->starts != NULL;
}

product *onednn_prepare(library *opened, const bench_problem *problem, int64_t tokens, int offset)
{
    if (problem->quantized) return NULL;
    product *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->library = opened;
    p->ctx = problem->ctx;
    p->threads = problem->threads;
    p->library->dnnl.set_threads(p->threads);
    if (!narrow_operands(p, problem) || (offset && !sums_begin(p, problem)) ||
        !make_product(p, problem, tokens)) {
        onednn_release(p);
        return NULL;
    }
    return p;
}

static void *prepare(void *opaque, const bench_problem *problem)
{
    return onednn_prepare(opaque, problem, problem->shape.m, 0);
}

int onednn_run(void *opaque, void *y)
{
    product *p = opaque;
    const onednn *dnnl = &p->library->dnnl;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->x},
                              {DNNL_ARG_WEIGHTS, p->w},
                              {DNNL_ARG_DST, p->y},
                              {DNNL_ARG_BIAS, p->start}};
    p->library->dnnl.set_threads(p->threads);
    return dnnl->memory_set_data_handle(p->y, y) != dnnl_success ||
           dnnl->primitive_execute(p->primitive, p->library->stream, p->start ? 4 : 3, args) !=
               dnnl_success ||
           dnnl->stream_wait(p->library->stream) != dnnl_success;
}

#else

void *onednn_open(char *version, size_t bytes)
{
    (void)version;
    (void)bytes;
    return NULL;
}

/* Is never called: the library does not open. */
void onednn_close(void *library)
{
    (void)library;
}

static void *prepare(void *library, const bench_problem *problem)
{
    (void)library;
    (void)problem;
    return NULL;
}

int onednn_run(void *product, void *y)
{
    (void)product;
    (void)y;
    return 1;
}

void onednn_release(void *product)
{
    (void)product;
}

#endif

const bench_peer peer_onednn = {
    .name = "onednn",
    .open = onednn_open,
    .close = onednn_close,
    .prepare = prepare,
    .run = onednn_run,
    .release = onednn_release,
};
