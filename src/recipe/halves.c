// SPDX-License-Identifier: Apache-2.0
/*
 * Halves of blocks over all calibration passages. A batch is whole texts; of each, the state before
 * the half goes in, and what the half leaves goes back to where all tokens' states stand. A Gram
 * matrix is the gradient of a weight whose inputs and whose outputs' gradients are both what the
 * layer reads, so the machine needs no operation of its own for it.
 */
#include "recipe/halves.h"

#include <string.h>

#include "train/transformer.h"

/* Tokens of a batch: a pass backward keeps what it passed. */
enum { TRAIN_TOKENS = 2048, PASS_TOKENS = 8192 };

static const s24i_mode plain_mode;
static const s24i_pull no_pull;

void s24i_halves_destroy(s24i_halves *h)
{
    if (!h) return;
    s24_ctx *ctx = h->ctx;
    if (h->t) {
        h->t->machine.ctx = ctx;
        h->t->machine.ops->free(&h->t->machine, h->states);
    }
    s24_ctx_free(ctx, h->offsets);
    s24_ctx_free(ctx, h->batches);
    s24_transformer_destroy(h->t);
    s24_ctx_free(ctx, h);
}

/* Whole texts of up to so many tokens together, at least one. */
static s24_status cut_batches(s24i_halves *h, s24_ctx *ctx, int64_t *most)
{
    const int64_t *ends = h->opts.ends, texts = h->opts.texts, shown = texts - h->opts.held;
    const int64_t tokens = h->opts.train ? TRAIN_TOKENS : PASS_TOKENS;
    TRY(s24i_alloc_elems(&h->batches, ctx, texts + 1, sizeof *h->batches, "batches"));
    TRY(s24i_alloc_elems(&h->offsets, ctx, texts + 1, sizeof *h->offsets, "texts"));
    *most = 0;
    for (int64_t first = 0, end; first < texts; first = end) {
        end = first + 1;
        while (end < texts && end != shown && ends[end + 1] - ends[first] <= tokens)
            end++;
        *most = s24i_max(*most, ends[end] - ends[first]);
        h->batches[h->batch_count++] = first;
        h->shown += first < shown;
    }
    h->batches[h->batch_count] = texts;
    return S24_OK;
}

static size_t bytes_of(const s24i_halves *h, int64_t tokens)
{
    return (size_t)(tokens * h->width) * h->t->machine.element;
}

int64_t s24i_halves_tokens(const s24i_halves *h, int held)
{
    const int64_t shown = h->opts.ends[h->opts.texts - h->opts.held];
    return held ? h->tokens - shown : shown;
}

size_t s24i_halves_bytes(const s24i_halves *h)
{
    return (bytes_of(h, h->tokens) + 63) / 64 * 64;
}

s24_status s24i_halves_new_states(char **out, s24i_halves *h, s24_ctx *ctx, int64_t count)
{
    s24i_machine *m = &h->t->machine;
    const size_t bytes = (size_t)count * s24i_halves_bytes(h);
    m->ctx = ctx;
    *out = m->ops->alloc(m, bytes);
    REQUIRE(ctx, *out, S24_ERROR_MEMORY,
            "out of memory for the states of the calibration texts: %zu bytes", bytes);
    return S24_OK;
}

void s24i_halves_write(s24i_halves *h, char *states, const float *hidden)
{
    h->t->machine.ops->write(&h->t->machine, states, hidden, h->tokens * h->width);
}

static s24_status fill(s24i_halves *h, s24_ctx *ctx)
{
    s24_transformer_opts opts = {.size = sizeof opts,
                                 .train = h->opts.train,
                                 .recompute = h->opts.train,
                                 .device = h->opts.device};
    TRY(cut_batches(h, ctx, &opts.max_tokens));
    TRY(s24i_transformer_load_window(&h->t, ctx, h->opts.model, &opts));
    REQUIRE(
        ctx, !h->t->arch->side_by_side, S24_ERROR_UNSUPPORTED,
        "%s: the halves of a block of %s stand side by side; what reconstructs or aims takes one "
        "after the other",
        s24_checkpoint_folder(h->opts.model), h->t->arch->model_type);
    h->t->machine.ctx = ctx;
    h->tokens = h->opts.ends[h->opts.texts];
    h->width = h->t->shape.width;
    TRY(s24i_halves_new_states(&h->states, h, ctx, 2));
    h->state = h->states;
    h->middle = h->states + s24i_halves_bytes(h);
    s24i_halves_write(h, h->state, h->opts.embeddings);
    return h->t->machine.status;
}

s24_status s24i_halves_create(s24i_halves **out, s24_ctx *ctx, const s24i_halves_opts *opts)
{
    s24i_halves *h;
    *out = NULL;
    TRY(s24i_zeroed(&h, ctx, sizeof *h));
    h->ctx = ctx;
    h->opts = *opts;
    GIVE(out, h, s24i_halves_destroy, fill(h, ctx));
}

s24_status s24i_halves_open(s24i_halves *h, s24_ctx *ctx, int64_t block)
{
    return s24i_transformer_open(h->t, ctx, h->opts.model, block);
}

/* ---- a half of a block over a batch ---------------------------------------------------------- */

s24_status s24i_halves_begin(s24i_halves *h, s24_ctx *ctx, int64_t batch, int64_t *at)
{
    const int64_t first = h->batches[batch], end = h->batches[batch + 1];
    const int64_t *ends = h->opts.ends;
    for (int64_t t = first; t <= end; t++)
        h->offsets[t - first] = ends[t] - ends[first];
    const s24_examples examples = {
        .texts = {.texts = end - first,
                  .offsets = h->offsets,
                  .ids = h->opts.ids ? h->opts.ids + ends[first] : NULL},
        .pixels = h->opts.pixels ? h->opts.pixels + first * s24i_image_elems(&h->t->shape) : NULL};
    *at = (int64_t)bytes_of(h, ends[first]);
    return s24i_begin(h->t, ctx, &examples);
}

int s24i_halves_is_normed(const s24_transformer *t, int64_t j)
{
    return !s24i_goes_past(t, j) || j == 2 * t->shape.layers;
}

void s24i_halves_set(const s24i_halves *h, int64_t j, const char *x)
{
    s24_transformer *t = h->t;
    s24i_machine *m = &t->machine;
    const size_t bytes = bytes_of(h, t->step.tokens);
    if (!s24i_goes_past(t, j)) {
        m->ops->copy(m, s24i_norm_at(t, j), x, bytes);
        return;
    }
    m->ops->copy(m, s24i_sum_at(t, j), x, bytes);
    const s24i_add_norm job = {.y = s24i_norm_at(t, j),
                               .s = s24i_sum_at(t, j),
                               .stats = s24i_stats_at(t, j),
                               .norm = s24i_norm_of_sum(t, j),
                               .rows = t->step.tokens,
                               .width = t->shape.width};
    m->ops->add_norm(m, &job);
}

const void *s24i_halves_get(const s24i_halves *h, int64_t j)
{
    const s24_transformer *t = h->t;
    return s24i_halves_is_normed(t, j) ? s24i_norm_at(t, j) : s24i_sum_at(t, j);
}

/* A batch more of those that progress is told of. */
static s24_status tell(s24i_halves *h, s24_ctx *ctx)
{
    TRY(h->t->machine.status);
    return h->total ? s24_ctx_progress(ctx, "pruning", ++h->done, h->total) : S24_OK;
}

s24_status s24i_halves_run(s24i_halves *h, s24_ctx *ctx, int64_t sum, const char *from, char *to)
{
    s24_transformer *t = h->t;
    s24i_machine *m = &t->machine;
    s24i_block_walk walk = {.t = t, .mode = &plain_mode, .pull = &no_pull};
    for (int64_t batch = 0, at; batch < h->batch_count; batch++) {
        TRY(s24i_halves_begin(h, ctx, batch, &at));
        s24i_halves_set(h, sum, from + at);
        s24i_half_forward(&walk, sum / 2, (int)(sum % 2));
        m->ops->copy(m, to + at, s24i_halves_get(h, sum + 1), bytes_of(h, t->step.tokens));
        TRY(tell(h, ctx));
    }
    return S24_OK;
}

/* ---- what layers read ------------------------------------------------------------------------ */

/* What the slot's layer reads of the batch, whose state before its half is x. */
static const void *inputs_of(s24i_halves *h, int64_t block, s24i_slot slot, const char *x)
{
    s24_transformer *t = h->t;
    s24i_block_walk walk = {.t = t, .mode = &plain_mode, .pull = &no_pull};
    const int half = slot >= S24I_INTERMEDIATE;
    s24i_halves_set(h, 2 * block + half, x);
    if (slot == S24I_QUERY || slot == S24I_INTERMEDIATE) return s24i_input_at(t, 2 * block + half);
    s24i_half_forward(&walk, block, half);
    return s24i_in_stack(half ? &t->at.h : &t->at.context, s24i_block_slot(t, block));
}

s24_status s24i_halves_inputs(s24i_halves *h, s24_ctx *ctx, char *to, const s24i_reading *reading)
{
    s24i_machine *m = &h->t->machine;
    int64_t rows, k;
    s24i_slot_shape(&rows, &k, &h->t->shape, reading->slot);
    for (int64_t batch = 0, at; batch < h->batch_count; batch++) {
        TRY(s24i_halves_begin(h, ctx, batch, &at));
        const void *x = inputs_of(h, reading->block, reading->slot, reading->from + at);
        m->ops->copy(m, to + at / h->width * k, x, (size_t)(h->t->step.tokens * k) * m->element);
        TRY(tell(h, ctx));
    }
    return S24_OK;
}

static s24_status add_inputs(s24i_halves *h, s24_ctx *ctx, const s24i_layer *sums,
                             const s24i_reading *reading, const s24i_pairing *others)
{
    s24i_machine *m = &h->t->machine;
    const int64_t end = reading->held ? h->batch_count : h->shown;
    m->ops->clear(m, sums->dw, (size_t)(sums->n * sums->k) * sizeof *sums->dw);
    for (int64_t batch = reading->held ? h->shown : 0, at; batch < end; batch++) {
        TRY(s24i_halves_begin(h, ctx, batch, &at));
        const void *x = inputs_of(h, reading->block, reading->slot, reading->from + at);
        const void *y = others ? others->rows + at / h->width * others->width : x;
        m->ops->linear_dw(m, y, x, sums, h->t->step.tokens, 0);
        TRY(tell(h, ctx));
    }
    return S24_OK;
}

s24_status s24i_halves_cross(s24i_halves *h, s24_ctx *ctx, float *sums, const s24i_reading *reading,
                             const s24i_pairing *others)
{
    s24i_machine *m = &h->t->machine;
    int64_t rows, k;
    s24i_slot_shape(&rows, &k, &h->t->shape, reading->slot);
    const int64_t n = others ? others->width : k;
    s24i_layer there = {.n = n, .k = k, .ldx = k, .ldy = n};
    m->ctx = ctx;
    there.dw = m->ops->alloc(m, (size_t)(n * k) * sizeof *there.dw);
    REQUIRE(ctx, there.dw, S24_ERROR_MEMORY, "out of memory for the Gram matrix of %lld inputs",
            (long long)k);
    s24_status status = add_inputs(h, ctx, &there, reading, others);
    if (status == S24_OK) {
        m->ops->download(m, sums, there.dw, (size_t)(n * k) * sizeof *sums);
        status = m->status;
    }
    m->ops->free(m, there.dw);
    return status;
}

s24_status s24i_halves_gram(s24i_halves *h, s24_ctx *ctx, s24_stats *stats,
                            const s24i_reading *reading)
{
    int64_t rows, k;
    float *sums;
    s24i_slot_shape(&rows, &k, &h->t->shape, reading->slot);
    TRY(s24i_alloc_elems(&sums, ctx, k * k, sizeof *sums, "a Gram matrix"));
    s24_status status = s24i_halves_cross(h, ctx, sums, reading, NULL);
    if (status == S24_OK)
        status = s24_stats_add_gram(stats, ctx, &(s24_dense){sums, S24_F32, k, k, k},
                                    s24i_halves_tokens(h, reading->held));
    s24_ctx_free(ctx, sums);
    return status;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The slots whose rows come before a slot's in its layer. */
static int slots_before(s24i_slot before[2], s24i_slot slot)
{
    before[0] = S24I_QUERY;
    before[1] = S24I_KEY;
    if (slot == S24I_KEY) return 1;
    if (slot == S24I_VALUE) return 2;
    before[0] = S24I_GATE;
    return slot == S24I_INTERMEDIATE;
}

float *s24i_halves_weight(int64_t *count, const s24i_halves *h, int64_t block, s24i_slot slot)
{
    const s24i_train_block *b = &h->t->blocks[block];
    const s24i_layer *layer = slot <= S24I_VALUE       ? &b->qkv
                              : slot == S24I_ATTENTION ? &b->attention
                              : slot == S24I_OUTPUT    ? &b->down
                                                       : &b->up;
    s24i_slot before[2];
    int64_t rows, cols, at = 0;
    for (int i = slots_before(before, slot); i-- > 0; at += rows * cols)
        s24i_slot_shape(&rows, &cols, &h->t->shape, before[i]);
    s24i_slot_shape(&rows, &cols, &h->t->shape, slot);
    *count = rows * cols;
    return layer->w + at;
}

s24_status s24i_halves_put(s24i_halves *h, s24_ctx *ctx, int64_t block, const s24_dense *weights,
                           unsigned slots)
{
    s24i_machine *m = &h->t->machine;
    m->ctx = ctx;
    for (int slot = 0; slot < S24I_ALL_SLOTS; slot++) {
        if (!(slots >> slot & 1u)) continue;
        int64_t count;
        float *w = s24i_halves_weight(&count, h, block, (s24i_slot)slot);
        m->ops->upload(m, w, weights[slot].data, (size_t)count * sizeof *w);
    }
    m->ops->refresh(m);
    return m->status;
}
