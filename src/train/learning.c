// SPDX-License-Identifier: Apache-2.0
/*
 * What learns next to what runs, where both are f32: segments of the arena of which a method takes
 * a tensor are there twice; of all others the weights learn.
 */
#include <string.h>

#include "train/run.h"

/* The segment of the arena that an element is in. */
static int64_t segment_of(const s24_transformer *t, int64_t element)
{
    int64_t i = 0;
    while (i + 1 < t->segment_count && t->segments[i + 1].offset <= element)
        i++;
    return i;
}

float *s24i_learning(const s24i_optimiser *o, const s24_transformer *t, int64_t element)
{
    const int64_t i = o->latent ? segment_of(t, element) : 0;
    if (!o->latent || o->apart[i] < 0) return t->weights + element;
    return o->latent + o->apart[i] + element - t->segments[i].offset;
}

static int is_taken(const s24i_optimiser *o, const s24_transformer *t, const s24i_segment *s)
{
    for (int64_t i = 0; i < t->place_count; i++) {
        const int64_t at = t->places[i].offset - s->offset;
        if (at >= 0 && at < s->count && s24i_method_takes(o, &t->places[i])) return 1;
    }
    return 0;
}

/* Ranks that share the moments out hand one another what learns as they do the weights: it is laid
   out alike then. */
static s24_status lay_out(s24i_optimiser *o, const s24_transformer *t, s24_ctx *ctx)
{
    const int alike = o->parts;
    TRY(s24i_alloc_elems(&o->apart, ctx, t->segment_count, sizeof *o->apart, "segments"));
    for (int64_t i = 0; i < t->segment_count; i++) {
        const s24i_segment *s = &t->segments[i];
        const int taken = alike || is_taken(o, t, s);
        o->apart[i] = alike ? s->offset : taken ? o->latent_count : -1;
        o->latent_count += taken ? s->count : 0;
    }
    if (alike) o->latent_count = t->elems;
    return S24_OK;
}

s24_status s24i_learning_create(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    TRY(lay_out(o, t, ctx));
    o->latent = m->ops->alloc(m, (size_t)o->latent_count * sizeof *o->latent);
    REQUIRE(ctx, o->latent, S24_ERROR_MEMORY, "out of memory: what masks leave of %lld weights",
            (long long)o->latent_count);
    for (int64_t i = 0; i < t->segment_count; i++)
        if (o->apart[i] >= 0)
            m->ops->copy(m, o->latent + o->apart[i], t->weights + t->segments[i].offset,
                         (size_t)t->segments[i].count * sizeof *o->latent);
    for (int64_t i = 0; i < o->segment_count; i++) {
        s24i_segment *s = &o->segments[i];
        const int64_t first = o->own.first + s->offset;
        if (o->apart[segment_of(t, first)] >= 0) s->learns = s24i_learning(o, t, first);
    }
    return m->status;
}

void s24i_learning_read(float *all, const s24i_optimiser *o, s24_transformer *t)
{
    s24i_machine *m = &t->machine;
    for (int64_t i = 0; i < t->segment_count; i++) {
        const s24i_segment *s = &t->segments[i];
        if (s->count)
            m->ops->download(m, all + s->offset, s24i_learning(o, t, s->offset),
                             (size_t)s->count * sizeof *all);
    }
}

void s24i_learning_write(const s24i_optimiser *o, s24_transformer *t, const float *all)
{
    s24i_machine *m = &t->machine;
    for (int64_t i = 0; i < t->segment_count; i++)
        if (o->apart[i] >= 0)
            m->ops->upload(m, o->latent + o->apart[i], all + t->segments[i].offset,
                           (size_t)t->segments[i].count * sizeof *all);
}
