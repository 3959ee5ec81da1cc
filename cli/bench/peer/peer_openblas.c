// SPDX-License-Identifier: Apache-2.0
/*
 * Takes OpenBLAS as a peer, through dlopen: cblas_sgemm. It has no form of a weight packed before,
 * so it packs at every call; Debian's build has no bf16 product.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 }; /* of cblas.h */

typedef struct library {
    void *handle;
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*set_threads)(int threads);
    const char *(*config)(void);
    const char *(*core)(void);
} library;

typedef struct product {
    const library *library;
    bench_problem problem;
} product;

static void close_library(void *opaque)
{
    library *l = opaque;
    if (l->handle) dlclose(l->handle);
    free(l);
}

static int load(library *l)
{
    /* Its idle threads spin for longer than a turn and would hold the cores of the others'
       turns. */
    setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0);
    l->handle = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    return l->handle && cli_symbol(&l->sgemm, l->handle, "cblas_sgemm") &&
           cli_symbol(&l->set_threads, l->handle, "openblas_set_num_threads") &&
           cli_symbol(&l->config, l->handle, "openblas_get_config") &&
           cli_symbol(&l->core, l->handle, "openblas_get_corename");
}

/* Opens it: older than its CPU, OpenBLAS takes the kernels of a CPU without AVX. Then it is loaded
   anew and told the nearest CPU it knows, unless the user has told it one. */
static int load_for_cpu(library *l)
{
    const char *nearest = s24_cpu_detect() & S24_CPU_AVX512 ? "SkylakeX"
                          : s24_cpu_detect() & S24_CPU_AVX2 ? "Haswell"
                                                            : NULL;
    if (!load(l)) return 0;
    if (!nearest || strcmp(l->core(), "Prescott") != 0 || getenv("OPENBLAS_CORETYPE")) return 1;
    dlclose(l->handle);
    setenv("OPENBLAS_CORETYPE", nearest, 0);
    return load(l);
}

static void *open_library(char *version, size_t bytes)
{
    library *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    if (!load_for_cpu(l)) {
        close_library(l);
        return NULL;
    }
    /* Finds the second word of "OpenBLAS 0.3.21 NO_LAPACKE …". */
    const char *text = l->config();
    text += strcspn(text, " ");
    text += strspn(text, " ");
    snprintf(version, bytes, "%.*s %s", (int)strcspn(text, " "), text, l->core());
    return l;
}

static void *prepare(void *opaque, const bench_problem *problem)
{
    if (problem->dtype != S24_F32) return NULL;
    product *p = malloc(sizeof *p);
    if (p) *p = (product){opaque, *problem};
    return p;
}

static int run(void *opaque, void *y)
{
    const product *p = opaque;
    int m = (int)p->problem.shape.m, k = (int)p->problem.shape.k, n = (int)p->problem.shape.n;
    p->library->set_threads(p->problem.threads);
    p->library->sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, m, n, k, 1, p->problem.x, k, p->problem.w,
                      k, 0, y, n);
    return 0;
}

const bench_peer peer_openblas = {
    .name = "openblas",
    .open = open_library,
    .close = close_library,
    .prepare = prepare,
    .run = run,
    .release = free,
};
