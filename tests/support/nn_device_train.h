// SPDX-License-Identifier: Apache-2.0
/* What the tests of transformers on a device share: the device, transformers there and on the
   CPU. Include after support.h. */
#ifndef S24_TEST_NN_DEVICE_TRAIN_H
#define S24_TEST_NN_DEVICE_TRAIN_H

#include <math.h>

#include "device_here.h"
#include "nn_close.h"
#include "nn_io_folder.h"
#include "nn_moved.h"
#include "nn_train_golden.h"
#include "train/run.h"

static s24_ctx *ctx;
static s24_device *device;

static inline int device_setup(void **state)
{
    if (io_folder_setup(state) || s24_ctx_create(&ctx, NULL) != S24_OK) return 1;
    device = device_here(ctx);
    return 0;
}

static inline int device_teardown(void **state)
{
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
    return io_folder_teardown(state);
}

#define SKIP_HERE(g, opened)                                                                       \
    do {                                                                                           \
        if (!device) skip();                                                                       \
        if (!(opened)) SKIP_WITHOUT((g).folder);                                                   \
    } while (0)

/* How a transformer is made: NULL device: in f32 on the CPU. */
typedef struct how {
    s24_dtype dtype;
    int train, recompute;
    int64_t max_tokens;
    int pruned; /* trained with 2:4 layers */
} how;

static inline s24_transformer *make(const char *folder, const how *h)
{
    s24_transformer *t;
    s24_checkpoint *checkpoint;
    const s24_transformer_opts opts = {.size = sizeof opts,
                                       .max_tokens = h->max_tokens ? h->max_tokens : MOST,
                                       .max_texts = 8,
                                       .train = h->train,
                                       .recompute = h->recompute,
                                       .device = h->dtype ? device : NULL,
                                       .dtype = h->dtype};
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    OK(ctx, s24_transformer_load(&t, ctx, checkpoint, &opts));
    s24_checkpoint_close(checkpoint);
    return t;
}

/* All weights, or gradients, side by side. */
static inline float *all_of(const s24_transformer *t, int gradients, int64_t *count)
{
    s24_parameter p;
    float *all = NULL;
    *count = 0;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        all = realloc(all, (size_t)(*count + p.count) * sizeof *all);
        OK(ctx, s24_transformer_read(all + *count, t, ctx, i, gradients));
        *count += p.count;
    }
    return all;
}

/* All layers of the blocks become 2:4, along n as well where both. */
static inline void prune(s24_transformer *t, int both)
{
    s24_parameter p;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        const s24_tensor tensor = {
            .name = p.name, .dtype = S24_F32, .rank = p.rank, .shape = {p.shape[0], p.shape[1]}};
        if (!s24_tensor_is_selected(&tensor, NULL, NULL)) continue;
        float *w = malloc((size_t)p.count * sizeof *w);
        OK(ctx, s24_transformer_read(w, t, ctx, i, 0));
        for (int64_t k = 0; k < p.count; k++) {
            const int64_t row = k / p.shape[1], col = k % p.shape[1];
            const int64_t phase = both ? row + col : col + row / 4 * 3;
            if (phase % 4 < 2) w[k] = 0;
        }
        OK(ctx, s24_transformer_write(t, ctx, i, w));
        free(w);
    }
}

#endif
