// SPDX-License-Identifier: Apache-2.0
/*
 * A whole folder: files one after the other, each as "NAME BYTES\n" and its bytes. Whatever they
 * are, the folder is refused with a sentence, or texts become vectors, classes or logits.
 */
#include "fuzz.h"

#include <string.h>

#include "sparse24/language.h"

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
                                    "2_Dense/model.safetensors"};
enum { NAMES = sizeof names / sizeof *names, MOST_WIDTH = 1 << 12 };

static const s24_model_opts model_opts = {
    .size = sizeof model_opts, .sparse = 1, .all_sparse = 1}; /* nothing is measured */

static void embed(s24_encoder *encoder)
{
    static const s24_text texts[] = {{"a b", 3}, {"", 0}, {"ab\xc3\xa9 b a", 8}};
    const s24_text_pairs pairs = {.count = 3, .texts = texts};
    s24_ctx *ctx = fuzz_ctx();
    const int64_t classes = s24_encoder_classes(encoder), width = s24_encoder_width(encoder);
    const int64_t room = classes > width ? classes : width;
    if (room > MOST_WIDTH) return;
    float *out = malloc(3 * (size_t)room * sizeof *out);
    CHECK(out);
    const s24_status status = classes ? s24_encoder_classify(out, NULL, encoder, ctx, &pairs)
                                      : s24_encoder_embed(out, NULL, encoder, ctx, texts, 3);
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    for (int64_t i = 0; i < classes; i++)
        CHECK(s24_encoder_label(encoder, i));
    free(out);
}

static void open_encoder(int head)
{
    s24_encoder *encoder;
    s24_ctx *ctx = fuzz_ctx();
    const s24_encoder_opts opts = {
        .size = sizeof opts, .model = model_opts, .batch_tokens = 64, .head = head};
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
    (void)fuzz_put_parts(data, bytes, names, NAMES);
    open_encoder(0);
    if (bytes % 4 == 0) open_encoder(1);
    load_model();
    return 0;
}
