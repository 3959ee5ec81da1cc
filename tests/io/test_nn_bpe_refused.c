// SPDX-License-Identifier: Apache-2.0
/* Byte pair encoding that is malformed or not carried out: refused, by its place. */
#include "nn_bpe.h"

#include "sparse24/train.h"

/* ---- refusals -------------------------------------------------------------------------------- */

#define V       "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"
#define DIGITS  "{\"type\":\"Digits\",\"individual_digits\":true}"
#define FOUR    DIGITS "," DIGITS "," DIGITS "," DIGITS
#define SIXTEEN FOUR "," FOUR "," FOUR "," FOUR
#define OPEN    "{\"type\":\"Sequence\",\"pretokenizers\":["
#define NINE(x) x x x x x x x x x
#define REGEX(pattern)                                                                             \
    "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":"     \
    "\"" pattern "\"}}," BYTE_MODEL "}"
#define SIXTY_FIVE                                                                                 \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
#define M(more) "{\"model\":{\"type\":\"BPE\"," more "}}"

static void test_refused(void **state)
{
    static const struct {
        const char *text;
        s24_status status;
        const char *part;
    } cases[] = {
        {M(V), S24_ERROR_FORMAT, "\"merges\" is missing"},
        {M(V ",\"merges\":[\"ab\"]"), S24_ERROR_FORMAT, "merge 0, \"ab\", is not two tokens"},
        {M(V ",\"merges\":[\"a b \"]"), S24_ERROR_FORMAT, "is not two tokens"},
        {M(V ",\"merges\":[[\"a\",\"b\"],\"a c\"]"), S24_ERROR_FORMAT,
         "merge 1, \"a\" and \"c\": the vocabulary has no c"},
        {M(V ",\"merges\":[\"b a\"]"), S24_ERROR_FORMAT, "no token of both"},
        {M(V ",\"merges\":[7]"), S24_ERROR_FORMAT, "merge 0 is neither a string"},
        {M(V ",\"merges\":[[\"a\"]]"), S24_ERROR_FORMAT, "merge 0 is neither"},
        {M(V ",\"merges\":[],\"unk_token\":\"?\""), S24_ERROR_FORMAT, "no ?"},
        {M(V ",\"merges\":[],\"dropout\":0.1"), S24_ERROR_UNSUPPORTED, "dropout of a BPE model"},
        {M(V ",\"merges\":[],\"end_of_word_suffix\":\"" SIXTY_FIVE "\""), S24_ERROR_UNSUPPORTED,
         "at most 64 bytes are expected"},
        {"{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," BYTE_MODEL "}", S24_ERROR_UNSUPPORTED,
         "the pre_tokenizer UnicodeScripts is not supported, only BertPreTokenizer, ByteLevel, "
         "CharDelimiterSplit, Digits, Metaspace, Punctuation, Split, Whitespace and "
         "WhitespaceSplit"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"last\"}," LLAMA_MODEL "}",
         S24_ERROR_UNSUPPORTED, "prepend_scheme last"},
        {REGEX("(?<=x)a"), S24_ERROR_UNSUPPORTED,
         "the pattern \"(?<=x)a\" is not supported: a group of that kind, before \"?<=x)a\""},
        {REGEX("a^"), S24_ERROR_UNSUPPORTED, "an anchor"},
        {REGEX("(a"), S24_ERROR_UNSUPPORTED, "a group without an end"},
        {REGEX("a)"), S24_ERROR_UNSUPPORTED, "a ) without a group"},
        {REGEX("(a?)+"), S24_ERROR_UNSUPPORTED, "a repeated group that may be empty"},
        {REGEX("(ab){3,99}"), S24_ERROR_UNSUPPORTED, "a group that is repeated so often"},
        {REGEX("a{2,1}"), S24_ERROR_UNSUPPORTED, "a brace that is no repetition"},
        {REGEX("a{2}?"), S24_ERROR_UNSUPPORTED, "{n}?"},
        {REGEX("[a-z&&[b]]"), S24_ERROR_UNSUPPORTED, "an intersection of classes"},
        {REGEX("[[:alpha:]]"), S24_ERROR_UNSUPPORTED, "POSIX name"},
        {REGEX("[z-a]"), S24_ERROR_UNSUPPORTED, "a range without an end"},
        {REGEX("[a"), S24_ERROR_UNSUPPORTED, "a class without an end"},
        {REGEX("[]"), S24_ERROR_UNSUPPORTED, "an empty class"},
        {REGEX("\\\\p{Han}"), S24_ERROR_UNSUPPORTED, "no general category"},
        {REGEX("\\\\b"), S24_ERROR_UNSUPPORTED, "an escape that is not known"},
        {REGEX("\\\\x{110000}"), S24_ERROR_UNSUPPORTED, "a code point that is none"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Apart\",\"pattern\":{\"String\":"
         "\"x\"}}," BYTE_MODEL "}",
         S24_ERROR_FORMAT, "the behavior of a pre_tokenizer is \"Apart\""},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{}}"
         "," BYTE_MODEL "}",
         S24_ERROR_FORMAT, "a pattern without String or Regex"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{}}," BYTE_MODEL "}",
         S24_ERROR_FORMAT, "a pattern without String or Regex"},
        {"{\"normalizer\":{\"type\":\"Titlecase\"}," BYTE_MODEL "}", S24_ERROR_UNSUPPORTED,
         "the normalizer Titlecase is not supported, only NFC, NFD"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" SIXTEEN "," SIXTEEN
         "," DIGITS "]}," BYTE_MODEL "}",
         S24_ERROR_UNSUPPORTED, "more than 32 steps together"},
        {"{\"pre_tokenizer\":" NINE(OPEN) NINE("]}") "," BYTE_MODEL "}", S24_ERROR_UNSUPPORTED,
         "more than 8 Sequences in one another"},
        {"{" BYTE_LEVEL "," BYTE_MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\","
         "\"single\":[]}}",
         S24_ERROR_FORMAT, "the template of post_processor"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_tokenizer *tokenizer = (void *)&tokenizer;
        io_write_text(io_path("bad.json"), cases[i].text);
        const s24_status status = s24_tokenizer_load(&tokenizer, ctx, io_path("bad.json"));
        if (status != cases[i].status)
            fail_msg("%s: %d %s", cases[i].text, (int)status, s24_ctx_error(ctx));
        assert_null(tokenizer);
        assert_sentence(ctx, "bad.json");
        assert_sentence(ctx, cases[i].part);
    }
}

/* Pieces of SentencePiece: text, score as a float's bytes, type. */
#define PIECE(bytes, text, score, type) "\x0a" bytes text "\x15\x00\x00" score "\x18" type
#define BPE_SPEC                        "\x12\x02\x18\x02"
#define NORM_SPEC                       "\x1a\x02\x20\x00"

static void test_sentencepiece(void **state)
{
    static const struct {
        const char *bytes;
        size_t count;
        s24_status status;
        const char *part;
    } cases[] = {
        {"", 0, S24_ERROR_FORMAT, "malformed"},
        {"\x0a\x05x", 3, S24_ERROR_FORMAT, "malformed"},
        {"\x0a\x00", 2, S24_ERROR_FORMAT, "piece 0 is no text"},
        {"\x0a\x03\x0a\x01\xff", 5, S24_ERROR_FORMAT, "piece 0 is no text"},
        {"\x0a\x03\x0a\x01"
         "a",
         5, S24_ERROR_UNSUPPORTED, "kind 1 is not supported, only 2"},
        {"\x0a\x03\x0a\x01"
         "a" BPE_SPEC,
         9, S24_ERROR_UNSUPPORTED, "drops white space"},
        {"\x0a\x03\x0a\x01"
         "a" BPE_SPEC "\x1a\x03\x12\x01x",
         14, S24_ERROR_UNSUPPORTED, "replaces characters"},
        {"\x0a\x03\x0a\x01"
         "a\x0a\x03\x0a\x01"
         "a" BPE_SPEC NORM_SPEC,
         18, S24_ERROR_FORMAT, "piece 1 stands there twice"},
        {"\x0a\x03\x0a\x01"
         "a" BPE_SPEC NORM_SPEC,
         13, S24_ERROR_FORMAT, "no <s>"},
    };
    (void)state;
    mkdir(io_path("sp"), 0700);
    const char *path = io_path("sp/tokenizer.model");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_tokenizer *tokenizer = (void *)&tokenizer;
        io_write_file(path, cases[i].bytes, cases[i].count);
        const s24_status status = s24_tokenizer_load(&tokenizer, ctx, path);
        if (status != cases[i].status)
            fail_msg("case %zu: %d %s", i, (int)status, s24_ctx_error(ctx));
        assert_null(tokenizer);
        assert_sentence(ctx, "tokenizer.model");
        assert_sentence(ctx, cases[i].part);
    }
    /* a, b and ▁ alone; "ab" is better than "▁a". */
    static const char model[] = "\x0a\x0a" PIECE("\x01", "a", "\x00\x00", "\x01") // 0
        "\x0a\x0a" PIECE("\x01", "b", "\x00\x00", "\x01")                         // 1
        "\x0a\x0c" PIECE("\x03", BLANK, "\x00\x00", "\x01")                       // 2
        "\x0a\x0d" PIECE("\x04", BLANK "a", "\x80\xc0", "\x01")                   // 3
        "\x0a\x0b" PIECE("\x02", "ab", "\x80\xbf", "\x01")                        // 4
        "\x0a\x0e" PIECE("\x05", "<unk>", "\x00\x00", "\x02") BPE_SPEC NORM_SPEC; // 5
    io_write_file(path, model, sizeof model - 1);
    io_write_text(io_path("sp/tokenizer_config.json"), "{\"add_bos_token\": false}");
    s24_tokenizer *tokenizer = load(io_path("sp"));
    assert_string_equal(encode(tokenizer, "ab a?"), "2:0-1 4:0-2 3:2-4 5:4-5");
    s24_tokenizer_destroy(tokenizer);
}

static s24_status load_model(s24_ctx *failing_ctx)
{
    s24_tokenizer *tokenizer = NULL;
    const s24_status status = s24_tokenizer_load(&tokenizer, failing_ctx, io_path("sp"));
    s24_tokenizer_destroy(tokenizer);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    assert_true(count_failures(load_model) >= 8);
}

/* A word of more symbols than the stack holds takes memory while texts are tokenized. */
static s24_status make_source(s24_ctx *failing_ctx)
{
    char word[1000];
    s24_text_source *source;
    for (size_t i = 0; i < sizeof word; i++)
        word[i] = "abc"[i % 3 * (i % 7 > 0)];
    const s24_text text = {word, sizeof word};
    const s24_status status =
        s24_text_source_create(&source, failing_ctx, io_path("words"), &text, 1, 2000, 1);
    if (status != S24_OK) return status;
    const s24_train_source *made = s24_text_source_get(source);
    assert_int_equal(made->count, 1);
    assert_in_range(made->lengths[0], 250, 1000);
    s24_text_source_destroy(source);
    return S24_OK;
}

static void test_texts_without_memory(void **state)
{
    (void)state;
    mkdir(io_path("words"), 0700);
    io_write_text(io_path("words/tokenizer.json"), "{" BYTE_LEVEL "," BYTE_MODEL "}");
    assert_true(count_failures(make_source) >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_texts_without_memory),
    };
    return cmocka_run_group_tests(tests, ctx_folder_setup, ctx_folder_teardown);
}
