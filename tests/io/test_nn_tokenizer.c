// SPDX-License-Identifier: Apache-2.0
/*
 * Tokenizers: equal to the Hugging Face library on its golden vectors; on a vocabulary small enough
 * to follow by hand; and every malformed folder refused with a sentence.
 */
#include "support.h"

#include <jansson.h>

#include "io/tokenizer/tokenizer.h"
#include "nn_ctx.h"

/* The vocabulary of the tests below: a token's id is its line. */
static const char *const words[] = {"[PAD]",  "[UNK]",  "[CLS]",    "[SEP]", "[MASK]", "un",
                                    "##aff",  "##able", "a",        "able",  "cafe",   "##s",
                                    ",",      "\u4e2d", "i",        "##b",   "##c",    "\u03c3",
                                    "straße", "Ab",     "caf\u00e9"};
enum { WORDS = sizeof words / sizeof *words, PAD = 0, UNK, CLS, SEP, MASK };

static void write_vocab(const char *name)
{
    char text[512] = "";
    for (int i = 0; i < WORDS; i++) {
        strcat(text, words[i]);
        strcat(text, i % 2 ? "\r\n" : "\n"); /* both ends of lines are taken */
    }
    io_write_text(io_path(name), text);
}

static s24_tokenizer *load(const char *path)
{
    s24_tokenizer *tokenizer;
    if (s24_tokenizer_load(&tokenizer, ctx, path) != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    return tokenizer;
}

/* Ids of a text as "2 5 6 3"; offsets as "0-2 2-5 …" without those of [CLS] and [SEP]. */
static const char *encode(const s24_tokenizer *tokenizer, const char *text, size_t bytes,
                          int offsets)
{
    static char out[4096];
    s24_token tokens[256];
    int64_t count;
    size_t length = 0;
    if (s24_tokenizer_encode(tokens, &count, 256, tokenizer, ctx, text, bytes, NULL, 0) != S24_OK)
        fail_msg("%s", s24_ctx_error(ctx));
    assert_int_equal(tokens[0].id, CLS);
    assert_int_equal(tokens[count - 1].id, SEP);
    assert_true(tokens[count - 1].begin == 0 && tokens[count - 1].end == 0);
    *out = '\0';
    for (int64_t i = 1; i < count - 1; i++) {
        const char *blank = i > 1 ? " " : "";
        length += (size_t)(offsets ? sprintf(out + length, "%s%d-%d", blank, tokens[i].begin,
                                             tokens[i].end)
                                   : sprintf(out + length, "%s%d", blank, tokens[i].id));
        assert_int_equal(tokens[i].type, 0);
    }
    return out;
}

/* ---- golden ---------------------------------------------------------------------------------- */

static void check_case(const s24_tokenizer *tokenizer, const s24_lines *vocab, json_t *one)
{
    s24_token tokens[1024];
    int64_t count;
    json_t *text = json_object_get(one, "text"), *ids = json_object_get(one, "ids");
    json_t *names = json_object_get(one, "tokens"), *offsets = json_object_get(one, "offsets");
    const s24_text *lines = s24_lines_texts(vocab);
    assert_int_equal(s24_tokenizer_encode(tokens, &count, 1024, tokenizer, ctx,
                                          json_string_value(text), json_string_length(text), NULL,
                                          0),
                     S24_OK);
    if ((size_t)count != json_array_size(ids))
        fail_msg("%lld tokens of \"%s\"", (long long)count, json_string_value(text));
    for (size_t i = 0; i < (size_t)count; i++) {
        json_t *offset = json_array_get(offsets, i);
        const char *name = json_string_value(json_array_get(names, i));
        assert_int_equal(tokens[i].id, json_integer_value(json_array_get(ids, i)));
        assert_int_equal(tokens[i].begin, json_integer_value(json_array_get(offset, 0)));
        assert_int_equal(tokens[i].end, json_integer_value(json_array_get(offset, 1)));
        assert_int_equal(strlen(name), lines[tokens[i].id].bytes);
        assert_memory_equal(name, lines[tokens[i].id].data, strlen(name));
    }
}

static void test_golden(void **state)
{
    char golden[512], folder[512], vocab_path[512];
    (void)state;
    if (!golden_path(golden, sizeof golden, "tokenizers/bert.json")) SKIP_WITHOUT(golden);
    if (!data_path(folder, sizeof folder, "tokenizers/bert-base-uncased")) SKIP_WITHOUT(folder);
    assert_true(data_path(vocab_path, sizeof vocab_path, "tokenizers/bert-base-uncased/vocab.txt"));
    s24_lines *vocab;
    assert_int_equal(s24_lines_read(&vocab, ctx, vocab_path), S24_OK);
    assert_int_equal(s24_lines_count(vocab), 30522);
    json_t *root = json_load_file(golden, JSON_ALLOW_NUL, NULL), *one;
    const char *paths[] = {folder, vocab_path};
    size_t i;
    for (int p = 0; p < 2; p++) {
        s24_tokenizer *tokenizer = load(paths[p]);
        assert_int_equal(s24_tokenizer_vocabulary(tokenizer), 30522);
        assert_true(json_array_size(json_object_get(root, "cases")) >= 80);
        json_array_foreach (json_object_get(root, "cases"), i, one) {
            check_case(tokenizer, vocab, one);
        }
        s24_tokenizer_destroy(tokenizer);
    }
    json_decref(root);
    s24_lines_destroy(vocab);
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void test_words(void **state)
{
    /* Ids and offsets are those of tokenizers 0.23 with this vocabulary. */
    static const struct {
        const char *text, *ids, *offsets;
    } cases[] = {
        {"", "", ""},
        {"unaffable", "5 6 7", "0-2 2-5 5-9"},
        {"UNAFFABLE", "5 6 7", "0-2 2-5 5-9"},
        {"able,able", "9 12 9", "0-4 4-5 5-9"},
        {"unaffabl", "1", "0-8"},                         /* fails at its last piece */
        {" \t\r\n a \u00a0\u2003 a", "8 8", "5-6 10-11"}, /* white space of all kinds */
        {"a\001b\u200bc", "8 15 16", "0-1 2-3 4-5"},      /* control and format drop */
        {"Caf\u00e9s", "10 11", "0-4 4-5"},               /* composed */
        {"Cafe\u0301s", "10 11", "0-4 5-6"},              /* with a mark of its own */
        {"a\u4e2db", "8 13 1", "0-1 1-2 2-3"},            /* an ideograph is a word */
        {"\u0130", "14", "0-1"},                          /* İ: i and a mark */
        {"\u03a3\u03c3", "1", "0-2"},                     /* no final sigma */
        {"\u03a3", "17", "0-1"},
        {"\u037ea", "1 8", "0-1 1-2"}, /* decomposes to ';', which splits */
        {"a\ua8ff", "1", "0-2"},       /* a mark of Unicode 11 is kept */
        {"a\u0e31", "8", "0-1"},       /* one of Unicode 1 is not */
        {"[MASK]a[SEP] [MAS", "4 8 3 1 1", "0-6 6-7 7-12 13-14 14-17"},
        {"un[MASK]aff", "5 4 1", "0-2 2-8 8-11"},
        {"[[MASK]]", "1 4 1", "0-1 1-7 7-8"},
    };
    (void)state;
    s24_tokenizer *tokenizer = load(io_path("vocab.txt"));
    assert_int_equal(s24_tokenizer_vocabulary(tokenizer), WORDS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t bytes = strlen(cases[i].text);
        assert_string_equal(encode(tokenizer, cases[i].text, bytes, 0), cases[i].ids);
        assert_string_equal(encode(tokenizer, cases[i].text, bytes, 1), cases[i].offsets);
    }
    s24_tokenizer_destroy(tokenizer);
}

static void test_bytes(void **state)
{
    /* What is not UTF-8 counts as U+FFFD, one for each maximal part, and is cleaned away. */
    static const struct {
        const char *text;
        size_t bytes;
        const char *offsets;
    } cases[] = {
        {"a\xff"
         "a",
         3, "0-3"}, /* one word */
        {"\xe4\xb8"
         "a",
         3, "1-2"},                       /* a cut sequence is one */
        {"\xed\xa0\x80,", 4, "3-4"},      /* a surrogate is three */
        {"\xf0\x9f\x98", 3, ""},          /* ends in the middle */
        {"\xc0\xaf,", 3, "2-3"},          /* overlong */
        {"\xf4\x90\x80\x80,", 5, "4-5"},  /* above U+10FFFF */
        {"a\0,", 3, "0-1 2-3"},           /* needs no terminator, and NUL drops */
        {"a\xef\xbf\xbd,", 5, "0-1 2-3"}, /* U+FFFD itself */
    };
    (void)state;
    s24_tokenizer *tokenizer = load(io_path("vocab.txt"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *copy = malloc(cases[i].bytes); /* of this size, so that an over-read is seen */
        memcpy(copy, cases[i].text, cases[i].bytes);
        const char *offsets = encode(tokenizer, copy, cases[i].bytes, 1);
        assert_string_equal(offsets, cases[i].offsets);
        free(copy);
    }
    s24_tokenizer_destroy(tokenizer);
}

static void test_long_words(void **state)
{
    char text[801];
    (void)state;
    s24_tokenizer *tokenizer = load(io_path("vocab.txt"));
    /* 100 characters are looked up, 101 are one unknown token, whatever their bytes. */
    memset(text, 'b', 800);
    text[0] = 'a';
    assert_memory_equal(encode(tokenizer, text, 100, 0), "8 15 15 15", 10);
    assert_string_equal(encode(tokenizer, text, 101, 0), "1");
    assert_string_equal(encode(tokenizer, text, 101, 1), "0-101");
    assert_string_equal(encode(tokenizer, text, 800, 1), "0-800");
    /* Marks that wait for their order are more than there is room for. */
    for (int i = 0; i < 800; i += 2)
        memcpy(text + i, "\u0301", 2);
    memcpy(text + 798, ",a", 2);
    assert_string_equal(encode(tokenizer, text, 800, 1), "399-400 400-401");
    s24_tokenizer_destroy(tokenizer);
}

static void test_options(void **state)
{
    (void)state;
    mkdir(io_path("cased"), 0700);
    write_vocab("cased/vocab.txt");
    io_write_text(io_path("cased/tokenizer_config.json"),
                  "{\"do_lower_case\": false, \"tokenize_chinese_chars\": false}");
    s24_tokenizer *tokenizer = load(io_path("cased"));
    const char *text = "Ab ab caf\u00e9 \u4e2da";
    assert_string_equal(encode(tokenizer, text, strlen(text), 0), "19 8 15 20 1");
    s24_tokenizer_destroy(tokenizer);
    io_write_text(io_path("cased/tokenizer_config.json"),
                  "{\"do_lower_case\": false, \"strip_accents\": true}");
    tokenizer = load(io_path("cased/vocab.txt"));
    assert_string_equal(encode(tokenizer, text, strlen(text), 0), "19 8 15 10 13 8");
    s24_tokenizer_destroy(tokenizer);
    io_write_text(io_path("cased/tokenizer_config.json"),
                  "{\"do_lower_case\": true, \"strip_accents\": false}");
    tokenizer = load(io_path("cased"));
    assert_string_equal(encode(tokenizer, text, strlen(text), 0), "8 15 8 15 20 13 8");
    s24_tokenizer_destroy(tokenizer);
}

static void test_duplicates_in_vocab(void **state)
{
    (void)state;
    io_write_text(io_path("twice.txt"), "[UNK]\na\n[CLS]\n[SEP]\na\n\nb");
    s24_tokenizer *tokenizer = load(io_path("twice.txt"));
    assert_string_equal(encode(tokenizer, "a b c", 5, 0), "4 6 0");
    assert_int_equal(s24_tokenizer_vocabulary(tokenizer), 7);
    s24_tokenizer_destroy(tokenizer);
}

/* ---- cutting --------------------------------------------------------------------------------- */

static void test_cut(void **state)
{
    /* How many of two texts' tokens stay: tokenizers 0.23, truncation longest_first. */
    static const struct {
        int first, second, max, kept[2];
    } cases[] = {{3, 4, 10, {3, 4}}, {3, 4, 9, {3, 3}}, {3, 4, 8, {2, 3}}, {4, 3, 8, {3, 2}},
                 {9, 1, 8, {4, 1}},  {1, 9, 8, {1, 4}}, {9, 9, 8, {2, 3}}, {9, 7, 8, {3, 2}},
                 {5, 5, 3, {0, 0}},  {5, 5, 4, {0, 1}}, {0, 9, 6, {0, 3}}, {0, 0, 3, {0, 0}}};
    char text[32];
    s24_token tokens[16];
    int64_t count;
    (void)state;
    s24_tokenizer *tokenizer = load(io_path("vocab.txt"));
    for (int i = 0; i < 16; i++)
        memcpy(text + 2 * i, "a ", 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int seen[2] = {0, 0}, ends = 0;
        assert_int_equal(s24_tokenizer_encode(tokens, &count, cases[i].max, tokenizer, ctx, text,
                                              (size_t)cases[i].first * 2, text,
                                              (size_t)cases[i].second * 2),
                         S24_OK);
        assert_true(count <= cases[i].max);
        for (int64_t t = 1; t < count; t++) {
            if (tokens[t].id == SEP)
                assert_int_equal(tokens[t].type, ends++);
            else
                seen[tokens[t].type]++;
        }
        assert_int_equal(ends, 2);
        assert_int_equal(seen[0], cases[i].kept[0]);
        assert_int_equal(seen[1], cases[i].kept[1]);
    }
    assert_int_equal(
        s24_tokenizer_encode(tokens, &count, 5, tokenizer, ctx, "a unaffable", 11, NULL, 0),
        S24_OK);
    const int32_t cut[] = {CLS, 8, 5, 6, SEP};
    assert_int_equal(count, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(tokens[i].id, cut[i]);
    s24_tokenizer_destroy(tokenizer);
}

static void test_arguments(void **state)
{
    s24_token tokens[4];
    int64_t count;
    (void)state;
    s24_tokenizer *tokenizer = load(io_path("vocab.txt"));
    assert_int_equal(s24_tokenizer_encode(tokens, &count, 1, tokenizer, ctx, "a", 1, NULL, 0),
                     S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "max_tokens is 1, at least 2");
    assert_int_equal(s24_tokenizer_encode(tokens, &count, 2, tokenizer, ctx, "a", 1, "b", 1),
                     S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "max_tokens is 2, at least 3");
    assert_int_equal(s24_tokenizer_encode(tokens, &count, 4, tokenizer, ctx, NULL, 1, NULL, 0),
                     S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "text is NULL");
    assert_int_equal(
        s24_tokenizer_encode(tokens, &count, 4, tokenizer, ctx, "a", (size_t)1 << 31, NULL, 0),
        S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "2147483648 bytes");
    s24_tokenizer_destroy(tokenizer);
    s24_tokenizer_destroy(NULL);
}

/* ---- tokenizer.json -------------------------------------------------------------------------- */

#define VOCAB "\"vocab\":{\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"a\":4,\"##b\":5}"
#define MODEL "\"model\":{\"type\":\"WordPiece\"," VOCAB "}"
#define PRE   "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"
#define NORM  "\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":true}"

static void test_json(void **state)
{
    (void)state;
    io_write_text(io_path("small.json"),
                  "{" NORM "," PRE "," MODEL ",\"truncation\":{\"max_length\":2},\"padding\":{},"
                  "\"added_tokens\":[{\"id\":9,\"content\":\"<x>\",\"lstrip\":true}]}");
    s24_tokenizer *tokenizer = load(io_path("small.json"));
    assert_int_equal(s24_tokenizer_vocabulary(tokenizer), 10);
    assert_string_equal(encode(tokenizer, "ab <x>Ab c", 10, 0), "4 5 9 4 5 1");
    s24_tokenizer_destroy(tokenizer);
    /* No normaliser, sequences of one, another prefix, other ends. */
    io_write_text(
        io_path("small.json"),
        "{\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"BertPreTokenizer\"}]},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\","
        "\"continuing_subword_prefix\":\"\",\"max_input_chars_per_word\":3,"
        "\"vocab\":{\"?\":0,\"<s>\":2,\"</s>\":3,\"a\":4,\"b\":5}},\"post_processor\":{"
        "\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
        "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"</s>\"}}]}}");
    tokenizer = load(io_path("small.json"));
    assert_string_equal(encode(tokenizer, "aba abab A", 10, 0), "4 5 4 0 0");
    s24_tokenizer_destroy(tokenizer);
    /* A token that is looked for in the normalised text, and two tokens between two texts. */
    io_write_text(io_path("small.json"),
                  "{" NORM "," PRE "," MODEL ",\"post_processor\":{\"type\":\"RobertaProcessing\","
                  "\"sep\":[\"[SEP]\",3],\"cls\":[\"[CLS]\",2]},\"added_tokens\":[{\"id\":9,"
                  "\"content\":\"xY\",\"normalized\":true},{\"id\":8,\"content\":\"Yx\"}]}");
    tokenizer = load(io_path("small.json"));
    assert_string_equal(encode(tokenizer, "a XYab xyyYx", 12, 0), "4 9 4 5 9 1 8");
    s24_token pair[8];
    int64_t count;
    assert_int_equal(s24_tokenizer_encode(pair, &count, 8, tokenizer, ctx, "a", 1, "ab", 2),
                     S24_OK);
    assert_int_equal(count, 7);
    assert_true(pair[2].id == 3 && pair[3].id == 3 && pair[4].id == 4 && pair[5].type == 0);
    s24_tokenizer_destroy(tokenizer);
}

static const struct {
    const char *text;
    s24_status status;
    const char *part;
} refused[] = {
    {"{", S24_ERROR_FORMAT, "JSON is expected"},
    {"[]", S24_ERROR_FORMAT, "\"model\""},
    {"{}", S24_ERROR_FORMAT, "\"model\" is missing"},
    {"{\"model\":{\"type\":\"BPE\"}}", S24_ERROR_FORMAT, "\"vocab\" is missing"},
    {"{\"model\":{\"type\":\"Characters\"}}", S24_ERROR_UNSUPPORTED,
     "only WordPiece, BPE, Unigram and WordLevel"},
    {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}}}", S24_ERROR_FORMAT, "no <unk>"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":[\"a\"]}}", S24_ERROR_FORMAT, "model.vocab"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", S24_ERROR_FORMAT, "model.vocab"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":\"0\"}}}", S24_ERROR_FORMAT,
     "id of \"a\""},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":-1}}}", S24_ERROR_FORMAT, "id of \"a\""},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":16777216}}}", S24_ERROR_FORMAT,
     "0 to 16777215"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":7,\"b\":7}}}", S24_ERROR_FORMAT,
     "the id 7 of \"b\""},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":7,\"a\":8}}}", S24_ERROR_FORMAT,
     "duplicate"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", S24_ERROR_FORMAT, "no [UNK]"},
    {"{\"model\":{\"type\":\"WordPiece\",\"max_input_chars_per_word\":0," VOCAB "}}",
     S24_ERROR_FORMAT, "max_input_chars_per_word"},
    {"{\"model\":{\"type\":\"WordPiece\",\"max_input_chars_per_word\":513," VOCAB "}}",
     S24_ERROR_FORMAT, "1 to 512"},
    {"{" MODEL "," PRE ",\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":1}}",
     S24_ERROR_FORMAT, "\"lowercase\""},
    {"{" MODEL "," PRE "," NORM ",\"post_processor\":{\"type\":\"Other\"}}", S24_ERROR_UNSUPPORTED,
     "post_processor Other"},
    {"{" MODEL "," PRE "," NORM ",\"post_processor\":{\"type\":\"TemplateProcessing\"}}",
     S24_ERROR_FORMAT, "post_processor"},
    {"{" MODEL "," PRE "," NORM ",\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":["
     "\"<s>\",3],\"cls\":[\"[CLS]\",2]}}",
     S24_ERROR_FORMAT, "no <s>"},
    {"{" MODEL "," PRE "," NORM ",\"added_tokens\":[3]}", S24_ERROR_FORMAT, "element 0"},
    {"{" MODEL "," PRE "," NORM ",\"added_tokens\":[{\"id\":0,\"content\":\"\"}]}",
     S24_ERROR_FORMAT, "content is empty"},
    {"{" MODEL "," PRE "," NORM ",\"added_tokens\":[{\"id\":5,\"content\":\"[SEP]\"}]}",
     S24_ERROR_FORMAT, "\"[SEP]\" has the id 5, but 3"},
};

static void test_json_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        s24_tokenizer *tokenizer = (void *)&tokenizer;
        io_write_text(io_path("bad.json"), refused[i].text);
        s24_status status = s24_tokenizer_load(&tokenizer, ctx, io_path("bad.json"));
        if (status != refused[i].status)
            fail_msg("%s: %d %s", refused[i].text, (int)status, s24_ctx_error(ctx));
        assert_null(tokenizer);
        assert_sentence(ctx, "bad.json");
        assert_sentence(ctx, refused[i].part);
    }
}

static void test_vocab_refused(void **state)
{
    static char huge[5000];
    s24_tokenizer *tokenizer;
    memset(huge, 'x', sizeof huge - 1);
    const struct {
        const char *text;
        size_t bytes;
        const char *part;
    } cases[] = {
        {"", 0, "no [UNK]"},
        {"[UNK]\n[CLS]\n", 12, "no [SEP]"},
        {"[UNK]\n[SEP]\n", 12, "no [CLS]"},
        {"[UNK]\na\xff\n", 9, "line 1 is not UTF-8"},
        {"[UNK]\na\0b\n", 10, "line 1 has a NUL"},
        {huge, sizeof huge - 1, "line 0 has 4999 bytes"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        io_write_file(io_path("bad.txt"), cases[i].text, cases[i].bytes);
        assert_int_equal(s24_tokenizer_load(&tokenizer, ctx, io_path("bad.txt")), S24_ERROR_FORMAT);
        assert_sentence(ctx, "bad.txt");
        assert_sentence(ctx, cases[i].part);
    }
    assert_int_equal(s24_tokenizer_load(&tokenizer, ctx, io_path("nowhere")), S24_ERROR_IO);
    assert_sentence(ctx, "nowhere");
    mkdir(io_path("empty"), 0700);
    assert_int_equal(s24_tokenizer_load(&tokenizer, ctx, io_path("empty")), S24_ERROR_IO);
    assert_sentence(ctx, "tokenizer.json or vocab.txt");
    assert_int_equal(s24_tokenizer_load(&tokenizer, ctx, NULL), S24_ERROR_ARGUMENT);
}

static s24_status load_both(s24_ctx *shaky_ctx)
{
    const char *names[] = {"vocab.txt", "added.json"};
    for (int i = 0; i < 2; i++) {
        s24_tokenizer *tokenizer;
        s24_status status = s24_tokenizer_load(&tokenizer, shaky_ctx, io_path(names[i]));
        if (status != S24_OK) return status;
        s24_tokenizer_destroy(tokenizer);
    }
    return S24_OK;
}

static void test_memory(void **state)
{
    (void)state;
    io_write_text(io_path("added.json"),
                  "{" NORM "," PRE "," MODEL ",\"added_tokens\":[{\"id\":9,\"content\":\"<x>\"}]}");
    assert_true(count_failures(load_both) >= 15);
}

static int setup(void **state)
{
    if (ctx_folder_setup(state)) return -1;
    write_vocab("vocab.txt");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),        cmocka_unit_test(test_words),
        cmocka_unit_test(test_bytes),         cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_options),       cmocka_unit_test(test_duplicates_in_vocab),
        cmocka_unit_test(test_cut),           cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_json),          cmocka_unit_test(test_json_refused),
        cmocka_unit_test(test_vocab_refused), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, setup, ctx_folder_teardown);
}
