// SPDX-License-Identifier: Apache-2.0
/*
 * What a block's layers for queries and keys make of the rows of distances (model/apart.h), for a
 * model on a device: made there once its weights are, by the products that passes run, and kept as
 * rows [rows, heads·head_width] in the place that the model's floats have for them.
 */
#include <string.h>

#include "model/apart.h"
#include "run/gpu/gpu_model.h"
#include "run/weight/weight_device.h"

enum { DENSE_WORK = 32 << 20 };

typedef struct making {
    s24_model *model;
    s24_ctx *ctx;
    void *rows; /* [rows, width] of the table, normed */
    void *made; /* [rows, outputs] of a product */
    void *work;
    size_t work_bytes;
} making;

static s24_status reserve(void **out, const making *m, size_t bytes)
{
    return s24_device_alloc(out, m->ctx, m->model->device, bytes, NULL);
}

static s24_status run(const making *m, const s24i_linear *l)
{
    const s24_model *model = m->model;
    const int64_t rows = s24i_apart_rows(&model->shape.apart);
    const s24_dense x = {m->rows, model->dtype, rows, l->k, 0},
                    y = {m->made, model->dtype, rows, l->n, 0};
    const s24i_product_job product = {.y = &y,
                                      .x = &x,
                                      .bias = s24i_on_device(model, l->bias),
                                      .activation = l->activation,
                                      .work = m->work,
                                      .work_bytes = m->work_bytes};
    return s24i_weight_run(s24i_linear_any(l), m->ctx, &product);
}

/* Its columns from `first` on become the rows that stand at `to` in the model's floats. */
static s24_status keep(const making *m, const float *to, int64_t outputs, int64_t first)
{
    const s24_model *model = m->model;
    const s24i_shape *s = &model->shape;
    const size_t row = (size_t)(S24I_GPU_ELEMENT * s->heads * s->head_width);
    char *at = (char *)(uintptr_t)s24i_on_device(model, to);
    const char *from = (const char *)m->made + S24I_GPU_ELEMENT * first;
    for (int64_t r = 0; r < s24i_apart_rows(&s->apart); r++)
        TRY(s24_device_copy(m->ctx, model->device, at + (size_t)r * row,
                            from + S24I_GPU_ELEMENT * r * outputs, row, NULL));
    return S24_OK;
}

static s24_status fill(const making *m, const s24i_block *block)
{
    const int64_t wide = m->model->shape.heads * m->model->shape.head_width;
    const float *const to[] = {block->apart_queries, block->apart_keys};
    const int joined = block->qkv_count == 1;
    if (joined) TRY(run(m, &block->qkv[0]));
    for (int i = 0; i < 2; i++) {
        if (!to[i]) continue;
        if (!joined) TRY(run(m, &block->qkv[i]));
        TRY(keep(m, to[i], joined ? 3 * wide : wide, joined ? block->place[i] * wide : 0));
    }
    return s24_device_wait(m->ctx, m->model->device, NULL);
}

/* The table's rows, normed, to the device. */
static s24_status upload_rows(making *m)
{
    const s24_model *model = m->model;
    const int64_t count = s24i_apart_rows(&model->shape.apart) * model->shape.width;
    float *rows;
    TRY(s24i_alloc_elems(&rows, m->ctx, count, sizeof *rows, "distances"));
    memcpy(rows, model->apart, (size_t)count * sizeof *rows);
    if (model->apart_norm.gamma)
        s24i_vec_find(s24_ctx_cpu(m->ctx))
            ->layer_norm(rows, s24i_apart_rows(&model->shape.apart), &model->apart_norm);
    const s24_status status =
        s24i_device_upload(m->rows, m->ctx, model->device, model->dtype, rows, count);
    s24_ctx_free(m->ctx, rows);
    return status;
}

/* Room for what is made, and what the most demanding of the products works in. */
static s24_status begin(making *m)
{
    const s24i_shape *s = &m->model->shape;
    const int64_t rows = s24i_apart_rows(&s->apart);
    m->work_bytes = DENSE_WORK;
    for (int64_t b = 0; b < s->layers; b++)
        for (int i = 0; i < m->model->blocks[b].qkv_count; i++) {
            const size_t bytes = s24i_linear_work_bytes(&m->model->blocks[b].qkv[i], m->ctx, rows);
            m->work_bytes = bytes > m->work_bytes ? bytes : m->work_bytes;
        }
    TRY(reserve(&m->rows, m, (size_t)(S24I_GPU_ELEMENT * rows * s->width)));
    TRY(reserve(&m->made, m, (size_t)(S24I_GPU_ELEMENT * rows * 3 * s->heads * s->head_width)));
    TRY(reserve(&m->work, m, m->work_bytes));
    TRY(s24_device_clear(m->ctx, m->model->device, m->work, m->work_bytes, NULL));
    return upload_rows(m);
}

s24_status s24i_gpu_apart_fill(s24_model *model, s24_ctx *ctx)
{
    making m = {.model = model, .ctx = ctx};
    if (!model->apart) return S24_OK;
    s24_status status = begin(&m);
    for (int64_t b = 0; b < model->shape.layers && status == S24_OK; b++)
        status = fill(&m, &model->blocks[b]);
    void *const memory[] = {m.rows, m.made, m.work};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i]) (void)s24_device_free(ctx, model->device, memory[i], NULL);
    return status;
}
