// SPDX-License-Identifier: Apache-2.0
/*
 * The linear products of a block, made from the weights of its layers. Query, key and value are
 * joined into one product of 3·width rows wherever they are of one kind: their input is then read
 * (and packed, by the 2:4 kernels) once. Rows end to end are rows of one matrix in the dense form
 * and in the canonical 2:4 form alike, because each row of either is whole bytes.
 */
#include "nn/model.h"

#include <string.h>

static void linear_clear(s24i_linear *linear)
{
    s24i_dense_engine.weight_destroy(linear->weight);
    s24_plan_destroy(linear->plan);
    *linear = (s24i_linear){0};
}

void s24i_block_clear(s24i_block *block)
{
    for (int i = 0; i < 3; i++)
        linear_clear(&block->qkv[i]);
    linear_clear(&block->attention);
    linear_clear(&block->intermediate);
    linear_clear(&block->output);
}

/* A scale a row, and each token quantised as it comes. */
static s24_status plan_integers(s24_plan **plan, s24_ctx *ctx, const s24_matrix *floats)
{
    const s24_plan_opts opts = {.size = sizeof opts, .activations = S24_I8};
    s24_matrix *matrix;
    TRY(s24_matrix_quantize(&matrix, ctx, floats, "int8"));
    const s24_status status = s24_plan_create(plan, ctx, matrix, &opts);
    s24_matrix_destroy(matrix);
    return status;
}

static s24_status linear_make(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                              const s24i_source *source)
{
    if (source->matrix) {
        linear->n = s24_matrix_rows(source->matrix);
        linear->k = s24_matrix_cols(source->matrix);
        if (model->dtype == S24_I8) return plan_integers(&linear->plan, ctx, source->matrix);
        return s24_plan_create(&linear->plan, ctx, source->matrix, NULL);
    }
    linear->n = source->dense.rows;
    linear->k = source->dense.cols;
    /* The weight lives as long as the model, in its context's memory; errors are the caller's. */
    const s24_dtype dtype = model->dtype == S24_F32 ? S24_F32 : S24_BF16;
    const s24_status status =
        s24i_dense_engine.weight_create(&linear->weight, model->ctx, &source->dense, dtype);
    if (status == S24_OK || ctx == model->ctx) return status;
    return s24_ctx_fail(ctx, status, "%s", s24_ctx_error(model->ctx));
}

static s24_status join_dense(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                             const s24i_source *sources)
{
    const int64_t n = sources[0].dense.rows, k = sources[0].dense.cols;
    float *rows;
    TRY(s24i_alloc_elems(&rows, ctx, 3 * n * k, sizeof(float), "a joined weight"));
    for (int64_t r = 0; r < 3 * n; r++) {
        const s24_dense *from = &sources[r / n].dense;
        memcpy(rows + r * k, (const float *)from->data + r % n * s24i_ld(from),
               (size_t)k * sizeof(float));
    }
    const s24i_source joined = {.dense = {rows, S24_F32, 3 * n, k, k}};
    const s24_status status = linear_make(linear, model, ctx, &joined);
    s24_ctx_free(ctx, rows);
    return status;
}

static s24_status join_matrices(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                                const s24i_source *sources)
{
    const int64_t n = s24_matrix_rows(sources[0].matrix), k = s24_matrix_cols(sources[0].matrix);
    const s24_dtype dtype = s24_matrix_dtype(sources[0].matrix);
    const size_t values = (size_t)(n * (k / 2)) * s24_dtype_bytes(dtype);
    const size_t indices = (size_t)(n * ((k + 7) / 8));
    uint8_t *bytes;
    TRY(s24i_alloc_elems(&bytes, ctx, 3, values + indices, "a joined weight"));
    for (size_t i = 0; i < 3; i++) {
        memcpy(bytes + i * values, s24_matrix_values(sources[i].matrix), values);
        memcpy(bytes + 3 * values + i * indices, s24_matrix_indices(sources[i].matrix), indices);
    }
    s24i_source joined = {.matrix = NULL};
    s24_status status =
        s24_matrix_from_packed(&joined.matrix, ctx, bytes, bytes + 3 * values, dtype, 3 * n, k);
    if (status == S24_OK) status = linear_make(linear, model, ctx, &joined);
    s24_matrix_destroy(joined.matrix);
    s24_ctx_free(ctx, bytes);
    return status;
}

static s24_status build_qkv(s24i_block *block, const s24_model *model, s24_ctx *ctx,
                            const s24i_source *sources)
{
    const int matrices =
        (sources[0].matrix != NULL) + (sources[1].matrix != NULL) + (sources[2].matrix != NULL);
    block->qkv_count = matrices % 3 == 0 ? 1 : 3;
    for (int i = 0; i < block->qkv_count; i++)
        block->qkv[i].bias = block->bias[i];
    if (matrices == 0) return join_dense(&block->qkv[0], model, ctx, sources);
    if (matrices == 3) return join_matrices(&block->qkv[0], model, ctx, sources);
    for (int i = 0; i < 3; i++)
        TRY(linear_make(&block->qkv[i], model, ctx, &sources[i]));
    return S24_OK;
}

static s24_status build(s24i_block *block, const s24_model *model, s24_ctx *ctx,
                        const s24i_source sources[S24I_SLOTS])
{
    TRY(build_qkv(block, model, ctx, sources));
    TRY(linear_make(&block->attention, model, ctx, &sources[S24I_ATTENTION]));
    TRY(linear_make(&block->intermediate, model, ctx, &sources[S24I_INTERMEDIATE]));
    TRY(linear_make(&block->output, model, ctx, &sources[S24I_OUTPUT]));
    block->attention.bias = block->bias[S24I_ATTENTION];
    block->intermediate.bias = block->bias[S24I_INTERMEDIATE];
    block->intermediate.activation = model->shape.activation;
    block->output.bias = block->bias[S24I_OUTPUT];
    return S24_OK;
}

static int64_t sparse_slots(const s24i_block *block)
{
    int64_t count = (block->attention.plan != NULL) + (block->intermediate.plan != NULL) +
                    (block->output.plan != NULL);
    for (int i = 0; i < 3; i++)
        if (block->qkv[i].plan) count += block->qkv_count == 1 ? 3 : 1;
    return count;
}

s24_status s24i_block_build(s24_model *model, s24_ctx *ctx, int64_t block,
                            const s24i_source sources[S24I_SLOTS])
{
    s24i_block *old = &model->blocks[block];
    s24i_block made = *old;
    memset(made.qkv, 0, sizeof made.qkv);
    made.attention = made.intermediate = made.output = (s24i_linear){0};
    const s24_status status = build(&made, model, ctx, sources);
    if (status != S24_OK) {
        s24i_block_clear(&made);
        return status;
    }
    model->sparse_layers += sparse_slots(&made) - sparse_slots(old);
    s24i_block_clear(old);
    *old = made;
    return S24_OK;
}

s24_status s24i_model_set_block(s24_model *model, s24_ctx *ctx, int64_t block,
                                const s24_dense weights[S24I_SLOTS])
{
    s24i_source sources[S24I_SLOTS];
    for (int slot = 0; slot < S24I_SLOTS; slot++)
        sources[slot] = (s24i_source){.dense = weights[slot]};
    return s24i_block_build(model, ctx, block, sources);
}
