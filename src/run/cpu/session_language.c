// SPDX-License-Identifier: Apache-2.0
/*
 * What a language model says of the next token. Logits are made some rows at a time, so that a
 * vocabulary's worth of them is never there for all tokens unless the caller has room for it.
 */
#include <math.h>
#include <string.h>

#include "run/cpu/pass.h"

typedef struct language {
    const s24_session *session;
    s24_ctx *ctx;
    const float *states; /* [tokens, width] */
    const s24_outputs *outputs;
} language;

s24_status s24i_language_check(s24_ctx *ctx, const s24_model *model, const s24_batch *batch,
                               const s24_outputs *outputs)
{
    const int64_t tokens = batch->offsets[batch->texts], words = model->shape.vocabulary;
    const int has_loss = outputs->loss || outputs->losses;
    REQUIRE(ctx, !has_loss || outputs->targets, S24_ERROR_ARGUMENT,
            "a loss was asked for without targets");
    for (int64_t t = 0; has_loss && t < tokens; t++)
        REQUIRE(ctx, outputs->targets[t] >= -1 && outputs->targets[t] < words, S24_ERROR_ARGUMENT,
                "targets[%lld] is %d; -1 to %lld was expected", (long long)t,
                (int)outputs->targets[t], (long long)words - 1);
    if (!outputs->logits || !outputs->tokens) return S24_OK;
    REQUIRE(ctx, outputs->token_count >= 0, S24_ERROR_ARGUMENT, "token_count is %lld",
            (long long)outputs->token_count);
    for (int64_t i = 0; i < outputs->token_count; i++)
        REQUIRE(ctx, outputs->tokens[i] >= 0 && outputs->tokens[i] < tokens, S24_ERROR_ARGUMENT,
                "tokens[%lld] is %lld; 0 to %lld was expected", (long long)i,
                (long long)outputs->tokens[i], (long long)tokens - 1);
    return S24_OK;
}

/* Logits whose model multiplies or caps them. */
typedef struct finish_job {
    const s24_session *session;
    float *logits;
} finish_job;

static void finish_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const finish_job *j = arg;
    const s24i_shape *shape = &j->session->model->shape;
    const int64_t n = j->session->model->lm_head.n;
    const float cap = shape->logits_cap;
    float *x = j->logits + begin * n;
    (void)thread;
    if (shape->logits_factor > 0.0f)
        j->session->vec->scale(x, shape->logits_factor, (end - begin) * n);
    for (int64_t i = 0; cap > 0.0f && i < (end - begin) * n; i++)
        x[i] = cap * tanhf(x[i] / cap);
}

/* to[rows, vocabulary] = the logits of some tokens, head.rows at most. */
static s24_status make_logits(const language *l, float *to, const int64_t *tokens, int64_t rows)
{
    const s24_model *model = l->session->model;
    const int64_t width = model->shape.width, n = model->lm_head.n;
    s24i_lane lane = l->session->whole;
    const s24_dense x = {lane.normed, S24_F32, rows, width, width};
    const s24_dense y = {to, S24_F32, rows, n, n};
    lane.ctx = l->ctx;
    lane.together = s24_ctx_threads(l->ctx) > 1;
    for (int64_t i = 0; i < rows; i++)
        memcpy(lane.normed + i * width, l->states + tokens[i] * width,
               (size_t)width * sizeof(float));
    TRY(s24i_lane_linear(&lane, &model->lm_head, &y, &x, 0));
    finish_job job = {l->session, to};
    if (model->shape.logits_factor > 0.0f || model->shape.logits_cap > 0.0f)
        s24_ctx_parallel_for(l->ctx, rows, finish_range, &job);
    return S24_OK;
}

static s24_status run_logits(const language *l)
{
    const s24i_head_rows *head = &l->session->head;
    const s24_outputs *o = l->outputs;
    for (int64_t first = 0; first < o->token_count; first += head->rows)
        TRY(make_logits(l, o->logits + first * l->session->model->lm_head.n, o->tokens + first,
                        s24i_min(head->rows, o->token_count - first)));
    return S24_OK;
}

typedef struct loss_job {
    const language *l;
    const float *logits; /* of head.tokens */
} loss_job;

static void loss_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const loss_job *j = arg;
    const s24_session *session = j->l->session;
    const int64_t n = session->model->lm_head.n;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *row = j->logits + r * n;
        const int32_t target = j->l->outputs->targets[session->head.tokens[r]];
        session->head.losses[r] = session->vec->log_sum(row, n) - row[target];
    }
}

/* Fills head.tokens with tokens from *next on, all or those that have a target. */
static int64_t take_tokens(const language *l, int64_t *next, int64_t tokens, int with_target)
{
    const s24i_head_rows *head = &l->session->head;
    int64_t rows = 0;
    for (; *next < tokens && rows < head->rows; ++*next)
        if (!with_target || l->outputs->targets[*next] >= 0) head->tokens[rows++] = *next;
    return rows;
}

/* Sums are taken in the order of tokens, so they are the same for any number of threads. */
static void add_losses(const language *l, const float *logits, int64_t rows, double *sum)
{
    const s24i_head_rows *head = &l->session->head;
    loss_job job = {l, logits};
    s24_ctx_parallel_for(l->ctx, rows, loss_range, &job);
    for (int64_t r = 0; r < rows; r++) {
        *sum += (double)head->losses[r];
        if (l->outputs->losses) l->outputs->losses[head->tokens[r]] = head->losses[r];
    }
}

static s24_status run_losses(const language *l, int64_t tokens)
{
    const s24_outputs *o = l->outputs;
    int64_t next = 0, rows, count = 0;
    double sum = 0;
    if (o->losses) memset(o->losses, 0, (size_t)tokens * sizeof *o->losses);
    while ((rows = take_tokens(l, &next, tokens, 1)) > 0) {
        TRY(make_logits(l, l->session->head.logits, l->session->head.tokens, rows));
        add_losses(l, l->session->head.logits, rows, &sum);
        count += rows;
    }
    if (o->loss) *o->loss = count ? sum / (double)count : (double)NAN;
    return S24_OK;
}

/* The logits of all tokens, in the caller's memory. */
static s24_status run_all_logits(const language *l, int64_t tokens)
{
    const s24i_head_rows *head = &l->session->head;
    int64_t next = 0, first = 0, rows;
    for (; (rows = take_tokens(l, &next, tokens, 0)) > 0; first = next)
        TRY(make_logits(l, l->outputs->logits + first * l->session->model->lm_head.n, head->tokens,
                        rows));
    return S24_OK;
}

s24_status s24i_session_language(const s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                                 const float *states, const s24_outputs *outputs)
{
    const language l = {session, ctx, states, outputs};
    const int64_t tokens = batch->offsets[batch->texts];
    if (outputs->logits) TRY(outputs->tokens ? run_logits(&l) : run_all_logits(&l, tokens));
    return outputs->loss || outputs->losses ? run_losses(&l, tokens) : S24_OK;
}
