// SPDX-License-Identifier: Apache-2.0
/* What ranks compare: before the first step versions, machines, models, examples and options; then,
   at the end of each, the masks, which are chosen now and then, and the weights of some steps. */
#include <string.h>

#include "base/try.h"
#include "train/share.h"

enum {
    IMAGES = 64,      /* of a source's: reading all of them takes as long as an epoch */
    PROOF_STEPS = 100 /* from one comparison of the weights to the next */
};
static const uint64_t STREAMS = UINT64_C(0xd1342543de82ef95); /* random numbers of each rank */

static s24_status hash_weights(uint64_t *hash, s24_transformer *t, s24_ctx *ctx)
{
    *hash = S24I_ALIKE_FIRST;
    if (!t) return S24_OK;
    return s24i_share_hash_of(hash, t, ctx, t->weights, (size_t)t->elems * sizeof *t->weights);
}

static uint64_t hash_read(uint64_t hash, const s24i_examples *e, const s24i_shape *s)
{
    const size_t tokens = (size_t)(s->image ? e->count : e->tokens) * sizeof(int32_t);
    const size_t pixels = (size_t)(e->count * s->channels * s->image * s->image) * sizeof(float);
    hash = s24i_hash(hash, e->targets, tokens);
    hash = s24i_hash(hash, e->starts, (size_t)e->count * sizeof *e->starts);
    hash = s24i_hash(hash, e->ends, (size_t)e->count * sizeof *e->ends);
    if (s->image) return s24i_hash(hash, e->pixels, pixels);
    hash = s24i_hash(hash, e->types, tokens);
    return s24i_hash(hash, e->ids, tokens);
}

static s24_status hash_examples(uint64_t *hash, s24i_examples *e, s24_transformer *t, s24_ctx *ctx)
{
    const int64_t count = e->source->count;
    const int64_t every = t->shape.image && count > IMAGES ? count / IMAGES : 1;
    *hash = s24i_hash(S24I_ALIKE_FIRST, &count, sizeof count);
    for (int64_t at = 0; at < count; at += every) {
        TRY(s24i_examples_read(e, t, ctx, &at, 1));
        *hash = hash_read(*hash, e, &t->shape);
    }
    return S24_OK;
}

static uint64_t hash_machine(const s24_transformer *t, s24_ctx *ctx)
{
    const uint64_t numbers[] = {(uint64_t)s24_ctx_threads(ctx), s24_ctx_cpu(ctx),
                                t->machine.gpu != NULL};
    return s24i_hash(S24I_ALIKE_FIRST, numbers, sizeof numbers);
}

s24_status s24i_share_meet(s24i_share *s, s24_transformer *t, s24_ctx *ctx,
                           const s24i_share_run *run, s24_status mine)
{
    if (!s->comm) return mine;
    s24i_alike proofs[] = {{"another version of sparse24", 0},
                           {"other threads or instructions of the CPU", 0},
                           {"another checkpoint", 0},
                           {"another model", 0},
                           {"another teacher", 0},
                           {"other examples", 0},
                           {"other options", run->options}};
    const char *version = s24_version();
    proofs[0].hash = s24i_hash(S24I_ALIKE_FIRST, version, strlen(version));
    proofs[1].hash = hash_machine(t, ctx);
    proofs[2].hash = s24i_hash(S24I_ALIKE_FIRST, &run->step, sizeof run->step);
    if (mine == S24_OK) mine = hash_weights(&proofs[3].hash, t, ctx);
    if (mine == S24_OK) mine = hash_weights(&proofs[4].hash, run->teacher, ctx);
    if (mine == S24_OK) mine = hash_examples(&proofs[5].hash, run->examples, t, ctx);
    return s24i_alike_compare(ctx, s->comm, s->table, mine, proofs, sizeof proofs / sizeof *proofs);
}

/* Were the masks of this step chosen for it? */
static int chose(const s24i_optimiser *o, int64_t step)
{
    return o->bits && o->memory[S24I_REMEMBERS_SPARSE] == 1 &&
           (int64_t)o->memory[S24I_REMEMBERS_CHOSEN] == step;
}

static s24_status hash_step(s24i_share *s, s24_transformer *t, s24_ctx *ctx,
                            const s24i_share_step *at)
{
    const s24i_optimiser *o = at->optimiser;
    if (chose(o, at->step)) {
        s->masks = S24I_ALIKE_FIRST;
        TRY(s24i_share_hash_of(&s->masks, t, ctx, o->bits, (size_t)t->elems / 8));
    }
    return at->step % PROOF_STEPS ? S24_OK : hash_weights(&s->proof, t, ctx);
}

/* Keeps what all ranks' examples of a step have together, of what each has said of its own. */
static void add_up(s24i_share *s, int tokens, int labels)
{
    s->tokens = (int64_t)s24i_share_sum(s, tokens);
    s->labels = (int64_t)s24i_share_sum(s, labels);
}

s24_status s24i_share_begin(s24i_share *s, s24_transformer *t, s24_ctx *ctx,
                            const s24i_share_step *at, s24_status *mine)
{
    s24i_examples *e = at->examples;
    if (!s->comm) return *mine;
    at->optimiser->rule.seed += (uint64_t)s->rank * STREAMS;
    if (*mine == S24_OK) *mine = hash_step(s, t, ctx, at);
    if (!s->told) {
        const double values[] = {(double)e->tokens, (double)e->labels};
        TRY(s24i_share_say(s, ctx, *mine, values, 2));
        add_up(s, 0, 1);
    }
    e->all_tokens = s->tokens;
    e->all_labels = s->labels;
    e->all_count = at->count;
    e->first = at->first;
    return S24_OK;
}

s24_status s24i_share_end(s24i_share *s, s24_ctx *ctx, s24i_share_turn *turn, s24_status mine)
{
    enum { STOPS, NOW, READ, TOKENS, LABELS, PROOFS, SAID = PROOFS + 4 };
    const s24i_examples *next = turn->next;
    const s24i_alike proofs[] = {{"other masks", s->masks}, {"other weights", s->proof}};
    double values[SAID] = {turn->stops, turn->now, next != NULL};
    if (!s->comm || s->cut) return mine;
    if (next) {
        values[TOKENS] = (double)next->tokens;
        values[LABELS] = (double)next->labels;
    }
    s24i_alike_put(values + PROOFS, proofs, 2);
    TRY(s24i_share_say(s, ctx, mine, values, SAID));
    TRY(s24i_alike_check(ctx, s->comm, &(s24i_said){s->table, SAID, PROOFS}, proofs, 2));
    turn->stops = s24i_share_sum(s, STOPS) > 0;
    turn->now = s24i_share_of(s, 0, NOW);
    s->told = s24i_share_sum(s, READ) == s->world;
    add_up(s, TOKENS, LABELS);
    return S24_OK;
}
