// SPDX-License-Identifier: Apache-2.0
/*
 * AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019) over the weights'
 * arena, with masks that keep pruned weights zero, and the learning rate's course.
 */
#include <math.h>
#include <string.h>

#include "train/train.h"

/* Is a place's matrix a linear layer of the blocks that is 2:4? One that lies transposed in its file
   may be so along either side: whoever prunes files sees k in their columns. */
static s24_status is_two_four(int *yes, const s24_transformer *t, s24_ctx *ctx, const s24i_place *p,
                              float *w)
{
    s24_tensor tensor = {.name = p->name, .dtype = S24_F32, .rank = p->rank};
    memcpy(tensor.shape, p->shape, sizeof tensor.shape);
    *yes = 0;
    /* GPT-2's [k, n] tensors are selected by hand when they are pruned, so any of its matrices that
       is 2:4 counts. */
    if (!p->transposed && !s24_tensor_is_selected(&tensor, NULL, NULL)) return S24_OK;
    s24i_machine *m = (s24i_machine *)(uintptr_t)&t->machine;
    const s24_dense dense = {w, S24_F32, p->rows, p->cols, 0};
    m->ops->download(m, w, t->weights + p->offset, (size_t)(p->rows * p->cols) * sizeof *w);
    if (p->cols % 4 == 0) TRY(s24_check(yes, NULL, ctx, &dense));
    return *yes || !p->transposed ? S24_OK : s24_check_along_n(yes, NULL, ctx, &dense);
}

/* Clears the bits of the zeros of w at an offset. */
static void mask_zeros(uint16_t *mask, int64_t offset, const float *w, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (w[i] == 0.0f) mask[(offset + i) / 16] &= (uint16_t) ~(1u << (offset + i) % 16);
}

static s24_status fill_mask(uint16_t *mask, const s24_transformer *t, s24_ctx *ctx)
{
    int64_t found = 0, most = 0;
    float *w;
    for (int64_t i = 0; i < t->place_count; i++)
        most = s24i_max(most, t->places[i].rows * t->places[i].cols);
    TRY(s24i_alloc_elems(&w, ctx, most, sizeof *w, "a weight"));
    memset(mask, 0xff, (size_t)(t->elems / 16) * sizeof *mask);
    s24_status status = S24_OK;
    for (int64_t i = 0; i < t->place_count && status == S24_OK; i++) {
        const s24i_place *p = &t->places[i];
        int yes;
        status = is_two_four(&yes, t, ctx, p, w);
        if (status != S24_OK || !yes) continue;
        mask_zeros(mask, p->offset, w, p->rows * p->cols);
        found++;
    }
    s24_ctx_free(ctx, w);
    TRY(status);
    REQUIRE(ctx, found, S24_ERROR_NOT_TWO_FOUR,
            "no linear layer of the blocks is 2:4: there is nothing to keep zero");
    return S24_OK;
}

static s24_status create_mask(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)(t->elems / 16) * sizeof *o->mask;
    uint16_t *mask;
    o->mask = m->ops->alloc(m, bytes);
    REQUIRE(ctx, o->mask, S24_ERROR_MEMORY, "out of memory: masks");
    TRY(s24i_alloc_elems(&mask, ctx, (int64_t)bytes, 1, "masks"));
    const s24_status status = fill_mask(mask, t, ctx);
    if (status == S24_OK) m->ops->upload(m, o->mask, mask, bytes);
    s24_ctx_free(ctx, mask);
    return status == S24_OK ? m->status : status;
}

s24_status s24i_optimiser_create(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx, int fixed)
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
    return fixed ? create_mask(o, t, ctx) : S24_OK;
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
}

void s24i_optimiser_step(const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                         const s24_train_opts *opts, int64_t step, double rate)
{
    s24i_machine *m = &t->machine;
    const s24i_update job = {.p = t->weights,
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
    m->ops->squares(m, &t->at.sums->squares, t->gradients, o->mask, t->elems);
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
