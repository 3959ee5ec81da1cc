// SPDX-License-Identifier: Apache-2.0
/* Declares what the peers that are oneDNN share: peer_onednn.c, and peer_onednn_dynamic.c on top of
   it. */
#ifndef SPARSE24_CLI_BENCH_PEER_PEER_ONEDNN_H
#define SPARSE24_CLI_BENCH_PEER_PEER_ONEDNN_H

#include "bench/bench.h"

void *onednn_open(char *version, size_t bytes);
void onednn_close(void *library);
int onednn_run(void *product, void *y);
void onednn_release(void *product);

#if defined(S24_DENSE_ONEDNN)
#include "onednn/onednn.h"

typedef struct onednn_library {
    onednn dnnl;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} onednn_library;

typedef struct onednn_product {
    const onednn_library *library;
    s24_ctx *ctx; /* has the memory of x, whose lines are as ours: a tile of others is read twice */
    int threads;
    void *narrow;    /* x as bf16 or u8 */
    float *scales;   /* of the rows of an integer weight */
    int32_t *starts; /* of their sums, or NULL */
    dnnl_memory_t x, w, y, start;
    dnnl_primitive_t primitive;
} onednn_product;

/* Makes a product of so many tokens per run, the first of x if they are not all. Integers of x are
   q, or with `offset` q + 128. NULL when oneDNN has none. */
onednn_product *onednn_prepare(onednn_library *opened, const bench_problem *problem, int64_t tokens,
                               int offset);
#endif
#endif
