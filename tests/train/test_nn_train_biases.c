// SPDX-License-Identifier: Apache-2.0
/* A bias that a checkpoint has not, among layers that read one input and have theirs, is trained
   from 0 on and saved with the others. */
#include "support.h"

#include "nn_io_folder.h"
#include "nn_language.h"
#include "nn_train_support.h"

enum { TOKENS = 12 };

static const char *folder_of(int biased)
{
    static char path[512];
    char name[32];
    const lm_spec spec = {.llama = 1, .biased = biased};
    snprintf(name, sizeof name, "biased%d", biased);
    snprintf(path, sizeof path, "%s", io_path(name));
    lm_write(&spec, path);
    return path;
}

static s24_transformer *with_gradients(s24_ctx *ctx, const char *folder)
{
    static const int64_t offsets[] = {0, 5, TOKENS};
    const s24_objective objective = {.size = sizeof objective, .labels = 1};
    int32_t ids[TOKENS], targets[TOKENS];
    s24_transformer *t;
    double loss;
    OK(ctx, load_as(&t, ctx, folder, 1));
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (i * 7 + 2) % LM_VOCABULARY;
        targets[i] = (i * 5 + 1) % LM_VOCABULARY;
    }
    const s24_examples examples = {.texts = {.texts = 2, .offsets = offsets, .ids = ids},
                                   .targets = targets};
    OK(ctx, s24_transformer_gradients(&loss, t, ctx, &examples, &objective));
    return t;
}

static void is_zero_in_its_place(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24_parameter p, q;
    int64_t i = 0, biases = 0;
    (void)state;
    s24_transformer *whole = with_gradients(ctx, folder_of(1));
    s24_transformer *made = with_gradients(ctx, folder_of(2));
    for (; s24_transformer_parameter(&p, whole, i); i++) {
        const size_t bytes = (size_t)p.count * sizeof(float);
        float *a = malloc(bytes), *b = malloc(bytes);
        assert_true(s24_transformer_parameter(&q, made, i));
        assert_string_equal(p.name, q.name);
        assert_int_equal(p.count, q.count);
        for (int gradient = 0; gradient < 2; gradient++) {
            OK(ctx, s24_transformer_read(a, whole, ctx, i, gradient));
            OK(ctx, s24_transformer_read(b, made, ctx, i, gradient));
            assert_memory_equal(a, b, bytes);
        }
        biases += strstr(p.name, "k_proj.bias") != NULL;
        free(a), free(b);
    }
    assert_false(s24_transformer_parameter(&q, made, i));
    assert_int_equal(biases, LM_LAYERS);
    s24_transformer_destroy(whole);
    s24_transformer_destroy(made);
    s24_ctx_destroy(ctx);
}

static void is_saved(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24_checkpoint *model;
    const s24_tensor *bias;
    (void)state;
    const char *from = folder_of(2), *to = io_path("saved");
    s24_transformer *t = with_gradients(ctx, from);
    OK(ctx, s24_checkpoint_open(&model, ctx, from));
    assert_null(s24_checkpoint_find(model, "model.layers.1.self_attn.k_proj.bias"));
    OK(ctx, s24_transformer_save(t, ctx, model, to, 0));
    s24_checkpoint_close(model);
    OK(ctx, s24_checkpoint_open(&model, ctx, to));
    assert_non_null(bias = s24_checkpoint_find(model, "model.layers.1.self_attn.k_proj.bias"));
    assert_int_equal(bias->dtype, S24_F32);
    assert_int_equal(bias->rank, 1);
    s24_checkpoint_close(model);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_zero_in_its_place),
        cmocka_unit_test(is_saved),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
