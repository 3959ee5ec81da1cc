// SPDX-License-Identifier: Apache-2.0
/*
 * What a prune did to its layer. The output error needs no inputs, only their Gram matrix H:
 * ‖X·Dᵀ‖² = Σ over rows d of d·H·dᵀ. With H = T + Tᵀ − diag(H), T its lower triangle, which is what
 * the statistics hold, d·H·dᵀ = Σ_i d_i·(2·(T·d)_i − H_ii·d_i): one product with T, strip by strip.
 */
#include <math.h>
#include <string.h>

#include "prune/far.h"

enum { STRIP = 256 };

typedef struct measure {
    s24_ctx *ctx;
    const s24_stats *stats;
    double *rows;                     /* [STRIP, k]: d */
    double *products;                 /* [STRIP, k]: T·d */
    s24i_far *far;                    /* where T, d and T·d are, too; or NULL */
    double sums[STRIP];               /* of each row */
    const float *old_rows, *new_rows; /* of the strip; new_rows NULL: d is old_rows */
    void *work;
} measure;

/* The product on a device: the first STRIP rows there are d. */
static void product_there(const measure *m, s24i_product product)
{
    s24i_far *far = m->far;
    const int64_t k = far->k, rows = product.m;
    double *products = far->rows + STRIP * k;
    product.a = far->rows;
    product.b = far->square;
    product.c = products;
    s24i_far_move(far, &(s24i_far_copy){far->rows, m->rows, k, k, rows, k});
    s24i_far_product(far, &product, 0);
    s24i_far_move(far, &(s24i_far_copy){m->products, products, k, k, rows, k});
    s24i_far_wait(far);
}

static void take_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const measure *m = arg;
    const int64_t k = m->stats->k;
    (void)thread;
    for (int64_t i = begin * k; i < end * k; i++)
        m->rows[i] = (double)m->old_rows[i] - (m->new_rows ? (double)m->new_rows[i] : 0.0);
}

static void sum_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    measure *m = arg;
    const int64_t k = m->stats->k;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        double sum = 0.0;
        for (int64_t i = 0; i < k; i++) {
            const double d = m->rows[r * k + i];
            sum += d * (2.0 * m->products[r * k + i] - m->stats->gram[i * (k + 1)] * d);
        }
        m->sums[r] = sum;
    }
}

/* Of the strip's rows, whose number it is. */
static double quadratic_sum(measure *m, int64_t rows)
{
    int64_t k = m->stats->k;
    const double *gram = m->stats->gram;
    s24_ctx_parallel_for(m->ctx, rows, take_rows, m);
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
    if (m->far)
        product_there(m, product);
    else
        s24i_product_run(m->ctx, &product, m->work);
    s24_ctx_parallel_for(m->ctx, rows, sum_rows, m);
    double sum = 0.0;
    for (int64_t r = 0; r < rows; r++)
        sum += m->sums[r];
    return sum;
}

static double output_error(measure *m, const float *before, const s24i_prune_job *after)
{
    double error = 0.0, whole = 0.0;
    for (int64_t r = 0; r < after->n; r += STRIP) {
        int64_t rows = after->n - r < STRIP ? after->n - r : STRIP;
        m->old_rows = before + r * after->k;
        m->new_rows = NULL;
        whole += quadratic_sum(m, rows);
        m->new_rows = after->w + r * after->k;
        error += quadratic_sum(m, rows);
    }
    /* The sums are of squares; rounding may leave them a hair below zero. */
    if (error < 0.0) error = 0.0;
    return whole > 0.0 ? error / whole : 0.0;
}

/* Sums over rows, which are added up in their order. */
typedef struct lengths {
    const float *rows;
    int64_t k;
    double *sums; /* [n] */
} lengths;

static void sum_sizes(void *arg, int64_t begin, int64_t end, int thread)
{
    const lengths *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        double sum = 0.0;
        for (int64_t i = r * j->k; i < (r + 1) * j->k; i++)
            sum += fabs((double)j->rows[i]);
        j->sums[r] = sum;
    }
}

static s24_status kept_l1(double *out, s24_ctx *ctx, const float *before,
                          const s24i_prune_job *after)
{
    const float *const of[2] = {before, after->w};
    double sums[2] = {0.0, 0.0}, *rows = s24_ctx_alloc(ctx, (size_t)after->n * sizeof *rows);
    REQUIRE(ctx, rows, S24_ERROR_MEMORY, "out of memory to measure a pruned weight");
    for (int i = 0; i < 2; i++) {
        lengths job = {of[i], after->k, rows};
        s24_ctx_parallel_for(ctx, after->n, sum_sizes, &job);
        for (int64_t r = 0; r < after->n; r++)
            sums[i] += rows[r];
    }
    s24_ctx_free(ctx, rows);
    *out = sums[0] > 0.0 ? sums[1] / sums[0] : 1.0;
    return S24_OK;
}

static s24_status go_there(measure *m, s24_device *device)
{
    const int64_t k = m->stats->k;
    TRY(s24i_far_create(&m->far, m->ctx, device, (const int64_t[3]){2 * STRIP, k, 1}));
    s24i_far_move(m->far, &(s24i_far_copy){m->far->square, m->stats->gram, k, k, k, k});
    return m->far->status;
}

s24_status s24i_prune_measure(s24_prune_report *report, s24_ctx *ctx, const float *before,
                              const s24i_prune_job *after)
{
    *report = (s24_prune_report){1.0, -1.0};
    TRY(kept_l1(&report->kept_l1, ctx, before, after));
    if (!after->stats) return S24_OK;
    int64_t rows = after->n < STRIP ? after->n : STRIP;
    measure m = {.ctx = ctx, .stats = after->stats};
    m.rows = s24_ctx_alloc(ctx, (size_t)(rows * after->k) * sizeof(double));
    m.products = s24_ctx_alloc(ctx, (size_t)(rows * after->k) * sizeof(double));
    m.work = s24_ctx_alloc(ctx, s24i_product_work_bytes(rows, after->k, after->k));
    s24_status status = S24_OK;
    if (!m.rows || !m.products || !m.work)
        status = s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory to measure a pruned weight");
    if (status == S24_OK && after->device) status = go_there(&m, after->device);
    if (status == S24_OK) report->output_error = output_error(&m, before, after);
    if (status == S24_OK && m.far) status = m.far->status;
    s24i_far_destroy(m.far);
    s24_ctx_free(ctx, m.work);
    s24_ctx_free(ctx, m.products);
    s24_ctx_free(ctx, m.rows);
    return status;
}
