// SPDX-License-Identifier: Apache-2.0
/* Unigram with XLM-RoBERTa's rules against Hugging Face's tokenizers, from both of its files, and
   what is refused. */
#include "support.h"

#include <jansson.h>

#include "nn_io.h"
#include "nn_load.h"

enum { MOST = 4096 };

static json_t *open_cases(char *folder, size_t bytes)
{
    char path[600];
    if (!golden_path(folder, bytes, "encoders/unigram-tokenizer")) return NULL;
    snprintf(path, sizeof path, "%s/cases.json", folder);
    return json_load_file(path, 0, NULL);
}

static void check_tokens(const s24_token *tokens, int64_t count, const json_t *want,
                         const char *text)
{
    const json_t *ids = json_object_get(want, "ids"), *offsets = json_object_get(want, "offsets");
    for (size_t i = 0; i < json_array_size(ids) && (int64_t)i < count; i++) {
        if (tokens[i].id != json_integer_value(json_array_get(ids, i)))
            fail_msg("'%s': token %zu is %d", text, i, tokens[i].id);
        if (!offsets) continue;
        const json_t *span = json_array_get(offsets, i);
        if (tokens[i].begin != json_integer_value(json_array_get(span, 0)) ||
            tokens[i].end != json_integer_value(json_array_get(span, 1)))
            fail_msg("'%s': token %zu is %d to %d", text, i, tokens[i].begin, tokens[i].end);
    }
    assert_int_equal(count, json_array_size(ids));
}

static void check_file(const char *file)
{
    static s24_token tokens[MOST];
    char folder[512], path[600];
    json_t *cases = open_cases(folder, sizeof folder), *one;
    size_t index;
    int64_t count;
    if (!cases) SKIP_WITHOUT(folder);
    s24_ctx *ctx;
    s24_tokenizer *t;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    OK(ctx, s24_tokenizer_load(&t, ctx, path));
    assert_int_equal(s24_tokenizer_vocabulary(t), 2002);
    json_array_foreach (json_object_get(cases, "cases"), index, one) {
        const json_t *text = json_object_get(one, "text");
        OK(ctx, s24_tokenizer_encode(tokens, &count, MOST, t, ctx, json_string_value(text),
                                     json_string_length(text), NULL, 0));
        check_tokens(tokens, count, one, json_string_value(text));
    }
    json_array_foreach (json_object_get(cases, "pairs"), index, one) {
        const json_t *a = json_object_get(one, "a"), *b = json_object_get(one, "b");
        OK(ctx, s24_tokenizer_encode(tokens, &count, MOST, t, ctx, json_string_value(a),
                                     json_string_length(a), json_string_value(b),
                                     json_string_length(b)));
        check_tokens(tokens, count, one, json_string_value(a));
    }
    s24_tokenizer_destroy(t);
    s24_ctx_destroy(ctx);
    json_decref(cases);
}

static void from_json(void **state)
{
    (void)state;
    check_file("tokenizer.json");
}

static void from_model(void **state)
{
    (void)state;
    check_file("sentencepiece.bpe.model");
}

/* What becomes two characters before one that goes: the second stands for that one. */
static void vanishing(void **state)
{
    static const char text[] = "a\xe3\x8e\xb8\x16 b\xe2\x92\x98\x0f c";
    static const int32_t begins[] = {0, 0, 0, 2, 3, 4, 5, 5, 6, 7, 0},
                         ends[] = {0, 1, 2, 3, 4, 5, 6, 6, 7, 9, 0};
    s24_token tokens[32];
    char folder[512];
    int64_t count;
    s24_ctx *ctx;
    s24_tokenizer *t;
    (void)state;
    if (!golden_path(folder, sizeof folder, "encoders/unigram-tokenizer")) SKIP_WITHOUT(folder);
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    OK(ctx, s24_tokenizer_load(&t, ctx, folder));
    OK(ctx, s24_tokenizer_encode(tokens, &count, 32, t, ctx, text, sizeof text - 1, NULL, 0));
    assert_int_equal(count, sizeof begins / sizeof *begins);
    for (int64_t i = 0; i < count; i++)
        assert_true(tokens[i].begin == begins[i] && tokens[i].end == ends[i]);
    s24_tokenizer_destroy(t);
    s24_ctx_destroy(ctx);
}

/* A word far longer than what stands on the stack, cut short and whole; ill-formed bytes. */
static void long_words(void **state)
{
    enum { BYTES = 5000 };
    static s24_token tokens[2 * BYTES];
    char folder[512], text[BYTES];
    int64_t all, some;
    s24_ctx *ctx;
    s24_tokenizer *t;
    (void)state;
    if (!golden_path(folder, sizeof folder, "encoders/unigram-tokenizer")) SKIP_WITHOUT(folder);
    for (int i = 0; i < BYTES; i++)
        text[i] = (char)(i % 7 ? 'a' + i % 5 : 0x80 + i % 0x7f);
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    OK(ctx, s24_tokenizer_load(&t, ctx, folder));
    OK(ctx, s24_tokenizer_encode(tokens, &all, 2 * BYTES, t, ctx, text, BYTES, NULL, 0));
    assert_true(all > 100);
    for (int64_t i = 1; i < all - 1; i++)
        assert_true(tokens[i].begin < tokens[i].end &&
                    tokens[i].begin <= tokens[i + 1].begin + BYTES);
    assert_int_equal(tokens[all - 2].end, BYTES);
    OK(ctx, s24_tokenizer_encode(tokens, &some, 50, t, ctx, text, BYTES, NULL, 0));
    assert_int_equal(some, 50);
    s24_tokenizer_destroy(t);
    s24_ctx_destroy(ctx);
}

#define VOCAB "\"vocab\": [[\"<unk>\", 0], [\"\\u2581\", -1.5], [\"a\", -2]], \"unk_id\": 0}}"

static void refusals(void **state)
{
    static const struct {
        const char *json, *sentence;
    } rows[] = {
        {"{\"normalizer\": {\"type\": \"Titlecase\"}, \"model\": {\"type\": \"Unigram\", " VOCAB,
         "the normalizer Titlecase is not supported, only NFC, NFD, NFKC, NFKD, Lowercase, "
         "StripAccents, Replace, Prepend, Strip, Nmt, BertNormalizer, Precompiled and ByteLevel"},
        {"{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA!\"}, "
         "\"model\": {\"type\": \"Unigram\", " VOCAB,
         "precompiled_charsmap is no base64 text"},
        {"{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAEAAAAA\"}, "
         "\"model\": {\"type\": \"Unigram\", " VOCAB,
         "precompiled_charsmap has 6 bytes, of which the first four say 256"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}}",
         "element 0 of model.vocab is no token with a score"},
        {"{\"post_processor\": {\"type\": \"Other\"}, \"model\": {\"type\": "
         "\"Unigram\", " VOCAB,
         "the post_processor Other is not supported"},
    };
    s24_ctx *ctx;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        s24_tokenizer *t;
        const char *path = io_path("tokenizer.json");
        io_write_text(path, rows[i].json);
        const s24_status status = s24_tokenizer_load(&t, ctx, path);
        assert_true(status == S24_ERROR_UNSUPPORTED || status == S24_ERROR_FORMAT);
        if (!strstr(s24_ctx_error(ctx), rows[i].sentence)) fail_msg("%s", s24_ctx_error(ctx));
    }
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_json),  cmocka_unit_test(from_model), cmocka_unit_test(vanishing),
        cmocka_unit_test(long_words), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("nn_unigram", tests, io_folder_setup, io_folder_teardown);
}
