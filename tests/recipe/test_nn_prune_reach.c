// SPDX-License-Identifier: Apache-2.0
/* What a layer costs the model: sensitivity's model_error next to that of the model that prune
   writes with this one layer pruned, of texts' vectors and of states. */
#include <math.h>

#include "nn_prune_support.h"
#include "run/session.h"

enum { MOST_TOKENS = TEXTS * TINY_POSITIONS, MOST_GIVEN = MOST_TOKENS * TINY_WIDTH };

static const char modules[] =
    "[{\"type\": \"sentence_transformers.models.Transformer\", \"path\": \"\"}, "
    "{\"type\": \"sentence_transformers.models.Pooling\", "
    "\"path\": \"1_Pooling\"}]";
static const char pooling[] =
    "{\"word_embedding_dimension\": 12, \"pooling_mode_mean_tokens\": true}";

/* What a model gives for the texts; how many numbers. */
static int64_t give(s24_ctx *ctx, float *given, const char *folder, int vectors)
{
    s24_checkpoint *in;
    s24_model *model;
    s24_session *session;
    int64_t offsets[TEXTS + 1];
    int32_t ids[MOST_TOKENS];
    OK(ctx, s24_checkpoint_open(&in, ctx, folder));
    OK(ctx, s24_model_load(&model, ctx, in, NULL));
    OK(ctx, s24_session_create(&session, ctx, model, MOST_TOKENS));
    const s24_batch batch = tokenize(ctx, folder, offsets, ids);
    s24_outputs outputs = {.hidden = NULL};
    *(vectors ? &outputs.embeddings : &outputs.hidden) = given;
    OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_checkpoint_close(in);
    return (vectors ? TEXTS : offsets[TEXTS]) * TINY_WIDTH;
}

static double cosine(const float *given, int a, int b)
{
    double product = 0.0, of_a = 0.0, of_b = 0.0;
    for (int i = 0; i < TINY_WIDTH; i++) {
        const double x = (double)given[a * TINY_WIDTH + i], y = (double)given[b * TINY_WIDTH + i];
        product += x * y;
        of_a += x * x;
        of_b += y * y;
    }
    return product / sqrt(of_a * of_b);
}

/* The mean squared change of each text's five largest cosines. */
static double moved_cosines(const float *dense, const float *given)
{
    double lost = 0.0;
    for (int t = 0; t < TEXTS; t++)
        for (int other = 0; other < TEXTS; other++) {
            int nearer = 0;
            for (int third = 0; third < TEXTS; third++)
                nearer += third != t && cosine(dense, t, third) > cosine(dense, t, other);
            if (other == t || nearer >= 5) continue;
            lost += pow(cosine(given, t, other) - cosine(dense, t, other), 2);
        }
    return lost / (TEXTS * 5);
}

static void assert_costs(s24_ctx *ctx, const char *in, const reports *r, int vectors)
{
    static float dense[MOST_GIVEN], given[MOST_GIVEN];
    give(ctx, dense, in, vectors);
    for (int i = 0; i < r->count; i++) {
        s24_model_prune_opts opts = options("magnitude", NULL);
        double lost = 0.0, whole = 0.0;
        opts.include = r->names[i];
        opts.force = 1;
        OK(ctx, prune_path(ctx, in, io_path("reach-out"), &opts));
        const int64_t count = give(ctx, given, io_path("reach-out"), vectors);
        for (int64_t k = 0; k < count; k++) {
            lost += pow((double)given[k] - (double)dense[k], 2);
            whole += pow((double)dense[k], 2);
        }
        const double loss = vectors ? moved_cosines(dense, given) : lost / whole;
        assert_true(loss > 0.0);
        if (!(fabs(r->layers[i].model_error - loss) <= 1e-3 * loss))
            fail_msg("%s: %g, by the pruned model %g", r->names[i], r->layers[i].model_error, loss);
    }
}

static void measure(s24_ctx *ctx, reports *r, const char *in, const char *const *forms, int count,
                    const char *price)
{
    s24_checkpoint *checkpoint;
    s24_model_prune_opts opts = options("magnitude", r);
    opts.price = price;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, in));
    OK(ctx, s24_model_sensitivity(ctx, checkpoint, &opts, forms, count));
    s24_checkpoint_close(checkpoint);
}

static void the_models_error_is_the_pruned_models(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("reach", S24_F32), *const forms[] = {"2:4"};
    const tiny pooled = {.modules = modules, .pooling = pooling};
    char path[700], folder[512];
    reports r;
    measure(ctx, &r, in, forms, 1, "model");
    assert_int_equal(r.count, LAYERS);
    assert_costs(ctx, in, &r, 0);
    snprintf(folder, sizeof folder, "%s", tiny_write(&pooled, "reach-pooled"));
    in = folder;
    snprintf(path, sizeof path, "%s/vocab.txt", in);
    tiny_write_text(path, vocabulary);
    measure(ctx, &r, in, forms, 1, "model");
    assert_costs(ctx, in, &r, 1);
    measure(ctx, &r, in, forms, 1, "layer");
    for (int i = 0; i < r.count; i++)
        assert_true(r.layers[i].model_error == -1.0 && r.layers[i].output_error > 0.0);
    s24_ctx_destroy(ctx);
}

/* There is room for the reports of one block's layers in two forms. */
static void other_forms_go_by_their_own_error(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("reach-forms", S24_F32), *const forms[] = {"2:4", "3:4"};
    s24_checkpoint *checkpoint;
    reports r;
    s24_model_prune_opts opts = options("magnitude", &r);
    opts.price = "model";
    opts.include = "*.layer.0.*";
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, in));
    OK(ctx, s24_model_sensitivity(ctx, checkpoint, &opts, forms, 2));
    assert_int_equal(r.count, LAYERS);
    for (int i = 0; i < r.count; i += 2) {
        const s24_layer_report *half = &r.layers[i], *more = &r.layers[i + 1];
        assert_true(0.0 < more->model_error && more->model_error < half->model_error);
        assert_true(fabs(more->model_error / half->model_error -
                         more->output_error / half->output_error) < 1e-9);
    }
    opts.memory = 1;
    r.count = 0;
    assert_int_equal(s24_model_sensitivity(ctx, checkpoint, &opts, forms, 2), S24_ERROR_MEMORY);
    assert_non_null(strstr(s24_ctx_error(ctx), "of 1e-09 GB that they may"));
    assert_int_equal(r.count, 0);
    opts.price = "model-or-layer";
    OK(ctx, s24_model_sensitivity(ctx, checkpoint, &opts, forms, 2));
    assert_int_equal(r.count, LAYERS);
    for (int i = 0; i < r.count; i++)
        assert_true(r.layers[i].model_error == -1.0 && r.layers[i].output_error > 0.0);
    opts.price = "task";
    assert_int_equal(s24_model_sensitivity(ctx, checkpoint, &opts, forms, 2), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "price of sensitivity is \"task\"; expected layer"));
    s24_checkpoint_close(checkpoint);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_models_error_is_the_pruned_models),
        cmocka_unit_test(other_forms_go_by_their_own_error),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
