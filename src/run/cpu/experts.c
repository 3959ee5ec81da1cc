// SPDX-License-Identifier: Apache-2.0
/* The experts of a mixture at work: tokens by expert, products, and their sums by token. */
#include "run/cpu/experts.h"

#include <stdatomic.h>
#include <string.h>

#include "run/cpu/experts_route.h"
#include "run/cpu/gate.h"
#include "run/weight/weight.h"

/* Tokens that are routed together, whose results are all there at once. */
enum { ROUTED = 1024 };

/* ---- create and destroy ---------------------------------------------------------------------- */

/* bf16 where every product of experts takes it, and what is between them can be made so. */
static s24_dtype choose_between(const s24_session *session)
{
    const s24_model *model = session->model;
    if (model->dtype == S24_F32 || !session->vec->narrow) return S24_F32;
    for (int64_t b = 0; b < model->shape.layers; b++)
        for (int i = S24I_PRODUCTS; i < s24i_block_products(&model->blocks[b]); i++)
            if (!s24i_linear_takes_bf16(s24i_block_product(&model->blocks[b], i))) return S24_F32;
    return S24_BF16;
}

static s24_status fill(s24i_experts *x, s24_ctx *ctx, const s24_session *session)
{
    const s24i_shape *shape = &session->model->shape;
    const s24i_mixture *m = &shape->mixture;
    x->tokens = s24i_min(session->max_tokens, ROUTED);
    x->each = m->used + (m->shared_width > 0);
    x->part_rows = s24i_min(session->max_tokens, CHUNK_ROWS);
    x->widest = s24i_max(m->width, m->shared_width);
    x->between = choose_between(session);
    const int64_t results = x->tokens * x->each, lanes = session->threads;
    const int64_t parts = m->experts + 1 + results / CHUNK_ROWS;
    TRY(s24i_alloc_elems(&x->normed, ctx, session->max_tokens * shape->width, sizeof(float),
                         "norms' results"));
    TRY(s24i_alloc_elems(&x->scores, ctx, x->tokens * m->experts, sizeof(float), "scores"));
    TRY(s24i_alloc_elems(&x->weights, ctx, results, sizeof(float), "experts' weights"));
    TRY(s24i_alloc_elems(&x->chosen, ctx, results, sizeof *x->chosen, "tokens' experts"));
    TRY(s24i_alloc_elems(&x->places, ctx, results, sizeof *x->places, "experts' results"));
    TRY(s24i_alloc_elems(&x->order, ctx, results, sizeof *x->order, "experts' tokens"));
    TRY(s24i_alloc_elems(&x->begins, ctx, m->experts + 2, sizeof *x->begins, "experts' tokens"));
    TRY(s24i_alloc_elems(&x->parts, ctx, parts, sizeof *x->parts, "experts' tokens"));
    TRY(s24i_alloc_elems(&x->results, ctx, results * shape->width, sizeof(float),
                         "experts' results"));
    TRY(s24i_alloc_elems(&x->inputs, ctx, lanes * x->part_rows * shape->width, sizeof(float),
                         "experts' inputs"));
    return s24i_alloc_elems(&x->inner, ctx, lanes * x->part_rows * 3 * x->widest,
                            s24_dtype_bytes(x->between), "activations");
}

s24_status s24i_experts_create(s24i_experts **out, s24_ctx *ctx, const s24_session *session)
{
    *out = NULL;
    if (!session->model->shape.mixture.experts) return S24_OK;
    TRY(s24i_alloc_elems(out, ctx, 1, sizeof **out, "a session's experts"));
    memset(*out, 0, sizeof **out);
    return fill(*out, ctx, session);
}

void s24i_experts_destroy(s24i_experts *x, s24_ctx *ctx)
{
    if (!x) return;
    void *const all[] = {x->normed, x->scores, x->weights, x->chosen, x->places, x->order,
                         x->begins, x->parts,  x->results, x->inputs, x->inner,  x};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        s24_ctx_free(ctx, all[i]);
}

int64_t s24i_experts_read_bytes(const s24_model *model, const s24i_block *block, int64_t tokens)
{
    const s24i_mixture *m = &model->shape.mixture;
    const int64_t hit = s24i_min(m->experts, tokens * m->used);
    int64_t all = 0, shared = 0;
    for (int i = S24I_PRODUCTS; i < s24i_block_products(block); i++) {
        const int64_t bytes = s24i_linear_bytes(s24i_block_product(block, i));
        *(s24i_slot_expert((s24i_slot)i) < m->experts ? &all : &shared) += bytes;
    }
    return all / s24i_max(m->experts, 1) * hit + shared;
}

/* ---- tokens by expert ------------------------------------------------------------------------ */

/* The largest first, those of as many rows as they come; qsort may allocate. */
static void sort_parts(s24i_expert_part *parts, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        const s24i_expert_part part = parts[i];
        int64_t at = i;
        for (; at > 0 && parts[at - 1].rows < part.rows; at--)
            parts[at] = parts[at - 1];
        parts[at] = part;
    }
}

/* Rows of results, expert after expert, each one's tokens in order; and parts of them, the largest
   first. */
static void gather(s24i_experts *x, const s24i_mixture *m, int64_t tokens)
{
    const int64_t all = s24i_mixture_all(m);
    memset(x->begins, 0, (size_t)(m->experts + 2) * sizeof *x->begins);
    for (int64_t i = 0; i < tokens * x->each; i++)
        x->begins[x->chosen[i] + 1]++;
    for (int64_t e = 0; e < all; e++)
        x->begins[e + 1] += x->begins[e];
    for (int64_t i = 0; i < tokens * x->each; i++) {
        x->places[i] = x->begins[x->chosen[i]]++;
        x->order[x->places[i]] = i / x->each;
    }
    x->part_count = 0;
    for (int64_t e = all - 1; e >= 0; e--) /* each begins where the one before it has ended */
        x->begins[e] = e ? x->begins[e - 1] : 0;
    x->begins[all] = tokens * x->each;
    for (int64_t e = 0; e < all; e++)
        for (int64_t first = x->begins[e]; first < x->begins[e + 1]; first += x->part_rows)
            x->parts[x->part_count++] =
                (s24i_expert_part){e, first, s24i_min(x->part_rows, x->begins[e + 1] - first)};
    sort_parts(x->parts, x->part_count);
}

/* ---- an expert's products -------------------------------------------------------------------- */

typedef struct mixing {
    const s24i_pass *pass;
    const s24i_block *block;
    const s24_dense *x; /* of the tokens at hand */
    _Atomic int64_t next;
} mixing;

static const s24i_linear *layer(const mixing *j, int64_t expert, s24i_slot kind)
{
    return s24i_block_product(j->block, (int)s24i_slot_of(expert, kind));
}

/* What lies between an expert's layers, for so many rows, in a lane's room. */
static s24_status run_inner(const mixing *j, const s24i_lane *lane, int64_t expert, void *room,
                            const s24_dense *x)
{
    const s24i_shape *shape = &j->pass->session->model->shape;
    const s24i_experts *e = j->pass->session->experts;
    const s24i_linear *up = layer(j, expert, S24I_INTERMEDIATE),
                      *gate = layer(j, expert, S24I_GATE);
    const int64_t n = up->n / (shape->joint_gate ? 2 : 1);
    s24_dense y = {room, e->between, x->rows, up->n, up->n};
    s24i_gate job = {.vec = j->pass->session->vec,
                     .dtype = e->between,
                     .activation = shape->activation,
                     .squared = shape->squared,
                     .limit = shape->gate_limit,
                     .h = s24i_after(room, e->between, 2 * x->rows * n),
                     .g = room,
                     .u = s24i_after(room, e->between, n),
                     .n = n,
                     .ld = 2 * n};
    if (gate->n) {
        TRY(s24i_lane_linear(lane, gate, &y, x, 0));
        y.data = job.u = s24i_after(room, e->between, x->rows * n);
        job.ld = n;
    }
    TRY(s24i_lane_linear(lane, up, &y, x, 0));
    s24i_gate_run(lane->ctx, &job, x->rows);
    return S24_OK;
}

static s24_status observe(const mixing *j, int64_t expert, s24i_slot kind, const s24_dense *x,
                          int *ends)
{
    const s24i_observer *observer = j->pass->observer;
    *ends = 0;
    if (!observer) return S24_OK;
    TRY(observer->input(observer->user, s24i_slot_of(expert, kind), x));
    *ends = s24i_pass_ends_at(j->pass, kind);
    return S24_OK;
}

/* Is it no expert of those whose inputs are asked for? */
static int is_left_out(const s24i_observer *observer, int64_t expert)
{
    return observer && observer->last && observer->end_expert &&
           (expert < observer->first_expert || expert >= observer->end_expert);
}

static s24_status run_part(const mixing *j, const s24i_lane *lane, int64_t number,
                           const s24i_expert_part *part)
{
    const s24i_experts *e = j->pass->session->experts;
    const int64_t width = j->x->cols;
    s24_dense x = {e->inputs + number * e->part_rows * width, S24_F32, part->rows, width, width};
    void *room = s24i_after(e->inner, e->between, number * e->part_rows * 3 * e->widest);
    int ends;
    if (is_left_out(j->pass->observer, part->expert)) return S24_OK;
    for (int64_t r = 0; r < part->rows; r++)
        memcpy((float *)x.data + r * width,
               (const float *)j->x->data + e->order[part->first + r] * width,
               (size_t)width * sizeof(float));
    TRY(observe(j, part->expert, S24I_INTERMEDIATE, &x, &ends));
    if (ends) return S24_OK;
    TRY(run_inner(j, lane, part->expert, room, &x));
    const s24i_linear *down = layer(j, part->expert, S24I_OUTPUT);
    const s24_dense y = {e->results + part->first * width, S24_F32, part->rows, width, width};
    const s24_dense h = {s24i_after(room, e->between, 2 * part->rows * down->k), e->between,
                         part->rows, down->k, down->k};
    TRY(observe(j, part->expert, S24I_OUTPUT, &h, &ends));
    return ends ? S24_OK : s24i_lane_linear(lane, down, &y, &h, 0);
}

static void run_lane(void *arg, int64_t first, int64_t last, int thread)
{
    mixing *j = arg;
    const s24i_experts *e = j->pass->session->experts;
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        s24i_lane *lane = &j->pass->session->lanes[i];
        int64_t next;
        lane->status = S24_OK;
        while (lane->status == S24_OK && (next = atomic_fetch_add(&j->next, 1)) < e->part_count)
            lane->status = run_part(j, lane, i, &e->parts[next]);
    }
}

/* May threads take an expert each, without many of them waiting for the last? */
static int is_dealt(int64_t parts, int64_t threads)
{
    const int64_t rounds = (parts + threads - 1) / threads;
    return threads > 1 && (rounds * threads - parts) * 4 <= rounds * threads;
}

static s24_status run_parts(mixing *j)
{
    const s24i_pass *pass = j->pass;
    const s24_session *session = pass->session;
    const s24i_experts *e = session->experts;
    const int threads = s24_ctx_threads(pass->ctx);
    s24i_lane whole = session->whole;
    whole.ctx = pass->ctx;
    whole.together = threads > 1;
    atomic_init(&j->next, 0);
    if (pass->observer || !is_dealt(e->part_count, threads)) {
        for (int64_t i = 0; i < e->part_count; i++)
            TRY(run_part(j, &whole, 0, &e->parts[i]));
        return S24_OK;
    }
    s24_ctx_parallel_for(pass->ctx, threads, run_lane, j);
    for (int i = 0; i < threads; i++) {
        const s24i_lane *lane = &session->lanes[i];
        REQUIRE(pass->ctx, lane->status == S24_OK, lane->status, "%s", s24_ctx_error(lane->ctx));
    }
    return S24_OK;
}

/* ---- sums by token --------------------------------------------------------------------------- */

typedef struct sum_job {
    const s24i_experts *experts;
    const s24i_vec *vec;
    const s24_dense *y;
    int adds;
} sum_job;

static void sum_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const sum_job *j = arg;
    const s24i_experts *e = j->experts;
    const int64_t width = j->y->cols;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *y = (float *)j->y->data + t * width;
        if (!j->adds) memset(y, 0, (size_t)width * sizeof *y);
        for (int64_t i = t * e->each; i < (t + 1) * e->each; i++)
            j->vec->axpy(y, e->weights[i], e->results + e->places[i] * width, width);
    }
}

/* A place's rows of some of the pass's tokens. */
static s24_dense place_of(const s24i_pass *pass, s24i_step_place place, int64_t first, int64_t rows)
{
    const s24_session *session = pass->session;
    s24_dense x = s24i_session_place(session, &session->whole, place, first, rows);
    if (place == S24I_AT_SUMS) x.data = pass->hidden + first * x.cols;
    return x;
}

s24_status s24i_experts_run(const s24i_pass *pass, const s24i_block *block,
                            const s24i_block_step *step)
{
    const s24_session *session = pass->session;
    s24i_experts *e = session->experts;
    const int64_t tokens = pass->batch->offsets[pass->batch->texts];
    for (int64_t first = 0; first < tokens; first += e->tokens) {
        const int64_t rows = s24i_min(e->tokens, tokens - first);
        const s24_dense x = place_of(pass, step->from, first, rows);
        const s24_dense y = place_of(pass, step->to, first, rows);
        mixing job = {.pass = pass, .block = block, .x = &x};
        const sum_job sums = {e, session->vec, &y, step->adds};
        s24i_experts_route(pass->ctx, session, block, &x);
        gather(e, &session->model->shape.mixture, rows);
        TRY(run_parts(&job));
        if (!pass->observer || !pass->observer->last)
            s24_ctx_parallel_for(pass->ctx, rows, sum_range, (void *)(uintptr_t)&sums);
    }
    return S24_OK;
}
