// SPDX-License-Identifier: Apache-2.0
/*
 * Takes cuBLASLt as a peer on a GPU, through dlopen: the dense product with the fastest of the
 * eight algorithms that it proposes. It counts by columns: Yᵀ[n, m] = (Wᵀ)ᵀ · Xᵀ.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/gpu/bench_gpu.h"

/* Repeats numbers of cublasLt.h and library_types.h, which do not change between versions. */
enum { COMPUTE_32F = 68, COMPUTE_32I = 72, OP_T = 1 };
enum { DESC_TRANSA = 3, DESC_FAST_ACCUM = 25, PREF_MAX_WORKSPACE_BYTES = 1, PROPOSALS = 8 };

typedef struct proposal {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} proposal;

typedef struct library {
    void *handle, *lt;
    size_t (*version)(void);
    int (*create)(void **lt);
    int (*destroy)(void *lt);
    int (*desc_create)(void **desc, int compute, int scale);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*desc_destroy)(void *desc);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld);
    int (*layout_destroy)(void *layout);
    int (*pref_create)(void **pref);
    int (*pref_set)(void *pref, int attribute, const void *value, size_t bytes);
    int (*pref_destroy)(void *pref);
    int (*propose)(void *lt, void *desc, void *a, void *b, void *c, void *d, void *pref, int count,
                   proposal *found, int *found_count);
    int (*multiply)(void *lt, void *desc, const void *alpha, const void *a, void *a_layout,
                    const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                    void *d, void *d_layout, const void *algorithm, void *work, size_t work_bytes,
                    void *stream);
} library;

typedef struct product {
    library *l;
    const gpu_problem *p;
    void *desc, *w, *x, *y;
    proposal proposals[PROPOSALS];
    int chosen;
} product;

static void close_library(void *opaque)
{
    library *l = opaque;
    if (l->lt) l->destroy(l->lt);
    if (l->handle) dlclose(l->handle);
    free(l);
}

static void *open_library(const gpu_bench *bench, char *version, size_t bytes)
{
    (void)bench;
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    library *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    for (int i = 0; i < 2 && !l->handle; i++)
        l->handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    const struct {
        void *function;
        const char *name;
    } wanted[] = {
        {&l->version, "cublasLtGetVersion"},
        {&l->create, "cublasLtCreate"},
        {&l->destroy, "cublasLtDestroy"},
        {&l->desc_create, "cublasLtMatmulDescCreate"},
        {&l->desc_set, "cublasLtMatmulDescSetAttribute"},
        {&l->desc_destroy, "cublasLtMatmulDescDestroy"},
        {&l->layout_create, "cublasLtMatrixLayoutCreate"},
        {&l->layout_destroy, "cublasLtMatrixLayoutDestroy"},
        {&l->pref_create, "cublasLtMatmulPreferenceCreate"},
        {&l->pref_set, "cublasLtMatmulPreferenceSetAttribute"},
        {&l->pref_destroy, "cublasLtMatmulPreferenceDestroy"},
        {&l->propose, "cublasLtMatmulAlgoGetHeuristic"},
        {&l->multiply, "cublasLtMatmul"},
    };
    int missing = !l->handle;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !missing; i++)
        missing = !cli_symbol(wanted[i].function, l->handle, wanted[i].name);
    if (missing || l->create(&l->lt)) {
        close_library(l);
        return NULL;
    }
    snprintf(version, bytes, "%zu", l->version());
    return l;
}

static int run(void *opaque, int set)
{
    const product *c = opaque;
    const gpu_problem *p = c->p;
    const float float_one = 1, float_zero = 0;
    const int32_t int_one = 1, int_zero = 0;
    const int integers = p->dtype == S24_I8 && p->y_dtype == S24_I32;
    const void *one = integers ? (const void *)&int_one : &float_one;
    const void *zero = integers ? (const void *)&int_zero : &float_zero;
    int i = set % p->sets;
    return c->l->multiply(c->l->lt, c->desc, one, p->w[i], c->w, p->x[i], c->x, zero, p->y[i], c->y,
                          p->y[i], c->y, c->proposals[c->chosen].algorithm, p->work, p->work_bytes,
                          p->driver->stream);
}

static void release(void *opaque)
{
    product *c = opaque;
    if (c->desc) c->l->desc_destroy(c->desc);
    if (c->w) c->l->layout_destroy(c->w);
    if (c->x) c->l->layout_destroy(c->x);
    if (c->y) c->l->layout_destroy(c->y);
    free(c);
}

/* Searches; 0: there is a fastest one. */
static int search(product *c)
{
    void *pref;
    int count = 0, best = -1;
    double least = 0;
    const size_t bytes = c->p->work_bytes;
    if (c->l->pref_create(&pref)) return 1;
    if (c->l->pref_set(pref, PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes) ||
        c->l->propose(c->l->lt, c->desc, c->w, c->x, c->y, c->y, pref, PROPOSALS, c->proposals,
                      &count))
        count = 0;
    c->l->pref_destroy(pref);
    for (c->chosen = 0; c->chosen < count; c->chosen++) {
        if (gpu_time(c->p->driver, 2, run, c) < 0) continue;
        double seconds = gpu_time(c->p->driver, 5, run, c);
        if (best >= 0 && seconds >= least) continue;
        best = c->chosen;
        least = seconds;
    }
    c->chosen = best;
    return best < 0;
}

static void *prepare(void *opaque, const gpu_problem *p)
{
    library *l = opaque;
    product *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    *c = (product){.l = l, .p = p};
    const int type = gpu_type(p->dtype), y_type = gpu_type(p->y_dtype), transposed = OP_T;
    const int integers = p->dtype == S24_I8;
    const int8_t fast = p->dtype == S24_E4M3 || p->dtype == S24_E5M2; /* as the tensor cores sum */
    const uint64_t m = (uint64_t)p->shape.m, n = (uint64_t)p->shape.n, k = (uint64_t)p->shape.k;
    const s24_dtype scale = integers && p->y_dtype == S24_I32 ? S24_I32 : S24_F32;
    if (l->desc_create(&c->desc, integers ? COMPUTE_32I : COMPUTE_32F, gpu_type(scale)) ||
        (fast && l->desc_set(c->desc, DESC_FAST_ACCUM, &fast, sizeof fast)) ||
        l->desc_set(c->desc, DESC_TRANSA, &transposed, sizeof transposed) ||
        l->layout_create(&c->w, type, k, n, p->shape.k) ||
        l->layout_create(&c->x, type, k, m, p->shape.k) ||
        l->layout_create(&c->y, y_type, n, m, p->shape.n) || search(c)) {
        release(c);
        return NULL;
    }
    return c;
}

const gpu_peer gpu_peer_cublaslt = {"cublaslt", open_library, close_library, prepare, run, release};
