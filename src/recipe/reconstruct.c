// SPDX-License-Identifier: Apache-2.0
/*
 * Reconstruction of blocks by the passes of training: its transformer holds the dense model, one
 * block of which is replaced by the pruned one while it learns. The states of both models stand in
 * memory for all tokens; a step takes a batch of whole texts from them.
 */
#include "recipe/reconstruct.h"

#include <math.h>
#include <string.h>

#include "train/transformer.h"

enum { STEP_TOKENS = 2048, HALVES = 2 };
static const double RATE = 1e-3, BETA1 = 0.9, BETA2 = 0.999, EPS = 1e-8;

/* What the optimiser keeps of a slot. */
typedef struct learner {
    float *w, *g; /* in the transformer's arenas; w NULL: it does not learn */
    float *m, *v;
    uint16_t *mask;
    int64_t count, most;
} learner;

struct s24i_reconstruction {
    s24_ctx *ctx; /* of create */
    s24i_reconstruct_opts opts;
    s24_transformer *t;
    int64_t tokens, width;
    int64_t *batches; /* [batch_count + 1]: the first text of each */
    int64_t batch_count;
    int64_t *offsets;       /* [texts + 1]: of the batch at hand */
    float *dense;           /* [tokens, width]: the dense model's states before the block, */
    float *targets[HALVES]; /* and after each half */
    float *middle;          /* the pruned model's after the first */
    learner learners[S24I_ALL_SLOTS];
    int64_t steps_done, steps_total;
};

void s24i_reconstruction_destroy(s24i_reconstruction *r)
{
    if (!r) return;
    s24_ctx *ctx = r->ctx;
    for (int slot = 0; slot < S24I_ALL_SLOTS; slot++) {
        s24_ctx_free(ctx, r->learners[slot].m);
        s24_ctx_free(ctx, r->learners[slot].mask);
    }
    s24_ctx_free(ctx, r->dense);
    s24_ctx_free(ctx, r->offsets);
    s24_ctx_free(ctx, r->batches);
    s24_transformer_destroy(r->t);
    s24_ctx_free(ctx, r);
}

/* Whole texts of up to STEP_TOKENS together, at least one. */
static s24_status cut_batches(s24i_reconstruction *r, s24_ctx *ctx, int64_t *most)
{
    const int64_t *ends = r->opts.ends, texts = r->opts.texts;
    TRY(s24i_alloc_elems(&r->batches, ctx, texts + 1, sizeof *r->batches, "batches"));
    TRY(s24i_alloc_elems(&r->offsets, ctx, texts + 1, sizeof *r->offsets, "texts"));
    *most = 0;
    for (int64_t first = 0, end; first < texts; first = end) {
        end = first + 1;
        while (end < texts && ends[end + 1] - ends[first] <= STEP_TOKENS)
            end++;
        *most = s24i_max(*most, ends[end] - ends[first]);
        r->batches[r->batch_count++] = first;
    }
    r->batches[r->batch_count] = texts;
    return S24_OK;
}

static s24_status make_learners(s24i_reconstruction *r, s24_ctx *ctx)
{
    for (int slot = 0; slot < S24I_ALL_SLOTS; slot++) {
        learner *l = &r->learners[slot];
        int64_t rows, cols;
        s24i_slot_shape(&rows, &cols, &r->t->shape, (s24i_slot)slot);
        l->most = rows * cols;
        if (!l->most) continue;
        TRY(s24i_alloc_elems(&l->m, ctx, 2 * l->most, sizeof *l->m, "an optimiser's moments"));
        TRY(s24i_alloc_elems(&l->mask, ctx, l->most / 16 + 1, sizeof *l->mask, "a mask"));
        l->v = l->m + l->most;
    }
    return S24_OK;
}

static s24_status fill(s24i_reconstruction *r, s24_ctx *ctx)
{
    s24_transformer_opts opts = {.size = sizeof opts, .train = 1, .recompute = 1};
    TRY(cut_batches(r, ctx, &opts.max_tokens));
    TRY(s24_transformer_load(&r->t, ctx, r->opts.dense, &opts));
    r->tokens = r->opts.ends[r->opts.texts];
    r->width = r->t->shape.width;
    const int64_t elems = r->tokens * r->width;
    TRY(s24i_alloc_elems(&r->dense, ctx, 4 * elems, sizeof *r->dense,
                         "the states of the calibration texts"));
    r->targets[0] = r->dense + elems;
    r->targets[1] = r->targets[0] + elems;
    r->middle = r->targets[1] + elems;
    memcpy(r->dense, r->opts.embeddings, (size_t)elems * sizeof *r->dense);
    r->steps_total = HALVES * r->opts.steps * r->t->shape.layers;
    return make_learners(r, ctx);
}

s24_status s24i_reconstruction_create(s24i_reconstruction **out, s24_ctx *ctx,
                                      const s24i_reconstruct_opts *opts)
{
    s24i_reconstruction *r;
    *out = NULL;
    TRY(s24i_zeroed(&r, ctx, sizeof *r));
    r->ctx = ctx;
    r->opts = *opts;
    GIVE(out, r, s24i_reconstruction_destroy, fill(r, ctx));
}

/* ---- a half of a block over a batch ---------------------------------------------------------- */

static s24_status begin_batch(s24i_reconstruction *r, s24_ctx *ctx, int64_t batch, int64_t *at)
{
    const int64_t first = r->batches[batch], end = r->batches[batch + 1];
    const int64_t *ends = r->opts.ends;
    for (int64_t t = first; t <= end; t++)
        r->offsets[t - first] = ends[t] - ends[first];
    const s24_examples examples = {
        .texts = {.texts = end - first,
                  .offsets = r->offsets,
                  .ids = r->opts.ids ? r->opts.ids + ends[first] : NULL},
        .pixels = r->opts.pixels ? r->opts.pixels + first * s24i_image_elems(&r->t->shape) : NULL};
    *at = ends[first] * r->width;
    return s24i_begin(r->t, ctx, &examples);
}

/* States are compared where the next layers read them: after the norm where norms follow sums, and
   at the end of the model. */
static int is_normed(const s24_transformer *t, int64_t sum)
{
    return !s24i_goes_past(t, sum) || sum == 2 * t->shape.layers;
}

/* The state at sum j is x; its norm is taken. */
static void set_state(s24_transformer *t, int64_t j, const float *x)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)(t->step.tokens * t->shape.width) * sizeof *x;
    if (!s24i_goes_past(t, j)) {
        memcpy(s24i_norm_at(t, j), x, bytes);
        return;
    }
    memcpy(s24i_sum_at(t, j), x, bytes);
    const s24i_add_norm job = {.y = s24i_norm_at(t, j),
                               .s = s24i_sum_at(t, j),
                               .stats = s24i_stats_at(t, j),
                               .norm = &t->norms[j],
                               .rows = t->step.tokens,
                               .width = t->shape.width};
    m->ops->add_norm(m, &job);
}

static const s24i_mode plain_mode;
static const s24i_pull no_pull;

/* A half over all texts: `to` becomes the states after it. */
static s24_status run_half(s24i_reconstruction *r, s24_ctx *ctx, int64_t sum, const float *from,
                           float *to)
{
    s24_transformer *t = r->t;
    s24i_block_walk walk = {.t = t, .mode = &plain_mode, .pull = &no_pull};
    for (int64_t batch = 0, at; batch < r->batch_count; batch++) {
        TRY(begin_batch(r, ctx, batch, &at));
        set_state(t, sum, from + at);
        s24i_half_forward(&walk, sum / 2, (int)(sum % 2));
        const void *state =
            is_normed(t, sum + 1) ? s24i_norm_at(t, sum + 1) : s24i_sum_at(t, sum + 1);
        memcpy(to + at, state, (size_t)(t->step.tokens * r->width) * sizeof *to);
        TRY(t->machine.status);
    }
    return S24_OK;
}

/* The gradients of a batch's squared distance from the target. */
static s24_status gradients(s24i_reconstruction *r, s24_ctx *ctx, int64_t sum, int64_t batch,
                            const float *from)
{
    s24_transformer *t = r->t;
    s24i_machine *m = &t->machine;
    s24i_block_walk walk = {.t = t, .mode = &plain_mode, .pull = &no_pull, .ends = 1};
    const int normed = is_normed(t, sum + 1);
    int64_t at;
    TRY(begin_batch(r, ctx, batch, &at));
    const size_t bytes = (size_t)(t->step.tokens * r->width) * sizeof(float);
    set_state(t, sum, from + at);
    s24i_half_forward(&walk, sum / 2, (int)(sum % 2));
    m->ops->clear(m, t->at.sums, sizeof *t->at.sums);
    m->ops->clear(m, t->at.dn, bytes);
    m->ops->clear(m, t->at.ds, bytes);
    m->ops->squared_error(m, &t->at.sums->loss, normed ? t->at.dn : t->at.ds,
                          normed ? s24i_norm_at(t, sum + 1) : s24i_sum_at(t, sum + 1),
                          r->targets[sum % 2] + at, 1.0 / (double)t->step.tokens, &t->step,
                          r->width);
    s24i_half_back(&walk, sum / 2, (int)(sum % 2));
    TRY(m->status);
    REQUIRE(ctx, isfinite(t->at.sums->loss), S24_ERROR_NUMERIC,
            "block %lld could not be reconstructed: its loss is not finite", (long long)(sum / 2));
    return S24_OK;
}

/* ---- learning -------------------------------------------------------------------------------- */

/* Where the transformer has a slot's weights. */
static void find_learner(s24i_reconstruction *r, int64_t block, s24i_slot slot)
{
    s24_transformer *t = r->t;
    s24i_train_block *b = &t->blocks[block];
    learner *l = r->learners;
    s24i_layer *layer = slot <= S24I_VALUE       ? &b->qkv
                        : slot == S24I_ATTENTION ? &b->attention
                        : slot == S24I_OUTPUT    ? &b->down
                                                 : &b->up;
    int64_t before = 0;
    for (s24i_slot s = S24I_QUERY; slot <= S24I_VALUE && s < slot; s++)
        before += l[s].most;
    if (slot == S24I_INTERMEDIATE) before = l[S24I_GATE].most;
    l[slot].w = layer->w + before;
    l[slot].g = layer->dw + before;
}

static int slot_half(s24i_slot slot)
{
    return slot > S24I_ATTENTION;
}

/* The pruned weights into the transformer, and their masks. */
static void put_weights(s24i_reconstruction *r, int64_t block, const s24_dense *weights,
                        unsigned pruned)
{
    for (int slot = 0; slot < S24I_ALL_SLOTS; slot++) {
        learner *l = &r->learners[slot];
        l->count = pruned >> slot & 1u ? l->most : 0;
        if (!l->count) continue;
        find_learner(r, block, (s24i_slot)slot);
        const float *w = weights[slot].data;
        memcpy(l->w, w, (size_t)l->count * sizeof *w);
        memset(l->m, 0, 2 * (size_t)l->most * sizeof *l->m);
        memset(l->mask, 0, (size_t)(l->most / 16 + 1) * sizeof *l->mask);
        for (int64_t i = 0; i < l->count; i++)
            l->mask[i / 16] |= (uint16_t)((w[i] != 0.0f) << i % 16);
    }
}

static void get_weights(const s24i_reconstruction *r, const s24_dense *weights)
{
    for (int slot = 0; slot < S24I_ALL_SLOTS; slot++) {
        const learner *l = &r->learners[slot];
        if (l->count) memcpy(weights[slot].data, l->w, (size_t)l->count * sizeof *l->w);
    }
}

static void update(s24i_reconstruction *r, int half, int64_t step)
{
    s24_transformer *t = r->t;
    s24i_machine *m = &t->machine;
    for (int slot = 0; slot < S24I_ALL_SLOTS; slot++) {
        const learner *l = &r->learners[slot];
        const s24i_segment all = {0, l->count, 1};
        const s24i_update job = {.p = l->w,
                                 .g = l->g,
                                 .m = l->m,
                                 .v = l->v,
                                 .mask = l->mask,
                                 .segments = &all,
                                 .segment_count = 1,
                                 .count = l->count,
                                 .sums = t->at.sums,
                                 .beta1 = BETA1,
                                 .beta2 = BETA2,
                                 .eps = EPS,
                                 .rate = RATE * (1.0 - (double)step / (double)r->opts.steps),
                                 .step = step + 1};
        if (l->count && slot_half((s24i_slot)slot) == half) m->ops->update(m, &job);
    }
}

static s24_status train_half(s24i_reconstruction *r, s24_ctx *ctx, int64_t sum, const float *from)
{
    s24_transformer_clear(r->t, ctx);
    for (int64_t step = 0; step < r->opts.steps; step++) {
        TRY(gradients(r, ctx, sum, step % r->batch_count, from));
        update(r, (int)(sum % 2), step);
        TRY(s24_ctx_progress(ctx, "reconstructing", ++r->steps_done, r->steps_total));
    }
    return S24_OK;
}

s24_status s24i_reconstruct_block(s24i_reconstruction *r, s24_ctx *ctx, int64_t block,
                                  const float *hidden, const s24_dense *weights, unsigned pruned)
{
    float *next = r->targets[1];
    TRY(run_half(r, ctx, 2 * block, r->dense, r->targets[0]));
    TRY(run_half(r, ctx, 2 * block + 1, r->targets[0], r->targets[1]));
    put_weights(r, block, weights, pruned);
    TRY(train_half(r, ctx, 2 * block, hidden));
    TRY(run_half(r, ctx, 2 * block, hidden, r->middle));
    TRY(train_half(r, ctx, 2 * block + 1, r->middle));
    get_weights(r, weights);
    memcpy(r->dense, next, (size_t)(r->tokens * r->width) * sizeof *next);
    return S24_OK;
}
