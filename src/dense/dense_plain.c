// SPDX-License-Identifier: Apache-2.0
/*
 * Dense products where neither oneDNN nor a CBLAS is there: the small product of vec.h over panels
 * of the transposed weight. Right everywhere, of middling speed.
 */
#include "dense/dense.h"

#if S24_DENSE_NONE
#include <string.h>

#include "io/file/io.h"
#include "vec/vec.h"

enum {
    PANEL = 64, /* columns of y a panel; its k × 64 floats stay in L2 for k ≤ 4096 */
    ROWS = 48   /* rows of y a step: PANEL·ROWS sums pass through a buffer on the stack */
};

struct s24i_dense_weight {
    s24_ctx *ctx;
    float *panels; /* [ceil(n/PANEL)][k][PANEL], zeros past n */
    int64_t n, k;
};

struct s24i_dense_runner {
    s24_ctx *ctx;
    float *work; /* of products of two matrices */
    int64_t work_elems;
};

static int64_t panel_count(int64_t n)
{
    return (n + PANEL - 1) / PANEL;
}

static void weight_destroy(s24i_dense_weight *weight)
{
    if (!weight) return;
    s24_ctx_free(weight->ctx, weight->panels);
    s24_ctx_free(weight->ctx, weight);
}

static s24_status weight_create(s24i_dense_weight **out, s24_ctx *ctx, const s24_dense *w,
                                s24_dtype dtype)
{
    (void)dtype;
    *out = NULL;
    const s24i_vec *vec = s24i_vec_find(s24_ctx_cpu(ctx));
    const int64_t n = w->rows, k = w->cols;
    s24i_dense_weight *weight;
    TRY(s24i_alloc_elems(&weight, ctx, 1, sizeof *weight, "a dense weight"));
    *weight = (s24i_dense_weight){.ctx = ctx, .n = n, .k = k};
    const s24_status status = s24i_alloc_elems(&weight->panels, ctx, panel_count(n) * PANEL * k,
                                               sizeof(float), "a dense weight");
    if (status != S24_OK) {
        weight_destroy(weight);
        return status;
    }
    for (int64_t p = 0; p < panel_count(n); p++)
        vec->transpose(weight->panels + p * PANEL * k, PANEL,
                       (const float *)w->data + p * PANEL * s24i_ld(w), s24i_ld(w),
                       s24i_min(PANEL, n - p * PANEL), k);
    *out = weight;
    return S24_OK;
}

static size_t weight_bytes(const s24i_dense_weight *weight)
{
    return (size_t)(panel_count(weight->n) * PANEL * weight->k) * sizeof(float);
}

static s24_status runner_create(s24i_dense_runner **out, s24_ctx *ctx, int64_t most_x)
{
    (void)most_x;
    TRY(s24i_alloc_elems(out, ctx, 1, sizeof **out, "a dense runner"));
    **out = (s24i_dense_runner){.ctx = ctx};
    return S24_OK;
}

static void runner_destroy(s24i_dense_runner *runner)
{
    if (!runner) return;
    s24_ctx_free(runner->ctx, runner->work);
    s24_ctx_free(runner->ctx, runner);
}

typedef struct plain_job {
    const s24i_dense_job *job;
    const s24i_vec *vec;
} plain_job;

/* Step `step` of m's rows against every panel. */
static void run_step(const plain_job *plain, int64_t panel, int64_t step)
{
    const s24i_dense_job *job = plain->job;
    const s24i_dense_weight *w = job->weight;
    const int64_t ldx = s24i_ld(job->x), ldy = s24i_ld(job->y), first = step * ROWS;
    const int64_t rows = s24i_min(ROWS, job->y->rows - first);
    const int64_t cols = s24i_min(PANEL, w->n - panel * PANEL);
    float sums[ROWS * PANEL];
    const s24i_product product = {.c = sums,
                                  .ldc = PANEL,
                                  .a = (const float *)job->x->data + first * ldx,
                                  .lda = ldx,
                                  .b = w->panels + panel * PANEL * w->k,
                                  .ldb = PANEL,
                                  .m = rows,
                                  .n = cols,
                                  .k = w->k};
    plain->vec->product(&product);
    for (int64_t i = 0; i < rows; i++)
        plain->vec->epilogue((float *)job->y->data + (first + i) * ldy + panel * PANEL,
                             sums + i * PANEL, job->bias ? job->bias + panel * PANEL : NULL,
                             job->activation, job->accumulate, cols);
}

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const plain_job *plain = arg;
    const int64_t steps = (plain->job->y->rows + ROWS - 1) / ROWS;
    for (int64_t i = begin; i < end; i++)
        run_step(plain, i / steps, i % steps);
}

static s24_status run(s24i_dense_runner *runner, s24_ctx *ctx, const s24i_dense_job *job)
{
    (void)runner;
    plain_job plain = {job, s24i_vec_find(s24_ctx_cpu(ctx))};
    const int64_t steps = (job->y->rows + ROWS - 1) / ROWS;
    s24_ctx_parallel_for(ctx, steps * panel_count(job->weight->n), run_range, &plain);
    return S24_OK;
}

typedef struct gemm_job {
    const s24i_gemm *gemm;
    const s24i_vec *vec;
    /* [threads][(PANEL + ROWS)·k]: a panel of B, and rows of A where they lie in columns. */
    float *work;
} gemm_job;

/* Columns first … first + PANEL of B as [k][PANEL], zeros past n. */
static void pack_panel(float *panel, const gemm_job *job, int64_t first)
{
    const s24i_gemm *g = job->gemm;
    const int64_t cols = s24i_min(PANEL, g->n - first);
    if (g->transposed_b) {
        job->vec->transpose(panel, PANEL, g->b + first * g->ldb, g->ldb, cols, g->k);
        return;
    }
    for (int64_t r = 0; r < g->k; r++) {
        memcpy(panel + r * PANEL, g->b + r * g->ldb + first, (size_t)cols * sizeof(float));
        memset(panel + r * PANEL + cols, 0, (size_t)(PANEL - cols) * sizeof(float));
    }
}

static void gemm_rows(const gemm_job *job, float *panel, int64_t row, int64_t col)
{
    const s24i_gemm *g = job->gemm;
    const int64_t rows = s24i_min(ROWS, g->m - row), cols = s24i_min(PANEL, g->n - col);
    float sums[ROWS * PANEL], *packed = panel + PANEL * g->k;
    s24i_product product = {.c = sums,
                            .ldc = PANEL,
                            .a = g->a + row * g->lda,
                            .lda = g->lda,
                            .b = panel,
                            .ldb = PANEL,
                            .m = rows,
                            .n = cols,
                            .k = g->k};
    if (g->transposed_a) {
        job->vec->transpose(packed, g->k, g->a + row, g->lda, g->k, rows);
        product.a = packed;
        product.lda = g->k;
    }
    job->vec->product(&product);
    for (int64_t i = 0; i < rows; i++) {
        float *c = g->c + (row + i) * g->ldc + col;
        if (g->beta == 0.0f)
            memcpy(c, sums + i * PANEL, (size_t)cols * sizeof(float));
        else
            job->vec->add(c, c, sums + i * PANEL, cols);
    }
}

static void gemm_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const gemm_job *job = arg;
    float *panel = job->work + thread * (PANEL + ROWS) * job->gemm->k;
    for (int64_t p = begin; p < end; p++) {
        pack_panel(panel, job, p * PANEL);
        for (int64_t row = 0; row < job->gemm->m; row += ROWS)
            gemm_rows(job, panel, row, p * PANEL);
    }
}

static s24_status grow(s24i_dense_runner *runner, int64_t elems)
{
    if (elems <= runner->work_elems) return S24_OK;
    s24_ctx_free(runner->ctx, runner->work);
    runner->work_elems = 0;
    TRY(s24i_alloc_elems(&runner->work, runner->ctx, elems, sizeof(float), "a product"));
    runner->work_elems = elems;
    return S24_OK;
}

static s24_status gemm(s24i_dense_runner *runner, s24_ctx *ctx, const s24i_gemm *g)
{
    TRY(grow(runner, s24_ctx_threads(ctx) * (PANEL + ROWS) * g->k));
    const gemm_job job = {g, s24i_vec_find(s24_ctx_cpu(ctx)), runner->work};
    s24_ctx_parallel_for(ctx, panel_count(g->n), gemm_range, (void *)(uintptr_t)&job);
    return S24_OK;
}

static uint32_t cpu_of(s24_ctx *ctx)
{
    return s24_ctx_cpu(ctx);
}

const s24i_dense_engine_table s24i_dense_engine = {
    .name = "none",
    .weight_create = weight_create,
    .weight_destroy = weight_destroy,
    .weight_bytes = weight_bytes,
    .runner_create = runner_create,
    .runner_destroy = runner_destroy,
    .run = run,
    .gemm = gemm,
    .cpu = cpu_of,
};
#endif
