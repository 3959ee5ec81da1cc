// SPDX-License-Identifier: Apache-2.0
/*
 * A whole folder: files one after the other, each as "NAME BYTES\n" and its bytes. Whatever they
 * are, the folder is refused with a sentence, or texts become vectors, weights of words, classes or
 * logits. A first part "how 1\n" and a letter says how the encoder is opened besides by default.
 */
#include "fuzz.h"

#include <string.h>

#include "sparse24/language.h"
#include "sparse24/late.h"

static const char *const names[] = {"config.json",
                                    "modules.json",
                                    "sentence_bert_config.json",
                                    "config_sentence_transformers.json",
                                    "tokenizer.json",
                                    "tokenizer_config.json",
                                    "vocab.txt",
                                    "generation_config.json",
                                    "model.safetensors",
                                    "model.safetensors.index.json",
                                    "model-1.safetensors",
                                    "model-2.safetensors",
                                    "1_Pooling/config.json",
                                    "2_Dense/config.json",
                                    "2_Dense/model.safetensors",
                                    "1_LogitScore/config.json",
                                    "1_SpladePooling/config.json",
                                    "3_LayerNorm/config.json",
                                    "3_LayerNorm/model.safetensors",
                                    "artifact.metadata"};
enum { NAMES = sizeof names / sizeof *names, MOST_WIDTH = 1 << 12 };

static const s24_model_opts model_opts = {
    .size = sizeof model_opts, .sparse = 1, .all_sparse = 1}; /* nothing is measured */

static const s24_text texts[] = {{"a b", 3}, {"", 0}, {"ab\xc3\xa9 b a", 8}};
enum { TEXTS = 3, ROOM = 32 };

/* What each kind of encoder is asked for. */
static s24_status ask(s24_encoder *encoder, float *out)
{
    static const int32_t ids[] = {0, 1, 2};
    static const int64_t offsets[] = {0, 1, 2, 3};
    static const float pixels[1 << 12];
    static s24_token tokens[MOST_WIDTH];
    s24_ctx *ctx = fuzz_ctx();
    s24_model_info info = {0};
    const s24_text_pairs alone = {.count = TEXTS, .texts = texts};
    const s24_batch batch = {.texts = TEXTS, .offsets = offsets, .ids = ids};
    s24_model_describe(&info, s24_encoder_model(encoder));
    if (s24_encoder_weighs(encoder)) {
        int32_t words[TEXTS * ROOM];
        int64_t counts[TEXTS];
        const s24_word_weights weights = {words, out, counts, ROOM};
        return s24_encoder_weigh(&weights, NULL, encoder, ctx, texts, TEXTS);
    }
    if (s24_encoder_is_late(encoder) && !s24_encoder_classes(encoder)) {
        int64_t starts[TEXTS + 1];
        const s24_token_vectors vectors = {out, starts, TEXTS * s24_encoder_most_vectors(encoder)};
        if (s24_encoder_most_vectors(encoder) > ROOM) return S24_OK;
        return s24_encoder_embed_tokens(&vectors, NULL, encoder, ctx, texts, TEXTS);
    }
    if (s24_encoder_classifies_tokens(encoder)) {
        int64_t count;
        if (s24_encoder_max_tokens(encoder) > MOST_WIDTH / ROOM) return S24_OK;
        return s24_encoder_tag(tokens, out, &count, encoder, ctx, &texts[2]);
    }
    if (s24_encoder_classes(encoder)) {
        const s24_text_pairs pairs = {.count = TEXTS, .texts = texts, .pairs = texts};
        (void)s24_encoder_multi_label(encoder);
        (void)s24_encoder_scores_plainly(encoder);
        const s24_status status = s24_encoder_classify(out, NULL, encoder, ctx, &alone);
        return status == S24_OK ? s24_encoder_classify(out, NULL, encoder, ctx, &pairs) : status;
    }
    if (info.image)
        return info.channels * info.image * info.image > (int64_t)(sizeof pixels / sizeof *pixels)
                   ? S24_OK
                   : s24_encoder_embed_pixels(out, encoder, ctx, pixels, 1);
    return s24_encoder_tokenizer(encoder) ? s24_encoder_embed(out, NULL, encoder, ctx, texts, TEXTS)
                                          : s24_encoder_embed_ids(out, NULL, encoder, ctx, &batch);
}

/* What an encoder says of itself, and another one that shares its model. */
static void look_at(s24_encoder *encoder)
{
    s24_ctx *ctx = fuzz_ctx();
    s24_encoder *other = NULL;
    const char *name = NULL;
    CHECK(s24_encoder_prompt(encoder, &name));
    for (int64_t i = 0; (name = s24_encoder_prompt_name(encoder, i, NULL)) != NULL; i++)
        CHECK(s24_encoder_prompt_text(encoder, name));
    (void)s24_encoder_sparse_layers(encoder, 0);
    if (s24_encoder_normalises(encoder)) (void)s24_encoder_pools_prompt(encoder);
    CHECK(s24_encoder_share(&other, ctx, encoder) == S24_OK || *s24_ctx_error(ctx));
    s24_encoder_close(other);
}

static void embed(s24_encoder *encoder)
{
    s24_ctx *ctx = fuzz_ctx();
    const int64_t classes = s24_encoder_classes(encoder), width = s24_encoder_width(encoder);
    const int64_t room = classes > width ? classes : width;
    if (room > MOST_WIDTH) return;
    float *out =
        malloc((TEXTS * ROOM + (TEXTS * ROOM + MOST_WIDTH / ROOM) * (size_t)room) * sizeof *out);
    CHECK(out);
    if (ask(encoder, out) != S24_OK) CHECK(*s24_ctx_error(ctx));
    look_at(encoder);
    for (int64_t i = 0; i < classes; i++)
        CHECK(s24_encoder_label(encoder, i));
    if (s24_encoder_set_prompt(encoder, ctx, "b a") == S24_OK &&
        s24_encoder_choose_prompt(encoder, ctx, NULL) == S24_OK)
        CHECK(ask(encoder, out) == S24_OK || *s24_ctx_error(ctx));
    free(out);
}

static void open_encoder(char how)
{
    s24_encoder *encoder;
    s24_ctx *ctx = fuzz_ctx();
    s24_encoder_opts opts = {.size = sizeof opts, .model = model_opts, .batch_tokens = 64};
    opts.head = how == 'h';
    opts.ids = how == 'i';
    opts.images = how == 'p' ? -1 : 0;
    opts.dimensions = how == 'd' ? 2 : 0;
    if (how == 'w') opts.pooling = "splade";
    if (how == 'm') opts.pooling = "mean";
    if (how == 'q') opts.prompt = "query";
    if (s24_encoder_open(&encoder, ctx, fuzz_folder(), &opts) == S24_OK) {
        embed(encoder);
        s24_encoder_close(encoder);
    } else {
        CHECK(!encoder && *s24_ctx_error(ctx));
    }
}

/* Ids through a model, with as many outputs as it has. */
static void run(const s24_model *model)
{
    enum { TOKENS = 3 };
    static const int32_t ids[TOKENS] = {0, 1, 0}, targets[TOKENS] = {1, -1, 0};
    static const int64_t offsets[] = {0, TOKENS};
    s24_ctx *ctx = fuzz_ctx();
    s24_session *session;
    s24_model_info info = {0};
    double loss;
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    s24_model_describe(&info, model);
    if (s24_session_create(&session, ctx, model, 8) != S24_OK) {
        CHECK(*s24_ctx_error(ctx));
        return;
    }
    float *hidden = malloc((size_t)(TOKENS * info.width) * sizeof *hidden);
    s24_outputs outputs = {.hidden = hidden, .targets = targets, .loss = &loss};
    CHECK(hidden);
    if (s24_session_forward(session, ctx, &batch, &outputs) != S24_OK) CHECK(*s24_ctx_error(ctx));
    free(hidden);
    s24_session_destroy(session);
}

static void load_model(void)
{
    s24_ctx *ctx = fuzz_ctx();
    s24_checkpoint *checkpoint;
    s24_model *model;
    s24_status status = s24_checkpoint_open(&checkpoint, ctx, fuzz_folder());
    if (status == S24_OK) {
        status = s24_model_load(&model, ctx, checkpoint, &model_opts);
        if (status == S24_OK) run(model);
        s24_model_destroy(model);
    }
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    s24_checkpoint_close(checkpoint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char how[] = "how 1\n";
    const size_t begin = sizeof how - 1;
    (void)fuzz_put_parts(data, bytes, names, NAMES);
    open_encoder(0);
    if (bytes > begin && !memcmp(data, how, begin)) open_encoder((char)data[begin]);
    load_model();
    return 0;
}
