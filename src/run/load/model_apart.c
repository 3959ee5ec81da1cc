// SPDX-License-Identifier: Apache-2.0
/*
 * What a block's layers for queries and keys make of the rows of distances (model/apart.h), which
 * is the same for every text: once its products are there, and anew where they change.
 */
#include "run/load/model_apart.h"

#include <string.h>

#include "model/apart.h"
#include "run/cpu/attention_apart.h"
#include "run/weight/weight.h"

typedef struct making {
    s24_model *model;
    s24_ctx *ctx;
    float *rows; /* [rows, width] of the table, normed */
    float *made; /* [rows, outputs] of a product */
    void *work;
    s24i_dense_runner *runner;
} making;

static s24_status run(making *m, const s24i_linear *l)
{
    const int64_t rows = s24i_apart_rows(&m->model->shape.apart);
    const s24_dense x = {m->rows, S24_F32, rows, l->k, l->k},
                    y = {m->made, S24_F32, rows, l->n, l->n};
    const size_t bytes = s24i_linear_work_bytes(l, m->ctx, rows);
    const s24i_product_job product = {
        .y = &y, .x = &x, .bias = l->bias, .activation = l->activation, .work_bytes = bytes};
    s24i_product_job job = product;
    s24_ctx_free(m->ctx, m->work);
    m->work = NULL;
    TRY(s24i_alloc_elems(&m->work, m->ctx, (int64_t)s24i_max((int64_t)bytes, 1), 1, "work memory"));
    job.work = m->work;
    job.runner = m->runner;
    return s24i_weight_run(s24i_linear_any(l), m->ctx, &job);
}

/* Heads' columns of what a product made, turned. */
static void keep(const making *m, float *to, int64_t outputs, int64_t first)
{
    const s24i_shape *s = &m->model->shape;
    const int64_t rows = s24i_apart_rows(&s->apart), ld = s24i_apart_ld(&s->apart);
    for (int64_t c = 0; c < s->heads * s->head_width; c++)
        for (int64_t r = 0; r < rows; r++)
            to[c * ld + r] = m->made[r * outputs + first + c];
}

static s24_status fill(making *m, s24i_block *block)
{
    const s24i_shape *s = &m->model->shape;
    const int64_t wide = s->heads * s->head_width;
    float *const to[] = {s->apart.of_keys ? s24i_writable(block->apart_queries) : NULL,
                         s->apart.of_queries ? s24i_writable(block->apart_keys) : NULL};
    if (block->qkv_count == 1) TRY(run(m, &block->qkv[0]));
    for (int i = 0; i < 2; i++) {
        if (!to[i]) continue;
        if (block->qkv_count != 1) TRY(run(m, &block->qkv[i]));
        keep(m, to[i], block->qkv_count == 1 ? 3 * wide : wide,
             block->qkv_count == 1 ? block->place[i] * wide : 0);
    }
    return S24_OK;
}

s24_status s24i_apart_fill(s24_model *model, s24_ctx *ctx, int64_t block)
{
    const s24i_shape *s = &model->shape;
    making m = {.model = model, .ctx = ctx};
    s24_status status;
    if (!model->apart || model->device) return S24_OK; /* there: run/gpu/gpu_apart.c */
    const int64_t rows = s24i_apart_rows(&s->apart);
    const int64_t outputs = s24i_max(3 * s->heads * s->head_width, s->width);
    TRY_DONE(s24i_alloc_elems(&m.rows, ctx, rows * s->width, sizeof *m.rows, "distances"));
    TRY_DONE(s24i_alloc_elems(&m.made, ctx, rows * outputs, sizeof *m.made, "distances"));
    TRY_DONE(s24i_dense_engine.runner_create(&m.runner, ctx,
                                             model->dtype == S24_F32 ? 0 : rows * outputs));
    memcpy(m.rows, model->apart, (size_t)(rows * s->width) * sizeof *m.rows);
    if (model->apart_norm.gamma)
        s24i_vec_find(s24_ctx_cpu(ctx))->layer_norm(m.rows, rows, &model->apart_norm);
    status = fill(&m, &model->blocks[block]);
done:
    s24i_dense_engine.runner_destroy(m.runner);
    s24_ctx_free(ctx, m.work);
    s24_ctx_free(ctx, m.made);
    s24_ctx_free(ctx, m.rows);
    return status;
}
