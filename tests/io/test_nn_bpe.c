// SPDX-License-Identifier: Apache-2.0
/*
 * Byte pair encoding: equal to the golden vectors of GPT-2 and Llama; merges, offsets, decoding and
 * added tokens by hand; long words against a plain search.
 */
#include "support.h"

#include <jansson.h>

#include "io/tokenizer/tokenizer.h"
#include "nn_bpe.h"

/* ---- golden ---------------------------------------------------------------------------------- */

static void check_golden(const s24_tokenizer *tokenizer, const char *golden, int skip)
{
    static s24_token tokens[4096];
    static int32_t ids[4096];
    static char text[16384];
    json_t *root = json_load_file(golden, JSON_ALLOW_NUL, NULL), *one;
    size_t i;
    assert_true(json_array_size(json_object_get(root, "cases")) >= 80);
    json_array_foreach (json_object_get(root, "cases"), i, one) {
        json_t *given = json_object_get(one, "text"), *expected = json_object_get(one, "ids");
        int64_t count;
        assert_int_equal(s24_tokenizer_encode(tokens, &count, 4096, tokenizer, ctx,
                                              json_string_value(given), json_string_length(given),
                                              NULL, 0),
                         S24_OK);
        if ((size_t)(count - skip) != json_array_size(expected))
            fail_msg("%lld tokens of \"%s\"", (long long)count, json_string_value(given));
        for (int64_t t = 0; t < count; t++) {
            ids[t] = tokens[t].id;
            if (t >= skip)
                assert_int_equal(ids[t],
                                 json_integer_value(json_array_get(expected, (size_t)(t - skip))));
        }
        /* And back, but that Llama's first blank goes with the one put before it. */
        size_t bytes = sizeof text;
        assert_int_equal(s24_tokenizer_decode(text, &bytes, tokenizer, ctx, ids, count), S24_OK);
        assert_int_equal(bytes, json_string_length(given));
        assert_memory_equal(text, json_string_value(given), bytes);
    }
    json_decref(root);
}

static void link_to(const char *name, const char *data)
{
    char path[512];
    assert_true(data_path(path, sizeof path, data));
    assert_int_equal(symlink(path, io_path(name)), 0);
}

/* OPT's folder: GPT-2's class, RoBERTa's names, and </s> before a text. */
static void test_opt(void **state)
{
    static const struct {
        const char *config, *tokens;
    } rows[] = {
        {"{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_bos_token\":true,\"bos_token\":{"
         "\"content\":\"</s>\"}}",
         "1:0-0 4:0-2"},
        {"{\"tokenizer_class\":\"GPT2TokenizerFast\"}", "4:0-2"},
        {"{\"tokenizer_class\":\"RobertaTokenizer\"}", "0:0-0 4:0-2 1:0-0"},
    };
    (void)state;
    mkdir(io_path("opt"), 0700);
    io_write_text(io_path("opt/vocab.json"), "{\"<s>\":0,\"</s>\":1,\"a\":2,\"b\":3,\"ab\":4}");
    io_write_text(io_path("opt/merges.txt"), "a b\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        io_write_text(io_path("opt/tokenizer_config.json"), rows[i].config);
        s24_tokenizer *tokenizer = load(io_path("opt"));
        assert_string_equal(encode(tokenizer, "ab"), rows[i].tokens);
        s24_tokenizer_destroy(tokenizer);
    }
}

static void test_gpt2(void **state)
{
    char golden[512], data[512];
    (void)state;
    if (!golden_path(golden, sizeof golden, "tokenizers/gpt2.json")) SKIP_WITHOUT(golden);
    if (!data_path(data, sizeof data, "tokenizers/gpt2/encoder.json")) SKIP_WITHOUT(data);
    mkdir(io_path("gpt2"), 0700);
    link_to("gpt2/vocab.json", "tokenizers/gpt2/encoder.json");
    link_to("gpt2/merges.txt", "tokenizers/gpt2/vocab.bpe");
    s24_tokenizer *tokenizer = load(io_path("gpt2"));
    assert_int_equal(s24_tokenizer_vocabulary(tokenizer), 50257);
    check_golden(tokenizer, golden, 0);
    assert_string_equal(encode(tokenizer, " a<|endoftext|>"), "257:0-2 50256:2-15");
    s24_tokenizer_destroy(tokenizer);
}

static void test_llama(void **state)
{
    char golden[512], model[512];
    (void)state;
    if (!golden_path(golden, sizeof golden, "tokenizers/llama.json")) SKIP_WITHOUT(golden);
    if (!data_path(model, sizeof model, "tokenizers/llama/tokenizer.model")) SKIP_WITHOUT(model);
    s24_tokenizer *tokenizer = load(model);
    assert_int_equal(s24_tokenizer_vocabulary(tokenizer), 32000);
    check_golden(tokenizer, golden, 1);
    assert_memory_equal(encode(tokenizer, "x"), "1:0-0 ", 6);
    s24_tokenizer_destroy(tokenizer);
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void test_byte_level(void **state)
{
    static const struct {
        const char *text, *tokens;
    } cases[] = {
        {"", ""},
        {"abc", "8:0-3"},          /* b c goes first, then a bc */
        {"abcabc", "8:0-3 8:3-6"}, /* a bc twice before bc a */
        {"bcab", "7:0-2 6:2-4"},   /* b c, a b: bc a comes too late */
        {"bcac", "15:0-3 2:3-4"},
        {" ab", "11:0-3"},
        {"a b", "0:0-1 3:1-2 1:2-3"},
        {"a  b", "0:0-1 3:1-2 3:2-3 1:3-4"},
        {"a's", "0:0-1 13:1-2 14:2-3"}, /* a token that no merges lead to */
        {"\u00e9b\u00e9", "10:0-1 1:1-2 10:2-3"},
        {"b\xc3", "1:0-1 4:1-2"}, /* half a character is bytes all the same */
        {"a\n\n", "0:0-1 16:1-2 16:2-3"},
        {"a<x>b", "0:0-1 20:1-4 1:4-5"},
        {"a<x><xy>b", "0:0-1 20:1-4 21:4-8 1:8-9"},
    };
    (void)state;
    io_write_text(io_path("bytes.json"),
                  "{" BYTE_LEVEL "," BYTE_MODEL ",\"added_tokens\":["
                  "{\"id\":20,\"content\":\"<x>\",\"special\":true,\"normalized\":true},"
                  "{\"id\":21,\"content\":\"<xy>\"}]}");
    s24_tokenizer *tokenizer = load(io_path("bytes.json"));
    assert_int_equal(s24_tokenizer_vocabulary(tokenizer), 22);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(encode(tokenizer, cases[i].text), cases[i].tokens);
    const int32_t ids[] = {8, 20, 9, 21, 10};
    char text[32];
    size_t bytes = 4;
    assert_int_equal(s24_tokenizer_decode(text, &bytes, tokenizer, ctx, ids, 5), S24_OK);
    assert_int_equal(bytes, 11);
    assert_memory_equal(text, "abc ", 4);
    bytes = sizeof text;
    assert_int_equal(s24_tokenizer_decode(text, &bytes, tokenizer, ctx, ids, 5), S24_OK);
    assert_memory_equal(text, "abc a<xy>\u00e9", 11);
    const int32_t bad[] = {0, 22};
    assert_int_equal(s24_tokenizer_decode(text, &bytes, tokenizer, ctx, bad, 2),
                     S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "ids[1] is 22, 0 to 21");
    s24_token tokens[8];
    int64_t count;
    /* Nothing stands around a text here, nor between two. */
    assert_int_equal(s24_tokenizer_encode(tokens, &count, 8, tokenizer, ctx, "a", 1, "b", 1),
                     S24_OK);
    assert_int_equal(count, 2);
    assert_true(tokens[0].id == 0 && tokens[1].id == 1 && tokens[1].type == 1);
    assert_int_equal(s24_tokenizer_encode(tokens, &count, 2, tokenizer, ctx, "ccc", 3, NULL, 0),
                     S24_OK);
    assert_int_equal(count, 2); /* cut */
    s24_tokenizer_destroy(tokenizer);
}

static void test_trimmed_offsets(void **state)
{
    (void)state;
    io_write_text(io_path("trim.json"),
                  "{" BYTE_LEVEL "," BYTE_MODEL ",\"post_processor\":{\"type\":\"ByteLevel\"}}");
    s24_tokenizer *tokenizer = load(io_path("trim.json"));
    /* As tokenizers 0.23 counts: the text's first blank stays. */
    assert_string_equal(encode(tokenizer, " ab ab"), "11:0-3 11:4-6");
    assert_string_equal(encode(tokenizer, "b  ab"), "1:0-1 3:2-2 11:3-5");
    s24_tokenizer_destroy(tokenizer);
}

static void test_blanks(void **state)
{
    static const struct {
        const char *text, *tokens, *back;
    } cases[] = {
        {"", "1:0-0", ""},
        {"ab", "1:0-0 10:0-2", "ab"},
        {"ab ab", "1:0-0 10:0-2 10:2-5", "ab ab"},
        {" a", "1:0-0 8:0-1 5:1-2", " a"},
        {"a  b", "1:0-0 7:0-1 8:1-3 6:3-4", "a  b"},
        {"b\u00e9", "1:0-0 4:0-1 6:0-1 2:1-2 3:1-2", "b\u00e9"}, /* unknown: its bytes */
        {"a\n", "1:0-0 7:0-1 11:1-2", "a\n"},
        {"\u4e2d\u4e2da", "1:0-0 4:0-1 0:0-2 5:2-3",
         "<unk>a"},                                        /* bytes unknown too: one for both */
        {"a<s>b", "1:0-0 7:0-1 1:1-4 4:4-5 6:4-5", "a b"}, /* each part has its blank */
        {"a" BLANK "b", "1:0-0 7:0-1 4:1-2 6:2-3", "a b"},
    };
    (void)state;
    io_write_text(io_path("llama.json"), "{" LLAMA_NORM "," LLAMA_MODEL "," LLAMA_POST
                                         "," LLAMA_ADDED ",\"pre_tokenizer\":null}");
    s24_tokenizer *tokenizer = load(io_path("llama.json"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_token tokens[32];
        int32_t ids[32];
        int64_t count;
        char text[64];
        size_t bytes = sizeof text;
        assert_string_equal(encode(tokenizer, cases[i].text), cases[i].tokens);
        assert_int_equal(s24_tokenizer_encode(tokens, &count, 32, tokenizer, ctx, cases[i].text,
                                              strlen(cases[i].text), NULL, 0),
                         S24_OK);
        for (int64_t t = 0; t < count; t++)
            ids[t] = tokens[t].id;
        assert_int_equal(s24_tokenizer_decode(text, &bytes, tokenizer, ctx, ids, count), S24_OK);
        assert_int_equal(bytes, strlen(cases[i].back));
        assert_memory_equal(text, cases[i].back, bytes);
    }
    s24_tokenizer_destroy(tokenizer);
    /* Metaspace puts a blank before the text's first part, unless one is there. */
    io_write_text(io_path("meta.json"),
                  "{" LLAMA_MODEL "," LLAMA_ADDED ",\"pre_tokenizer\":{\"type\":\"Metaspace\","
                  "\"prepend_scheme\":\"first\",\"split\":false}}");
    tokenizer = load(io_path("meta.json"));
    assert_string_equal(encode(tokenizer, "ab<s>ab"), "10:0-2 1:2-5 9:5-7");
    assert_string_equal(encode(tokenizer, " ab"), "10:0-3");
    s24_tokenizer_destroy(tokenizer);
}

/* ---- patterns -------------------------------------------------------------------------------- */

static void test_patterns(void **state)
{
    /* Words as the regular expressions cut them, between bars. */
    static const struct {
        const char *gpt2, *llama3;
    } cases[] = {
        {"don|'t| they|'re|'|x", "don|'t| they|'re|'x"},
        {"DON|'|T", "DON|'T"},
        {"a|  | b| \u00e9t\u00e9", "a|  | b| \u00e9t\u00e9"},
        {"12345|x| 678", "123|45|x| |678"},
        {"(|hi|)!!| ...|\n\n|\n|x", "(hi|)!!| ...\n\n\n|x"},
        {" \u2003|\u00a0|x| \u00bd\u2167", " \u2003|\u00a0x| |\u00bd\u2167"},
        {"a| \u0301|b|   ", "a| \u0301|b|   "},
        {"\r\n | y", "\r\n| y"},
        {"_|x", "_x"},
    };
    s24i_split *splits[] = {
        s24i_split_gpt2,
        s24i_split_find("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")};
    (void)state;
    assert_null(s24i_split_find("\\w+"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int s = 0; s < 2; s++) {
            const char *expected = s ? cases[i].llama3 : cases[i].gpt2;
            char text[64], got[64];
            size_t bytes = 0, length = 0;
            for (const char *p = expected; *p; p++)
                if (*p != '|') text[bytes++] = *p;
            for (size_t at = 0; at < bytes;) {
                const size_t step = splits[s](text + at, bytes - at);
                assert_true(step > 0 && step <= bytes - at);
                if (at) got[length++] = '|';
                memcpy(got + length, text + at, step);
                length += step;
                at += step;
            }
            got[length] = '\0';
            assert_string_equal(got, expected);
        }
    }
}

#define PRE(parts) "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" parts "]}"
#define DIGITS     "{\"type\":\"Digits\",\"individual_digits\":true}"
#define LEVEL      "{\"type\":\"ByteLevel\",\"add_prefix_space\":false"

/* SmolLM's way: digits stand alone, and the pattern sees what is between them. */
static void test_digits(void **state)
{
    (void)state;
    io_write_text(io_path("digits.json"), "{" PRE(DIGITS "," LEVEL "}") "," BYTE_MODEL "}");
    s24_tokenizer *tokenizer = load(io_path("digits.json"));
    /* Before a digit all blanks are one word: no pattern keeps the last one for it. */
    assert_string_equal(encode(tokenizer, "a  1ab"), "0:0-1 3:1-2 3:2-3 6:4-6");
    assert_string_equal(encode(tokenizer, " ab\u0663 ab"), "11:0-3 11:4-7");
    s24_tokenizer_destroy(tokenizer);
}

/* Qwen's way: form C first, with the offsets of what was there. */
static void test_form_c(void **state)
{
    static const struct {
        const char *text, *tokens;
    } cases[] = {
        {"\u00e9a", "10:0-1 0:1-2"},
        {"e\u0301a", "10:0-1 0:2-3"},
        {"ae\u0301<x>e\u0301", "0:0-1 10:1-2 20:3-6 10:6-7"},
        {"a\xff\u00e9", "0:0-1 10:2-3"}, /* what is not UTF-8 stays */
        {"e\u0301\xe4\xb8 b", "10:0-1 3:3-4 1:4-5"},
    };
    (void)state;
    io_write_text(
        io_path("nfc.json"),
        "{\"normalizer\":{\"type\":\"NFC\"}," PRE(
            LEVEL ",\"use_regex\":true}") "," BYTE_MODEL
                                          ",\"added_tokens\":[{\"id\":20,\"content\":\"<x>\"}]}");
    s24_tokenizer *tokenizer = load(io_path("nfc.json"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(encode(tokenizer, cases[i].text), cases[i].tokens);
    s24_tokenizer_destroy(tokenizer);
    /* A text that ends in a blank which is trimmed away. */
    io_write_text(io_path("trimmed.json"),
                  "{\"normalizer\":{\"type\":\"NFC\"}," BYTE_LEVEL "," BYTE_MODEL
                  ",\"post_processor\":{\"type\":\"ByteLevel\",\"trim_offsets\":true}}");
    tokenizer = load(io_path("trimmed.json"));
    assert_string_equal(encode(tokenizer, "e\u0301 "), "10:0-1 3:3-3");
    s24_tokenizer_destroy(tokenizer);
    /* Marks in an order that is not canonical, of which there is no end. */
    static char marks[2 * 20000];
    static s24_token tokens[16];
    int64_t count;
    for (size_t i = 0; i < sizeof marks; i += 2)
        memcpy(marks + i, i % 4 ? "\xcc\x81" : "\xcc\xa3", 2);
    tokenizer = load(io_path("nfc.json"));
    assert_int_equal(
        s24_tokenizer_encode(tokens, &count, 16, tokenizer, ctx, marks, sizeof marks, NULL, 0),
        S24_OK);
    s24_tokenizer_destroy(tokenizer);
}

/* Added tokens that take the white space before or after them. */
static void test_added_blanks(void **state)
{
    (void)state;
    io_write_text(io_path("added.json"),
                  "{" BYTE_LEVEL "," BYTE_MODEL ",\"added_tokens\":["
                  "{\"id\":20,\"content\":\"<l>\",\"lstrip\":true},"
                  "{\"id\":21,\"content\":\"<r>\",\"rstrip\":true,\"special\":true}]}");
    s24_tokenizer *tokenizer = load(io_path("added.json"));
    assert_string_equal(encode(tokenizer, "a \n\u2003<l> a"), "0:0-1 20:1-7 9:7-9");
    assert_string_equal(encode(tokenizer, "a <r>\u3000 ab"), "0:0-1 3:1-2 21:2-7 6:7-9");
    assert_string_equal(encode(tokenizer, "<r>  <l><l>"), "21:0-5 20:5-8 20:8-11");
    s24_tokenizer_destroy(tokenizer);
}

/* ---- long words ------------------------------------------------------------------------------ */

/* Merges by looking through the whole word each time. */
static size_t plain(const s24i_bpe *bpe, int32_t *ids, size_t n)
{
    for (;;) {
        const s24i_merge *best = NULL;
        size_t place = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const s24i_merge *m = s24i_merge_find(bpe, ids[i], ids[i + 1]);
            if (!m || (best && m->rank >= best->rank)) continue;
            best = m;
            place = i;
        }
        if (!best) return n;
        ids[place] = best->into;
        memmove(ids + place + 1, ids + place + 2, (n - place - 2) * sizeof *ids);
        n--;
    }
}

static void test_long_words(void **state)
{
    enum { MOST = 600 };
    static s24_token tokens[MOST];
    uint64_t random = 11;
    (void)state;
    io_write_text(io_path("long.json"), "{" BYTE_LEVEL "," BYTE_MODEL "}");
    s24_tokenizer *tokenizer = load(io_path("long.json"));
    for (int round = 0; round < 60; round++) {
        char text[MOST];
        int32_t ids[MOST];
        int64_t count;
        size_t n = (size_t)(150 + test_random(&random) % 400), at = 0;
        for (size_t i = 0; i < n; i++) {
            text[i] = (char)('a' + test_random(&random) % 3);
            ids[i] = text[i] - 'a';
        }
        assert_int_equal(
            s24_tokenizer_encode(tokens, &count, MOST, tokenizer, ctx, text, n, NULL, 0), S24_OK);
        assert_int_equal(count, plain(&tokenizer->bpe, ids, n));
        for (int64_t t = 0; t < count; t++) {
            assert_int_equal(tokens[t].id, ids[t]);
            assert_int_equal(tokens[t].begin, at);
            at = (size_t)tokens[t].end;
        }
        assert_int_equal(at, n);
    }
    s24_tokenizer_destroy(tokenizer);
}

/* ---- characters ------------------------------------------------------------------------------ */

static void test_characters(void **state)
{
    const s24_text texts[] = {{"hello\n", 6}, {"\u00e9b \u4e2d", 7}};
    (void)state;
    assert_int_equal(s24_tokenizer_write_characters(ctx, io_path("chars.json"), texts, 2), S24_OK);
    assert_int_equal(s24_tokenizer_write_characters(ctx, io_path("chars.json"), texts, 2),
                     S24_ERROR_EXISTS);
    s24_tokenizer *tokenizer = load(io_path("chars.json"));
    /* \n, blank, b, e, h, l, o, é, 中 */
    assert_int_equal(s24_tokenizer_vocabulary(tokenizer), 9);
    assert_string_equal(encode(tokenizer, "ho \u4e2dx\n"), "4:0-1 6:1-2 1:2-3 8:3-4 0:5-6");
    const int32_t ids[] = {4, 7, 0, 8, 1};
    char text[16];
    size_t bytes = sizeof text;
    assert_int_equal(s24_tokenizer_decode(text, &bytes, tokenizer, ctx, ids, 5), S24_OK);
    assert_memory_equal(text, "h\u00e9\n\u4e2d ", 8);
    s24_tokenizer_destroy(tokenizer);
    const s24_text bad[] = {{"a", 1}, {"b\xff", 2}, {"", 0}, {"c\0", 2}};
    assert_int_equal(s24_tokenizer_write_characters(ctx, io_path("no.json"), bad, 2),
                     S24_ERROR_FORMAT);
    assert_sentence(ctx, "texts[1] has what is not UTF-8 at byte 1");
    assert_int_equal(s24_tokenizer_write_characters(ctx, io_path("no.json"), bad + 2, 1),
                     S24_ERROR_ARGUMENT);
    assert_int_equal(s24_tokenizer_write_characters(ctx, io_path("no.json"), bad + 3, 1),
                     S24_ERROR_FORMAT);
    assert_sentence(ctx, "texts[0] has U+0000");
    assert_int_equal(access(io_path("no.json"), F_OK), -1);
}

static s24_status load_all(s24_ctx *failing_ctx)
{
    static const char *const names[] = {"bytes.json", "llama.json", "nfc.json"};
    char text[400];
    s24_token tokens[400];
    int64_t count;
    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 2, "\u0301", 2);
    for (int i = 0; i < 3; i++) {
        s24_tokenizer *tokenizer;
        s24_status status = s24_tokenizer_load(&tokenizer, failing_ctx, io_path(names[i]));
        if (status != S24_OK) return status;
        status = s24_tokenizer_encode(tokens, &count, 400, tokenizer, failing_ctx, text,
                                      sizeof text, NULL, 0);
        s24_tokenizer_destroy(tokenizer);
        if (status != S24_OK) return status;
    }
    return S24_OK;
}

static void test_memory(void **state)
{
    (void)state;
    assert_true(count_failures(load_all) >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),         cmocka_unit_test(test_opt),
        cmocka_unit_test(test_llama),        cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_digits),       cmocka_unit_test(test_form_c),
        cmocka_unit_test(test_added_blanks), cmocka_unit_test(test_trimmed_offsets),
        cmocka_unit_test(test_blanks),       cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_long_words),   cmocka_unit_test(test_characters),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, ctx_folder_setup, ctx_folder_teardown);
}
