// SPDX-License-Identifier: Apache-2.0
/* What a walk through the blocks goes by, wherever the passes run: texts, the stages of a block and
   its weights. */
#include "recipe/calibration.h"

#include "io/checkpoint/checkpoint.h"

s24i_stage_kind s24i_stage_kind_of(const s24i_shape *shape, int kind)
{
    enum { NONE, LATENT, LATENT_QUERIES };
    static const s24i_stage_kind kinds[][S24I_STAGES] = {
        [NONE] = {{{S24I_QUERY, S24I_KEY, S24I_VALUE}, 3}},
        [LATENT] = {{{S24I_QUERY, S24I_KEY}, 2}, {.count = 0}, {{S24I_VALUE}, 1}},
        [LATENT_QUERIES] = {{{S24I_LATENT, S24I_KEY}, 2}, {{S24I_QUERY}, 1}, {{S24I_VALUE}, 1}}};
    static const s24i_stage_kind others[] = {
        {{S24I_ATTENTION}, 1}, {{S24I_INTERMEDIATE, S24I_GATE}, 2}, {{S24I_OUTPUT}, 1}};
    enum { OTHERS = sizeof others / sizeof *others };
    if (kind >= S24I_STAGES - OTHERS) return others[kind - (S24I_STAGES - OTHERS)];
    return kinds[shape->latent.queries ? LATENT_QUERIES : shape->latent.rank ? LATENT : NONE][kind];
}

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
