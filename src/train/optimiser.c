// SPDX-License-Identifier: Apache-2.0
/*
 * AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019) over the weights'
 * arena, with masks that keep pruned weights zero, and the learning rate's course.
 */
#include <math.h>
#include <string.h>

#include "train/run.h"

/* SR-STE's factor: how strongly masked weights that learn on are pulled to 0. */
static const double PULL = 2e-4;

s24_status s24i_optimiser_create(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                                 const s24_train_opts *opts)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)t->elems * sizeof(float);
    *o = (s24i_optimiser){0};
    m->ctx = ctx;
    m->status = S24_OK;
    o->m = m->ops->alloc(m, bytes);
    o->v = m->ops->alloc(m, bytes);
    REQUIRE(ctx, o->m && o->v, S24_ERROR_MEMORY, "out of memory: the optimiser's %lld moments",
            2 * (long long)t->elems);
    m->ops->clear(m, o->m, bytes);
    m->ops->clear(m, o->v, bytes);
    if (!opts->fixed) return S24_OK;
    o->mask = m->ops->alloc(m, (size_t)t->elems / 8);
    if (opts->refresh) o->latent = m->ops->alloc(m, bytes);
    REQUIRE(ctx, o->mask && (o->latent || !opts->refresh), S24_ERROR_MEMORY,
            "out of memory: masks of %lld weights", (long long)t->elems);
    if (o->latent) m->ops->copy(m, o->latent, t->weights, bytes);
    return s24i_masks_make(o, t, ctx);
}

s24_status s24i_optimiser_fix(const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              int64_t *plan)
{
    s24i_machine *m = &t->machine;
    s24i_layer **layers;
    s24i_fixed fixed = {.count = S24I_LAYERS_A_BLOCK * t->shape.layers,
                        .tokens = t->opts.max_tokens};
    if (!o->mask) return S24_OK;
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
    m->ops->free(m, o->m);
    m->ops->free(m, o->v);
    m->ops->free(m, o->mask);
    m->ops->free(m, o->latent);
}

void s24i_optimiser_step(const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                         const s24_train_opts *opts, int64_t step, double rate)
{
    s24i_machine *m = &t->machine;
    const s24i_update job = {.p = o->latent ? o->latent : t->weights,
                             .masked = o->latent ? t->weights : NULL,
                             .pull = PULL,
                             .g = t->gradients,
                             .m = o->m,
                             .v = o->v,
                             .mask = o->mask,
                             .segments = t->segments,
                             .segment_count = t->segment_count,
                             .count = t->elems,
                             .sums = t->at.sums,
                             .clip = opts->clip,
                             .beta1 = opts->beta1,
                             .beta2 = opts->beta2,
                             .eps = opts->eps,
                             .rate = rate,
                             .decay = opts->decay,
                             .step = step};
    m->ctx = ctx;
    m->ops->squares(m, &t->at.sums->squares, t->gradients, o->latent ? NULL : o->mask, t->elems);
    m->ops->update(m, &job);
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
