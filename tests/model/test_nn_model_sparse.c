// SPDX-License-Identifier: Apache-2.0
/* 2:4 weights of a model: stored packed or dense, run by plans or by the dense engine. */
#include "support.h"

#include "nn_load.h"
#include "nn_tiny.h"

static s24_ctx *new_ctx(void)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

enum { TINY_LINEARS = 6 * TINY_LAYERS };

/* A copy of the folder whose layers that `include` names are 2:4 by magnitude. */
static void prune_tiny(const char *from, const char *to, const char *include, int packed)
{
    s24_ctx *ctx = new_ctx();
    s24_checkpoint *in;
    const s24_model_prune_opts opts = {
        .size = sizeof opts, .include = include, .packed = packed, .force = 1};
    OK(ctx, s24_checkpoint_open(&in, ctx, from));
    OK(ctx, s24_model_prune(ctx, in, to, &opts));
    s24_checkpoint_close(in);
    s24_ctx_destroy(ctx);
}

/* Hidden states of the folder's model; returns how many of its layers run 2:4. */
static int64_t run_tiny(float *hidden, const char *folder, const s24_model_opts *opts)
{
    s24_ctx *ctx = new_ctx();
    s24_model *model;
    s24_session *session;
    s24_model_info info;
    const int64_t offsets[] = {0, 1, 6, 15};
    const int32_t ids[15] = {3, 1, 2, 10, 0, 5, 7, 7, 8, 9, 10, 1, 4, 6, 2};
    const s24_batch batch = {.texts = 3, .offsets = offsets, .ids = ids};
    const s24_outputs outputs = {.hidden = hidden};
    OK(ctx, load(&model, ctx, folder, opts));
    s24_model_describe(&info, model);
    assert_int_equal(info.linear_layers, TINY_LINEARS);
    OK(ctx, s24_session_create(&session, ctx, model, 15));
    OK(ctx, s24_session_forward(session, ctx, &batch, &outputs));
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
    return info.sparse_layers;
}

/* However 2:4 weights are stored and run, the numbers are those of dense products. */
static void packed_and_dense_weights(void **state)
{
    (void)state;
    enum { ELEMS = 15 * TINY_WIDTH };
    float unpruned[ELEMS], expected[ELEMS], hidden[ELEMS];
    char plain[512], dense[512], packed[512], some[512];
    snprintf(plain, sizeof plain, "%s", tiny_write(&(tiny){0}, "tiny"));
    snprintf(dense, sizeof dense, "%s", io_path("two-four"));
    snprintf(packed, sizeof packed, "%s", io_path("packed"));
    snprintf(some, sizeof some, "%s", io_path("some"));
    prune_tiny(plain, dense, NULL, 0);
    prune_tiny(plain, packed, NULL, 1);
    prune_tiny(packed, some, "*.0.*.query.weight", 1); /* packed comes in and goes out */
    const s24_model_opts none = {.size = sizeof none}, check = {.size = sizeof check, .sparse = 1},
                         unpack = {.size = sizeof unpack, .dense = 1},
                         narrow = {.size = sizeof narrow, .dtype = S24_BF16},
                         integers = {.size = sizeof integers, .dtype = S24_I8};
    assert_int_equal(run_tiny(unpruned, plain, &check), 0); /* not 2:4: nothing to pack */
    assert_int_equal(run_tiny(expected, dense, &none), 0);
    assert_memory_not_equal(unpruned, expected, sizeof expected);
    const struct {
        const char *folder;
        const s24_model_opts *opts;
        int64_t sparse;
        float tolerance; /* bf16 may round activations, 2^-9 each */
    } ways[] = {
        {dense, &check, TINY_LINEARS, 2e-5f},     {packed, NULL, TINY_LINEARS, 2e-5f},
        {packed, &check, TINY_LINEARS, 2e-5f},    {packed, &unpack, 0, 2e-5f},
        {packed, &narrow, TINY_LINEARS, 5e-2f},   {dense, &narrow, 0, 5e-2f},
        {packed, &integers, TINY_LINEARS, 1e-1f}, {dense, &integers, 0, 1e-1f},
        {some, NULL, TINY_LINEARS, 2e-5f},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        assert_int_equal(run_tiny(hidden, ways[i].folder, ways[i].opts), ways[i].sparse);
        for (int e = 0; e < ELEMS; e++)
            if (!(fabsf(hidden[e] - expected[e]) <= ways[i].tolerance))
                fail_msg("way %zu element %d: expected %g, got %g", i, e, (double)expected[e],
                         (double)hidden[e]);
    }
    /* Query 2:4, key and value not: three products instead of a joined one. */
    prune_tiny(plain, some, "*.query.weight", 1);
    assert_int_equal(run_tiny(expected, some, &unpack), 0);
    assert_int_equal(run_tiny(hidden, some, NULL), TINY_LAYERS);
    for (int e = 0; e < ELEMS; e++)
        assert_true(fabsf(hidden[e] - expected[e]) <= 2e-5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(packed_and_dense_weights)};
    return cmocka_run_group_tests_name("nn_model_sparse", tests, io_folder_setup,
                                       io_folder_teardown);
}
