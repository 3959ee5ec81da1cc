// SPDX-License-Identifier: Apache-2.0
/* What stands around a text and between two, as tokenizer.json's post_processor says. */
#include "support.h"

#include "io/tokenizer/tokenizer.h"
#include "nn_ctx.h"

static s24_tokenizer *load(const char *path)
{
    s24_tokenizer *tokenizer;
    if (s24_tokenizer_load(&tokenizer, ctx, path) != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    return tokenizer;
}

#define VOCAB "\"vocab\":{\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"a\":4,\"##b\":5}"
#define MODEL "\"model\":{\"type\":\"WordPiece\"," VOCAB "}"
#define PRE   "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"
#define NORM  "\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":true}"

#define SPECIAL(name, type)  "{\"SpecialToken\":{\"id\":\"" name "\",\"type_id\":" #type "}}"
#define SEQUENCE(name, type) "{\"Sequence\":{\"id\":\"" name "\",\"type_id\":" #type "}}"
#define TEMPLATE(single, pair, tokens)                                                             \
    "{" NORM "," PRE "," MODEL                                                                     \
    ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" single "],\"pair\":[" pair \
    "],\"special_tokens\":{" tokens "}}}"
#define TWO_IDS "\"<go>\":{\"id\":\"<go>\",\"ids\":[5,1],\"tokens\":[\"x\",\"y\"]}"

/* Any tokens around a text and between two, some of which are several ids, of any type. */
static void test_templates(void **state)
{
    static const struct {
        const char *json, *text, *pair, *tokens; /* id:type … */
        int64_t most;
    } cases[] = {
        {TEMPLATE(SPECIAL("<go>", 1) "," SPECIAL("[CLS]", 0) "," SEQUENCE("A", 1), "", TWO_IDS),
         "ab a", NULL, "5:1 1:1 2:0 4:1 5:1 4:1 ", 16},
        {TEMPLATE(SEQUENCE("A", 0) "," SPECIAL("[SEP]", 0), "", ""), "ab a", NULL, "4:0 5:0 3:0 ",
         3},
        {TEMPLATE(SEQUENCE("A", 0) "," SPECIAL("[SEP]", 0),
                  SEQUENCE("A", 0) "," SPECIAL("[SEP]", 1) "," SPECIAL("<go>", 0) "," SEQUENCE(
                      "B", 1) "," SPECIAL("[CLS]", 1),
                  TWO_IDS),
         "a", "ab", "4:0 3:1 5:0 1:0 4:1 5:1 2:1 ", 16},
        {TEMPLATE(SEQUENCE("A", 0), SEQUENCE("A", 0) "," SEQUENCE("B", 0), ""), "ab", "ab",
         "4:0 4:0 5:0 ", 3},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_token tokens[16];
        int64_t count;
        char got[128] = "";
        io_write_text(io_path("small.json"), cases[i].json);
        s24_tokenizer *tokenizer = load(io_path("small.json"));
        const char *pair = cases[i].pair;
        assert_int_equal(s24_tokenizer_encode(tokens, &count, cases[i].most, tokenizer, ctx,
                                              cases[i].text, strlen(cases[i].text), pair,
                                              pair ? strlen(pair) : 0),
                         S24_OK);
        for (int64_t t = 0; t < count; t++)
            sprintf(got + strlen(got), "%d:%d ", tokens[t].id, tokens[t].type);
        assert_string_equal(got, cases[i].tokens);
        s24_tokenizer_destroy(tokenizer);
    }
    /* A pair that the file does not describe, and less room than what stands around. */
    s24_token tokens[16];
    int64_t count;
    io_write_text(io_path("small.json"), cases[0].json);
    s24_tokenizer *tokenizer = load(io_path("small.json"));
    assert_int_equal(s24_tokenizer_encode(tokens, &count, 16, tokenizer, ctx, "a", 1, "a", 1),
                     S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(ctx), "says what stands around both"));
    assert_int_equal(s24_tokenizer_encode(tokens, &count, 2, tokenizer, ctx, "a", 1, NULL, 0),
                     S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "at least 3 are expected"));
    s24_tokenizer_destroy(tokenizer);
}

static void test_refused(void **state)
{
    static const struct {
        const char *text;
        s24_status status;
        const char *part;
    } refused[] = {
        {TEMPLATE(SEQUENCE("B", 0), "", ""), S24_ERROR_FORMAT,
         "no list of special tokens and of one"},
        {TEMPLATE(SEQUENCE("A", 0) "," SEQUENCE("A", 0), "", ""), S24_ERROR_FORMAT,
         "no list of special tokens and of one"},
        {TEMPLATE(SEQUENCE("A", 0) "," SPECIAL("[SEP]", 2), "", ""), S24_ERROR_FORMAT,
         "of a type other than 0 and 1"},
        {TEMPLATE(SEQUENCE("A", 0) "," SPECIAL("<go>", 0), "", ""), S24_ERROR_FORMAT, "no <go>"},
        {TEMPLATE(SEQUENCE("A", 0) "," SPECIAL("<go>", 0), "", "\"<go>\":{\"ids\":[99]}"),
         S24_ERROR_FORMAT, "an id of special token <go> in post_processor is none"},
        {TEMPLATE(SEQUENCE("A", 0) "," SPECIAL("<go>", 0), "",
                  "\"<go>\":{\"ids\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}"),
         S24_ERROR_UNSUPPORTED, "more than 16 special tokens side by side"},
        {"{" NORM "," PRE "," MODEL ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":["
         "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",3],\"cls\":[\"[CLS]\",2]},"
         "{\"type\":\"RobertaProcessing\",\"sep\":[\"[SEP]\",3],\"cls\":[\"[CLS]\",2]}]}}",
         S24_ERROR_UNSUPPORTED, "post_processor has a RobertaProcessing after a BertProcessing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        s24_tokenizer *tokenizer = (void *)&tokenizer;
        io_write_text(io_path("bad.json"), refused[i].text);
        assert_int_equal(s24_tokenizer_load(&tokenizer, ctx, io_path("bad.json")),
                         refused[i].status);
        assert_null(tokenizer);
        if (!strstr(s24_ctx_error(ctx), refused[i].part)) fail_msg("%s", s24_ctx_error(ctx));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_templates),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, ctx_folder_setup, ctx_folder_teardown);
}
