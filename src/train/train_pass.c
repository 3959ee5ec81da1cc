// SPDX-License-Identifier: Apache-2.0
/* A batch into the arena, and the passes forward and backward. */
#include <string.h>

#include "model/distances.h"
#include "run/cpu/attention.h"
#include "train/transformer.h"

/* ---- the batch ------------------------------------------------------------------------------- */

static s24_status check_labels(s24_ctx *ctx, const int32_t *labels, int64_t count, int64_t limit,
                               const char *name)
{
    for (int64_t i = 0; labels && i < count; i++)
        REQUIRE(ctx, labels[i] >= -1 && labels[i] < limit, S24_ERROR_ARGUMENT,
                "%s[%lld] is %d, −1 to %lld is expected", name, (long long)i, (int)labels[i],
                (long long)limit - 1);
    return S24_OK;
}

static s24_status check(const s24_transformer *t, s24_ctx *ctx, const s24_examples *e)
{
    const s24_batch *batch = &e->texts;
    const int64_t positions = t->shape.positions;
    REQUIRE(ctx, batch->texts >= 1 && batch->texts <= t->opts.max_texts, S24_ERROR_ARGUMENT,
            "the batch has %lld texts, 1 to %lld are expected", (long long)batch->texts,
            (long long)t->opts.max_texts);
    if (t->shape.image) {
        REQUIRE(ctx, e->pixels && batch->texts * positions <= t->opts.max_tokens,
                S24_ERROR_ARGUMENT, "%s",
                e->pixels ? "the batch has more positions than max_tokens" : "pixels is NULL");
        return check_labels(ctx, e->targets, batch->texts, t->shape.classes, "targets");
    }
    TRY(s24i_batch_check(ctx, batch, &t->shape, t->opts.max_tokens, "transformer"));
    TRY(check_labels(ctx, e->targets, batch->offsets[batch->texts], t->shape.vocabulary,
                     "targets"));
    for (int64_t b = 0; b < batch->texts; b++) {
        const int64_t n = batch->offsets[b + 1] - batch->offsets[b];
        TRY(check_labels(ctx, e->starts ? e->starts + b : NULL, 1, n, "starts"));
        TRY(check_labels(ctx, e->ends ? e->ends + b : NULL, 1, n, "ends"));
    }
    return S24_OK;
}

static void *put(s24_transformer *t, void *to, const void *from, int64_t count, size_t size)
{
    if (!from) return NULL;
    t->machine.ops->upload(&t->machine, to, from, (size_t)count * size);
    return to;
}

/* The tokens sorted by id, equal ones in their order. `count` has room for a number a word of the
   vocabulary. */
static void sort_tokens(int32_t *order, int32_t *count, const int32_t *ids, int64_t tokens,
                        int64_t vocabulary)
{
    int32_t at = 0;
    memset(count, 0, (size_t)vocabulary * sizeof *count);
    for (int64_t i = 0; i < tokens; i++)
        count[ids[i]]++;
    for (int64_t w = 0; w < vocabulary; w++) {
        const int32_t n = count[w];
        count[w] = at;
        at += n;
    }
    for (int64_t i = 0; i < tokens; i++)
        order[count[ids[i]]++] = (int32_t)i;
}

/* Where in the table of positions an image's token i is; −1: it has no position. */
static int64_t place_in_image(const s24_transformer *t, int64_t i)
{
    const int64_t more = t->arch->more_unplaced ? t->shape.more_tokens : 0;
    if (i < t->embed.lead - more) return i;
    return i < t->embed.lead ? -1 : i - more;
}

/* offsets, tiles and positions are made here on the host: a batch's are small. */
static void lay_out_places(s24_transformer *t, const s24_examples *e)
{
    const s24i_train_batch *r = &t->room;
    s24i_train_batch *s = &t->step;
    const int64_t texts = e->texts.texts, image = t->shape.image;
    int64_t *offsets = t->host, *tiles = offsets + texts + 1;
    int32_t *bounds = t->host_words, *positions = bounds + texts + 1;
    int64_t longest = offsets[0] = tiles[0] = bounds[0] = 0;
    for (int64_t b = 0; b < texts; b++) {
        offsets[b + 1] = image ? (b + 1) * t->shape.positions : e->texts.offsets[b + 1];
        bounds[b + 1] = (int32_t)offsets[b + 1];
        const int64_t n = offsets[b + 1] - offsets[b];
        tiles[b + 1] = tiles[b] + s24i_attention_tiles(n);
        longest = s24i_max(longest, n);
        for (int64_t i = 0, pads = 0; i < n; i++)
            positions[offsets[b] + i] =
                (int32_t)(image ? place_in_image(t, i)
                                : s24i_place_of(&t->shape, e->texts.ids[offsets[b] + i], i, &pads));
    }
    *s = (s24i_train_batch){.tokens = offsets[texts], .texts = texts, .longest = longest};
    s->offsets = put(t, r->offsets, offsets, texts + 1, sizeof *offsets);
    s->tiles = put(t, r->tiles, tiles, texts + 1, sizeof *tiles);
    s->bounds = put(t, r->bounds, bounds, texts + 1, sizeof *bounds);
    s->positions = put(t, r->positions, positions, s->tokens, sizeof *positions);
}

/* Masked words are zeros, and the others of a text grow by their share. */
static void lay_out_factors(s24_transformer *t, const s24_batch *texts)
{
    s24i_train_batch *s = &t->step;
    float *factors = t->host_factors;
    for (int64_t b = 0; b < texts->texts; b++) {
        const float kept = s24i_kept_factor(&t->shape, texts, b);
        for (int64_t i = texts->offsets[b]; i < texts->offsets[b + 1]; i++)
            factors[i] = texts->ids[i] == t->shape.masked ? 0.0f : kept > 0.0f ? kept : 1.0f;
    }
    s->factors = put(t, t->room.factors, factors, s->tokens, sizeof *factors);
}

static void lay_out(s24_transformer *t, const s24_examples *e)
{
    const s24i_train_batch *r = &t->room;
    s24i_train_batch *s = &t->step;
    lay_out_places(t, e);
    const int64_t texts = s->texts, tokens = s->tokens, image = t->shape.image;
    s->targets = put(t, r->targets, e->targets, image ? texts : tokens, sizeof *e->targets);
    if (image) {
        s->pixels = put(t, r->pixels, e->pixels, texts * t->shape.channels * image * image,
                        sizeof *e->pixels);
        return;
    }
    if (t->host_factors) lay_out_factors(t, &e->texts);
    s->ids = put(t, r->ids, e->texts.ids, tokens, sizeof *e->texts.ids);
    s->types = put(t, r->types, e->texts.types, tokens, sizeof *e->texts.types);
    s->mask = put(t, r->mask, e->texts.mask, tokens, sizeof *e->texts.mask);
    s->starts = put(t, r->starts, e->starts, texts, sizeof *e->starts);
    s->ends = put(t, r->ends, e->ends, texts, sizeof *e->ends);
}

void s24i_lay_out_order(s24_transformer *t, const s24_examples *e)
{
    const s24i_train_batch *r = &t->room;
    s24i_train_batch *s = &t->step;
    const int64_t tokens = s->tokens;
    if (!r->order || !s->ids) return;
    int32_t *order = t->host_words + t->opts.max_texts + 1 + t->opts.max_tokens;
    sort_tokens(order, order + tokens, e->texts.ids, tokens, t->shape.vocabulary);
    s->order = put(t, r->order, order, tokens, sizeof *order);
}

static void fill_distances(s24_transformer *t)
{
    const s24i_buffers *at = &t->at;
    for (int64_t b = 0; b < s24i_max(t->shape.tables, 1); b++) {
        const s24i_distance_rule rule = {.shape = &t->shape,
                                         .table = t->blocks[b].relative,
                                         .slopes = t->arch->slopes,
                                         .all_heads = t->shape.heads};
        const s24i_heads heads = s24i_heads_of(t, b);
        t->machine.ops->distances(&t->machine, at->distances + b * at->distances_block, &heads,
                                  &rule);
    }
}

s24_status s24i_begin(s24_transformer *t, s24_ctx *ctx, const s24_examples *examples)
{
    t->machine.ctx = ctx;
    t->machine.status = S24_OK;
    REQUIRE(ctx, s24_ctx_threads(ctx) <= t->machine.threads, S24_ERROR_ARGUMENT,
            "the context has %d threads, the transformer was made for %d", s24_ctx_threads(ctx),
            t->machine.threads);
    TRY(check(t, ctx, examples));
    lay_out(t, examples);
    if (t->at.distances) fill_distances(t);
    s24i_apart_begin(t);
    return S24_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Hidden state b goes where the mode wants it. */
static void give(s24_transformer *t, const s24i_mode *mode, int64_t b)
{
    s24i_machine *m = &t->machine;
    const int64_t elems = t->step.tokens * t->shape.width;
    const size_t bytes = (size_t)elems * m->element;
    const void *from = s24i_state_is_normed(t, b) ? s24i_norm_at(t, 2 * b) : s24i_sum_at(t, 2 * b);
    if (mode->states) m->ops->read(m, mode->states + b * elems, from, elems);
    if (mode->kept) m->ops->copy(m, mode->kept + (size_t)b * bytes, from, bytes);
}

/* The first block's norm of a sum that is there. */
static void norm_first(s24_transformer *t)
{
    const s24i_add_norm job = {.y = s24i_norm_at(t, 0),
                               .s = s24i_sum_at(t, 0),
                               .stats = s24i_stats_at(t, 0),
                               .norm = &t->norms[0],
                               .rows = t->step.tokens,
                               .width = t->shape.width};
    t->machine.ops->add_norm(&t->machine, &job);
}

static void embed(s24_transformer *t, const s24i_mode *mode)
{
    s24i_machine *m = &t->machine;
    const s24i_shape *s = &t->shape;
    const int64_t rows = t->step.tokens, width = t->embed.width;
    const int narrow = s24i_projects(s), twice = s24i_is_normed_twice(t);
    const int past = s24i_goes_past(t, 0) && !twice;
    void *sum = narrow || twice ? t->at.narrow : s24i_sum_at(t, 0);
    void *normed = narrow ? t->at.narrow_n : twice ? s24i_sum_at(t, 0) : s24i_norm_at(t, 0);
    s24i_dropout drop;
    const s24i_dropout *dropped = s24i_drop(&drop, mode, mode->dropout, 0);
    if (s->image) {
        m->ops->unfold(m, t->at.rows, &t->step, s->image, s->patch, s->channels);
        m->ops->linear(m, sum, t->at.rows, &t->patches, rows, 1);
    }
    m->ops->embed(m, sum, &t->embed, &t->step);
    if (dropped && past) m->ops->dropout(m, sum, sum, dropped, rows, width);
    const s24i_add_norm job = {.y = normed,
                               .s = sum,
                               .stats = twice ? t->at.embedding_stats : s24i_stats_at(t, 0),
                               .norm = twice ? &t->embedding_norm : s24i_norm_of_sum(t, 0),
                               .rows = rows,
                               .width = width};
    m->ops->add_norm(m, &job);
    if (dropped && !past) m->ops->dropout(m, normed, normed, dropped, rows, width);
    if (twice) norm_first(t);
    if (narrow) m->ops->linear(m, s24i_norm_at(t, 0), normed, &t->project, rows, 1);
}

void s24i_run_forward(s24_transformer *t, const s24i_mode *mode)
{
    s24i_block_walk walk = {.t = t, .mode = mode};
    embed(t, mode);
    give(t, mode, 0);
    for (int64_t b = 0; b < t->shape.layers; b++) {
        s24i_block_forward(&walk, b);
        give(t, mode, b + 1);
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The same of embeddings that are narrower: the gradient of what a layer made of their norm is in
   two parts, dn and ds, which it takes one after the other. */
static void narrow_back(s24_transformer *t, const s24i_mode *mode)
{
    s24i_machine *m = &t->machine;
    const s24i_buffers *at = &t->at;
    const int64_t rows = t->step.tokens;
    s24i_dropout drop;
    const s24i_norm_back job = {.ds = at->narrow_ds,
                                .dy = at->narrow_dn,
                                .dy2 = at->narrow_ds,
                                .s = at->narrow,
                                .stats = s24i_stats_at(t, 0),
                                .norm = &t->norms[0],
                                .drop = s24i_drop(&drop, mode, mode->dropout, 0),
                                .rows = rows,
                                .width = t->embed.width};
    m->ops->linear_dw(m, at->dn, at->narrow_n, &t->project, rows, 1);
    m->ops->linear_dw(m, at->ds, at->narrow_n, &t->project, rows, 1);
    m->ops->linear_dx(m, at->narrow_dn, at->dn, &t->project, rows);
    m->ops->linear_dx(m, at->narrow_ds, at->ds, &t->project, rows);
    m->ops->norm_back(m, &job);
    m->ops->embed_back(m, at->narrow_ds, &t->embed, &t->step);
}

static void embed_back(s24_transformer *t, const s24i_mode *mode)
{
    s24i_machine *m = &t->machine;
    const int64_t rows = t->step.tokens;
    s24i_dropout drop;
    const s24i_norm_back job = {.ds = t->at.ds,
                                .dy = t->at.ds,
                                .s = t->at.narrow,
                                .stats = t->at.embedding_stats,
                                .norm = &t->embedding_norm,
                                .rows = rows,
                                .width = t->shape.width};
    if (s24i_goes_past(t, 0) && s24i_drop(&drop, mode, mode->dropout, 0))
        m->ops->dropout(m, t->at.ds, t->at.ds, &drop, rows, t->shape.width);
    if (s24i_is_normed_twice(t)) m->ops->norm_back(m, &job);
    m->ops->embed_back(m, t->at.ds, &t->embed, &t->step);
    if (t->shape.image) m->ops->linear_dw(m, t->at.ds, t->at.rows, &t->patches, rows, 1);
}

void s24i_run_backward(s24_transformer *t, const s24i_mode *mode, const s24i_pull *pull)
{
    s24i_block_walk walk = {.t = t, .mode = mode, .pull = pull};
    for (int64_t b = t->shape.layers - 1; b >= 0; b--) {
        /* The last block's buffers are still as the pass forward left them. */
        if (t->opts.recompute && b < t->shape.layers - 1) s24i_block_again(&walk, b);
        s24i_block_back(&walk, b);
        if (t->ready.call) t->ready.call(t->ready.user, t->machine.ctx, t, b);
    }
    s24i_apart_back(t);
    if (s24i_projects(&t->shape)) {
        narrow_back(t, mode);
        return;
    }
    s24i_through_norm(&walk, NULL);
    embed_back(t, mode);
}
