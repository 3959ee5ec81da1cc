// SPDX-License-Identifier: Apache-2.0
/* Tokenizers that run as a chain of steps: what each normaliser, pre-tokenizer and added token
   does, with the ids and offsets of Hugging Face's tokenizers 0.23. */
#include "nn_bpe.h"

#define FILE_NAME "chain.json"

#define SEQ(key, parts) "\"" key "\":{\"type\":\"Sequence\",\"" key "s\":[" parts "]}"
#define NORM1(part)     "\"normalizer\":{\"type\":\"" part "\"}"
#define SPLITS(parts)   "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" parts "]}"
#define WORDS           "\"pre_tokenizer\":{\"type\":\"Whitespace\"}"
#define LEVEL                                                                                      \
    "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,"    \
    "\"ab\":3,\",\":4,\"\u00e9\":5,\"e\":6,\"fi\":7,\"\u4e2d\":8,\"\u2581a\":9,\"\u2581\":10,"     \
    "\"12\":11,\"1\":12,\"2\":13}}"
#define COMMAS(behaviour)                                                                          \
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\",\"},\"behavior\":"           \
    "\"" behaviour "\",\"invert\":false}," LEVEL
#define SUFFIXED                                                                                   \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{"  \
    "\"?\":0,\"a\":1,\"b\":2,\"a</w>\":3,\"b</w>\":4,\"ab</w>\":5},\"merges\":[\"a b</w>\"]}"
#define PREFIXED                                                                                   \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},\"post_processor\":{"    \
    "\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true},\"model\":{\"type\":" \
    "\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"\u0120\":2,\"\u0120a\":3,\"\u00c3\":4,\"\u00a9\":5},"    \
    "\"merges\":[\"\u0120 a\"]}"
#define BERT                                                                                       \
    "\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":"                    \
    "\"BertPreTokenizer\"}"
#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":3,\"content\":\"ab\",\"single_word\":true},{\"id\":14,\"content\":" \
    "\"A B\",\"normalized\":true,\"lstrip\":true}]"
#define PATTERN(regex)                                                                             \
    "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":"      \
    "\"" regex "\"}}"
#define UNIGRAM                                                                                    \
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1],[\"ab\",-1.5],"  \
    "[\"fi\",-2]]}"

static const coded cases[] = {
    {NORM1("NFC") "," WORDS "," LEVEL, "e\u0301 a,b", "5:0-1 1:3-4 4:4-5 2:5-6"},
    {SEQ("normalizer", "{\"type\":\"NFD\"},{\"type\":\"StripAccents\"},{\"type\":"
                       "\"Lowercase\"}") "," WORDS "," LEVEL,
     "\u00c9 A", "6:0-1 1:2-3"},
    {NORM1("NFKC") "," WORDS "," LEVEL, "\ufb01 a", "7:0-1 1:2-3"},
    {NORM1("NFKD") "," WORDS "," LEVEL, "\ufb01 a", "7:0-1 1:2-3"},
    {BERT "," LEVEL, "A\u0301\u4e2da,", "1:0-1 8:2-3 1:3-4 4:4-5"},
    {SEQ("normalizer", "{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":"
                       "\"ab\"},{\"type\":"
                       "\"Strip\",\"strip_left\":true,\"strip_right\":true},{\"type\":"
                       "\"Nmt\"}") "," SPLITS("{\"type\":\"WhitespaceSplit\"},{\"type\":"
                                              "\"Punctuation\"}") "," LEVEL,
     "  x\ta,x ", "3:2-3 1:4-5 4:5-6 3:6-7"},
    {SPLITS("{\"type\":\"WhitespaceSplit\"},{\"type\":\"Digits\"}") "," LEVEL, "a12 b",
     "1:0-1 11:1-3 2:4-5"},
    {SPLITS("{\"type\":\"WhitespaceSplit\"},{\"type\":\"Digits\",\"individual_digits\":"
            "true}") "," LEVEL,
     "a12 b", "1:0-1 12:1-2 13:2-3 2:4-5"},
    {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"first\"}," LEVEL, "a a",
     "9:0-1 9:1-3"},
    {"\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"a\"},\"pre_tokenizer\":{\"type\":"
     "\"CharDelimiterSplit\",\"delimiter\":\"-\"}," LEVEL,
     "b-b", "3:0-1 2:2-3"},
    {COMMAS("Isolated"), "a,b,,ab", "1:0-1 4:1-2 2:2-3 4:3-4 4:4-5 3:5-7"},
    {COMMAS("Removed"), "a,b,,ab", "1:0-1 2:2-3 3:5-7"},
    {COMMAS("MergedWithPrevious"), "a,b,,ab", "0:0-2 0:2-4 4:4-5 3:5-7"},
    {COMMAS("MergedWithNext"), "a,b,,ab", "1:0-1 0:1-3 4:3-4 0:4-7"},
    {COMMAS("Contiguous"), "a,b,,ab", "1:0-1 4:1-2 2:2-3 0:3-5 3:5-7"},
    {NORM1("Lowercase") "," WORDS "," LEVEL "," ADDED, "ab abb AB a  a b",
     "3:0-2 0:3-6 3:7-9 1:10-11 14:11-16"},
    {WORDS "," SUFFIXED, "ab a aab c", "5:0-2 3:3-4 1:5-6 5:6-8 0:9-10"},
    {PREFIXED, "a a \u00e9  ab", "3:0-1 3:2-3 2:4-4 4:4-5 5:4-5 2:6-6 3:7-8 1:8-9"},
    {PATTERN("[^\\\\s,]+(?=,)|\\\\p{L}\\\\d{1,2}?|b") "," LEVEL, "ab, a12 b",
     "3:0-2 0:2-4 0:4-6 0:6-8 2:8-9"},
    {NORM1("NFKC") "," UNIGRAM, "\ufb01ab", "3:0-1 2:1-3"},
    {NORM1("NFKC") "," UNIGRAM, "", ""},
};

static void test_cases(void **state)
{
    (void)state;
    check_coded(FILE_NAME, cases, sizeof cases / sizeof *cases);
}

/* What is no UTF-8 is U+FFFD; a text longer than the room is cut. */
static void test_edges(void **state)
{
    (void)state;
    s24_token tokens[4];
    int64_t count;
    s24_tokenizer *tokenizer = load_members(FILE_NAME, NORM1("NFC") "," WORDS "," LEVEL);
    assert_string_equal(encode(tokenizer, "a \xff\xc3 b"), "1:0-1 0:2-4 2:5-6");
    assert_int_equal(s24_tokenizer_encode(tokens, &count, 2, tokenizer, ctx, "a b a b", 7, NULL, 0),
                     S24_OK);
    assert_int_equal(count, 2);
    assert_int_equal(tokens[1].id, 2);
    s24_tokenizer_destroy(tokenizer);
}

/* What decoders make of ids. */
static void test_decoders(void **state)
{
    static const struct {
        const char *decoder, *text;
    } rows[] = {
        {"null", "a ab , \u2581a"},
        {"{\"type\":\"Fuse\"}", "aab,\u2581a"},
        {"{\"type\":\"WordPiece\",\"prefix\":\"\u2581\",\"cleanup\":true}", "a ab,a"},
        {"{\"type\":\"Metaspace\"}", "aab, a"},
        {"{\"type\":\"BPEDecoder\",\"suffix\":\"b\"}", "aa ,\u2581a"},
        {"{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
         "\"a\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Strip\",\"content\":"
         "\" \",\"start\":1,\"stop\":0}]}",
         " b,\u2581 "},
    };
    static const int32_t ids[] = {1, 3, 4, 9};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char file[2048], text[64] = "";
        size_t bytes = sizeof text - 1;
        snprintf(file, sizeof file, WORDS "," LEVEL ",\"decoder\":%s", rows[i].decoder);
        s24_tokenizer *tokenizer = load_members(FILE_NAME, file);
        assert_int_equal(s24_tokenizer_decode(text, &bytes, tokenizer, ctx, ids, 4), S24_OK);
        assert_string_equal(text, rows[i].text);
        s24_tokenizer_destroy(tokenizer);
    }
}

static s24_status run_chain(s24_ctx *failing_ctx)
{
    s24_tokenizer *tokenizer = NULL;
    s24_token tokens[64];
    int64_t count;
    s24_status status = s24_tokenizer_load(&tokenizer, failing_ctx, io_path(FILE_NAME));
    if (status == S24_OK)
        status = s24_tokenizer_encode(tokens, &count, 64, tokenizer, failing_ctx, "a x\u0301, ab",
                                      9, NULL, 0);
    s24_tokenizer_destroy(tokenizer);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    s24_tokenizer_destroy(load_members(
        FILE_NAME,
        SEQ("normalizer", "{\"type\":\"NFC\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},"
                          "\"content\":\"ab\"}") "," WORDS "," LEVEL "," ADDED));
    assert_true(count_failures(run_chain) >= 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_decoders),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("nn_chain", tests, ctx_folder_setup, ctx_folder_teardown);
}
