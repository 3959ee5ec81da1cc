// SPDX-License-Identifier: Apache-2.0
/*
 * A batch of ids to vectors in two halves, so that a server makes up the next while one runs. What
 * must stay true: between begin and end a lane is its batch's, and of what both halves touch they
 * have nothing else in common, for two threads may call them.
 */
#include "run/encoder.h"

#include <string.h>

static s24_status check_encoder(s24_ctx *ctx, const s24_encoder *encoder)
{
    REQUIRE(ctx, encoder, S24_ERROR_ARGUMENT, "encoder is NULL");
    REQUIRE(ctx, !encoder->head && !encoder->words && !encoder->late && !encoder->images,
            S24_ERROR_ARGUMENT,
            "a batch of ids was begun in an encoder that makes no vectors of ids");
    return S24_OK;
}

/* A text's tokens as they run: cut, or filled. */
static int64_t length_of(const s24_encoder *e, const s24_batch *ids, int64_t text)
{
    const int64_t given = ids->offsets[text + 1] - ids->offsets[text];
    return e->filler >= 0 ? e->max_tokens : s24i_min(given, e->max_tokens);
}

int s24_encoder_most_begun(const s24_encoder *encoder, int64_t *texts, int64_t *tokens)
{
    const s24_encoder *e = encoder;
    if (!e) return 0;
    /* Texts that are filled have all of their limit's tokens. */
    if (texts)
        *texts = e->filler >= 0 ? s24i_min(e->window, e->batch_tokens / e->max_tokens) : e->window;
    if (tokens) *tokens = e->batch_tokens;
    return e->lane_count;
}

static s24_status check_batch(s24_encoder *e, s24_ctx *ctx, const s24_batch *ids)
{
    int64_t tokens = 0;
    REQUIRE(ctx, ids && ids->offsets && ids->ids, S24_ERROR_ARGUMENT, "%s",
            ids ? "ids has no offsets or no ids" : "ids is NULL");
    REQUIRE(ctx, ids->texts >= 1 && ids->texts <= e->window, S24_ERROR_ARGUMENT,
            "%lld texts were begun, 1 to %lld are expected", (long long)ids->texts,
            (long long)e->window);
    TRY(s24i_encoder_check_ids(e, ctx, ids));
    for (int64_t i = 0; i < ids->texts; i++)
        tokens += e->lengths[i] = length_of(e, ids, i);
    REQUIRE(ctx, tokens <= e->batch_tokens, S24_ERROR_ARGUMENT,
            "%lld tokens were begun, at most %lld are expected", (long long)tokens,
            (long long)e->batch_tokens);
    return S24_OK;
}

/* Lays the texts side by side, the longest first. */
static void lay(s24_encoder *e, s24i_encoder_lane *lane, const s24_batch *ids)
{
    s24i_encoder_sort(e, ids->texts);
    lane->offsets[0] = 0;
    for (int64_t i = 0; i < ids->texts; i++) {
        const int64_t text = e->order[i], first = ids->offsets[text];
        const int64_t given = s24i_min(ids->offsets[text + 1] - first, e->lengths[text]);
        int32_t *to = lane->ids + lane->offsets[i];
        memcpy(to, ids->ids + first, (size_t)given * sizeof *to);
        for (int64_t t = given; t < e->lengths[text]; t++)
            to[t] = e->filler;
        lane->places[i] = text;
        lane->offsets[i + 1] = lane->offsets[i] + e->lengths[text];
    }
}

s24_status s24_encoder_begin_ids(s24_encoder *encoder, s24_ctx *ctx, const s24_batch *ids)
{
    s24_encoder *e = encoder;
    if (!ctx) return S24_ERROR_ARGUMENT;
    TRY(check_encoder(ctx, e));
    s24i_encoder_lane *lane = &e->lanes[e->next];
    REQUIRE(ctx, !lane->texts, S24_ERROR_ARGUMENT,
            "%d batches are begun, as many as may be; end one of these first", e->lane_count);
    TRY(check_batch(e, ctx, ids));
    lay(e, lane, ids);
    const s24_batch batch = {.texts = ids->texts, .offsets = lane->offsets, .ids = lane->ids};
    const s24_outputs outputs = {.embeddings = lane->vectors};
    lane->session->unpooled = e->prompt_tokens;
    lane->session->takes_ways = 1;
    e->most_tokens = s24i_max(e->most_tokens, lane->offsets[batch.texts]);
    TRY(s24i_session_submit(lane->session, ctx, &batch, &outputs));
    lane->texts = batch.texts;
    e->next = (e->next + 1) % e->lane_count;
    return S24_OK;
}

s24_status s24_encoder_end(float *embeddings, s24_encoder *encoder, s24_ctx *ctx)
{
    s24_encoder *e = encoder;
    if (!ctx) return S24_ERROR_ARGUMENT;
    TRY(check_encoder(ctx, e));
    s24i_encoder_lane *lane = &e->lanes[e->oldest];
    REQUIRE(ctx, embeddings, S24_ERROR_ARGUMENT, "embeddings is NULL");
    REQUIRE(ctx, lane->texts, S24_ERROR_ARGUMENT, "no batch is begun");
    e->oldest = (e->oldest + 1) % e->lane_count;
    const s24i_encoder_texts all = {.encoder = e, .results = embeddings};
    return s24i_encoder_collect(&all, lane, ctx);
}
