// SPDX-License-Identifier: Apache-2.0
/* Gradients of every loss, with dropout too, against finite differences; what passes refuse. */
#include "support.h"

#include "nn_train_slopes.h"
#include "nn_train_support.h"

/* ---- finite differences ---------------------------------------------------------------------- */

typedef struct batch {
    int64_t offsets[4];
    int32_t ids[18], types[18], starts[3], ends[3];
    uint8_t mask[18];
    s24_examples examples;
} batch;

static void fill_batch(batch *b)
{
    *b = (batch){.offsets = {0, 9, 10, 18}, .starts = {2, 0, -1}, .ends = {5, 0, 3}};
    for (int i = 0; i < 18; i++) {
        b->ids[i] = (i * 7 + 2) % TINY_VOCABULARY;
        b->types[i] = i % 9 > 4;
        b->mask[i] = i != 3 && i != 16;
    }
    b->examples = (s24_examples){.texts = {3, b->offsets, b->ids, b->types, b->mask, NULL},
                                 .starts = b->starts,
                                 .ends = b->ends};
}

/* Along each tensor's own gradient the loss must rise by the gradient's length. */
static void check_slopes_of(const char *folder, const s24_objective *objective, float h)
{
    s24_ctx *ctx = new_ctx();
    s24_transformer *t, *teacher = load_teacher(ctx);
    s24_objective o = *objective;
    batch b;
    fill_batch(&b);
    OK(ctx, load_as(&t, ctx, folder, 1));
    o.size = sizeof o;
    if (o.logits + o.hidden + o.cosine > 0) o.teacher = teacher;
    assert_true(slopes_agree(t, ctx, &b.examples, &o, h) > 20);
    s24_transformer_destroy(t);
    s24_transformer_destroy(teacher);
    s24_ctx_destroy(ctx);
}

static void check_slopes(const s24_objective *objective)
{
    check_slopes_of(student_folder, objective, 4e-3f);
}

static void slopes(void **state)
{
    (void)state;
    check_slopes(&(s24_objective){.labels = 1});
    check_slopes(&(s24_objective){.logits = 1, .temperature = 2});
    check_slopes(&(s24_objective){.hidden = 1});
    check_slopes(&(s24_objective){.cosine = 5});
    check_slopes(&(s24_objective){.labels = 0.5, .logits = 0.3, .hidden = 0.7, .cosine = 2});
}

static void slopes_with_dropout(void **state)
{
    (void)state;
    check_slopes(&(s24_objective){.labels = 1, .dropout = 0.2, .seed = 4});
    check_slopes(&(s24_objective){.labels = 1, .attention_dropout = 0.3, .seed = 5});
    check_slopes(&(s24_objective){
        .hidden = 1, .cosine = 3, .dropout = 0.1, .attention_dropout = 0.1, .seed = 6});
}

/* Of maxima: what has the most is what moves it, as long as no other token has more. */
static void slopes_of_poolings(void **state)
{
    static const struct {
        const char *pooling;
        float h;
    } cases[] = {{"{\"word_embedding_dimension\":12,\"pooling_mode_max_tokens\":true}", 3e-4f},
                 {"{\"pooling_mode_lasttoken\":true}", 4e-3f}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tiny pooled = {
            .qa_head = 1,
            .activation = "gelu",
            .modules = "[{\"idx\":0,\"path\":\"\",\"type\":\"sentence_transformers.models."
                       "Transformer\"},{\"idx\":1,\"path\":\"1_Pooling\",\"type\":"
                       "\"sentence_transformers.models.Pooling\"}]",
            .pooling = cases[i].pooling};
        char folder[512];
        snprintf(folder, sizeof folder, "%s", tiny_write(&pooled, i ? "last" : "most"));
        check_slopes_of(folder, &(s24_objective){.cosine = 5}, cases[i].h);
    }
}

/* Dropout is what its seed says: the same bits, and others with another seed. */
static void dropout_by_seed(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24_transformer *t;
    batch b;
    (void)state;
    fill_batch(&b);
    OK(ctx, load_as(&t, ctx, student_folder, 1));
    s24_objective o = {.size = sizeof o, .labels = 1, .dropout = 0.3, .seed = 1};
    const double first = loss_of(t, ctx, &b.examples, &o);
    assert_true(loss_of(t, ctx, &b.examples, &o) == first);
    o.seed = 2;
    assert_true(loss_of(t, ctx, &b.examples, &o) != first);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refuses(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24_transformer *t;
    batch b;
    double loss;
    float states[600];
    s24_objective o = {.size = sizeof o, .hidden = 1};
    const s24_pass_outputs outputs = {.states = states};
    (void)state;
    fill_batch(&b);
    OK(ctx, load_as(&t, ctx, student_folder, 0));
    assert_int_equal(s24_transformer_gradients(&loss, t, ctx, &b.examples, &o), S24_ERROR_ARGUMENT);
    b.ids[4] = TINY_VOCABULARY;
    assert_int_equal(s24_transformer_forward(t, ctx, &b.examples, &outputs), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "token 4 of text 0 is 11"));
    b.ids[4] = 0;
    b.types[10] = 2;
    assert_int_equal(s24_transformer_forward(t, ctx, &b.examples, &outputs), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "token 0 of text 2 has type 2; the model has 2"));
    b.types[10] = 0;
    b.offsets[3] = 20;
    assert_int_equal(s24_transformer_forward(t, ctx, &b.examples, &outputs), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "text 2 has 10 tokens; the model has 9 positions"));
    b.offsets[3] = 18;
    b.starts[0] = 9;
    assert_int_equal(s24_transformer_forward(t, ctx, &b.examples, &outputs), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "starts[0] is 9"));
    s24_transformer_destroy(t);
    OK(ctx, load_as(&t, ctx, student_folder, 1));
    fill_batch(&b);
    assert_int_equal(s24_transformer_gradients(&loss, t, ctx, &b.examples, &o), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "has no teacher"));
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slopes_of_poolings),
        cmocka_unit_test(slopes),
        cmocka_unit_test(slopes_with_dropout),
        cmocka_unit_test(dropout_by_seed),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, train_setup, io_folder_teardown);
}
