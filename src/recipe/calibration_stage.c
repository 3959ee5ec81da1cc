// SPDX-License-Identifier: Apache-2.0
/* How a walk through the blocks prunes a stage of a block's layers, wherever the passes run. */
#include "io/checkpoint/checkpoint.h"
#include "recipe/reach.h"

#include <string.h>

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

/* Of an expert that no token took. */
static s24_status see_all_alike(const s24i_calibration *c, s24i_slot slot, s24_stats *stats)
{
    enum { ROWS = 256 };
    const int64_t k = c->weights[slot].cols;
    float *rows;
    s24_status status = S24_OK;
    s24_ctx_log(c->ctx, S24_LOG_WARNING,
                "no calibration token takes the expert of '%s': magnitude decides what stays",
                s24i_show(c->block[slot]->name).text);
    TRY(s24i_alloc_elems(&rows, c->ctx, ROWS * k, sizeof *rows, "an expert's inputs"));
    for (int64_t first = 0; first < k && status == S24_OK; first += ROWS) {
        const s24_dense x = {rows, S24_F32, s24i_min(ROWS, k - first), k, 0};
        memset(rows, 0, (size_t)(x.rows * k) * sizeof *rows);
        for (int64_t r = 0; r < x.rows; r++)
            rows[r * k + first + r] = 1.0f;
        status = s24_stats_add(stats, c->ctx, &x);
    }
    s24_ctx_free(c->ctx, rows);
    return status;
}

/* A layer whose error is followed. */
typedef struct followed {
    s24i_calibration *c;
    int64_t block;
    s24i_slot slot;
} followed;

static s24_status follow(double *error, void *user, float *w)
{
    const followed *f = user;
    return s24i_reach_measure(error, f->c, f->block, f->slot, w);
}

static s24_status try_layer(s24i_calibration *c, int64_t block, s24i_slot slot, int64_t input,
                            const s24_stats *stats)
{
    followed f = {c, block, slot};
    const s24i_trial trial = {input, c->reach ? follow : NULL, &f};
    return s24i_pruner_try(c->pruner, c->weights[slot].data, c->block[slot], stats, &trial);
}

s24_status s24i_calibration_prune(s24i_calibration *c, int64_t block, const s24i_stage *s,
                                  int64_t expert)
{
    const s24i_stage_kind kind = s24i_stage_kind_of(&c->model->shape, s->kind);
    const s24i_slot first = s24i_slot_of(expert, kind.slots[0]);
    s24_stats *stats = c->stats[expert - s->first];
    if (expert >= 0 && !c->seen[expert - s->first]) TRY(see_all_alike(c, first, stats));
    for (int i = 0; i < kind.count; i++) {
        const s24i_slot slot = s24i_slot_of(expert, kind.slots[i]);
        const s24_tensor *tensor = c->block[slot];
        float *w = c->weights[slot].data;
        if (tensor && s24i_pruner_takes(c->pruner, tensor))
            TRY(c->pruner->tried
                    ? try_layer(c, block, slot, block * c->numbers + (int64_t)first, stats)
                    : s24i_pruner_layer(c->pruner, w, tensor, stats));
    }
    return S24_OK;
}
