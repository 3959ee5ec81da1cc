// SPDX-License-Identifier: Apache-2.0
/*
 * Runs the model from the block of a layer that is pruned to its end. Texts' vectors are for being
 * compared: what all of them have in common may move without a loss, and what stands far apart
 * stays there, so that each text's nearest ones say what a layer costs.
 */
#include "recipe/reach.h"

#include <math.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "run/session.h"

enum { FOLLOWED_TOKENS = 2048, COMPARED_TOKENS = 4096, NEAR = 5 };

struct s24i_reach {
    int64_t texts;
    int64_t states, given_count; /* floats of the blocks' states, and of what is compared */
    int vectors;                 /* that is the texts' vectors */
    float *given, *now, *state;  /* [given_count]: the dense model's, and at hand; [states] */
    int64_t *near, nearest;      /* [texts][nearest]: the texts nearest to each; of vectors */
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

/* Do the blocks' weights in f32 stay within what may be taken? Nothing was read of them yet. */
static s24_status check_memory(int *is_held, const s24i_calibration *c)
{
    const s24i_pruner *pruner = c->pruner;
    const int64_t most = pruner->opts.memory > 0 ? pruner->opts.memory : s24_memory_free() / 10 * 9;
    int64_t bytes = 0;
    for (int64_t i = 0; i < c->model->shape.layers * c->numbers; i++) {
        if (!c->tensors[i]) continue;
        const s24_dense w = s24i_pruner_matrix(NULL, c->tensors[i]);
        bytes += w.rows * w.cols * (int64_t)sizeof(float);
    }
    *is_held = bytes <= most;
    REQUIRE(c->ctx, *is_held || pruner->may_follow, S24_ERROR_MEMORY,
            "the model's blocks take %.3g GB of memory in f32, of %.3g GB that they may; the price "
            "layer holds one block at a time",
            1e-9 * (double)bytes, 1e-9 * (double)most);
    if (*is_held)
        s24_ctx_log(c->ctx, S24_LOG_INFO,
                    "to measure what the model loses takes %.3g GB of memory, the weights of its "
                    "blocks in f32",
                    1e-9 * (double)bytes);
    else
        s24_ctx_log(c->ctx, S24_LOG_INFO,
                    "the model's blocks take %.3g GB of memory in f32, of %.3g GB that they may: "
                    "layers' own errors stand for what the model loses",
                    1e-9 * (double)bytes, 1e-9 * (double)most);
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

static double cosine(const float *a, const float *b, int64_t width)
{
    double product = 0.0, of_a = 0.0, of_b = 0.0;
    for (int64_t i = 0; i < width; i++) {
        product += (double)a[i] * (double)b[i];
        of_a += (double)a[i] * (double)a[i];
        of_b += (double)b[i] * (double)b[i];
    }
    return product / fmax(sqrt(of_a * of_b), 1e-300);
}

/* The texts nearest to text t in the dense model, of others, the nearest first. */
static void find_near(int64_t *near, const s24i_reach *r, int64_t t, int64_t width)
{
    double cosines[NEAR];
    for (int64_t i = 0; i < r->nearest; i++)
        cosines[i] = -HUGE_VAL;
    for (int64_t other = 0; other < r->texts; other++) {
        const double now = cosine(r->given + t * width, r->given + other * width, width);
        int64_t at = r->nearest;
        for (; other != t && at > 0 && now > cosines[at - 1]; at--)
            if (at < r->nearest) {
                cosines[at] = cosines[at - 1];
                near[at] = near[at - 1];
            }
        if (at == r->nearest) continue;
        cosines[at] = now;
        near[at] = other;
    }
}

static s24_status compare_texts(s24i_reach *r, const s24i_calibration *c)
{
    r->nearest = s24i_min(NEAR, r->texts - 1);
    TRY(s24i_zeroed(&r->near, c->ctx, (size_t)(r->texts * r->nearest) * sizeof *r->near));
    for (int64_t t = 0; t < r->texts; t++)
        find_near(r->near + t * r->nearest, r, t, c->model->shape.width);
    return S24_OK;
}

static s24_status prepare(s24i_reach *r, s24i_calibration *c)
{
    const s24_model *model = c->model;
    const float *given;
    int said = 0;
    TRY(s24i_pooling_said(&said, c->ctx, s24_checkpoint_folder(c->pruner->in)));
    r->vectors = said && s24i_pooling_is_common(&model->pooled);
    const int64_t most = r->vectors ? COMPARED_TOKENS : FOLLOWED_TOKENS;
    while (r->texts < c->texts && (!r->texts || c->ends[r->texts + 1] <= most))
        r->texts++;
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
    return r->vectors && r->texts > 1 ? compare_texts(r, c) : S24_OK;
}

s24_status s24i_reach_create(s24i_reach **out, s24i_calibration *c)
{
    int is_held;
    TRY(check_memory(&is_held, c));
    if (!is_held) return S24_OK;
    TRY(s24i_zeroed(out, c->ctx, sizeof **out));
    return prepare(*out, c);
}

void s24i_reach_destroy(s24i_reach *reach, s24_ctx *ctx)
{
    if (reach) {
        s24_ctx_free(ctx, reach->state);
        s24_ctx_free(ctx, reach->near);
    }
    s24_ctx_free(ctx, reach);
}

/* The mean squared change of the cosines of texts to those nearest to them. */
static double moved_cosines(const s24i_reach *r, const float *given, int64_t width)
{
    double lost = 0.0;
    for (int64_t i = 0; i < r->texts * r->nearest; i++) {
        const int64_t a = i / r->nearest * width, b = r->near[i] * width;
        const double change =
            cosine(given + a, given + b, width) - cosine(r->given + a, r->given + b, width);
        lost += change * change;
    }
    return lost / (double)(r->texts * r->nearest);
}

/* The squared distance, relative. */
static double moved_values(const s24i_reach *r, const float *given)
{
    double lost = 0.0, whole = 0.0;
    for (int64_t i = 0; i < r->given_count; i++) {
        const double before = (double)r->given[i], change = (double)given[i] - before;
        lost += change * change;
        whole += before * before;
    }
    return lost > 0.0 ? lost / fmax(whole, 1e-300) : 0.0;
}

s24_status s24i_reach_measure(double *error, s24i_calibration *c, int64_t block, s24i_slot slot,
                              float *w)
{
    const s24i_reach *r = c->reach;
    float *own = c->weights[slot].data;
    const float *given = r->given;
    c->weights[slot].data = w;
    s24_status status = put(c, block);
    if (status == S24_OK) status = run(&given, c, block, r->now);
    c->weights[slot].data = own;
    if (status == S24_OK) status = put(c, block);
    *error = r->near ? moved_cosines(r, given, c->model->shape.width) : moved_values(r, given);
    return status;
}
