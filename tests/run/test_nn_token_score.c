// SPDX-License-Identifier: Apache-2.0
/*
 * Rerankers that answer by a token: a pair's score is the difference of two logits of the language
 * model after the text that the template makes of it, by threads and by a copy of the encoder too;
 * single texts are refused, and memory may end anywhere.
 */
#include "support.h"

#include <math.h>

#include "nn_bpe.h"
#include "nn_failing.h"
#include "nn_language.h"
#include "sparse24/language.h"

enum { YES = 3, NO = 5, PAIRS = 5, MOST = 40 };

#define FAMILY "sentence_transformers.base.modules."
#define MODULES                                                                                    \
    "[{\"path\": \"\", \"type\": \"" FAMILY "transformer.Transformer\"}, "                         \
    "{\"path\": \"1_LogitScore\", \"type\": \"" FAMILY "logit_score.LogitScore\"}]"
#define TEMPLATE                                                                                   \
    "{% for m in messages %}a{{ m.content }}{{ '<|end|>' if m.role == 'query' }}{% endfor %}b"

static const char query[] = "ab ab";
static const s24_text documents[PAIRS] = {
    {"a", 1}, {"ab", 2}, {"", 0}, {"b a", 3}, {"a b a b a b a b a b a b a b a b a b a b a b", 43}};

static void good(const s24_ctx *own, s24_status status)
{
    if (status != S24_OK) fail_msg("%s", s24_ctx_error(own));
}

static s24_ctx *with_threads(int threads)
{
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = threads};
    s24_ctx *own;
    assert_int_equal(s24_ctx_create(&own, &opts), S24_OK);
    return own;
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    io_write_text(path, text);
}

static const char *reranker(void)
{
    const lm_spec qwen3 = {.llama = 1, .model_type = "qwen3", .head = 16, .norms = 1};
    const char *folder = io_path("reranker");
    char place[600];
    io_remove(folder);
    lm_write(&qwen3, folder);
    snprintf(place, sizeof place, "%s/1_LogitScore", folder);
    mkdir(place, 0700);
    put(place, "config.json", "{\"true_token_id\": 3, \"false_token_id\": 5}");
    put(folder, "modules.json", MODULES);
    put(folder, "chat_template.jinja", TEMPLATE);
    put(folder, "sentence_bert_config.json", "{\"max_seq_length\": 24}");
    put(folder, "tokenizer.json",
        "{" BYTE_LEVEL "," BYTE_MODEL ",\"added_tokens\":[{\"id\":17,\"content\":\"<|end|>\","
        "\"special\":true}]}");
    return folder;
}

/* The logits' difference after the text of a pair, of which 24 tokens stay with the last one. */
static float expected(s24_ctx *own, const char *folder, const s24_text *document)
{
    static float logits[MOST * LM_VOCABULARY];
    char text[200];
    int32_t ids[200];
    int64_t count = 200, offsets[2] = {0};
    s24_checkpoint *checkpoint;
    s24_model *model;
    s24_session *session;
    s24_tokenizer *tokenizer;
    s24_token tokens[200];
    good(own, s24_checkpoint_open(&checkpoint, own, folder));
    good(own, s24_model_load(&model, own, checkpoint, NULL));
    good(own, s24_tokenizer_load(&tokenizer, own, folder));
    good(own, s24_session_create(&session, own, model, MOST));
    const int bytes = snprintf(text, sizeof text, "a%s<|end|>a%.*sb", query, (int)document->bytes,
                               document->data);
    good(own,
         s24_tokenizer_encode(tokens, &count, 200, tokenizer, own, text, (size_t)bytes, NULL, 0));
    for (int64_t i = 0; i < count; i++)
        ids[i] = tokens[i].id;
    if (count > 24) ids[23] = ids[count - 1];
    offsets[1] = count < 24 ? count : 24;
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    const s24_outputs outputs = {.logits = logits};
    good(own, s24_session_forward(session, own, &batch, &outputs));
    const float *last = logits + (offsets[1] - 1) * LM_VOCABULARY;
    s24_session_destroy(session);
    s24_tokenizer_destroy(tokenizer);
    s24_model_destroy(model);
    s24_checkpoint_close(checkpoint);
    return last[YES] - last[NO];
}

static const s24_encoder_opts head = {.size = sizeof head, .head = 1};

static const s24_text asked = {query, sizeof query - 1};

static const s24_text_pairs pairs = {
    .count = PAIRS, .texts = &asked, .pairs = documents, .same_text = 1};

static void scores(void **state)
{
    const char *folder = reranker();
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        s24_ctx *own = with_threads(threads);
        s24_encoder *encoder, *copy;
        float got[PAIRS], again[PAIRS];
        good(own, s24_encoder_open(&encoder, own, folder, &head));
        assert_int_equal(s24_encoder_classes(encoder), 1);
        good(own, s24_encoder_classify(got, NULL, encoder, own, &pairs));
        for (int i = 0; i < PAIRS; i++)
            assert_true(fabsf(got[i] - expected(own, folder, &documents[i])) < 1e-4f);
        good(own, s24_encoder_share(&copy, own, encoder));
        good(own, s24_encoder_classify(again, NULL, copy, own, &pairs));
        assert_memory_equal(got, again, sizeof got);
        s24_encoder_close(copy);
        s24_encoder_close(encoder);
        s24_ctx_destroy(own);
    }
}

static void single_texts(void **state)
{
    const char *folder = reranker();
    s24_ctx *own = with_threads(1);
    s24_encoder *encoder;
    float got;
    const s24_text_pairs one = {.count = 1, .texts = documents};
    (void)state;
    good(own, s24_encoder_open(&encoder, own, folder, &head));
    assert_int_equal(s24_encoder_classify(&got, NULL, encoder, own, &one), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(own), "the model scores pairs of texts"));
    s24_encoder_close(encoder);
    s24_ctx_destroy(own);
}

static s24_status open_and_score(s24_ctx *own)
{
    float got[PAIRS];
    s24_encoder *encoder = NULL, *copy = NULL;
    s24_status status = s24_encoder_open(&encoder, own, io_path("reranker"), &head);
    if (status == S24_OK) status = s24_encoder_share(&copy, own, encoder);
    if (status == S24_OK) status = s24_encoder_classify(got, NULL, copy, own, &pairs);
    s24_encoder_close(copy);
    s24_encoder_close(encoder);
    return status;
}

static void failing_allocations(void **state)
{
    (void)state;
    reranker();
    assert_true(count_failures(open_and_score) > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores), cmocka_unit_test(single_texts),
                                       cmocka_unit_test(failing_allocations)};
    return cmocka_run_group_tests(tests, ctx_folder_setup, ctx_folder_teardown);
}
