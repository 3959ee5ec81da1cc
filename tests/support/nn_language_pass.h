// SPDX-License-Identifier: Apache-2.0
/* Passes over the small language models of nn_language.h, and what they give. Include after
   support.h. */
#ifndef S24_TEST_NN_LANGUAGE_PASS_H
#define S24_TEST_NN_LANGUAGE_PASS_H

#include <math.h>

#include "nn_language.h"
#include "nn_load.h"

static inline s24_ctx *new_ctx(const char *level, int threads)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {
        .size = sizeof opts, .threads = threads, .cpu_mask = level ? s24_cpu_parse(level) : 0};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

/* What a pass gives; tokens that are chosen have their logits in `some`. */
typedef struct given {
    float *blocks, *hidden, *logits, *some, *losses, *embeddings;
    double loss;
} given;

enum { SOME = 3 };
static const int64_t chosen[SOME] = {9, 0, 3};

static inline given room_of(const s24_model_info *info, int64_t tokens)
{
    const size_t one = sizeof(float);
    return (given){.blocks = malloc(one * (size_t)((info->layers + 1) * tokens * info->width)),
                   .hidden = malloc(one * (size_t)(tokens * info->width)),
                   .logits = malloc(one * (size_t)(tokens * info->vocabulary)),
                   .some = malloc(one * (size_t)(SOME * info->vocabulary)),
                   .losses = malloc(one * (size_t)tokens),
                   .embeddings = malloc(one * (size_t)(tokens * info->width))};
}

static inline void give_back(given *g)
{
    free(g->blocks);
    free(g->hidden);
    free(g->logits);
    free(g->some);
    free(g->losses);
    free(g->embeddings);
}

static inline s24_status run(given *g, s24_ctx *ctx, const s24_model *model, const s24_batch *batch,
                             const int32_t *targets)
{
    s24_session *session;
    s24_status status = s24_session_create(&session, ctx, model, batch->offsets[batch->texts]);
    if (status != S24_OK) return status;
    const s24_outputs all = {.blocks = g->blocks,
                             .hidden = g->hidden,
                             .logits = g->logits,
                             .embeddings = g->embeddings,
                             .targets = targets,
                             .loss = &g->loss,
                             .losses = g->losses};
    const s24_outputs some = {.logits = g->some, .tokens = chosen, .token_count = SOME};
    status = s24_session_forward(session, ctx, batch, &all);
    if (status == S24_OK) status = s24_session_forward(session, ctx, batch, &some);
    s24_session_destroy(session);
    return status;
}

/* The folder pruned, its layers packed where that is asked for, but those that `exclude` names. */
static inline const char *prune(s24_ctx *ctx, const char *folder, int packed, const char *exclude)
{
    const char *pruned = io_path("pruned");
    const s24_model_prune_opts opts = {
        .size = sizeof opts, .packed = packed, .force = 1, .exclude = exclude};
    s24_checkpoint *checkpoint;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    OK(ctx, s24_model_prune(ctx, checkpoint, pruned, &opts));
    s24_checkpoint_close(checkpoint);
    return pruned;
}

#endif
