// SPDX-License-Identifier: Apache-2.0
/* Models in blocks on a device give what the same weights give dense on the CPU: encoders, images
   and language models, whose steps after a cache too. Says in a line where there is no GPU. */
#include "support.h"

#include "device_here.h"
#include "nn_language.h"
#include "nn_load.h"
#include "sparse24/language.h"

enum { MOST = 600, WIDTH = 192 };

static s24_ctx *ctx;
static s24_device *device;

static const int64_t sides[] = {16, 32, 64};
enum { SIDES = sizeof sides / sizeof *sides };

/* layers: dtypes by layer, or NULL. */
static s24_model *model_there(const char *preset, int64_t side, s24_dtype dtype, const char *layers)
{
    const s24_sparse_parts format = {
        .format = S24_FORMAT_BSR, .block_rows = side, .block_cols = side};
    const s24_model_opts opts = {.size = sizeof opts,
                                 .sparse = 1,
                                 .all_sparse = 1,
                                 .dtype = dtype,
                                 .layer_dtypes = layers,
                                 .device = device,
                                 .format = &format,
                                 .zeros = 60};
    s24_model *model;
    OK(ctx, s24_model_preset(&model, ctx, preset, &opts));
    return model;
}

static s24_model *model_of(const char *preset, int64_t side, s24_dtype dtype, int there)
{
    if (there) return model_there(preset, side, dtype, NULL);
    const s24_sparse_parts format = {
        .format = S24_FORMAT_BSR, .block_rows = side, .block_cols = side};
    const s24_model_opts opts = {.size = sizeof opts,
                                 .sparse = 1,
                                 .dense = 1,
                                 .dtype = S24_F32,
                                 .format = &format,
                                 .zeros = 60};
    s24_model *model;
    OK(ctx, s24_model_preset(&model, ctx, preset, &opts));
    return model;
}

/* A text of many tokens, and some of few; twice, so that the second pass is the planned one. */
static void encode(float *states, const s24_model *model, int64_t tokens)
{
    static int32_t ids[MOST];
    const int64_t offsets[] = {0, tokens};
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    s24_session *session;
    for (int i = 0; i < MOST; i++)
        ids[i] = 37 * i % 1000;
    OK(ctx, s24_session_create(&session, ctx, model, tokens));
    for (int turn = 0; turn < 3; turn++)
        OK(ctx, s24_session_forward(session, ctx, &batch, &(s24_outputs){.hidden = states}));
    s24_session_destroy(session);
}

static void test_texts(void **state)
{
    static const char *const names[] = {"bert-tiny", "llama-tiny", "gpt2-tiny"};
    static const int64_t tokens[] = {1, 5, 16, 33, 300, 500};
    static float here[MOST * WIDTH], there[MOST * WIDTH];
    (void)state;
    for (int n = 0; device && n < 3; n++)
        for (int s = 0; s < SIDES; s++)
            for (int f16 = 0; f16 < 2; f16++) {
                s24_model *cpu = model_of(names[n], sides[s], S24_F32, 0);
                s24_model *gpu = model_of(names[n], sides[s], f16 ? S24_F16 : S24_BF16, 1);
                for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
                    encode(here, cpu, tokens[t]);
                    encode(there, gpu, tokens[t]);
                    near(here, there, tokens[t] * 128, f16 ? 8e-3 : 5e-2, names[n]);
                }
                s24_model_destroy(cpu);
                s24_model_destroy(gpu);
            }
}

static void test_images(void **state)
{
    enum { IMAGES = 3, SIDE = 224, PIXELS = 3 * SIDE * SIDE };
    static float pixels[IMAGES * PIXELS], here[IMAGES * WIDTH], there[IMAGES * WIDTH];
    const s24_batch batch = {.texts = IMAGES, .pixels = pixels};
    (void)state;
    for (int i = 0; i < IMAGES * PIXELS; i++)
        pixels[i] = (float)(i * 7 % 255) / 127.0f - 1;
    for (int s = 0; device && s < SIDES; s++)
        for (int on = 0; on < 2; on++) {
            s24_model *model = model_of("vit-tiny", sides[s], S24_F16, on);
            s24_session *session;
            OK(ctx, s24_session_create(&session, ctx, model, IMAGES * 197));
            for (int turn = 0; turn < 3; turn++)
                OK(ctx, s24_session_forward(session, ctx, &batch,
                                            &(s24_outputs){.embeddings = on ? there : here}));
            s24_session_destroy(session);
            s24_model_destroy(model);
            if (on) near(here, there, IMAGES * WIDTH, 1e-2, "an image");
        }
}

/* A prompt, and steps of one token. */
static void go_on(float *logits, const s24_model *model)
{
    enum { PROMPT = 40, STEPS = 6, VOCABULARY = 1000 };
    const s24_cache_opts room = {.size = sizeof room, .texts = 2, .tokens = 64};
    int32_t ids[2 * PROMPT];
    s24_session *session;
    s24_cache *cache;
    for (int i = 0; i < 2 * PROMPT; i++)
        ids[i] = 91 * i % VOCABULARY;
    OK(ctx, s24_session_create(&session, ctx, model, 2 * PROMPT));
    OK(ctx, s24_cache_create(&cache, ctx, session, &room));
    for (int step = 0; step <= STEPS; step++) {
        const int64_t each = step ? 1 : PROMPT, offsets[] = {0, each, 2 * each};
        const int64_t last[] = {each - 1, 2 * each - 1};
        const s24_batch batch = {.texts = 2, .offsets = offsets, .ids = ids};
        const s24_outputs outputs = {.logits = logits, .tokens = last, .token_count = 2};
        OK(ctx,
           s24_session_extend(session, ctx, cache, &(s24_extension){.batch = &batch}, &outputs));
        logits += 2 * VOCABULARY;
    }
    s24_cache_destroy(cache);
    s24_session_destroy(session);
}

static void test_steps(void **state)
{
    enum { LOGITS = 7 * 2 * 1000 };
    static float here[LOGITS], there[LOGITS];
    (void)state;
    for (int n = 0; device && n < 2; n++)
        for (int s = 0; s < SIDES; s++) {
            const char *name = n ? "gpt2-tiny" : "llama-tiny";
            s24_model *cpu = model_of(name, sides[s], S24_F32, 0);
            s24_model *gpu = model_of(name, sides[s], S24_F16, 1);
            go_on(here, cpu);
            go_on(there, gpu);
            near(here, there, LOGITS, 1e-2, name);
            s24_model_destroy(cpu);
            s24_model_destroy(gpu);
        }
}

/* All layers in 8 bits, as numerics.md bounds them: far below what a wrong block would make. */
static void test_eight(void **state)
{
    static const char *const names[] = {"bert-tiny", "llama-tiny"}, *const asked[] = {"*=i8",
                                                                                      "*=e4m3"};
    static const int64_t tokens[] = {5, 33, 300};
    static float here[MOST * WIDTH], there[MOST * WIDTH];
    (void)state;
    for (int n = 0; device && n < 2; n++)
        for (int s = 0; s < SIDES; s++)
            for (int e4m3 = 0; e4m3 < 2; e4m3++) {
                s24_model *cpu = model_of(names[n], sides[s], S24_F32, 0);
                s24_model *gpu = model_there(names[n], sides[s], S24_DTYPE_NONE, asked[e4m3]);
                for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
                    encode(here, cpu, tokens[t]);
                    encode(there, gpu, tokens[t]);
                    near(here, there, tokens[t] * 128, e4m3 ? 0.25 : 0.1, names[n]);
                }
                s24_model_destroy(cpu);
                s24_model_destroy(gpu);
            }
}

/* Planned by measuring, blocks or dense. */
static void test_planned(void **state)
{
    static float here[MOST * WIDTH], there[MOST * WIDTH];
    (void)state;
    for (int s = 0; device && s < SIDES; s++) {
        s24_model *cpu = model_of("bert-tiny", sides[s], S24_F32, 0), *gpu;
        const s24_sparse_parts format = {
            .format = S24_FORMAT_BSR, .block_rows = sides[s], .block_cols = sides[s]};
        const s24_model_opts opts = {
            .size = sizeof opts, .sparse = 1, .device = device, .format = &format, .zeros = 60};
        OK(ctx, s24_model_preset(&gpu, ctx, "bert-tiny", &opts));
        for (int64_t tokens = 1; tokens < MOST; tokens *= 7) {
            encode(here, cpu, tokens);
            encode(there, gpu, tokens);
            near(here, there, tokens * 128, 8e-3, "planned");
        }
        s24_model_destroy(cpu);
        s24_model_destroy(gpu);
    }
}

static int setup(void **state)
{
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    device = device_here(ctx);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_images),
                                       cmocka_unit_test(test_steps), cmocka_unit_test(test_eight),
                                       cmocka_unit_test(test_planned)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
