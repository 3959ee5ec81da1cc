// SPDX-License-Identifier: Apache-2.0
/* Encoders that give weights of words in place of vectors (SPLADE). */
#include "run/encoder.h"

s24_status s24i_encoder_open_words(s24_encoder *e, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                   const char *folder, const s24_encoder_opts *opts)
{
    const s24i_pooled *pooled = &e->model->pooled;
    REQUIRE(ctx, !e->images, S24_ERROR_UNSUPPORTED, "%s: pooling is splade, which is of texts",
            folder);
    REQUIRE(ctx, !opts->ids, S24_ERROR_UNSUPPORTED,
            "%s: weights of words are made of texts, and the option ids is given", folder);
    REQUIRE(ctx, opts->pooling || (!pooled->normalise && !pooled->more_modules),
            S24_ERROR_UNSUPPORTED,
            "%s/modules.json: a module stands after SpladePooling, which must be the last", folder);
    REQUIRE(ctx, !opts->dimensions, S24_ERROR_ARGUMENT,
            "dimensions is %lld, which is of vectors; %s gives weights of words",
            (long long)opts->dimensions, folder);
    REQUIRE(ctx, !e->model->device && !e->model->ranks.comm, S24_ERROR_UNSUPPORTED,
            "%s: weights of words are made on the CPU alone, by one process", folder);
    TRY(s24i_words_create(&e->words, ctx, checkpoint, e->model));
    e->modules.given = e->modules.width = e->model->shape.vocabulary;
    return S24_OK;
}

int s24_encoder_weighs(const s24_encoder *encoder)
{
    return encoder && encoder->words;
}

static s24_status check_weighs(s24_ctx *ctx, const s24_encoder *encoder,
                               const s24_word_weights *out, int64_t count)
{
    REQUIRE(ctx, encoder && count >= 0, S24_ERROR_ARGUMENT, "%s",
            encoder ? "count is negative" : "encoder is NULL");
    REQUIRE(ctx, !count || (out && out->ids && out->weights && out->counts), S24_ERROR_ARGUMENT,
            "%s", out ? "out has no ids, weights or counts" : "out is NULL");
    REQUIRE(ctx, !count || out->most >= 1, S24_ERROR_ARGUMENT,
            "out.most is %lld, at least 1 is expected", (long long)out->most);
    REQUIRE(ctx, encoder->words, S24_ERROR_ARGUMENT,
            "the encoder gives vectors; weights of words come of a folder with SpladePooling or of "
            "the option pooling, splade");
    return S24_OK;
}

s24_status s24_encoder_weigh(const s24_word_weights *out, int64_t *tokens, s24_encoder *encoder,
                             s24_ctx *ctx, const s24_text *texts, int64_t count)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    TRY(check_weighs(ctx, encoder, out, count));
    REQUIRE(ctx, !count || texts, S24_ERROR_ARGUMENT, "texts is NULL");
    TRY(s24i_encoder_check_texts(encoder, ctx, texts, count));
    const s24i_encoder_texts all = {
        .encoder = encoder, .texts = texts, .count = count, .weights = out};
    return s24i_encoder_run(tokens, &all, ctx);
}

s24_status s24_encoder_weigh_ids(const s24_word_weights *out, int64_t *tokens, s24_encoder *encoder,
                                 s24_ctx *ctx, const s24_batch *ids)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, ids && (!ids->texts || (ids->offsets && ids->ids)), S24_ERROR_ARGUMENT, "%s",
            ids ? "ids has no offsets or no ids" : "ids is NULL");
    TRY(check_weighs(ctx, encoder, out, ids->texts));
    if (ids->texts) TRY(s24i_encoder_check_ids(encoder, ctx, ids));
    const s24i_encoder_texts all = {
        .encoder = encoder, .ids = ids, .count = ids->texts, .weights = out};
    return s24i_encoder_run(tokens, &all, ctx);
}
