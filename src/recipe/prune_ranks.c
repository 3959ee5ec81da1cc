// SPDX-License-Identifier: Apache-2.0
/* What ranks that prune one model together say to one another, and the sums of what layers read. */
#include "recipe/prune_ranks.h"

#include <string.h>

#include "comm/alike.h"
#include "recipe/run_hash.h"

enum { PROOFS = 5, SAID = 2 * PROOFS, PIECE = 1 << 20 };

s24_status s24i_prune_ranks_begin(s24i_prune_ranks *ranks, s24_ctx *ctx, s24_comm *comm)
{
    *ranks = (s24i_prune_ranks){.ctx = ctx,
                                .comm = comm,
                                .rank = s24_comm_rank(comm),
                                .world = s24_comm_world(comm),
                                .weights = S24I_ALIKE_FIRST};
    if (ranks->world == 1) return S24_OK;
    TRY(s24i_alloc_elems(&ranks->table, ctx, s24i_alike_room(ranks->world), sizeof *ranks->table,
                         "what ranks say"));
    return s24i_alloc_elems(&ranks->piece, ctx, PIECE, sizeof *ranks->piece, "sums of ranks");
}

/* All calls have as many numbers, so that a rank that has failed is heard wherever others are. */
static s24_status say(s24i_prune_ranks *ranks, s24_status mine, const s24i_alike *proofs, int count)
{
    double values[SAID] = {0};
    const s24i_said said = {ranks->table, SAID, 0};
    s24i_alike_put(values, proofs, count);
    s24_status status = s24i_alike_say(ranks->ctx, ranks->comm, ranks->table, mine, values, SAID);
    if (status == S24_OK) status = s24i_alike_check(ranks->ctx, ranks->comm, &said, proofs, count);
    ranks->is_over = status != S24_OK;
    return status;
}

s24_status s24i_prune_ranks_say(s24i_prune_ranks *ranks)
{
    return ranks ? say(ranks, S24_OK, NULL, 0) : S24_OK;
}

s24_status s24i_prune_ranks_end(s24i_prune_ranks *ranks, s24_status mine)
{
    if (ranks->world > 1 && ranks->table && ranks->piece && !ranks->is_over)
        mine = say(ranks, mine, NULL, 0);
    s24_ctx_free(ranks->ctx, ranks->table);
    s24_ctx_free(ranks->ctx, ranks->piece);
    return mine;
}

/* ---- the same run ---------------------------------------------------------------------------- */

static uint64_t hash_machine(const s24i_pruner *pruner)
{
    const uint64_t numbers[] = {(uint64_t)s24_ctx_threads(pruner->ctx), s24_ctx_cpu(pruner->ctx)};
    return s24i_hash(S24I_ALIKE_FIRST, numbers, sizeof numbers);
}

static s24_status hash_run(s24i_alike *options, s24i_alike *model, const s24i_pruner *pruner)
{
    const s24_model_prune_opts *o = &pruner->opts;
    const int64_t numbers[] = {o->max_tokens, o->masks_only, o->masks != NULL};
    s24i_xxh3_stream *of_options = s24i_xxh3_begin(), *of_model = s24i_xxh3_begin();
    const int has_memory = of_options && of_model;
    if (has_memory) {
        s24i_run_hash_options(of_options, o);
        s24i_xxh3_add(of_options, numbers, sizeof numbers);
        if (o->masks) s24i_run_hash_model(of_options, o->masks);
        s24i_run_hash_model(of_model, pruner->in);
    }
    options->hash = of_options ? s24i_xxh3_end(of_options) : 0;
    model->hash = of_model ? s24i_xxh3_end(of_model) : 0;
    REQUIRE(pruner->ctx, has_memory, S24_ERROR_MEMORY, "out of memory for the hash of a run");
    return S24_OK;
}

static uint64_t hash_ids(uint64_t hash, const s24_batch *ids)
{
    const size_t tokens = (size_t)ids->offsets[ids->texts];
    hash = s24i_hash(hash, ids->offsets, (size_t)(ids->texts + 1) * sizeof *ids->offsets);
    hash = s24i_hash(hash, ids->ids, tokens * sizeof *ids->ids);
    return ids->types ? s24i_hash(hash, ids->types, tokens * sizeof *ids->types) : hash;
}

static uint64_t hash_passages(const s24i_pruner *pruner, const s24i_shape *shape)
{
    const s24_model_prune_opts *o = &pruner->opts;
    uint64_t hash = S24I_ALIKE_FIRST;
    if (o->images)
        return s24i_alike_hash_large(pruner->ctx, hash, o->images->pixels,
                                     (size_t)(o->images->texts * s24i_image_elems(shape)) *
                                         sizeof *o->images->pixels);
    if (o->ids) return hash_ids(hash, o->ids);
    for (int64_t t = 0; t < o->text_count; t++) {
        hash = s24i_hash(hash, &o->texts[t].bytes, sizeof o->texts[t].bytes);
        hash = s24i_hash(hash, o->texts[t].data, o->texts[t].bytes);
    }
    return hash;
}

/* Passages first … end of the pruner's. */
static void take_passages(s24i_pruner *pruner, s24_batch *batch, const s24i_shape *shape,
                          const int64_t range[2])
{
    s24_model_prune_opts *o = &pruner->opts;
    const s24_batch **given = o->images ? &o->images : &o->ids;
    if (!*given) {
        o->texts += range[0];
        o->text_count = range[1] - range[0];
        return;
    }
    *batch = **given;
    batch->texts = range[1] - range[0];
    if (batch->offsets) batch->offsets += range[0];
    if (batch->pixels) batch->pixels += range[0] * s24i_image_elems(shape);
    *given = batch;
}

s24_status s24i_prune_ranks_meet(s24i_pruner *pruner, s24_batch *batch, const s24i_shape *shape)
{
    s24i_prune_ranks *ranks = pruner->ranks;
    const char *version = s24_version();
    s24i_alike proofs[PROOFS] = {
        {"another version of sparse24", s24i_hash(S24I_ALIKE_FIRST, version, strlen(version))},
        {"other threads or instructions of the CPU", hash_machine(pruner)},
        {.what = "other options of pruning, or another kind of device"},
        {.what = "another model"},
        {"other calibration passages", hash_passages(pruner, shape)}};
    ranks->passages = proofs[4].hash;
    TRY(hash_run(&proofs[2], &proofs[3], pruner));
    TRY(say(ranks, S24_OK, proofs, PROOFS));
    const int64_t all = s24i_pruner_passages(pruner);
    REQUIRE(pruner->ctx, all >= ranks->world, S24_ERROR_ARGUMENT,
            "%d ranks share out calibration passages, and there are %lld of them", ranks->world,
            (long long)all);
    const int64_t range[] = {all * ranks->rank / ranks->world,
                             all * (ranks->rank + 1) / ranks->world};
    take_passages(pruner, batch, shape, range);
    return S24_OK;
}

s24_status s24i_prune_ranks_hand_round(s24i_prune_ranks *ranks, const s24_dense *w, int root)
{
    return s24_comm_broadcast(ranks->ctx, ranks->comm, w->data,
                              (size_t)(w->rows * w->cols) * sizeof(float), root);
}

void s24i_prune_ranks_note(s24i_prune_ranks *ranks, const s24_dense *w)
{
    ranks->weights = s24i_alike_hash_large(ranks->ctx, ranks->weights, w->data,
                                           (size_t)(w->rows * w->cols) * sizeof(float));
}

s24_status s24i_prune_ranks_agree(s24i_prune_ranks *ranks)
{
    const s24i_alike weights = {"pruned to other weights", ranks->weights};
    return say(ranks, S24_OK, &weights, 1);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Where a walk over a matrix's lower triangle is, row by row. */
typedef struct place {
    int64_t row, col;
} place;

/* The next numbers of gram [k, k] to the piece, or from it; how many. */
static int64_t carry(double *piece, double *gram, int64_t k, place *at, int back)
{
    int64_t count = 0;
    while (at->row < k && count < PIECE) {
        const int64_t step = s24i_min(at->row + 1 - at->col, PIECE - count);
        double *there = gram + at->row * k + at->col;
        memcpy(back ? there : piece + count, back ? piece + count : there,
               (size_t)step * sizeof *piece);
        count += step;
        at->col += step;
        if (at->col > at->row) *at = (place){at->row + 1, 0};
    }
    return count;
}

s24_status s24i_prune_ranks_sum(s24i_prune_ranks *ranks, s24_stats *stats, int64_t k)
{
    double *gram, all;
    int64_t *inputs;
    TRY(s24_stats_sums(&gram, &inputs, ranks->ctx, stats));
    all = (double)*inputs;
    TRY(s24_comm_sum(ranks->ctx, ranks->comm, &all, 1, S24_F64));
    *inputs = (int64_t)all;
    for (place at = {0, 0}; at.row < k;) {
        place next = at;
        const int64_t count = carry(ranks->piece, gram, k, &next, 0);
        TRY(s24_comm_sum(ranks->ctx, ranks->comm, ranks->piece, count, S24_F64));
        carry(ranks->piece, gram, k, &at, 1);
    }
    return S24_OK;
}
