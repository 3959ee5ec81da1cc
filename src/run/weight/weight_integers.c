// SPDX-License-Identifier: Apache-2.0
/*
 * A dense weight of integers with scales, in the order of files, so that it may lie in their pages,
 * for tokens in floats.
 * Few tokens multiply with it as it lies; for many, panels of its rows are widened to floats once
 * for all of them.
 */
#include "run/weight/held_integers.h"
#include "run/weight/weight.h"

enum {
    FEW = 32,   /* tokens that read integers themselves */
    STEP = 64,  /* rows of the weight whose sums stand in a buffer, for few tokens */
    PANEL = 32, /* rows that are widened together */
    ROWS = 48   /* tokens a step then */
};

typedef struct integers_weight {
    s24i_weight base;
    s24i_integers integers;
} integers_weight;

static const s24_quantized *matrix_of(const s24i_weight *weight)
{
    return &((const integers_weight *)weight)->integers.matrix;
}

static int takes(const s24_model *model, const s24i_source *source)
{
    const int is_made = source->scheme && !s24i_source_is_sparse(source);
    return !model->device && (is_made || source->integers.values) &&
           !s24i_source_is_eight(model, source);
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    integers_weight *w = (integers_weight *)weight;
    (void)model;
    if (!source->integers.values)
        return s24i_integers_make(&w->integers, weight->ctx, ctx, &source->dense, source->scheme);
    return s24i_integers_open(&w->integers, weight->ctx, ctx, source->checkpoint,
                              &source->integers);
}

static void clear(s24i_weight *weight, s24_ctx *ctx)
{
    (void)ctx;
    s24i_integers_clear(&((integers_weight *)weight)->integers, weight->ctx);
}

static int64_t bytes(const s24i_weight *weight)
{
    const s24_quantized *w = matrix_of(weight);
    return (int64_t)(s24i_integers_value_bytes(w) + s24i_integers_scale_bytes(w));
}

static int takes_bf16(const s24i_weight *weight)
{
    (void)weight;
    return 0;
}

/* ---- the product ----------------------------------------------------------------------------- */

typedef struct job {
    const s24i_product_job *product;
    const s24_quantized *w;
    const s24i_vec *vec;
    const float *x; /* as integer_product and integer_widen have columns */
    int64_t ldx;
    int64_t k;     /* of x and of widened rows: of 4 bits padded */
    float *split;  /* [m, k] of 4 bits: x in that order */
    float *panels; /* of each thread two: rows, and their transpose */
} job;

/* Columns of x as the product has them. */
static int64_t columns_of(const s24_quantized *w)
{
    return w->bits == 4 ? s24i_vec_split_columns(w->cols) : w->cols;
}

/* Of x in 4 bits first, then the panels of each thread. */
static size_t work_bytes(const s24i_weight *weight, const s24_ctx *ctx, int64_t rows)
{
    const s24_quantized *w = matrix_of(weight);
    const int64_t k = columns_of(w), split = w->bits == 4 ? rows * k : 0;
    const int64_t panels = rows > FEW ? 2 * PANEL * k * s24_ctx_threads(ctx) : 0;
    return (size_t)(split + panels) * sizeof(float);
}

static void split_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const s24_dense *x = j->product->x;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        j->vec->integer_split(j->split + r * j->k, (const float *)x->data + r * s24i_ld(x),
                              x->cols);
}

/* Sums of tokens from `token` on and of rows of the weight from `row` on become outputs. */
static void finish(const job *j, const s24i_product *sums, int64_t token, int64_t row)
{
    const s24i_product_job *p = j->product;
    const float *bias = p->bias;
    for (int64_t i = 0; i < sums->m; i++)
        j->vec->epilogue((float *)p->y->data + (token + i) * s24i_ld(p->y) + row,
                         sums->c + i * sums->ldc, bias ? bias + row : NULL, p->activation,
                         p->residual != NULL, sums->n);
}

static void few_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    for (int64_t step = begin; step < end; step++) {
        float sums[FEW * STEP];
        const int64_t first = step * STEP, rows = s24i_min(STEP, j->w->rows - first);
        const int64_t m = j->product->x->rows;
        const s24i_integer_product product = {.y = sums,
                                              .ldy = STEP,
                                              .x = j->x,
                                              .ldx = j->ldx,
                                              .w = j->w,
                                              .first = first,
                                              .rows = rows,
                                              .m = m};
        const s24i_product done = {.c = sums, .ldc = STEP, .m = m, .n = rows};
        j->vec->integer_product(&product);
        finish(j, &done, 0, first);
    }
}

static void many_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const int64_t k = j->k, m = j->product->x->rows;
    float *wide = j->panels + 2 * thread * PANEL * k, *panel = wide + PANEL * k;
    for (int64_t p = begin; p < end; p++) {
        const int64_t first = p * PANEL, rows = s24i_min(PANEL, j->w->rows - first);
        for (int64_t r = 0; r < rows; r++)
            j->vec->integer_widen(wide + r * k, j->w, first + r);
        j->vec->transpose(panel, PANEL, wide, k, rows, k);
        for (int64_t t = 0; t < m; t += ROWS) {
            float sums[ROWS * PANEL];
            const s24i_product product = {.c = sums,
                                          .ldc = PANEL,
                                          .a = j->x + t * j->ldx,
                                          .lda = j->ldx,
                                          .b = panel,
                                          .ldb = PANEL,
                                          .m = s24i_min(ROWS, m - t),
                                          .n = rows,
                                          .k = k};
            j->vec->product(&product);
            finish(j, &product, t, first);
        }
    }
}

static s24_status run(const s24i_weight *weight, s24_ctx *ctx, const s24i_product_job *p)
{
    const s24_quantized *w = matrix_of(weight);
    const int64_t m = p->x->rows, k = columns_of(w), split = w->bits == 4 ? m * k : 0;
    job j = {.product = p,
             .w = w,
             .vec = s24i_vec_find(s24_ctx_cpu(ctx)),
             .x = p->x->data,
             .ldx = s24i_ld(p->x),
             .k = k,
             .split = p->work,
             .panels = (float *)p->work + split};
    REQUIRE(ctx, p->work_bytes >= work_bytes(weight, ctx, m), S24_ERROR_ARGUMENT,
            "a product of integers has %zu bytes of work memory; %zu were expected", p->work_bytes,
            work_bytes(weight, ctx, m));
    if (split) {
        s24_ctx_parallel_for(ctx, m, split_range, &j);
        j.x = j.split;
        j.ldx = k;
    }
    if (m <= FEW)
        s24_ctx_parallel_for(ctx, (w->rows + STEP - 1) / STEP, few_range, &j);
    else
        s24_ctx_parallel_for(ctx, (w->rows + PANEL - 1) / PANEL, many_range, &j);
    return S24_OK;
}

static void row(float *to, const s24i_weight *weight, int64_t row)
{
    s24i_integers_row(to, &((const integers_weight *)weight)->integers, row);
}

const s24i_weight_kind s24i_weight_integers = {.name = "dense integers",
                                               .way = S24I_WAY_DENSE,
                                               .size = sizeof(integers_weight),
                                               .takes = takes,
                                               .make = make,
                                               .clear = clear,
                                               .bytes = bytes,
                                               .work_bytes = work_bytes,
                                               .takes_bf16 = takes_bf16,
                                               .run = run,
                                               .row = row};
