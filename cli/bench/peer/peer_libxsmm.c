// SPDX-License-Identifier: Apache-2.0
/*
 * Takes libxsmm as a peer, through dlopen: its generated small kernels over a weight packed before
 * in blocks. For libxsmm, which counts by columns, Yᵀ[n, m] = W[n, k] · Xᵀ[k, m]: X and Y are used
 * where they lie, and W is stored in blocks of 64 outputs by up to 256 of k, each [k][64]. One
 * kernel adds up to 256 of k into a tile of 64 outputs by up to 48 tokens.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

enum { N_BLOCK = 64, K_BLOCK = 256, M_BLOCK = 48 };

/* Is the signature that the library declares; the generated code reads three arguments. */
typedef void (*kernel)(const float *a, const float *b, float *c, ...);
typedef kernel (*dispatcher)(int m, int n, int k, const int *lda, const int *ldb, const int *ldc,
                             const float *alpha, const float *beta, const int *flags,
                             const int *prefetch);

typedef struct library {
    void *handle;
    dispatcher dispatch;
} library;

typedef struct product {
    bench_problem problem;
    float *packed; /* [n blocks][k blocks][k][64] */
    int64_t n_blocks, k_blocks, m_blocks;
    kernel kernels[2][2][2][2]; /* [last n][last m][last k][first k: overwrites] */
    float *y;
} product;

static void close_library(void *opaque)
{
    library *l = opaque;
    if (l->handle) dlclose(l->handle);
    free(l);
}

static void *open_library(char *version, size_t bytes)
{
    static const char *const names[] = {"libxsmm.so.1", "libxsmm.so"};
    library *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    for (int i = 0; i < 2 && !l->handle; i++)
        l->handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    void (*init)(void) = NULL;
    if (!l->handle || !cli_symbol(&l->dispatch, l->handle, "libxsmm_smmdispatch") ||
        !cli_symbol(&init, l->handle, "libxsmm_init")) {
        close_library(l);
        return NULL;
    }
    init();
    snprintf(version, bytes, "1.x"); /* it has no function that tells */
    return l;
}

static int64_t blocks(int64_t size, int64_t block)
{
    return (size + block - 1) / block;
}

/* Gives the size of a block: full, or what is left for the last one. */
static int block_size(int64_t size, int64_t block, int last)
{
    return (int)(last ? size - (blocks(size, block) - 1) * block : block);
}

static int generate(product *p, const library *l)
{
    const bench_shape *s = &p->problem.shape;
    const int ldb = (int)s->k, ldc = (int)s->n;
    const float alpha = 1, betas[2] = {1, 0};
    for (int which = 0; which < 16; which++) {
        int last_n = which & 1, last_m = which >> 1 & 1, last_k = which >> 2 & 1;
        int first = which >> 3;
        int rows = block_size(s->n, N_BLOCK, last_n), cols = block_size(s->m, M_BLOCK, last_m);
        int depth = block_size(s->k, K_BLOCK, last_k);
        kernel made =
            l->dispatch(rows, cols, depth, &rows, &ldb, &ldc, &alpha, &betas[first], NULL, NULL);
        if (!made) return 0;
        p->kernels[last_n][last_m][last_k][first] = made;
    }
    return 1;
}

static void pack(product *p)
{
    const bench_shape *s = &p->problem.shape;
    float *to = p->packed;
    for (int64_t nb = 0; nb < p->n_blocks; nb++) {
        int rows = block_size(s->n, N_BLOCK, nb == p->n_blocks - 1);
        for (int64_t k = 0; k < s->k; k++)
            for (int r = 0; r < rows; r++)
                *to++ = p->problem.w[(nb * N_BLOCK + r) * s->k + k];
    }
}

static void release(void *opaque)
{
    product *p = opaque;
    if (p) free(p->packed);
    free(p);
}

static void *prepare(void *opaque, const bench_problem *problem)
{
    if (problem->dtype != S24_F32) return NULL;
    product *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    const bench_shape *s = &problem->shape;
    p->problem = *problem;
    p->n_blocks = blocks(s->n, N_BLOCK);
    p->k_blocks = blocks(s->k, K_BLOCK);
    p->m_blocks = blocks(s->m, M_BLOCK);
    p->packed = aligned_alloc(64, ((size_t)(s->n * s->k) * sizeof(float) + 63) / 64 * 64);
    if (!p->packed || !generate(p, opaque)) {
        release(p);
        return NULL;
    }
    pack(p);
    return p;
}

/* Runs tasks over n first, then m, so that a block of W stays in the cache for all of its
   tokens. */
static void tasks(void *arg, int64_t begin, int64_t end, int thread)
{
    const product *p = arg;
    const bench_shape *s = &p->problem.shape;
    (void)thread;
    for (int64_t task = begin; task < end; task++) {
        int64_t nb = task / p->m_blocks, mb = task % p->m_blocks;
        int last_n = nb == p->n_blocks - 1, last_m = mb == p->m_blocks - 1;
        int rows = block_size(s->n, N_BLOCK, last_n);
        const float *w = p->packed + nb * N_BLOCK * s->k;
        const float *x = p->problem.x + mb * M_BLOCK * s->k;
        float *y = p->y + mb * M_BLOCK * s->n + nb * N_BLOCK;
        for (int64_t kb = 0; kb < p->k_blocks; kb++)
            p->kernels[last_n][last_m][kb == p->k_blocks - 1][kb == 0](w + kb * K_BLOCK * rows,
                                                                       x + kb * K_BLOCK, y);
    }
}

static int run(void *opaque, void *y)
{
    product *p = opaque;
    p->y = y;
    s24_ctx_parallel_for(p->problem.ctx, p->n_blocks * p->m_blocks, tasks, p);
    return 0;
}

const bench_peer peer_libxsmm = {
    .name = "libxsmm",
    .open = open_library,
    .close = close_library,
    .prepare = prepare,
    .run = run,
    .release = release,
};
