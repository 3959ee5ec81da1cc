// SPDX-License-Identifier: Apache-2.0
/* Texts and pairs of texts to the logits of a head, by an encoder that was opened for it. */
#include <stdio.h>
#include <string.h>

#include "io/checkpoint/config.h"
#include "run/encoder.h"

/* ---- labels ---------------------------------------------------------------------------------- */

s24_status s24i_encoder_read_labels(s24_encoder *encoder, s24_ctx *ctx, const char *folder)
{
    const int64_t classes = encoder->late ? 1 : encoder->model->shape.classes;
    const char *problem = "";
    s24i_config config, names;
    s24_status status;
    TRY(s24i_zeroed(&encoder->labels, ctx, (size_t)(classes + 1) * sizeof *encoder->labels));
    TRY(s24i_config_load(&config, ctx, folder, "config.json", S24I_REQUIRED));
    TRY_DONE(s24i_config_string(&problem, &config, "problem_type", S24I_OPTIONAL));
    encoder->multi_label = !strcmp(problem, "multi_label_classification");
    TRY_DONE(s24i_config_child(&names, &config, "id2label", S24I_OPTIONAL));
    for (int64_t i = 0; i < classes; i++) {
        char key[32], made[40];
        snprintf(key, sizeof key, "%lld", (long long)i);
        snprintf(made, sizeof made, "LABEL_%s", key);
        const char *label = s24i_json_string(s24i_json_get(names.json, key));
        TRY_DONE(s24i_copy_string(&encoder->labels[i], ctx, label ? label : made));
    }
done:
    s24i_config_free(&config);
    return status;
}

/* One place that may name the function; *said: it did. */
static s24_status read_function(s24_encoder *e, int *said, const s24i_config *config,
                                const char *key)
{
    const char *type = NULL;
    if (!*said && config->json) TRY(s24i_config_string(&type, config, key, S24I_OPTIONAL));
    if (!type) return S24_OK;
    *said = 1;
    e->is_plain = s24i_ends_with(type, ".Identity");
    REQUIRE(config->ctx,
            !strncmp(type, "torch.", 6) && (e->is_plain || s24i_ends_with(type, ".Sigmoid")),
            S24_ERROR_UNSUPPORTED,
            "%s: %s is '%s'; torch's Sigmoid or Identity was expected, which makes a reranker's "
            "score",
            config->file, key, s24i_show(type).text);
    return S24_OK;
}

s24_status s24i_encoder_read_score(s24_encoder *e, s24_ctx *ctx, const char *folder,
                                   const char *place)
{
    s24i_config theirs, config = {.ctx = ctx}, inner;
    int said = 0;
    s24_status status;
    if (e->model->shape.classes != 1) return S24_OK;
    TRY(s24i_config_load(&theirs, ctx, folder, "config_sentence_transformers.json", S24I_OPTIONAL));
    TRY_DONE(read_function(e, &said, &theirs, "activation_fn"));
    TRY_DONE(s24i_config_load(&config, ctx, place, "config.json", S24I_REQUIRED));
    TRY_DONE(s24i_config_child(&inner, &config, "sentence_transformers", S24I_OPTIONAL));
    TRY_DONE(read_function(e, &said, &inner, "activation_fn"));
    TRY_DONE(read_function(e, &said, &config, "sbert_ce_default_activation_function"));
done:
    s24i_config_free(&config);
    s24i_config_free(&theirs);
    return status;
}

void s24i_encoder_free_labels(s24_encoder *encoder)
{
    for (char **label = encoder->labels; label && *label; label++)
        s24_ctx_free(encoder->ctx, *label);
    s24_ctx_free(encoder->ctx, encoder->labels);
}

int64_t s24_encoder_classes(const s24_encoder *encoder)
{
    return encoder && encoder->head ? encoder->columns : 0;
}

int s24_encoder_classifies_tokens(const s24_encoder *encoder)
{
    return encoder && encoder->head && encoder->model->reading.whom == S24I_CLASSIFIES_TOKENS;
}

int s24_encoder_multi_label(const s24_encoder *encoder)
{
    return encoder && encoder->multi_label;
}

int s24_encoder_scores_plainly(const s24_encoder *encoder)
{
    return encoder && encoder->is_plain;
}

const char *s24_encoder_label(const s24_encoder *encoder, int64_t index)
{
    return index >= 0 && index < s24_encoder_classes(encoder) ? encoder->labels[index] : NULL;
}

/* ---- logits ---------------------------------------------------------------------------------- */

static s24_status check_encoder(s24_ctx *ctx, const s24_encoder *encoder, s24i_classifies whom)
{
    static const char *const names[] = {
        [S24I_CLASSIFIES_TEXTS] = "texts", [S24I_CLASSIFIES_TOKENS] = "tokens"};
    REQUIRE(ctx, encoder && encoder->head, S24_ERROR_ARGUMENT, "%s",
            encoder ? "the encoder was opened without the option head" : "encoder is NULL");
    const s24i_classifies has = encoder->model->reading.whom;
    REQUIRE(ctx, has == whom, S24_ERROR_UNSUPPORTED,
            "the model's head classifies %s; one that classifies %s was expected", names[has],
            names[whom]);
    return S24_OK;
}

static s24_status check_texts(s24_ctx *ctx, const char *name, const s24_text *texts, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        REQUIRE(ctx, texts[i].data || !texts[i].bytes, S24_ERROR_ARGUMENT, "%s[%lld] is NULL", name,
                (long long)i);
        REQUIRE(ctx, texts[i].bytes <= INT32_MAX, S24_ERROR_ARGUMENT,
                "%s[%lld] has %zu bytes, at most %d are expected", name, (long long)i,
                texts[i].bytes, INT32_MAX);
    }
    return S24_OK;
}

static s24_status check_pairs(s24_ctx *ctx, const s24_encoder *encoder, const s24_text_pairs *pairs)
{
    const s24_tokenizer *t = encoder->tokenizer;
    const int64_t around =
        encoder->by_token ? encoder->layout.end_count : s24i_template_tokens(&t->pair);
    const int64_t least = around + 2; /* one of each text */
    TRY(check_texts(ctx, "texts", pairs->texts, pairs->same_text ? 1 : pairs->count));
    REQUIRE(ctx, pairs->pairs || (!encoder->by_token && !encoder->late), S24_ERROR_ARGUMENT,
            "the model scores pairs of texts, and single ones were given");
    if (!pairs->pairs) return S24_OK;
    if (encoder->late) return check_texts(ctx, "pairs", pairs->pairs, pairs->count);
    REQUIRE(ctx, t->pairs || encoder->by_token, S24_ERROR_UNSUPPORTED,
            "two texts need a tokenizer that says what stands around both, as one with [CLS] and "
            "[SEP] does, or one that puts nothing there");
    REQUIRE(ctx, encoder->max_tokens >= least, S24_ERROR_ARGUMENT,
            "max_tokens is %lld; at least %lld are expected for a pair",
            (long long)encoder->max_tokens, (long long)least);
    return check_texts(ctx, "pairs", pairs->pairs, pairs->count);
}

s24_status s24_encoder_classify(float *logits, int64_t *tokens, s24_encoder *encoder, s24_ctx *ctx,
                                const s24_text_pairs *pairs)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    if (!encoder || !encoder->late) TRY(check_encoder(ctx, encoder, S24I_CLASSIFIES_TEXTS));
    REQUIRE(ctx, encoder->head, S24_ERROR_ARGUMENT,
            "the encoder was opened without the option head");
    REQUIRE(ctx, pairs && pairs->count >= 0 && (!pairs->count || (logits && pairs->texts)),
            S24_ERROR_ARGUMENT, "%s",
            !pairs             ? "pairs is NULL"
            : pairs->count < 0 ? "pairs.count is negative"
            : !logits          ? "logits is NULL"
                               : "pairs.texts is NULL");
    if (pairs->count) TRY(check_pairs(ctx, encoder, pairs));
    if (encoder->late) return s24i_encoder_late_classify(logits, tokens, encoder, ctx, pairs);
    const s24i_encoder_texts all = {
        .encoder = encoder, .pairs = pairs, .count = pairs->count, .results = logits};
    return s24i_encoder_run(tokens, &all, ctx);
}

s24_status s24_encoder_tag(s24_token *tokens, float *logits, int64_t *count, s24_encoder *encoder,
                           s24_ctx *ctx, const s24_text *text)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    TRY(check_encoder(ctx, encoder, S24I_CLASSIFIES_TOKENS));
    REQUIRE(ctx, tokens && logits && count && text, S24_ERROR_ARGUMENT, "%s is NULL",
            !tokens   ? "tokens"
            : !logits ? "logits"
            : !count  ? "count"
                      : "text");
    TRY(check_texts(ctx, "text", text, 1));
    s24i_encoder_lane *lane = &encoder->lanes[0];
    *count = s24i_tokenizer_encode(tokens, encoder->max_tokens, encoder->tokenizer, text, 1);
    if (*count < 0) return s24i_tokenizer_no_memory(ctx);
    for (int64_t t = 0; t < *count; t++)
        lane->ids[t] = tokens[t].id;
    lane->offsets[0] = 0;
    lane->offsets[1] = *count;
    const s24_batch batch = {.texts = 1, .offsets = lane->offsets, .ids = lane->ids};
    const s24_outputs outputs = {.logits = logits};
    return s24_session_forward(lane->session, ctx, &batch, &outputs);
}
