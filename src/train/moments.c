// SPDX-License-Identifier: Apache-2.0
/*
 * Where the optimiser's moments lie: as the weights do, or, of a matrix whose zeros stay and of
 * whose every 16 neighbours eight at most are anything else, those of what stays alone, eight for
 * 16, in the order of the bits.
 */
#include <string.h>

#include "train/cpu_room.h"
#include "train/run.h"

static int is_half(const uint16_t *bits, const s24i_segment *s)
{
    for (int64_t i = 0; i < s->count / 16; i++)
        if (__builtin_popcount(bits[s->offset / 16 + i]) > 8) return 0;
    return s->matrix;
}

/* A number for each 16 elements, as a device's update has it. */
static s24_status make_table(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)(t->elems / 16) * sizeof *o->moments_at;
    uint32_t *table;
    o->moments_at = m->ops->alloc(m, bytes);
    REQUIRE(ctx, o->moments_at, S24_ERROR_MEMORY, "out of memory: places of %lld moments",
            2 * (long long)o->moment_count);
    TRY(s24i_alloc_elems(&table, ctx, t->elems / 16, sizeof *table, "places of moments"));
    for (int64_t i = 0; i < o->segment_count; i++) {
        const s24i_segment *s = &o->segments[i];
        for (int64_t k = 0; k < s->count / 16; k++)
            table[s->offset / 16 + k] =
                (uint32_t)(s->moments / 8 + (s->halved ? k : 2 * k)) | (uint32_t)s->halved << 31;
    }
    m->ops->upload(m, o->moments_at, table, bytes);
    s24_ctx_free(ctx, table);
    return m->status;
}

/* Which matrices have half of the moments, by the masks that stay. */
static s24_status find_halves(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    uint16_t *bits;
    TRY(s24i_alloc_elems(&bits, ctx, t->elems / 16, sizeof *bits, "masks"));
    m->ops->download(m, bits, o->bits, (size_t)(t->elems / 16) * sizeof *bits);
    o->moment_count = 0;
    for (int64_t i = 0; i < o->segment_count; i++) {
        s24i_segment *s = &o->segments[i];
        s->halved = is_half(bits, s);
        s->moments = o->moment_count;
        o->moment_count += s->halved ? s->count / 2 : s->count;
    }
    s24_ctx_free(ctx, bits);
    if (m->gpu && o->moment_count < t->elems) TRY(make_table(o, t, ctx));
    return m->status;
}

s24_status s24i_moments_create(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    const int stay = o->method->choice == S24I_CHOICE_ZEROS;
    o->moment_count = o->own.count;
    for (int64_t i = 0; i < o->segment_count; i++)
        o->segments[i].moments = o->segments[i].offset;
    /* Ranks that share the moments out do so by weights. */
    if (stay && !o->parts) TRY(find_halves(o, t, ctx));
    /* A rank may have none of the weights. */
    o->moment_count = s24i_round_up(o->moment_count, 16);
    const size_t bytes = (size_t)s24i_max(o->moment_count, 1) * sizeof(float);
    o->m = m->ops->alloc(m, bytes);
    o->v = m->ops->alloc(m, bytes);
    REQUIRE(ctx, o->m && o->v, S24_ERROR_MEMORY, "out of memory: the optimiser's %lld moments",
            2 * (long long)o->moment_count);
    m->ops->clear(m, o->m, bytes);
    m->ops->clear(m, o->v, bytes);
    return m->status;
}

/* ---- on the host ----------------------------------------------------------------------------- */

static void spread_all(float *all, float *moments, const s24i_optimiser *o, const uint16_t *bits,
                       int back)
{
    for (int64_t i = 0; i < o->segment_count; i++) {
        const s24i_segment *s = &o->segments[i];
        float *to = all + s->offset, *from = moments + s->moments;
        if (s->halved)
            s24i_moments_spread(to, from, bits + s->offset / 16, s->count, back);
        else
            memcpy(back ? from : to, back ? to : from, (size_t)s->count * sizeof *all);
    }
}

/* By way of the moments as they lie and the masks. */
static s24_status go_between(float *all, const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                             float *moment, int back)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)o->moment_count * sizeof *all, mask = (size_t)t->elems / 8;
    float *half;
    TRY(s24i_alloc_elems(&half, ctx, (int64_t)(bytes + mask), 1, "moments"));
    uint16_t *bits = (uint16_t *)(void *)(half + o->moment_count);
    memset(half, 0, bytes);
    m->ops->download(m, bits, o->bits, mask);
    if (!back) m->ops->download(m, half, moment, bytes);
    spread_all(all, half, o, bits, back);
    if (back) m->ops->upload(m, moment, half, bytes);
    s24_ctx_free(ctx, half);
    return m->status;
}

static int is_halved(const s24i_optimiser *o)
{
    for (int64_t i = 0; i < o->segment_count; i++)
        if (o->segments[i].halved) return 1;
    return 0;
}

s24_status s24i_moments_read(float *all, const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                             const float *moment)
{
    s24i_machine *m = &t->machine;
    if (is_halved(o)) return go_between(all, o, t, ctx, (float *)(uintptr_t)moment, 0);
    m->ops->download(m, all + o->own.first, moment, (size_t)o->own.count * sizeof *all);
    return m->status;
}

s24_status s24i_moments_write(const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              float *moment, const float *all)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)o->own.count * sizeof *all;
    if (is_halved(o)) return go_between((float *)(uintptr_t)all, o, t, ctx, moment, 1);
    if (bytes) m->ops->upload(m, moment, all + o->own.first, bytes);
    return m->status;
}
