// SPDX-License-Identifier: Apache-2.0
/*
 * Models on a device against the same models on the CPU: the same random weights, dense and 2:4,
 * texts of mixed lengths, masks and types, shape by shape often enough to run from a graph. Says in
 * a line where there is no GPU.
 */
#include "core_support.h"
#include "device_here.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "device/device_layers.h"
#include "sparse24/nn.h"

enum { TEXTS = 5, TOKENS = 1 + 40 + 130 + 7 + 64 };

typedef struct batch_data {
    int64_t offsets[TEXTS + 1];
    int32_t ids[TOKENS], types[TOKENS];
    uint8_t mask[TOKENS];
} batch_data;

static void batch_fill(batch_data *b)
{
    static const int64_t lengths[TEXTS] = {1, 40, 130, 7, 64};
    b->offsets[0] = 0;
    for (int i = 0; i < TEXTS; i++)
        b->offsets[i + 1] = b->offsets[i] + lengths[i];
    for (int i = 0; i < TOKENS; i++) {
        b->ids[i] = (int32_t)((i * 7919 + 13) % 30000);
        b->types[i] = i % 2;
        b->mask[i] = i % 4 != 3;
    }
}

typedef struct result {
    float *hidden, *embeddings;
} result;

static result forward(s24_ctx *ctx, s24_session *session, const s24_batch *batch, int64_t width)
{
    result r = {calloc((size_t)(TOKENS * width), sizeof(float)),
                calloc((size_t)(TEXTS * width), sizeof(float))};
    const s24_outputs outputs = {.hidden = r.hidden, .embeddings = r.embeddings};
    assert_ok(ctx, s24_session_forward(session, ctx, batch, &outputs));
    return r;
}

static void result_free(result *r)
{
    free(r->hidden);
    free(r->embeddings);
}

/* ‖a − b‖ / ‖b‖; a NaN is far off. */
static double distance(const float *a, const float *b, int64_t count)
{
    double squares = 0, all = 0;
    for (int64_t i = 0; i < count; i++) {
        squares += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)b[i] * (double)b[i];
    }
    return squares == squares ? sqrt(squares / all) : 1e9;
}

/* Roundings between the layers, and of tokens and weights in 8 bits. */
static double bound_of(s24_dtype dtype)
{
    return dtype == S24_F16 ? 4e-3 : dtype == S24_E4M3 ? 0.15 : dtype == S24_I8 ? 5e-2 : 3e-2;
}

static void compare(s24_ctx *ctx, s24_device *device, const char *preset, s24_dtype dtype,
                    int sparse)
{
    const double bound = bound_of(dtype);
    const s24_model_opts here = {.size = sizeof here, .sparse = sparse};
    const s24_model_opts there = {
        .size = sizeof there, .sparse = sparse, .dtype = dtype, .device = device};
    s24_model *models[2];
    s24_session *sessions[2];
    s24_model_info info;
    batch_data data;
    batch_fill(&data);
    assert_ok(ctx, s24_model_preset(&models[0], ctx, preset, &here));
    assert_ok(ctx, s24_model_preset(&models[1], ctx, preset, &there));
    s24_model_describe(&info, models[1]);
    assert_int_equal(info.dtype, dtype);
    assert_int_equal(info.sparse_layers, sparse ? info.linear_layers : 0);
    assert_true(info.device_bytes > 0);
    for (int i = 0; i < 2; i++)
        assert_ok(ctx, s24_session_create(&sessions[i], ctx, models[i], TOKENS));
    for (int variant = 0; variant < 3; variant++) {
        const s24_batch batch = {.texts = TEXTS - variant,
                                 .offsets = data.offsets,
                                 .ids = data.ids,
                                 .types = variant > 0 ? data.types : NULL,
                                 .mask = variant > 1 ? data.mask : NULL};
        result expected = forward(ctx, sessions[0], &batch, info.width);
        for (int turn = 0; turn < 4; turn++) { /* alone, captured, from the graph twice */
            result got = forward(ctx, sessions[1], &batch, info.width);
            const int64_t tokens = data.offsets[batch.texts];
            const double hidden = distance(got.hidden, expected.hidden, tokens * info.width);
            const double vectors =
                distance(got.embeddings, expected.embeddings, batch.texts * info.width);
            if (!(hidden < bound && vectors < bound))
                fail_msg("%s, %s, %s, variant %d, turn %d: hidden states are %.2e off, vectors "
                         "%.2e",
                         preset, s24_dtype_name(dtype), sparse ? "2:4" : "dense", variant, turn,
                         hidden, vectors);
            result_free(&got);
        }
        result_free(&expected);
    }
    for (int i = 0; i < 2; i++) {
        s24_session_destroy(sessions[i]);
        s24_model_destroy(models[i]);
    }
}

static void test_same(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    for (int i = 0; device && i < 4; i++)
        compare(ctx, device, "bert-tiny", i % 2 ? S24_BF16 : S24_F16, i / 2);
    if (device) compare(ctx, device, "minilm", S24_F16, 1);
    if (device) compare(ctx, device, "bert-tiny", S24_I8, 0);
    for (int i = 0; device && i < 2; i++)
        compare(ctx, device, "minilm", i ? S24_E4M3 : S24_I8, 1);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* What a pass among the caller's work gives is what the other one does, from ids on the device to
   states there, however many passes follow each other. */
static void enqueue_one(s24_ctx *ctx, s24_device *device, s24_session *session, int64_t width)
{
    enum { TURNS = 6 };
    batch_data data;
    void *ids, *states, *vectors, *stream;
    const int64_t count = TOKENS * width;
    batch_fill(&data);
    s24_batch batch = {.texts = TEXTS, .offsets = data.offsets, .ids = data.ids};
    result expected = forward(ctx, session, &batch, width);
    uint16_t *got = calloc((size_t)(TURNS * count), sizeof *got);
    float *widened = calloc((size_t)count, sizeof *widened);
    assert_ok(ctx, s24_device_stream_create(&stream, ctx, device));
    assert_ok(ctx, s24_device_alloc(&ids, ctx, device, sizeof data.ids, stream));
    assert_ok(ctx, s24_device_alloc(&states, ctx, device, (size_t)(2 * TURNS * count), stream));
    assert_ok(ctx, s24_device_alloc(&vectors, ctx, device, (size_t)(4 * TEXTS * width), stream));
    assert_ok(ctx, s24_device_copy(ctx, device, ids, data.ids, sizeof data.ids, stream));
    batch.ids = ids;
    const s24_outputs outputs = {.embeddings = vectors};
    for (int turn = 0; turn < TURNS; turn++)
        assert_ok(ctx, s24_session_enqueue(session, ctx, &batch, &outputs,
                                           (uint16_t *)states + turn * count, stream));
    assert_ok(ctx, s24_device_copy(ctx, device, got, states, (size_t)(2 * TURNS * count), stream));
    assert_ok(ctx, s24_device_wait(ctx, device, stream));
    for (int turn = 0; turn < TURNS; turn++) {
        s24i_widen(widened, got + turn * count, S24_F16, count);
        assert_true(distance(widened, expected.hidden, count) < 1e-3);
    }
    assert_ok(ctx, s24_device_free(ctx, device, ids, stream));
    assert_ok(ctx, s24_device_free(ctx, device, states, stream));
    assert_ok(ctx, s24_device_free(ctx, device, vectors, stream));
    s24_device_stream_destroy(device, stream);
    result_free(&expected);
    free(got);
    free(widened);
}

static void test_enqueued(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    for (int i = 0; device && i < 2; i++) {
        const s24_model_opts opts = {
            .size = sizeof opts, .sparse = 1, .dtype = S24_F16, .device = device};
        s24_model *model;
        s24_session *session;
        s24_model_info info;
        assert_ok(ctx, s24_model_preset(&model, ctx, i ? "minilm" : "bert-tiny", &opts));
        s24_model_describe(&info, model);
        assert_ok(ctx, s24_session_create(&session, ctx, model, TOKENS));
        enqueue_one(ctx, device, session, info.width);
        s24_session_destroy(session);
        s24_model_destroy(model);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* A pass of a new session, so that a plan is made. Every note of a tile then is `expected`, if
   that is not NULL, and is replaced; that products take norms in stays to be so where tiles for
   that are given. */
static void notes_after_pass(s24_ctx *ctx, s24_device *device, const s24_model *model,
                             const char *expected, const char *replaced)
{
    s24_session *session;
    batch_data data;
    batch_fill(&data);
    const s24_batch batch = {.texts = TEXTS, .offsets = data.offsets, .ids = data.ids};
    assert_ok(ctx, s24_session_create(&session, ctx, model, TOKENS));
    result r = forward(ctx, session, &batch, 128);
    result_free(&r);
    s24_session_destroy(session);
    const char *key;
    int64_t count = 0;
    for (; (key = s24_device_note_key(device, count)) != NULL; count++) {
        assert_non_null(strstr(key, "f16 256x")); /* tokens, up to a power of two */
        assert_string_not_equal(s24_device_noted(device, key), "1x1");
        const int norms = strstr(key, " norms") != NULL, in = strstr(replaced, "/norm") != NULL;
        if (expected)
            assert_string_equal(s24_device_noted(device, key), norms ? "in products" : expected);
        assert_ok(ctx, s24_device_note(ctx, device, key, norms && in ? "in products" : replaced));
    }
    assert_int_equal(count, 9); /* a block's products with norms in them and without; which it is */
}

/* Sessions note what they measured; the next one believes it if it can. */
static void test_notes(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    if (device) {
        const s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .device = device};
        s24_model *model;
        assert_null(s24_device_note_key(device, 0));
        assert_ok(ctx, s24_model_preset(&model, ctx, "bert-tiny", &opts));
        notes_after_pass(ctx, device, model, NULL, "1x1"); /* no such tile: measured again */
        notes_after_pass(ctx, device, model, NULL, "128x96/norm");
        notes_after_pass(ctx, device, model, "128x96/norm",
                         "64x144/norm"); /* that there is: as noted */
        assert_null(s24_device_noted(device, "no such key"));
        char longest[97];
        memset(longest, 'k', 96);
        longest[96] = 0;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "a note of 96",
                       s24_device_note(ctx, device, longest, "v"));
        assert_refused(ctx, S24_ERROR_ARGUMENT, "value is NULL",
                       s24_device_note(ctx, device, "k", NULL));
        s24_model_destroy(model);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* The distance of a new session's hidden states from `expected`, in *layers how many ran in 8
   bits. */
static double narrow_distance(int64_t *layers, s24_ctx *ctx, const s24_model *model,
                              const float *expected)
{
    s24_session *session;
    batch_data data;
    batch_fill(&data);
    const s24_batch batch = {.texts = TEXTS, .offsets = data.offsets, .ids = data.ids};
    assert_ok(ctx, s24_session_create(&session, ctx, model, TOKENS));
    double off = 0;
    for (int turn = 0; turn < 3; turn++) {
        result r = forward(ctx, session, &batch, 128);
        off = fmax(off, distance(r.hidden, expected, (int64_t)TOKENS * 128));
        result_free(&r);
    }
    *layers = s24_session_narrow_layers(session, TOKENS);
    s24_session_destroy(session);
    return off;
}

/* Every product in 8 bits, whatever is faster: notes say so. */
static void all_narrow(s24_ctx *ctx, s24_device *device, s24_dtype dtype)
{
    const s24_model_opts here = {.size = sizeof here, .sparse = 1};
    const s24_model_opts there = {
        .size = sizeof there, .sparse = 1, .dtype = dtype, .device = device};
    const s24_batch batch = {.texts = TEXTS};
    s24_model *models[2];
    s24_session *session;
    s24_model_info info;
    batch_data data;
    batch_fill(&data);
    s24_batch whole = batch;
    whole.offsets = data.offsets;
    whole.ids = data.ids;
    assert_ok(ctx, s24_model_preset(&models[0], ctx, "bert-tiny", &here));
    assert_ok(ctx, s24_model_preset(&models[1], ctx, "bert-tiny", &there));
    s24_model_describe(&info, models[1]);
    assert_ok(ctx, s24_session_create(&session, ctx, models[0], TOKENS));
    result expected = forward(ctx, session, &whole, info.width);
    s24_session_destroy(session);
    int64_t layers;
    assert_true(narrow_distance(&layers, ctx, models[1], expected.hidden) < bound_of(dtype));
    assert_in_range(layers, 0, info.linear_layers);
    char prefix[32];
    snprintf(prefix, sizeof prefix, "bf16/%s 256x", s24_dtype_name(dtype));
    int noted = 0;
    for (int i = 0; i < 2; i++) { /* in 8 bits, then not */
        const char *key;
        for (int64_t k = 0; (key = s24_device_note_key(device, k)) != NULL; k++)
            if (strncmp(key, prefix, strlen(prefix)) == 0) {
                assert_ok(ctx, s24_device_note(ctx, device, key, i ? "64x64" : "8-bit 64x64"));
                noted++;
            }
        assert_true(narrow_distance(&layers, ctx, models[1], expected.hidden) < bound_of(dtype));
        assert_int_equal(layers, i ? 0 : info.linear_layers);
    }
    assert_int_equal(noted, 2 * 4);
    result_free(&expected);
    for (int i = 0; i < 2; i++)
        s24_model_destroy(models[i]);
}

static void test_narrow(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    for (int i = 0; device && i < 2; i++)
        all_narrow(ctx, device, i ? S24_E4M3 : S24_I8);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* In a process of its own, which a GPU is lost to: a kernel reads where nothing is. */
static int lose_device(void)
{
    const s24_device_opts opts = {.size = sizeof opts, .library = plugin()};
    s24_ctx *ctx;
    s24_device *device;
    s24_model *model;
    s24_session *session;
    if (s24_ctx_create(&ctx, NULL) != S24_OK) return 1;
    if (s24_device_create(&device, ctx, &opts) != S24_OK) return 0; /* no GPU here */
    const s24_model_opts model_opts = {.size = sizeof model_opts, .sparse = 1, .device = device};
    batch_data data;
    batch_fill(&data);
    const s24_batch batch = {.texts = TEXTS, .offsets = data.offsets, .ids = data.ids};
    float vectors[TEXTS * 128];
    const s24_outputs outputs = {.embeddings = vectors};
    if (s24_model_preset(&model, ctx, "bert-tiny", &model_opts) != S24_OK) return 2;
    if (s24_session_create(&session, ctx, model, TOKENS) != S24_OK) return 3;
    if (s24_session_forward(session, ctx, &batch, &outputs) != S24_OK) return 4;
    const s24_dense nowhere = {(void *)(uintptr_t)4096, S24_F16, 8, 128, 0};
    const s24_device_head_args args = {
        .size = sizeof args, .y = (float *)(uintptr_t)8192, .x = &nowhere};
    (void)s24_device_head(ctx, device, &args);
    (void)s24_device_wait(ctx, device, NULL);
    for (int i = 0; i < 3; i++) {
        if (s24_session_forward(session, ctx, &batch, &outputs) != S24_ERROR_UNSUPPORTED) return 5;
        if (!strstr(s24_ctx_error(ctx), "the device is lost")) return 6;
    }
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
    return 0;
}

/* Before any other test: CUDA does not outlive a fork. */
static void test_lost(void **state)
{
    (void)state;
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(lose_device());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* An allocator of another device's memory that ends somewhere. */
typedef struct budget {
    s24_ctx *ctx;
    s24_device *device;
    int64_t left, live;
} budget;

static void *budget_alloc(void *user, size_t bytes, void *stream)
{
    budget *b = user;
    void *memory;
    if ((int64_t)bytes > b->left) return NULL;
    assert_ok(b->ctx, s24_device_alloc(&memory, b->ctx, b->device, bytes, stream));
    b->left -= (int64_t)bytes;
    b->live++;
    return memory;
}

static void budget_free(void *user, void *memory, void *stream)
{
    budget *b = user;
    assert_ok(b->ctx, s24_device_free(b->ctx, b->device, memory, stream));
    b->live--;
}

/* Wherever memory ends, it is said and nothing is kept. */
static void refuse_memory(s24_ctx *ctx, s24_device *device)
{
    budget b = {ctx, device, 0, 0};
    const s24_device_opts opts = {
        .size = sizeof opts, .library = plugin(), .allocator = {budget_alloc, budget_free, &b}};
    s24_device *limited;
    assert_ok(ctx, s24_device_create(&limited, ctx, &opts));
    s24_model_opts model_opts = {.size = sizeof model_opts, .sparse = 1, .device = limited};
    s24_status status = S24_ERROR_MEMORY;
    for (int64_t budget_bytes = 0; status != S24_OK; budget_bytes += 3 << 20) {
        s24_model *model = NULL;
        s24_session *session = NULL;
        b.left = budget_bytes;
        status = s24_model_preset(&model, ctx, "bert-tiny", &model_opts);
        if (status == S24_OK) status = s24_session_create(&session, ctx, model, 1000);
        if (status != S24_OK) {
            assert_int_equal(status, S24_ERROR_MEMORY);
            assert_non_null(strstr(s24_ctx_error(ctx), "bytes of device memory"));
        }
        s24_session_destroy(session);
        s24_model_destroy(model);
        assert_int_equal(b.live, 0);
    }
    s24_device_destroy(limited);
}

static void test_refusals(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    if (device) {
        s24_model_opts opts = {.size = sizeof opts, .device = device, .dtype = S24_F32};
        s24_model *model;
        s24_session *session;
        float blocks[3 * 128];
        const int64_t offsets[] = {0, 1};
        int32_t id = 5;
        const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = &id};
        const s24_outputs outputs = {.blocks = blocks};
        assert_refused(ctx, S24_ERROR_UNSUPPORTED, "f32 on the CPU only; on a GPU f16",
                       s24_model_preset(&model, ctx, "bert-tiny", &opts));
        opts.dtype = S24_DTYPE_NONE;
        opts.sparse = 1;
        assert_ok(ctx, s24_model_preset(&model, ctx, "bert-tiny", &opts));
        assert_ok(ctx, s24_session_create(&session, ctx, model, 8));
        assert_refused(ctx, S24_ERROR_UNSUPPORTED, "every block",
                       s24_session_forward(session, ctx, &batch, &outputs));
        id = 1 << 20;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "the vocabulary has 30522",
                       s24_session_forward(session, ctx, &batch, &outputs));
        s24_session_destroy(session);
        s24_model_destroy(model);
        refuse_memory(ctx, device);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost),     cmocka_unit_test(test_same),
        cmocka_unit_test(test_enqueued), cmocka_unit_test(test_notes),
        cmocka_unit_test(test_narrow),   cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
