// SPDX-License-Identifier: Apache-2.0
/* Ranks of one run: what they tell one another, what they must have alike, whose examples, and the
   sums of their gradients. */
#include "train/share.h"

#include <math.h>
#include <string.h>

#include "base/try.h"

/* ---- pieces of the gradients ----------------------------------------------------------------- */

static int64_t least_of(int64_t least, const s24_transformer *t, const float *gradients)
{
    return gradients ? s24i_min(least, gradients - t->gradients) : least;
}

static int64_t layer_begins(const s24_transformer *t, const s24i_layer *layer, int64_t least)
{
    return least_of(least_of(least, t, layer->dw), t, layer->dbias);
}

static int64_t norm_begins(const s24_transformer *t, const s24i_norm *norm, int64_t least)
{
    return least_of(least_of(least, t, norm->dgamma), t, norm->dbeta);
}

static int64_t block_begins(const s24_transformer *t, int64_t b)
{
    const s24i_train_block *block = &t->blocks[b];
    const s24i_layer *const layers[] = {&block->qkv, &block->attention, &block->up, &block->down};
    int64_t at = t->elems;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        at = layer_begins(t, layers[i], at);
    at = norm_begins(t, &block->query_norm, norm_begins(t, &block->key_norm, at));
    at = norm_begins(t, &t->norms[s24i_block_norm(t, b, S24I_ATTENTION_NORM)], at);
    return norm_begins(t, &t->norms[s24i_block_norm(t, b, S24I_OUTPUT_NORM)], at);
}

/* Do the blocks follow one another in the arena, after all whose gradients a pass backward ends
   with? If not, the arena is one piece, which is summed after the pass. */
static int is_in_order(const s24i_share *s, const s24_transformer *t)
{
    const s24i_embed *e = &t->embed;
    const float *const last[] = {e->dwords, e->dpositions, e->dtypes,
                                 e->dfirst, t->patches.dw, t->patches.dbias};
    const int64_t first = s->blocks[0];
    for (int64_t b = 0; b < t->shape.layers; b++)
        if (s->blocks[b + 1] <= s->blocks[b]) return 0;
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        if (last[i] && last[i] - t->gradients >= first) return 0;
    return 1;
}

static s24_status lay_out_pieces(s24i_share *s, const s24_transformer *t, s24_ctx *ctx,
                                 int64_t piece)
{
    const int64_t layers = t->shape.layers;
    TRY(s24i_alloc_elems(&s->blocks, ctx, 2 * layers + 3, sizeof *s->blocks, "pieces"));
    s->bounds = s->blocks + layers + 1;
    for (int64_t b = 0; b < layers; b++)
        s->blocks[b] = block_begins(t, b);
    s->blocks[layers] = t->elems;
    s->bounds[0] = t->elems;
    for (int64_t b = layers - 1; b > 0 && is_in_order(s, t); b--)
        if (s->bounds[s->pieces] - s->blocks[b] >= piece) s->bounds[++s->pieces] = s->blocks[b];
    s->bounds[++s->pieces] = 0;
    return S24_OK;
}

/* An eighth of all by default: on GPUs larger pieces were 1 to 2 % faster, or no slower. */
static int64_t piece_of(const s24_transformer *t, int64_t sum_bytes)
{
    const int64_t least = (4 << 20) / (int64_t)sizeof(float);
    return sum_bytes > 0 ? sum_bytes / (int64_t)sizeof(float) : s24i_max(least, t->elems / 8);
}

s24_status s24i_share_create(s24i_share *s, const s24_transformer *t, s24_ctx *ctx,
                             const s24_train_opts *opts)
{
    s24_comm *comm = opts->comm;
    *s = (s24i_share){.rank = s24_comm_rank(comm), .world = s24_comm_world(comm)};
    TRY(s24i_alloc_elems(&s->table, ctx, s24i_alike_room(s->world), sizeof *s->table,
                         "what ranks say"));
    if (s->world == 1) return S24_OK;
    s->comm = comm;
    REQUIRE(ctx, !s24_comm_is_on_device(comm) || t->machine.gpu, S24_ERROR_UNSUPPORTED,
            "nccl carries sums between GPUs; on the CPU mpi does");
    if (t->machine.gpu && !s24_comm_is_on_device(comm))
        TRY(s24i_alloc_elems(&s->stage, ctx, t->elems, sizeof *s->stage, "gradients to be summed"));
    if (opts->shard_optimizer) TRY(s24i_share_deal(s, t, ctx));
    return lay_out_pieces(s, t, ctx, piece_of(t, opts->sum_bytes));
}

void s24i_share_free(s24i_share *s, s24_ctx *ctx)
{
    s24_ctx_free(ctx, s->table);
    s24_ctx_free(ctx, s->blocks);
    s24_ctx_free(ctx, s->stage);
    s24_ctx_free(ctx, s->owned);
    s24_ctx_free(ctx, s->piece);
}

static int64_t length_of(const s24i_step_examples *of, int64_t i)
{
    return of->lengths ? of->lengths[of->which[i]] : 1;
}

void s24i_share_part(const s24i_share *s, const s24i_step_examples *of, int64_t *first,
                     int64_t *mine)
{
    int64_t all = 0, before = 0;
    *first = *mine = 0;
    for (int64_t i = 0; i < of->count; i++)
        all += length_of(of, i);
    for (int64_t i = 0; i < of->count; i++) {
        const int64_t tokens = length_of(of, i);
        const int64_t rank = (2 * before + tokens) * s->world / (2 * all);
        *first += rank < s->rank;
        *mine += rank == s->rank;
        before += tokens;
    }
}

/* ---- what ranks tell one another ------------------------------------------------------------- */

double s24i_share_of(const s24i_share *s, int rank, int value)
{
    return s->table[rank * (1 + s->said) + 1 + value];
}

double s24i_share_sum(const s24i_share *s, int value)
{
    double sum = 0;
    for (int r = 0; r < s->world; r++)
        sum += s24i_share_of(s, r, value);
    return sum;
}

s24_status s24i_share_say(s24i_share *s, s24_ctx *ctx, s24_status mine, const double *values,
                          int count)
{
    s->said = count;
    return s24i_alike_say(ctx, s->comm, s->table, mine, values, count);
}

/* ---- what they must have alike --------------------------------------------------------------- */

s24_status s24i_share_hash_of(uint64_t *hash, s24_transformer *t, s24_ctx *ctx, const void *data,
                              size_t bytes)
{
    enum { AT_ONCE = 1 << 22 };
    s24i_machine *m = &t->machine;
    char *copy;
    m->ctx = ctx;
    if (!m->gpu) {
        *hash = s24i_hash(*hash, data, bytes);
        return S24_OK;
    }
    TRY(s24i_alloc_elems(&copy, ctx, AT_ONCE, 1, "what is compared"));
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < AT_ONCE ? bytes - at : AT_ONCE;
        m->ops->download(m, copy, (const char *)data + at, n);
        *hash = s24i_hash(*hash, copy, n);
    }
    s24_ctx_free(ctx, copy);
    return m->status;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Begins the sums of the pieces that lie at `from` and after it. */
static void begin_pieces(s24i_share *s, s24_ctx *ctx, float *gradients, int64_t from)
{
    while (s->begun < s->pieces && s->bounds[s->begun + 1] >= from && s->status == S24_OK) {
        const int64_t at = s->bounds[s->begun + 1];
        s->status =
            s24_comm_sum_begin(ctx, s->comm, gradients + at, s->bounds[s->begun] - at, S24_F32);
        s->begun++;
    }
}

void s24i_share_ready(void *user, s24_ctx *ctx, s24_transformer *t, int64_t block)
{
    s24i_share *s = user;
    if (s->comm && !s->stage) begin_pieces(s, ctx, t->gradients, s->blocks[block + 1]);
}

/* Begins what is left of the sums. */
static s24_status begin_sums(s24i_share *s, s24_ctx *ctx, float *gradients, double *loss)
{
    begin_pieces(s, ctx, gradients, 0);
    const s24_status status = s->status;
    s->begun = 0;
    s->status = S24_OK;
    TRY(status);
    return s24_comm_sum_begin(ctx, s->comm, loss, 1, S24_F64);
}

static s24_status sum_gradients(s24i_share *s, s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)t->elems * sizeof(float);
    s24i_sums sums;
    float *gradients = s->stage ? s->stage : t->gradients;
    double *loss = s->stage ? &sums.loss : &t->at.sums->loss;
    if (s->stage) {
        m->ops->download(m, s->stage, t->gradients, bytes);
        m->ops->download(m, &sums, t->at.sums, sizeof sums);
    }
    TRY(s24i_share_carried(s, begin_sums(s, ctx, gradients, loss)));
    TRY(s24i_share_carried(s, s24i_comm_follow(ctx, s->comm)));
    if (s->stage) {
        m->ops->upload(m, t->gradients, s->stage, bytes);
        m->ops->upload(m, t->at.sums, &sums, sizeof sums);
    }
    return m->status;
}

/* Of a step whose loss is not finite the optimiser applies nothing. */
static void spoil_loss(s24_transformer *t)
{
    const double none = NAN;
    s24i_machine *m = &t->machine;
    m->status = S24_OK;
    m->ops->upload(m, &t->at.sums->loss, &none, sizeof none);
}

s24_status s24i_share_gradients(s24i_share *s, s24_transformer *t, s24_ctx *ctx, s24_status mine)
{
    s24i_machine *m = &t->machine;
    m->ctx = ctx;
    if (mine == S24_OK) mine = m->status;
    if (!s->comm) return mine;
    if (mine != S24_OK) spoil_loss(t);
    const s24_status status = sum_gradients(s, t, ctx);
    return mine != S24_OK ? mine : status;
}
