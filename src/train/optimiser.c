// SPDX-License-Identifier: Apache-2.0
/*
 * AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019) over the weights'
 * arena, with masks that keep pruned weights zero, and the learning rate's course.
 */
#include <math.h>
#include <string.h>

#include "train/run.h"

/* The masks of the first step, then the moments. */
static s24_status begin(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    const s24i_moment start = {0, 0};
    int changed;
    TRY(s24i_method_begin(o, t, ctx, &start, &changed));
    return s24i_moments_create(o, t, ctx);
}

static s24_status find_segments(s24i_optimiser *o, const s24_transformer *t, s24_ctx *ctx)
{
    const s24i_range own = o->own;
    TRY(s24i_alloc_elems(&o->segments, ctx, t->segment_count, sizeof *o->segments, "segments"));
    for (int64_t i = 0; i < t->segment_count; i++) {
        const s24i_segment *s = &t->segments[i];
        const int64_t begin = s24i_max(s->offset, own.first);
        const int64_t end = s24i_min(s->offset + s->count, own.first + own.count);
        if (end > begin)
            o->segments[o->segment_count++] = (s24i_segment){
                .offset = begin - own.first, .count = end - begin, .matrix = s->matrix};
    }
    return S24_OK;
}

s24_status s24i_optimiser_create(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                                 const s24_train_opts *opts, s24i_range own)
{
    s24i_machine *m = &t->machine;
    *o = (s24i_optimiser){.own = own,
                          .parts = opts->shard_optimizer && s24_comm_world(opts->comm) > 1,
                          .noise = NAN,
                          .overhead = NAN};
    m->ctx = ctx;
    m->status = S24_OK;
    TRY(find_segments(o, t, ctx));
    TRY(s24i_method_create(o, t, ctx, opts));
    REQUIRE(ctx, own.count == t->elems || o->method->adam != S24I_ADAM_STEP, S24_ERROR_UNSUPPORTED,
            "method %s watches the variance of all weights, which shard_optimizer leaves with "
            "several ranks",
            o->method->name);
    if (o->method->choice == S24I_CHOICE_NOBODY) return begin(o, t, ctx);
    o->learns = o->method->choice != S24I_CHOICE_ZEROS;
    o->mask = o->bits;
    /* Where the machine rounds what runs, it lies apart from what learns already. */
    if (o->learns && !m->ops->mask) TRY(s24i_learning_create(o, t, ctx));
    return begin(o, t, ctx);
}

static s24i_becomes becomes(const s24i_optimiser *o)
{
    const s24i_mask_choice choice = o->method->choice;
    if (!o->learns) return S24I_BECOMES_NOTHING;
    return choice == S24I_CHOICE_TILES || choice == S24I_CHOICE_GREEDY ? S24I_BECOMES_BOTH
                                                                       : S24I_BECOMES_FORWARD;
}

s24_status s24i_optimiser_fix(const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              int64_t *plan)
{
    s24i_machine *m = &t->machine;
    s24i_layer **layers;
    const s24i_buffers *at = &t->at;
    const int64_t most = t->opts.max_tokens, tokens = o->step_tokens;
    s24i_fixed fixed = {.count = S24I_LAYERS_A_BLOCK * t->shape.layers,
                        .x = {at->n.at, at->context.at, at->n.at, at->h.at},
                        .y = {at->qkv.at, at->z, at->u.at, at->z},
                        .tokens = s24i_min(most, tokens),
                        .parts = (tokens + most - 1) / most,
                        .becomes = becomes(o)};
    /* What runs of scaled weights is dense until the end, though a checkpoint may have been written
       while they were settled. */
    if (!o->mask || o->method->forward == S24I_FORWARD_SCALED) return S24_OK;
    TRY(s24i_alloc_elems(&layers, ctx, fixed.count, sizeof *layers, "a list of layers"));
    for (int64_t b = 0; b < t->shape.layers; b++) {
        s24i_train_block *block = &t->blocks[b];
        s24i_layer *const each[S24I_LAYERS_A_BLOCK] = {&block->qkv, &block->attention, &block->up,
                                                       &block->down};
        memcpy(layers + S24I_LAYERS_A_BLOCK * b, each, sizeof each);
    }
    fixed.layers = layers;
    m->ctx = ctx;
    const s24_status status = m->ops->fix(m, &fixed, plan);
    s24_ctx_free(ctx, layers);
    return status;
}

void s24i_optimiser_free(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    m->ctx = ctx;
    m->ops->unfix(m);
    s24i_method_free(o, t, ctx);
    m->ops->free(m, o->m);
    m->ops->free(m, o->v);
    m->ops->free(m, o->moments_at);
    m->ops->free(m, o->latent);
    s24_ctx_free(ctx, o->apart);
    s24_ctx_free(ctx, o->segments);
}

static s24i_update update_of(const s24i_optimiser *o, const s24_transformer *t,
                             const s24_train_opts *opts, const s24i_stride *stride)
{
    const int64_t first = o->own.first;
    const double frozen = o->taken ? o->memory[S24I_REMEMBERS_FROZEN] : 0;
    return (s24i_update){.p = t->weights + first,
                         .learns = o->learns,
                         .pull = o->numbers.masked_decay,
                         .g = t->gradients + first,
                         .m = o->m,
                         .v = o->v,
                         .mask = o->mask ? o->mask + first / 16 : NULL,
                         .segments = o->segments,
                         .moments_at = o->moments_at,
                         .segment_count = o->segment_count,
                         .count = o->own.count,
                         .first = first,
                         .sums = t->at.sums,
                         .clip = opts->clip,
                         .beta1 = opts->beta1,
                         .beta2 = opts->beta2,
                         .eps = opts->eps,
                         .rate = stride->rate,
                         .decay = opts->decay,
                         .step = stride->step,
                         .frozen = frozen > 0 ? o->taken : NULL,
                         .frozen_gain = frozen > 0 && o->numbers.corrected > 0
                                            ? 1 / sqrt(1 - pow(opts->beta2, frozen))
                                            : 1,
                         .frozen_eps = pow(opts->eps, 0.75),
                         .fade = stride->at.progress,
                         .signs = o->method->adam == S24I_ADAM_ADAMS};
}

static void squares(const s24i_optimiser *o, s24_transformer *t)
{
    s24i_machine *m = &t->machine;
    m->ops->squares(m, &t->at.sums->squares, t->gradients, o->learns ? NULL : o->mask, t->elems);
}

/* ---- STEP ------------------------------------------------------------------------------------ */

int s24i_step_freezes(double mean, double eps, double progress, const s24i_numbers *n)
{
    return progress > n->most || (mean < eps && progress > n->least);
}

/* The mean of the window after a change of the variance came into it. */
static double remember_change(s24i_optimiser *o, const s24_transformer *t, const s24i_variance *v)
{
    double *window = o->memory + S24I_REMEMBERS_FIXED + t->place_count, sum = 0;
    const int64_t room = o->memory_count - S24I_REMEMBERS_FIXED - t->place_count;
    const int64_t count = (int64_t)o->memory[S24I_REMEMBERS_COUNT]++;
    const double geometric = v->changed ? exp(v->logs / (double)v->changed) : 0;
    window[count % room] = o->numbers.statistic > 1 ? geometric : v->sum / (double)v->count;
    const int64_t filled = s24i_min(count + 1, room);
    for (int64_t i = 0; i < filled; i++)
        sum += window[i];
    return sum / (double)filled;
}

static s24_status step_of_step(s24i_optimiser *o, s24_transformer *t, const s24i_update *job,
                               const s24i_stride *stride)
{
    s24i_machine *m = &t->machine;
    s24i_variance change;
    s24i_sums sums;
    if (job->frozen) {
        m->ops->update_as(m, job);
        return m->status;
    }
    m->ops->variance(m, &change, job, o->taken);
    m->ops->download(m, &sums, t->at.sums, sizeof sums);
    m->ops->update(m, job);
    if (m->status != S24_OK || !isfinite(sums.loss) || !isfinite(sums.squares)) return m->status;
    const double mean = remember_change(o, t, &change);
    if (s24i_step_freezes(mean, job->eps, stride->after, &o->numbers))
        o->memory[S24I_REMEMBERS_FROZEN] = (double)job->step;
    return S24_OK;
}

/* ---- what learns next to the weights --------------------------------------------------------- */

/* Adam for o->extra, by the same norm. */
static void move_extra(s24i_optimiser *o, s24i_machine *m, const s24i_update *of_weights)
{
    const s24i_segment all = {.count = o->extra_count};
    s24i_update job = *of_weights;
    job.p = o->extra;
    job.m = o->extra + o->extra_count;
    job.v = o->extra + 2 * o->extra_count;
    job.g = o->extra + 3 * o->extra_count;
    job.learns = 0;
    job.mask = job.frozen = NULL;
    job.segments = &all;
    job.moments_at = NULL;
    job.segment_count = job.aside = 1;
    job.count = o->extra_count;
    job.first = 0;
    job.decay = 0;
    job.signs = 0;
    m->ops->update(m, &job);
}

/* Gradients of extras, their norm with that of the weights', then both move. */
static s24_status step_with_extra(s24i_optimiser *o, s24_transformer *t, const s24i_update *job,
                                  const s24i_stride *stride)
{
    s24i_machine *m = &t->machine;
    const s24i_look look = {.moment = stride->at, .sparse = 1};
    s24i_sums sums;
    double more;
    TRY(s24i_extra_back(o, t, &look));
    if (o->method->adam == S24I_ADAM_PATTERNS)
        m->ops->clear(m, t->gradients, (size_t)t->elems * sizeof *t->gradients);
    squares(o, t);
    m->ops->squares(m, o->extra_squares, o->extra + 3 * o->extra_count, NULL, o->extra_count);
    m->ops->download(m, &sums, t->at.sums, sizeof sums);
    m->ops->download(m, &more, o->extra_squares, sizeof more);
    sums.squares += more;
    m->ops->upload(m, t->at.sums, &sums, sizeof sums);
    if (o->method->adam != S24I_ADAM_PATTERNS) m->ops->update_as(m, job);
    move_extra(o, m, job);
    return m->status;
}

s24_status s24i_optimiser_step(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                               const s24_train_opts *opts, const s24i_stride *stride)
{
    s24i_machine *m = &t->machine;
    const s24i_update job = update_of(o, t, opts, stride);
    m->ctx = ctx;
    if (o->extra) {
        TRY(step_with_extra(o, t, &job, stride));
    } else {
        squares(o, t);
        if (o->method->adam == S24I_ADAM_STEP)
            TRY(step_of_step(o, t, &job, stride));
        else
            m->ops->update(m, &job);
    }
    s24i_noise_measure(o, t);
    return m->status;
}

double s24i_schedule_at(const s24_train_opts *opts, double progress, double share)
{
    const double w = opts->warmup, left = (1.0 - progress) / (1.0 - w);
    double factor = 1.0;
    if (opts->schedule == S24_SCHEDULE_LINEAR) factor = left;
    if (opts->schedule == S24_SCHEDULE_COSINE)
        factor = progress < w ? 1.0 : 0.5 - 0.5 * cos(3.141592653589793 * left);
    if (w > 0) factor = fmin(factor, (progress + share) / w);
    return fmin(1.0, fmax(factor, 0.0));
}
