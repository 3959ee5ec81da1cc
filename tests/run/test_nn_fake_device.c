// SPDX-License-Identifier: Apache-2.0
/* A session's graphs on a device that is none (tests/support/fake_device.c): a bounded number is
   kept, the one unused longest goes, and what a text gets does not depend on them. */
#include "core_support.h"

#include <stdlib.h>
#include <string.h>

#include "fake_calls.h"
#include "run/session.h"

enum { SHAPES = 50, WIDTH = 128, KEPT = 32 };

typedef struct counts {
    int streams, graphs, captures, launches, left;
} counts;

/* What the device counted, when it is closed. */
static counts close_device(s24_device *device)
{
    char path[] = "/tmp/sparse24-fake-XXXXXX", text[256] = "";
    counts c = {0};
    const int made = mkstemp(path);
    assert_true(made >= 0);
    close(made);
    setenv("S24_FAKE_REPORT", path, 1);
    s24_device_destroy(device);
    unsetenv("S24_FAKE_REPORT");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    unlink(path);
    assert_int_equal(sscanf(text,
                            "{\"streams\": %d, \"graphs\": %d, \"captures\": %d, \"launches\": %d, "
                            "\"left\": %d}",
                            &c.streams, &c.graphs, &c.captures, &c.launches, &c.left),
                     5);
    return c;
}

/* A pass of one text of so many tokens, of which the first are not pooled. */
static void pass_without(s24_ctx *ctx, s24_session *session, int64_t tokens, int64_t unpooled)
{
    int32_t ids[SHAPES + 1] = {0};
    float vector[WIDTH];
    const int64_t offsets[] = {0, tokens};
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    const s24_outputs outputs = {.embeddings = vector};
    memset(vector, 0xff, sizeof vector);
    session->unpooled = unpooled;
    assert_ok(ctx, s24_session_forward(session, ctx, &batch, &outputs));
    assert_true(vector[0] == (float)(tokens - unpooled));
}

static void pass(s24_ctx *ctx, s24_session *session, int64_t tokens)
{
    pass_without(ctx, session, tokens, 0);
}

static void test_graphs(void **state)
{
    (void)state;
    s24_ctx *ctx;
    s24_device *device;
    s24_model *model;
    s24_session *session;
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_ok(ctx, s24_device_create(&device, ctx, &opts));
    const s24_model_opts model_opts = {.size = sizeof model_opts, .sparse = 1, .device = device};
    assert_ok(ctx, s24_model_preset(&model, ctx, "bert-tiny", &model_opts));
    assert_ok(ctx, s24_session_create(&session, ctx, model, SHAPES));
    /* Alone, captured, from the graph; more shapes than are kept. */
    for (int64_t tokens = 1; tokens <= SHAPES; tokens++)
        for (int turn = 0; turn < 3; turn++)
            pass(ctx, session, tokens);
    /* Those of the end are there still, the first ones are not. */
    for (int64_t tokens = SHAPES; tokens > SHAPES - KEPT; tokens--)
        pass(ctx, session, tokens);
    pass(ctx, session, 1);
    pass(ctx, session, 1);
    s24_session_destroy(session);
    s24_model_destroy(model);
    const counts c = close_device(device);
    assert_int_equal(c.streams, 1);
    assert_int_equal(c.graphs, KEPT);
    assert_int_equal(c.captures, SHAPES + 1);
    assert_int_equal(c.launches, 2 * SHAPES + KEPT + 1);
    assert_int_equal(c.left, 0);
    s24_ctx_destroy(ctx);
}

/* Tokens that are not pooled, alone and from graphs, with a mask that attention sees too. */
static void test_unpooled(void **state)
{
    (void)state;
    s24_ctx *ctx;
    s24_device *device;
    s24_model *model;
    s24_session *session;
    float vectors[2 * WIDTH];
    const int32_t ids[9] = {0};
    const uint8_t mask[9] = {1, 0, 1, 0, 1, 1, 1, 1, 0};
    const int64_t offsets[] = {0, 4, 9};
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_ok(ctx, s24_device_create(&device, ctx, &opts));
    const s24_model_opts model_opts = {.size = sizeof model_opts, .device = device};
    assert_ok(ctx, s24_model_preset(&model, ctx, "bert-tiny", &model_opts));
    assert_ok(ctx, s24_session_create(&session, ctx, model, 9));
    for (int turn = 0; turn < 3; turn++)
        for (int64_t unpooled = 0; unpooled < 7; unpooled += 3)
            pass_without(ctx, session, 7, unpooled);
    const s24_outputs outputs = {.embeddings = vectors};
    for (int64_t unpooled = 0; unpooled < 3; unpooled++) {
        static const float left[3][2] = {{2, 4}, {1, 3}, {1, 2}};
        const s24_batch batch = {.texts = 2, .offsets = offsets, .ids = ids, .mask = mask};
        session->unpooled = unpooled;
        assert_ok(ctx, s24_session_forward(session, ctx, &batch, &outputs));
        assert_true(vectors[0] == left[unpooled][0] && vectors[WIDTH] == left[unpooled][1]);
    }
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Texts that no session takes, on a device as elsewhere. */
static void test_refusals(void **state)
{
    (void)state;
    s24_ctx *ctx;
    s24_device *device;
    s24_model *model;
    s24_session *session;
    static int32_t ids[600];
    float vector[WIDTH];
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    const s24_outputs outputs = {.embeddings = vector};
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_ok(ctx, s24_device_create(&device, ctx, &opts));
    const s24_model_opts model_opts = {.size = sizeof model_opts, .device = device};
    assert_ok(ctx, s24_model_preset(&model, ctx, "bert-tiny", &model_opts));
    assert_ok(ctx, s24_session_create(&session, ctx, model, 550));
    int64_t offsets[] = {0, 513, 513};
    s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    assert_refused(ctx, S24_ERROR_ARGUMENT, "text 0 has 513 tokens; the model has 512 positions",
                   s24_session_forward(session, ctx, &batch, &outputs));
    offsets[1] = 512;
    offsets[2] = 512;
    batch.texts = 2;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "text 1 has no tokens",
                   s24_session_forward(session, ctx, &batch, &outputs));
    offsets[2] = 560;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "the session was made for 550",
                   s24_session_forward(session, ctx, &batch, &outputs));
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* ---- the kernels of a pass, in their order --------------------------------------------------- */

typedef struct pass_case {
    const char *preset;
    s24_dtype dtype;
    int sparse;
    const char *const *notes; /* key, value, …, NULL: what was measured before */
    int seen;                 /* inputs of layers were calibrated */
    int narrow;               /* layers that then run in 8 bits */
    const char *layers;       /* dtypes by layer, dtype is NONE then; or NULL */
} pass_case;

/* The names of the kernels of a session's first pass, with its plan, and of its second, a graph. */
static void calls_of(char first[MOST_CALLS], char second[MOST_CALLS], const pass_case *c)
{
    enum { TOKENS = 197 }; /* of an image of vit-tiny */
    s24_ctx *ctx;
    s24_device *device;
    s24_model *model;
    s24_session *session;
    static float pixels[3 * 224 * 224], vector[192];
    static int32_t ids[TOKENS];
    const int64_t offsets[] = {0, TOKENS};
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_ok(ctx, s24_device_create(&device, ctx, &opts));
    for (int i = 0; c->notes && c->notes[i]; i += 2)
        assert_ok(ctx, s24_device_note(ctx, device, c->notes[i], c->notes[i + 1]));
    const s24_model_opts model_opts = {.size = sizeof model_opts,
                                       .sparse = c->sparse,
                                       .dtype = c->dtype,
                                       .device = device,
                                       .layer_dtypes = c->layers};
    assert_ok(ctx, s24_model_preset(&model, ctx, c->preset, &model_opts));
    for (int64_t i = 0; i < c->seen * model->shape.layers * S24I_ALL_SLOTS; i++)
        model->blocks[i / S24I_ALL_SLOTS].input_most[i % S24I_ALL_SLOTS] = 3;
    assert_ok(ctx, s24_session_create(&session, ctx, model, TOKENS));
    const int image = strncmp(c->preset, "vit", 3) == 0;
    const s24_batch batch = {.texts = 1,
                             .offsets = image ? NULL : offsets,
                             .ids = image ? NULL : ids,
                             .pixels = image ? pixels : NULL};
    const s24_outputs outputs = {.embeddings = vector};
    for (int turn = 0; turn < 2; turn++) {
        char path[PATH_BYTES];
        record(path);
        assert_ok(ctx, s24_session_forward(session, ctx, &batch, &outputs));
        take_record(turn ? second : first, path);
    }
    assert_int_equal(s24_session_narrow_layers(session, TOKENS), c->narrow);
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

#define AFTER_SUMS                                                                                 \
    "linear attention linear norm linear linear norm "                                             \
    "linear attention linear norm linear linear norm "
#define FOLDED "linear attention linear linear linear linear attention linear linear linear norm "
#define LLAMA(qkv)                                                                                 \
    "row_norm " qkv "train_rotate train_attention linear "                                         \
    "row_norm linear train_activate linear "
#define DENSE        "dense attention dense norm dense dense norm "
#define DENSE_NARROW "dense attention quantise dense norm dense dense norm "

static void test_steps(void **state)
{
    (void)state;
    static const char *const folded[] = {"f16 256x128x512 norms", "in products", NULL};
    static const char *const eight[] = {"bf16/i8 256x128x128", "8-bit 64x64", "bf16/i8 256x512x128",
                                        "8-bit 64x64", NULL};
    static const char *const fixed[] = {"bf16/i8 256x128x128 fixed",
                                        "8-bit 64x64",
                                        "bf16/i8 256x128x512 gelu fixed",
                                        "8-bit 64x64",
                                        "bf16/i8 256x512x128 fixed",
                                        "8-bit 64x64",
                                        "bf16/e4m3 256x128x128 fixed",
                                        "8-bit 64x64",
                                        "bf16/e4m3 256x128x512 gelu fixed",
                                        "8-bit 64x64",
                                        "bf16/e4m3 256x512x128 fixed",
                                        "8-bit 64x64",
                                        NULL};
    static const char *const queries[] = {"bf16/i8 256x128x256", "8-bit 64x64", NULL};
    const struct {
        pass_case pass;
        const char *calls; /* of the second pass */
    } cases[] = {
        {{"bert-tiny", S24_F16, 1, NULL, 0, 0, NULL}, "begin norm " AFTER_SUMS "pool end "},
        {{"bert-tiny", S24_F16, 1, folded, 0, 0, NULL}, "begin norm " FOLDED "pool end "},
        /* The norms write 8 bits, where the attention's and the activation's results need a
           kernel. */
        {{"bert-tiny", S24_I8, 1, eight, 0, 4, NULL},
         "begin norm linear attention quantise linear norm linear quantise linear norm "
         "linear attention quantise linear norm linear quantise linear norm pool end "},
        /* With a scale for all tokens they write 8 bits too: calibrated, or in e4m3 by a bound;
           without one, notes of models that have it say nothing. */
        {{"bert-tiny", S24_I8, 1, fixed, 0, 0, NULL}, "begin norm " AFTER_SUMS "pool end "},
        {{"bert-tiny", S24_I8, 1, fixed, 1, 6, NULL}, "begin norm " AFTER_SUMS "pool end "},
        {{"bert-tiny", S24_E4M3, 1, fixed, 0, 6, NULL}, "begin norm " AFTER_SUMS "pool end "},
        {{"bert-tiny", S24_E4M3, 1, fixed, 1, 6, NULL}, "begin norm " AFTER_SUMS "pool end "},
        /* 2:4 products of language models, and a norm that writes 8 bits for them. */
        {{"llama-tiny", S24_F16, 1, NULL, 0, 0, NULL},
         "begin train_embed " LLAMA("linear ") LLAMA("linear ") "row_norm pool end "},
        {{"llama-tiny", S24_I8, 1, queries, 0, 6, NULL},
         "begin train_embed " LLAMA("linear ") LLAMA("linear ") "row_norm pool end "},
        /* A norm before each layer: the first is the embeddings', the last the final one. */
        {{"vit-tiny", S24_F16, 0, NULL, 0, 0, NULL},
         "begin unfold dense norm " DENSE DENSE DENSE DENSE DENSE DENSE DENSE DENSE DENSE DENSE
             DENSE DENSE "pool end "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static char first[MOST_CALLS], second[MOST_CALLS];
        calls_of(first, second, &cases[i].pass);
        assert_string_equal(second, cases[i].calls);
        /* The pass that plans ends as those after it go. */
        const char *pass = second + strlen("begin ");
        const size_t length = strlen(pass) - strlen("end ");
        assert_true(strlen(first) >= length);
        assert_memory_equal(first + strlen(first) - length, pass, length);
    }
}

/* Layers that are named run in 8 bits whatever is faster, the others do not. */
static void test_by_layer(void **state)
{
    (void)state;
    const struct {
        pass_case pass;
        const char *calls;
    } cases[] = {
        {{"bert-tiny", S24_DTYPE_NONE, 1, NULL, 0, 12, "*=e4m3"},
         "begin norm " AFTER_SUMS "pool end "},
        {{"bert-tiny", S24_DTYPE_NONE, 1, NULL, 0, 10, "*=i8,*attention.output*=bf16"},
         "begin norm linear attention linear norm linear quantise linear norm "
         "linear attention linear norm linear quantise linear norm pool end "},
        {{"bert-tiny", S24_DTYPE_NONE, 1, NULL, 1, 2, "*intermediate*=i8"},
         "begin norm " AFTER_SUMS "pool end "},
        /* Dense ones: norms write their tokens, attention's need a kernel. */
        {{"bert-tiny", S24_DTYPE_NONE, 0, NULL, 0, 8, "*attention*=e4m3"},
         "begin norm " DENSE_NARROW DENSE_NARROW "pool end "},
        {{"bert-tiny", S24_DTYPE_NONE, 0, NULL, 0, 8, "*attention*=i8"},
         "begin norm " DENSE_NARROW DENSE_NARROW "pool end "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static char first[MOST_CALLS], second[MOST_CALLS];
        calls_of(first, second, &cases[i].pass);
        assert_string_equal(second, cases[i].calls);
    }
}

static void test_by_layer_refused(void **state)
{
    (void)state;
    static const struct {
        const char *layers, *sentence;
        s24_status status;
        s24_dtype dtype;
        int sparse;
    } cases[] = {
        {"*=f16", "'*=f16' is no GLOB=NAME", S24_ERROR_ARGUMENT, S24_DTYPE_NONE, 1},
        {"=i8", "'=i8' is no GLOB=NAME", S24_ERROR_ARGUMENT, S24_DTYPE_NONE, 1},
        {"a=i8,b", "'b' is no GLOB=NAME", S24_ERROR_ARGUMENT, S24_DTYPE_NONE, 1},
        {"a=i8,b=e4m3", "'b' is e4m3 after i8", S24_ERROR_UNSUPPORTED, S24_DTYPE_NONE, 1},
        {"a=bf16", "names no layer for i8 or e4m3", S24_ERROR_ARGUMENT, S24_DTYPE_NONE, 1},
        {"a=i8", "layer_dtypes and dtype", S24_ERROR_ARGUMENT, S24_BF16, 1},
    };
    s24_ctx *ctx;
    s24_device *device;
    s24_model *model;
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_ok(ctx, s24_device_create(&device, ctx, &opts));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24_model_opts model_opts = {.size = sizeof model_opts,
                                           .sparse = cases[i].sparse,
                                           .dtype = cases[i].dtype,
                                           .device = device,
                                           .layer_dtypes = cases[i].layers};
        assert_refused(ctx, cases[i].status, cases[i].sentence,
                       s24_model_preset(&model, ctx, "bert-tiny", &model_opts));
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* What is timed to compare plans is the pass itself, with its embeddings and attention. */
static void test_planned(void **state)
{
    (void)state;
    static char first[MOST_CALLS], second[MOST_CALLS];
    calls_of(first, second, &(pass_case){"bert-tiny", S24_F16, 1, NULL, 0, 0, NULL});
    assert_int_equal(count_of(first, "begin norm " AFTER_SUMS "end "), 1);
    assert_int_equal(count_of(first, "begin norm " FOLDED "end "), 1);
    assert_int_equal(count_of(first, "begin "), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs),           cmocka_unit_test(test_unpooled),
        cmocka_unit_test(test_refusals),         cmocka_unit_test(test_steps),
        cmocka_unit_test(test_planned),          cmocka_unit_test(test_by_layer),
        cmocka_unit_test(test_by_layer_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
