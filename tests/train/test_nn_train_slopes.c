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
    s24_transformer *t, *teacher = load_moved(ctx, folder);
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

#define MODULE(name, path)                                                                         \
    "{\"path\":\"" path "\",\"type\":\"sentence_transformers.models." name "\"}"
#define POOLED MODULE("Transformer", "") "," MODULE("Pooling", "1_Pooling")

/* Of maxima: what has the most is what moves it, as long as no other token has more. */
static void slopes_of_poolings(void **state)
{
    static const struct {
        const char *name, *pooling;
        float h;
    } cases[] = {
        {"most", "{\"word_embedding_dimension\":12,\"pooling_mode_max_tokens\":true}", 3e-4f},
        {"last", "{\"pooling_mode_lasttoken\":true}", 4e-3f},
        {"root", "{\"pooling_mode_mean_sqrt_len_tokens\":true}", 4e-3f},
        {"weighted", "{\"pooling_mode\":\"weightedmean\"}", 4e-3f},
        {"several", "{\"pooling_mode\":[\"weightedmean\",\"cls\",\"max\"]}", 3e-4f}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tiny pooled = {.qa_head = 1,
                             .activation = "gelu",
                             .modules = "[" POOLED "]",
                             .pooling = cases[i].pooling};
        char folder[512];
        snprintf(folder, sizeof folder, "%s", tiny_write(&pooled, cases[i].name));
        check_slopes_of(folder, &(s24_objective){.cosine = 5}, cases[i].h);
    }
}

/* ---- modules after pooling ------------------------------------------------------------------- */

enum { MADE = 8, ENDS = 6 }; /* what the first of them makes, and the last */

typedef struct weight {
    const char *name;
    int64_t rows, cols;
} weight;

static void write_module(const char *folder, const char *name, const char *config,
                         const weight *weights, int count)
{
    char path[600];
    float values[3][MADE * TINY_WIDTH];
    mini_tensor tensors[3];
    for (int i = 0; i < count; i++) {
        const int64_t elems = weights[i].rows * (weights[i].cols ? weights[i].cols : 1);
        for (int64_t k = 0; k < elems; k++)
            values[i][k] = tiny_value(name, 100 * i + k);
        tensors[i] = (mini_tensor){.name = weights[i].name,
                                   .dtype = S24_F32,
                                   .rank = weights[i].cols ? 2 : 1,
                                   .shape = {weights[i].rows, weights[i].cols},
                                   .data = values[i],
                                   .bytes = (size_t)elems * sizeof(float)};
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/config.json", folder, name);
    tiny_write_text(path, config);
    snprintf(path, sizeof path, "%s/%s/model.safetensors", folder, name);
    mini_write(path, tensors, count, NULL);
}

#define DENSE(in, out, activation, more)                                                           \
    "{\"in_features\":" in ",\"out_features\":" out                                                \
    ",\"activation_function\":\"torch.nn.modules.activation." activation "\"" more "}"

/* The folder's modules do not learn, and what they make is what the teacher's is compared with. */
static void slopes_of_modules(void **state)
{
    const tiny t = {
        .qa_head = 1,
        .activation = "gelu",
        .modules =
            "[" POOLED "," MODULE("Dense", "2_Dense") "," MODULE("LayerNorm", "3_Norm") "," MODULE(
                "Dense", "4_Dense") "," MODULE("Normalize",
                                               "") "," MODULE("Dense",
                                                              "5_Dense") "," MODULE("Normalize",
                                                                                    "") "]",
        .pooling = "{\"pooling_mode\":[\"mean\"]}"};
    char folder[512];
    s24_ctx *ctx = new_ctx();
    s24_transformer *transformer;
    s24_transformer_info info;
    (void)state;
    snprintf(folder, sizeof folder, "%s", tiny_write(&t, "modules"));
    write_module(folder, "2_Dense", DENSE("12", "8", "Tanh", ""),
                 (weight[]){{"linear.weight", MADE, TINY_WIDTH}, {"linear.bias", MADE, 0}}, 2);
    write_module(folder, "3_Norm", "{\"dimension\":8}",
                 (weight[]){{"norm.weight", MADE, 0}, {"norm.bias", MADE, 0}}, 2);
    write_module(folder, "4_Dense", DENSE("8", "8", "GELU", ",\"use_residual\":true"),
                 (weight[]){{"linear.weight", MADE, MADE}, {"linear.bias", MADE, 0}}, 2);
    write_module(folder, "5_Dense",
                 DENSE("8", "6", "SiLU", ",\"use_residual\":true,\"bias\":false"),
                 (weight[]){{"linear.weight", ENDS, MADE}, {"residual.weight", ENDS, MADE}}, 2);
    check_slopes_of(folder, &(s24_objective){.cosine = 5}, 4e-3f);
    OK(ctx, load_as(&transformer, ctx, folder, 0));
    s24_transformer_describe(&info, transformer);
    assert_int_equal(info.vector, ENDS);
    s24_transformer_destroy(transformer);
    s24_ctx_destroy(ctx);
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
        cmocka_unit_test(slopes_of_modules),
        cmocka_unit_test(slopes),
        cmocka_unit_test(slopes_with_dropout),
        cmocka_unit_test(dropout_by_seed),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, train_setup, io_folder_teardown);
}
