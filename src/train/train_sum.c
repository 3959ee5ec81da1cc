// SPDX-License-Identifier: Apache-2.0
/*
 * The sums of blocks, their norms and their dropout: forward, and next to it the adjoint, in which
 * hidden states are pulled to a teacher's. ds is the gradient of the sum at work, dn that of the
 * norm's output before it.
 */
#include "train/transformer.h"

const s24i_dropout *s24i_drop(s24i_dropout *drop, const s24i_mode *mode, double rate, int64_t site)
{
    *drop = (s24i_dropout){(float)rate, mode->seed ^ ((uint64_t)(site + 1) << 40)};
    return rate > 0 ? drop : NULL;
}

/* The layer that takes norm j's output, NULL after the last block. */
static const s24i_layer *reader_of(const s24_transformer *t, int64_t j)
{
    if (j >= 2 * t->shape.layers) return NULL;
    return j % 2 ? &t->blocks[j / 2].up : &t->blocks[j / 2].qkv;
}

void s24i_sum_up(const s24i_block_walk *w, const float *bias)
{
    s24_transformer *t = w->t;
    s24i_machine *m = &t->machine;
    const int64_t j = w->sum;
    s24i_dropout drop;
    const s24i_add_norm job = {.y = s24i_norm_at(t, j),
                               .s = s24i_sum_at(t, j),
                               .stats = s24i_stats_at(t, j),
                               .z = t->at.z,
                               .bias = bias,
                               .residual = s24i_goes_past(t, j - 1) ? s24i_sum_at(t, j - 1)
                                                                    : s24i_norm_at(t, j - 1),
                               .norm = s24i_norm_of_sum(t, j),
                               .drop = s24i_drop(&drop, w->mode, w->mode->dropout, j),
                               .rows = t->step.tokens,
                               .width = t->shape.width,
                               .reader = reader_of(t, j)};
    m->ops->add_norm(m, &job);
}

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

/* At norm 2·b stands hidden state b; past: ds holds the gradient that goes past the norm. Returns
   whether ds was written. */
static int pull_at(s24_transformer *t, const s24i_pull *pull, int64_t b, int past)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)(t->step.tokens * t->shape.width) * m->element;
    const int pulled = pulls(t, pull, b, 0);
    if (pulled && !past) m->ops->clear(m, t->at.ds, bytes);
    pull_state(t, pull, b, 1);
    pull_state(t, pull, b, 0);
    return pulled;
}

const void *s24i_through_norm(const s24i_block_walk *w, const s24i_layer *added)
{
    s24_transformer *t = w->t;
    s24i_machine *m = &t->machine;
    const s24i_mode *mode = w->mode;
    const int64_t j = w->sum;
    const int last = j == 2 * t->shape.layers, pre = s24i_goes_past(t, j), past = pre && !last;
    const int pulled = j % 2 == 0 && pull_at(t, w->pull, j / 2, past);
    s24i_dropout drop, drop_z;
    s24i_norm_back job = {.ds = t->at.ds,
                          .dy = s24i_sum_is_read(t, j) ? t->at.dn : NULL,
                          .dy2 = pre || last ? NULL : t->at.ds,
                          .s = s24i_sum_at(t, j),
                          .stats = s24i_stats_at(t, j),
                          .norm = s24i_norm_of_sum(t, j),
                          .drop = pre || j ? NULL : s24i_drop(&drop, mode, mode->dropout, 0),
                          .add = past || pulled,
                          .rows = t->step.tokens,
                          .width = t->shape.width,
                          .added = added};
    if (j > 0) {
        job.drop_z = s24i_drop(&drop_z, mode, mode->dropout, j);
        job.dz = job.drop_z ? t->at.z : NULL;
    }
    if (added) job.dbias = added->dbias;
    m->ops->norm_back(m, &job);
    return job.dz ? job.dz : job.ds;
}
