// SPDX-License-Identifier: Apache-2.0
/*
 * A dense weight in rows, as a checkpoint stores it: in the file's pages where these have its
 * dtype, else a copy. What it is for is the head of a language model, which a step multiplies by
 * one token: then its rows are read once, in order, and nothing is allocated. Many tokens are
 * multiplied by panels of turned rows, which the threads make as they go. A model that computes in
 * bf16 rounds its tokens to it where the CPU multiplies pairs of bf16; else they meet bf16 rows in
 * f32.
 */
#include "run/weight/weight.h"

#include <string.h>

#include "io/checkpoint/checkpoint.h"

enum {
    PANEL = 64, /* rows at a time */
    FEW = 8     /* tokens that are multiplied by the rows themselves */
};

typedef struct rows_weight {
    s24i_weight base;
    s24i_map map; /* of the checkpoint's file, or empty */
    void *copy;   /* else these are the rows */
    const void *data;
    s24_dtype dtype; /* f32 or bf16 */
    int rounds;      /* tokens to bf16 */
    int64_t n, k;
} rows_weight;

static const rows_weight *self(const s24i_weight *weight)
{
    return (const rows_weight *)weight;
}

static int takes(const s24_model *model, const s24i_source *source)
{
    return !model->device && source->in_rows && !s24i_source_is_sparse(source);
}

static s24_status copy_rows(rows_weight *w, s24_ctx *ctx, const s24_dense *from)
{
    const size_t part = s24_dtype_bytes(w->dtype), from_part = s24_dtype_bytes(from->dtype);
    TRY(s24i_alloc_elems(&w->copy, w->base.ctx, w->n * w->k, part, "a weight's rows"));
    w->data = w->copy;
    for (int64_t r = 0; r < w->n; r++)
        TRY(s24_convert((char *)w->copy + (size_t)(r * w->k) * part, w->dtype,
                        (const char *)from->data + (size_t)(r * s24i_ld(from)) * from_part,
                        from->dtype, w->k));
    (void)ctx;
    return S24_OK;
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    rows_weight *w = (rows_weight *)weight;
    const s24_dense *from = &source->dense;
    const s24_dtype own = model->dtype == S24_F32 ? S24_F32 : S24_BF16;
    const size_t bytes = (size_t)(from->rows * from->cols) * s24_dtype_bytes(from->dtype);
    w->n = from->rows;
    w->k = from->cols;
    w->rounds = own == S24_BF16 && s24i_vec_find(s24_ctx_cpu(ctx))->pair_product && w->k % 2 == 0;
    w->dtype = from->dtype == S24_BF16 ? S24_BF16 : own;
    if (source->checkpoint && from->dtype == w->dtype)
        TRY(s24i_checkpoint_map(&w->map, &w->data, ctx, source->checkpoint, from->data, bytes, 0));
    return w->data ? S24_OK : copy_rows(w, ctx, from);
}

static void clear(s24i_weight *weight, s24_ctx *ctx)
{
    rows_weight *w = (rows_weight *)weight;
    (void)ctx;
    s24_ctx_free(weight->ctx, w->copy);
    s24i_map_close(&w->map);
}

static int64_t bytes(const s24i_weight *weight)
{
    return self(weight)->n * self(weight)->k * (int64_t)s24_dtype_bytes(self(weight)->dtype);
}

static int takes_bf16(const s24i_weight *weight)
{
    (void)weight;
    return 0;
}

/* ---- a product ------------------------------------------------------------------------------- */

/* Of each thread: a panel's rows as f32 and turned. */
static int64_t panel_floats(const rows_weight *w)
{
    return 2 * PANEL * w->k;
}

static size_t work_bytes(const s24i_weight *weight, const s24_ctx *ctx, int64_t rows)
{
    const rows_weight *w = self(weight);
    const int64_t panels = rows <= FEW ? 0 : s24_ctx_threads(ctx) * panel_floats(w);
    return (size_t)(panels + rows * w->k) * sizeof(float);
}

typedef struct rows_job {
    const rows_weight *w;
    const s24i_product_job *product;
    const s24i_vec *vec;
    uint16_t *narrow; /* x, where it is rounded */
    float *panels;    /* [threads, panel_floats] */
} rows_job;

static const void *row_at(const rows_weight *w, int64_t row)
{
    return (const char *)w->data + (size_t)(row * w->k) * s24_dtype_bytes(w->dtype);
}

static void finish(const rows_job *j, const float *sums, int64_t ld, int64_t row, int64_t col,
                   int64_t cols)
{
    const s24i_product_job *p = j->product;
    const float *bias = p->bias ? (const float *)p->bias + col : NULL;
    j->vec->epilogue((float *)p->y->data + row * s24i_ld(p->y) + col, sums + row * ld, bias,
                     p->activation, p->residual != NULL, cols);
}

static void run_few(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_job *j = arg;
    const rows_weight *w = j->w;
    const int64_t m = j->product->x->rows;
    const void *q = j->narrow ? (const void *)j->narrow : j->product->x->data;
    float sums[FEW * PANEL];
    (void)thread;
    for (int64_t col = begin * PANEL; col < s24i_min(end * PANEL, w->n); col += PANEL) {
        const s24i_attend job = {.rows = row_at(w, col),
                                 .ld = w->k,
                                 .tokens = s24i_min(PANEL, w->n - col),
                                 .d = w->k,
                                 .q = q,
                                 .queries = m,
                                 .s = sums,
                                 .s_ld = PANEL};
        (j->narrow              ? j->vec->pair_dots
         : w->dtype == S24_BF16 ? j->vec->wide_dots
                                : j->vec->dots)(&job);
        for (int64_t row = 0; row < m; row++)
            finish(j, sums, PANEL, row, col, job.tokens);
    }
}

/* Rows from `col` on, turned: pairs of bf16 where tokens are rounded, else f32. */
static void turn(const rows_job *j, float *panel, int64_t col, int64_t cols)
{
    const rows_weight *w = j->w;
    float *wide = panel + PANEL * w->k;
    const float *rows = row_at(w, col);
    if (j->narrow) {
        j->vec->transpose(panel, PANEL, rows, w->k / 2, cols, w->k / 2);
        return;
    }
    if (w->dtype == S24_BF16) {
        s24_convert(wide, S24_F32, rows, S24_BF16, cols * w->k);
        rows = wide;
    }
    j->vec->transpose(panel, PANEL, rows, w->k, cols, w->k);
}

static void run_many(void *arg, int64_t begin, int64_t end, int thread)
{
    enum { ROWS = 48 };
    const rows_job *j = arg;
    const rows_weight *w = j->w;
    const s24_dense *x = j->product->x;
    float *panel = j->panels + thread * panel_floats(w), sums[ROWS * PANEL];
    const int64_t words = j->narrow ? w->k / 2 : w->k;
    const float *tokens = j->narrow ? (const void *)j->narrow : x->data;
    for (int64_t col = begin * PANEL; col < s24i_min(end * PANEL, w->n); col += PANEL) {
        const int64_t cols = s24i_min(PANEL, w->n - col);
        turn(j, panel, col, cols);
        for (int64_t first = 0; first < x->rows; first += ROWS) {
            const s24i_product part = {.c = sums,
                                       .ldc = PANEL,
                                       .a = tokens + first * words,
                                       .lda = words,
                                       .b = panel,
                                       .ldb = PANEL,
                                       .m = s24i_min(ROWS, x->rows - first),
                                       .n = cols,
                                       .k = words};
            (j->narrow ? j->vec->pair_product : j->vec->product)(&part);
            for (int64_t row = 0; row < part.m; row++)
                finish(j, sums - first * PANEL, PANEL, first + row, col, cols);
        }
    }
}

static void narrow_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_job *j = arg;
    const int64_t k = j->w->k;
    (void)thread;
    j->vec->narrow(j->narrow + begin * k, (const float *)j->product->x->data + begin * k,
                   (end - begin) * k);
}

static s24_status run(const s24i_weight *weight, s24_ctx *ctx, const s24i_product_job *p)
{
    const rows_weight *w = self(weight);
    const int64_t m = p->x->rows, panels = (w->n + PANEL - 1) / PANEL;
    rows_job job = {.w = w, .product = p, .vec = s24i_vec_find(s24_ctx_cpu(ctx))};
    const size_t needed = work_bytes(weight, ctx, m);
    REQUIRE(ctx, p->work_bytes >= needed, S24_ERROR_ARGUMENT,
            "a product has %zu bytes of work memory; %zu are needed", p->work_bytes, needed);
    job.panels = (float *)p->work + m * w->k;
    if (w->rounds) job.narrow = p->work;
    if (w->rounds) narrow_range(&job, 0, m, 0);
    s24_ctx_parallel_for(ctx, panels, m <= FEW ? run_few : run_many, &job);
    return S24_OK;
}

const s24i_weight_kind s24i_weight_rows = {.name = "dense, in rows",
                                           .way = S24I_WAY_DENSE,
                                           .size = sizeof(rows_weight),
                                           .takes = takes,
                                           .make = make,
                                           .clear = clear,
                                           .bytes = bytes,
                                           .work_bytes = work_bytes,
                                           .takes_bf16 = takes_bf16,
                                           .run = run};
