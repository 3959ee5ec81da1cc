// SPDX-License-Identifier: Apache-2.0
/*
 * A model's weights on its device. The floats that the loader fills lie there once more, narrowed,
 * each at its own place in the array; mapped word embeddings beside them.
 */
#include "run/gpu/gpu_model.h"

#include <math.h>
#include <string.h>

/* count floats, narrowed, to device memory of at least 256-byte alignment. */
static s24_status upload(void *to, const s24_model *model, s24_ctx *ctx, const float *floats,
                         int64_t count)
{
    enum { PIECE = 1 << 20 };
    void *narrow;
    s24_status status = S24_OK;
    TRY(s24i_alloc_elems(&narrow, ctx, s24i_min(count, PIECE), S24I_GPU_ELEMENT,
                         "narrowed weights"));
    for (int64_t i = 0; i < count && status == S24_OK; i += PIECE) {
        const int64_t n = s24i_min(PIECE, count - i);
        status = s24_convert(narrow, model->dtype, floats + i, S24_F32, n);
        /* Pageable memory is read before the copy returns. */
        if (status == S24_OK)
            status = s24_device_copy(ctx, model->device, (char *)to + S24I_GPU_ELEMENT * i, narrow,
                                     (size_t)(S24I_GPU_ELEMENT * n), NULL);
        if (status == S24_OK) status = s24_device_wait(ctx, model->device, NULL);
    }
    s24_ctx_free(ctx, narrow);
    return status;
}

static s24_status upload_dense(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                               const s24_dense *dense)
{
    const float limit = model->dtype == S24_F16 ? 65504.0f : 3.38953139e38f;
    const int64_t count = dense->rows * dense->cols;
    REQUIRE(ctx, s24i_ld(dense) == dense->cols, S24_ERROR_SHAPE, "a dense weight with a stride");
    for (int64_t i = 0; i < count; i++)
        REQUIRE(ctx, fabsf(((const float *)dense->data)[i]) <= limit, S24_ERROR_NOT_FINITE,
                "a weight at row %lld, column %lld is %g, which %s cannot hold",
                (long long)(i / dense->cols), (long long)(i % dense->cols),
                (double)((const float *)dense->data)[i], s24_dtype_name(model->dtype));
    TRY(s24_device_alloc(&linear->dense, ctx, model->device, (size_t)(S24I_GPU_ELEMENT * count),
                         NULL));
    return upload(linear->dense, model, ctx, dense->data, count);
}

static s24_status upload_packed(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                                const s24_dense *floats)
{
    const s24_matrix_opts opts = {.size = sizeof opts, .dtype = model->dtype};
    s24_matrix *matrix;
    TRY(s24_matrix_create(&matrix, ctx, floats, &opts));
    const s24_status status =
        s24_device_weight_create(&linear->packed, ctx, model->device, matrix, NULL);
    s24_matrix_destroy(matrix);
    return status;
}

s24_status s24i_gpu_linear_make(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                                const s24i_source *source)
{
    linear->device = model->device;
    if (!source->matrix) {
        linear->n = source->dense.rows;
        linear->k = source->dense.cols;
        return upload_dense(linear, model, ctx, &source->dense);
    }
    linear->n = s24_matrix_rows(source->matrix);
    linear->k = s24_matrix_cols(source->matrix);
    if (!s24_matrix_bits(source->matrix) && !model->narrow)
        return s24_device_weight_create(&linear->packed, ctx, model->device, source->matrix, NULL);
    s24_dense floats = {NULL, S24_F32, linear->n, linear->k, 0};
    TRY(s24i_alloc_elems(&floats.data, ctx, linear->n * linear->k, sizeof(float), "a weight"));
    s24_status status = s24_matrix_to_dense(ctx, &floats, source->matrix);
    if (status == S24_OK) status = upload_packed(linear, model, ctx, &floats);
    if (status == S24_OK && model->narrow)
        status = s24i_gpu_eight_make(linear, model, ctx, &floats);
    s24_ctx_free(ctx, floats.data);
    return status;
}

static void release(s24_ctx *ctx, s24_device *device, void *memory)
{
    if (memory) (void)s24_device_free(ctx, device, memory, NULL);
}

void s24i_gpu_linear_clear(s24i_linear *linear, s24_ctx *ctx)
{
    s24_device_weight_destroy(linear->packed);
    s24_device_weight_destroy(linear->narrow);
    release(ctx, linear->device, linear->dense);
    release(ctx, linear->device, linear->narrow_scale);
}

static int64_t product_bytes(const s24i_linear *l)
{
    const int64_t narrow = l->narrow ? l->n * (int64_t)sizeof *l->narrow_scale : 0;
    return (int64_t)s24_device_weight_bytes(l->packed) +
           (int64_t)s24_device_weight_bytes(l->narrow) + narrow +
           (l->dense ? S24I_GPU_ELEMENT * l->n * l->k : 0);
}

/* A head's bias is added in f32. */
static s24_status upload_bias(float **to, const s24_model *model, s24_ctx *ctx, const float *bias,
                              int64_t count)
{
    const size_t bytes = (size_t)count * sizeof *bias;
    void *memory;
    if (!bias) return S24_OK;
    TRY(s24_device_alloc(&memory, ctx, model->device, bytes, NULL));
    *to = memory;
    TRY(s24_device_copy(ctx, model->device, memory, bias, bytes, NULL));
    return s24_device_wait(ctx, model->device, NULL);
}

s24_status s24i_gpu_upload(s24_model *model, s24_ctx *ctx)
{
    const s24i_shape *s = &model->shape;
    const int64_t count = model->float_count, words = s->vocabulary * s->width;
    const int mapped = model->words_map.data != NULL;
    TRY(s24_device_alloc(&model->device_floats, ctx, model->device,
                         (size_t)(S24I_GPU_ELEMENT * count), NULL));
    TRY(upload(model->device_floats, model, ctx, model->floats, count));
    model->device_words = s24i_on_device(model, model->words);
    model->device_bytes += S24I_GPU_ELEMENT * (count + (mapped ? words : 0));
    if (mapped) {
        TRY(s24_device_alloc(&model->device_map, ctx, model->device,
                             (size_t)(S24I_GPU_ELEMENT * words), NULL));
        TRY(upload(model->device_map, model, ctx, model->words, words));
        model->device_words = model->device_map;
    }
    for (int64_t b = 0; b < s->layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++)
            model->device_bytes += product_bytes(s24i_block_product(&model->blocks[b], i));
    model->device_bytes += product_bytes(&model->patches) + product_bytes(&model->lm_head);
    TRY(upload_bias(&model->device_qa_bias, model, ctx, model->qa_bias, 2));
    return upload_bias(&model->device_class_bias, model, ctx, model->class_bias, s->classes);
}

void s24i_gpu_free(s24_model *model)
{
    if (!model->device) return;
    release(model->ctx, model->device, model->device_floats);
    release(model->ctx, model->device, model->device_map);
    release(model->ctx, model->device, model->device_qa_bias);
    release(model->ctx, model->device, model->device_class_bias);
}
