// SPDX-License-Identifier: Apache-2.0
/*
 * A model's weights on its device. The floats that the loader fills lie there once more, narrowed,
 * each at its own place in the array; mapped word embeddings beside them.
 */
#include "run/gpu/gpu_model.h"

#include <string.h>

#include "run/weight/weight_device.h"

static void release(s24_ctx *ctx, s24_device *device, void *memory)
{
    if (memory) (void)s24_device_free(ctx, device, memory, NULL);
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

/* Biases of a joint layer head by head, whose rows stand sorted there: queries', keys', values'. */
static s24_status sort_biases(s24_model *model, s24_ctx *ctx)
{
    const s24i_shape *s = &model->shape;
    const int64_t d = s->head_width, all = 3 * s->heads * d;
    float *sorted;
    if (!model->architecture->head_by_head) return S24_OK;
    TRY(s24i_alloc_elems(&sorted, ctx, all, sizeof *sorted, "biases"));
    for (int64_t b = 0; b < s->layers; b++) {
        const float *bias = model->blocks[b].qkv[0].bias;
        for (int64_t i = 0; bias && i < all; i++)
            sorted[i] = bias[(i / d % s->heads * 3 + i / d / s->heads) * d + i % d];
        if (bias) memcpy(s24i_writable(bias), sorted, (size_t)all * sizeof *sorted);
    }
    s24_ctx_free(ctx, sorted);
    return S24_OK;
}

s24_status s24i_gpu_upload(s24_model *model, s24_ctx *ctx)
{
    const s24i_shape *s = &model->shape;
    const int64_t count = model->float_count;
    const int64_t words = s->vocabulary * s24i_embedding_width(s);
    const int mapped = model->words_map.data != NULL;
    TRY(sort_biases(model, ctx));
    TRY(s24_device_alloc(&model->device_floats, ctx, model->device,
                         (size_t)(S24I_GPU_ELEMENT * count), NULL));
    TRY(s24i_device_upload(model->device_floats, ctx, model->device, model->dtype, model->floats,
                           count));
    model->device_words = s24i_on_device(model, model->words);
    model->device_bytes += S24I_GPU_ELEMENT * (count + (mapped ? words : 0));
    if (mapped) {
        TRY(s24_device_alloc(&model->device_map, ctx, model->device,
                             (size_t)(S24I_GPU_ELEMENT * words), NULL));
        TRY(s24i_device_upload(model->device_map, ctx, model->device, model->dtype, model->words,
                               words));
        model->device_words = model->device_map;
    }
    for (int64_t b = 0; b < s->layers; b++)
        for (int i = 0; i < s24i_block_products(&model->blocks[b]); i++)
            model->device_bytes += s24i_linear_bytes(s24i_block_product(&model->blocks[b], i));
    model->device_bytes += s24i_linear_bytes(&model->patches) + s24i_linear_bytes(&model->lm_head) +
                           s24i_linear_bytes(&model->project);
    TRY(s24i_gpu_apart_fill(model, ctx));
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
