// SPDX-License-Identifier: Apache-2.0
/* What each kind of step does on the CPU. The order is the session's list (model/steps.h). */
#include "run/cpu/cpu_steps.h"

#include <string.h>

#include "model/rotary.h"
#include "run/cpu/gate.h"
#include "run/cpu/kv_cache.h"
#include "run/cpu/latent_heads.h"

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
    const s24i_layer_norm *const norms[] = {[S24I_ATTENTION_NORM] = &b->attention_norm,
                                            [S24I_OUTPUT_NORM] = &b->output_norm,
                                            [S24I_AFTER_ATTENTION_NORM] = &b->after_attention_norm,
                                            [S24I_AFTER_OUTPUT_NORM] = &b->after_output_norm};
    norm_job job = {session_of(c)->vec, norms[step->norm], to.data};
    if (to.data != from.data)
        memcpy(to.data, from.data, (size_t)(from.rows * from.cols) * sizeof(float));
    if (job.norm->gamma) s24_ctx_parallel_for(c->lane->ctx, to.rows, norm_range, &job);
}

/* ---- sums ------------------------------------------------------------------------------------ */

typedef struct add_job {
    const s24i_vec *vec;
    float *to;
    const float *from;
    const float *scale; /* of each column, in place of factor; NULL: none */
    float factor;
    int64_t cols;
} add_job;

/* to += scale · from, of one token. */
static void add_scaled(float *to, const float *scale, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += scale[i] * from[i];
}

static void add_range(void *arg, int64_t first, int64_t end, int thread)
{
    const add_job *j = arg;
    (void)thread;
    for (int64_t r = first; r < end && j->scale; r++)
        add_scaled(j->to + r * j->cols, j->scale, j->from + r * j->cols, j->cols);
    if (j->scale) return;
    j->vec->axpy(j->to + first * j->cols, j->factor, j->from + first * j->cols,
                 (end - first) * j->cols);
}

/* What is added to the residual after it was made. */
static void run_add(const s24i_chunk *c, const s24i_block_step *step)
{
    const s24_dense from = place_of(c, step->from), to = place_of(c, step->to);
    const float factor = session_of(c)->model->shape.residual_factor;
    add_job job = {.vec = session_of(c)->vec,
                   .to = to.data,
                   .from = from.data,
                   .scale = step->slot == S24I_OUTPUT ? c->block->output_scale
                                                      : c->block->attention_scale,
                   .factor = factor > 0.0f ? factor : 1.0f,
                   .cols = to.cols};
    s24_ctx_parallel_for(c->lane->ctx, to.rows, add_range, &job);
}

/* ---- products -------------------------------------------------------------------------------- */

s24i_qkv_places s24i_qkv_of(const s24i_pass *pass, const s24i_block *block)
{
    const s24_session *session = pass->session;
    const s24i_shape *shape = &session->model->shape;
    const int64_t tokens = pass->batch->offsets[pass->batch->texts];
    const int joined = block->qkv_count == 1, mixed = session->model->architecture->head_by_head;
    s24i_qkv_places places = {.head = (mixed ? 3 : 1) * shape->head_width};
    if (shape->latent.rank) {
        const s24i_latent_places latent = s24i_latent_places_of(session);
        return (s24i_qkv_places){{session->qkv, latent.keys, latent.keys},
                                 {latent.ld, latent.ld, latent.ld},
                                 shape->head_width};
    }
    for (int i = 0; i < 3; i++) {
        int64_t before = 0;
        for (int j = 0; j < 3; j++)
            if (block->place[j] < block->place[i])
                before += mixed ? shape->head_width : s24i_slot_outputs(shape, (s24i_slot)j);
        places.at[i] =
            s24i_after(session->qkv, session->between, joined ? before : before * tokens);
        places.ld[i] = joined ? s24i_qkv_outputs(shape) : s24i_slot_outputs(shape, (s24i_slot)i);
    }
    return places;
}

static s24_status run_qkv(const s24i_chunk *c, const s24_dense *x)
{
    const s24_dtype dtype = session_of(c)->between;
    const s24i_qkv_places to = s24i_qkv_of(c->pass, c->block);
    if (c->block->qkv_count == 1) {
        const s24i_linear *l = &c->block->qkv[0];
        void *first = session_of(c)->qkv;
        const s24_dense y = {s24i_after(first, dtype, c->first * l->n), dtype, c->rows, l->n, l->n};
        return s24i_lane_linear(c->lane, l, &y, x, 0);
    }
    for (int i = 0; i < 3; i++) {
        const int64_t n = to.ld[i];
        const s24_dense y = {s24i_after(to.at[i], dtype, c->first * n), dtype, c->rows, n, n};
        TRY(s24i_lane_linear(c->lane, &c->block->qkv[i], &y, x, 0));
    }
    return S24_OK;
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* Where the gate's result stands: after the room of its operands. */
static void *gated_at(const s24i_chunk *c)
{
    const s24_session *session = session_of(c);
    return s24i_after(c->lane->outer, session->between,
                      c->lane->rows * 2 * session->model->shape.intermediate);
}

/* Gate and intermediate stand side by side if they are one product, else one after the other. */
static void *ungated_at(const s24i_chunk *c, int is_gate)
{
    const s24_session *session = session_of(c);
    const int64_t n = session->model->shape.intermediate;
    const int is_first = is_gate != session->model->architecture->gate_last;
    const int64_t before = is_first ? 0 : c->block->gate.n ? c->rows * n : n;
    return s24i_after(c->lane->outer, session->between, before);
}

static void run_gate(const s24i_chunk *c)
{
    const s24_session *session = session_of(c);
    const s24i_shape *shape = &session->model->shape;
    const s24i_gate job = {.vec = session->vec,
                           .dtype = session->between,
                           .activation = shape->activation,
                           .squared = shape->squared,
                           .limit = shape->gate_limit,
                           .h = gated_at(c),
                           .g = ungated_at(c, 1),
                           .u = ungated_at(c, 0),
                           .n = shape->intermediate,
                           .ld = shape->intermediate * (c->block->gate.n ? 1 : 2)};
    s24i_gate_run(c->lane->ctx, &job, c->rows);
}

/* ReLU² of a block without a gate: products know ReLU. */
static void square(const s24i_chunk *c, const s24_dense *y)
{
    const s24i_gate job = {.vec = session_of(c)->vec,
                           .dtype = y->dtype,
                           .h = y->data,
                           .g = y->data,
                           .u = y->data,
                           .n = y->cols,
                           .ld = y->cols};
    s24i_gate_run(c->lane->ctx, &job, y->rows);
}

static s24_status run_up(const s24i_chunk *c, const s24_dense *x, const s24_dense *y)
{
    const s24i_block *b = c->block;
    const s24i_shape *shape = &session_of(c)->model->shape;
    s24_dense to = *y;
    to.cols = to.ld = b->intermediate.n;
    if (b->gate.n) {
        TRY(s24i_lane_linear(c->lane, &b->gate, &to, x, 0));
        to.data = ungated_at(c, 0);
    }
    TRY(s24i_lane_linear(c->lane, &b->intermediate, &to, x, 0));
    if (shape->squared && !shape->gated) square(c, &to);
    return S24_OK;
}

/* ---- products, by their step ----------------------------------------------------------------- */

static s24_status run_product(const s24i_chunk *c, const s24i_block_step *step, int *ends)
{
    const s24i_observer *observer = c->pass->observer;
    const s24_dense y = place_of(c, step->to);
    s24_dense x = place_of(c, step->from);
    if (step->slot == S24I_OUTPUT && session_of(c)->model->shape.gated) x.data = gated_at(c);
    if (observer) TRY(observer->input(observer->user, step->slot, &x));
    *ends = s24i_pass_ends_at(c->pass, step->slot);
    if (*ends) return S24_OK;
    if (step->slot == S24I_QUERY) return run_qkv(c, &x);
    if (step->slot == S24I_INTERMEDIATE) return run_up(c, &x, &y);
    /* Of several ranks the first one's sums go on; the others have their parts alone to add. */
    const int adds = step->adds && !session_of(c)->model->ranks.rank;
    return s24i_lane_linear(c->lane, s24i_block_product(c->block, (int)step->slot), &y, &x, adds);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* Some heads side by side in each row of a chunk's tokens. */
typedef struct heads_job {
    const s24i_chunk *chunk;
    void *at;
    int64_t ld, heads, apart;    /* elements from a token, and from a head, to the next */
    const s24i_layer_norm *norm; /* where they are normalised */
} heads_job;

static void norm_heads_bf16(const heads_job *j, uint16_t *heads)
{
    float wide[S24I_MOST_NORMED_HEAD];
    const s24i_vec *vec = session_of(j->chunk)->vec;
    const int64_t d = j->norm->n;
    for (int64_t h = 0; h < j->heads; h++) {
        s24i_widen_bf16(wide, heads + h * d, d);
        vec->layer_norm(wide, 1, j->norm);
        vec->narrow(heads + h * d, wide, d);
    }
}

static void norm_heads_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const heads_job *j = arg;
    const s24i_chunk *c = j->chunk;
    const s24_session *session = session_of(c);
    (void)thread;
    for (int64_t t = c->first + begin; t < c->first + end; t++) {
        void *heads = s24i_after(j->at, session->between, t * j->ld);
        if (session->between == S24_BF16)
            norm_heads_bf16(j, heads);
        else
            session->vec->layer_norm(heads, j->heads, j->norm);
    }
}

static void run_heads(const s24i_chunk *c, void (*range)(void *, int64_t, int64_t, int))
{
    const s24_model *model = session_of(c)->model;
    const s24i_shape *shape = &model->shape;
    const s24i_qkv_places at = s24i_qkv_of(c->pass, c->block);
    heads_job queries = {c,       at.at[S24I_QUERY],    at.ld[S24I_QUERY], shape->heads,
                         at.head, &c->block->query_norm};
    heads_job keys = {c,       at.at[S24I_KEY],    at.ld[S24I_KEY], shape->kv_heads,
                      at.head, &c->block->key_norm};
    if (range == norm_heads_range && model->architecture->wide_norms)
        queries.heads = keys.heads = 1;
    s24_ctx_parallel_for(c->lane->ctx, c->rows, range, &queries);
    s24_ctx_parallel_for(c->lane->ctx, c->rows, range, &keys);
}

static void rotate_bf16(const s24i_vec *vec, uint16_t *head, const float *angles, int64_t half)
{
    enum { PIECE = 64 };
    float a[PIECE], b[PIECE];
    for (int64_t i = 0; i < half; i += PIECE) {
        const int64_t n = s24i_min(PIECE, half - i);
        s24i_widen_bf16(a, head + i, n);
        s24i_widen_bf16(b, head + half + i, n);
        s24i_rotate(a, b, angles + i, angles + half + i, n);
        vec->narrow(head + i, a, n);
        vec->narrow(head + half + i, b, n);
    }
}

static void rotate_adjacent_bf16(const s24i_vec *vec, uint16_t *head, const float *angles,
                                 int64_t half)
{
    enum { PIECE = 64 };
    float wide[2 * PIECE];
    for (int64_t i = 0; i < half; i += PIECE) {
        const int64_t n = s24i_min(PIECE, half - i);
        s24i_widen_bf16(wide, head + 2 * i, 2 * n);
        s24i_rotate_adjacent(wide, angles + i, angles + half + i, n);
        vec->narrow(head + 2 * i, wide, 2 * n);
    }
}

/* What the positions of the chunk's block turn by. */
static const float *angles_of(const s24i_chunk *c)
{
    const s24_session *session = session_of(c);
    const s24_cache *cache = session->cache;
    const float *near = cache ? cache->near_angles : session->near_angles;
    const int64_t block = c->block - session->model->blocks;
    if (near && s24i_block_windowed(&session->model->shape, block)) return near;
    return cache ? cache->angles : session->angles;
}

static void rotate_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const heads_job *j = arg;
    const s24i_chunk *c = j->chunk;
    const s24_session *session = session_of(c);
    const s24_batch *batch = c->pass->batch;
    const int64_t d = s24i_turned(&session->model->shape), half = d / 2;
    const int adjacent = session->model->architecture->adjacent;
    const float *of_positions = angles_of(c);
    int64_t text = begin < end ? s24i_batch_text(batch, c->first + begin) : 0;
    (void)thread;
    for (int64_t t = c->first + begin; t < c->first + end; t++) {
        while (t >= batch->offsets[text + 1])
            text++;
        const int64_t position = s24i_cache_before(session->cache, text) + t - batch->offsets[text];
        const float *angles = of_positions + position * d;
        for (int64_t h = 0; h < j->heads; h++) {
            void *head = s24i_after(j->at, session->between, t * j->ld + h * j->apart);
            if (session->between == S24_BF16)
                (adjacent ? rotate_adjacent_bf16 : rotate_bf16)(session->vec, head, angles, half);
            else if (adjacent)
                s24i_rotate_adjacent(head, angles, angles + half, half);
            else
                s24i_rotate(head, (float *)head + half, angles, angles + half, half);
        }
    }
}

/* ---- a chunk's steps ------------------------------------------------------------------------- */

s24_status s24i_chunk_run(const s24i_chunk *c, int first, int end)
{
    const s24i_steps *steps = s24i_block_steps(session_of(c), c->block);
    int ends = 0;
    for (int i = first; i < end && !ends; i++) {
        const s24i_block_step *step = &steps->step[i];
        switch (step->kind) {
        case S24I_STEP_NORM:
            run_norm(c, step);
            break;
        case S24I_STEP_PRODUCT:
            TRY(run_product(c, step, &ends));
            break;
        case S24I_STEP_HEAD_NORM:
            run_heads(c, norm_heads_range);
            break;
        case S24I_STEP_ROTATE:
            if (s24i_block_turns(&session_of(c)->model->shape,
                                 c->block - session_of(c)->model->blocks))
                run_heads(c, rotate_range);
            break;
        case S24I_STEP_LATENT:
            TRY(s24i_latent_run(c, step, angles_of(c), &ends));
            break;
        case S24I_STEP_VALUES:
            s24i_latent_values(c);
            break;
        case S24I_STEP_ADD:
            run_add(c, step);
            break;
        case S24I_STEP_GATE:
            run_gate(c);
            break;
        case S24I_STEP_EXPERTS: /* not of a chunk */
        case S24I_STEP_SUM:
        case S24I_STEP_ATTEND:
        case S24I_STEP_ATTEND_NEAR:
        case S24I_STEP_ATTEND_DISTANCE:
        case S24I_STEP_ATTEND_APART:
        case S24I_STEP_ATTEND_SINKS:
        case S24I_STEP_KINDS:
            break;
        }
    }
    return S24_OK;
}
