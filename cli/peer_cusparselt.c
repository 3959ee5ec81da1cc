// SPDX-License-Identifier: Apache-2.0
/*
 * cuSPARSELt as a peer on a GPU, through dlopen: the same 2:4 weight, compressed ahead, with the
 * algorithm that its own search finds. Y is written row by row, which it calls an order of columns.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_gpu.h"

/* Of cusparse.h and cusparseLt.h. */
enum { ORDER_COL = 1, ORDER_ROW = 2, PLAIN = 0, TRANSPOSED = 1 };
enum { COMPUTE_32I = 0, COMPUTE_32F = 2, HALF_OF_IT = 0, DEFAULT_ALGORITHM = 0, ALIGNMENT = 16 };

/* Its structs are opaque, 512 bytes in 0.8 and 11 KiB in older versions. */
typedef struct opaque {
    _Alignas(16) unsigned char bytes[16384];
} opaque;

typedef struct library {
    void *handle;
    opaque lt;
    int (*init)(opaque *lt);
    int (*destroy)(const opaque *lt);
    int (*version)(const opaque *lt, int *version);
    int (*sparse)(const opaque *lt, opaque *desc, int64_t rows, int64_t cols, int64_t ld,
                  uint32_t alignment, int type, int order, int sparsity);
    int (*dense)(const opaque *lt, opaque *desc, int64_t rows, int64_t cols, int64_t ld,
                 uint32_t alignment, int type, int order);
    int (*matmul)(const opaque *lt, opaque *desc, int op_a, int op_b, const opaque *a,
                  const opaque *b, const opaque *c, const opaque *d, int compute);
    int (*algorithm)(const opaque *lt, opaque *selection, const opaque *desc, int algorithm);
    int (*plan)(const opaque *lt, opaque *plan, const opaque *desc, const opaque *selection);
    int (*plan_destroy)(const opaque *plan);
    int (*workspace)(const opaque *lt, const opaque *plan, size_t *bytes);
    int (*compressed_size)(const opaque *lt, const opaque *plan, size_t *bytes, size_t *scratch);
    int (*compress)(const opaque *lt, const opaque *plan, const void *dense, void *compressed,
                    void *scratch, void *stream);
    int (*search)(const opaque *lt, opaque *plan, const void *alpha, const void *a, const void *b,
                  const void *beta, const void *c, void *d, void *work, void **streams, int32_t n);
    int (*multiply)(const opaque *lt, const opaque *plan, const void *alpha, const void *a,
                    const void *b, const void *beta, const void *c, void *d, void *work,
                    void **streams, int32_t n);
} library;

typedef struct product {
    library *l;
    const gpu_problem *p;
    opaque w, x, y, desc, selection, plan;
    int planned;
    void *compressed[64]; /* at most as many sets */
} product;

static void close_library(void *from)
{
    library *l = from;
    if (l->handle) {
        l->destroy(&l->lt);
        dlclose(l->handle);
    }
    free(l);
}

static void *open_library(char *version, size_t bytes)
{
    library *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    void *handle = dlopen("libcusparseLt.so.0", RTLD_NOW | RTLD_LOCAL);
    const struct {
        void *function;
        const char *name;
    } wanted[] = {
        {&l->init, "cusparseLtInit"},
        {&l->destroy, "cusparseLtDestroy"},
        {&l->version, "cusparseLtGetVersion"},
        {&l->sparse, "cusparseLtStructuredDescriptorInit"},
        {&l->dense, "cusparseLtDenseDescriptorInit"},
        {&l->matmul, "cusparseLtMatmulDescriptorInit"},
        {&l->algorithm, "cusparseLtMatmulAlgSelectionInit"},
        {&l->plan, "cusparseLtMatmulPlanInit"},
        {&l->plan_destroy, "cusparseLtMatmulPlanDestroy"},
        {&l->workspace, "cusparseLtMatmulGetWorkspace"},
        {&l->compressed_size, "cusparseLtSpMMACompressedSize"},
        {&l->compress, "cusparseLtSpMMACompress"},
        {&l->search, "cusparseLtMatmulSearch"},
        {&l->multiply, "cusparseLtMatmul"},
    };
    int missing = !handle, number = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !missing; i++)
        missing = !bench_symbol(wanted[i].function, handle, wanted[i].name);
    if (missing || l->init(&l->lt)) {
        if (handle) dlclose(handle);
        free(l);
        return NULL;
    }
    l->handle = handle;
    l->version(&l->lt, &number);
    snprintf(version, bytes, "%d", number);
    return l;
}

static int run(void *from, int set)
{
    product *c = from;
    const gpu_problem *p = c->p;
    const float one = 1, zero = 0;
    int i = set % p->sets;
    return c->l->multiply(&c->l->lt, &c->plan, &one, c->compressed[i], p->x[i], &zero, p->y[i],
                          p->y[i], p->work, &p->driver->stream, 1);
}

static void release(void *from)
{
    product *c = from;
    if (c->planned) c->l->plan_destroy(&c->plan);
    free(c);
}

/* The descriptors and a plan with the algorithm that is tried first. 0: done. */
static int describe(product *c)
{
    const library *l = c->l;
    const gpu_problem *p = c->p;
    const bench_shape s = p->shape;
    const int type = gpu_type(p->dtype), y_type = gpu_type(p->y_dtype);
    const int compute = p->dtype == S24_I8 ? COMPUTE_32I : COMPUTE_32F;
    if (l->sparse(&l->lt, &c->w, s.n, s.k, s.k, ALIGNMENT, type, ORDER_ROW, HALF_OF_IT) ||
        l->dense(&l->lt, &c->x, s.m, s.k, s.k, ALIGNMENT, type, ORDER_ROW) ||
        l->dense(&l->lt, &c->y, s.n, s.m, s.n, ALIGNMENT, y_type, ORDER_COL) ||
        l->matmul(&l->lt, &c->desc, PLAIN, TRANSPOSED, &c->w, &c->x, &c->y, &c->y, compute) ||
        l->algorithm(&l->lt, &c->selection, &c->desc, DEFAULT_ALGORITHM) ||
        l->plan(&l->lt, &c->plan, &c->desc, &c->selection))
        return 1;
    c->planned = 1;
    return 0;
}

/* Every set's weight as the plan's algorithm wants it. 0: done. */
static int compress_all(product *c)
{
    const library *l = c->l;
    const gpu_problem *p = c->p;
    size_t bytes = 0, scratch_bytes = 0;
    if (l->compressed_size(&l->lt, &c->plan, &bytes, &scratch_bytes)) return 1;
    void *scratch = p->more(p->user, scratch_bytes + 16);
    for (int i = 0; i < p->sets; i++) {
        c->compressed[i] = p->more(p->user, bytes);
        if (!scratch || !c->compressed[i] ||
            l->compress(&l->lt, &c->plan, p->w[i], c->compressed[i], scratch, p->driver->stream))
            return 1;
    }
    return 0;
}

/* The search changes the plan, and what is compressed belongs to a plan: once more after it. */
static int compress_and_search(product *c)
{
    const library *l = c->l;
    const gpu_problem *p = c->p;
    const float one = 1, zero = 0;
    size_t work = 0;
    return compress_all(c) || l->workspace(&l->lt, &c->plan, &work) || work > p->work_bytes ||
           l->search(&l->lt, &c->plan, &one, c->compressed[0], p->x[0], &zero, p->y[0], p->y[0],
                     p->work, &p->driver->stream, 1) ||
           l->workspace(&l->lt, &c->plan, &work) || work > p->work_bytes || compress_all(c);
}

static void *prepare(void *from, const gpu_problem *p)
{
    product *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->l = from;
    c->p = p;
    if (p->sets > (int)(sizeof c->compressed / sizeof *c->compressed) || describe(c) ||
        compress_and_search(c)) {
        release(c);
        return NULL;
    }
    return c;
}

const gpu_peer gpu_peer_cusparselt = {"cusparselt", open_library, close_library,
                                      prepare,      run,          release};
