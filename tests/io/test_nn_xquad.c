// SPDX-License-Identifier: Apache-2.0
/*
 * A real encoder on a real task: all-MiniLM-L6-v2 (its folder named by the environment variable
 * SPARSE24_MODEL) finds the paragraphs that XQuAD's English questions were asked about as well as
 * it does in PyTorch: top-1 88.49 %, top-5 98.15 % of 1190 questions.
 */
#include "support.h"

#include <math.h>

#include <jansson.h>

#include "sparse24/nn.h"

enum { PARAGRAPHS = 240, QUESTIONS = 1190 };

typedef struct task {
    s24_text paragraphs[PARAGRAPHS], questions[QUESTIONS];
    int64_t gold[QUESTIONS];
    int paragraph_count, question_count;
} task;

static s24_text text_at(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return (s24_text){json_string_value(value), json_string_length(value)};
}

static void collect(task *t, json_t *root)
{
    json_t *article, *paragraph, *question;
    size_t a, p, q;
    json_array_foreach (json_object_get(root, "data"), a, article) {
        json_array_foreach (json_object_get(article, "paragraphs"), p, paragraph) {
            assert_true(t->paragraph_count < PARAGRAPHS);
            t->paragraphs[t->paragraph_count] = text_at(paragraph, "context");
            json_array_foreach (json_object_get(paragraph, "qas"), q, question) {
                assert_true(t->question_count < QUESTIONS);
                t->gold[t->question_count] = t->paragraph_count;
                t->questions[t->question_count++] = text_at(question, "question");
            }
            t->paragraph_count++;
        }
    }
    assert_int_equal(t->paragraph_count, PARAGRAPHS);
    assert_int_equal(t->question_count, QUESTIONS);
}

static void assert_share(s24_ctx *ctx, const s24_dense *questions, const s24_dense *paragraphs,
                         const task *t, int64_t k, double percent)
{
    double share;
    assert_int_equal(s24_retrieval_accuracy(&share, ctx, questions, paragraphs, t->gold, k),
                     S24_OK);
    print_message("top-%d %.2f %%\n", (int)k, 100 * share);
    assert_true(fabs(100 * share - percent) <= 0.1);
}

static void test_retrieval(void **state)
{
    char path[512];
    const char *folder = getenv("SPARSE24_MODEL");
    static task t;
    s24_ctx *ctx;
    s24_encoder *encoder;
    (void)state;
    if (!folder) SKIP_WITHOUT("a model's folder named by SPARSE24_MODEL");
    if (!data_path(path, sizeof path, "qa/qa-dev.json")) SKIP_WITHOUT(path);
    json_t *root = json_load_file(path, 0, NULL);
    collect(&t, root);
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    const s24_encoder_opts opts = {.size = sizeof opts, .max_tokens = 256};
    if (s24_encoder_open(&encoder, ctx, folder, &opts) != S24_OK)
        fail_msg("%s", s24_ctx_error(ctx));
    const int64_t width = s24_encoder_width(encoder);
    float *q = malloc((size_t)(QUESTIONS * width) * sizeof *q);
    float *p = malloc((size_t)(PARAGRAPHS * width) * sizeof *p);
    assert_int_equal(s24_encoder_embed(q, NULL, encoder, ctx, t.questions, QUESTIONS), S24_OK);
    assert_int_equal(s24_encoder_embed(p, NULL, encoder, ctx, t.paragraphs, PARAGRAPHS), S24_OK);
    const s24_dense questions = {q, S24_F32, QUESTIONS, width, 0};
    const s24_dense paragraphs = {p, S24_F32, PARAGRAPHS, width, 0};
    assert_share(ctx, &questions, &paragraphs, &t, 1, 88.49);
    assert_share(ctx, &questions, &paragraphs, &t, 5, 98.15);
    free(q);
    free(p);
    s24_encoder_close(encoder);
    s24_ctx_destroy(ctx);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_retrieval)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
