// SPDX-License-Identifier: Apache-2.0
/* A weight of the dense engine: of a layer that is dense, or of a 2:4 one that is faster dense. Of
   a model in 8 bits it is one of integers where the engine has a product for them, stored ones as
   they are. */
#include "run/weight/weight.h"

#include <math.h>

typedef struct dense_weight {
    s24i_weight base;
    s24i_dense_weight *dense;
    int is_eight;
} dense_weight;

static const dense_weight *self(const s24i_weight *weight)
{
    return (const dense_weight *)weight;
}

static int takes(const s24_model *model, const s24i_source *source)
{
    (void)source;
    return !model->device;
}

/* The rows' scales of a source of integers of 8 bits; NULL: it is none. */
static const float *scales_of(const s24i_source *source)
{
    const s24_matrix *m = source->matrix;
    const s24_quantized *q = &source->integers;
    if (q->values) return q->bits == 8 && q->group == q->cols ? q->scales : NULL;
    if (m)
        return s24_matrix_bits(m) == 8 && s24_matrix_group(m) == s24_matrix_cols(m)
                   ? s24_matrix_scales(m)
                   : NULL;
    return source->scales;
}

int s24i_source_is_eight(const s24_model *model, const s24i_source *source)
{
    s24i_linear shape = {0};
    if (model->device || model->dtype != S24_I8 || source->wide || source->exact ||
        source->in_rows || (source->integers.values && !scales_of(source)))
        return 0;
    s24i_linear_shape(&shape, source);
    return s24i_dense_takes_eight(model->ctx, shape.k);
}

/* Errors of the model's context become the caller's. */
static s24_status told(s24_status status, const s24_model *model, s24_ctx *ctx)
{
    if (status == S24_OK || ctx == model->ctx) return status;
    return s24_ctx_fail(ctx, status, "%s", s24_ctx_error(model->ctx));
}

static s24_status hold(dense_weight *w, const s24_model *model, s24_ctx *ctx,
                       const s24_dense *floats, s24_dtype dtype)
{
    s24_ctx *own = w->base.ctx;
    return told(w->is_eight ? s24i_dense_eight_create(&w->dense, own, floats)
                            : s24i_dense_engine.weight_create(&w->dense, own, floats, dtype),
                model, ctx);
}

static s24_status hold_integers(dense_weight *w, const s24_model *model, s24_ctx *ctx,
                                const s24_quantized *integers)
{
    return told(s24i_dense_engine.eight_create(&w->dense, w->base.ctx, integers), model, ctx);
}

/* Floats that are integers times scales. */
static s24_status hold_rounded(dense_weight *w, const s24_model *model, s24_ctx *ctx,
                               const s24_dense *floats, const float *scales)
{
    const int64_t n = floats->rows, k = floats->cols;
    const float *row = floats->data;
    int8_t *values;
    TRY(s24i_alloc_elems(&values, ctx, n * k, 1, "a weight's integers"));
    for (int64_t r = 0; r < n; r++, row += k)
        for (int64_t c = 0; c < k; c++)
            values[r * k + c] = scales[r] > 0 ? (int8_t)lrintf(row[c] / scales[r]) : 0;
    const s24_quantized integers = {
        .rows = n, .cols = k, .bits = 8, .group = k, .values = values, .scales = scales};
    const s24_status status = hold_integers(w, model, ctx, &integers);
    s24_ctx_free(ctx, values);
    return status;
}

static void scale_rows(const s24_dense *w, const float *scales)
{
    float *row = w->data;
    for (int64_t r = 0; r < w->rows; r++, row += w->cols)
        for (int64_t c = 0; c < w->cols; c++)
            row[c] *= scales[r];
}

/* A 2:4 or sparse weight made dense. */
static s24_status hold_widened(dense_weight *w, const s24_model *model, s24_ctx *ctx,
                               const s24i_source *source, s24_dtype dtype)
{
    s24_matrix *own = NULL;
    const s24_matrix *matrix = source->matrix;
    s24_dense wide = {.dtype = S24_F32};
    s24_status status = S24_OK;
    if (!matrix && !source->sparse) {
        TRY(s24_matrix_from_layout(&own, ctx, &source->laid_out));
        matrix = own;
    }
    wide.rows = matrix ? s24_matrix_rows(matrix) : s24_sparse_get(source->sparse).rows;
    wide.cols = matrix ? s24_matrix_cols(matrix) : s24_sparse_get(source->sparse).cols;
    TRY_DONE(
        s24i_alloc_elems(&wide.data, ctx, wide.rows * wide.cols, sizeof(float), "a dense weight"));
    TRY_DONE(matrix ? s24_matrix_to_dense(ctx, &wide, matrix)
                    : s24_sparse_to_dense(ctx, &wide, source->sparse));
    if (source->scales) scale_rows(&wide, source->scales);
    status = w->is_eight && scales_of(source)
                 ? hold_rounded(w, model, ctx, &wide, scales_of(source))
                 : hold(w, model, ctx, &wide, dtype);
done:
    s24_ctx_free(ctx, wide.data);
    s24_matrix_destroy(own);
    return status;
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    dense_weight *w = (dense_weight *)weight;
    const s24_dtype dtype = model->dtype == S24_F32 || source->exact ? S24_F32 : S24_BF16;
    w->is_eight = s24i_source_is_eight(model, source);
    if (source->integers.values) return hold_integers(w, model, ctx, &source->integers);
    if (s24i_source_is_sparse(source)) return hold_widened(w, model, ctx, source, dtype);
    return hold(w, model, ctx, &source->dense, dtype);
}

static void clear(s24i_weight *weight, s24_ctx *ctx)
{
    (void)ctx;
    s24i_dense_engine.weight_destroy(((dense_weight *)weight)->dense);
}

static int64_t bytes(const s24i_weight *weight)
{
    return (int64_t)s24i_dense_engine.weight_bytes(self(weight)->dense);
}

static int takes_bf16(const s24i_weight *weight)
{
    return s24i_dense_engine.takes_bf16 && s24i_dense_engine.takes_bf16(self(weight)->dense);
}

static int is_eight(const s24i_weight *weight)
{
    return self(weight)->is_eight;
}

static s24_status run(const s24i_weight *weight, s24_ctx *ctx, const s24i_product_job *p)
{
    const s24i_dense_job job = {.weight = self(weight)->dense,
                                .y = p->y,
                                .x = p->x,
                                .bias = p->bias,
                                .activation = p->activation,
                                .accumulate = p->residual != NULL};
    return s24i_dense_engine.run(p->runner, ctx, &job);
}

const s24i_weight_kind s24i_weight_dense = {.name = "dense",
                                            .way = S24I_WAY_DENSE,
                                            .size = sizeof(dense_weight),
                                            .takes = takes,
                                            .make = make,
                                            .clear = clear,
                                            .bytes = bytes,
                                            .takes_bf16 = takes_bf16,
                                            .is_eight = is_eight,
                                            .run = run};
