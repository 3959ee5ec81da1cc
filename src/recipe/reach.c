// SPDX-License-Identifier: Apache-2.0
/* Runs the model from the block of a layer that is pruned to its end. */
#include "recipe/reach.h"

#include <math.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "run/session.h"

enum { FOLLOWED_TOKENS = 2048 };

struct s24i_reach {
    int64_t texts;
    int64_t states, given_count; /* floats of the blocks' states, and of what is compared */
    int vectors;                 /* that is the texts' vectors */
    float *given, *now, *state;  /* [given_count]: the dense model's, and at hand; [states] */
};

/* All that follows a block on its input, the calibration's; *given is where what is compared lies:
   in the session, in `state` or in `to`. */
static s24_status run(const float **given, s24i_calibration *c, int64_t block, float *to)
{
    s24i_reach *r = c->reach;
    const s24_batch batch = s24i_calibration_batch(c, 0, r->texts);
    const s24_outputs outputs = {.embeddings = to};
    memcpy(r->state, c->hidden, (size_t)r->states * sizeof *r->state);
    for (int64_t b = block; b < c->model->shape.layers; b++) {
        TRY(s24i_session_block(c->session, c->ctx, &batch, b, r->state, NULL));
        TRY(s24_ctx_progress(c->ctx, "pruning", ++c->done, c->total));
    }
    if (c->model->architecture->state_normed)
        s24i_session_norm(c->session, c->ctx, r->state, batch.offsets[r->texts]);
    *given = s24i_session_states(c->session, c->ctx, &batch, r->state, &outputs);
    if (!r->vectors) return S24_OK;
    s24i_session_pool(c->session, c->ctx, &batch, *given, to);
    *given = to;
    return S24_OK;
}

/* The weights at hand become a block's; of a model whose blocks share theirs those of all after it,
   too. */
static s24_status put(s24i_calibration *c, int64_t block)
{
    const int64_t end = c->model->architecture->shared ? c->model->shape.layers : block + 1;
    for (int64_t b = block; b < end; b++)
        TRY(s24i_model_set_block(c->model, c->ctx, b, c->weights));
    return S24_OK;
}

static s24_status load_blocks(s24i_calibration *c)
{
    for (int64_t b = 0; b < c->model->shape.layers; b++) {
        c->block = c->tensors + b * c->numbers;
        TRY(s24i_calibration_load(c));
        TRY(s24i_model_set_block(c->model, c->ctx, b, c->weights));
    }
    return S24_OK;
}

/* Blocks that will be run. */
static int64_t passes(const s24i_calibration *c)
{
    const int64_t layers = c->model->shape.layers;
    int64_t count = layers;
    for (int64_t i = 0; i < layers * c->numbers; i++)
        if (c->tensors[i] && s24i_pruner_takes(c->pruner, c->tensors[i]))
            count += layers - i / c->numbers;
    return count;
}

static s24_status prepare(s24i_reach *r, s24i_calibration *c)
{
    const s24_model *model = c->model;
    const float *given;
    int said = 0;
    while (r->texts < c->texts && (!r->texts || c->ends[r->texts + 1] <= FOLLOWED_TOKENS))
        r->texts++;
    TRY(s24i_pooling_said(&said, c->ctx, s24_checkpoint_folder(c->pruner->in)));
    r->vectors = said && s24i_pooling_is_common(&model->pooled);
    r->states = c->ends[r->texts] * model->shape.width;
    r->given_count = r->vectors ? r->texts * model->shape.width : r->states;
    TRY(s24i_alloc_elems(&r->state, c->ctx, r->states + 2 * r->given_count, sizeof *r->state,
                         "what a model gives"));
    r->given = r->state + r->states;
    r->now = r->given + r->given_count;
    c->total += passes(c);
    TRY(load_blocks(c));
    TRY(run(&given, c, 0, r->now));
    memcpy(r->given, given, (size_t)r->given_count * sizeof *given);
    return S24_OK;
}

s24_status s24i_reach_create(s24i_reach **out, s24i_calibration *c)
{
    TRY(s24i_zeroed(out, c->ctx, sizeof **out));
    return prepare(*out, c);
}

void s24i_reach_destroy(s24i_reach *reach, s24_ctx *ctx)
{
    if (reach) s24_ctx_free(ctx, reach->state);
    s24_ctx_free(ctx, reach);
}

s24_status s24i_reach_measure(double *error, s24i_calibration *c, int64_t block, s24i_slot slot,
                              float *w)
{
    const s24i_reach *r = c->reach;
    float *own = c->weights[slot].data;
    const float *given = r->given;
    double lost = 0.0, whole = 0.0;
    c->weights[slot].data = w;
    s24_status status = put(c, block);
    if (status == S24_OK) status = run(&given, c, block, r->now);
    c->weights[slot].data = own;
    if (status == S24_OK) status = put(c, block);
    for (int64_t i = 0; i < r->given_count && status == S24_OK; i++) {
        const double before = (double)r->given[i], change = (double)given[i] - before;
        lost += change * change;
        whole += before * before;
    }
    *error = lost > 0.0 ? lost / fmax(whole, 1e-300) : 0.0;
    return status;
}
