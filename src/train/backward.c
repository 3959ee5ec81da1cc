// SPDX-License-Identifier: Apache-2.0
/* The pass backward: ds is the gradient of the sum at work, dn that of the norm's output before it. */
#include "train/transformer.h"

/* The gradient of a half's output before it was dropped and summed up. */
static const void *undropped(s24_transformer *t, const s24i_mode *mode, int64_t j)
{
    s24i_machine *m = &t->machine;
    const int64_t rows = t->step.tokens, width = t->shape.width;
    s24i_dropout drop;
    if (!s24i_drop(&drop, mode, mode->dropout, j)) return t->at.ds;
    m->ops->dropout(m, t->at.z, t->at.ds, &drop, rows, width);
    return t->at.z;
}

static void pull_state(s24_transformer *t, const s24i_pull *pull, int64_t b, int normed)
{
    s24i_machine *m = &t->machine;
    const int64_t width = t->shape.width;
    if (!pull->states || b == 0 || s24i_state_is_normed(t, b) != normed) return;
    const size_t bytes = (size_t)(t->step.tokens * width) * m->element;
    m->ops->squared_error(m, &t->at.sums->loss, normed ? t->at.dn : t->at.ds,
                          normed ? s24i_norm_at(t, 2 * b) : s24i_sum_at(t, 2 * b),
                          pull->states + (size_t)b * bytes, pull->weight, &t->step, width);
}

/* Through norm j, from dn to ds, which holds the gradient that goes past it. */
static void through_norm(s24_transformer *t, const s24i_mode *mode, int64_t j)
{
    s24i_machine *m = &t->machine;
    const int last = j == 2 * t->shape.layers, pre = t->arch->pre_norm;
    s24i_dropout drop;
    const s24i_norm_back job = {.ds = t->at.ds,
                                .dy = t->at.dn,
                                .dy2 = pre || last ? NULL : t->at.ds,
                                .s = s24i_sum_at(t, j),
                                .stats = s24i_stats_at(t, j),
                                .norm = &t->norms[j],
                                .drop = pre || j ? NULL : s24i_drop(&drop, mode, mode->dropout, 0),
                                .add = pre && !last,
                                .rows = t->step.tokens,
                                .width = t->shape.width};
    m->ops->norm_back(m, &job);
}

static void feed_back(s24_transformer *t, const s24i_mode *mode, int64_t b)
{
    s24i_machine *m = &t->machine;
    const s24i_train_block *block = &t->blocks[b];
    const int64_t rows = t->step.tokens;
    const s24i_activate activate = s24i_activate_of(t, b);
    const void *dz = undropped(t, mode, 2 * b + 2);
    m->ops->linear_dw(m, dz, activate.h, &block->down, rows, 1);
    m->ops->linear_dx(m, t->at.dh, dz, &block->down, rows);
    m->ops->activate_back(m, t->at.du, t->at.dh, &activate);
    m->ops->linear_dw(m, t->at.du, s24i_norm_at(t, 2 * b + 1), &block->up, rows, 0);
    m->ops->linear_dx(m, t->at.dn, t->at.du, &block->up, rows);
    through_norm(t, mode, 2 * b + 1);
}

static void attend_back(s24_transformer *t, const s24i_mode *mode, const s24i_pull *pull, int64_t b)
{
    s24i_machine *m = &t->machine;
    const s24i_train_block *block = &t->blocks[b];
    const int64_t rows = t->step.tokens;
    const void *dz = undropped(t, mode, 2 * b + 1);
    s24i_dropout drop;
    s24i_heads heads = s24i_heads_of(t, b);
    heads.drop = s24i_drop(&drop, mode, mode->attention_dropout, s24i_attention_site(b));
    m->ops->linear_dw(m, dz, heads.context, &block->attention, rows, 1);
    m->ops->linear_dx(m, t->at.dcontext, dz, &block->attention, rows);
    m->ops->attention_back(m, t->at.dqkv, t->at.dcontext,
                           s24i_in_stack(&t->at.qkv, s24i_block_slot(t, b)), &heads);
    if (heads.angles) m->ops->rotate(m, t->at.dqkv, &heads, 1);
    m->ops->linear_dw(m, t->at.dqkv, s24i_norm_at(t, 2 * b), &block->qkv, rows, 1);
    m->ops->linear_dx(m, t->at.dn, t->at.dqkv, &block->qkv, rows);
    pull_state(t, pull, b, 1);
    through_norm(t, mode, 2 * b);
    pull_state(t, pull, b, 0);
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
    pull_state(t, pull, layers, 1);
    through_norm(t, mode, 2 * layers);
    pull_state(t, pull, layers, 0);
    for (int64_t b = layers - 1; b >= 0; b--) {
        if (t->opts.recompute && b + 1 < layers) s24i_run_again(t, mode, b);
        feed_back(t, mode, b);
        attend_back(t, mode, pull, b);
    }
    embed_back(t, mode);
}
