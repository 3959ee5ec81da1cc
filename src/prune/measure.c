// SPDX-License-Identifier: Apache-2.0
/*
 * What a prune did to its layer. The output error needs no inputs, only their Gram matrix H:
 * ‖X·Dᵀ‖² = Σ over rows d of d·H·dᵀ. With H = T + Tᵀ − diag(H), T its lower triangle, which is what
 * the statistics hold, d·H·dᵀ = Σ_i d_i·(2·(T·d)_i − H_ii·d_i): one product with T, strip by strip.
 */
#include <math.h>
#include <string.h>

#include "prune/prune.h"

enum { STRIP = 256 };

typedef struct measure {
    s24_ctx *ctx;
    const s24_stats *stats;
    double *rows;     /* [STRIP, k]: d */
    double *products; /* [STRIP, k]: T·d */
    void *work;
} measure;

static double quadratic_sum(const measure *m, int64_t rows)
{
    int64_t k = m->stats->k;
    const double *gram = m->stats->gram;
    memset(m->products, 0, (size_t)(rows * k) * sizeof *m->products);
    const s24i_product product = {.m = rows,
                                  .n = k,
                                  .depth = k,
                                  .a = m->rows,
                                  .a_row = k,
                                  .a_depth = 1,
                                  .b = gram,
                                  .b_row = k,
                                  .b_depth = 1,
                                  .c = m->products,
                                  .ldc = k,
                                  .sign = 1};
    s24i_product_run(m->ctx, &product, m->work);
    double sum = 0.0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < k; i++) {
            double d = m->rows[r * k + i];
            sum += d * (2.0 * m->products[r * k + i] - gram[i * k + i] * d);
        }
    return sum;
}

static double output_error(const measure *m, const float *before, const s24i_prune_job *after)
{
    double error = 0.0, whole = 0.0;
    for (int64_t r = 0; r < after->n; r += STRIP) {
        int64_t rows = after->n - r < STRIP ? after->n - r : STRIP;
        const float *old_rows = before + r * after->k, *new_rows = after->w + r * after->k;
        for (int64_t i = 0; i < rows * after->k; i++)
            m->rows[i] = (double)old_rows[i];
        whole += quadratic_sum(m, rows);
        for (int64_t i = 0; i < rows * after->k; i++)
            m->rows[i] = (double)old_rows[i] - (double)new_rows[i];
        error += quadratic_sum(m, rows);
    }
    /* The sums are of squares; rounding may leave them a hair below zero. */
    if (error < 0.0) error = 0.0;
    return whole > 0.0 ? error / whole : 0.0;
}

static double kept_l1(const float *before, const s24i_prune_job *after)
{
    double whole = 0.0, kept = 0.0;
    for (int64_t i = 0; i < after->n * after->k; i++) {
        whole += fabs((double)before[i]);
        kept += fabs((double)after->w[i]);
    }
    return whole > 0.0 ? kept / whole : 1.0;
}

s24_status s24i_prune_measure(s24_prune_report *report, s24_ctx *ctx, const float *before,
                              const s24i_prune_job *after)
{
    *report = (s24_prune_report){kept_l1(before, after), -1.0};
    if (!after->stats) return S24_OK;
    int64_t rows = after->n < STRIP ? after->n : STRIP;
    measure m = {.ctx = ctx, .stats = after->stats};
    m.rows = s24_ctx_alloc(ctx, (size_t)(rows * after->k) * sizeof(double));
    m.products = s24_ctx_alloc(ctx, (size_t)(rows * after->k) * sizeof(double));
    m.work = s24_ctx_alloc(ctx, s24i_product_work_bytes(rows, after->k, after->k));
    s24_status status = S24_OK;
    if (m.rows && m.products && m.work)
        report->output_error = output_error(&m, before, after);
    else
        status = s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory to measure a pruned weight");
    s24_ctx_free(ctx, m.work);
    s24_ctx_free(ctx, m.products);
    s24_ctx_free(ctx, m.rows);
    return status;
}
