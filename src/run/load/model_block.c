// SPDX-License-Identifier: Apache-2.0
/*
 * The linear products of a block, made from the weights of its layers. Query, key and value are
 * joined into one product of 3·width rows wherever they are of one kind: their input is then read
 * (and packed, by the 2:4 kernels) once. Rows end to end are rows of one matrix in the dense form
 * and in the canonical 2:4 form alike, because each row of either is whole bytes.
 */
#include "run/load/choice.h"

#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "run/gpu/gpu_model.h"

static void drop_weight(s24i_linear *linear)
{
    s24i_dense_engine.weight_destroy(linear->weight);
    linear->weight = NULL;
}

static void drop_plan(s24i_linear *linear)
{
    s24_plan_destroy(linear->plan);
    s24i_map_close(&linear->map);
    linear->plan = NULL;
}

static void linear_clear(s24i_linear *linear, s24_ctx *ctx)
{
    if (linear->device) s24i_gpu_linear_clear(linear, ctx);
    drop_weight(linear);
    drop_plan(linear);
    *linear = (s24i_linear){0};
}

void s24i_linear_choose(s24i_linear *linear, const s24i_choice *choice)
{
    linear->choice = *choice;
    if (!s24i_needs_weight(choice)) drop_weight(linear);
    if (!s24i_needs_plan(choice)) drop_plan(linear);
}

void s24i_block_clear(s24i_block *block, s24_ctx *ctx)
{
    for (int i = 0; i < 3; i++)
        linear_clear(&block->qkv[i], ctx);
    linear_clear(&block->attention, ctx);
    linear_clear(&block->intermediate, ctx);
    linear_clear(&block->output, ctx);
}

/* A scale a row, as stored or made here, and each token quantised as it comes. */
static s24_status plan_integers(s24_plan **plan, s24_ctx *ctx, const s24_matrix *from)
{
    const s24_plan_opts opts = {.size = sizeof opts, .activations = S24_I8};
    s24_matrix *matrix;
    if (s24_matrix_bits(from)) return s24_plan_create(plan, ctx, from, &opts);
    TRY(s24_matrix_quantize(&matrix, ctx, from, "int8"));
    const s24_status status = s24_plan_create(plan, ctx, matrix, &opts);
    s24_matrix_destroy(matrix);
    return status;
}

/* The weight lives as long as the model, in its context's memory; errors are the caller's. */
static s24_status make_dense(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                             const s24i_source *source, s24_dtype dtype)
{
    linear->n = source->dense.rows;
    linear->k = source->dense.cols;
    const s24_status status =
        s24i_dense_engine.weight_create(&linear->weight, model->ctx, &source->dense, dtype);
    if (status == S24_OK || ctx == model->ctx) return status;
    return s24_ctx_fail(ctx, status, "%s", s24_ctx_error(model->ctx));
}

/* A map of its own, because the checkpoint is closed when the model is made. */
static s24_status plan_in_place(s24i_linear *linear, s24_ctx *ctx, const s24i_source *source)
{
    s24_laid_out weight = source->laid_out;
    TRY(s24i_checkpoint_map(&linear->map, &weight.data, ctx, source->checkpoint, weight.data,
                            s24_layout_bytes(weight.layout, weight.rows, weight.cols), 1));
    return s24_plan_create_in_place(&linear->plan, ctx, &weight);
}

/* What layers that are not 2:4 are multiplied as. */
static s24_dtype dense_dtype(const s24_model *model)
{
    return model->dtype == S24_F32 ? S24_F32 : S24_BF16;
}

static s24_status make_plan(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                            const s24i_source *source)
{
    if (source->laid_out.data) return plan_in_place(linear, ctx, source);
    if (model->dtype == S24_I8) return plan_integers(&linear->plan, ctx, source->matrix);
    return s24_plan_create(&linear->plan, ctx, source->matrix, NULL);
}

/* A 2:4 weight made dense. */
static s24_status make_widened(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                               const s24i_source *source)
{
    s24_matrix *own = NULL;
    const s24_matrix *matrix = source->matrix;
    s24i_source wide = {.dense = {NULL, S24_F32, linear->n, linear->k, 0}};
    s24_status status = S24_OK;
    if (!matrix) {
        TRY(s24_matrix_from_layout(&own, ctx, &source->laid_out));
        matrix = own;
    }
    TRY_DONE(s24i_alloc_elems(&wide.dense.data, ctx, linear->n * linear->k, sizeof(float),
                              "a dense weight"));
    TRY_DONE(s24_matrix_to_dense(ctx, &wide.dense, matrix));
    status = make_dense(linear, model, ctx, &wide, dense_dtype(model));
done:
    s24_ctx_free(ctx, wide.dense.data);
    s24_matrix_destroy(own);
    return status;
}

/* 2:4, dense or both, as is chosen for its shape; both as long as that is not known. */
static s24_status make_sparse(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                              const s24i_source *source)
{
    const s24_laid_out *laid_out = &source->laid_out;
    linear->n = laid_out->data ? laid_out->rows : s24_matrix_rows(source->matrix);
    linear->k = laid_out->data ? laid_out->cols : s24_matrix_cols(source->matrix);
    if (!model->chooser) return make_plan(linear, model, ctx, source);
    const s24i_choice *choice = s24i_choice_of(model, ctx, linear->n, linear->k);
    s24_status status = S24_OK;
    if (choice) linear->choice = *choice;
    if (!choice || s24i_needs_weight(choice)) status = make_widened(linear, model, ctx, source);
    if (status == S24_ERROR_UNSUPPORTED) { /* there is no dense engine here: nothing to choose */
        s24_ctx_log(ctx, S24_LOG_INFO, "2:4 layers run 2:4: %s", s24_ctx_error(ctx));
        model->chooser = NULL;
        linear->choice = (s24i_choice){{0}};
        status = S24_OK;
    }
    TRY(status);
    return linear->weight && choice && !s24i_needs_plan(choice)
               ? S24_OK
               : make_plan(linear, model, ctx, source);
}

static s24_status linear_make(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                              const s24i_source *source)
{
    linear->sparse = source->laid_out.data || source->matrix;
    if (model->device) return s24i_gpu_linear_make(linear, model, ctx, source);
    if (linear->sparse) return make_sparse(linear, model, ctx, source);
    return make_dense(linear, model, ctx, source, dense_dtype(model));
}

void s24i_patches_clear(s24_model *model)
{
    linear_clear(&model->patches, model->ctx);
}

/* The bias is every patch's, the first token has one position only. */
static void fold_into_positions(s24_model *model)
{
    const int64_t width = model->shape.width;
    float *rows = s24i_writable(model->position_rows);
    for (int64_t t = 0; t < model->shape.positions; t++) {
        const float *more = t < model->patch_map.first ? model->first_token : model->patch_bias;
        for (int64_t i = 0; i < width; i++)
            rows[t * width + i] += more[i];
    }
}

s24_status s24i_patches_build(s24_model *model, s24_ctx *ctx, const float *weight)
{
    const s24i_patches *p = &model->patch_map;
    const int64_t width = model->shape.width, used = p->channels * p->patch * p->patch;
    float *rows;
    fold_into_positions(model);
    TRY(s24i_alloc_elems(&rows, ctx, width * p->row, sizeof *rows, "the patches' layer"));
    memset(rows, 0, (size_t)(width * p->row) * sizeof *rows);
    for (int64_t r = 0; r < width; r++)
        memcpy(rows + r * p->row, weight + r * used, (size_t)used * sizeof *rows);
    const s24i_source source = {.dense = {rows, S24_F32, width, p->row, 0}};
    const s24_status status = model->device
                                  ? s24i_gpu_linear_make(&model->patches, model, ctx, &source)
                                  : make_dense(&model->patches, model, ctx, &source, S24_F32);
    s24_ctx_free(ctx, rows);
    return status;
}

static s24_status join_dense(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
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

/* Of integers their form in a file, which is what matrices are made from. */
static s24_status stored_values(uint8_t *to, s24_ctx *ctx, const s24_matrix *matrix, size_t bytes)
{
    if (s24_matrix_bits(matrix)) return s24_matrix_to_quantized(to, ctx, matrix);
    memcpy(to, s24_matrix_values(matrix), bytes);
    return S24_OK;
}

static s24_status join_matrices(s24i_linear *linear, s24_model *model, s24_ctx *ctx,
                                const s24i_source *sources)
{
    const s24_matrix *first = sources[0].matrix;
    const int64_t n = s24_matrix_rows(first), k = s24_matrix_cols(first);
    const int64_t group = s24_matrix_group(first);
    const s24_dtype dtype = s24_matrix_dtype(first);
    const size_t values =
        (size_t)(n * (k / (s24_matrix_bits(first) == 4 ? 4 : 2))) * s24_dtype_bytes(dtype);
    const size_t scales = group ? (size_t)(n * ((k + group - 1) / group)) * sizeof(float) : 0;
    const size_t indices = (size_t)(n * ((k + 7) / 8));
    uint8_t *bytes;
    TRY(s24i_alloc_elems(&bytes, ctx, 3, scales + values + indices, "a joined weight"));
    uint8_t *all_values = bytes + 3 * scales, *all_indices = all_values + 3 * values;
    s24_status status = S24_OK;
    for (size_t i = 0; i < 3 && status == S24_OK; i++) {
        const s24_matrix *matrix = sources[i].matrix;
        if (scales) memcpy(bytes + i * scales, s24_matrix_scales(matrix), scales);
        status = stored_values(all_values + i * values, ctx, matrix, values);
        memcpy(all_indices + i * indices, s24_matrix_indices(matrix), indices);
    }
    s24i_source joined = {.matrix = NULL};
    const s24_quantized from = {.rows = 3 * n,
                                .cols = k,
                                .bits = s24_matrix_bits(first),
                                .group = group,
                                .values = all_values,
                                .indices = all_indices,
                                .scales = (const float *)(const void *)bytes};
    if (status == S24_OK && scales)
        status = s24_matrix_from_quantized(&joined.matrix, ctx, &from);
    else if (status == S24_OK)
        status =
            s24_matrix_from_packed(&joined.matrix, ctx, all_values, all_indices, dtype, 3 * n, k);
    if (status == S24_OK) status = linear_make(linear, model, ctx, &joined);
    s24_matrix_destroy(joined.matrix);
    s24_ctx_free(ctx, bytes);
    return status;
}

/* Are they three matrices of one dtype, or of one scheme? */
static int can_be_joined(const s24i_source *sources)
{
    const s24_matrix *first = sources[0].matrix;
    for (int i = 1; i < 3; i++) {
        const s24_matrix *other = sources[i].matrix;
        if (!first || !other || s24_matrix_dtype(first) != s24_matrix_dtype(other) ||
            s24_matrix_bits(first) != s24_matrix_bits(other) ||
            s24_matrix_group(first) != s24_matrix_group(other))
            return 0;
    }
    return 1;
}

static s24_status build_qkv(s24i_block *block, s24_model *model, s24_ctx *ctx,
                            const s24i_source *slots)
{
    s24i_source sources[3];
    for (int i = 0; i < 3; i++)
        sources[block->place[i]] = slots[i];
    const int matrices =
        (sources[0].matrix != NULL) + (sources[1].matrix != NULL) + (sources[2].matrix != NULL);
    const int joint = model->shape.joint || slots[S24I_QUERY].laid_out.data;
    const int join = joint || matrices == 0 || can_be_joined(sources);
    block->qkv_count = join ? 1 : 3;
    for (int i = 0; i < 3; i++)
        if (!join || !block->place[i]) block->qkv[join ? 0 : i].bias = block->bias[i];
    if (joint) return linear_make(&block->qkv[0], model, ctx, &slots[S24I_QUERY]);
    if (matrices == 0) return join_dense(&block->qkv[0], model, ctx, sources);
    if (join) return join_matrices(&block->qkv[0], model, ctx, sources);
    for (int i = 0; i < 3; i++)
        TRY(linear_make(&block->qkv[i], model, ctx, &slots[i]));
    return S24_OK;
}

static s24_status build(s24i_block *block, s24_model *model, s24_ctx *ctx,
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

s24_status s24i_block_build(s24_model *model, s24_ctx *ctx, int64_t block,
                            const s24i_source sources[S24I_SLOTS])
{
    s24i_block *old = &model->blocks[block];
    s24i_block made = *old;
    memset(made.qkv, 0, sizeof made.qkv);
    made.attention = made.intermediate = made.output = (s24i_linear){0};
    const s24_status status = build(&made, model, ctx, sources);
    if (status != S24_OK) {
        s24i_block_clear(&made, ctx);
        return status;
    }
    s24i_block_clear(old, ctx);
    *old = made;
    return model->chooser ? s24i_choose_block(model, ctx, block) : S24_OK;
}

s24_status s24i_model_set_block(s24_model *model, s24_ctx *ctx, int64_t block,
                                const s24_dense weights[S24I_SLOTS])
{
    s24i_source sources[S24I_SLOTS];
    for (int slot = 0; slot < S24I_SLOTS; slot++)
        sources[slot] = (s24i_source){.dense = weights[slot]};
    return s24i_block_build(model, ctx, block, sources);
}
