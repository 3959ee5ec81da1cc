// SPDX-License-Identifier: Apache-2.0
/*
 * Queries, latents and values of attention over latents. The products of layers are those of any
 * layer, in f32 between them; a head's own two, with keys' and with values' rows of the layer that
 * makes keys and values, take some tokens at a time.
 */
#include "run/cpu/latent_heads.h"

#include <string.h>

#include "io/file/io.h"
#include "model/rotary.h"
#include "run/cpu/attention.h"
#include "run/cpu/gate.h"
#include "run/cpu/kv_cache.h"

static const s24_session *session_of(const s24i_chunk *c)
{
    return c->pass->session;
}

static const s24i_shape *shape_of(const s24i_chunk *c)
{
    return &session_of(c)->model->shape;
}

s24i_latent_places s24i_latent_places_of(const s24_session *session)
{
    const s24i_shape *shape = &session->model->shape;
    return (s24i_latent_places){
        s24i_after(session->qkv, session->between, shape->heads * shape->head_width),
        s24i_qkv_outputs(shape)};
}

/* ---- room ------------------------------------------------------------------------------------ */

/* A lane's room, cut up: rows of what its tokens have, then each thread's scratch. */
typedef struct room {
    float *low;     /* [rows, queries], of latent queries */
    float *queries; /* [rows, heads · (plain + turned)] */
    float *keys;    /* [rows, rank + turned] */
    float *scratch;
} room;

static room room_of(const s24i_chunk *c)
{
    const s24i_shape *shape = shape_of(c);
    const int64_t rows = c->lane->rows;
    room r = {.low = c->lane->latent};
    r.queries = r.low + rows * shape->latent.queries;
    r.keys = r.queries + rows * s24i_latent_wide(shape);
    r.scratch = c->lane->latent + s24i_latent_room(shape, rows, 0);
    return r;
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct rows_job rows_job;
struct rows_job {
    const s24i_chunk *chunk;
    const float *angles;
    room room;
    /* What is done of heads: some tokens from first on. */
    void (*put)(const rows_job *job, int64_t head, int64_t first, int64_t rows, float *scratch);
};

/* A token's place in its text, by which positions turn. */
static const float *angles_at(const rows_job *j, int64_t token)
{
    const s24i_chunk *c = j->chunk;
    const s24_batch *batch = c->pass->batch;
    const int64_t text = s24i_batch_text(batch, token);
    return j->angles +
           (s24i_cache_before(session_of(c)->cache, text) + token - batch->offsets[text]) *
               shape_of(c)->latent.turned;
}

static void turn(const s24i_latent *latent, float *head, const float *angles)
{
    const int64_t half = latent->turned / 2;
    if (latent->halves)
        s24i_rotate(head, head + half, angles, angles + half, half);
    else
        s24i_rotate_adjacent(head, angles, angles + half, half);
}

/* n elements to place `at` of what stands between products. */
static void put(const s24i_chunk *c, void *to, int64_t at, const float *from, int64_t n)
{
    const s24_session *session = session_of(c);
    if (session->between == S24_BF16)
        session->vec->narrow((uint16_t *)to + at, from, n);
    else
        memcpy((float *)to + at, from, (size_t)n * sizeof *from);
}

static void norm_low(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_job *j = arg;
    const s24i_layer_norm *norm = &j->chunk->block->query_norm;
    (void)thread;
    session_of(j->chunk)->vec->layer_norm(j->room.low + begin * norm->n, end - begin, norm);
}

/* Latents are normed, the other elements turned. */
static void finish_keys(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_job *j = arg;
    const s24i_chunk *c = j->chunk;
    const s24i_shape *shape = shape_of(c);
    const s24i_latent_places to = s24i_latent_places_of(session_of(c));
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *row = j->room.keys + t * shape->head_width;
        session_of(c)->vec->layer_norm(row, 1, &c->block->key_norm);
        turn(&shape->latent, row + shape->latent.rank, angles_at(j, c->first + t));
        put(c, to.keys, (c->first + t) * to.ld, row, shape->head_width);
    }
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* Some tokens' queries of a head, by way of keys' rows. */
static void put_queries(const rows_job *j, int64_t h, int64_t first, int64_t rows, float *scratch)
{
    const s24i_chunk *c = j->chunk;
    const s24i_shape *shape = shape_of(c);
    const s24i_latent *l = &shape->latent;
    const int64_t ld = s24i_latent_wide(shape), rank_ld = s24i_round_up(l->rank, S24I_VEC_PAD);
    const int64_t to_ld = s24i_qkv_outputs(shape);
    float *queries = j->room.queries + first * ld + h * s24i_latent_query(l);
    const s24i_product product = {.c = scratch,
                                  .ldc = rank_ld,
                                  .a = queries,
                                  .lda = ld,
                                  .b = c->block->latent_keys + h * l->plain * rank_ld,
                                  .ldb = rank_ld,
                                  .m = rows,
                                  .n = l->rank,
                                  .k = l->plain};
    session_of(c)->vec->product(&product);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t token = c->first + first + r;
        const int64_t at = token * to_ld + h * shape->head_width;
        float *turned = queries + r * ld + l->plain;
        turn(l, turned, angles_at(j, token));
        put(c, session_of(c)->qkv, at, scratch + r * rank_ld, l->rank);
        put(c, session_of(c)->qkv, at + l->rank, turned, l->turned);
    }
}

/* Some tokens' values of a head, from what attention gave it of latents. */
static void put_values(const rows_job *j, int64_t h, int64_t first, int64_t rows, float *scratch)
{
    const s24i_chunk *c = j->chunk;
    const s24_session *session = session_of(c);
    const s24i_shape *shape = shape_of(c);
    const s24i_latent *l = &shape->latent;
    const int64_t value_ld = s24i_round_up(l->value, S24I_VEC_PAD),
                  rank_ld = s24i_round_up(l->rank, S24I_VEC_PAD);
    const int64_t ld = shape->heads * shape->head_width;
    const int64_t at = (c->first + first) * ld + h * shape->head_width;
    float *wide = scratch + S24I_LATENT_PIECE * value_ld;
    s24i_product product = {.c = scratch,
                            .ldc = value_ld,
                            .a = (const float *)session->context + at,
                            .lda = ld,
                            .b = c->block->latent_values + h * l->rank * value_ld,
                            .ldb = value_ld,
                            .m = rows,
                            .n = l->value,
                            .k = l->rank};
    if (session->between == S24_BF16) {
        for (int64_t r = 0; r < rows; r++)
            s24i_widen_bf16(wide + r * rank_ld, (const uint16_t *)session->context + at + r * ld,
                            l->rank);
        product.a = wide;
        product.lda = rank_ld;
    }
    session->vec->product(&product);
    for (int64_t r = 0; r < rows; r++)
        put(c, session->values, (c->first + first + r) * s24i_attended(shape) + h * l->value,
            scratch + r * value_ld, l->value);
}

/* Heads from begin on, some of their tokens at a time. */
static void heads_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_job *j = arg;
    const int64_t rows = j->chunk->rows;
    float *scratch = j->room.scratch +
                     thread * s24i_round_up(s24i_latent_scratch(shape_of(j->chunk)), S24I_VEC_PAD);
    for (int64_t h = begin; h < end; h++)
        for (int64_t t = 0; t < rows; t += S24I_LATENT_PIECE)
            j->put(j, h, t, s24i_min(S24I_LATENT_PIECE, rows - t), scratch);
}

/* ---- the steps ------------------------------------------------------------------------------- */

static s24_status observe(const s24i_chunk *c, s24i_slot slot, const s24_dense *x, int *ends)
{
    const s24i_observer *observer = c->pass->observer;
    if (!observer) return S24_OK;
    TRY(observer->input(observer->user, slot, x));
    *ends = s24i_pass_ends_at(c->pass, slot);
    return S24_OK;
}

/* QUERY's input, which is x itself where queries have no latents. */
static s24_status make_low(const rows_job *j, s24_dense *x, int *ends)
{
    const s24i_chunk *c = j->chunk;
    const int64_t n = shape_of(c)->latent.queries;
    const s24_dense low = {j->room.low, S24_F32, c->rows, n, n};
    if (!n) return observe(c, S24I_QUERY, x, ends);
    TRY(observe(c, S24I_LATENT, x, ends));
    if (*ends) return S24_OK;
    TRY(s24i_lane_linear(c->lane, &c->block->latent, &low, x, 0));
    s24_ctx_parallel_for(c->lane->ctx, c->rows, norm_low, (void *)(uintptr_t)j);
    *x = low;
    return observe(c, S24I_QUERY, x, ends);
}

s24_status s24i_latent_run(const s24i_chunk *c, const s24i_block_step *step, const float *angles,
                           int *ends)
{
    const s24i_shape *shape = shape_of(c);
    const s24_dense x = s24i_session_place(session_of(c), c->lane, step->from, c->first, c->rows);
    const int64_t wide = s24i_latent_wide(shape), d = shape->head_width;
    rows_job job = {c, angles, room_of(c), put_queries};
    const s24_dense queries = {job.room.queries, S24_F32, c->rows, wide, wide};
    const s24_dense keys = {job.room.keys, S24_F32, c->rows, d, d};
    s24_dense latents = keys, low = x;
    TRY(make_low(&job, &low, ends));
    if (*ends) return S24_OK;
    TRY(s24i_lane_linear(c->lane, &c->block->qkv[0], &queries, &low, 0));
    TRY(s24i_lane_linear(c->lane, &c->block->qkv[1], &keys, &x, 0));
    s24_ctx_parallel_for(c->lane->ctx, c->rows, finish_keys, &job);
    latents.cols = shape->latent.rank;
    TRY(observe(c, S24I_VALUE, &latents, ends));
    if (!*ends) s24_ctx_parallel_for(c->lane->ctx, shape->heads, heads_range, &job);
    return S24_OK;
}

void s24i_latent_values(const s24i_chunk *c)
{
    rows_job job = {c, NULL, room_of(c), put_values};
    s24_ctx_parallel_for(c->lane->ctx, shape_of(c)->heads, heads_range, &job);
}
