// SPDX-License-Identifier: Apache-2.0
/*
 * Takes cuSPARSELt as a peer on a GPU: libsparse24's own backend of that name on a second handle of
 * the GPU, with the same 2:4 weight, compressed before, and the algorithm that its own search
 * finds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/bench_gpu.h"

typedef struct library {
    s24_ctx *ctx;
    s24_device *device;
} library;

typedef struct product {
    const library *l;
    const gpu_problem *p;
    s24_device_weight *weights[GPU_MAX_SETS];
} product;

static void close_library(void *from)
{
    library *l = from;
    s24_device_destroy(l->device);
    free(l);
}

static void *open_library(const gpu_bench *b, char *version, size_t bytes)
{
    library *l = calloc(1, sizeof *l);
    const s24_device_opts opts = {
        .size = sizeof opts, .name = b->cli->common->device, .backend = "cusparselt"};
    if (!l) return NULL;
    l->ctx = b->cli->ctx;
    if (s24_device_create(&l->device, l->ctx, &opts) != S24_OK) {
        free(l);
        return NULL;
    }
    const char *number = strrchr(s24_device_text(l->device), ' '); /* "…, cuSPARSELt 800" */
    snprintf(version, bytes, "%s", number ? number + 1 : "");
    return l;
}

static int run(void *from, int set)
{
    const product *c = from;
    const gpu_problem *p = c->p;
    const int i = set % p->sets;
    const s24_dense x = {p->x[i], p->dtype, p->shape.m, p->shape.k, 0};
    const s24_dense y = {p->y[i], p->y_dtype, p->shape.m, p->shape.n, 0};
    const s24_device_linear_args args = {
        .size = sizeof args, .x = &x, .y = &y, .stream = p->driver->stream};
    return s24_device_linear(c->l->ctx, c->l->device, c->weights[i], &args) != S24_OK;
}

static void release(void *from)
{
    product *c = from;
    for (int i = 0; i < c->p->sets; i++)
        s24_device_weight_destroy(c->weights[i]);
    free(c);
}

static void *prepare(void *from, const gpu_problem *p)
{
    product *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->l = from;
    c->p = p;
    for (int i = 0; i < p->sets; i++) {
        const s24_dense w = {p->w[i], p->dtype, p->shape.n, p->shape.k, 0};
        if (s24_device_weight_from_dense(&c->weights[i], c->l->ctx, c->l->device, &w, NULL,
                                         p->driver->stream) == S24_OK &&
            !run(c, i)) /* searched for and compressed */
            continue;
        release(c);
        return NULL;
    }
    return c;
}

const gpu_peer gpu_peer_cusparselt = {"cusparselt", open_library, close_library,
                                      prepare,      run,          release};
