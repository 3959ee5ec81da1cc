// SPDX-License-Identifier: Apache-2.0
/* Puts together what makes vectors of texts: a folder's tokenizer, model and prompts.
   encoder_embed.c runs them. */
#include "run/encoder.h"

#include <string.h>

#include "model/tower.h"

#define SENTENCE_CONFIG "sentence_bert_config.json"

/* ---- opening --------------------------------------------------------------------------------- */

/* Said before the weights are loaded, is_said: but for how vectors are made; other model types are
   s24_model_load's to refuse. */
static s24_status check_model(s24_ctx *ctx, const s24_checkpoint *checkpoint, const char *path,
                              int is_said, int images)
{
    REQUIRE(ctx, s24_checkpoint_folder(checkpoint), S24_ERROR_ARGUMENT,
            "%s is a file; an encoder needs its folder, with the tokenizer", path);
    const char *type = s24_checkpoint_model_type(checkpoint);
    const s24i_architecture *arch = s24i_architecture_of(checkpoint);
    if (!arch) return S24_OK;
    REQUIRE(ctx, images || !arch->key_image, S24_ERROR_UNSUPPORTED,
            "%s: a model of type '%s' reads images, and texts were given", path, type);
    return is_said || images ? S24_OK : s24i_pooling_check(ctx, checkpoint);
}

static s24_status check_head(const s24_encoder *encoder, s24_ctx *ctx, const char *folder)
{
    const s24_model *model = encoder->model;
    REQUIRE(ctx, model->reading.whom, S24_ERROR_UNSUPPORTED,
            "%s: architectures in config.json names no model of type '%s' for sequence or token "
            "classification whose head is known",
            folder, model->architecture->model_type);
    return S24_OK;
}

/* The way of pooling that was asked for, and what comes after it. */
static s24_status set_modules(s24_encoder *e, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                              const char *folder, const s24_encoder_opts *opts)
{
    const s24_model *model = e->model;
    s24i_pooled *pooled = &e->model->pooled;
    TRY(s24i_pooling_read(pooled, ctx, s24i_pooling_usual(model->architecture, &model->shape),
                          folder));
    if (opts->pooling) {
        REQUIRE(ctx, s24i_pooling_find(&pooled->pooling, opts->pooling), S24_ERROR_ARGUMENT,
                "pooling is '%s'; mean, cls, max, lasttoken, weightedmean, mean_sqrt_len or "
                "splade is expected",
                s24i_show(opts->pooling).text);
        pooled->further_count = 0;
        pooled->said = 1;
    }
    REQUIRE(ctx, pooled->said, S24_ERROR_UNSUPPORTED,
            "%s/modules.json: no module is Pooling, which makes a text's vector of its tokens'",
            folder);
    if (pooled->pooling == S24I_POOL_WORDS)
        return s24i_encoder_open_words(e, ctx, checkpoint, folder, opts);
    s24i_modules_source source = {.folder = folder,
                                  .width = model->shape.width * (1 + pooled->further_count),
                                  .dimensions = opts->dimensions};
    if (model->projection && !pooled->further_count) {
        source.projection = model->projection;
        source.projection_bias = model->projection_bias;
        source.projected = model->shape.projected;
    }
    TRY(s24i_modules_read(&e->modules, ctx, &source));
    if (!s24i_modules_any(&e->modules)) return S24_OK;
    e->modules.normalises = pooled->normalise;
    pooled->normalise = 0;
    return S24_OK;
}

/* Does the model read images and nothing else? */
static int reads_images(const s24_checkpoint *checkpoint)
{
    const s24i_architecture *arch = s24i_architecture_of(checkpoint);
    return arch && arch->key_image;
}

/* A language model whose pairs a token's logit scores. */
static s24_status load_scoring(s24_encoder *e, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                               const char *place, const s24_encoder_opts *opts,
                               s24i_token_score *score)
{
    TRY(s24_tokenizer_load(&e->tokenizer, ctx, place));
    TRY(s24i_copy_string(&e->folder, ctx, place));
    if (e->known >= 0) {
        TRY(s24i_token_score_known(score, ctx, e->known, e->tokenizer));
        s24_ctx_log(ctx, S24_LOG_INFO,
                    "%s: no modules.json says how pairs are scored: by the tokens and the layout "
                    "of %s",
                    place, s24i_token_score_name(e->known));
    }
    REQUIRE(ctx, !opts->model.device, S24_ERROR_UNSUPPORTED,
            "%s: rerankers that answer by a token run on the CPU alone", place);
    e->by_token = 1;
    return s24i_model_load_scoring(&e->model, ctx, checkpoint, &opts->model, score);
}

/* A model for its head. */
static s24_status load_head(s24_encoder *e, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                            const char *folder, const char *place, const s24_encoder_opts *opts)
{
    s24i_token_score score;
    int found;
    TRY(s24i_token_score_read(&score, &found, &e->known, ctx, folder));
    if (found || e->known >= 0) return load_scoring(e, ctx, checkpoint, place, opts, &score);
    return s24_model_load(&e->model, ctx, checkpoint, &opts->model);
}

/* place: where the transformer lies, the folder or one in it. */
static s24_status load_model(s24_encoder *encoder, s24_ctx *ctx, const char *folder,
                             const char *place, s24_encoder_opts *opts)
{
    s24_checkpoint *checkpoint;
    int late = 0;
    TRY(s24_checkpoint_open(&checkpoint, ctx, place));
    if (opts->images < 0) opts->images = reads_images(checkpoint);
    opts->model.images |= opts->images;
    encoder->images = opts->images;
    s24_status status = S24_OK;
    if (!opts->pooling && !opts->images) status = s24i_late_said(&late, ctx, folder, place);
    const int head = encoder->head && !late;
    const int is_said = head || late || opts->pooling || strcmp(folder, place) != 0;
    if (status == S24_OK) status = check_model(ctx, checkpoint, folder, is_said, opts->images);
    if (status == S24_OK)
        status = head ? load_head(encoder, ctx, checkpoint, folder, place, opts)
                      : s24i_model_load_headless(&encoder->model, ctx, checkpoint, &opts->model);
    if (status == S24_OK && head) status = check_head(encoder, ctx, folder);
    if (status == S24_OK && late)
        status = s24i_encoder_open_late(encoder, ctx, checkpoint, folder, place, opts);
    if (status == S24_OK && !head && !late)
        status = set_modules(encoder, ctx, checkpoint, folder, opts);
    s24_checkpoint_close(checkpoint);
    return status;
}

/* A token at either end at least, so that no text is empty, but where a head reads the last one of
   those that see the earlier ones. */
static s24_status check_tokenizer(const s24_encoder *encoder, s24_ctx *ctx, const char *folder,
                                  int64_t vocabulary)
{
    const s24_tokenizer *tokenizer = encoder->tokenizer;
    const int64_t ends = s24i_template_tokens(&tokenizer->single);
    const int causal = encoder->model->architecture->causal;
    REQUIRE(ctx, ends || (causal && encoder->head), S24_ERROR_UNSUPPORTED,
            "%s: a tokenizer that puts no token before a text or after it is not supported in an "
            "encoder",
            folder);
    REQUIRE(ctx, s24_tokenizer_vocabulary(tokenizer) <= vocabulary, S24_ERROR_FORMAT,
            "%s: the tokenizer's ids go up to %d, but the model has %lld word embeddings", folder,
            (int)s24_tokenizer_vocabulary(tokenizer) - 1, (long long)vocabulary);
    return S24_OK;
}

/* Are texts lower case whatever the tokenizer does? */
static s24_status read_lower(int *lower, s24_ctx *ctx, const char *folder)
{
    s24i_config config;
    s24_status status = s24i_config_load(&config, ctx, folder, SENTENCE_CONFIG, S24I_OPTIONAL);
    *lower = 0;
    if (status == S24_OK) status = s24i_config_bool(lower, &config, "do_lower_case", S24I_OPTIONAL);
    s24i_config_free(&config);
    return status;
}

/* The token that fills texts, of a model whose texts have one length: the tokenizer's that pads. */
static s24_status read_filler(s24_encoder *encoder, s24_ctx *ctx, const char *folder)
{
    static const char file[] = "tokenizer_config.json";
    const char *name = NULL, *class = "";
    s24i_config config, token;
    s24_status status;
    encoder->filler = -1;
    if (!encoder->model->architecture->filled || !encoder->tokenizer) return S24_OK;
    TRY(s24i_config_load(&config, ctx, folder, file, S24I_REQUIRED));
    TRY_DONE(s24i_config_string(&class, &config, "tokenizer_class", S24I_OPTIONAL));
    if (!strcmp(class, "SiglipTokenizer"))
        status =
            s24_ctx_fail(ctx, S24_ERROR_UNSUPPORTED,
                         "%s: tokenizer_class SiglipTokenizer leaves punctuation out of texts, "
                         "which is not carried out",
                         config.file);
    TRY_DONE(status);
    name = s24i_json_string(s24i_json_get(config.json, "pad_token"));
    if (!name) {
        TRY_DONE(s24i_config_child(&token, &config, "pad_token", S24I_REQUIRED));
        TRY_DONE(s24i_config_string(&name, &token, "content", S24I_REQUIRED));
    }
    TRY_DONE(s24i_tokenizer_find(&encoder->filler, encoder->tokenizer, config.file, name));
done:
    s24i_config_free(&config);
    return status;
}

static s24_status read_limits(s24_encoder *encoder, s24_ctx *ctx, const char *folder, int64_t asked)
{
    s24_model_info info;
    int64_t limit;
    int lower;
    s24_model_describe(&info, encoder->model);
    TRY(s24i_text_limit_read(&limit, ctx, folder, info.positions));
    TRY(read_lower(&lower, ctx, folder));
    REQUIRE(ctx, !asked || (asked >= 2 && asked <= info.positions), S24_ERROR_ARGUMENT,
            "max_tokens is %lld, 2 to the model's positions, %lld, is expected", (long long)asked,
            (long long)info.positions);
    REQUIRE(ctx, info.positions >= 2 || encoder->images, S24_ERROR_FORMAT,
            "%s: %lld positions, at least 2 are expected for [CLS] and [SEP]", folder,
            (long long)info.positions);
    if (encoder->tokenizer) {
        TRY(check_tokenizer(encoder, ctx, folder, info.vocabulary));
        encoder->tokenizer->lower |= lower;
    }
    TRY(read_filler(encoder, ctx, folder));
    const int late = encoder->late != NULL;
    encoder->columns = !encoder->head ? encoder->modules.width : late ? 1 : info.classes;
    encoder->width = encoder->head && !late ? info.width : encoder->modules.width;
    if (late) return S24_OK;
    encoder->max_tokens = encoder->images ? info.positions : asked ? asked : limit;
    return S24_OK;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static s24_status new_encoder(s24_encoder **out, s24_ctx *ctx)
{
    void *memory;
    TRY(s24i_zeroed(&memory, ctx, sizeof **out));
    *out = memory;
    (*out)->ctx = ctx;
    return S24_OK;
}

static s24_status load_parts(s24_encoder *encoder, s24_ctx *ctx, const char *folder,
                             const char *place, s24_encoder_opts *opts)
{
    TRY(load_model(encoder, ctx, folder, place, opts));
    const int late = encoder->late != NULL;
    if (opts->head) TRY(s24i_encoder_read_labels(encoder, ctx, place));
    if (opts->head && !late) TRY(s24i_encoder_read_score(encoder, ctx, folder, place));
    if (!opts->ids && !opts->images) {
        if (!encoder->tokenizer) TRY(s24_tokenizer_load(&encoder->tokenizer, ctx, place));
        TRY(s24i_prompts_read(&encoder->prompts, ctx, folder));
        if (late) encoder->prompts.sides = s24i_late_sides;
    }
    if (opts->images) TRY(s24_image_form_read(&encoder->form, ctx, place));
    return read_limits(encoder, ctx, place, opts->max_tokens);
}

static s24_status open_encoder(s24_encoder *encoder, s24_ctx *ctx, const char *folder,
                               s24_encoder_opts *opts)
{
    char *place;
    REQUIRE(ctx, !opts->head || !opts->ids, S24_ERROR_ARGUMENT,
            "the options head and ids of an encoder exclude each other");
    REQUIRE(ctx, !opts->head || (!opts->pooling && !opts->dimensions), S24_ERROR_ARGUMENT,
            "the option head of an encoder excludes pooling and dimensions");
    REQUIRE(ctx, !opts->images || (!opts->head && !opts->ids), S24_ERROR_ARGUMENT,
            "the option images of an encoder excludes head and ids");
    encoder->head = opts->head;
    TRY(s24i_transformer_folder(&place, ctx, folder));
    const s24_status status = load_parts(encoder, ctx, folder, place, opts);
    s24_ctx_free(ctx, place);
    TRY(status);
    TRY(s24i_encoder_make_lanes(encoder, ctx, opts->batch_tokens));
    return s24_encoder_choose_prompt(encoder, ctx, opts->prompt);
}

s24_status s24_encoder_open(s24_encoder **out, s24_ctx *ctx, const char *folder,
                            const s24_encoder_opts *opts)
{
    s24_encoder_opts known;
    s24_encoder *encoder;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, folder, S24_ERROR_ARGUMENT, "folder is NULL");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_encoder_opts"));
    if (!known.model.size) known.model.size = sizeof known.model;
    TRY(new_encoder(&encoder, ctx));
    GIVE(out, encoder, s24_encoder_close, open_encoder(encoder, ctx, folder, &known));
}

s24_status s24_encoder_share(s24_encoder **out, s24_ctx *ctx, const s24_encoder *from)
{
    s24_encoder *encoder;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, from, S24_ERROR_ARGUMENT, "from is NULL");
    REQUIRE(ctx, !from->model->ranks.comm, S24_ERROR_UNSUPPORTED,
            "an encoder whose model %d ranks hold together is not shared with other threads",
            from->model->ranks.world);
    REQUIRE(ctx, !from->words, S24_ERROR_UNSUPPORTED,
            "an encoder that gives weights of words is not shared with other threads");
    TRY(new_encoder(&encoder, ctx));
    encoder->shares = 1;
    encoder->model = from->model;
    encoder->tokenizer = from->tokenizer;
    encoder->prompts = from->prompts;
    encoder->width = from->width;
    encoder->columns = from->columns;
    encoder->head = from->head;
    encoder->images = from->images;
    encoder->form = from->form;
    encoder->filler = from->filler;
    encoder->labels = from->labels;
    encoder->modules = from->modules;
    encoder->late = from->late;
    encoder->side = from->side;
    encoder->multi_label = from->multi_label;
    encoder->is_plain = from->is_plain;
    encoder->by_token = from->by_token;
    encoder->known = from->known;
    encoder->folder = from->folder;
    encoder->max_tokens = from->max_tokens;
    s24_status status = s24i_encoder_make_lanes(encoder, ctx, from->batch_tokens);
    if (status == S24_OK)
        status = from->prompt_name ? s24_encoder_choose_prompt(encoder, ctx, from->prompt_name)
                                   : s24_encoder_set_prompt(encoder, ctx, from->prompt);
    GIVE(out, encoder, s24_encoder_close, status);
}

void s24_encoder_close(s24_encoder *encoder)
{
    if (!encoder) return;
    s24_ctx *ctx = encoder->ctx;
    s24i_encoder_free_lanes(encoder);
    if (!encoder->shares) {
        s24i_encoder_free_labels(encoder);
        s24i_modules_free(&encoder->modules, ctx);
        s24i_words_destroy(encoder->words, ctx);
        s24i_late_destroy(encoder->late, ctx);
        s24_model_destroy(encoder->model);
        s24_tokenizer_destroy(encoder->tokenizer);
        s24i_prompts_free(&encoder->prompts);
        s24_ctx_free(ctx, encoder->folder);
    }
    s24i_pair_layout_free(&encoder->layout, ctx);
    s24_ctx_free(ctx, encoder->own_prompt);
    s24_ctx_free(ctx, encoder);
}

int s24_encoder_normalises(const s24_encoder *encoder)
{
    if (!encoder || encoder->head) return 0;
    if (encoder->late) return encoder->modules.normalises;
    return s24i_modules_any(&encoder->modules) ? encoder->modules.normalises
                                               : encoder->model->pooled.normalise;
}

int s24_encoder_pools_prompt(const s24_encoder *encoder)
{
    return encoder && encoder->model->pooled.pools_prompt;
}

const s24_model *s24_encoder_model(const s24_encoder *encoder)
{
    return encoder ? encoder->model : NULL;
}

int64_t s24_encoder_sparse_layers(const s24_encoder *encoder, int64_t tokens)
{
    if (!encoder) return 0;
    return s24_session_sparse_layers(encoder->lanes[0].session,
                                     tokens ? tokens : encoder->most_tokens);
}

int64_t s24_encoder_format_layers(const s24_encoder *encoder, int64_t tokens, s24_format format)
{
    if (!encoder) return 0;
    return s24_session_format_layers(encoder->lanes[0].session,
                                     tokens ? tokens : encoder->most_tokens, format);
}

int64_t s24_encoder_max_tokens(const s24_encoder *encoder)
{
    return encoder ? encoder->max_tokens : 0;
}

int64_t s24_encoder_width(const s24_encoder *encoder)
{
    return encoder ? encoder->width : 0;
}

const s24_tokenizer *s24_encoder_tokenizer(const s24_encoder *encoder)
{
    return encoder ? encoder->tokenizer : NULL;
}
