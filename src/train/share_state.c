// SPDX-License-Identifier: Apache-2.0
/* The optimiser's state in parts: each rank keeps the moments of tensors that follow one another in
   the arena, moves these weights, and hands them to the others. */
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "train/share.h"

enum { AT_ONCE = 1 << 18 /* numbers of a moment that ranks are handed for a checkpoint */ };

/* ---- who keeps what -------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Do parts of at most so many weights, cut where tensors begin, go round? */
static int go_round(s24i_share *s, const int64_t *cuts, int64_t count, int64_t most)
{
    int rank = 0;
    s->owned[0] = 0;
    for (int64_t i = 1; i < count; i++) {
        if (cuts[i] - cuts[i - 1] > most) return 0;
        if (cuts[i] - s->owned[rank] <= most) continue;
        if (rank + 1 == s->world) return 0;
        s->owned[++rank] = cuts[i - 1];
    }
    while (rank < s->world)
        s->owned[++rank] = cuts[count - 1];
    return 1;
}

/* Parts whose largest is as small as can be. Tensors that share a vector stay together; a device's
   is of 16 bytes, of masks too. */
static s24_status deal_out(s24i_share *s, const s24_transformer *t, s24_ctx *ctx)
{
    const int64_t vector = t->machine.gpu ? 128 : 16;
    int64_t *cuts, count = 0, least = 0, most = t->elems;
    TRY(s24i_alloc_elems(&cuts, ctx, t->place_count + 2, sizeof *cuts, "tensors of ranks"));
    cuts[count++] = 0;
    for (int64_t i = 0; i < t->place_count; i++)
        if (t->places[i].offset % vector == 0) cuts[count++] = t->places[i].offset;
    cuts[count++] = t->elems;
    qsort(cuts, (size_t)count, sizeof *cuts, by_value);
    while (least < most) {
        const int64_t middle = least + (most - least) / 2;
        if (go_round(s, cuts, count, middle))
            most = middle;
        else
            least = middle + 1;
    }
    (void)go_round(s, cuts, count, most);
    s24_ctx_free(ctx, cuts);
    return S24_OK;
}

s24_status s24i_share_deal(s24i_share *s, const s24_transformer *t, s24_ctx *ctx)
{
    TRY(s24i_alloc_elems(&s->owned, ctx, s->world + 1, sizeof *s->owned, "tensors of ranks"));
    TRY(s24i_alloc_elems(&s->piece, ctx, AT_ONCE, sizeof *s->piece, "a part of a moment"));
    return deal_out(s, t, ctx);
}

s24i_range s24i_share_owned(const s24i_share *s, const s24_transformer *t)
{
    if (!s->owned) return (s24i_range){0, t->elems};
    return (s24i_range){s->owned[s->rank], s->owned[s->rank + 1] - s->owned[s->rank]};
}

/* ---- weights that others moved --------------------------------------------------------------- */

static size_t bytes_of(const s24i_share *s, int rank)
{
    return (size_t)(s->owned[rank + 1] - s->owned[rank]) * sizeof(float);
}

/* From the machine to the stage what is this rank's, or back what is not. */
static void stage(const s24i_share *s, s24i_machine *m, float *arena, int back)
{
    for (int r = 0; r < s->world; r++) {
        float *there = arena + s->owned[r], *here = s->stage + s->owned[r];
        const size_t bytes = bytes_of(s, r);
        if (bytes && !back && r == s->rank) m->ops->download(m, here, there, bytes);
        if (bytes && back && r != s->rank) m->ops->upload(m, there, here, bytes);
    }
}

s24_status s24i_share_carried(s24i_share *s, s24_status status)
{
    s->cut |= status != S24_OK;
    return status;
}

static s24_status hand_round(s24i_share *s, s24i_machine *m, s24_ctx *ctx, float *arena)
{
    float *from = s->stage ? s->stage : arena;
    if (s->stage) stage(s, m, arena, 0);
    for (int r = 0; r < s->world; r++) {
        float *part = from + s->owned[r];
        TRY(s24i_share_carried(s,
                               s24i_comm_broadcast_begin(ctx, s->comm, part, bytes_of(s, r), r)));
    }
    TRY(s24i_share_carried(s, s24i_comm_follow(ctx, s->comm)));
    if (s->stage) stage(s, m, arena, 1);
    return m->status;
}

static s24_status hand_weights(s24i_share *s, s24_transformer *t, s24_ctx *ctx, s24i_optimiser *o)
{
    s24i_machine *m = &t->machine;
    for (int r = 0; r < s->world; r++)
        if (r != s->rank && bytes_of(s, r))
            m->ops->clear(m, t->gradients + s->owned[r], bytes_of(s, r));
    TRY(hand_round(s, m, ctx, t->weights));
    if (o->latent) TRY(hand_round(s, m, ctx, o->latent));
    m->ops->refresh(m);
    return s24i_method_lay(o, t, ctx);
}

s24_status s24i_share_weights(s24i_share *s, s24_transformer *t, s24_ctx *ctx, s24i_optimiser *o,
                              s24_status mine)
{
    if (!s->owned || s->cut) return mine;
    const s24_status status = hand_weights(s, t, ctx, o);
    return mine != S24_OK ? mine : status;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* A rank's part of a moment, which stands in `to` where that is not NULL. */
static s24_status collect_part(s24i_share *s, s24i_machine *m, s24_ctx *ctx, const float *moment,
                               int rank, float *to)
{
    const int64_t count = s->owned[rank + 1] - s->owned[rank];
    for (int64_t at = 0, n; at < count; at += n) {
        n = s24i_min(AT_ONCE, count - at);
        const size_t bytes = (size_t)n * sizeof *s->piece;
        if (rank == s->rank) m->ops->download(m, s->piece, moment + at, bytes);
        TRY(s24_comm_broadcast(ctx, s->comm, s->piece, bytes, rank));
        if (to) memcpy(to + at, s->piece, bytes);
    }
    return m->status;
}

s24_status s24i_share_collect(s24i_share *s, s24_transformer *t, s24_ctx *ctx, s24i_optimiser *o)
{
    const float *const moments[] = {o->m, o->v};
    if (!s->owned) return S24_OK;
    /* Rank 0 takes part where it has no room, too. */
    o->whole = s->rank ? NULL : s24_ctx_alloc(ctx, 2 * (size_t)t->elems * sizeof *o->whole);
    t->machine.ctx = ctx;
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < s->world; r++)
            TRY(collect_part(s, &t->machine, ctx, moments[i], r,
                             o->whole ? o->whole + i * t->elems + s->owned[r] : NULL));
    return S24_OK;
}
