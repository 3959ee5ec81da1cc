// SPDX-License-Identifier: Apache-2.0
/*
 * Makes the weights that products are measured with: 2:4 by magnitude, or with --format of a share
 * of zeros anywhere, single ones or whole blocks, as a plan of ours and as numbers for peers.
 */
#include "bench/bench_weight.h"

#include <math.h>

/* Draws from [0, 1). */
static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / 16777216.0;
}

void bench_fill(float *to, int64_t count, uint64_t state)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(draw(&state) * 2 - 1);
}

static s24_status no_memory(s24_ctx *ctx, const bench_weight_kind *kind)
{
    return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for a weight of %lld by %lld",
                        (long long)kind->n, (long long)kind->k);
}

/* ---- 2:4 ------------------------------------------------------------------------------------- */

static s24_status make_two_four(bench_weight *w, s24_ctx *ctx)
{
    const s24_dense dense = {w->dense, S24_F32, w->kind.n, w->kind.k, 0};
    const int integers = w->kind.dtype == S24_I8;
    const s24_matrix_opts opts = {.size = sizeof opts,
                                  .select = S24_SELECT_MAGNITUDE,
                                  .dtype = integers ? S24_F32 : w->kind.dtype};
    s24_status status = s24_matrix_create(&w->matrix, ctx, &dense, &opts);
    if (status == S24_OK && integers) {
        s24_matrix *floats = w->matrix;
        status = s24_matrix_quantize(&w->matrix, ctx, floats, w->kind.scheme);
        s24_matrix_destroy(floats);
    }
    return status == S24_OK ? s24_matrix_to_dense(ctx, &dense, w->matrix) : status;
}

/* ---- other formats --------------------------------------------------------------------------- */

/* Zeros each block with the chance of the share. */
static void drop_blocks(bench_weight *w)
{
    const s24_sparse_parts *as = &w->kind.format.as;
    const int64_t down = as->block_rows ? as->block_rows : 1;
    const int64_t across = as->block_cols ? as->block_cols : 1;
    const double share = 0.01 * (double)w->kind.format.zeros;
    uint64_t state = 3;
    for (int64_t r = 0; r < w->kind.n; r += down)
        for (int64_t c = 0; c < w->kind.k; c += across) {
            if (draw(&state) >= share) continue;
            for (int64_t i = 0; i < down * across; i++)
                w->dense[(r + i / across) * w->kind.k + c + i % across] = 0;
        }
}

/* Rounds the numbers to a scale for each row times integers, of which `to` gets the latter. */
static void quantise_rows(bench_weight *w, int8_t *to)
{
    for (int64_t r = 0; r < w->kind.n; r++) {
        float *row = w->dense + r * w->kind.k, largest = 0;
        for (int64_t c = 0; c < w->kind.k; c++)
            largest = fmaxf(largest, fabsf(row[c]));
        w->scales[r] = largest / 127;
        for (int64_t c = 0; c < w->kind.k; c++) {
            to[r * w->kind.k + c] = largest > 0 ? (int8_t)lrintf(row[c] / w->scales[r]) : 0;
            row[c] = w->scales[r] * (float)to[r * w->kind.k + c];
        }
    }
}

/* Gives the numbers in the weight's dtype; of integers, those that scales are times. */
static s24_status narrow(void *to, bench_weight *w)
{
    const int64_t count = w->kind.n * w->kind.k;
    if (w->kind.dtype == S24_I8) {
        quantise_rows(w, to);
        return S24_OK;
    }
    const s24_status status = s24_convert(to, w->kind.dtype, w->dense, S24_F32, count);
    return status == S24_OK ? s24_convert(w->dense, S24_F32, to, w->kind.dtype, count) : status;
}

static s24_status make_sparse(bench_weight *w, s24_ctx *ctx)
{
    const size_t count = (size_t)(w->kind.n * w->kind.k);
    void *numbers = s24_ctx_alloc(ctx, count * s24_dtype_bytes(w->kind.dtype));
    w->scales = s24_ctx_alloc(ctx, (size_t)w->kind.n * sizeof *w->scales);
    s24_status status = numbers && w->scales ? S24_OK : no_memory(ctx, &w->kind);
    if (status == S24_OK) {
        const s24_dense dense = {numbers, w->kind.dtype, w->kind.n, w->kind.k, 0};
        drop_blocks(w);
        status = narrow(numbers, w);
        if (status == S24_OK)
            status = s24_sparse_create(&w->sparse, ctx, &dense, &w->kind.format.as);
    }
    s24_ctx_free(ctx, numbers);
    return status;
}

/* ---- both ------------------------------------------------------------------------------------ */

s24_status bench_weight_make(bench_weight *w, s24_ctx *ctx, const bench_weight_kind *kind)
{
    bench_weight_free(w, ctx);
    w->kind = *kind;
    w->dense = s24_ctx_alloc(ctx, (size_t)(kind->n * kind->k) * sizeof *w->dense);
    if (!w->dense) return no_memory(ctx, kind);
    bench_fill(w->dense, kind->n * kind->k, 2);
    return kind->format.name ? make_sparse(w, ctx) : make_two_four(w, ctx);
}

void bench_weight_free(bench_weight *w, s24_ctx *ctx)
{
    s24_matrix_destroy(w->matrix);
    s24_sparse_destroy(w->sparse);
    s24_ctx_free(ctx, w->dense);
    s24_ctx_free(ctx, w->scales);
    *w = (bench_weight){.dense = NULL};
}

int bench_weight_is(const bench_weight *w, const bench_weight_kind *kind)
{
    return w->dense && w->kind.n == kind->n && w->kind.k == kind->k &&
           w->kind.dtype == kind->dtype && w->kind.scheme == kind->scheme;
}

s24_status bench_weight_plan(s24_plan **plan, s24_ctx *ctx, const bench_weight *w)
{
    const int integers = w->kind.dtype == S24_I8 && !w->kind.scheme;
    /* Tokens may be rounded next to integers, as they are in language models, which have such. */
    const s24_plan_opts opts = {.size = sizeof opts,
                                .activations = integers ? S24_I8 : S24_DTYPE_NONE,
                                .rounds = w->kind.scheme != 0};
    if (w->matrix) return s24_plan_create(plan, ctx, w->matrix, &opts);
    return integers ? s24_sparse_plan_integers(plan, ctx, w->sparse, w->scales, NULL)
                    : s24_sparse_plan(plan, ctx, w->sparse, NULL);
}

double bench_weight_bytes(const bench_weight *w, const s24_plan *plan)
{
    if (w->sparse) return (double)s24_plan_bytes(plan);
    /* A matrix in memory has a byte for an integer of 4 bits, a plan has half of one. */
    const double cells = (double)(w->kind.n * w->kind.k);
    return (double)s24_matrix_bytes(w->matrix) -
           (s24_matrix_bits(w->matrix) == 4 ? 0.25 * cells : 0);
}

double bench_weight_kept(const bench_weight *w)
{
    if (!w->sparse) return 0.5;
    const s24_sparse_parts p = s24_sparse_get(w->sparse);
    const int64_t cells = p.format == S24_FORMAT_BSR ? p.block_rows * p.block_cols : 1;
    return (double)(p.stored * cells) / (double)(p.rows * p.cols);
}
