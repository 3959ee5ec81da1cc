// SPDX-License-Identifier: Apache-2.0
/*
 * A text and head at a time; heads go round the threads. Of the rows of distances only those count
 * that two tokens of the text can have:
 *
 *     S[i,j] = q_i·k_j + A[i, row(i − j)] + B[j, row(i − j)]
 *     A = queries · keys of distancesᵀ, B = keys · queries of distancesᵀ
 *
 * B is made once for all keys, A for each tile of queries.
 */
#include "run/cpu/attention_apart.h"

#include <string.h>

#include "io/file/io.h"

enum { TILE = 24 }; /* queries at a time, a multiple of the products' rows */

/* A thread's scratch. */
typedef struct parts {
    float *keys;    /* [d][tokens] */
    float *values;  /* [tokens][d] */
    float *of_keys; /* [tokens][rows]: B */
    float *scores;  /* [TILE][tokens] */
    float *of_tile; /* [TILE][rows]: A */
    float *mask;    /* [tokens] */
    float *out;     /* [TILE][d] */
    float *inverse; /* [TILE] */
    int64_t tokens, tokens_ld, d_ld, rows_ld, elems;
    int64_t first, rows; /* of the table */
} parts;

static parts cut(float *memory, const s24i_apart *apart, int64_t tokens, int64_t d)
{
    parts p = {.tokens = tokens};
    p.first = s24i_apart_row(apart, 1 - tokens) / S24I_VEC_PAD * S24I_VEC_PAD;
    p.rows = s24i_apart_row(apart, tokens - 1) + 1 - p.first;
    p.tokens_ld = s24i_round_up(tokens, S24I_VEC_PAD);
    p.d_ld = s24i_round_up(d, S24I_VEC_PAD);
    p.rows_ld = s24i_round_up(p.rows, S24I_VEC_PAD);
    float **const arrays[] = {&p.keys,    &p.values, &p.of_keys, &p.scores,
                              &p.of_tile, &p.mask,   &p.out,     &p.inverse};
    const int64_t counts[] = {
        d * p.tokens_ld,  tokens * p.d_ld, tokens * p.rows_ld, TILE * p.tokens_ld,
        TILE * p.rows_ld, p.tokens_ld,     TILE * p.d_ld,      TILE};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        *arrays[i] = memory ? memory + p.elems : NULL;
        p.elems += s24i_round_up(counts[i], S24I_VEC_PAD);
    }
    return p;
}

int64_t s24i_attention_apart_scratch(const s24i_apart *apart, int64_t longest, int64_t d)
{
    return cut(NULL, apart, longest, d).elems;
}

/* c[m, rows] = the head's vectors a[m, d] times the distances' rows that count. */
static void compare(const s24i_attention_apart *a, const parts *p, const float *of_head, float *c,
                    const float *vectors, int64_t m)
{
    const s24i_attention *job = a->job;
    const s24i_product product = {.c = c,
                                  .ldc = p->rows_ld,
                                  .a = vectors,
                                  .lda = job->ld,
                                  .b = of_head + p->first,
                                  .ldb = s24i_apart_ld(a->apart),
                                  .m = m,
                                  .n = p->rows,
                                  .k = job->d};
    job->vec->product(&product);
}

/* Where a head's distances begin in a block's. */
static const float *of_head(const s24i_attention_apart *a, const float *of_block, int64_t head)
{
    return of_block + head * a->job->d * s24i_apart_ld(a->apart);
}

static void pack(const s24i_attention_apart *a, const parts *p, int64_t text, int64_t head)
{
    const s24i_attention *job = a->job;
    const int64_t at = s24i_attention_keys(job, text, head), ld = s24i_attention_kv_ld(job);
    const float *k = (const float *)job->k + at, *v = (const float *)job->v + at;
    job->vec->transpose(p->keys, p->tokens_ld, k, ld, p->tokens, job->d);
    s24i_pad_rows(p->values, p->d_ld, v, ld, p->tokens, job->d);
    if (job->batch->mask)
        s24i_attention_mask(p->mask, p->tokens_ld, job->batch->mask + job->batch->offsets[text],
                            p->tokens);
    if (a->queries) compare(a, p, of_head(a, a->queries, head), p->of_keys, k, p->tokens);
}

/* What the scores of a tile's row grow by: the query is the text's token i. */
static void grow(const s24i_attention_apart *a, const parts *p, int64_t row, int64_t i)
{
    const int32_t *rows = a->rows + i; /* rows[−j]: of i − j */
    float *s = p->scores + row * p->tokens_ld;
    const float *of_query = p->of_tile + row * p->rows_ld - p->first;
    const float *of_key = p->of_keys - p->first;
    for (int64_t j = 0; a->keys && j < p->tokens; j++)
        s[j] += of_query[rows[-j]];
    for (int64_t j = 0; a->queries && j < p->tokens; j++)
        s[j] += of_key[j * p->rows_ld + rows[-j]];
}

static void run_tile(const s24i_attention_apart *a, const parts *p, int64_t text, int64_t head,
                     int64_t first)
{
    const s24i_attention *job = a->job;
    const int64_t rows = s24i_min(TILE, p->tokens - first);
    const int64_t token = job->batch->offsets[text] + first;
    const float *q = (const float *)job->q + s24i_attention_query(job, token, head);
    float *context = (float *)job->context + (token * job->heads + head) * job->d;
    const s24i_product scores = {.c = p->scores,
                                 .ldc = p->tokens_ld,
                                 .a = q,
                                 .lda = job->ld,
                                 .b = p->keys,
                                 .ldb = p->tokens_ld,
                                 .m = rows,
                                 .n = p->tokens,
                                 .k = job->d};
    const s24i_weighed weighed = {.scores = p->scores,
                                  .values = p->values,
                                  .out = p->out,
                                  .inverse = p->inverse,
                                  .mask = job->batch->mask ? p->mask : NULL,
                                  .scale = job->scale,
                                  .rows = rows,
                                  .tokens = p->tokens,
                                  .tokens_ld = p->tokens_ld,
                                  .d = job->d,
                                  .d_ld = p->d_ld};
    job->vec->product(&scores);
    if (a->keys) compare(a, p, of_head(a, a->keys, head), p->of_tile, q, rows);
    for (int64_t r = 0; r < rows; r++)
        grow(a, p, r, first + r);
    s24i_attention_weigh(job->vec, &weighed);
    for (int64_t r = 0; r < rows; r++)
        memcpy(context + r * job->heads * job->d, p->out + r * p->d_ld,
               (size_t)job->d * sizeof *context);
}

typedef struct turns {
    const s24i_attention_apart *of;
    int64_t count;
} turns;

static void run_turns(void *arg, int64_t begin, int64_t end, int thread)
{
    const turns *t = arg;
    const s24i_attention_apart *a = t->of;
    const s24i_attention *job = a->job;
    const int64_t items = job->batch->texts * job->heads;
    float *memory = job->scratch + thread * job->scratch_elems;
    for (int64_t turn = begin; turn < end; turn++)
        for (int64_t item = turn; item < items; item += t->count) {
            const int64_t text = item / job->heads, head = item % job->heads;
            const int64_t tokens = job->batch->offsets[text + 1] - job->batch->offsets[text];
            const parts p = cut(memory, a->apart, tokens, job->d);
            pack(a, &p, text, head);
            for (int64_t first = 0; first < tokens; first += TILE)
                run_tile(a, &p, text, head, first);
        }
}

void s24i_attention_apart_run(s24_ctx *ctx, const s24i_attention_apart *job)
{
    turns t = {job, s24i_min(s24_ctx_threads(ctx), job->job->batch->texts * job->job->heads)};
    s24_ctx_parallel_for(ctx, t.count, run_turns, &t);
}
