// SPDX-License-Identifier: Apache-2.0
/*
 * The statistics of a layer's inputs: the Gram matrix Σ x·xᵀ, gathered over any number of calls.
 *
 * Products are summed in f32 over runs of S24I_PRODUCT_RUN = 256 inputs and in f64 beyond. Against
 * exact sums the error of element (i, j) is about √256·2⁻²⁵ ≈ 5e-7 of √(H_ii·H_jj), four orders
 * below the dampening, and f32 tiles run at twice the rate of f64 ones. Nothing is added unless
 * every input is finite.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "prune/prune.h"

static void clear_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24_stats *stats = arg;
    (void)thread;
    memset(stats->gram + begin * stats->k, 0,
           (size_t)((end - begin) * stats->k) * sizeof *stats->gram);
}

s24_status s24_stats_create(s24_stats **out, s24_ctx *ctx, int64_t k)
{
    size_t bytes;
    REQUIRE(ctx, out && ctx, S24_ERROR_ARGUMENT, "s24_stats_create: out and ctx are required");
    *out = NULL;
    REQUIRE(ctx, k >= 1, S24_ERROR_SHAPE, "the inputs' width is %lld; expected at least 1",
            (long long)k);
    s24_stats *stats = s24_ctx_alloc(ctx, sizeof *stats);
    if (stats) *stats = (s24_stats){.allocator = ctx->allocator, .k = k};
    if (stats && !s24i_mul_overflow((size_t)k, (size_t)k, &bytes) &&
        !s24i_mul_overflow(bytes, sizeof(double), &bytes))
        stats->gram = s24_ctx_alloc(ctx, bytes);
    if (!stats || !stats->gram) {
        s24_stats_destroy(stats);
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY,
                            "out of memory for the Gram matrix of inputs of width %lld",
                            (long long)k);
    }
    s24_ctx_parallel_for(ctx, k, clear_rows, stats);
    *out = stats;
    return S24_OK;
}

void s24_stats_destroy(s24_stats *stats)
{
    if (!stats) return;
    s24_allocator allocator = stats->allocator;
    s24i_free(&allocator, stats->gram);
    s24i_free(&allocator, stats);
}

typedef struct finite_check {
    const s24_dense *x;
    int64_t ld;
    unsigned char *row_is_bad; /* [rows] */
} finite_check;

static void check_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const finite_check *check = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *row = (const float *)check->x->data + r * check->ld;
        unsigned bad = 0;
        for (int64_t c = 0; c < check->x->cols; c++) {
            uint32_t bits;
            memcpy(&bits, &row[c], sizeof bits);
            bad |= (bits & 0x7f800000u) == 0x7f800000u;
        }
        check->row_is_bad[r] = (unsigned char)bad;
    }
}

static s24_status require_finite(s24_ctx *ctx, const s24_dense *x, int64_t ld, void *work)
{
    const finite_check check = {x, ld, work};
    s24_ctx_parallel_for(ctx, x->rows, check_rows, (void *)&check);
    for (int64_t r = 0; r < x->rows; r++) {
        const float *row = (const float *)x->data + r * ld;
        for (int64_t c = 0; check.row_is_bad[r] && c < x->cols; c++)
            REQUIRE(ctx, isfinite(row[c]), S24_ERROR_NOT_FINITE,
                    "the layer's input %lld has %s in column %lld; expected finite numbers",
                    (long long)r, isnan(row[c]) ? "NaN" : "Inf", (long long)c);
    }
    return S24_OK;
}

s24_status s24_stats_add(s24_stats *stats, s24_ctx *ctx, const s24_dense *x)
{
    REQUIRE(ctx, stats && ctx && x, S24_ERROR_ARGUMENT,
            "s24_stats_add: stats, ctx and x are required");
    REQUIRE(ctx, x->dtype == S24_F32, S24_ERROR_DTYPE, "the inputs are %s; expected f32",
            s24_dtype_name(x->dtype));
    int64_t ld = x->ld ? x->ld : x->cols;
    REQUIRE(ctx, x->rows >= 0 && x->cols == stats->k && ld >= x->cols, S24_ERROR_SHAPE,
            "the inputs are [%lld, %lld] with ld %lld; expected %lld columns", (long long)x->rows,
            (long long)x->cols, (long long)x->ld, (long long)stats->k);
    if (x->rows == 0) return S24_OK;
    REQUIRE(ctx, x->data, S24_ERROR_ARGUMENT, "s24_stats_add: x.data is NULL");
    size_t bytes = s24i_product_work_bytes(stats->k, stats->k, x->rows);
    if (bytes < (size_t)x->rows) bytes = (size_t)x->rows;
    void *work = s24_ctx_alloc(ctx, bytes);
    REQUIRE(ctx, work, S24_ERROR_MEMORY, "out of memory for the sums over %lld inputs",
            (long long)x->rows);
    s24_status status = require_finite(ctx, x, ld, work);
    if (status == S24_OK) {
        const s24i_product product = {.m = stats->k,
                                      .n = stats->k,
                                      .depth = x->rows,
                                      .a = x->data,
                                      .a_row = 1,
                                      .a_depth = ld,
                                      .b = x->data,
                                      .b_row = 1,
                                      .b_depth = ld,
                                      .c = stats->gram,
                                      .ldc = stats->k,
                                      .sign = 1,
                                      .f32 = 1,
                                      .lower = 1};
        s24i_product_run(ctx, &product, work);
        stats->tokens += x->rows;
    }
    s24_ctx_free(ctx, work);
    return status;
}

typedef struct adding {
    s24_stats *stats;
    const float *gram;
    int64_t ld;
    atomic_int bad; /* is one of them not finite? */
} adding;

static void look_at_sums(void *arg, int64_t begin, int64_t end, int thread)
{
    adding *a = arg;
    int bad = 0;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j <= i; j++)
            bad |= !isfinite(a->gram[i * a->ld + j]);
    if (bad) a->bad = 1;
}

static void add_sums(void *arg, int64_t begin, int64_t end, int thread)
{
    const adding *a = arg;
    const int64_t k = a->stats->k;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j <= i; j++)
            a->stats->gram[i * k + j] += (double)a->gram[i * a->ld + j];
}

s24_status s24_stats_add_gram(s24_stats *stats, s24_ctx *ctx, const s24_dense *gram, int64_t inputs)
{
    REQUIRE(ctx, stats && ctx && gram && gram->data, S24_ERROR_ARGUMENT,
            "s24_stats_add_gram: stats, ctx and gram are required");
    REQUIRE(ctx, gram->dtype == S24_F32, S24_ERROR_DTYPE, "the Gram matrix is %s; expected f32",
            s24_dtype_name(gram->dtype));
    const int64_t k = stats->k, ld = gram->ld ? gram->ld : k;
    REQUIRE(ctx, gram->rows == k && gram->cols == k && ld >= k && inputs >= 0, S24_ERROR_SHAPE,
            "the Gram matrix is [%lld, %lld] of %lld inputs; expected [%lld, %lld]",
            (long long)gram->rows, (long long)gram->cols, (long long)inputs, (long long)k,
            (long long)k);
    adding add = {stats, gram->data, ld, 0};
    s24_ctx_parallel_for(ctx, k, look_at_sums, &add);
    for (int64_t i = 0; i < k && add.bad; i++)
        for (int64_t j = 0; j <= i; j++) {
            const float sum = add.gram[i * ld + j];
            REQUIRE(ctx, isfinite(sum), S24_ERROR_NOT_FINITE,
                    "the Gram matrix of the layer's inputs has %s at row %lld, column %lld; "
                    "expected finite numbers",
                    isnan(sum) ? "NaN" : "Inf", (long long)i, (long long)j);
        }
    s24_ctx_parallel_for(ctx, k, add_sums, &add);
    stats->tokens += inputs;
    return S24_OK;
}

s24_status s24_stats_sums(double **gram, int64_t **inputs, s24_ctx *ctx, s24_stats *stats)
{
    REQUIRE(ctx, gram && inputs && stats, S24_ERROR_ARGUMENT,
            "s24_stats_sums: gram, inputs and stats are required");
    *gram = stats->gram;
    *inputs = &stats->tokens;
    return S24_OK;
}
