// SPDX-License-Identifier: Apache-2.0
/*
 * Attention on the CPU. Forward is the encoder's own (run/cpu/attention.c); backward takes one text
 * and head of the keys at a time, by tiles of queries whose weights P are computed again:
 *
 *     dP = dO·Vᵀ     dS = P ∘ (dP − ΣP∘dP)/√d     dQ = dS·K     dK += dSᵀ·Q     dV += Pᵀ·dO
 *
 * With dropout D on the weights, O = (P∘D)·V, so dV takes P∘D, and dP is dO·Vᵀ ∘ D. Where scores
 * grow by the tokens' distance, the gradient of what they grow by is Σ √d·dS of that distance.
 * Where scores s are capped, c·tanh(s/c), dS is multiplied by 1 − tanh².
 */
#include <math.h>
#include <string.h>

#include "io/file/io.h"
#include "model/distances.h"
#include "model/rotary.h"
#include "run/cpu/attention.h"
#include "train/cpu_room.h"

enum { TILE = 96 };

/* One thread's scratch, cut up; rows are padded for the vectors. */
typedef struct scratch {
    float *keys_t, *values_t;     /* [d][tokens] */
    float *keys;                  /* [tokens][d] */
    float *queries, *dout;        /* [TILE][d] */
    float *p, *dp;                /* [TILE][tokens] */
    float *turned;                /* [tokens][TILE]; before it is needed [TILE][tokens] of slopes */
    float *sum, *dkeys, *dvalues; /* [tokens][d] */
    float *mask;                  /* [tokens] */
    float *inverse;               /* [TILE] */
    float *sums;                  /* [heads, distances_head] of dS by distance; NULL: none */
    int64_t tokens_ld, d_ld;
} scratch;

int64_t s24i_cpu_attention_scratch(int64_t longest, int64_t d)
{
    const int64_t n = s24i_round_up(longest, S24I_VEC_PAD), w = s24i_round_up(d, S24I_VEC_PAD);
    return 2 * d * n + 4 * n * w + 2 * TILE * w + 3 * TILE * n + n + TILE;
}

static scratch cut(float *memory, int64_t tokens, int64_t d)
{
    scratch s = {.tokens_ld = s24i_round_up(tokens, S24I_VEC_PAD),
                 .d_ld = s24i_round_up(d, S24I_VEC_PAD)};
    const int64_t n = s.tokens_ld, w = s.d_ld;
    s.keys_t = memory;
    s.values_t = s.keys_t + d * n;
    s.keys = s.values_t + d * n;
    s.sum = s.keys + n * w;
    s.dkeys = s.sum + n * w;
    s.dvalues = s.dkeys + n * w;
    s.queries = s.dvalues + n * w;
    s.dout = s.queries + TILE * w;
    s.p = s.dout + TILE * w;
    s.dp = s.p + TILE * n;
    s.turned = s.dp + TILE * n;
    s.mask = s.turned + TILE * n;
    s.inverse = s.mask + n;
    return s;
}

/* Where a head of queries (0), keys (1) or values (2) begins in a row of qkv. */
static int64_t head_at(const s24i_heads *h, int which, int64_t head)
{
    const int64_t before[] = {0, h->heads, h->heads + h->kv_heads};
    return (h->mixed ? 3 * head + which : before[which] + head) * h->d;
}

typedef struct job {
    s24i_machine *m;
    const s24i_heads *h;
    s24i_attention forward;
    float *dqkv;
    const float *qkv, *dcontext;
    int64_t turns; /* threads */
    int back;
} job;

/* Where a text's head stands in a row of qkv. */
typedef struct place {
    int64_t text, first, tokens;
    int64_t ld, wide; /* rows of qkv, of the context */
} place;

/* A tile of a head's queries, and the keys from `from` on that some of them see. */
typedef struct tile {
    int64_t text, head, row, rows, from, seen;
} tile;

static tile tile_of(const job *j, const place *at, int64_t head, int64_t row)
{
    const int64_t rows = s24i_min(TILE, at->tokens - row);
    const int64_t from = s24i_attention_first_key(&j->forward, row + 1);
    const int64_t end = s24i_attention_keys_seen(&j->forward, at->tokens, row + rows - 1);
    return (tile){at->text, head, row, rows, from, end - from};
}

/* What the tile's scores grow by, or what hides keys from them all; of distances, which go with
   the row, what the batch hides is hidden here. */
static void give_mask(s24i_softmax *soft, const scratch *s, const s24i_attention *a, const tile *t)
{
    const int hides = a->batch->mask != NULL;
    soft->mask = hides ? s->mask + t->from : NULL;
    if (!a->distances) return;
    soft->mask = a->distances + t->head * a->distances_head + t->from - t->row;
    soft->mask_back = 1;
    for (int64_t r = 0; hides && r < t->rows; r++)
        for (int64_t i = 0; i < t->seen; i++)
            if (s->mask[t->from + i] < 0.0f) soft->s[r * soft->ld + i] = -FLT_MAX;
}

/* Caps a tile's scores, and keeps the cap's slope at each. */
static void cap_scores(const scratch *s, const job *j, s24i_softmax *soft)
{
    const float most = j->h->cap;
    if (most <= 0.0f) return;
    s24i_attention_cap(&j->forward, soft);
    for (int64_t r = 0; r < soft->rows; r++)
        for (int64_t i = 0; i < soft->n; i++) {
            const float share = soft->s[r * soft->ld + i] / most;
            s->turned[r * soft->ld + i] = 1.0f - share * share;
        }
}

/* P of a tile, with zeros for what its rows do not see, in s->p. */
static void weights(const scratch *s, const job *j, const tile *t)
{
    const s24i_vec *vec = j->m->vec;
    const s24i_heads *h = j->h;
    const s24i_product scores = {.c = s->p,
                                 .ldc = s->tokens_ld,
                                 .a = s->queries,
                                 .lda = s->d_ld,
                                 .b = s->keys_t + t->from,
                                 .ldb = s->tokens_ld,
                                 .m = t->rows,
                                 .n = t->seen,
                                 .k = h->d};
    s24i_softmax soft = {.s = s->p,
                         .ld = s->tokens_ld,
                         .rows = t->rows,
                         .n = t->seen,
                         .scale = h->scale,
                         .inverse = s->inverse};
    vec->product(&scores);
    cap_scores(s, j, &soft);
    give_mask(&soft, s, &j->forward, t);
    if (!h->causal) {
        vec->softmax(&soft);
        s24i_attention_drop_blind(&j->forward, t->text, &soft, s->mask + t->from);
    }
    for (int64_t r = 0; r < t->rows; r++) {
        float *p = s->p + r * s->tokens_ld;
        int64_t n = t->seen;
        if (h->causal) {
            s24i_softmax one = soft;
            one.s = p;
            one.rows = 1;
            one.n = n = t->row + r + 1 - t->from;
            for (int64_t i = 0; h->window && i < n - h->window; i++)
                p[i] = -HUGE_VALF;
            one.inverse = s->inverse + r;
            vec->softmax(&one);
        }
        vec->scale(p, s->inverse[r], n);
        for (; n < s->tokens_ld; n++)
            p[n] = 0.0f;
    }
}

/* total[tokens, d] += aᵀ·b for a [rows, seen] and b [rows, d]. */
static void add_turned(const scratch *s, const job *j, float *total, const float *a, const float *b,
                       const tile *t)
{
    const s24i_vec *vec = j->m->vec;
    float *to = total + t->from * s->d_ld;
    vec->transpose(s->turned, TILE, a, s->tokens_ld, t->rows, t->seen);
    const s24i_product product = {.c = s->sum,
                                  .ldc = s->d_ld,
                                  .a = s->turned,
                                  .lda = TILE,
                                  .b = b,
                                  .ldb = s->d_ld,
                                  .m = t->seen,
                                  .n = j->h->d,
                                  .k = t->rows};
    vec->product(&product);
    vec->add(to, to, s->sum, t->seen * s->d_ld);
}

/* dS of a tile, in s->dp, by the distances of its rows' keys. */
static void add_distances(const scratch *s, const job *j, const tile *t)
{
    const s24i_heads *h = j->h;
    for (int64_t r = 0; s->sums && r < t->rows; r++) {
        float *to = s->sums + t->head * h->distances_head + h->distance_zero + t->from - t->row - r;
        j->m->vec->add(to, to, s->dp + r * s->tokens_ld, t->seen);
    }
}

/* dS of a tile from its dP, in s->dp; in s->p then what dV takes. */
static void scores_back(const scratch *s, const job *j, int64_t token, const tile *t)
{
    const s24i_heads *h = j->h;
    const s24i_vec *vec = j->m->vec;
    for (int64_t r = 0; r < t->rows; r++) {
        float *p = s->p + r * s->tokens_ld, *dp = s->dp + r * s->tokens_ld;
        const int64_t site = (token + r) * h->heads + t->head;
        if (h->drop) vec->dropout(dp, t->seen, h->drop, site);
        vec->softmax_back(dp, p, h->scale, t->seen);
        if (h->cap > 0.0f) vec->multiply(dp, dp, s->turned + r * s->tokens_ld, t->seen);
        if (h->drop) vec->dropout(p, t->seen, h->drop, site);
    }
    add_distances(s, j, t);
}

static void tile_back(const scratch *s, const job *j, const place *at, int64_t head, int64_t row)
{
    const s24i_vec *vec = j->m->vec;
    const tile t = tile_of(j, at, head, row);
    const int64_t d = j->h->d, token = at->first + row, q = head_at(j->h, 0, head);
    const s24i_product dp = {.c = s->dp,
                             .ldc = s->tokens_ld,
                             .a = s->dout,
                             .lda = s->d_ld,
                             .b = s->values_t + t.from,
                             .ldb = s->tokens_ld,
                             .m = t.rows,
                             .n = t.seen,
                             .k = d};
    const s24i_product dq = {.c = s->dout,
                             .ldc = s->d_ld,
                             .a = s->dp,
                             .lda = s->tokens_ld,
                             .b = s->keys + t.from * s->d_ld,
                             .ldb = s->d_ld,
                             .m = t.rows,
                             .n = d,
                             .k = t.seen};
    s24i_pad_rows(s->queries, s->d_ld, j->qkv + token * at->ld + q, at->ld, t.rows, d);
    s24i_pad_rows(s->dout, s->d_ld, j->dcontext + token * at->wide + head * d, at->wide, t.rows, d);
    weights(s, j, &t);
    vec->product(&dp);
    scores_back(s, j, token, &t);
    add_turned(s, j, s->dvalues, s->p, s->dout, &t);
    add_turned(s, j, s->dkeys, s->dp, s->queries, &t);
    vec->product(&dq);
    for (int64_t r = 0; r < t.rows; r++)
        memcpy(j->dqkv + (token + r) * at->ld + q, s->dout + r * s->d_ld,
               (size_t)d * sizeof(float));
}

static void head_back(float *memory, const job *j, int64_t text, int64_t kv_head, float *sums)
{
    const s24i_heads *h = j->h;
    const s24i_train_batch *step = h->step;
    const int64_t d = h->d, group = h->heads / h->kv_heads;
    const place at = {text, step->offsets[text], step->offsets[text + 1] - step->offsets[text],
                      (h->heads + 2 * h->kv_heads) * d, h->heads * d};
    const int64_t k = head_at(h, 1, kv_head), v = head_at(h, 2, kv_head);
    const float *rows = j->qkv + at.first * at.ld;
    scratch s = cut(memory, at.tokens, d);
    s.sums = sums;
    const size_t bytes = (size_t)(s.tokens_ld * s.d_ld) * sizeof(float);
    j->m->vec->transpose(s.keys_t, s.tokens_ld, rows + k, at.ld, at.tokens, d);
    j->m->vec->transpose(s.values_t, s.tokens_ld, rows + v, at.ld, at.tokens, d);
    s24i_pad_rows(s.keys, s.d_ld, rows + k, at.ld, at.tokens, d);
    memset(s.dkeys, 0, bytes);
    memset(s.dvalues, 0, bytes);
    if (step->mask) s24i_attention_mask(s.mask, s.tokens_ld, step->mask + at.first, at.tokens);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t row = 0; row < at.tokens; row += TILE)
            tile_back(&s, j, &at, head, row);
    for (int64_t t = 0; t < at.tokens; t++) {
        float *to = j->dqkv + (at.first + t) * at.ld;
        memcpy(to + k, s.dkeys + t * s.d_ld, (size_t)d * sizeof(float));
        memcpy(to + v, s.dvalues + t * s.d_ld, (size_t)d * sizeof(float));
    }
}

/* A turn's sums of dS by distance. */
static float *turn_sums(const s24i_heads *h, int64_t turn)
{
    return h->drelative ? (float *)h->work + turn * h->heads * h->distances_head : NULL;
}

/* Threads take turns: a text's heads cost the same, one text and another do not. */
static void back_turns(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const int64_t kv = j->h->kv_heads, items = j->h->step->texts * kv;
    float *memory = j->m->scratch + thread * j->m->scratch_elems;
    for (int64_t turn = begin; turn < end; turn++)
        for (int64_t i = turn; i < items; i += j->turns)
            head_back(memory, j, i / kv, i % kv, turn_sums(j->h, turn));
}

/* Sums of all turns to the gradients of the model's table. */
static void table_back(const s24i_heads *h, int64_t turns)
{
    const float root = 1.0f / h->scale;
    for (int64_t head = 0; head < h->heads; head++)
        for (int64_t i = 0; i <= 2 * h->distance_zero; i++) {
            const int64_t bucket = s24i_bucket(h->shape, i - h->distance_zero);
            float sum = 0.0f;
            for (int64_t turn = 0; turn < turns; turn++)
                sum += turn_sums(h, turn)[head * h->distances_head + i];
            h->drelative[bucket * h->heads + head] += root * sum;
        }
}

size_t s24i_cpu_attention_bytes(s24i_machine *m, const s24i_heads *h)
{
    if (h->apart) return s24i_cpu_apart_bytes(m, h);
    return h->drelative ? (size_t)(m->threads * h->heads * h->distances_head) * sizeof(float) : 0;
}

void s24i_cpu_distances(s24i_machine *m, float *to, const s24i_heads *h,
                        const s24i_distance_rule *rule)
{
    if (m->status == S24_OK) s24i_distances_fill(to, rule, h->distance_zero + 1);
}

static s24_batch batch_of(const s24i_heads *h)
{
    const s24i_train_batch *step = h->step;
    return (s24_batch){.texts = step->texts, .offsets = step->offsets, .mask = step->mask};
}

/* The pass forward, whose batch the caller has. */
static s24i_attention forward_of(const s24i_machine *m, const s24i_heads *h, const float *qkv,
                                 const s24_batch *batch)
{
    return (s24i_attention){.vec = m->vec,
                            .dtype = S24_F32,
                            .q = qkv,
                            .k = qkv + head_at(h, 1, 0),
                            .v = qkv + head_at(h, 2, 0),
                            .head = h->mixed ? 3 * h->d : 0,
                            .kv_head = h->mixed ? 3 * h->d : 0,
                            .ld = (h->heads + 2 * h->kv_heads) * h->d,
                            .batch = batch,
                            .tiles = h->step->tiles,
                            .heads = h->heads,
                            .d = h->d,
                            .scale = h->scale,
                            .cap = h->cap,
                            .kv_heads = h->kv_heads,
                            .causal = h->causal,
                            .window = h->window,
                            .near = h->near,
                            .distances = h->distances ? h->distances + h->distance_zero : NULL,
                            .distances_head = h->distances_head,
                            .drop = h->drop,
                            .scratch = m->scratch,
                            .scratch_elems = m->scratch_elems};
}

void s24i_cpu_attention_back(s24i_machine *m, void *dqkv, const void *dcontext, const void *qkv,
                             const s24i_heads *heads)
{
    const s24_batch batch = batch_of(heads);
    job j = {.m = m,
             .h = heads,
             .forward = forward_of(m, heads, qkv, &batch),
             .dqkv = dqkv,
             .qkv = qkv,
             .dcontext = dcontext,
             .turns = s24_ctx_threads(m->ctx)};
    if (m->status != S24_OK) return;
    if (heads->apart) {
        s24i_cpu_attention_apart_back(m, dqkv, dcontext, qkv, heads);
        return;
    }
    if (heads->drelative) memset(heads->work, 0, heads->work_bytes);
    s24_ctx_parallel_for(m->ctx, j.turns, back_turns, &j);
    if (heads->drelative) table_back(heads, j.turns);
}

void s24i_cpu_attention(s24i_machine *m, void *context, const void *rows, const s24i_heads *h)
{
    const s24_batch batch = batch_of(h);
    s24i_attention attention = forward_of(m, h, rows, &batch);
    attention.context = context;
    if (h->apart)
        s24i_cpu_attention_apart(m, context, rows, h);
    else if (m->status == S24_OK)
        s24i_attention_run(m->ctx, &attention);
}

/* ---- rotary positions ------------------------------------------------------------------------ */

/* Element i of what turns of a head turns with the one in the other half, or next to it. */
static void rotate_head(float *a, const s24i_heads *h, const float *cosine, int back)
{
    const int64_t half = h->turned / 2;
    const float *sine = cosine + half;
    float *b = a + half;
    for (int64_t i = 0; h->adjacent && i < half; i++) {
        const float x = a[2 * i], y = a[2 * i + 1], s = back ? -sine[i] : sine[i];
        a[2 * i] = x * cosine[i] - y * s;
        a[2 * i + 1] = y * cosine[i] + x * s;
    }
    if (h->adjacent) return;
    if (back) /* the other half turns first */
        s24i_rotate(b, a, cosine, sine, half);
    else
        s24i_rotate(a, b, cosine, sine, half);
}

static void rotate_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const s24i_heads *h = j->h;
    const int64_t ld = (h->heads + 2 * h->kv_heads) * h->d;
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        for (int64_t i = 0; i < h->heads + h->kv_heads; i++) {
            const int is_key = i >= h->heads;
            rotate_head(j->dqkv + t * ld + head_at(h, is_key, is_key ? i - h->heads : i), h,
                        h->angles + h->step->positions[t] * h->turned, j->back);
        }
}

void s24i_cpu_rotate(s24i_machine *m, void *qkv, const s24i_heads *heads, int back)
{
    job j = {.m = m, .h = heads, .dqkv = qkv, .back = back};
    if (m->status == S24_OK) s24_ctx_parallel_for(m->ctx, heads->step->tokens, rotate_range, &j);
}
