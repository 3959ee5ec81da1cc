// SPDX-License-Identifier: Apache-2.0
/*
 * The walk through blocks where the passes of training run the passages, on a device or for an aim,
 * and what reconstruction and a run that goes on share with it. A model that is trained has no
 * mixtures, so a block's slots are bits.
 */
#include "recipe/calibration.h"

#include "io/checkpoint/checkpoint.h"

#include <string.h>

/* The bits of the block's slots of a stage, or with S24I_STAGES of all, that get pruned. */
static unsigned taken_slots(const s24i_calibration *c, int kind)
{
    unsigned taken = 0;
    for (int k = 0; k < S24I_STAGES; k++) {
        const s24i_stage_kind of = s24i_stage_kind_of(&c->model->shape, k);
        for (int i = 0; i < of.count && (kind == S24I_STAGES || k == kind); i++) {
            const s24_tensor *tensor = c->block[of.slots[i]];
            if (tensor && s24i_pruner_takes(c->pruner, tensor)) taken |= 1u << of.slots[i];
        }
    }
    return taken;
}

static int ends_half(const s24i_calibration *c, int kind)
{
    const s24i_slot first = s24i_stage_kind_of(&c->model->shape, kind).slots[0];
    return first == S24I_ATTENTION || first == S24I_OUTPUT;
}

/* All texts through a half of a block, or to a layer of it. */
static int64_t count_passes(s24i_calibration *c)
{
    const int64_t layers = c->model->shape.layers;
    int64_t passes = (c->pruner->opts.reconstruct ? 6 : 2) * layers - 1;
    for (int64_t b = 0; b < layers; b++) {
        int stages = 0, outer = 0;
        c->block = c->tensors + b * c->numbers;
        for (int kind = 0; kind < S24I_STAGES; kind++) {
            const int taken = taken_slots(c, kind) != 0;
            stages += taken;
            outer += taken && ends_half(c, kind);
        }
        passes += stages + (c->aim ? s24i_aim_passes(c->aim, stages, outer) : 0);
    }
    return c->aim ? passes - 1 : passes; /* the dense model ends before the last half */
}

s24_status s24i_calibration_prepare_halves(s24i_calibration *c)
{
    const s24_model_prune_opts *o = &c->pruner->opts;
    c->is_there = o->device || o->aim;
    if (!c->is_there && !o->reconstruct) return S24_OK;
    REQUIRE(c->ctx, !o->aim || c->texts > 1, S24_ERROR_ARGUMENT,
            "to aim at %s needs two passages or more, of which one is held back; there is %lld",
            o->aim, (long long)c->texts);
    const s24i_halves_opts opts = {.model = c->pruner->in,
                                   .texts = c->texts,
                                   .held = o->aim ? s24i_max(1, c->texts / S24I_AIM_HELD) : 0,
                                   .ends = c->ends,
                                   .ids = c->ids,
                                   .pixels = o->images ? o->images->pixels : NULL,
                                   .embeddings = c->hidden,
                                   .device = o->device,
                                   .train = o->reconstruct > 0};
    TRY(s24i_halves_create(&c->halves, c->ctx, &opts));
    if (o->reconstruct)
        TRY(s24i_reconstruction_create(&c->reconstruction, c->ctx, c->halves, o->reconstruct));
    if (o->aim) TRY(s24i_aim_create(&c->aim, c->ctx, c->halves, !strcmp(o->aim, "states")));
    if (c->is_there) c->halves->total = c->halves->batch_count * count_passes(c);
    return S24_OK;
}

s24_status s24i_calibration_reconstruct(s24i_calibration *c, int64_t block)
{
    const unsigned pruned = taken_slots(c, S24I_STAGES);
    TRY(s24i_reconstruct_block(c->reconstruction, c->ctx, block, c->weights, pruned));
    for (int slot = 0; slot < S24I_ALL_SLOTS; slot++)
        if (pruned >> slot & 1u)
            TRY(s24i_pruner_write(c->pruner, c->weights[slot].data, c->block[slot]));
    return S24_OK;
}

/* The weights that get pruned of a stage move to where they aim. */
static s24_status aim_stage(s24i_calibration *c, int64_t block, int kind, const char *state)
{
    const s24i_stage_kind of = s24i_stage_kind_of(&c->model->shape, kind);
    const unsigned taken = taken_slots(c, kind);
    TRY(s24i_name_tensor(c->ctx, s24i_aim_look(c->aim, c->ctx, block, of.slots[0], state),
                         c->block[of.slots[0]]));
    for (int i = 0; i < of.count; i++) {
        const s24i_slot slot = of.slots[i];
        if (!(taken >> slot & 1u)) continue;
        TRY(s24i_name_tensor(c->ctx,
                             s24i_aim_move(c->aim, c->ctx, &c->weights[slot], c->stats[0],
                                           c->pruner->opts.prune.dampening),
                             c->block[slot]));
    }
    return S24_OK;
}

static s24_status prune_stage(s24i_calibration *c, int64_t block, int kind, const char *state)
{
    const s24i_stage stage = {.kind = kind, .first = -1};
    const s24i_slot first = s24i_stage_kind_of(&c->model->shape, kind).slots[0];
    const unsigned taken = taken_slots(c, kind);
    if (!taken) return S24_OK;
    TRY(s24_stats_create(&c->stats[0], c->ctx, c->weights[first].cols));
    TRY(s24i_name_tensor(
        c->ctx,
        s24i_halves_gram(c->halves, c->ctx, c->stats[0], &(s24i_reading){block, first, state, 0}),
        c->block[first]));
    if (c->aim) TRY(aim_stage(c, block, kind, state));
    if (c->aim) TRY(s24i_aim_show(c->aim, c->ctx, c->stats[0]));
    TRY(s24i_calibration_prune(c, block, &stage));
    s24_stats_destroy(c->stats[0]);
    c->stats[0] = NULL;
    return c->pruner->tried ? S24_OK : s24i_halves_put(c->halves, c->ctx, block, c->weights, taken);
}

/* They run what a reader will see of the weights. */
s24_status s24i_calibration_prune_there(s24i_calibration *c, int64_t block)
{
    s24i_halves *h = c->halves;
    TRY(s24i_calibration_load(c));
    if (c->reconstruction) TRY(s24i_reconstruct_aim(c->reconstruction, c->ctx, block));
    for (int kind = 0; kind < S24I_STAGES; kind++) {
        const int outer = kind >= S24I_STAGES - S24I_OUTER_STAGES;
        const int begins = kind == S24I_STAGES - S24I_OUTER_STAGES;
        if (begins) TRY(s24i_halves_run(h, c->ctx, 2 * block, h->state, h->middle));
        if (c->aim && (begins || !kind)) TRY(s24i_aim_begin(c->aim, c->ctx, block, outer));
        TRY(prune_stage(c, block, kind, outer ? h->middle : h->state));
    }
    if (!c->reconstruction) return S24_OK;
    TRY(s24i_calibration_reconstruct(c, block));
    TRY(s24i_halves_put(h, c->ctx, block, c->weights, taken_slots(c, S24I_STAGES)));
    return s24i_halves_run(h, c->ctx, 2 * block, h->state, h->middle);
}

s24_status s24i_calibration_take(s24i_calibration *c, int64_t block)
{
    s24i_halves *h = c->halves;
    if (c->reconstruction) {
        TRY(s24i_reconstruct_aim(c->reconstruction, c->ctx, block));
        s24i_reconstruct_pass(c->reconstruction);
    }
    if (c->aim) TRY(s24i_aim_pass(c->aim, c->ctx, block));
    if (!c->is_there) return s24i_model_set_block(c->model, c->ctx, block, c->weights);
    TRY(s24i_halves_put(h, c->ctx, block, c->weights, taken_slots(c, S24I_STAGES)));
    return s24i_halves_run(h, c->ctx, 2 * block, h->state, h->middle);
}

s24_status s24i_calibration_leave_there(s24i_calibration *c, int64_t block)
{
    s24i_halves *h = c->halves;
    return s24i_halves_run(h, c->ctx, 2 * block + 1, h->middle, h->state);
}
