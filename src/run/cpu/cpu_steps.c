// SPDX-License-Identifier: Apache-2.0
/* What each kind of step does on the CPU. The order is the session's list (model/steps.h). */
#include "run/cpu/cpu_steps.h"

#include <string.h>

#include "run/cpu/attention.h"
#include "run/cpu/attention_grid.h"

static const s24_session *session_of(const s24i_chunk *c)
{
    return c->pass->session;
}

/* A place's rows of the chunk's tokens. The sums are the pass's own. */
static s24_dense place_of(const s24i_chunk *c, s24i_step_place place)
{
    s24_dense x = s24i_session_place(session_of(c), c->lane, place, c->first, c->rows);
    if (place == S24I_AT_SUMS) x.data = c->pass->hidden + c->first * x.cols;
    return x;
}

/* ---- norms ----------------------------------------------------------------------------------- */

typedef struct norm_job {
    const s24i_vec *vec;
    const s24i_layer_norm *norm;
    float *x;
} norm_job;

static void norm_range(void *arg, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const norm_job *job = arg;
    job->vec->layer_norm(job->x + first * job->norm->n, end - first, job->norm);
}

static void run_norm(const s24i_chunk *c, const s24i_block_step *step)
{
    const s24_dense from = place_of(c, step->from), to = place_of(c, step->to);
    const s24i_block *b = c->block;
    norm_job job = {session_of(c)->vec,
                    step->norm == S24I_ATTENTION_NORM ? &b->attention_norm : &b->output_norm,
                    to.data};
    if (to.data != from.data)
        memcpy(to.data, from.data, (size_t)(from.rows * from.cols) * sizeof(float));
    s24_ctx_parallel_for(c->lane->ctx, to.rows, norm_range, &job);
}

/* ---- products -------------------------------------------------------------------------------- */

static void *after(void *data, s24_dtype dtype, int64_t elems)
{
    return (char *)data + (size_t)elems * s24_dtype_bytes(dtype);
}

/* Query, key and value: of one product side by side, of three each in a matrix of its own. */
static s24_status run_qkv(const s24i_chunk *c, const s24_dense *x)
{
    const s24_session *session = session_of(c);
    const int64_t tokens = c->pass->batch->offsets[c->pass->batch->texts];
    void *to = session->qkv;
    for (int i = 0; i < c->block->qkv_count; i++) {
        const s24i_linear *l = &c->block->qkv[i];
        const s24_dense y = {after(to, session->between, c->first * l->n), session->between,
                             c->rows, l->n, l->n};
        TRY(s24i_lane_linear(c->lane, l, &y, x, 0));
        to = after(to, session->between, tokens * l->n);
    }
    return S24_OK;
}

static s24_status run_product(const s24i_chunk *c, const s24i_block_step *step, int *ends)
{
    const s24_dense x = place_of(c, step->from), y = place_of(c, step->to);
    const s24i_observer *observer = c->pass->observer;
    if (observer) TRY(observer->input(observer->user, step->slot, &x));
    *ends = s24i_pass_ends_at(c->pass, step->slot);
    if (*ends) return S24_OK;
    if (step->to == S24I_AT_QKV) return run_qkv(c, &x);
    return s24i_lane_linear(c->lane, s24i_block_product(c->block, (int)step->slot), &y, &x,
                            step->adds);
}

s24_status s24i_chunk_run(const s24i_chunk *c, int first, int end)
{
    const s24i_steps *steps = &session_of(c)->steps;
    int ends = 0;
    for (int i = first; i < end && !ends; i++) {
        const s24i_block_step *step = &steps->step[i];
        if (step->kind == S24I_STEP_NORM)
            run_norm(c, step);
        else if (step->kind == S24I_STEP_PRODUCT)
            TRY(run_product(c, step, &ends));
    }
    return S24_OK;
}

/* ---- attention ------------------------------------------------------------------------------- */

/* The block reads q, k and v of one product in f32. */
static void attend_grid(const s24i_pass *pass, const s24i_block *block)
{
    const s24_session *session = pass->session;
    const s24i_shape *shape = &session->model->shape;
    const s24i_attention_grid job = {.vec = session->vec,
                                     .qkv = session->qkv,
                                     .bias = block->bias[S24I_QUERY],
                                     .rel_h = block->rel_h,
                                     .rel_w = block->rel_w,
                                     .context = session->context,
                                     .images = pass->batch->texts,
                                     .grid = shape->grid,
                                     .side =
                                         s24i_attended_side(shape, block - session->model->blocks),
                                     .heads = shape->heads,
                                     .d = shape->head_width,
                                     .scratch = session->scratch,
                                     .scratch_elems = session->scratch_elems};
    s24i_attention_grid_run(pass->ctx, &job);
}

void s24i_pass_attend(const s24i_pass *pass, const s24i_block *block)
{
    if (block->rel_h) {
        attend_grid(pass, block);
        return;
    }
    const s24_session *session = pass->session;
    const s24i_shape *shape = &session->model->shape;
    const int64_t tokens = pass->batch->offsets[pass->batch->texts];
    const int64_t width[3] = {s24i_slot_outputs(shape, S24I_QUERY),
                              s24i_slot_outputs(shape, S24I_KEY),
                              s24i_slot_outputs(shape, S24I_VALUE)};
    const int joined = block->qkv_count == 1; /* then q, k and v stand side by side */
    const int64_t all = width[0] + width[1] + width[2];
    void *at[3];
    for (int i = 0; i < 3; i++) {
        int64_t before = 0;
        for (int j = 0; j < 3; j++)
            if (block->place[j] < block->place[i]) before += width[j];
        at[i] = after(session->qkv, session->between, joined ? before : before * tokens);
    }
    const s24i_attention attention = {.vec = session->vec,
                                      .dtype = session->between,
                                      .q = at[S24I_QUERY],
                                      .k = at[S24I_KEY],
                                      .v = at[S24I_VALUE],
                                      .ld = joined ? all : width[0],
                                      .kv_ld = joined ? all : width[1],
                                      .context = session->context,
                                      .batch = pass->batch,
                                      .tiles = session->tiles,
                                      .heads = shape->heads,
                                      .kv_heads = shape->kv_heads,
                                      .d = shape->head_width,
                                      .scratch = session->scratch,
                                      .scratch_elems = session->scratch_elems};
    s24i_attention_run(pass->ctx, &attention);
}
