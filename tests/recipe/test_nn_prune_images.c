// SPDX-License-Identifier: Apache-2.0
/*
 * Pruning a model of images with images: every calibrated criterion on the small ViT of the golden
 * vectors, what reconstruction and permutation make of it, and what is refused.
 */
#include "nn_prune_support.h"
#include "nn_vit_support.h"

enum { VIT_LINEARS = VIT_LAYERS * 6 };

typedef struct errors {
    int count;
    double sum;
} errors;

static void add_error(void *user, const s24_layer_report *layer)
{
    errors *e = user;
    assert_true(layer->output_error > 0.0 && layer->output_error < 1.0);
    e->count++;
    e->sum += layer->output_error;
}

static s24_model_prune_opts image_options(const char *criterion, const vit_golden *g, errors *e)
{
    if (e) *e = (errors){0};
    return (s24_model_prune_opts){.size = sizeof(s24_model_prune_opts),
                                  .prune = {.criterion = criterion},
                                  .images = &g->batch,
                                  .force = 1,
                                  .report = e ? add_error : NULL,
                                  .user = e};
}

/* How far the logits of the golden images are from the dense model's, squared. */
static double distance_of(s24_ctx *ctx, const vit_golden *g, const char *folder)
{
    s24_model *model;
    s24_session *session;
    vit_results *r = malloc(sizeof *r);
    const s24_outputs outputs = {.logits = r->logits};
    const float *dense = mini_get(&g->io, "output.logits").data;
    double sum = 0;
    OK(ctx, load(&model, ctx, folder, NULL));
    OK(ctx, s24_session_create(&session, ctx, model, VIT_TOKENS));
    OK(ctx, s24_session_forward(session, ctx, &g->batch, &outputs));
    for (int i = 0; i < VIT_IMAGES * VIT_CLASSES; i++)
        sum += pow((double)r->logits[i] - (double)dense[i], 2);
    s24_session_destroy(session);
    s24_model_destroy(model);
    free(r);
    return sum;
}

static void every_criterion_is_calibrated(void **state)
{
    (void)state;
    vit_golden g;
    errors e;
    if (!vit_golden_open(&g)) SKIP_WITHOUT(g.folder);
    s24_ctx *ctx = make_ctx();
    const char *out = io_path("vit-out");
    double plain = 0;
    for (int c = 0; s24_criterion_name(c); c++) {
        if (s24_criterion_needs_gradients(s24_criterion_name(c))) continue;
        s24_model_prune_opts opts = image_options(s24_criterion_name(c), &g, &e);
        OK(ctx, prune_path(ctx, g.folder, out, &opts));
        assert_int_equal(e.count, VIT_LINEARS);
        if (!strcmp(s24_criterion_name(c), "magnitude")) plain = e.sum;
        if (!strcmp(s24_criterion_name(c), "wanda") || !strcmp(s24_criterion_name(c), "sparsegpt"))
            assert_true(e.sum < plain);
    }
    errors better;
    s24_model_prune_opts opts = image_options("sparsegpt", &g, &better);
    OK(ctx, prune_path(ctx, g.folder, out, &opts));
    opts = image_options("sparsegpt", &g, &e);
    opts.prune.refine = "all";
    OK(ctx, prune_path(ctx, g.folder, out, &opts));
    assert_true(e.sum < better.sum);
    mini_close(&g.io);
    s24_ctx_destroy(ctx);
}

/* Twice with the same bits, and nearer to the dense model than without. */
static void reconstruction_brings_the_model_nearer(void **state)
{
    (void)state;
    vit_golden g;
    if (!vit_golden_open(&g)) SKIP_WITHOUT(g.folder);
    s24_ctx *ctx = make_ctx();
    double distance[3];
    for (int i = 0; i < 3; i++) {
        s24_model_prune_opts opts = image_options("wanda", &g, NULL);
        opts.reconstruct = i ? 30 : 0;
        OK(ctx, prune_path(ctx, g.folder, io_path("vit-trained"), &opts));
        distance[i] = distance_of(ctx, &g, io_path("vit-trained"));
    }
    assert_true(distance[1] < distance[0] / 2);
    assert_true(distance[1] == distance[2]);
    mini_close(&g.io);
    s24_ctx_destroy(ctx);
}

static void sensitivity_and_permutation_see_images(void **state)
{
    (void)state;
    vit_golden g;
    errors e;
    s24_checkpoint *in;
    static const char *const forms[] = {"2:4", "4:8"};
    if (!vit_golden_open(&g)) SKIP_WITHOUT(g.folder);
    s24_ctx *ctx = make_ctx();
    OK(ctx, s24_checkpoint_open(&in, ctx, g.folder));
    s24_model_prune_opts opts = image_options("sparsegpt", &g, &e);
    opts.price = "model";
    OK(ctx, s24_model_sensitivity(ctx, in, &opts, forms, 2));
    assert_int_equal(e.count, 2 * VIT_LINEARS);
    const s24_model_permute_opts permute = {.size = sizeof permute, .images = &g.batch, .force = 1};
    OK(ctx, s24_model_permute(ctx, in, io_path("vit-permuted"), &permute));
    assert_true(distance_of(ctx, &g, io_path("vit-permuted")) < 1e-6);
    s24_checkpoint_close(in);
    mini_close(&g.io);
    s24_ctx_destroy(ctx);
}

static void refusals(void **state)
{
    (void)state;
    vit_golden g;
    if (!vit_golden_open(&g)) SKIP_WITHOUT(g.folder);
    s24_ctx *ctx = make_ctx();
    const char *out = io_path("vit-refused"), *bert = write_folder("texts", S24_F32);
    const s24_batch nothing = {.texts = 2};
    const struct {
        const char *in;
        const s24_batch *images;
        int64_t texts, max_tokens;
        s24_status status;
        const char *part;
    } cases[] = {
        {g.folder, NULL, TEXTS, 0, S24_ERROR_UNSUPPORTED, "reads images, which texts cannot"},
        {bert, &g.batch, 0, 0, S24_ERROR_UNSUPPORTED, "reads texts, which images cannot"},
        {g.folder, &g.batch, TEXTS, 0, S24_ERROR_ARGUMENT, "images were given next to calibr"},
        {g.folder, &nothing, 0, 0, S24_ERROR_ARGUMENT, "there are 2 calibration images at NULL"},
        {g.folder, &g.batch, 0, 9, S24_ERROR_ARGUMENT, "max_tokens is of calibration texts"},
        {g.folder, NULL, 0, 0, S24_ERROR_ARGUMENT, "wanda needs calibration texts or images"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_model_prune_opts opts = options("wanda", NULL);
        opts.images = cases[i].images;
        opts.text_count = cases[i].texts;
        opts.max_tokens = cases[i].max_tokens;
        assert_int_equal(prune_path(ctx, cases[i].in, out, &opts), cases[i].status);
        assert_sentence(ctx, cases[i].part);
    }
    float bad[VIT_IMAGES * 3 * 32 * 32];
    memcpy(bad, g.batch.pixels, sizeof bad);
    bad[777] = NAN;
    s24_batch broken = g.batch;
    broken.pixels = bad;
    s24_model_prune_opts opts = image_options("wanda", &g, NULL);
    opts.images = &broken;
    assert_int_equal(prune_path(ctx, g.folder, out, &opts), S24_ERROR_NOT_FINITE);
    assert_sentence(ctx, "layer.0.attention");
    mini_close(&g.io);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_criterion_is_calibrated),
        cmocka_unit_test(reconstruction_brings_the_model_nearer),
        cmocka_unit_test(sensitivity_and_permutation_see_images),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
