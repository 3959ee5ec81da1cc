// SPDX-License-Identifier: Apache-2.0
/* Gradients to prune by: the means of what a pass for each example gives, handed to the criterion
   of the tensor they are of. */
#include "support.h"

#include "nn_train_support.h"

enum { EXAMPLES = 3, MOST = 7 };
static const int32_t lengths[EXAMPLES] = {5, MOST, 4};
static const char name[] = "encoder.layer.1.output.dense.weight";

static s24_status write_example(void *user, s24_ctx *ctx, const s24_example *example, int64_t index)
{
    (void)user;
    (void)ctx;
    for (int32_t i = 0; i < lengths[index]; i++)
        example->ids[i] = (int32_t)((3 * index + 2 * i) % TINY_VOCABULARY);
    *example->start = (int32_t)index;
    *example->end = 3;
    return S24_OK;
}

static const s24_train_source source = {EXAMPLES, lengths, write_example, NULL};

/* The gradient of one example, by the pass itself. */
static float *gradient_of(s24_transformer *t, s24_ctx *ctx, int64_t index, int64_t *count)
{
    int32_t ids[MOST], start = (int32_t)index, end = 3;
    const int64_t offsets[] = {0, lengths[index]};
    const s24_objective objective = {.size = sizeof objective, .labels = 1};
    const s24_example example = {.ids = ids, .start = &start, .end = &end};
    const s24_examples examples = {
        .texts = {.texts = 1, .offsets = offsets, .ids = ids}, .starts = &start, .ends = &end};
    s24_parameter p;
    double loss;
    write_example(NULL, ctx, &example, index);
    s24_transformer_clear(t, ctx);
    OK(ctx, s24_transformer_gradients(&loss, t, ctx, &examples, &objective));
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        const size_t length = strlen(p.name), tail = sizeof name - 1;
        if (length < tail || strcmp(p.name + length - tail, name) != 0) continue;
        float *gradient = malloc((size_t)p.count * sizeof *gradient);
        OK(ctx, s24_transformer_read(gradient, t, ctx, i, 1));
        *count = p.count;
        return gradient;
    }
    fail();
    return NULL;
}

typedef struct seen {
    float *mean, *size, *square; /* expected */
    int calls;
} seen;

static s24_status compare(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    seen *s = user;
    (void)ctx;
    s->calls++;
    assert_non_null(in->gradients);
    for (int64_t i = 0; i < in->rows * in->cols; i++) {
        assert_true(fabsf(in->gradients->mean[i] - s->mean[i]) <= 1e-6f);
        assert_true(fabsf(in->gradients->size[i] - s->size[i]) <= 1e-6f);
        assert_true(fabsf(in->gradients->square[i] - s->square[i]) <= 1e-6f);
        scores[i] = (double)in->gradients->size[i];
    }
    return S24_OK;
}

static void expect(seen *s, s24_transformer *t, s24_ctx *ctx)
{
    int64_t count = 0;
    for (int64_t e = 0; e < EXAMPLES; e++) {
        float *g = gradient_of(t, ctx, e, &count);
        if (!s->mean) {
            s->mean = calloc(3 * (size_t)count, sizeof *s->mean);
            s->size = s->mean + count;
            s->square = s->size + count;
        }
        for (int64_t i = 0; i < count; i++) {
            s->mean[i] += g[i] / EXAMPLES;
            s->size[i] += fabsf(g[i]) / EXAMPLES;
            s->square[i] += g[i] * g[i] / EXAMPLES;
        }
        free(g);
    }
}

static void a_criterion_gets_the_means_over_examples(void **state)
{
    (void)state;
    s24_ctx *ctx = new_ctx();
    s24_transformer *t;
    s24_model_gradients *gradients;
    s24_checkpoint *in;
    seen s = {.calls = 0};
    OK(ctx, load_as(&t, ctx, student_folder, 1));
    const s24_model_gradients_opts opts = {.size = sizeof opts, .objective = {.labels = 1}};
    OK(ctx, s24_model_gradients_create(&gradients, ctx, t, &source, &opts));
    expect(&s, t, ctx);
    OK(ctx, s24_checkpoint_open(&in, ctx, student_folder));
    s24_model_prune_opts prune = {.size = sizeof prune,
                                  .prune = {.score = compare, .score_user = &s},
                                  .include = "*encoder.layer.1.output.dense.weight",
                                  .gradients = gradients};
    OK(ctx, s24_model_prune(ctx, in, io_path("by-score"), &prune));
    assert_int_equal(s.calls, 1);
    prune.prune = (s24_prune_opts){.criterion = "taylor-second"};
    prune.include = NULL;
    OK(ctx, s24_model_prune(ctx, in, io_path("by-name"), &prune));
    prune.gradients = NULL;
    assert_int_equal(s24_model_prune(ctx, in, io_path("without"), &prune), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "needs gradients"));
    free(s.mean);
    s24_checkpoint_close(in);
    s24_model_gradients_destroy(gradients);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

static void refusals(void **state)
{
    (void)state;
    s24_ctx *ctx = new_ctx();
    s24_transformer *t;
    s24_model_gradients *gradients;
    s24_checkpoint *in;
    OK(ctx, load_as(&t, ctx, student_folder, 1));
    s24_model_gradients_opts opts = {
        .size = sizeof opts, .objective = {.labels = 1}, .examples = EXAMPLES + 1};
    assert_int_equal(s24_model_gradients_create(&gradients, ctx, t, &source, &opts),
                     S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "4 examples; expected 1 to the source's 3"));
    opts.examples = 1;
    opts.include = "none";
    assert_int_equal(s24_model_gradients_create(&gradients, ctx, t, &source, &opts),
                     S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "none of the model's is selected"));
    opts.include = "*layer.0*";
    OK(ctx, s24_model_gradients_create(&gradients, ctx, t, &source, &opts));
    OK(ctx, s24_checkpoint_open(&in, ctx, student_folder));
    const s24_model_prune_opts prune = {
        .size = sizeof prune, .prune = {.criterion = "snip"}, .gradients = gradients};
    assert_int_equal(s24_model_prune(ctx, in, io_path("half"), &prune), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "no gradients were taken of this tensor"));
    s24_checkpoint_close(in);
    s24_model_gradients_destroy(gradients);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_criterion_gets_the_means_over_examples),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, train_setup, io_folder_teardown);
}
