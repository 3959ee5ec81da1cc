// SPDX-License-Identifier: Apache-2.0
/*
 * Embedders that are shaped as language models, as Qwen3-Embedding: a text's vector is its last
 * token's, whatever masks stand after it, with what the tokenizer puts there; a checkpoint without
 * a head has no logits.
 */
#include "support.h"

#include <math.h>

#include "nn_bpe.h"
#include "nn_language.h"
#include "sparse24/language.h"
#include "sparse24/train.h"

enum { END = 17, TOKENS = 40 };

#define MODULES                                                                                    \
    "[{\"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"}, "                  \
    "{\"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}, "              \
    "{\"path\": \"2_Normalize\", \"type\": \"sentence_transformers.models.Normalize\"}]"
#define TOKENIZER(post)                                                                            \
    "{" BYTE_LEVEL "," BYTE_MODEL ",\"added_tokens\":[{\"id\":17,\"content\":\"<|end|>\","         \
    "\"special\":true}]" post "}"
#define END_AFTER                                                                                  \
    ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{"        \
    "\"type\":"                                                                                    \
    "\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":"  \
    "\"<|end|>\"}}]}]}"

static void put(const char *folder, const char *name, const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static const lm_spec qwen3 = {.llama = 1, .model_type = "qwen3", .head = 16, .norms = 1};

/* include_prompt: of the pooling module. */
static const char *embedder(const char *tokenizer, int include_prompt)
{
    const char *folder = io_path("embedder");
    char place[600];
    io_remove(folder);
    lm_write(&qwen3, folder);
    snprintf(place, sizeof place, "%s/1_Pooling", folder);
    mkdir(place, 0700);
    put(place, "config.json",
        include_prompt ? "{\"pooling_mode_lasttoken\": true}"
                       : "{\"pooling_mode_lasttoken\": true, \"include_prompt\": false}");
    put(folder, "modules.json", MODULES);
    put(folder, "tokenizer.json", tokenizer);
    return folder;
}

static s24_encoder *open_encoder(const char *folder, int ids)
{
    const s24_encoder_opts opts = {.size = sizeof opts, .ids = ids};
    s24_encoder *encoder;
    if (s24_encoder_open(&encoder, ctx, folder, &opts) != S24_OK)
        fail_msg("%s", s24_ctx_error(ctx));
    return encoder;
}

static void normalise(float *x)
{
    double squares = 0;
    for (int i = 0; i < LM_WIDTH; i++)
        squares += (double)x[i] * (double)x[i];
    for (int i = 0; i < LM_WIDTH; i++)
        x[i] /= (float)sqrt(squares);
}

/* The last hidden state of a text alone, normalised. */
static void last_state(float *out, const s24_model *model, const int32_t *ids, int64_t count)
{
    const int64_t ends[2] = {0, count};
    const s24_batch batch = {.texts = 1, .offsets = ends, .ids = ids};
    float *hidden = malloc(sizeof(float) * (size_t)(count * LM_WIDTH));
    s24_session *session;
    assert_int_equal(s24_session_create(&session, ctx, model, count), S24_OK);
    assert_int_equal(s24_session_forward(session, ctx, &batch, &(s24_outputs){.hidden = hidden}),
                     S24_OK);
    memcpy(out, hidden + (count - 1) * LM_WIDTH, sizeof(float) * LM_WIDTH);
    normalise(out);
    s24_session_destroy(session);
    free(hidden);
}

/* "abc a" is 8 9, then the end. */
static void texts(void **state)
{
    static const int32_t ids[] = {8, 9, END};
    const s24_text two[] = {{"abc a", 5}, {"", 0}};
    float vectors[2 * LM_WIDTH], want[LM_WIDTH];
    int64_t tokens;
    (void)state;
    s24_encoder *encoder = open_encoder(embedder(TOKENIZER(END_AFTER), 1), 0);
    assert_int_equal(s24_encoder_embed(vectors, &tokens, encoder, ctx, two, 2), S24_OK);
    assert_int_equal(tokens, 4);
    last_state(want, s24_encoder_model(encoder), ids, 3);
    near(want, vectors, LM_WIDTH, 1e-5, "a text");
    last_state(want, s24_encoder_model(encoder), ids + 2, 1);
    near(want, vectors + LM_WIDTH, LM_WIDTH, 1e-5, "nothing");
    s24_encoder_close(encoder);
}

/* A prompt moves the vector; where its tokens are not pooled the last one is still the text's. */
static void prompts(void **state)
{
    static const int32_t ids[] = {6, 8, END};
    const s24_text text = {"abc", 3};
    float vector[LM_WIDTH], want[LM_WIDTH];
    (void)state;
    for (int include = 0; include < 2; include++) {
        s24_encoder *encoder = open_encoder(embedder(TOKENIZER(END_AFTER), include), 0);
        assert_int_equal(s24_encoder_set_prompt(encoder, ctx, "ab"), S24_OK);
        assert_int_equal(s24_encoder_embed(vector, NULL, encoder, ctx, &text, 1), S24_OK);
        last_state(want, s24_encoder_model(encoder), ids, 3);
        near(want, vector, LM_WIDTH, 1e-5, "a prompt and a text");
        s24_encoder_close(encoder);
    }
}

/* What stands after a text's last token, masked, changes nothing; so training has it. */
static void padding(void **state)
{
    static const int64_t offsets[] = {0, 12, 19, TOKENS};
    const char *folder = embedder(TOKENIZER(END_AFTER), 1);
    const s24_transformer_opts opts = {.size = sizeof opts, .max_tokens = TOKENS};
    int32_t ids[TOKENS];
    uint8_t mask[TOKENS];
    float vectors[3 * LM_WIDTH], trained[3 * LM_WIDTH], want[LM_WIDTH], none[LM_WIDTH] = {0};
    s24_session *session;
    s24_transformer *transformer;
    s24_checkpoint *checkpoint;
    (void)state;
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (t * 29 + 3) % LM_VOCABULARY;
        mask[t] = t < 8 || t >= 19; /* four of the first are padding, the second is nothing else */
    }
    const s24_batch batch = {.texts = 3, .offsets = offsets, .ids = ids, .mask = mask};
    s24_encoder *encoder = open_encoder(folder, 1);
    const s24_model *model = s24_encoder_model(encoder);
    assert_int_equal(s24_session_create(&session, ctx, model, TOKENS), S24_OK);
    const s24_outputs outputs = {.embeddings = vectors};
    assert_int_equal(s24_session_forward(session, ctx, &batch, &outputs), S24_OK);
    last_state(want, model, ids, 8);
    near(want, vectors, LM_WIDTH, 1e-5, "a padded text");
    assert_memory_equal(vectors + LM_WIDTH, none, sizeof none);
    last_state(want, model, ids + 19, TOKENS - 19);
    near(want, vectors + 2 * LM_WIDTH, LM_WIDTH, 1e-5, "a whole text");
    assert_int_equal(s24_checkpoint_open(&checkpoint, ctx, folder), S24_OK);
    assert_int_equal(s24_transformer_load(&transformer, ctx, checkpoint, &opts), S24_OK);
    const s24_examples examples = {.texts = batch};
    const s24_pass_outputs pass = {.embeddings = trained};
    assert_int_equal(s24_transformer_forward(transformer, ctx, &examples, &pass), S24_OK);
    near(vectors, trained, 3 * LM_WIDTH, 1e-5, "training's vectors");
    s24_transformer_destroy(transformer);
    s24_checkpoint_close(checkpoint);
    s24_session_destroy(session);
    s24_encoder_close(encoder);
}

/* ---- no head --------------------------------------------------------------------------------- */

static void check_headless(const char *folder)
{
    const int32_t id = 3, target = 4;
    const int64_t ends[2] = {0, 1};
    const s24_batch batch = {.texts = 1, .offsets = ends, .ids = &id};
    float logits[LM_VOCABULARY];
    double loss;
    s24_checkpoint *checkpoint;
    s24_transformer_info info;
    s24_model *model;
    s24_session *session;
    s24_cache *cache;
    assert_int_equal(s24_checkpoint_open(&checkpoint, ctx, folder), S24_OK);
    assert_int_equal(s24_transformer_peek(&info, ctx, checkpoint), S24_OK);
    assert_int_equal(info.head, S24_HEAD_NONE);
    assert_int_equal(s24_model_load(&model, ctx, checkpoint, NULL), S24_OK);
    assert_int_equal(s24_session_create(&session, ctx, model, 8), S24_OK);
    assert_int_equal(s24_session_forward(session, ctx, &batch, &(s24_outputs){.logits = logits}),
                     S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "without a head of the next token"));
    assert_int_equal(s24_session_forward(session, ctx, &batch,
                                         &(s24_outputs){.targets = &target, .loss = &loss}),
                     S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "a loss was asked of a model without a head"));
    assert_int_equal(s24_cache_create(&cache, ctx, session, NULL), S24_OK);
    const s24_generate_opts opts = {.size = sizeof opts};
    assert_int_equal(s24_generate(session, ctx, cache, &batch, &opts), S24_ERROR_UNSUPPORTED);
    assert_string_equal(s24_ctx_error(ctx), "a qwen3 model has no head that gives the next token");
    s24_cache_destroy(cache);
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_checkpoint_close(checkpoint);
}

/* The checkpoint of an untied head that is not there, as embedders are published. */
static void headless(void **state)
{
    lm_spec bare = qwen3;
    (void)state;
    bare.tied = 1;
    bare.more = ", \"tie_word_embeddings\": false";
    io_remove(io_path("bare"));
    lm_write(&bare, io_path("bare"));
    check_headless(io_path("bare"));
}

static void refusals(void **state)
{
    const s24_encoder_opts opts = {.size = sizeof opts};
    s24_encoder *encoder;
    (void)state;
    assert_int_equal(s24_encoder_open(&encoder, ctx, embedder(TOKENIZER(""), 1), &opts),
                     S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(ctx), "puts no token before a text or after it"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(prompts),
                                       cmocka_unit_test(padding), cmocka_unit_test(headless),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, ctx_folder_setup, ctx_folder_teardown);
}
