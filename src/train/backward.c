// SPDX-License-Identifier: Apache-2.0
/* The pass backward: ds is the gradient of the sum at work, dn that of the norm's output before it. */
#include "train/transformer.h"

/* Hidden state b is pulled to the teacher's, at the norm's output or at the sum before it. */
static int pulls(const s24_transformer *t, const s24i_pull *pull, int64_t b, int normed)
{
    return pull->states && b > 0 && s24i_state_is_normed(t, b) == normed;
}

static void pull_state(s24_transformer *t, const s24i_pull *pull, int64_t b, int normed)
{
    s24i_machine *m = &t->machine;
    const int64_t width = t->shape.width;
    if (!pulls(t, pull, b, normed)) return;
    const size_t bytes = (size_t)(t->step.tokens * width) * m->element;
    m->ops->squared_error(m, &t->at.sums->loss, normed ? t->at.dn : t->at.ds,
                          normed ? s24i_norm_at(t, 2 * b) : s24i_sum_at(t, 2 * b),
                          pull->states + (size_t)b * bytes, pull->weight, &t->step, width);
}

/* Through norm j, from dn to ds, which may hold the gradient that goes past the norm already (add).
   Returns the gradient of what was added last to the sum, before it was dropped. */
static const void *through_norm(s24_transformer *t, const s24i_mode *mode, int64_t j, int add)
{
    s24i_machine *m = &t->machine;
    const int last = j == 2 * t->shape.layers, pre = t->arch->pre_norm;
    const s24i_train_block *block = j ? &t->blocks[(j - 1) / 2] : NULL;
    s24i_dropout drop, drop_z;
    s24i_norm_back job = {.ds = t->at.ds,
                          .dy = t->at.dn,
                          .dy2 = pre || last ? NULL : t->at.ds,
                          .s = s24i_sum_at(t, j),
                          .stats = s24i_stats_at(t, j),
                          .norm = &t->norms[j],
                          .drop = pre || j ? NULL : s24i_drop(&drop, mode, mode->dropout, 0),
                          .add = add,
                          .rows = t->step.tokens,
                          .width = t->shape.width};
    if (block) {
        job.drop_z = s24i_drop(&drop_z, mode, mode->dropout, j);
        job.dz = job.drop_z ? t->at.z : NULL;
        job.dbias = j % 2 ? block->attention.dbias : block->down.dbias;
    }
    m->ops->norm_back(m, &job);
    return job.dz ? job.dz : job.ds;
}

/* Through norm 2·b, at which a hidden state stands. */
static const void *through_state(s24_transformer *t, const s24i_mode *mode, const s24i_pull *pull,
                                 int64_t b)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)(t->step.tokens * t->shape.width) * m->element;
    const int past = t->arch->pre_norm && b < t->shape.layers; /* ds holds what goes past it */
    const int pulled = pulls(t, pull, b, 0);
    if (pulled && !past) m->ops->clear(m, t->at.ds, bytes);
    pull_state(t, pull, b, 1);
    pull_state(t, pull, b, 0);
    return through_norm(t, mode, 2 * b, past || pulled);
}

/* dz is the gradient of the block's output. Returns that of its first half's. */
static const void *feed_back(s24_transformer *t, const s24i_mode *mode, int64_t b, const void *dz)
{
    s24i_machine *m = &t->machine;
    const s24i_train_block *block = &t->blocks[b];
    const int64_t rows = t->step.tokens;
    const s24i_activate activate = s24i_activate_of(t, b);
    m->ops->linear_dw(m, dz, activate.h, &block->down, rows, 0);
    m->ops->linear_dx(m, t->at.dh, dz, &block->down, rows);
    m->ops->activate_back(m, t->at.du, t->at.dh, &activate);
    m->ops->linear_dw(m, t->at.du, s24i_norm_at(t, 2 * b + 1), &block->up, rows, 0);
    m->ops->linear_dx(m, t->at.dn, t->at.du, &block->up, rows);
    return through_norm(t, mode, 2 * b + 1, t->arch->pre_norm);
}

static void attend_back(s24_transformer *t, const s24i_mode *mode, int64_t b, const void *dz)
{
    s24i_machine *m = &t->machine;
    const s24i_train_block *block = &t->blocks[b];
    const int64_t rows = t->step.tokens;
    s24i_dropout drop;
    s24i_heads heads = s24i_heads_of(t, b);
    heads.drop = s24i_drop(&drop, mode, mode->attention_dropout, s24i_attention_site(b));
    m->ops->linear_dw(m, dz, heads.context, &block->attention, rows, 0);
    m->ops->linear_dx(m, t->at.dcontext, dz, &block->attention, rows);
    m->ops->attention_back(m, t->at.dqkv, t->at.dcontext,
                           s24i_in_stack(&t->at.qkv, s24i_block_slot(t, b)), &heads);
    if (heads.angles) m->ops->rotate(m, t->at.dqkv, &heads, 1);
    m->ops->linear_dw(m, t->at.dqkv, s24i_norm_at(t, 2 * b), &block->qkv, rows, 1);
    m->ops->linear_dx(m, t->at.dn, t->at.dqkv, &block->qkv, rows);
}

static void embed_back(s24_transformer *t, const s24i_mode *mode)
{
    s24i_machine *m = &t->machine;
    const int64_t rows = t->step.tokens;
    s24i_dropout drop;
    if (t->arch->pre_norm && s24i_drop(&drop, mode, mode->dropout, 0))
        m->ops->dropout(m, t->at.ds, t->at.ds, &drop, rows, t->shape.width);
    m->ops->embed_back(m, t->at.ds, &t->embed, &t->step);
    if (t->shape.image) m->ops->linear_dw(m, t->at.ds, t->at.rows, &t->patches, rows, 1);
}

void s24i_run_backward(s24_transformer *t, const s24i_mode *mode, const s24i_pull *pull)
{
    const int64_t layers = t->shape.layers;
    const void *dz = through_state(t, mode, pull, layers);
    for (int64_t b = layers - 1; b >= 0; b--) {
        attend_back(t, mode, b, feed_back(t, mode, b, dz));
        if (t->opts.recompute && b > 0)
            s24i_run_again(t, mode, b - 1); /* which needs no gradient */
        dz = through_state(t, mode, pull, b);
    }
    embed_back(t, mode);
}
