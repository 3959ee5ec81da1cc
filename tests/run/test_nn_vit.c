// SPDX-License-Identifier: Apache-2.0
/* Encoders of images on the CPU: golden vectors, 2:4 beside dense, the transformer that trains, and
   what is refused. */
#include "core_support.h"

#include "nn_load.h"
#include "nn_vit_support.h"

static const char *const levels[] = {"baseline", "avx2", "avx512", "avx512bf16"};
enum { LEVELS = sizeof levels / sizeof *levels };

static s24_ctx *new_ctx(int level, int threads)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {
        .size = sizeof opts, .threads = threads, .cpu_mask = s24_cpu_parse(levels[level])};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

static void run(vit_results *r, s24_ctx *ctx, const s24_model *model, const vit_golden *g)
{
    s24_session *session;
    const s24_outputs outputs = {
        .hidden = r->hidden, .blocks = r->blocks, .embeddings = r->embeddings, .logits = r->logits};
    OK(ctx, s24_session_create(&session, ctx, model, VIT_TOKENS + 7));
    OK(ctx, s24_session_forward(session, ctx, &g->batch, &outputs));
    s24_session_destroy(session);
}

static void golden_states(void **state)
{
    (void)state;
    vit_golden g;
    if (!vit_golden_open(&g)) SKIP_WITHOUT(g.folder);
    vit_results *r = malloc(sizeof *r);
    for (int level = 0; level < LEVELS; level++)
        for (int threads = 1; threads <= 2; threads++) {
            s24_ctx *ctx = new_ctx(level, threads);
            s24_model *model;
            s24_model_info info;
            OK(ctx, load(&model, ctx, g.folder, NULL));
            s24_model_describe(&info, model);
            assert_int_equal(info.image, 32);
            assert_int_equal(info.patch, 4);
            assert_int_equal(info.channels, 3);
            assert_int_equal(info.classes, VIT_CLASSES);
            assert_int_equal(info.positions, VIT_POSITIONS);
            run(r, ctx, model, &g);
            for (int b = 0; b <= VIT_LAYERS; b++) {
                char name[16];
                snprintf(name, sizeof name, "hidden.%d", b);
                vit_near(mini_get(&g.io, name).data, r->blocks + b * VIT_TOKENS * VIT_WIDTH,
                         VIT_TOKENS * VIT_WIDTH, 1e-4, name);
            }
            assert_memory_equal(r->hidden, r->blocks + VIT_LAYERS * VIT_TOKENS * VIT_WIDTH,
                                sizeof r->hidden);
            vit_near(mini_get(&g.io, "output.logits").data, r->logits, VIT_IMAGES * VIT_CLASSES,
                     1e-4, "logits");
            s24_model_destroy(model);
            s24_ctx_destroy(ctx);
        }
    mini_close(&g.io);
    free(r);
}

/* bf16 and i8 beside f32. */
static void other_dtypes(void **state)
{
    (void)state;
    vit_golden g;
    if (!vit_golden_open(&g)) SKIP_WITHOUT(g.folder);
    s24_ctx *ctx = new_ctx(LEVELS - 1, 2);
    vit_results *r = malloc(sizeof *r);
    for (int i = 0; i < 2; i++) {
        const s24_model_opts opts = {.size = sizeof opts, .dtype = i ? S24_I8 : S24_BF16};
        s24_model *model;
        OK(ctx, load(&model, ctx, g.folder, &opts));
        run(r, ctx, model, &g);
        vit_near(mini_get(&g.io, "hidden.3").data, r->hidden, VIT_TOKENS * VIT_WIDTH, 2e-2,
                 "the last hidden state");
        vit_near(mini_get(&g.io, "output.logits").data, r->logits, VIT_IMAGES * VIT_CLASSES, 2e-2,
                 "logits");
        s24_model_destroy(model);
    }
    mini_close(&g.io);
    free(r);
    s24_ctx_destroy(ctx);
}

/* The vector of an image is its first token's, after the last norm, divided by its length. */
static void vectors(void **state)
{
    (void)state;
    vit_golden g;
    if (!vit_golden_open(&g)) SKIP_WITHOUT(g.folder);
    s24_ctx *ctx = new_ctx(LEVELS - 1, 1);
    s24_model *model;
    vit_results *r = malloc(sizeof *r);
    char path[600];
    snprintf(path, sizeof path, "%s/model.safetensors", g.folder);
    mini_file weights = mini_open(path);
    const float *gamma = mini_get(&weights, "vit.layernorm.weight").data;
    const float *beta = mini_get(&weights, "vit.layernorm.bias").data;
    float expected[VIT_IMAGES * VIT_WIDTH];
    for (int i = 0; i < VIT_IMAGES; i++) {
        const float *x = mini_get(&g.io, "hidden.3").data;
        double y[VIT_WIDTH], mean = 0, variance = 0, squares = 0;
        x += (int64_t)i * VIT_POSITIONS * VIT_WIDTH;
        for (int c = 0; c < VIT_WIDTH; c++)
            mean += (double)x[c] / VIT_WIDTH;
        for (int c = 0; c < VIT_WIDTH; c++)
            variance += ((double)x[c] - mean) * ((double)x[c] - mean) / VIT_WIDTH;
        for (int c = 0; c < VIT_WIDTH; c++) {
            y[c] =
                ((double)x[c] - mean) / sqrt(variance + 1e-12) * (double)gamma[c] + (double)beta[c];
            squares += y[c] * y[c];
        }
        for (int c = 0; c < VIT_WIDTH; c++)
            expected[i * VIT_WIDTH + c] = (float)(y[c] / sqrt(squares));
    }
    OK(ctx, load(&model, ctx, g.folder, NULL));
    run(r, ctx, model, &g);
    vit_near(expected, r->embeddings, VIT_IMAGES * VIT_WIDTH, 1e-4, "vectors");
    s24_model_destroy(model);
    mini_close(&weights);
    mini_close(&g.io);
    free(r);
    s24_ctx_destroy(ctx);
}

/* A model of random 2:4 weights, multiplied as such and as dense ones. */
static void sparse_as_dense(void **state)
{
    (void)state;
    enum { IMAGES = 2, PIXELS = 3 * 224 * 224, CLASSES = 1000 };
    s24_ctx *ctx = new_ctx(LEVELS - 1, 2);
    float *pixels = malloc(IMAGES * PIXELS * sizeof *pixels), *logits[2];
    for (int64_t i = 0; i < IMAGES * PIXELS; i++)
        pixels[i] = sinf((float)(i % 7919));
    const s24_batch batch = {.texts = IMAGES, .pixels = pixels};
    for (int dense = 0; dense < 2; dense++) {
        const s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .dense = dense};
        s24_model *model;
        s24_session *session;
        s24_model_info info;
        logits[dense] = malloc(IMAGES * CLASSES * sizeof **logits);
        const s24_outputs outputs = {.logits = logits[dense]};
        OK(ctx, s24_model_preset(&model, ctx, "vit-tiny", &opts));
        s24_model_describe(&info, model);
        assert_int_equal(info.sparse_layers, dense ? 0 : info.linear_layers);
        assert_int_equal(info.classes, CLASSES);
        OK(ctx, s24_session_create(&session, ctx, model, IMAGES * info.positions));
        OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
        s24_session_destroy(session);
        s24_model_destroy(model);
    }
    vit_near(logits[1], logits[0], IMAGES * CLASSES, 1e-4, "2:4 logits");
    free(logits[0]);
    free(logits[1]);
    free(pixels);
    s24_ctx_destroy(ctx);
}

static void refusals(void **state)
{
    (void)state;
    s24_ctx *ctx = new_ctx(LEVELS - 1, 1);
    const s24_model_opts opts = {.size = sizeof opts};
    s24_model *model, *texts;
    s24_session *session;
    float logits[1000];
    uint8_t mask[197] = {0};
    float *pixels = calloc(2 * 3 * 224 * 224, sizeof *pixels);
    const s24_outputs outputs = {.logits = logits}, answers = {.start_logits = logits};
    s24_batch batch = {.texts = 1};
    OK(ctx, s24_model_preset(&model, ctx, "vit-tiny", &opts));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "max_tokens is 196; an image of this model has 197",
                   s24_session_create(&session, ctx, model, 196));
    OK(ctx, s24_session_create(&session, ctx, model, 300));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "no pixels",
                   s24_session_forward(session, ctx, &batch, &outputs));
    batch.pixels = pixels;
    batch.texts = 2;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "has 2 images; 1 to 1 were expected",
                   s24_session_forward(session, ctx, &batch, &outputs));
    batch.texts = 1;
    batch.mask = mask;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "has a mask, which images have not",
                   s24_session_forward(session, ctx, &batch, &outputs));
    batch.mask = NULL;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "without a question answering head",
                   s24_session_forward(session, ctx, &batch, &answers));
    OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
    s24_session_destroy(session);
    s24_model_destroy(model);
    const int64_t offsets[] = {0, 1};
    const int32_t id = 5;
    const s24_batch text = {.texts = 1, .offsets = offsets, .ids = &id};
    OK(ctx, s24_model_preset(&texts, ctx, "bert-tiny", &opts));
    OK(ctx, s24_session_create(&session, ctx, texts, 8));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "without a classifier",
                   s24_session_forward(session, ctx, &text, &outputs));
    s24_session_destroy(session);
    s24_model_destroy(texts);
    free(pixels);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_states), cmocka_unit_test(other_dtypes),
        cmocka_unit_test(vectors),       cmocka_unit_test(sparse_as_dense),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
