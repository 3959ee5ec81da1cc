// SPDX-License-Identifier: Apache-2.0
/* Tokenizers whose parts meet in unusual ways: older spellings, added tokens that share characters,
   offsets of what a vocabulary has not. Ids and offsets are those of Hugging Face's tokenizers
   0.23, which bench/peers/differ_parts.py compared at random. */
#include "nn_bpe.h"

#define FILE_NAME "spelled.json"

static const coded cases[] = {
    {"\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"unk_token\":\"?\",\"vocab\":{\"?\":"
     "0,\"a\":1,\"b\":2,\"ab\":3,\",\":4,\"\u0120a\":5,\"3\":6,\"\u00b3\":7}}",
     "ab a,x", "3:0-2 1:3-4 4:4-5 0:5-6"},
    {"\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"unk_token\":\"?\",\"continuing_"
     "subword_prefix\":\"##\",\"max_input_chars_per_word\":100,\"vocab\":{\"?\":0,\"a\":1,\"##b\":"
     "2}}",
     "ab b", "1:0-1 2:1-2 0:3-4"},
    {"\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"unk_id\":0,\"vocab\":[[\"?\",0],["
     "\"a\",-1],[\"ab\",-1.5]]}",
     "aba", "2:0-2 1:2-3"},
    {"\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
     "\"merges\":[\"a b\"]}",
     "ab a", "2:0-2 0:3-4"},
    {"\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},\"behavior\":"
     "\"Isolated\",\"invert\":false},\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\","
     "\"vocab\":{\"?\":0,\"ab\u00b3\":1,\"\u2460\":2}}",
     "ab\u00b3\u2460", "1:0-3 2:3-4"},
    {"\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\",\"},\"behavior\":"
     "\"Removed\",\"invert\":false},\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_"
     "space\":false,\"trim_offsets\":true},\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\","
     "\"vocab\":{\"?\":0,\" a\":1}}",
     "b, a, b", "0:0-1 1:3-4 0:5-7"},
    {"\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true},"
     "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\",\"},\"behavior\":"
     "\"Removed\",\"invert\":false},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\","
     "0],[\"a\",-1]]}",
     "a, a,\u00a0", "1:0-1 0:3-3 1:3-4 0:6-6"},
    {"\"added_tokens\":[{\"id\":1,\"content\":\"  "
     "\",\"rstrip\":true},{\"id\":2,\"content\":\"x\",\"lstrip\":true}],\"pre_tokenizer\":{"
     "\"type\":\"Whitespace\"},\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?"
     "\":0,\"b\":3,\"  \":1,\"x\":2}}",
     "b    b  x b   x", "3:0-1 1:1-5 1:3-5 3:5-6 1:6-8 2:8-9 3:10-11 1:11-14 2:14-15"},
    {"\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"type\":\"BPE\",\"ignore_merges\":"
     "true,\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0,\"b\":1,\"a</w>\":2,\"b</"
     "w>\":3,\"ab\":4,\"ab</w>\":5},\"merges\":[\"a b</w>\"]}",
     "ab a ba", "4:0-2 0:3-4 1:5-6 2:6-7"},
    {"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}",
     "xa\u4e2dabxb", "0:0-1 2:1-3 1:2-3"},
    {"\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"b*\"},\"content\":\"a\"},\"pre_"
     "tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1}"
     ",\"merges\":[]}",
     "bca", "0:0-1 0:1-2 0:1-2 0:2-3"},
    {"\"normalizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
     "\"\u00c3\":1,\"\u00a9\":2,\"\u0120\":3},\"merges\":[]}",
     "a \u00e9", "0:0-1 3:1-2 1:2-3 2:2-3"},
    {"\"added_tokens\":[{\"id\":5,\"content\":\"\\n\"},{\"id\":3,\"content\":\"  "
     "\"}],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":"
     "true},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\u0120\":1,\"\u010a\":2,\"  "
     "\":3,\"\u0120\u0120\":4},\"merges\":[\"\u0120 \u0120\"]}",
     "a\na   a", "0:0-1 5:1-2 0:2-3 3:3-5 1:5-6 0:6-7"},
    {"\"added_tokens\":[{\"id\":3,\"content\":\"a "
     "b\",\"normalized\":true},{\"id\":2,\"content\":\"b\"}],\"pre_tokenizer\":{\"type\":"
     "\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true},\"model\":{\"type\":\"BPE\","
     "\"vocab\":{\"a\":0,\"\u0120\":1,\"b\":2},\"merges\":[]}",
     "a b a", "0:0-1 1:1-2 2:2-3 1:3-4 0:4-5"},
    {"\"added_tokens\":[{\"id\":3,\"content\":\"<m>\",\"lstrip\":true,\"rstrip\":true}],"
     "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":"
     "true,\"strip_accents\":null,\"lowercase\":true},\"pre_tokenizer\":{\"type\":"
     "\"BertPreTokenizer\"},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
     "\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_"
     "id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{}},\"model\":{"
     "\"type\":\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"##\",\"max_input_"
     "chars_per_word\":100,\"vocab\":{\"?\":0,\"a\":1,\"b\":2}}",
     "a \u3000<m>  b<m>", "1:0-1 3:1-8 2:8-9 3:9-12"},
    {"\"normalizer\":{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true},\"pre_"
     "tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"always\","
     "\"split\":true},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],["
     "\"\u2581\",-1],[\"a\",-1],[\"\u2581a\",-1.5]]}",
     "a a  \n", "3:0-1 3:1-3"},
};

static void test_cases(void **state)
{
    (void)state;
    check_coded(FILE_NAME, cases, sizeof cases / sizeof *cases);
}

/* By the file's decoder, where words are not cut as it would have them. */
static void test_decoders(void **state)
{
    static const struct {
        const char *file, *text;
    } rows[] = {
        {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"never\"},"
         "\"decoder\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"always\"},"
         "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],[\"\u2581a\",-1]]}",
         "a a"},
        {"\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
         "\"String\":\"\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"}]},"
         "\"model\":{\"type\":\"BPE\",\"vocab\":{\"\u2581\":0,\"<0x41>\":1},\"merges\":[]}",
         "AA"},
    };
    static const int32_t ids[] = {1, 1};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[16] = "";
        size_t bytes = sizeof text - 1;
        s24_tokenizer *tokenizer = load_members(FILE_NAME, rows[i].file);
        assert_int_equal(s24_tokenizer_decode(text, &bytes, tokenizer, ctx, ids, 2), S24_OK);
        assert_string_equal(text, rows[i].text);
        s24_tokenizer_destroy(tokenizer);
    }
}

/* What tokenizers does of these has no use, or changes from one run to the next. */
static void test_refused(void **state)
{
    static const struct {
        const char *file, *sentence;
    } rows[] = {
        {"\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},\"added_"
         "tokens\":"
         "[{\"id\":0,\"content\":\" "
         "\",\"normalized\":true}],\"model\":{\"type\":\"WordLevel\",\"unk_token\":"
         "\"?\",\"vocab\":{\" \":0,\"?\":1}}",
         "the normalizer leaves nothing of the added token \" \", which is not supported"},
        {"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{"
         "\"type\":\"BPE\","
         "\"byte_fallback\":true,\"vocab\":{\"a\":0},\"merges\":[]}",
         "byte_fallback is not supported at byte level where the vocabulary has no letter of 255 "
         "bytes"},
        {"\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
         "\"},\"content\":\"\u2581\"},"
         "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}",
         "a vocabulary without \u2581, as which blanks are written, is not supported"},
        {"\"model\":{\"vocab\":{\"a\":0}}", "the key \"type\" is missing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        s24_tokenizer *tokenizer = NULL;
        char text[1024];
        snprintf(text, sizeof text, "{%s}", rows[i].file);
        io_write_text(io_path(FILE_NAME), text);
        assert_int_not_equal(s24_tokenizer_load(&tokenizer, ctx, io_path(FILE_NAME)), S24_OK);
        assert_null(tokenizer);
        if (!strstr(s24_ctx_error(ctx), rows[i].sentence)) fail_msg("%s", s24_ctx_error(ctx));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_decoders),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("nn_chain_spelled", tests, ctx_folder_setup,
                                       ctx_folder_teardown);
}
