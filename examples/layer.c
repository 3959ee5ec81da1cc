// SPDX-License-Identifier: Apache-2.0
/*
 * Prunes one layer that lies in memory, with the inputs that it sees: what stays is chosen and
 * refitted so that the layer's outputs change least. Magnitude, which sees no inputs, is run
 * beside it.
 *   cc layer.c $(pkg-config --cflags --libs sparse24) -o layer
 */
#include <sparse24/sparse24.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 512, N = 64, K = 128 };
static float trained[N * K], w[N * K], x[TOKENS * K];

static float random_float(unsigned *seed)
{
    *seed = *seed * 69069u + 1u;
    return (float)(*seed >> 16) / 32768 - 1;
}

/* Prunes a copy of the trained layer. Returns 0, or 1 after a sentence. */
static int prune_by(s24_ctx *ctx, const char *criterion, const s24_stats *stats)
{
    memcpy(w, trained, sizeof w);
    // shown: begin
    s24_dense W = {w, S24_F32, N, K, 0};
    s24_prune_opts opts = {.size = sizeof opts, .criterion = criterion};
    s24_prune_report report;
    s24_status status = s24_prune(&report, ctx, &W, stats, &opts); // w is 2:4 now
    // shown: end
    if (status != S24_OK) {
        fprintf(stderr, "layer: %s\n", s24_ctx_error(ctx));
        return 1;
    }
    printf("%-10s keeps %.1f %% of the magnitude, output error %.4f\n", criterion,
           100 * report.kept_l1, report.output_error);
    return 0;
}

int main(void)
{
    unsigned seed = 1;
    for (int i = 0; i < N * K; i++)
        trained[i] = random_float(&seed);
    for (int t = 0; t < TOKENS; t++) { // neighbours are alike, as a network's activations are
        float common = 0;
        for (int i = 0; i < K; i++) {
            common = 0.9f * common + random_float(&seed);
            x[t * K + i] = common;
        }
    }
    s24_ctx *ctx = NULL;
    s24_stats *stats = NULL;
    if (s24_ctx_create(&ctx, NULL) != S24_OK) return 1;
    // shown: begin
    s24_dense X = {x, S24_F32, TOKENS, K, 0}; // what the layer was given; add as many as you have
    s24_status status = s24_stats_create(&stats, ctx, K);
    if (status == S24_OK) status = s24_stats_add(stats, ctx, &X);
    // shown: end
    int failed = status != S24_OK;
    if (failed) fprintf(stderr, "layer: %s\n", s24_ctx_error(ctx));
    failed = failed || prune_by(ctx, "magnitude", stats) || prune_by(ctx, "sparsegpt", stats);
    s24_stats_destroy(stats);
    s24_ctx_destroy(ctx);
    return failed;
}
