// SPDX-License-Identifier: Apache-2.0
/* Passes that are enqueued among a caller's work (s24_session_enqueue), on a device that is none
   (tests/support/fake_device.c): what they give, what they wait for, what they refuse. */
#include "core_support.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sparse24/nn.h"

enum { TOKENS = 40, WIDTH = 128 };

typedef struct world {
    s24_ctx *ctx;
    s24_device *device;
    s24_model *model;
    s24_session *session;
    int32_t ids[TOKENS];
    float vectors[4 * WIDTH];
    uint16_t states[TOKENS * WIDTH];
} world;

static void open_world(world *w, const char *preset, int on_device)
{
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    *w = (world){0};
    assert_int_equal(s24_ctx_create(&w->ctx, NULL), S24_OK);
    assert_ok(w->ctx, s24_device_create(&w->device, w->ctx, &opts));
    const s24_model_opts model_opts = {.size = sizeof model_opts,
                                       .device = on_device ? w->device : NULL};
    assert_ok(w->ctx, s24_model_preset(&w->model, w->ctx, preset, &model_opts));
    assert_ok(w->ctx, s24_session_create(&w->session, w->ctx, w->model, TOKENS));
}

/* How often the device was waited for, all in all. */
static int close_world(world *w)
{
    char path[] = "/tmp/sparse24-fake-XXXXXX", text[256] = "";
    const int made = mkstemp(path);
    assert_true(made >= 0);
    close(made);
    s24_session_destroy(w->session);
    s24_model_destroy(w->model);
    setenv("S24_FAKE_REPORT", path, 1);
    s24_device_destroy(w->device);
    unsetenv("S24_FAKE_REPORT");
    s24_ctx_destroy(w->ctx);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    unlink(path);
    const char *waits = strstr(text, "\"waits\": ");
    assert_non_null(waits);
    return atoi(waits + strlen("\"waits\": "));
}

static s24_status enqueue(world *w, const s24_batch *batch)
{
    const s24_outputs outputs = {.embeddings = w->vectors};
    memset(w->vectors, 0xff, sizeof w->vectors);
    return s24_session_enqueue(w->session, w->ctx, batch, &outputs, w->states, NULL);
}

static void one_text(world *w, int64_t tokens)
{
    const int64_t offsets[] = {0, tokens};
    const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = w->ids};
    assert_ok(w->ctx, enqueue(w, &batch));
    assert_true(w->vectors[0] == (float)tokens);
}

/* Waits of a session in which so many passes of one shape come after the first two. */
static int waits_of(int passes)
{
    world w;
    open_world(&w, "bert-tiny", 1);
    for (int i = 0; i < passes + 2; i++)
        one_text(&w, 7);
    return close_world(&w);
}

static void test_waits(void **state)
{
    (void)state;
    assert_int_equal(waits_of(1), waits_of(30));
}

/* Other lengths, and passes of the other kind between them, which write the same memory. */
static void test_in_turns(void **state)
{
    (void)state;
    world w;
    open_world(&w, "bert-tiny", 1);
    for (int turn = 0; turn < 4; turn++) {
        const int64_t offsets[] = {0, 5, 9}, other[] = {0, 4, 9};
        s24_batch batch = {.texts = 2, .offsets = offsets, .ids = w.ids};
        const s24_outputs outputs = {.embeddings = w.vectors};
        assert_ok(w.ctx, enqueue(&w, &batch));
        assert_true(w.vectors[0] == 5 && w.vectors[WIDTH] == 4);
        batch.offsets = other;
        assert_ok(w.ctx, enqueue(&w, &batch));
        assert_true(w.vectors[0] == 4 && w.vectors[WIDTH] == 5);
        one_text(&w, 9);
        batch.offsets = offsets;
        assert_ok(w.ctx, s24_session_forward(w.session, w.ctx, &batch, &outputs));
        assert_true(w.vectors[0] == 5 && w.vectors[WIDTH] == 4);
        one_text(&w, 9);
    }
    (void)close_world(&w);
}

static void test_masks(void **state)
{
    (void)state;
    world w;
    const uint8_t mask[9] = {1, 0, 1, 0, 1, 1, 1, 1, 0};
    const int32_t types[9] = {0, 0, 0, 1, 1, 1, 1, 1, 1};
    const int64_t offsets[] = {0, 4, 9};
    open_world(&w, "bert-tiny", 1);
    const s24_batch batch = {
        .texts = 2, .offsets = offsets, .ids = w.ids, .types = types, .mask = mask};
    for (int turn = 0; turn < 3; turn++) {
        assert_ok(w.ctx, enqueue(&w, &batch));
        assert_true(w.vectors[0] == 2 && w.vectors[WIDTH] == 4);
        one_text(&w, 9);
    }
    (void)close_world(&w);
}

static void test_refusals(void **state)
{
    (void)state;
    world w;
    open_world(&w, "bert-tiny", 1);
    const int64_t offsets[] = {0, 4, 4}, far[] = {0, 50}, one[] = {0, 4};
    s24_batch batch = {.texts = 2, .offsets = offsets, .ids = w.ids};
    assert_refused(w.ctx, S24_ERROR_ARGUMENT, "text 1 has no tokens", enqueue(&w, &batch));
    batch = (s24_batch){.texts = 1, .offsets = far, .ids = w.ids};
    assert_refused(w.ctx, S24_ERROR_ARGUMENT, "the session was made for 40", enqueue(&w, &batch));
    batch = (s24_batch){.texts = 1, .offsets = one};
    assert_refused(w.ctx, S24_ERROR_ARGUMENT, "the batch has no texts, offsets or ids",
                   enqueue(&w, &batch));
    batch.ids = w.ids;
    const s24_outputs blocks = {.blocks = w.vectors}, classes = {.logits = w.vectors};
    assert_refused(w.ctx, S24_ERROR_UNSUPPORTED, "no states of every block",
                   s24_session_enqueue(w.session, w.ctx, &batch, &blocks, NULL, NULL));
    assert_refused(w.ctx, S24_ERROR_ARGUMENT, "without a classifier",
                   s24_session_enqueue(w.session, w.ctx, &batch, &classes, NULL, NULL));
    assert_refused(w.ctx, S24_ERROR_ARGUMENT, "outputs is NULL",
                   s24_session_enqueue(w.session, w.ctx, &batch, NULL, NULL, NULL));
    one_text(&w, 4);
    (void)close_world(&w);
    open_world(&w, "bert-tiny", 0);
    assert_refused(w.ctx, S24_ERROR_UNSUPPORTED, "s24_session_forward runs one of a model on the",
                   enqueue(&w, &batch));
    (void)close_world(&w);
    open_world(&w, "llama-tiny", 1);
    const s24_outputs logits = {.logits = w.vectors};
    batch.ids = w.ids;
    assert_refused(w.ctx, S24_ERROR_UNSUPPORTED, "no logits or losses of a language model",
                   s24_session_enqueue(w.session, w.ctx, &batch, &logits, NULL, NULL));
    (void)close_world(&w);
}

/* A device that is lost on the way says so in the call that notices. */
static void test_lost(void **state)
{
    (void)state;
    world w;
    setenv("S24_FAKE_WAITS", "200", 1);
    open_world(&w, "bert-tiny", 1);
    unsetenv("S24_FAKE_WAITS");
    s24_status status = S24_OK;
    for (int i = 0; i < 400 && status == S24_OK; i++) {
        const int64_t offsets[] = {0, 1 + i % 30};
        const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = w.ids};
        status = enqueue(&w, &batch);
    }
    assert_int_equal(status, S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(w.ctx), "the device is lost"));
    (void)close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits), cmocka_unit_test(test_in_turns),
        cmocka_unit_test(test_masks), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
