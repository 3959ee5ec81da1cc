// SPDX-License-Identifier: Apache-2.0
/*
 * Norms of a block that end no sum, forward and back: that of its input by which its second half
 * stands beside the first, and those of what its halves give before it is added; and the sums of
 * what was normed or is multiplied.
 */
#include "train/transformer.h"

/* Is it a second norm of the block's input? */
static int is_beside(const s24i_block_walk *w, const s24i_block_step *step)
{
    return w->t->arch->side_by_side && step->norm == S24I_OUTPUT_NORM;
}

static void norm_beside(const s24i_block_walk *w)
{
    s24_transformer *t = w->t;
    const int64_t j = 2 * w->block;
    const s24i_add_norm job = {.y = s24i_norm_at(t, j + 1),
                               .s = s24i_sum_at(t, j),
                               .stats = s24i_stats_at(t, j + 1),
                               .norm = &t->norms[j + 1],
                               .rows = t->step.tokens,
                               .width = t->shape.width};
    t->machine.ops->add_norm(&t->machine, &job);
}

static void norm_beside_back(const s24i_block_walk *w)
{
    s24_transformer *t = w->t;
    const int64_t j = 2 * w->block;
    const s24i_norm_back job = {.ds = t->at.ds,
                                .dy = t->at.dn,
                                .s = s24i_sum_at(t, j),
                                .stats = s24i_stats_at(t, j + 1),
                                .norm = &t->norms[j + 1],
                                .add = 1,
                                .rows = t->step.tokens,
                                .width = t->shape.width};
    t->machine.ops->norm_back(&t->machine, &job);
}

/* What a half gives the residual, and the norm that stands before the sum. */
typedef struct addend {
    const s24i_norm *norm;
    void *x;
    float *stats;
} addend;

static addend addend_of(const s24i_block_walk *w, const s24i_block_step *step)
{
    const s24_transformer *t = w->t;
    const int half = step->norm == S24I_AFTER_OUTPUT_NORM;
    const int64_t slot = 2 * s24i_block_slot(t, w->block) + half;
    return (addend){&t->blocks[w->block].after[half], s24i_added_at(t, w->block, half),
                    s24i_in_stack(&t->at.added_stats, slot)};
}

static void norm_added(const s24i_block_walk *w, const s24i_block_step *step)
{
    s24_transformer *t = w->t;
    const addend a = addend_of(w, step);
    const s24i_add_norm job = {.y = t->at.z,
                               .s = a.x,
                               .stats = a.stats,
                               .norm = a.norm,
                               .rows = t->step.tokens,
                               .width = t->shape.width};
    t->machine.ops->add_norm(&t->machine, &job);
}

static void norm_added_back(const s24i_block_walk *w, const s24i_block_step *step)
{
    s24_transformer *t = w->t;
    const addend a = addend_of(w, step);
    const s24i_norm_back job = {.ds = t->at.z,
                                .dy = t->at.z,
                                .s = a.x,
                                .stats = a.stats,
                                .norm = a.norm,
                                .rows = t->step.tokens,
                                .width = t->shape.width};
    t->machine.ops->norm_back(&t->machine, &job);
}

/* Where the walk has been already, the product whose sum the norm ends did both, and so it does
   back. */
void s24i_norm_forward(s24i_block_walk *w, const s24i_block_step *step)
{
    if (step->from == S24I_AT_NORMED)
        norm_added(w, step);
    else if (is_beside(w, step))
        norm_beside(w);
}

void s24i_norm_backward(s24i_block_walk *w, const s24i_block_step *step)
{
    if (step->from == S24I_AT_NORMED)
        norm_added_back(w, step);
    else if (is_beside(w, step))
        norm_beside_back(w);
}

/* ---- sums of what was normed or is multiplied ------------------------------------------------ */

static void scale_added(const s24i_block_walk *w, const void *from)
{
    s24_transformer *t = w->t;
    const float factor = t->shape.residual_factor;
    if (factor > 0.0f || from != t->at.z)
        t->machine.ops->scale(&t->machine, t->at.z, from, factor > 0.0f ? factor : 1.0f,
                              t->step.tokens * t->shape.width);
}

/* What a half gives, and what multiplies its columns. */
static s24i_columns columns_of(const s24i_block_walk *w, const s24i_block_step *step)
{
    s24_transformer *t = w->t;
    const int half = step->slot == S24I_OUTPUT;
    const s24i_train_block *block = &t->blocks[w->block];
    return (s24i_columns){.y = t->at.z,
                          .x = s24i_added_at(t, w->block, half),
                          .scale = block->scale[half],
                          .dscale = block->dscale[half],
                          .rows = t->step.tokens,
                          .width = t->shape.width};
}

void s24i_add_forward(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    const s24i_columns columns = columns_of(w, step);
    if (columns.scale)
        m->ops->scale_columns(m, &columns);
    else
        scale_added(w, w->t->at.z);
    w->sum++;
    s24i_sum_up(w, NULL);
}

void s24i_add_backward(s24i_block_walk *w, const s24i_block_step *step)
{
    s24i_machine *m = &w->t->machine;
    const s24i_columns columns = columns_of(w, step);
    scale_added(w, s24i_through_norm(w, NULL));
    if (columns.scale) m->ops->scale_columns_back(m, &columns);
    w->sum--;
}
