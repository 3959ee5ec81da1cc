// SPDX-License-Identifier: Apache-2.0
#include "run/weight/weight_device.h"

#include "run/gpu/gpu_model.h"

int s24i_device_takes_integers(const s24_model *model, const s24i_source *source)
{
    const s24_matrix *matrix = source->matrix;
    const int64_t group = matrix ? s24_matrix_group(matrix) : source->integers.group;
    const int64_t k = matrix ? s24_matrix_cols(matrix) : source->integers.cols;
    if (!model->device || model->narrow || source->lift) return 0;
    /* Encoders have many tokens, for which floats are faster: integers where they are asked for. */
    if (!model->architecture->lm_head && !source->scheme) return 0;
    if (matrix ? s24_matrix_bits(matrix) : source->integers.values != NULL)
        return group == 64 || group == 128 || group == k;
    return source->scheme != NULL;
}

typedef struct narrowing {
    void *to;
    s24_dtype dtype;
    const float *floats;
    int64_t count;
} narrowing;

enum { STRETCH = 1 << 14 }; /* numbers that a thread narrows at a time */

static void narrow_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const narrowing *job = arg;
    const int64_t first = begin * STRETCH, count = s24i_min(end * STRETCH, job->count) - first;
    (void)thread;
    /* Dtypes that there are: nothing can fail. */
    (void)s24_convert((char *)job->to + S24I_GPU_ELEMENT * first, job->dtype, job->floats + first,
                      S24_F32, count);
}

s24_status s24i_device_upload(void *to, s24_ctx *ctx, s24_device *device, s24_dtype dtype,
                              const float *floats, int64_t count)
{
    enum { PIECE = 1 << 23 };
    void *narrow;
    s24_status status = S24_OK;
    TRY(s24i_alloc_elems(&narrow, ctx, s24i_min(count, PIECE), S24I_GPU_ELEMENT,
                         "narrowed weights"));
    for (int64_t i = 0; i < count && status == S24_OK; i += PIECE) {
        const int64_t n = s24i_min(PIECE, count - i);
        narrowing job = {narrow, dtype, floats + i, n};
        s24_ctx_parallel_for(ctx, (n + STRETCH - 1) / STRETCH, narrow_range, &job);
        /* Pageable memory is read before the copy returns. */
        status = s24_device_copy(ctx, device, (char *)to + S24I_GPU_ELEMENT * i, narrow,
                                 (size_t)(S24I_GPU_ELEMENT * n), NULL);
        if (status == S24_OK) status = s24_device_wait(ctx, device, NULL);
    }
    s24_ctx_free(ctx, narrow);
    return status;
}

s24_status s24i_device_put_scales(s24i_device_weight *w, s24_ctx *ctx, const float *scales)
{
    const size_t bytes = (size_t)w->n * sizeof *scales;
    void *memory;
    TRY(s24_device_alloc(&memory, ctx, w->device, bytes, NULL));
    w->scale = memory;
    TRY(s24_device_copy(ctx, w->device, memory, scales, bytes, NULL));
    return s24_device_wait(ctx, w->device, NULL);
}

void s24i_device_weight_clear(s24i_weight *weight, s24_ctx *ctx)
{
    s24i_device_weight *w = (s24i_device_weight *)weight;
    s24_device_weight_destroy(w->packed);
    s24_device_integers_destroy(w->integers);
    s24_device_blocks_destroy(w->blocks);
    if (w->dense) (void)s24_device_free(ctx, w->device, w->dense, w->stream);
    if (w->scale) (void)s24_device_free(ctx, w->device, w->scale, w->stream);
    s24_ctx_free(weight->ctx, w->lengths);
}

int64_t s24i_device_weight_bytes(const s24i_weight *weight)
{
    const s24i_device_weight *w = s24i_weight_on_device(weight);
    return (int64_t)(s24_device_weight_bytes(w->packed) + s24_device_integers_bytes(w->integers) +
                     s24_device_blocks_bytes(w->blocks)) +
           (w->dense ? (int64_t)s24_dtype_bytes(w->dtype) * w->n * w->k : 0) +
           (w->scale ? w->n * (int64_t)sizeof *w->scale : 0);
}

size_t s24i_device_weight_work_bytes(const s24i_weight *weight, const s24_ctx *ctx, int64_t rows)
{
    const s24i_device_weight *w = s24i_weight_on_device(weight);
    (void)ctx, (void)rows;
    return w->packed ? s24_device_linear_work_bytes(w->device, w->packed) : 0;
}

s24_status s24i_device_weight_run(const s24i_weight *weight, s24_ctx *ctx,
                                  const s24i_product_job *p)
{
    const s24i_device_weight *w = s24i_weight_on_device(weight);
    const s24_device_linear_args args = {.size = sizeof args,
                                         .y = p->y,
                                         .x = p->x,
                                         .bias = p->bias,
                                         .activation = p->activation,
                                         .residual = p->residual,
                                         .work = p->work,
                                         .work_bytes = p->work_bytes,
                                         .tile = p->tile,
                                         .x_scale = p->x_scale,
                                         .w_scale = w->scale,
                                         .alpha = p->alpha,
                                         .y_scale = p->y_scale,
                                         .stream = p->stream,
                                         .norm = p->norm};
    return s24_device_linear(ctx, w->device, w->packed, &args);
}
