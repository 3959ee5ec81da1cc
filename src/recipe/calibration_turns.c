// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks take turns at the layers of a stage, whose statistics all of them have: each chooses for
 * its own, all hand round what was chosen, and then every rank finishes every layer, so that what
 * is rounded to integers or made up for by factors is the same on all, too. A layer is one rank's
 * as a whole, because what some criteria choose in a row hangs on the others.
 */
#include "io/checkpoint/checkpoint.h"
#include "recipe/calibration.h"
#include "recipe/prune_ranks.h"

#include <string.h>

typedef struct turn {
    s24i_slot slot;
    const s24_stats *stats;
    s24i_chosen chosen; /* w NULL: another rank's */
} turn;

static int64_t elems_of(const s24i_calibration *c, const turn *t)
{
    return c->weights[t->slot].rows * c->weights[t->slot].cols;
}

/* The stage's layers that get pruned; how many. */
static int64_t list_turns(turn *turns, const s24i_calibration *c, const s24i_stage *s)
{
    const s24i_stage_kind kind = s24i_stage_kind_of(&c->model->shape, s->kind);
    int64_t count = 0;
    for (int64_t e = s->first; e < s->end; e++)
        for (int i = 0; i < kind.count; i++) {
            const s24i_slot slot = s24i_slot_of(e, kind.slots[i]);
            if (c->block[slot] && s24i_pruner_takes(c->pruner, c->block[slot]))
                turns[count++] = (turn){.slot = slot, .stats = c->stats[e - s->first]};
        }
    return count;
}

static s24_status choose(turn *t, s24i_calibration *c)
{
    const float *w = c->weights[t->slot].data;
    const int64_t count = elems_of(c, t);
    TRY(s24i_alloc_elems(&t->chosen.w, c->ctx, count, sizeof *w, "a pruned weight"));
    memcpy(t->chosen.w, w, (size_t)count * sizeof *w);
    return s24i_pruner_choose(&t->chosen.report, c->pruner, t->chosen.w, c->block[t->slot],
                              t->stats);
}

static s24_status choose_own(turn *turns, int64_t count, s24i_calibration *c)
{
    const s24i_prune_ranks *ranks = c->pruner->ranks;
    for (int64_t i = ranks->rank; i < count && !c->pruner->only_factors; i += ranks->world)
        TRY(choose(&turns[i], c));
    return S24_OK;
}

/* Rank `root` gives what it has chosen for a weight to all. */
static s24_status hand_round(s24i_chosen *chosen, s24i_calibration *c, const s24_dense *weight,
                             int root)
{
    s24i_prune_ranks *ranks = c->pruner->ranks;
    s24_dense w = *weight;
    w.data = chosen->w;
    TRY(s24_comm_broadcast(c->ctx, ranks->comm, &chosen->report, sizeof chosen->report, root));
    return s24i_prune_ranks_hand_round(ranks, &w, root);
}

static s24_status finish(s24i_calibration *c, const turn *t, const s24i_chosen *chosen)
{
    s24i_pruner own = *c->pruner;
    own.chosen = chosen;
    TRY(s24i_pruner_layer(&own, c->weights[t->slot].data, c->block[t->slot], t->stats));
    s24i_prune_ranks_note(own.ranks, &c->weights[t->slot]);
    return S24_OK;
}

/* One that cannot finish a layer goes on with what the others wait for. */
static s24_status finish_all(const turn *turns, int64_t count, s24i_calibration *c, float *room)
{
    const int world = c->pruner->ranks->world;
    s24_status status = S24_OK;
    for (int64_t i = 0; i < count; i++) {
        s24i_chosen chosen = turns[i].chosen;
        if (!chosen.w) chosen.w = room;
        if (!c->pruner->only_factors)
            TRY(hand_round(&chosen, c, &c->weights[turns[i].slot], (int)(i % world)));
        if (status == S24_OK) status = finish(c, &turns[i], &chosen);
    }
    return status;
}

s24_status s24i_calibration_take_turns(s24i_calibration *c, const s24i_stage *s)
{
    turn *turns;
    float *room = NULL;
    int64_t most = 1;
    s24_status status;
    TRY(s24i_alloc_elems(&turns, c->ctx, c->numbers, sizeof *turns, "the layers of a stage"));
    const int64_t count = list_turns(turns, c, s);
    for (int64_t i = 0; i < count; i++)
        most = s24i_max(most, elems_of(c, &turns[i]));
    TRY_DONE(s24i_alloc_elems(&room, c->ctx, most, sizeof *room, "a pruned weight"));
    TRY_DONE(choose_own(turns, count, c));
    TRY_DONE(s24i_prune_ranks_say(c->pruner->ranks));
    status = finish_all(turns, count, c, room);
done:
    for (int64_t i = 0; i < count; i++)
        s24_ctx_free(c->ctx, turns[i].chosen.w);
    s24_ctx_free(c->ctx, room);
    s24_ctx_free(c->ctx, turns);
    return status;
}
