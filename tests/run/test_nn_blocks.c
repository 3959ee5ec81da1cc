// SPDX-License-Identifier: Apache-2.0
/* Models whose layers are in blocks or rows: a preset of them gives what the same weights give
   dense; on a device that is none (tests/support/fake_device.c) layers run in blocks, neighbours as
   one, and what no kernel takes runs dense; options that make no sense are refused by name. */
#include "support.h"

#include "fake_calls.h"
#include "nn_language.h"
#include "nn_load.h"
#include "sparse24/device.h"

enum { TOKENS = 20, WIDTH = 128 };

static s24_ctx *ctx;

static const s24_sparse_parts in_csr = {.format = S24_FORMAT_CSR};

static s24_sparse_parts in_blocks(int64_t rows, int64_t cols)
{
    return (s24_sparse_parts){.format = S24_FORMAT_BSR, .block_rows = rows, .block_cols = cols};
}

/* States of one text. Gives how many of the model's layers are sparse; *narrow: ran in 8 bits. */
static int64_t pass_of(float *states, int64_t *narrow, const char *preset,
                       const s24_model_opts *opts)
{
    static const int64_t offsets[] = {0, TOKENS};
    int32_t ids[TOKENS];
    s24_model *model;
    s24_session *session;
    s24_model_info info;
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    for (int i = 0; i < TOKENS; i++)
        ids[i] = 37 * i % 1000;
    OK(ctx, s24_model_preset(&model, ctx, preset, opts));
    s24_model_describe(&info, model);
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    OK(ctx, s24_session_forward(session, ctx, &batch, &(s24_outputs){.hidden = states}));
    *narrow = s24_session_narrow_layers(session, TOKENS);
    s24_session_destroy(session);
    s24_model_destroy(model);
    return info.sparse_layers;
}

static int64_t states_of(float *states, const char *preset, const s24_model_opts *opts)
{
    int64_t narrow;
    return pass_of(states, &narrow, preset, opts);
}

static void test_presets(void **state)
{
    static const char *const names[] = {"bert-tiny", "llama-tiny", "gpt2-tiny"};
    static const int64_t sides[][2] = {{0, 0}, {4, 1}, {8, 8}, {16, 16}, {64, 64}};
    static float dense[TOKENS * WIDTH], sparse[TOKENS * WIDTH];
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
            const s24_sparse_parts format = s ? in_blocks(sides[s][0], sides[s][1]) : in_csr;
            s24_model_opts opts = {
                .size = sizeof opts, .sparse = 1, .format = &format, .zeros = 70};
            assert_true(states_of(sparse, names[n], &opts) > 0);
            opts.dense = 1;
            assert_int_equal(states_of(dense, names[n], &opts), 0);
            near(dense, sparse, TOKENS * WIDTH, 1e-5, names[n]);
        }
}

/* In a model in i8 rows and blocks of floats stay floats, and 2:4 is in 8 bits. */
static void test_eight(void **state)
{
    (void)state;
    for (int blocks = 0; blocks < 2; blocks++) {
        const s24_model_opts opts = {.size = sizeof opts,
                                     .sparse = 1,
                                     .all_sparse = 1,
                                     .dtype = S24_I8,
                                     .format = blocks ? &in_csr : NULL,
                                     .zeros = blocks ? 90 : 0};
        s24_model *model;
        s24_session *session;
        OK(ctx, s24_model_preset(&model, ctx, "bert-tiny", &opts));
        OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
        const int64_t sparse = s24_session_sparse_layers(session, TOKENS);
        assert_true(sparse > 0);
        assert_int_equal(s24_session_narrow_layers(session, TOKENS), blocks ? 0 : sparse);
        s24_session_destroy(session);
        s24_model_destroy(model);
    }
}

/* The share of zeros is what is asked for: of 90 % a layer's bytes are a tenth. */
static void test_share(void **state)
{
    const s24_sparse_parts format = in_blocks(16, 16);
    s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .format = &format, .zeros = 90};
    int64_t bytes[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        s24_model *model;
        s24_model_info info;
        OK(ctx, s24_model_preset(&model, ctx, "gpt2-tiny", &opts));
        s24_model_describe(&info, model);
        bytes[i] = info.weight_bytes;
        s24_model_destroy(model);
        opts = (s24_model_opts){.size = sizeof opts};
    }
    const int64_t layers = 2 * 12 * WIDTH * WIDTH * 4;
    assert_true(llabs(bytes[1] - bytes[0] - layers * 9 / 10) < layers / 100);
}

static void refused(const s24_model_opts *opts, s24_status status, const char *said)
{
    s24_model *model;
    assert_int_equal(s24_model_preset(&model, ctx, "llama-tiny", opts), status);
    assert_null(model);
    if (!strstr(s24_ctx_error(ctx), said)) fail_msg("'%s' has no '%s'", s24_ctx_error(ctx), said);
}

static void test_refusals(void **state)
{
    s24_sparse_parts format = in_blocks(128, 128);
    s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .format = &format, .zeros = 50};
    (void)state;
    refused(&opts, S24_ERROR_SHAPE, "blocks of 128x128 do not divide [64, 128]");
    format = in_blocks(16, 16);
    opts.zeros = 100;
    refused(&opts, S24_ERROR_ARGUMENT, "zeros of a model is 100; 1 to 99 percent");
    opts.zeros = 50;
    opts.quantize = "int8";
    refused(&opts, S24_ERROR_ARGUMENT, "format of a model excludes quantize and comm");
    opts.quantize = NULL;
    opts.sparse = 0;
    refused(&opts, S24_ERROR_ARGUMENT, "needs the option sparse");
    opts.sparse = 1;
    format.format = S24_FORMAT_COO;
    refused(&opts, S24_ERROR_ARGUMENT, "CSR or BSR was expected");
}

/* ---- on a device ----------------------------------------------------------------------------- */

static void calls_of(char calls[MOST_CALLS], s24_device *device, const char *preset, int all)
{
    static float states[TOKENS * WIDTH];
    const s24_sparse_parts format = in_blocks(32, 32);
    const s24_model_opts opts = {.size = sizeof opts,
                                 .sparse = 1,
                                 .device = device,
                                 .all_sparse = all,
                                 .format = &format,
                                 .zeros = 50};
    char path[PATH_BYTES];
    record(path);
    assert_true(states_of(states, preset, &opts) > 0);
    take_record(calls, path);
}

/* A llama's query, key and value are one product, and so are gate and intermediate: four a block,
   of which a pass runs all and planning each once or more. Dense ones are compared unless all is to
   be sparse. */
static void test_device(void **state)
{
    static char calls[MOST_CALLS];
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    s24_device *device;
    (void)state;
    OK(ctx, s24_device_create(&device, ctx, &opts));
    calls_of(calls, device, "llama-tiny", 1);
    assert_true(count_of(calls, "blocks ") >= 8);
    assert_int_equal(count_of(calls, "blocks_widen "), 0);
    calls_of(calls, device, "bert-tiny", 0);
    assert_true(count_of(calls, "blocks ") >= 8);
    assert_int_equal(count_of(calls, "blocks_widen "), 4);
    const s24_model_opts in_rows = {
        .size = sizeof in_rows, .sparse = 1, .device = device, .format = &in_csr, .zeros = 50};
    refused(&in_rows, S24_ERROR_UNSUPPORTED, "weights in csr on a device");
    s24_device_destroy(device);
}

/* Layers that are asked for in 8 bits run in blocks of them: tokens become bytes before each
   product. */
static void test_device_eight(void **state)
{
    static const char *const asked[] = {"*=i8", "*=e4m3"};
    static char calls[MOST_CALLS];
    const s24_device_opts device_opts = {.size = sizeof device_opts, .library = S24_FAKE_PLUGIN};
    const s24_sparse_parts format = in_blocks(32, 32);
    s24_device *device;
    (void)state;
    OK(ctx, s24_device_create(&device, ctx, &device_opts));
    for (int i = 0; i < 2; i++) {
        static float states[TOKENS * WIDTH];
        const s24_model_opts opts = {.size = sizeof opts,
                                     .sparse = 1,
                                     .device = device,
                                     .layer_dtypes = asked[i],
                                     .format = &format,
                                     .zeros = 50};
        char path[PATH_BYTES];
        int64_t narrow;
        record(path);
        const int64_t sparse = pass_of(states, &narrow, "bert-tiny", &opts);
        take_record(calls, path);
        assert_true(sparse > 0);
        assert_int_equal(narrow, sparse);
        assert_true(count_of(calls, "blocks ") >= 8);
        assert_true(count_of(calls, "quantise ") >= 4);
        assert_int_equal(count_of(calls, "blocks_widen "), 0);
    }
    s24_device_destroy(device);
}

static int setup(void **state)
{
    (void)state;
    return s24_ctx_create(&ctx, NULL) == S24_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    s24_ctx_destroy(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets), cmocka_unit_test(test_eight),
        cmocka_unit_test(test_share),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_device),  cmocka_unit_test(test_device_eight)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
