// SPDX-License-Identifier: Apache-2.0
/*
 * Rows of distances that attention meets (model/apart.h): a table and its norm are all blocks',
 * and each block's layers for queries and keys make of them what its attention takes.
 */
#include "model/apart.h"
#include "train/transformer.h"

static int64_t rows_of(const s24_transformer *t)
{
    return s24i_apart_rows(&t->shape.apart);
}

void s24i_apart_begin(s24_transformer *t)
{
    s24i_machine *m = &t->machine;
    const int64_t rows = rows_of(t), width = t->shape.width;
    const s24i_add_norm job = {.y = t->at.apart,
                               .s = t->apart,
                               .stats = t->at.apart_stats,
                               .norm = &t->apart_norm,
                               .rows = rows,
                               .width = width};
    if (!t->apart) return;
    if (t->shape.apart.normed)
        m->ops->add_norm(m, &job);
    else
        m->ops->copy(m, t->at.apart, t->apart, (size_t)(rows * width) * sizeof *t->apart);
    if (t->at.dapart) m->ops->clear(m, t->at.dapart, (size_t)(rows * width) * sizeof *t->at.dapart);
}

static void make(const s24i_block_walk *w)
{
    s24_transformer *t = w->t;
    t->machine.ops->linear(&t->machine, t->at.apart_qkv, t->at.apart, &t->blocks[w->block].qkv,
                           rows_of(t), 1);
}

void s24i_attend_apart(s24i_block_walk *w, const s24i_heads *heads, void *context, const void *qkv)
{
    s24i_machine *m = &w->t->machine;
    make(w);
    m->ops->attention(m, context, qkv, heads);
}

void s24i_attend_apart_back(s24i_block_walk *w, const s24i_heads *heads, void *dqkv,
                            const void *dcontext, const void *qkv)
{
    s24_transformer *t = w->t;
    s24i_machine *m = &t->machine;
    const s24i_buffers *at = &t->at;
    const s24i_layer *layer = &t->blocks[w->block].qkv;
    const int64_t rows = rows_of(t);
    make(w);
    m->ops->attention_back(m, dqkv, dcontext, qkv, heads);
    m->ops->linear_dw(m, at->dapart_qkv, at->apart, layer, rows, 1);
    m->ops->linear_dx(m, at->dapart_block, at->dapart_qkv, layer, rows);
    m->ops->add(m, at->dapart, at->dapart_block, rows * t->shape.width);
}

void s24i_apart_back(s24_transformer *t)
{
    s24i_machine *m = &t->machine;
    const int64_t rows = rows_of(t), width = t->shape.width;
    const s24i_norm_back job = {.ds = t->dapart,
                                .dy = t->at.dapart,
                                .s = t->apart,
                                .stats = t->at.apart_stats,
                                .norm = &t->apart_norm,
                                .add = 1,
                                .rows = rows,
                                .width = width};
    if (!t->apart) return;
    if (t->shape.apart.normed)
        m->ops->norm_back(m, &job);
    else
        m->ops->add(m, t->dapart, t->at.dapart, rows * width);
}
