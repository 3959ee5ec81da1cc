// SPDX-License-Identifier: Apache-2.0
/* Vectors of tokens, and scores of late interaction (ColBERT), of late_batch.c's batches. */
#include <string.h>

#include "run/encoder.h"

/* ---- vectors --------------------------------------------------------------------------------- */

static s24_status embed(const s24_token_vectors *out, int64_t *tokens, s24_encoder *encoder,
                        s24_ctx *ctx, const s24_text *texts, int64_t count)
{
    TRY(s24i_encoder_check_texts(encoder, ctx, texts, count));
    const s24i_encoder_texts all = {
        .encoder = encoder, .texts = texts, .count = count, .vectors = out};
    return s24i_encoder_run(tokens, &all, ctx);
}

s24_status s24_encoder_embed_tokens(const s24_token_vectors *out, int64_t *tokens,
                                    s24_encoder *encoder, s24_ctx *ctx, const s24_text *texts,
                                    int64_t count)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, encoder && count >= 0, S24_ERROR_ARGUMENT, "%s",
            encoder ? "count is negative" : "encoder is NULL");
    REQUIRE(ctx, out && out->offsets && (!count || (out->vectors && texts)), S24_ERROR_ARGUMENT,
            "%s",
            !out            ? "out is NULL"
            : !out->offsets ? "out.offsets is NULL"
            : !out->vectors ? "out.vectors is NULL"
                            : "texts is NULL");
    REQUIRE(ctx, encoder->late && !encoder->head, S24_ERROR_ARGUMENT, "%s",
            encoder->late ? "the encoder was opened with the option head, and gives scores"
                          : "the encoder gives a vector for each text; vectors of tokens come of "
                            "a folder of late interaction (ColBERT)");
    out->offsets[0] = 0;
    return embed(out, tokens, encoder, ctx, texts, count);
}

/* ---- scores ---------------------------------------------------------------------------------- */

static int is_same(const s24_text *a, const s24_text *b)
{
    return a->bytes == b->bytes && (a->data == b->data || !memcmp(a->data, b->data, a->bytes));
}

static const s24_text *query_at(const s24_text_pairs *pairs, int64_t i)
{
    return &pairs->texts[pairs->same_text ? 0 : i];
}

/* Some of the pairs, whose queries are the encoder's: equal ones in a row are one. */
typedef struct some {
    const s24_text_pairs *pairs;
    int64_t first, count;
    int64_t queries;
} some;

/* As many as there is room for. */
static void gather(some *s, const s24_encoder *e)
{
    s->count = s->queries = 0;
    for (; s->count < e->window && s->first + s->count < s->pairs->count; s->count++) {
        const s24_text *query = query_at(s->pairs, s->first + s->count);
        if (!s->queries || !is_same(query, &e->query_texts[s->queries - 1])) {
            if (s->queries == e->query_room) return;
            e->query_texts[s->queries++] = *query;
        }
        e->query_of[s->count] = s->queries - 1;
    }
}

/* A pass over queries or documents as those of their side. */
static s24_status run_side(int64_t *tokens, const s24i_encoder_texts *all, s24_ctx *ctx,
                           s24i_side side)
{
    int64_t ran = 0;
    TRY(s24_encoder_choose_prompt(all->encoder, ctx, s24i_late_sides[side]));
    TRY(s24i_encoder_check_texts(all->encoder, ctx, all->texts, all->count));
    TRY(s24i_encoder_run(&ran, all, ctx));
    *tokens += ran;
    return S24_OK;
}

static s24_status score_some(float *logits, int64_t *tokens, s24_encoder *e, s24_ctx *ctx,
                             const some *s)
{
    const s24_token_vectors vectors = {e->queries, e->query_starts,
                                       e->query_room * e->late->limit[S24I_SIDE_QUERY]};
    const s24i_encoder_texts queries = {
        .encoder = e, .texts = e->query_texts, .count = s->queries, .vectors = &vectors};
    const s24i_encoder_texts documents = {.encoder = e,
                                          .texts = s->pairs->pairs + s->first,
                                          .count = s->count,
                                          .results = logits + s->first,
                                          .query_of = e->query_of};
    TRY(run_side(tokens, &queries, ctx, S24I_SIDE_QUERY));
    return run_side(tokens, &documents, ctx, S24I_SIDE_DOCUMENT);
}

s24_status s24i_encoder_late_classify(float *logits, int64_t *tokens, s24_encoder *e, s24_ctx *ctx,
                                      const s24_text_pairs *pairs)
{
    int64_t ran = 0;
    for (some s = {.pairs = pairs}; s.first < pairs->count; s.first += s.count) {
        gather(&s, e);
        TRY(score_some(logits, &ran, e, ctx, &s));
    }
    if (tokens) *tokens = ran;
    return S24_OK;
}
