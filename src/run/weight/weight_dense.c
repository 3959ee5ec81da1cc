// SPDX-License-Identifier: Apache-2.0
/* A weight of the dense engine: of a layer that is dense, or of a 2:4 one that is faster dense. */
#include "run/weight/weight.h"

typedef struct dense_weight {
    s24i_weight base;
    s24i_dense_weight *dense;
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

/* Errors of the model's context become the caller's. */
static s24_status hold(dense_weight *w, const s24_model *model, s24_ctx *ctx,
                       const s24_dense *floats, s24_dtype dtype)
{
    const s24_status status =
        s24i_dense_engine.weight_create(&w->dense, w->base.ctx, floats, dtype);
    if (status == S24_OK || ctx == model->ctx) return status;
    return s24_ctx_fail(ctx, status, "%s", s24_ctx_error(model->ctx));
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
    status = hold(w, model, ctx, &wide, dtype);
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
                                            .run = run};
