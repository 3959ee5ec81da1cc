// SPDX-License-Identifier: Apache-2.0
/*
 * Attention on the CPU. Forward is the encoder's own (run/cpu/attention.c); backward takes one text
 * and head of the keys at a time, by tiles of queries whose weights P are computed again:
 *
 *     dP = dO·Vᵀ     dS = P ∘ (dP − ΣP∘dP)/√d     dQ = dS·K     dK += dSᵀ·Q     dV += Pᵀ·dO
 *
 * With dropout D on the weights, O = (P∘D)·V, so dV takes P∘D, and dP is dO·Vᵀ ∘ D.
 */
#include <math.h>
#include <string.h>

#include "io/file/io.h"
#include "model/rotary.h"
#include "run/cpu/attention.h"
#include "train/ops.h"

enum { TILE = 96 };

/* One thread's scratch, cut up; rows are padded for the vectors. */
typedef struct scratch {
    float *keys_t, *values_t;     /* [d][tokens] */
    float *keys;                  /* [tokens][d] */
    float *queries, *dout;        /* [TILE][d] */
    float *p, *dp;                /* [TILE][tokens] */
    float *turned;                /* [tokens][TILE] */
    float *sum, *dkeys, *dvalues; /* [tokens][d] */
    float *mask;                  /* [tokens] */
    float *inverse;               /* [TILE] */
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

typedef struct job {
    s24i_machine *m;
    const s24i_heads *h;
    float *dqkv;
    const float *qkv, *dcontext;
    int64_t turns; /* threads */
    int back;
} job;

/* Where a text's head stands in a row of qkv. */
typedef struct place {
    int64_t first, tokens; /* of the text */
    int64_t ld, wide;      /* rows of qkv, of the context */
} place;

/* P of a tile, with zeros for what its rows do not see, in s->p. */
static void weights(const scratch *s, const job *j, int64_t row, int64_t rows, int64_t seen)
{
    const s24i_vec *vec = j->m->vec;
    const s24i_heads *h = j->h;
    const s24i_product scores = {.c = s->p,
                                 .ldc = s->tokens_ld,
                                 .a = s->queries,
                                 .lda = s->d_ld,
                                 .b = s->keys_t,
                                 .ldb = s->tokens_ld,
                                 .m = rows,
                                 .n = seen,
                                 .k = h->d};
    s24i_softmax soft = {.s = s->p,
                         .ld = s->tokens_ld,
                         .rows = rows,
                         .n = seen,
                         .scale = 1.0f / sqrtf((float)h->d),
                         .mask = h->step->mask ? s->mask : NULL,
                         .inverse = s->inverse};
    vec->product(&scores);
    if (!h->causal) vec->softmax(&soft);
    for (int64_t r = 0; r < rows; r++) {
        float *p = s->p + r * s->tokens_ld;
        int64_t n = seen;
        if (h->causal) {
            s24i_softmax one = soft;
            one.s = p;
            one.rows = 1;
            one.n = n = row + r + 1;
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
                       int64_t rows, int64_t seen)
{
    const s24i_vec *vec = j->m->vec;
    vec->transpose(s->turned, TILE, a, s->tokens_ld, rows, seen);
    const s24i_product product = {.c = s->sum,
                                  .ldc = s->d_ld,
                                  .a = s->turned,
                                  .lda = TILE,
                                  .b = b,
                                  .ldb = s->d_ld,
                                  .m = seen,
                                  .n = j->h->d,
                                  .k = rows};
    vec->product(&product);
    vec->add(total, total, s->sum, seen * s->d_ld);
}

static void tile_back(const scratch *s, const job *j, const place *at, int64_t head, int64_t row)
{
    const s24i_heads *h = j->h;
    const s24i_vec *vec = j->m->vec;
    const int64_t d = h->d, rows = s24i_min(TILE, at->tokens - row), token = at->first + row;
    const int64_t seen = h->causal ? row + rows : at->tokens;
    const s24i_product dp = {.c = s->dp,
                             .ldc = s->tokens_ld,
                             .a = s->dout,
                             .lda = s->d_ld,
                             .b = s->values_t,
                             .ldb = s->tokens_ld,
                             .m = rows,
                             .n = seen,
                             .k = d};
    const s24i_product dq = {.c = s->dout,
                             .ldc = s->d_ld,
                             .a = s->dp,
                             .lda = s->tokens_ld,
                             .b = s->keys,
                             .ldb = s->d_ld,
                             .m = rows,
                             .n = d,
                             .k = seen};
    s24i_pad_rows(s->queries, s->d_ld, j->qkv + token * at->ld + head * d, at->ld, rows, d);
    s24i_pad_rows(s->dout, s->d_ld, j->dcontext + token * at->wide + head * d, at->wide, rows, d);
    weights(s, j, row, rows, seen);
    vec->product(&dp);
    if (h->drop) { /* dp is used before P is dropped, and dV after */
        for (int64_t r = 0; r < rows; r++)
            j->m->vec->dropout(s->dp + r * s->tokens_ld, seen, h->drop,
                               (token + r) * h->heads + head);
    }
    for (int64_t r = 0; r < rows; r++)
        j->m->vec->softmax_back(s->dp + r * s->tokens_ld, s->p + r * s->tokens_ld,
                                1.0f / sqrtf((float)d), seen);
    for (int64_t r = 0; h->drop && r < rows; r++)
        j->m->vec->dropout(s->p + r * s->tokens_ld, seen, h->drop, (token + r) * h->heads + head);
    add_turned(s, j, s->dvalues, s->p, s->dout, rows, seen);
    add_turned(s, j, s->dkeys, s->dp, s->queries, rows, seen);
    vec->product(&dq);
    for (int64_t r = 0; r < rows; r++)
        memcpy(j->dqkv + (token + r) * at->ld + head * d, s->dout + r * s->d_ld,
               (size_t)d * sizeof(float));
}

static void head_back(float *memory, const job *j, int64_t text, int64_t kv_head)
{
    const s24i_heads *h = j->h;
    const s24i_train_batch *step = h->step;
    const int64_t d = h->d, group = h->heads / h->kv_heads;
    const place at = {step->offsets[text], step->offsets[text + 1] - step->offsets[text],
                      (h->heads + 2 * h->kv_heads) * d, h->heads * d};
    const int64_t k = (h->heads + kv_head) * d, v = k + h->kv_heads * d;
    const float *rows = j->qkv + at.first * at.ld;
    const scratch s = cut(memory, at.tokens, d);
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

/* Threads take turns: a text's heads cost the same, one text and another do not. */
static void back_turns(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const int64_t items = j->h->step->texts * j->h->kv_heads;
    float *memory = j->m->scratch + thread * j->m->scratch_elems;
    for (int64_t turn = begin; turn < end; turn++)
        for (int64_t i = turn; i < items; i += j->turns)
            head_back(memory, j, i / j->h->kv_heads, i % j->h->kv_heads);
}

void s24i_cpu_attention_back(s24i_machine *m, void *dqkv, const void *dcontext, const void *qkv,
                             const s24i_heads *heads)
{
    job j = {.m = m,
             .h = heads,
             .dqkv = dqkv,
             .qkv = qkv,
             .dcontext = dcontext,
             .turns = s24_ctx_threads(m->ctx)};
    if (m->status != S24_OK) return;
    s24_ctx_parallel_for(m->ctx, j.turns, back_turns, &j);
}

void s24i_cpu_attention(s24i_machine *m, void *context, const void *rows, const s24i_heads *h)
{
    const float *qkv = rows;
    const s24i_train_batch *step = h->step;
    const s24_batch batch = {.texts = step->texts, .offsets = step->offsets, .mask = step->mask};
    const s24i_attention attention = {.vec = m->vec,
                                      .dtype = S24_F32,
                                      .q = qkv,
                                      .k = qkv + h->heads * h->d,
                                      .v = qkv + (h->heads + h->kv_heads) * h->d,
                                      .ld = (h->heads + 2 * h->kv_heads) * h->d,
                                      .context = context,
                                      .batch = &batch,
                                      .tiles = step->tiles,
                                      .heads = h->heads,
                                      .d = h->d,
                                      .kv_heads = h->kv_heads,
                                      .causal = h->causal,
                                      .window = h->window,
                                      .drop = h->drop,
                                      .scratch = m->scratch,
                                      .scratch_elems = m->scratch_elems};
    if (m->status == S24_OK) s24i_attention_run(m->ctx, &attention);
}

/* ---- rotary positions ------------------------------------------------------------------------ */

/* Element i of a head turns with element i + d/2, as transformers pairs them. */
static void rotate_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const s24i_heads *h = j->h;
    const int64_t half = h->d / 2, ld = (h->heads + 2 * h->kv_heads) * h->d;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const float *cosine = h->angles + h->step->positions[t] * h->d, *sine = cosine + half;
        for (int64_t head = 0; head < h->heads + h->kv_heads; head++) {
            float *a = j->dqkv + t * ld + head * h->d, *b = a + half;
            if (j->back) /* the other half turns first */
                s24i_rotate(b, a, cosine, sine, half);
            else
                s24i_rotate(a, b, cosine, sine, half);
        }
    }
}

void s24i_cpu_rotate(s24i_machine *m, void *qkv, const s24i_heads *heads, int back)
{
    job j = {.m = m, .h = heads, .dqkv = qkv, .back = back};
    if (m->status == S24_OK) s24_ctx_parallel_for(m->ctx, heads->step->tokens, rotate_range, &j);
}
