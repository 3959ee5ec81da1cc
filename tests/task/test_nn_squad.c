// SPDX-License-Identifier: Apache-2.0
/*
 * Question answering: features and scores equal to those of the Hugging Face libraries on their
 * golden vectors, cuts and labels by hand, answers against a plain search, malformed files refused
 * by their place.
 */
#include "support.h"

#include <jansson.h>
#include <math.h>

#include "nn_ctx.h"
#include "sparse24/task.h"

static s24_qa *read_qa(const char *path)
{
    s24_qa *qa;
    if (s24_qa_read(&qa, ctx, path) != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    return qa;
}

static s24_tokenizer *load(const char *path)
{
    s24_tokenizer *tokenizer;
    if (s24_tokenizer_load(&tokenizer, ctx, path) != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    return tokenizer;
}

static s24_qa_features *make(const s24_qa *qa, const s24_tokenizer *tokenizer, int64_t max_tokens,
                             int64_t stride, int clip)
{
    const s24_qa_features_opts opts = {
        .size = sizeof opts, .max_tokens = max_tokens, .stride = stride, .clip = clip};
    s24_qa_features *features;
    if (s24_qa_features_create(&features, ctx, qa, tokenizer, &opts) != S24_OK)
        fail_msg("%s", s24_ctx_error(ctx));
    return features;
}

static int64_t find_question(const s24_qa *qa, const char *id)
{
    for (int64_t i = 0; i < s24_qa_count(qa); i++)
        if (!strcmp(s24_qa_at(qa, i)->id, id)) return i;
    fail_msg("no question %s", id);
    return -1;
}

/* ---- golden ---------------------------------------------------------------------------------- */

static int64_t number(json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static void check_feature(const s24_qa_features *features, int64_t index, json_t *golden)
{
    json_t *ids = json_object_get(golden, "input_ids");
    const s24_qa_feature *f = s24_qa_feature_at(features, index);
    int32_t got[512], types[512];
    assert_int_equal(f->tokens, json_array_size(ids));
    assert_int_equal(s24_qa_features_lengths(features)[index], f->tokens);
    s24_qa_feature_write(got, types, features, index);
    for (int32_t i = 0; i < f->tokens; i++) {
        assert_int_equal(got[i], json_integer_value(json_array_get(ids, (size_t)i)));
        assert_int_equal(types[i], i >= f->context_begin);
    }
    assert_int_equal(f->context_begin, number(golden, "context_start"));
    assert_int_equal(f->context_end - 1, number(golden, "context_end"));
    assert_int_equal(f->start, number(golden, "start"));
    assert_int_equal(f->end, number(golden, "end"));
}

static void test_golden_features(void **state)
{
    char golden[512], data[512], folder[512];
    (void)state;
    if (!golden_path(golden, sizeof golden, "squad/features.json")) SKIP_WITHOUT(golden);
    if (!data_path(data, sizeof data, "qa/qa-dev.json")) SKIP_WITHOUT(data);
    if (!data_path(folder, sizeof folder, "tokenizers/bert-base-uncased")) SKIP_WITHOUT(folder);
    s24_qa *qa = read_qa(data);
    s24_tokenizer *tokenizer = load(folder);
    assert_int_equal(s24_qa_count(qa), 1190);
    json_t *root = json_load_file(golden, 0, NULL), *one;
    const int64_t limits[2][2] = {{384, 0}, {128, 32}};
    int checked = 0;
    for (int l = 0; l < 2; l++) {
        s24_qa_features *features = make(qa, tokenizer, limits[l][0], limits[l][1], 1);
        size_t i;
        json_array_foreach (json_object_get(root, "cases"), i, one) {
            if (number(one, "max_length") != limits[l][0] || number(one, "stride") != limits[l][1])
                continue;
            const int64_t question =
                find_question(qa, json_string_value(json_object_get(one, "id")));
            json_t *list = json_object_get(one, "features");
            int64_t at = 0;
            while (s24_qa_feature_at(features, at)->question != question)
                at++;
            for (size_t f = 0; f < json_array_size(list); f++, checked++)
                check_feature(features, at + (int64_t)f, json_array_get(list, f));
            const s24_qa_feature *next =
                s24_qa_feature_at(features, at + (int64_t)json_array_size(list));
            assert_true(!next || next->question != question);
        }
        s24_qa_features_destroy(features);
    }
    assert_true(checked > 150);
    json_decref(root);
    s24_tokenizer_destroy(tokenizer);
    s24_qa_destroy(qa);
}

static void test_golden_metric(void **state)
{
    char golden[512], data[512];
    (void)state;
    if (!golden_path(golden, sizeof golden, "squad/metric.json")) SKIP_WITHOUT(golden);
    if (!data_path(data, sizeof data, "qa/qa-dev.json")) SKIP_WITHOUT(data);
    s24_qa *qa = read_qa(data);
    json_t *root = json_load_file(golden, 0, NULL), *one;
    size_t i;
    assert_true(json_array_size(json_object_get(root, "cases")) >= 40);
    json_array_foreach (json_object_get(root, "cases"), i, one) {
        json_t *prediction = json_object_get(one, "prediction");
        const s24_text text = {json_string_value(prediction), json_string_length(prediction)};
        const int64_t question = find_question(qa, json_string_value(json_object_get(one, "id")));
        double exact, f1;
        assert_int_equal(s24_qa_score(&exact, &f1, ctx, &text, s24_qa_at(qa, question)), S24_OK);
        assert_true(100 * exact == json_number_value(json_object_get(one, "exact_match")));
        assert_true(fabs(100 * f1 - json_number_value(json_object_get(one, "f1"))) < 1e-3);
    }
    json_decref(root);
    s24_qa_destroy(qa);
}

/* ---- scores by hand -------------------------------------------------------------------------- */

static void test_scores(void **state)
{
    /* As Python's script gives them. */
    static const struct {
        const char *prediction, *gold;
        double exact, f1;
    } cases[] = {
        {"The Cat!", "cat", 1, 1},
        {"a an the", "", 1, 0}, /* nothing is left: equal, with nothing in common */
        {"", "the", 1, 0},
        {"an apple a day", "apple day", 1, 1},
        {"apple", "pineapple", 0, 0},
        {"a-b the_c", "ab thec", 1, 1},         /* punctuation joins what it stood between */
        {"the the cat cat", "cat", 0, 2.0 / 3}, /* 1 of 2 and of 1 */
        {"cat  \t\n sat", "sat cat", 0, 1},     /* in any order */
        {"x\u00a0y\u2003z", "x y z", 1, 1},     /* white space of all kinds */
        {"x\u200by", "x y", 0, 0},              /* which this is not */
        {"\u00dcBER \u0130", "\u00fcber i\u0307", 1, 1},
        {"\u039f\u0394\u039f\u03a3", "\u03bf\u03b4\u03bf\u03c2", 1, 1}, /* sigma ends a word */
        {"\u03a3\u0391", "\u03c3\u03b1", 1, 1},
        {"a\u0301b", "\u0301b", 1, 1}, /* a mark is no part of a word: the article goes */
        {"\u2014the\u2014", "\u2014 \u2014", 1, 1},
        {"thé", "th", 0, 0},
        {"1 2 3 4", "3 4 5", 0, 4.0 / 7},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24_qa_answer answers[2] = {
            {.text = {"nothing of it", 13}},
            {.text = {cases[i].gold, strlen(cases[i].gold)}},
        };
        const s24_qa_question question = {.answers = answers, .answer_count = 2};
        const s24_text text = {cases[i].prediction, strlen(cases[i].prediction)};
        double exact, f1;
        assert_int_equal(s24_qa_score(&exact, &f1, ctx, &text, &question), S24_OK);
        if (exact != cases[i].exact || fabs(f1 - cases[i].f1) > 1e-12)
            fail_msg("case %zu: %g %g", i, exact, f1);
    }
}

/* ---- windows and labels ---------------------------------------------------------------------- */

#define QA(context, answers)                                                                       \
    "{\"version\":\"1.1\",\"data\":[{\"title\":\"t\",\"paragraphs\":[{\"context\":\"" context      \
    "\",\"qas\":[{\"id\":\"q1\",\"question\":\" a b \\n\",\"answers\":[" answers "]}]}]}]}"
#define ANSWER(start, text) "{\"answer_start\":" start ",\"text\":\"" text "\"}"

static void write_vocab(void)
{
    io_write_text(io_path("vocab.txt"), "[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\ne\nf\ng\nh\n\u00e9");
}

static void test_windows(void **state)
{
    /* Of "c d e f g h" (ids 5 to 10) four fit beside "a b"; answer "e f": characters 4 to 7. */
    static const struct {
        int64_t stride;
        int clip, count;
        struct {
            int first, tokens, start, end;
        } f[3];
    } cases[] = {
        {0, 0, 2, {{5, 9, 6, 7}, {9, 7, 0, 0}}},
        {2, 0, 2, {{5, 9, 6, 7}, {7, 9, 4, 5}}},
        {3, 0, 3, {{5, 9, 6, 7}, {6, 9, 5, 6}, {7, 9, 4, 5}}},
    };
    (void)state;
    write_vocab();
    io_write_text(io_path("one.json"), QA("c d e f g h", ANSWER("4", "e f")));
    s24_tokenizer *tokenizer = load(io_path("vocab.txt"));
    s24_qa *qa = read_qa(io_path("one.json"));
    assert_int_equal(s24_qa_at(qa, 0)->text.bytes, 3); /* trimmed */
    assert_null(s24_qa_at(qa, 1));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_qa_features *features = make(qa, tokenizer, 9, cases[i].stride, cases[i].clip);
        assert_int_equal(s24_qa_features_count(features), cases[i].count);
        for (int f = 0; f < cases[i].count; f++) {
            const s24_qa_feature *got = s24_qa_feature_at(features, f);
            int32_t ids[9];
            s24_qa_feature_write(ids, NULL, features, f);
            const int32_t head[] = {1, 3, 4, 2, cases[i].f[f].first};
            assert_memory_equal(ids, head, sizeof head);
            assert_int_equal(ids[got->tokens - 1], 2);
            assert_int_equal(got->tokens, cases[i].f[f].tokens);
            assert_int_equal(got->start, cases[i].f[f].start);
            assert_int_equal(got->end, cases[i].f[f].end);
        }
        s24_qa_features_destroy(features);
    }
    s24_qa_destroy(qa);
    /* An answer that two windows share: whole in none; clipped, to both edges. */
    io_write_text(io_path("one.json"), QA("c d e f g h", ANSWER("6", "f g")));
    qa = read_qa(io_path("one.json"));
    for (int clip = 0; clip < 2; clip++) {
        s24_qa_features *features = make(qa, tokenizer, 9, 0, clip);
        const s24_qa_feature *f[] = {s24_qa_feature_at(features, 0),
                                     s24_qa_feature_at(features, 1)};
        assert_int_equal(f[0]->start, clip ? 7 : 0);
        assert_int_equal(f[0]->end, clip ? 8 : 0); /* after the context */
        assert_int_equal(f[1]->start, clip ? 3 : 0);
        assert_int_equal(f[1]->end, clip ? 4 : 0);
        s24_qa_features_destroy(features);
    }
    s24_qa_destroy(qa);
    s24_tokenizer_destroy(tokenizer);
}

/* ---- answers --------------------------------------------------------------------------------- */

enum { WORDS = 40 };

/* A context of 40 letters, one of which takes two bytes, cut into three features. */
static s24_qa *long_question(void)
{
    char text[1024], context[2 * WORDS + 8] = "";
    for (int i = 0; i < WORDS; i++)
        strcat(context, i == 3 ? "\u00e9 " : (const char[]){(char)('c' + i % 6), ' ', 0});
    snprintf(text, sizeof text, QA("%s", ANSWER("0", "c")), context);
    io_write_text(io_path("long.json"), text);
    return read_qa(io_path("long.json"));
}

/* The best pair by trying all, where every token is among the best. */
static float search(const s24_qa_features *features, float *const *logits, int longest,
                    char text[256], const char *context)
{
    float best = -INFINITY;
    *text = '\0';
    for (int64_t f = 0; f < s24_qa_features_count(features); f++) {
        const s24_qa_feature *at = s24_qa_feature_at(features, f);
        for (int s = at->context_begin; s < at->context_end; s++) {
            for (int e = s; e < at->context_end && e - s < longest; e++) {
                const float score = logits[2 * f][s] + logits[2 * f + 1][e];
                if (!(score > best)) continue;
                best = score;
                /* Words are a letter and a blank; window f begins at 10·f. */
                const int first = s - at->context_begin + 10 * (int)f, last = first + e - s;
                const int begin = 2 * first + (first > 3), end = 2 * last + 1 + (last >= 3);
                snprintf(text, 256, "%.*s", end - begin, context + begin);
            }
        }
    }
    return best;
}

static void test_answers(void **state)
{
    const s24_qa_answers_opts opts = {.size = sizeof opts, .best = 100, .max_tokens = 5};
    uint64_t random = 7;
    (void)state;
    write_vocab();
    s24_qa *qa = long_question();
    s24_tokenizer *tokenizer = load(io_path("vocab.txt"));
    s24_qa_features *features = make(qa, tokenizer, 25, 10, 0);
    assert_int_equal(s24_qa_features_count(features), 3);
    for (int round = 0; round < 50; round++) {
        float values[6][25], *logits[6];
        char expected[256];
        s24_qa_answers *answers;
        for (int i = 0; i < 6; i++) {
            logits[i] = values[i];
            for (int t = 0; t < 25; t++)
                values[i][t] = test_uniform(&random);
        }
        values[0][0] = values[1][0] = 9; /* "not in here" is no answer */
        values[2][9] = NAN;
        search(features, logits, 5, expected, s24_qa_at(qa, 0)->context.data);
        assert_int_equal(s24_qa_answers_create(&answers, ctx, features, &opts), S24_OK);
        assert_int_equal(s24_qa_answers_text(answers, 0).bytes, 0);
        for (int f = 0; f < 3; f++) { /* in any order */
            const int at = (f + round) % 3;
            s24_qa_answers_add(answers, at, logits[2 * at], logits[2 * at + 1]);
        }
        const s24_text got = s24_qa_answers_text(answers, 0);
        assert_int_equal(got.bytes, strlen(expected));
        assert_memory_equal(got.data, expected, got.bytes);
        s24_qa_answers_destroy(answers);
    }
    s24_qa_features_destroy(features);
    s24_tokenizer_destroy(tokenizer);
    s24_qa_destroy(qa);
}

static void test_best(void **state)
{
    /* With the two best of each, the likeliest end stands before every start that counts. */
    float starts[9] = {0, 0, 0, 0, 0, 1, 5, 4, 0}, ends[9] = {8, 0, 0, 0, 7, 6, 1, 1, 0};
    s24_qa_answers_opts opts = {.size = sizeof opts, .best = 2};
    s24_qa_answers *answers;
    (void)state;
    write_vocab();
    io_write_text(io_path("one.json"), QA("c d e f", ANSWER("4", "e")));
    s24_tokenizer *tokenizer = load(io_path("vocab.txt"));
    s24_qa *qa = read_qa(io_path("one.json"));
    s24_qa_features *features = make(qa, tokenizer, 9, 0, 0);
    double exact, f1;
    for (int best = 2; best <= 5; best += 3) {
        opts.best = best;
        assert_int_equal(s24_qa_answers_create(&answers, ctx, features, &opts), S24_OK);
        s24_qa_answers_add(answers, 0, starts, ends);
        const s24_text got = s24_qa_answers_text(answers, 0);
        /* With five it is "d": 1 + 6, and not "c", whose start is 0 beside an end of 7. */
        assert_int_equal(got.bytes, best == 2 ? 0 : 1);
        if (best == 5) assert_int_equal(*got.data, 'd');
        assert_int_equal(s24_qa_answers_score(&exact, &f1, ctx, answers), S24_OK);
        assert_true(exact == 0 && f1 == 0);
        s24_qa_answers_destroy(answers);
    }
    opts.best = 101;
    assert_int_equal(s24_qa_answers_create(&answers, ctx, features, &opts), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "best is 101, 1 to 100");
    s24_qa_features_destroy(features);
    s24_qa_destroy(qa);
    s24_tokenizer_destroy(tokenizer);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{", "JSON is expected, but at line 1"},
        {"[]", "\"data\" is missing, an array of articles"},
        {"{\"data\":3}", "\"data\" is of another type"},
        {"{\"data\":[]}", "has no question"},
        {"{\"data\":[{}]}", "data[0]: \"paragraphs\" is missing"},
        {"{\"data\":[{\"paragraphs\":[{\"qas\":[]}]}]}", "data[0].paragraphs[0]: \"context\""},
        {"{\"data\":[{\"paragraphs\":[{\"context\":\"x\",\"qas\":[{\"id\":7}]}]}]}",
         "data[0].paragraphs[0].qas[0]: \"id\" is of another type, a string"},
        {QA("c d", ""), "qas[0]: question q1 has no answer"},
        {QA("c d", ANSWER("0", "c") "," ANSWER("\\\"0\\\"", "c")), "JSON is expected"},
        {QA("c d", ANSWER("0", "c") "," ANSWER("0.5", "c")),
         "qas[0].answers[1]: \"answer_start\" is of another type, a whole number"},
        {QA("c d", ANSWER("1", "d")),
         "the answer \"d\" of question q1 does not stand at character 1"},
        {QA("c d", ANSWER("-1", "d")), "at character -1"},
        {QA("c d", ANSWER("9", "d")), "at character 9"},
        {QA("c d", ANSWER("2", "de")), "the answer \"de\""},
        {QA("c d\xff", ANSWER("2", "d")), "JSON is expected"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_qa *qa = (void *)&qa;
        io_write_text(io_path("bad.json"), cases[i].text);
        assert_int_equal(s24_qa_read(&qa, ctx, io_path("bad.json")), S24_ERROR_FORMAT);
        assert_null(qa);
        assert_sentence(ctx, "bad.json");
        assert_sentence(ctx, cases[i].part);
    }
    s24_qa *qa;
    assert_int_equal(s24_qa_read(&qa, ctx, io_path("nowhere.json")), S24_ERROR_IO);
    assert_sentence(ctx, "nowhere.json");
    s24_qa_destroy(NULL);
}

static void test_no_room(void **state)
{
    static const struct {
        int64_t max_tokens, stride;
        const char *part;
    } cases[] = {
        {5, 0, "question q1 has 2 tokens, which leaves 0 of max_tokens 5"},
        {8, 3, "more than the stride, 3"},
        {3, 0, "max_tokens is 3, 4 to"},
        {9, 6, "stride is 6"},
        {9, -1, "stride is -1"},
    };
    (void)state;
    write_vocab();
    io_write_text(io_path("one.json"), QA("c d e f g h", ANSWER("4", "e f")));
    s24_tokenizer *tokenizer = load(io_path("vocab.txt"));
    s24_qa *qa = read_qa(io_path("one.json"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24_qa_features_opts opts = {
            .size = sizeof opts, .max_tokens = cases[i].max_tokens, .stride = cases[i].stride};
        s24_qa_features *features = (void *)&features;
        assert_int_equal(s24_qa_features_create(&features, ctx, qa, tokenizer, &opts),
                         S24_ERROR_ARGUMENT);
        assert_null(features);
        assert_sentence(ctx, cases[i].part);
    }
    s24_qa_destroy(qa);
    s24_tokenizer_destroy(tokenizer);
}

static s24_status all_of_it(s24_ctx *failing_ctx)
{
    s24_qa *qa = NULL;
    s24_tokenizer *tokenizer = NULL;
    s24_qa_features *features = NULL;
    s24_qa_answers *answers = NULL;
    double exact, f1;
    s24_status status = s24_qa_read(&qa, failing_ctx, io_path("one.json"));
    if (status == S24_OK)
        status = s24_tokenizer_load(&tokenizer, failing_ctx, io_path("vocab.txt"));
    if (status == S24_OK)
        status = s24_qa_features_create(&features, failing_ctx, qa, tokenizer, NULL);
    if (status == S24_OK) status = s24_qa_answers_create(&answers, failing_ctx, features, NULL);
    if (status == S24_OK) status = s24_qa_answers_score(&exact, &f1, failing_ctx, answers);
    s24_qa_answers_destroy(answers);
    s24_qa_features_destroy(features);
    s24_tokenizer_destroy(tokenizer);
    s24_qa_destroy(qa);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    write_vocab();
    io_write_text(io_path("one.json"), QA("c d e f g h", ANSWER("4", "e f")));
    assert_true(count_failures(all_of_it) >= 20);
}

/* A feature in one piece is what the tokenizer makes of both texts, as BERT has them or RoBERTa. */
static void test_as_the_tokenizer(void **state)
{
    static const char *const around[] = {"BertProcessing", "RobertaProcessing"};
    (void)state;
    io_write_text(io_path("one.json"), QA("ab ab b", ANSWER("3", "ab")));
    s24_qa *qa = read_qa(io_path("one.json"));
    for (int i = 0; i < 2; i++) {
        char json[800];
        s24_token tokens[32];
        int32_t ids[32], types[32];
        int64_t count;
        snprintf(json, sizeof json,
                 "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                 "\"post_processor\":{\"type\":\"%s\",\"sep\":[\"</s>\",1],\"cls\":[\"<s>\",0],"
                 "\"trim_offsets\":true,\"add_prefix_space\":false},\"added_tokens\":["
                 "{\"id\":0,\"content\":\"<s>\",\"special\":true},"
                 "{\"id\":1,\"content\":\"</s>\",\"special\":true}],"
                 "\"model\":{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"</s>\":1,\"a\":2,\"b\":3,"
                 "\"ab\":4,\"\\u0120\":5,\"c\":6,\"d\":7},\"merges\":[\"a b\"]}}",
                 around[i]);
        io_write_text(io_path("tokenizer.json"), json);
        s24_tokenizer *tokenizer = load(io_path("tokenizer.json"));
        s24_qa_features *features = make(qa, tokenizer, 32, 0, 0);
        const s24_text question = s24_qa_at(qa, 0)->text;
        assert_int_equal(s24_tokenizer_encode(tokens, &count, 32, tokenizer, ctx, question.data,
                                              question.bytes, "ab ab b", 7),
                         S24_OK);
        const s24_qa_feature *f = s24_qa_feature_at(features, 0);
        assert_int_equal(s24_qa_features_count(features), 1);
        assert_int_equal(f->tokens, count);
        s24_qa_feature_write(ids, types, features, 0);
        for (int64_t t = 0; t < count; t++) {
            assert_int_equal(ids[t], tokens[t].id);
            assert_int_equal(types[t], tokens[t].type);
        }
        assert_int_equal(ids[f->context_begin], 4);
        assert_int_equal(f->context_begin, f->context_end - 5);
        assert_int_equal(ids[f->start], 4);
        assert_int_equal(f->start, f->context_begin + 2);
        s24_qa_features_destroy(features);
        s24_tokenizer_destroy(tokenizer);
    }
    s24_qa_destroy(qa);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_features), cmocka_unit_test(test_golden_metric),
        cmocka_unit_test(test_scores),          cmocka_unit_test(test_windows),
        cmocka_unit_test(test_answers),         cmocka_unit_test(test_best),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_memory),          cmocka_unit_test(test_as_the_tokenizer),
    };
    return cmocka_run_group_tests(tests, ctx_folder_setup, ctx_folder_teardown);
}
