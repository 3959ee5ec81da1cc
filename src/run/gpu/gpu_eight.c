// SPDX-License-Identifier: Apache-2.0
/*
 * Products in 8 bits on a device: 2:4 weights with a scale per row, kept next to the 16-bit ones,
 * and tokens that get a scale each when they are multiplied. Where a norm makes them, it writes
 * them in 8 bits too; elsewhere a kernel of its own does. The plan measures where that is faster
 * (gpu_plan.c).
 */
#include "run/gpu/gpu_state.h"

#include <math.h>

static double largest_number(s24_dtype dtype)
{
    return dtype == S24_I8 ? 127 : 448;
}

/* Rows divided by their scales: the largest magnitude becomes the dtype's largest number. */
static void scale_rows(float *scales, const s24_dense *floats, s24_dtype dtype)
{
    for (int64_t r = 0; r < floats->rows; r++) {
        float *row = (float *)floats->data + r * floats->cols, most = 0;
        for (int64_t c = 0; c < floats->cols; c++)
            most = fmaxf(most, fabsf(row[c]));
        scales[r] = (float)((double)most / largest_number(dtype));
        const float factor = most > 0 ? (float)(largest_number(dtype) / (double)most) : 0;
        for (int64_t c = 0; c < floats->cols; c++)
            row[c] *= factor;
    }
}

static s24_status upload_eight(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                               const s24_dense *scaled, const float *scales)
{
    const s24_matrix_opts opts = {.size = sizeof opts, .dtype = model->narrow};
    const size_t bytes = (size_t)linear->n * sizeof *scales;
    s24_matrix *matrix;
    void *memory;
    TRY(s24_matrix_create(&matrix, ctx, scaled, &opts));
    const s24_status status =
        s24_device_weight_create(&linear->narrow, ctx, model->device, matrix, NULL);
    s24_matrix_destroy(matrix);
    TRY(status);
    TRY(s24_device_alloc(&memory, ctx, model->device, bytes, NULL));
    linear->narrow_scale = memory;
    TRY(s24_device_copy(ctx, model->device, memory, scales, bytes, NULL));
    return s24_device_wait(ctx, model->device, NULL);
}

s24_status s24i_gpu_eight_make(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                               const s24_dense *floats)
{
    enum { MOST_WIDTH = 8192 };
    float *scales;
    /* Its tokens must be at multiples of 16 bytes, and none longer than what quantises them
       takes. */
    if (linear->k % 16 || linear->k > MOST_WIDTH) return S24_OK;
    TRY(s24i_alloc_elems(&scales, ctx, linear->n, sizeof *scales, "scales"));
    scale_rows(scales, floats, model->narrow);
    const s24_status status = upload_eight(linear, model, ctx, floats, scales);
    s24_ctx_free(ctx, scales);
    return status;
}

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

s24_status s24i_gpu_eight_product(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_linear *l,
                                  const s24_dense *y, const char *tile)
{
    const s24_dense x = s24i_gpu_eight_view(gpu, y->rows, l->k);
    const s24_device_linear_args args = {.size = sizeof args,
                                         .y = y,
                                         .x = &x,
                                         .bias = s24i_on_device(gpu->model, l->bias),
                                         .activation = l->activation,
                                         .work = gpu->work,
                                         .work_bytes = gpu->work_bytes,
                                         .tile = tile,
                                         .x_scale = gpu->eight_scale,
                                         .w_scale = l->narrow_scale,
                                         .stream = gpu->stream};
    return s24_device_linear(ctx, gpu->device, l->narrow, &args);
}

int s24i_gpu_runs_eight(const s24i_gpu_session *gpu, int64_t tokens, int64_t block, int index)
{
    return gpu->choices[s24i_gpu_octave(tokens)][index].eight &&
           s24i_block_product(&gpu->model->blocks[block], index)->narrow;
}
