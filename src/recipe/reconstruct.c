// SPDX-License-Identifier: Apache-2.0
/*
 * Reconstruction of blocks by the passes of training: its transformer holds the dense model, one
 * block of which is replaced by the pruned one while it learns. The states of both models stand in
 * the memory of the machine that runs it for all tokens (halves.h); a step takes a batch of whole
 * texts from them.
 */
#include "recipe/reconstruct.h"

#include <math.h>
#include <string.h>

#include "train/transformer.h"

enum { HALVES = 2 };
static const s24i_mode plain_mode;
static const s24i_pull no_pull;
static const double RATE = 1e-3, BETA1 = 0.9, BETA2 = 0.999, EPS = 1e-8;

/* The layers of a block, and the slots that each is of, in its rows' order. */
static const struct {
    s24i_slot slots[3];
    int count, half;
} parts[] = {{{S24I_QUERY, S24I_KEY, S24I_VALUE}, 3, 0},
             {{S24I_ATTENTION}, 1, 0},
             {{S24I_GATE, S24I_INTERMEDIATE}, 2, 1},
             {{S24I_OUTPUT}, 1, 1}};
enum { PARTS = sizeof parts / sizeof *parts };

/* What the optimiser keeps of a layer, in the machine's memory. */
typedef struct learner {
    const s24i_layer *layer; /* of the block at hand; NULL: nothing of it learns */
    float *m, *v;
    uint16_t *mask;
    int64_t count;   /* weights, up to a multiple of 16, as the arena has them */
    unsigned learns; /* bits of slots */
} learner;

struct s24i_reconstruction {
    s24_ctx *ctx; /* of create */
    s24i_halves *halves;
    int64_t steps;         /* for each half of a block */
    char *states;          /* the memory of all that follow, each [tokens, width]: */
    char *dense;           /* the dense model's before the block, */
    char *targets[HALVES]; /* and after each half */
    learner learners[PARTS];
    uint16_t *bits; /* room for a mask on its way to the machine */
    int64_t steps_done, steps_total;
};

void s24i_reconstruction_destroy(s24i_reconstruction *r)
{
    if (!r) return;
    s24_ctx *ctx = r->ctx;
    s24i_machine *m = &r->halves->t->machine;
    m->ctx = ctx;
    for (int i = 0; i < PARTS; i++) {
        m->ops->free(m, r->learners[i].m);
        m->ops->free(m, r->learners[i].mask);
    }
    m->ops->free(m, r->states);
    s24_ctx_free(ctx, r->bits);
    s24_ctx_free(ctx, r);
}

/* Memory of the machine that runs it. */
static s24_status new_memory(void **out, s24i_reconstruction *r, s24_ctx *ctx, int64_t bytes,
                             const char *what)
{
    s24i_machine *m = &r->halves->t->machine;
    *out = m->ops->alloc(m, (size_t)bytes);
    REQUIRE(ctx, *out, S24_ERROR_MEMORY, "out of memory for %s: %lld bytes", what,
            (long long)bytes);
    return S24_OK;
}

static int64_t slot_elems(const s24i_reconstruction *r, s24i_slot slot)
{
    int64_t rows, cols;
    s24i_slot_shape(&rows, &cols, &r->halves->t->shape, slot);
    return rows * cols;
}

static s24_status make_learners(s24i_reconstruction *r, s24_ctx *ctx)
{
    int64_t most = 0;
    for (int i = 0; i < PARTS; i++) {
        learner *l = &r->learners[i];
        void *memory;
        for (int j = 0; j < parts[i].count; j++)
            l->count += slot_elems(r, parts[i].slots[j]);
        l->count = (l->count + 15) / 16 * 16;
        const int64_t bytes = 2 * l->count * (int64_t)sizeof *l->m;
        TRY(new_memory(&memory, r, ctx, bytes, "an optimiser's moments"));
        l->m = memory;
        l->v = l->m + l->count;
        TRY(new_memory(&memory, r, ctx, l->count / 8, "a mask"));
        l->mask = memory;
        most = s24i_max(most, l->count);
    }
    return s24i_alloc_elems(&r->bits, ctx, most / 16, sizeof *r->bits, "a mask");
}

static s24_status fill(s24i_reconstruction *r, s24_ctx *ctx)
{
    s24i_halves *h = r->halves;
    const size_t bytes = s24i_halves_bytes(h);
    TRY(s24i_halves_new_states(&r->states, h, ctx, 3));
    r->dense = r->states;
    r->targets[0] = r->dense + bytes;
    r->targets[1] = r->targets[0] + bytes;
    s24i_halves_write(h, r->dense, h->opts.embeddings);
    r->steps_total = HALVES * r->steps * h->t->shape.layers;
    TRY(h->t->machine.status);
    return make_learners(r, ctx);
}

s24_status s24i_reconstruction_create(s24i_reconstruction **out, s24_ctx *ctx, s24i_halves *halves,
                                      int64_t steps)
{
    s24i_reconstruction *r;
    *out = NULL;
    TRY(s24i_zeroed(&r, ctx, sizeof *r));
    r->ctx = ctx;
    r->halves = halves;
    r->steps = steps;
    GIVE(out, r, s24i_reconstruction_destroy, fill(r, ctx));
}

/* The gradients of a batch's squared distance from the target. */
static s24_status gradients(s24i_reconstruction *r, s24_ctx *ctx, int64_t sum, int64_t batch)
{
    s24i_halves *h = r->halves;
    s24_transformer *t = h->t;
    s24i_machine *m = &t->machine;
    s24i_block_walk walk = {.t = t, .mode = &plain_mode, .pull = &no_pull, .ends = 1};
    const int normed = s24i_halves_is_normed(t, sum + 1);
    double loss = 0;
    int64_t at;
    TRY(s24i_halves_begin(h, ctx, batch, &at));
    const size_t bytes = (size_t)(t->step.tokens * h->width) * m->element;
    s24i_halves_set(h, sum, (sum % 2 ? h->middle : h->state) + at);
    s24i_half_forward(&walk, sum / 2, (int)(sum % 2));
    m->ops->clear(m, t->at.sums, sizeof *t->at.sums);
    m->ops->clear(m, t->at.dn, bytes);
    m->ops->clear(m, t->at.ds, bytes);
    m->ops->squared_error(m, &t->at.sums->loss, normed ? t->at.dn : t->at.ds,
                          s24i_halves_get(h, sum + 1), r->targets[sum % 2] + at,
                          1.0 / (double)t->step.tokens, &t->step, h->width);
    s24i_half_back(&walk, sum / 2, (int)(sum % 2));
    m->ops->download(m, &loss, &t->at.sums->loss, sizeof loss);
    TRY(m->status);
    REQUIRE(ctx, isfinite(loss), S24_ERROR_NUMERIC,
            "block %lld could not be reconstructed: its loss is not finite", (long long)(sum / 2));
    return S24_OK;
}

/* ---- learning -------------------------------------------------------------------------------- */

static s24i_layer *part_layer(s24i_train_block *b, int part)
{
    s24i_layer *const layers[PARTS] = {&b->qkv, &b->attention, &b->up, &b->down};
    return layers[part];
}

/* The rows that each slot has of a part's layer, in turn: 0 after the last. */
typedef struct rows_of {
    const s24i_reconstruction *r;
    int part, next;
    s24i_slot slot;
    int64_t at, count; /* elements */
} rows_of;

static int next_rows(rows_of *rows)
{
    if (rows->next == parts[rows->part].count) return 0;
    rows->at += rows->count;
    rows->slot = parts[rows->part].slots[rows->next++];
    rows->count = slot_elems(rows->r, rows->slot);
    return 1;
}

/* A slot's pruned weights into the machine, and which of them stay into bits. */
static void put_slot(s24i_reconstruction *r, const learner *l, const rows_of *rows, const float *w)
{
    s24i_machine *m = &r->halves->t->machine;
    m->ops->upload(m, l->layer->w + rows->at, w, (size_t)rows->count * sizeof *w);
    for (int64_t i = 0; i < rows->count; i++)
        if (w[i] == 0.0f) r->bits[(rows->at + i) / 16] &= (uint16_t) ~(1u << (rows->at + i) % 16);
}

/* The pruned weights into the transformer, and their masks; slots that are not pruned keep all. */
static void put_weights(s24i_reconstruction *r, int64_t block, const s24_dense *weights,
                        unsigned pruned)
{
    s24i_machine *m = &r->halves->t->machine;
    for (int i = 0; i < PARTS; i++) {
        learner *l = &r->learners[i];
        rows_of rows = {.r = r, .part = i};
        l->layer = part_layer(&r->halves->t->blocks[block], i);
        l->learns = 0;
        memset(r->bits, 0xff, (size_t)l->count / 8);
        while (next_rows(&rows)) {
            if (!rows.count || !(pruned >> rows.slot & 1u)) continue;
            l->learns |= 1u << rows.slot;
            put_slot(r, l, &rows, weights[rows.slot].data);
        }
        m->ops->upload(m, l->mask, r->bits, (size_t)l->count / 8);
        m->ops->clear(m, l->m, 2 * (size_t)l->count * sizeof *l->m);
    }
    m->ops->refresh(m);
}

static void get_weights(s24i_reconstruction *r, const s24_dense *weights)
{
    s24i_machine *m = &r->halves->t->machine;
    for (int i = 0; i < PARTS; i++) {
        const learner *l = &r->learners[i];
        rows_of rows = {.r = r, .part = i};
        while (next_rows(&rows))
            if (l->learns >> rows.slot & 1u)
                m->ops->download(m, weights[rows.slot].data, l->layer->w + rows.at,
                                 (size_t)rows.count * sizeof(float));
    }
}

/* Slots that are not pruned have no gradient, and so no moments, and stay. */
static void clear_others(s24i_reconstruction *r, int part)
{
    s24i_machine *m = &r->halves->t->machine;
    const learner *l = &r->learners[part];
    rows_of rows = {.r = r, .part = part};
    while (next_rows(&rows))
        if (!(l->learns >> rows.slot & 1u))
            m->ops->clear(m, l->layer->dw + rows.at, (size_t)rows.count * sizeof(float));
}

static void update(s24i_reconstruction *r, int half, int64_t step)
{
    s24_transformer *t = r->halves->t;
    s24i_machine *m = &t->machine;
    for (int i = 0; i < PARTS; i++) {
        const learner *l = &r->learners[i];
        if (!l->learns || parts[i].half != half) continue;
        const s24i_segment all = {.count = l->count, .matrix = 1};
        const s24i_update job = {.p = l->layer->w,
                                 .g = l->layer->dw,
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
                                 .rate = RATE * (1.0 - (double)step / (double)r->steps),
                                 .step = step + 1,
                                 .first = l->layer->w - t->weights};
        clear_others(r, i);
        m->ops->update(m, &job);
    }
}

static s24_status train_half(s24i_reconstruction *r, s24_ctx *ctx, int64_t sum)
{
    s24_transformer_clear(r->halves->t, ctx);
    for (int64_t step = 0; step < r->steps; step++) {
        TRY(gradients(r, ctx, sum, step % r->halves->shown));
        update(r, (int)(sum % 2), step);
        TRY(s24_ctx_progress(ctx, "reconstructing", ++r->steps_done, r->steps_total));
    }
    return S24_OK;
}

s24_status s24i_reconstruct_aim(s24i_reconstruction *r, s24_ctx *ctx, int64_t block)
{
    TRY(s24i_halves_run(r->halves, ctx, 2 * block, r->dense, r->targets[0]));
    return s24i_halves_run(r->halves, ctx, 2 * block + 1, r->targets[0], r->targets[1]);
}

void s24i_reconstruct_pass(s24i_reconstruction *r)
{
    char *next = r->targets[1];
    r->targets[1] = r->dense; /* the states after this block are those before the next */
    r->dense = next;
}

s24_status s24i_reconstruct_block(s24i_reconstruction *r, s24_ctx *ctx, int64_t block,
                                  const s24_dense *weights, unsigned pruned)
{
    s24i_halves *h = r->halves;
    h->t->machine.ctx = ctx;
    put_weights(r, block, weights, pruned);
    TRY(train_half(r, ctx, 2 * block));
    TRY(s24i_halves_run(h, ctx, 2 * block, h->state, h->middle));
    TRY(train_half(r, ctx, 2 * block + 1));
    get_weights(r, weights);
    s24i_reconstruct_pass(r);
    return h->t->machine.status;
}
