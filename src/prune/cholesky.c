// SPDX-License-Identifier: Apache-2.0
/*
 * The factor that SparseGPT walks along: U upper triangular with UᵀU = H⁻¹, in float64.
 *
 * The textbook's way is three steps: factor H, invert it, factor the inverse. One factor is enough:
 * let J reverse the order of rows. If JHJ = LLᵀ, then H = (JLJ)(JLJ)ᵀ with JLJ upper triangular, so
 * H⁻¹ = UᵀU with U = (JLJ)⁻¹ = J·L⁻¹·J. That is half the work, and nothing is ever squared twice.
 *
 * Both steps are blocked so that all but blocks of BLOCK × BLOCK is s24i_product_run. The inverses
 * of L's diagonal blocks serve both: as the solve of the panel below them and as the inverse's own
 * diagonal.
 *
 * References: Golub and Van Loan, Matrix Computations, 4th ed., sections 3.1.4 and 4.2.9.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "prune/prune.h"

enum { BLOCK = S24I_FACTOR_BLOCK, CHUNK = 256, CHUNKS = 8 };

typedef struct factor {
    s24_ctx *ctx;
    double *a; /* [k, k]: H, then L, then L⁻¹ */
    int64_t k;
    double *inverses; /* [blocks][BLOCK, BLOCK]: of L's diagonal blocks */
    double *strip;    /* [k, BLOCK] or [BLOCK, k] */
    double *floors;   /* [k]: what each pivot must exceed */
    void *work;
} factor;

/* h ← J·h·J for the lower triangle: element (i, j) changes places with (k−1−j, k−1−i). */
static void reverse_lower(double *h, int64_t k)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j <= i && i + j < k - 1; j++) {
            double *other = &h[(k - 1 - j) * k + (k - 1 - i)], value = h[i * k + j];
            h[i * k + j] = *other;
            *other = value;
        }
}

int64_t s24i_factor_block(double *a, int64_t lda, int64_t count, const double *floors)
{
    for (int64_t j = 0; j < count; j++) {
        double *row = a + j * lda, pivot = row[j];
        for (int64_t p = 0; p < j; p++)
            pivot -= row[p] * row[p];
        if (!(pivot > floors[j]) || !isfinite(pivot)) return j;
        row[j] = sqrt(pivot);
        for (int64_t i = j + 1; i < count; i++) {
            double sum = a[i * lda + j];
            for (int64_t p = 0; p < j; p++)
                sum -= a[i * lda + p] * row[p];
            a[i * lda + j] = sum / row[j];
        }
    }
    return -1;
}

void s24i_invert_block(double *out, int64_t ldo, const double *l, int64_t ldl, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double *row = out + i * ldo;
        memset(row, 0, (size_t)ldo * sizeof *row);
        for (int64_t p = 0; p < i; p++)
            for (int64_t j = 0; j <= p; j++)
                row[j] -= l[i * ldl + p] * out[p * ldo + j];
        row[i] = 1.0;
        for (int64_t j = 0; j <= i; j++)
            row[j] /= l[i * ldl + i];
    }
}

/* Rows below block j: P ← P·L_jj⁻ᵀ, then the trailing triangle loses PPᵀ. */
static void eliminate(const factor *f, int64_t begin, int64_t count)
{
    int64_t k = f->k, next = begin + count, rest = k - next;
    double *panel = f->a + next * k + begin;
    if (rest == 0) return;
    memset(f->strip, 0, (size_t)(rest * count) * sizeof *f->strip);
    s24i_product_run(f->ctx,
                     &(s24i_product){.m = rest,
                                     .n = count,
                                     .depth = count,
                                     .a = panel,
                                     .a_row = k,
                                     .a_depth = 1,
                                     .b = f->inverses + begin * BLOCK,
                                     .b_row = BLOCK,
                                     .b_depth = 1,
                                     .c = f->strip,
                                     .ldc = count,
                                     .sign = 1},
                     f->work);
    for (int64_t i = 0; i < rest; i++)
        memcpy(panel + i * k, f->strip + i * count, (size_t)count * sizeof *panel);
    s24i_product_run(f->ctx,
                     &(s24i_product){.m = rest,
                                     .n = rest,
                                     .depth = count,
                                     .a = f->strip,
                                     .a_row = count,
                                     .a_depth = 1,
                                     .b = f->strip,
                                     .b_row = count,
                                     .b_depth = 1,
                                     .c = f->a + next * k + next,
                                     .ldc = k,
                                     .sign = -1,
                                     .lower = 1},
                     f->work);
}

static int64_t factor_lower(const factor *f)
{
    for (int64_t begin = 0; begin < f->k; begin += BLOCK) {
        int64_t count = f->k - begin < BLOCK ? f->k - begin : BLOCK;
        double *block = f->a + begin * f->k + begin;
        int64_t bad = s24i_factor_block(block, f->k, count, f->floors + begin);
        if (bad >= 0) return begin + bad;
        s24i_invert_block(f->inverses + begin * BLOCK, BLOCK, block, f->k, count);
        eliminate(f, begin, count);
    }
    return -1;
}

/*
 * With M = L⁻¹ known above row block i:  M[i, <i] = −L_ii⁻¹ · (L[i, <i] · M[<i, <i]). L's row block
 * is read for the last time then, so M takes its place. Chunks of columns skip M's zero rows above
 * them; at most CHUNKS of them, so that each is worth its threads.
 */
static void invert_row_block(const factor *f, int64_t begin, int64_t count)
{
    int64_t k = f->k, chunk = k / CHUNKS > CHUNK ? k / CHUNKS : CHUNK;
    double *rows = f->a + begin * k;
    const double *inverse = f->inverses + begin * BLOCK;
    memset(f->strip, 0, (size_t)(count * k) * sizeof *f->strip);
    for (int64_t c = 0; c < begin; c += chunk)
        s24i_product_run(f->ctx,
                         &(s24i_product){.m = count,
                                         .n = begin - c < chunk ? begin - c : chunk,
                                         .depth = begin - c,
                                         .a = rows + c,
                                         .a_row = k,
                                         .a_depth = 1,
                                         .b = f->a + c * k + c,
                                         .b_row = 1,
                                         .b_depth = k,
                                         .c = f->strip + c,
                                         .ldc = k,
                                         .sign = 1},
                         f->work);
    for (int64_t i = 0; i < count; i++) {
        memset(rows + i * k, 0, (size_t)begin * sizeof *rows);
        memcpy(rows + i * k + begin, inverse + i * BLOCK, (size_t)count * sizeof *rows);
    }
    s24i_product_run(f->ctx,
                     &(s24i_product){.m = count,
                                     .n = begin,
                                     .depth = count,
                                     .a = inverse,
                                     .a_row = BLOCK,
                                     .a_depth = 1,
                                     .b = f->strip,
                                     .b_row = 1,
                                     .b_depth = k,
                                     .c = rows,
                                     .ldc = k,
                                     .sign = -1},
                     f->work);
}

static void reverse_all(double *values, int64_t count)
{
    for (int64_t i = 0, j = count - 1; i < j; i++, j--) {
        double value = values[i];
        values[i] = values[j];
        values[j] = value;
    }
}

s24_status s24i_no_factor(s24_ctx *ctx, int64_t column, int64_t k)
{
    return s24_ctx_fail(ctx, S24_ERROR_NUMERIC,
                        "the dampened Gram matrix of the inputs has no Cholesky factor (column "
                        "%lld of %lld); expected more inputs or a larger dampening",
                        (long long)column, (long long)k);
}

/*
 * A pivot is what the columns before it leave of a diagonal element. One that is left by rounding
 * alone means a matrix that is not definite, so it must exceed k·ε times that element.
 */
static s24_status run_factor(const factor *f)
{
    int64_t k = f->k;
    reverse_lower(f->a, k);
    for (int64_t i = 0; i < k; i++) {
        f->floors[i] = (double)k * DBL_EPSILON * f->a[i * k + i];
        memset(f->a + i * k + i + 1, 0, (size_t)(k - 1 - i) * sizeof *f->a);
    }
    int64_t bad = factor_lower(f);
    if (bad >= 0) return s24i_no_factor(f->ctx, k - 1 - bad, k);
    for (int64_t begin = 0; begin < k; begin += BLOCK)
        invert_row_block(f, begin, k - begin < BLOCK ? k - begin : BLOCK);
    reverse_all(f->a, k * k);
    return S24_OK;
}

s24_status s24i_inverse_factor(s24_ctx *ctx, double *h, int64_t k)
{
    size_t padded = (size_t)(k + BLOCK - 1) / BLOCK * BLOCK;
    factor f = {.ctx = ctx, .a = h, .k = k};
    s24_status status = S24_ERROR_MEMORY;
    f.inverses = s24_ctx_alloc(ctx, padded * BLOCK * sizeof(double));
    f.strip = s24_ctx_alloc(ctx, padded * BLOCK * sizeof(double));
    f.floors = s24_ctx_alloc(ctx, padded * sizeof(double));
    f.work = s24_ctx_alloc(ctx, s24i_product_work_bytes(k, k, k));
    if (f.inverses && f.strip && f.floors && f.work)
        status = run_factor(&f);
    else
        s24_ctx_fail(ctx, status, "out of memory for the factor of a Gram matrix of width %lld",
                     (long long)k);
    s24_ctx_free(ctx, f.work);
    s24_ctx_free(ctx, f.floors);
    s24_ctx_free(ctx, f.strip);
    s24_ctx_free(ctx, f.inverses);
    return status;
}
