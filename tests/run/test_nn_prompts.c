// SPDX-License-Identifier: Apache-2.0
/*
 * Prompts: which one stands before a text, that it is embedded as if both were one text, and that
 * pooling leaves its tokens out where the folder says so.
 */
#include "nn_tiny.h"

#include "nn_encoder_support.h"

enum { UNPOOLED = 3 /* [CLS] q : */ };

/* A folder of eleven words with these prompts, NULL: no file of them. */
static const char *make_folder(const tiny *t, const char *prompts)
{
    tiny_write(t, "model");
    tiny_write_text(io_path("model/vocab.txt"),
                    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nq\n:\na\nb\nc\nd\n");
    remove(io_path("model/config_sentence_transformers.json"));
    if (prompts) tiny_write_text(io_path("model/config_sentence_transformers.json"), prompts);
    return io_path("model");
}

static s24_encoder *open_prompted(const char *folder, const char *prompt)
{
    return open_with(folder,
                     &(s24_encoder_opts){.size = sizeof(s24_encoder_opts), .prompt = prompt});
}

/* The vector of one text. */
typedef struct vector {
    float of[TINY_WIDTH];
    int64_t tokens;
} vector;

static vector embed(s24_encoder *encoder, const char *text)
{
    vector v;
    v.tokens = embed_one(v.of, encoder, text);
    return v;
}

static void assert_same(vector a, vector b)
{
    assert_int_equal(a.tokens, b.tokens);
    assert_memory_equal(a.of, b.of, sizeof a.of);
}

static const char both[] = "{\"prompts\":{\"query\":\"q: \",\"document\":\"d \",\"none\":\"\","
                           "\"null\":null},\"default_prompt_name\":\"document\"}";

static void assert_prompt(s24_encoder *encoder, const char *name, const char *text)
{
    const char *found;
    assert_string_equal(s24_encoder_prompt(encoder, &found), text);
    assert_int_equal(found == NULL, name == NULL);
    if (name) assert_string_equal(found, name);
    assert_string_equal(s24_encoder_prompt(encoder, NULL), text);
}

/* Opened by name or with the default, changed by name and by text: as if prompt and text were
   one. */
static void test_before_the_text(void **state)
{
    static const char *const texts[] = {"a b c", "", "d", "a a a a a a a a a a"};
    static const struct {
        const char *name, *text;
    } ways[] = {{"query", "q: "}, {"document", "d "}, {"none", ""}, {"null", ""},
                {NULL, "a: "},    {NULL, "b"},        {NULL, ""}};
    const tiny plain = {0};
    (void)state;
    s24_encoder *bare = open_prompted(make_folder(&plain, NULL), NULL);
    assert_prompt(bare, NULL, "");
    assert_null(s24_encoder_prompt_name(bare, 0, NULL));
    const char *folder = make_folder(&plain, both);
    s24_encoder *encoder = open_prompted(folder, "query"), *usual = open_prompted(folder, NULL);
    assert_prompt(encoder, "query", "q: ");
    assert_prompt(usual, "document", "d ");
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
            char joined[64];
            snprintf(joined, sizeof joined, "%s%s", ways[w].text, texts[t]);
            assert_int_equal(ways[w].name ? s24_encoder_choose_prompt(encoder, ctx, ways[w].name)
                                          : s24_encoder_set_prompt(encoder, ctx, ways[w].text),
                             S24_OK);
            assert_prompt(encoder, ways[w].name, ways[w].text);
            assert_same(embed(encoder, texts[t]), embed(bare, joined));
        }
    assert_int_equal(s24_encoder_choose_prompt(encoder, ctx, NULL), S24_OK);
    assert_prompt(encoder, "document", "d ");
    assert_int_equal(s24_encoder_set_prompt(encoder, ctx, NULL), S24_OK);
    assert_prompt(encoder, NULL, "");
    assert_same(embed(usual, "a"), embed(bare, "d a"));
    s24_encoder_close(bare);
    s24_encoder_close(usual);
    s24_encoder_close(encoder);
}

static void test_the_names(void **state)
{
    static const char *const expected[][2] = {
        {"query", "q: "}, {"document", "d "}, {"none", ""}, {"null", ""}};
    const tiny plain = {0};
    const char *text;
    (void)state;
    s24_encoder *encoder = open_prompted(make_folder(&plain, both), NULL);
    for (int64_t i = 0; i < 4; i++) {
        assert_string_equal(s24_encoder_prompt_name(encoder, i, &text), expected[i][0]);
        assert_string_equal(text, expected[i][1]);
    }
    assert_null(s24_encoder_prompt_name(encoder, 4, &text));
    assert_string_equal(s24_encoder_prompt_text(encoder, "query"), "q: ");
    assert_string_equal(s24_encoder_prompt_text(encoder, "null"), "");
    assert_null(s24_encoder_prompt_text(encoder, "title"));
    assert_null(s24_encoder_prompt_text(encoder, NULL));
    assert_null(s24_encoder_prompt_text(NULL, "query"));
    assert_null(s24_encoder_prompt_name(NULL, 0, NULL));
    assert_null(s24_encoder_prompt(NULL, NULL));
    s24_encoder_close(encoder);
}

/* Another encoder takes the prompt there is, and either changes its own alone. */
static void test_shared(void **state)
{
    const tiny plain = {0};
    s24_encoder *one, *two;
    (void)state;
    one = open_prompted(make_folder(&plain, both), "query");
    assert_int_equal(s24_encoder_share(&two, ctx, one), S24_OK);
    assert_prompt(two, "query", "q: ");
    s24_encoder_close(two);
    assert_int_equal(s24_encoder_set_prompt(one, ctx, "a "), S24_OK);
    assert_int_equal(s24_encoder_share(&two, ctx, one), S24_OK);
    assert_int_equal(s24_encoder_choose_prompt(one, ctx, "query"), S24_OK);
    assert_prompt(two, NULL, "a ");
    assert_string_equal(s24_encoder_prompt_name(two, 1, NULL), "document");
    const vector asked = embed(one, "b c"), own = embed(two, "b c");
    assert_int_equal(s24_encoder_set_prompt(one, ctx, NULL), S24_OK);
    assert_same(asked, embed(one, "q: b c"));
    assert_same(own, embed(one, "a b c"));
    s24_encoder_close(two);
    s24_encoder_close(one);
}

/* ---- include_prompt -------------------------------------------------------------------------- */

/* "[CLS] q : a b [SEP]" */
static const int32_t ids[] = {2, 5, 6, 7, 8, 3};
enum { TOKENS = sizeof ids / sizeof *ids };

/* Its vector by hand, in f64, of the tokens from `first` on. */
static void pool(float *out, s24_encoder *encoder, const char *mode, int64_t first)
{
    const int64_t offsets[] = {0, TOKENS};
    float hidden[TOKENS][TINY_WIDTH];
    s24_session *session;
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    const s24_outputs outputs = {.hidden = hidden[0]};
    assert_int_equal(s24_session_create(&session, ctx, s24_encoder_model(encoder), TOKENS), S24_OK);
    assert_int_equal(s24_session_forward(session, ctx, &batch, &outputs), S24_OK);
    s24_session_destroy(session);
    if (!strcmp(mode, "cls_token")) first = 0;
    for (int c = 0; c < TINY_WIDTH; c++) {
        double sum = 0, most = -INFINITY;
        for (int64_t t = first; t < TOKENS; t++) {
            sum += hidden[t][c];
            most = fmax(most, hidden[t][c]);
        }
        out[c] = (float)(!strcmp(mode, "max_tokens")  ? most
                         : !strcmp(mode, "cls_token") ? (double)hidden[0][c]
                                                      : sum / (double)(TOKENS - first));
    }
}

/* Ids of prompt and text give the same vector, and those of the prompt alone none where they are
   left out. */
static void check_ids(s24_encoder *encoder, const vector *expected, int includes)
{
    const int64_t offsets[] = {0, TOKENS}, few[] = {0, UNPOOLED};
    s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    float found[TINY_WIDTH];
    assert_int_equal(s24_encoder_embed_ids(found, NULL, encoder, ctx, &batch), S24_OK);
    assert_memory_equal(found, expected->of, sizeof found);
    batch.offsets = few;
    assert_int_equal(s24_encoder_embed_ids(found, NULL, encoder, ctx, &batch),
                     includes ? S24_OK : S24_ERROR_ARGUMENT);
    if (!includes) assert_sentence(ctx, "text 0 has no token id after those of the prompt");
}

static void check_left_out(const char *mode, int includes)
{
    char pooling[128];
    float expected[TINY_WIDTH];
    const tiny t = {
        .modules = "[{\"type\":\"sentence_transformers.models.Transformer\",\"path\":\"\"},"
                   "{\"type\":\"sentence_transformers.models.Pooling\",\"path\":\"1_Pooling\"}]",
        .pooling = pooling};
    snprintf(pooling, sizeof pooling, "{\"pooling_mode_%s\":true,\"include_prompt\":%s}", mode,
             includes ? "true" : "false");
    s24_encoder *encoder = open_prompted(make_folder(&t, both), "query");
    for (int turn = 0; turn < 2; turn++) {
        pool(expected, encoder, mode, includes ? 0 : UNPOOLED);
        const vector got = embed(encoder, "a b");
        assert_int_equal(got.tokens, 6);
        check_ids(encoder, &got, includes);
        for (int c = 0; c < TINY_WIDTH; c++)
            if (!(fabsf(got.of[c] - expected[c]) <= 1e-5f))
                fail_msg("%s, %d, element %d: %g and %g", mode, includes, c, (double)got.of[c],
                         (double)expected[c]);
        assert_int_equal(s24_encoder_set_prompt(encoder, ctx, "q: "), S24_OK);
    }
    /* Without a prompt nothing is left out. */
    assert_int_equal(s24_encoder_choose_prompt(encoder, ctx, "none"), S24_OK);
    pool(expected, encoder, mode, 0);
    const vector whole = embed(encoder, "q: a b");
    for (int c = 0; c < TINY_WIDTH; c++)
        assert_true(fabsf(whole.of[c] - expected[c]) <= 1e-5f);
    s24_encoder_close(encoder);
}

static void test_left_out(void **state)
{
    static const char *const modes[] = {"mean_tokens", "max_tokens", "cls_token"};
    (void)state;
    for (int m = 0; m < 3; m++)
        for (int includes = 0; includes < 2; includes++)
            check_left_out(modes[m], includes);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void assert_no_encoder(const char *folder, const char *name, s24_status status,
                              const char *part)
{
    const s24_encoder_opts opts = {.size = sizeof opts, .prompt = name};
    s24_encoder *encoder = (void *)&encoder;
    const s24_status got = s24_encoder_open(&encoder, ctx, folder, &opts);
    if (got != status) fail_msg("%d: %s (%s)", (int)got, s24_ctx_error(ctx), part);
    assert_null(encoder);
    assert_sentence(ctx, part);
}

static void test_refused(void **state)
{
    const tiny plain = {0};
    const tiny apart = {
        .modules = "[{\"type\":\"sentence_transformers.models.Pooling\",\"path\":\"1_Pooling\"}]",
        .pooling = "{\"pooling_mode_mean_tokens\":true,\"include_prompt\":false}"};
    (void)state;
    assert_no_encoder(make_folder(&plain, NULL), "query", S24_ERROR_ARGUMENT,
                      "no prompt \"query\"; there is none");
    assert_no_encoder(
        make_folder(&plain, "{\"prompts\":{\"x\":\"\"}}"), "y", S24_ERROR_ARGUMENT,
        "config_sentence_transformers.json: there is no prompt \"y\"; there is \"x\"");
    assert_no_encoder(
        make_folder(&plain, both), "passage", S24_ERROR_ARGUMENT,
        "no prompt \"passage\"; there are \"query\", \"document\", \"none\", \"null\"");
    assert_no_encoder(make_folder(&plain, "{\"default_prompt_name\":\"x\"}"), NULL,
                      S24_ERROR_FORMAT, "no prompt \"x\"; there is none");
    assert_no_encoder(make_folder(&plain, "{\"prompts\":{\"a\":\"\",\"x\":4}}"), NULL,
                      S24_ERROR_FORMAT, "\"x\" is not a string");
    assert_no_encoder(make_folder(&plain, "{\"default_prompt_name\":4}"), NULL, S24_ERROR_FORMAT,
                      "\"default_prompt_name\" is not a string");
    s24_encoder *encoder = open_prompted(make_folder(&apart, both), NULL);
    assert_int_equal(s24_encoder_set_prompt(encoder, ctx, "a b c d a b c d a"), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "leaves none of 9 to be pooled");
    assert_prompt(encoder, "document", "d ");
    assert_int_equal(s24_encoder_choose_prompt(encoder, ctx, "x"), S24_ERROR_ARGUMENT);
    assert_prompt(encoder, "document", "d ");
    assert_int_equal(s24_encoder_choose_prompt(NULL, ctx, "x"), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "encoder is NULL");
    assert_int_equal(s24_encoder_set_prompt(encoder, NULL, "x"), S24_ERROR_ARGUMENT);
    s24_encoder_close(encoder);
}

/* Names without end make no sentence without end. */
static void test_many_names(void **state)
{
    const tiny plain = {0};
    char *text = malloc(1 << 20), *end = text;
    (void)state;
    end += sprintf(end, "{\"prompts\":{");
    for (int i = 0; i < ROUNDS(20000); i++)
        end += sprintf(end, "%s\"name %d\":\"\"", i ? "," : "", i);
    sprintf(end, "}}");
    assert_no_encoder(make_folder(&plain, text), "x", S24_ERROR_ARGUMENT, "there are \"name 0\", ");
    assert_true(strlen(s24_ctx_error(ctx)) < 1024);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_the_text), cmocka_unit_test(test_the_names),
        cmocka_unit_test(test_shared),          cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_many_names),
    };
    return cmocka_run_group_tests(tests, encoder_setup, encoder_teardown);
}
