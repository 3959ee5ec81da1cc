// SPDX-License-Identifier: Apache-2.0
/*
 * Tokens in 8 bits on a device, for weights that are (weight_device_eight.c): each gets a scale
 * when it is multiplied. Where a norm makes them, it writes them in 8 bits too; elsewhere a kernel
 * of its own does. The plan measures where that is faster (gpu_search.c).
 */
#include "run/gpu/gpu_state.h"

s24_status s24i_gpu_eight_reserve(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_shape *s = &gpu->model->shape;
    void *memory;
    if (!gpu->model->narrow) return S24_OK;
    TRY(s24_device_alloc(&gpu->eight, ctx, gpu->device,
                         (size_t)(gpu->max_tokens * s24i_max(s->width, s->intermediate)),
                         gpu->stream));
    TRY(s24_device_alloc(&memory, ctx, gpu->device, (size_t)gpu->max_tokens * sizeof(float),
                         gpu->stream));
    gpu->eight_scale = memory;
    return S24_OK;
}

s24_dense s24i_gpu_eight_view(const s24i_gpu_session *gpu, int64_t rows, int64_t cols)
{
    return (s24_dense){gpu->eight, gpu->model->narrow, rows, cols, 0};
}

s24_status s24i_gpu_quantise(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_dense *x)
{
    const s24_dense y = s24i_gpu_eight_view(gpu, x->rows, x->cols);
    const s24_device_quantise_args args = {
        .size = sizeof args, .y = &y, .scale = gpu->eight_scale, .x = x, .stream = gpu->stream};
    return s24_device_quantise(ctx, gpu->device, &args);
}
