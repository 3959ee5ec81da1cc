// SPDX-License-Identifier: Apache-2.0
/* What a walk through the blocks reads, wherever the passes run: texts and a block's weights. */
#include "recipe/calibration.h"

#include "io/checkpoint/checkpoint.h"

s24_batch s24i_calibration_batch(s24i_calibration *c, int64_t first, int64_t end)
{
    for (int64_t t = first; t <= end; t++)
        c->offsets[t - first] = c->ends[t] - c->ends[first];
    const s24_batch *images = c->pruner->opts.images;
    if (images)
        return (s24_batch){.texts = end - first,
                           .offsets = c->offsets,
                           .pixels = images->pixels + first * s24i_image_elems(&c->model->shape)};
    return (s24_batch){.texts = end - first,
                       .offsets = c->offsets,
                       .ids = c->ids + c->ends[first],
                       .types = c->types ? c->types + c->ends[first] : NULL};
}

s24_status s24i_calibration_load(s24i_calibration *c)
{
    const int shared = c->model->architecture->shared;
    for (int slot = 0; slot < c->numbers; slot++) {
        const s24_tensor *tensor = c->block[slot];
        s24_dense *w = &c->weights[slot];
        if (!tensor && shared) continue; /* they are the first block's, as that left them */
        s24_ctx_free(c->ctx, w->data);
        w->data = NULL;
        if (!tensor) continue;
        s24i_slot_shape(&w->rows, &w->cols, &c->model->shape, (s24i_slot)slot);
        TRY(s24i_alloc_elems(&w->data, c->ctx, w->rows * w->cols, sizeof(float), "a weight"));
        TRY(s24i_name_tensor(c->ctx, s24i_pruner_load(c->pruner, w->data, tensor), tensor));
    }
    return S24_OK;
}
