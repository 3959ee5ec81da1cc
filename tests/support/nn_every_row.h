// SPDX-License-Identifier: Apache-2.0
/* What passes of a small model of each row of models.def (nn_row_folder.h) give. Include after
   support.h. */
#ifndef S24_TEST_NN_EVERY_ROW_H
#define S24_TEST_NN_EVERY_ROW_H

#include "nn_row_folder.h"

enum { TEXTS = 4, ROOM = 128, SIDE = 16, PIXELS = 3 * SIDE * SIDE };

/* ---- passes ---------------------------------------------------------------------------------- */

/* Texts in the order of a batch, each with so many masked tokens at its end. */
typedef struct order {
    int count, texts[TEXTS], padding;
} order;

static const int lengths[TEXTS] = {7, 1, 70, 12};

/* What a pass gives by text, wherever it stood in the batch: padding's states are left out. */
typedef struct states {
    float hidden[TEXTS][ROOM * 64], vectors[TEXTS][64];
    int64_t tokens[TEXTS], width; /* that have states */
} states;

static inline void forward(states *out, s24_ctx *ctx, const s24_model *model, const order *o,
                           int64_t image_tokens)
{
    s24_model_info info;
    static float hidden[TEXTS * ROOM * 64], vectors[TEXTS * 64], pixels[TEXTS * PIXELS];
    int32_t ids[TEXTS * ROOM];
    uint8_t mask[TEXTS * ROOM] = {0};
    int64_t offsets[TEXTS + 1] = {0};
    s24_session *session;
    const s24_outputs outputs = {.hidden = hidden, .embeddings = image_tokens ? NULL : vectors};
    s24_model_describe(&info, model);
    out->width = info.width;
    for (int i = 0; i < o->count; i++) {
        const int text = o->texts[i], length = lengths[text] + o->padding;
        uint64_t state = (uint64_t)text + 1;
        offsets[i + 1] = offsets[i] + (image_tokens ? image_tokens : length);
        for (int t = 0; !image_tokens && t < length; t++) {
            ids[offsets[i] + t] = 2 + (int32_t)(test_random(&state) % (VOCABULARY - 2));
            mask[offsets[i] + t] = t < lengths[text];
        }
        for (int p = 0; image_tokens && p < PIXELS; p++)
            pixels[i * PIXELS + p] = test_uniform(&state);
    }
    const s24_batch batch = {.texts = o->count, .offsets = offsets, .ids = ids, .mask = mask};
    const s24_batch images = {.texts = o->count, .pixels = pixels};
    memset(vectors, 0, sizeof vectors); /* images have none */
    OK(ctx, s24_session_create(&session, ctx, model, offsets[o->count]));
    /* Three times: the last one on a device is its graph's. */
    for (int turn = 0; turn < (model->device ? 3 : 1); turn++)
        OK(ctx, s24_session_forward(session, ctx, image_tokens ? &images : &batch, &outputs));
    s24_session_destroy(session);
    for (int i = 0; i < o->count; i++) {
        const int text = o->texts[i];
        out->tokens[text] = image_tokens ? image_tokens : lengths[text];
        memcpy(out->hidden[text], hidden + offsets[i] * info.width,
               (size_t)(out->tokens[text] * info.width) * sizeof *hidden);
        memcpy(out->vectors[text], vectors + i * info.width, (size_t)info.width * sizeof *vectors);
    }
}

static inline void compare(const states *want, const states *got, double bound, const char *what)
{
    for (int text = 0; text < TEXTS; text++) {
        near(want->hidden[text], got->hidden[text], want->tokens[text] * want->width, bound, what);
        near(want->vectors[text], got->vectors[text], want->width, bound, what);
    }
}

/* ---- what holds ------------------------------------------------------------------------------ */

typedef struct subject {
    const char *folder;
    s24_dtype dtype;
    int64_t image_tokens;
    int threads, dense, images;
    const char *level;  /* of the CPU; NULL: this one's */
    s24_device *device; /* NULL: the CPU */
} subject;

static inline s24_status load_subject(s24_model **out, s24_ctx *ctx, const subject *s)
{
    const s24_model_opts opts = {.size = sizeof opts,
                                 .dtype = s->dtype,
                                 .dense = s->dense,
                                 .all_sparse = !s->dense,
                                 .images = s->images,
                                 .device = s->device};
    return load(out, ctx, s->folder, &opts);
}

/* UNSUPPORTED: the device does not take the model. */
static inline s24_status run_orders_on(states *out, s24_ctx *ctx, const subject *s,
                                       const order *orders, int count)
{
    s24_model *model;
    const s24_status status = load_subject(&model, ctx, s);
    if (status == S24_ERROR_UNSUPPORTED && s->device) return status;
    OK(ctx, status);
    for (int i = 0; i < count; i++)
        forward(out, ctx, model, &orders[i], s->image_tokens);
    s24_model_destroy(model);
    return S24_OK;
}

static inline void run_orders(states *out, const subject *s, const order *orders, int count)
{
    s24_ctx *ctx = new_ctx(s->level, s->threads);
    OK(ctx, run_orders_on(out, ctx, s, orders, count));
    s24_ctx_destroy(ctx);
}

static const order alone[TEXTS] = {{1, {0}, 0}, {1, {1}, 0}, {1, {2}, 0}, {1, {3}, 0}};
static const order together = {TEXTS, {0, 1, 2, 3}, 0}, turned = {TEXTS, {2, 3, 1, 0}, 0},
                   padded = {TEXTS, {1, 0, 3, 2}, 6};

/* From here on tokens take all experts: two whose scores are near another may change places by the
   rounding of narrow numbers, and a state then is another one. A mixture of exactly two experts
   cannot take all of them, so that it is compared in f32 alone: 0. */
static inline int use_all_experts(const char *folder, const s24i_architecture *a, const size *n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (a->mixture && a->mixture->key_jitter) return 0;
    if (a->mixture) write_row_config(a, n, "5", path);
    return 1;
}

static inline int64_t tokens_of_image(const char *folder, const s24i_architecture *a)
{
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24i_shape shape;
    OK(ctx, s24i_shape_read(&shape, ctx, a, folder));
    s24_ctx_destroy(ctx);
    return shape.image ? shape.positions : 0;
}

#endif
