// SPDX-License-Identifier: Apache-2.0
/* How a walk through the blocks prunes a stage of a block's layers, wherever the passes run. */
#include "io/checkpoint/checkpoint.h"
#include "recipe/prune_ranks.h"
#include "recipe/reach.h"

#include <string.h>

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

int s24i_calibration_takes(const s24i_calibration *c, int64_t block, int kind, int64_t expert)
{
    const s24i_stage_kind of = s24i_stage_kind_of(&c->model->shape, kind);
    for (int i = 0; i < of.count; i++) {
        const int number = (int)s24i_slot_of(expert, of.slots[i]);
        const s24_tensor *t = c->tensors[block * c->numbers + number];
        if (t && s24i_pruner_takes(c->pruner, t)) return 1;
    }
    return 0;
}

static s24_status prune_expert(s24i_calibration *c, int64_t block, const s24i_stage *s,
                               int64_t expert)
{
    const s24i_stage_kind kind = s24i_stage_kind_of(&c->model->shape, s->kind);
    const s24i_slot first = s24i_slot_of(expert, kind.slots[0]);
    const s24_stats *stats = c->stats[expert - s->first];
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

/* Statistics become those of the passages of all ranks. */
static s24_status sum_ranks(s24i_calibration *c, int64_t block, const s24i_stage *s)
{
    const s24i_slot first = s24i_stage_kind_of(&c->model->shape, s->kind).slots[0];
    s24i_prune_ranks *ranks = c->pruner->ranks;
    if (!ranks) return S24_OK;
    TRY(s24i_prune_ranks_say(ranks));
    for (int64_t e = s->first; e < s->end; e++)
        if (s24i_calibration_takes(c, block, s->kind, e))
            TRY(s24i_prune_ranks_sum(ranks, c->stats[e - s->first],
                                     c->weights[s24i_slot_of(e, first)].cols));
    return S24_OK;
}

/* Of experts that have seen nothing. */
static s24_status complete(s24i_calibration *c, int64_t block, const s24i_stage *s)
{
    const s24i_slot first = s24i_stage_kind_of(&c->model->shape, s->kind).slots[0];
    for (int64_t e = s24i_max(s->first, 0); e < s->end; e++) {
        s24_stats *stats = c->stats[e - s->first];
        double *gram;
        int64_t *inputs;
        TRY(s24_stats_sums(&gram, &inputs, c->ctx, stats));
        if (!*inputs && s24i_calibration_takes(c, block, s->kind, e))
            TRY(see_all_alike(c, s24i_slot_of(e, first), stats));
    }
    return S24_OK;
}

s24_status s24i_calibration_prune(s24i_calibration *c, int64_t block, const s24i_stage *s)
{
    TRY(sum_ranks(c, block, s));
    TRY(complete(c, block, s));
    if (c->pruner->ranks) return s24i_calibration_take_turns(c, s);
    for (int64_t e = s->first; e < s->end; e++)
        TRY(prune_expert(c, block, s, e));
    return S24_OK;
}
