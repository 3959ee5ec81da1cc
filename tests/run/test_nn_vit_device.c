// SPDX-License-Identifier: Apache-2.0
/*
 * Encoders of images on a device: golden vectors, and a model of random 2:4 weights beside the CPU,
 * from host memory and from the device's, often enough to run from a graph. Says in a line where
 * there is no GPU.
 */
#include "device_support.h"

#include "nn_load.h"
#include "nn_vit_support.h"

static void golden_there(void **state)
{
    (void)state;
    gpu g = {0};
    vit_golden golden;
    if (!gpu_here(&g)) return;
    if (!vit_golden_open(&golden)) {
        gpu_end(&g);
        SKIP_WITHOUT(golden.folder);
    }
    vit_results *r = malloc(sizeof *r);
    for (int i = 0; i < 2; i++) {
        const double bound = i ? 2e-2 : 3e-3;
        const s24_model_opts opts = {
            .size = sizeof opts, .device = g.device, .dtype = i ? S24_BF16 : S24_F16};
        const s24_outputs outputs = {
            .hidden = r->hidden, .embeddings = r->embeddings, .logits = r->logits};
        s24_model *model;
        s24_session *session;
        OK(g.ctx, load(&model, g.ctx, golden.folder, &opts));
        OK(g.ctx, s24_session_create(&session, g.ctx, model, VIT_TOKENS));
        for (int turn = 0; turn < 3; turn++) {
            memset(r, 0xff, sizeof *r);
            OK(g.ctx, s24_session_forward(session, g.ctx, &golden.batch, &outputs));
            vit_near(mini_get(&golden.io, "hidden.3").data, r->hidden, VIT_TOKENS * VIT_WIDTH,
                     bound, "the last hidden state");
            vit_near(mini_get(&golden.io, "output.logits").data, r->logits,
                     VIT_IMAGES * VIT_CLASSES, bound, "logits");
        }
        s24_session_destroy(session);
        s24_model_destroy(model);
    }
    mini_close(&golden.io);
    free(r);
    gpu_end(&g);
}

enum { IMAGES = 3, PIXELS = 3 * 224 * 224, CLASSES = 1000, WIDTH = 192 };

typedef struct output {
    float logits[IMAGES * CLASSES], vectors[IMAGES * WIDTH];
} output;

static void forward(gpu *g, s24_session *session, const s24_batch *batch, output *o)
{
    const s24_outputs outputs = {.logits = o->logits, .embeddings = o->vectors};
    memset(o, 0xff, sizeof *o);
    OK(g->ctx, s24_session_forward(session, g->ctx, batch, &outputs));
}

static void compare(gpu *g, s24_dtype dtype, int sparse)
{
    const double bound = dtype == S24_BF16 ? 3e-2 : 4e-3;
    const s24_model_opts here = {.size = sizeof here, .sparse = sparse};
    const s24_model_opts there = {
        .size = sizeof there, .sparse = sparse, .dtype = dtype, .device = g->device};
    s24_model *models[2];
    s24_session *sessions[2];
    s24_model_info info;
    float *pixels = malloc((size_t)IMAGES * PIXELS * sizeof *pixels);
    output *expected = malloc(sizeof *expected), *got = malloc(sizeof *got);
    for (int64_t i = 0; i < (int64_t)IMAGES * PIXELS; i++)
        pixels[i] = random_float();
    void *device_pixels = upload(g, pixels, (size_t)IMAGES * PIXELS * sizeof *pixels);
    for (int i = 0; i < 2; i++) {
        OK(g->ctx, s24_model_preset(&models[i], g->ctx, "vit-tiny", i ? &there : &here));
        s24_model_describe(&info, models[i]);
        OK(g->ctx, s24_session_create(&sessions[i], g->ctx, models[i], IMAGES * info.positions));
    }
    assert_int_equal(info.sparse_layers, sparse ? info.linear_layers : 0);
    for (int variant = 0; variant < 2; variant++) {
        const s24_batch batch = {.texts = IMAGES - variant, .pixels = pixels};
        s24_batch moved = batch;
        forward(g, sessions[0], &batch, expected);
        for (int turn = 0; turn < 4; turn++) {
            moved.pixels = turn % 2 ? device_pixels : pixels;
            forward(g, sessions[1], &moved, got);
            vit_near(expected->logits, got->logits, batch.texts * CLASSES, bound, "logits");
            vit_near(expected->vectors, got->vectors, batch.texts * WIDTH, bound, "vectors");
        }
    }
    for (int i = 0; i < 2; i++) {
        s24_session_destroy(sessions[i]);
        s24_model_destroy(models[i]);
    }
    release(g, device_pixels);
    free(pixels);
    free(expected);
    free(got);
}

static void same_as_here(void **state)
{
    (void)state;
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 4; i++)
        compare(&g, i % 2 ? S24_BF16 : S24_F16, i / 2);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_there),
        cmocka_unit_test(same_as_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
