// SPDX-License-Identifier: Apache-2.0
/*
 * A window (or a whole image) and head at a time. Relative positions are part of the product: to a
 * query's elements come its products with the rows of the two tables, one for each line and one for
 * each column of keys, and to a key's the numbers 1 that choose its line's and its column's:
 *
 *     [q, √d·q·H, √d·q·W] · [k, e(line), e(column)] = √d·(logit of the window's query and key)
 */
#include "run/cpu/attention_grid.h"

#include <math.h>
#include <string.h>

#include "run/cpu/attention.h"

enum { TILE = 24 }; /* queries at a time, a multiple of the products' rows */

typedef struct parts {
    float *keys;    /* [d + 2·side][tokens] */
    float *values;  /* [tokens][d] */
    float *queries; /* [TILE][d + 2·side] */
    float *scores;  /* [TILE][tokens] */
    float *out;     /* [TILE][d] */
    float *inverse; /* [TILE] */
    int64_t tokens, k, tokens_ld, d_ld, elems;
} parts;

static parts cut(float *memory, int64_t side, int64_t d)
{
    parts p = {.tokens = side * side, .k = d + 2 * side};
    p.tokens_ld = s24i_round_up(p.tokens, S24I_VEC_PAD);
    p.d_ld = s24i_round_up(d, S24I_VEC_PAD);
    float **const arrays[] = {&p.keys, &p.values, &p.queries, &p.scores, &p.out, &p.inverse};
    const int64_t counts[] = {p.k * p.tokens_ld,  p.tokens * p.d_ld, TILE * p.k,
                              TILE * p.tokens_ld, TILE * p.d_ld,     TILE};
    for (int i = 0; i < 6; i++) {
        *arrays[i] = memory ? memory + p.elems : NULL;
        p.elems += s24i_round_up(counts[i], S24I_VEC_PAD);
    }
    return p;
}

int64_t s24i_attention_grid_scratch(const s24i_shape *shape)
{
    return cut(NULL, s24i_max(shape->grid, shape->window), shape->head_width).elems;
}

/* Where a task's window begins, and which head it is. */
typedef struct place {
    int64_t first, y, x, head; /* first: of the image's tokens */
} place;

/* The window's token i, −1 beyond the grid. */
static int64_t token_at(const s24i_attention_grid *job, const place *at, int64_t i)
{
    const int64_t y = at->y + i / job->side, x = at->x + i % job->side;
    return y < job->grid && x < job->grid ? at->first + y * job->grid + x : -1;
}

static void pack(const s24i_attention_grid *job, const place *at, const parts *p)
{
    const int64_t width = job->heads * job->d;
    memset(p->keys, 0, (size_t)(p->k * p->tokens_ld) * sizeof *p->keys);
    memset(p->values, 0, (size_t)(p->tokens * p->d_ld) * sizeof *p->values);
    for (int64_t i = 0; i < p->tokens; i++) {
        const int64_t token = token_at(job, at, i);
        const float *row =
            (token < 0 ? job->bias : job->qkv + token * 3 * width) + width + at->head * job->d;
        for (int64_t e = 0; e < job->d; e++)
            p->keys[e * p->tokens_ld + i] = row[e];
        p->keys[(job->d + i / job->side) * p->tokens_ld + i] = 1.0f;
        p->keys[(job->d + job->side + i % job->side) * p->tokens_ld + i] = 1.0f;
        memcpy(p->values + i * p->d_ld, row + width, (size_t)job->d * sizeof *row);
    }
}

static void fill_query(const s24i_attention_grid *job, float *to, const float *q, int64_t i)
{
    const int64_t side = job->side, d = job->d;
    const float root = sqrtf((float)d);
    memcpy(to, q, (size_t)d * sizeof *q);
    for (int64_t j = 0; j < side; j++) {
        const float *h = job->rel_h + (i / side - j + side - 1) * d;
        const float *w = job->rel_w + (i % side - j + side - 1) * d;
        to[d + j] = root * job->vec->dot(q, h, d);
        to[d + side + j] = root * job->vec->dot(q, w, d);
    }
}

/* The queries of tokens[0 … count), which stand in p->queries. */
static void run_tile(const s24i_attention_grid *job, const place *at, const parts *p,
                     const int64_t *tokens, int64_t count)
{
    const s24i_product scores = {.c = p->scores,
                                 .ldc = p->tokens_ld,
                                 .a = p->queries,
                                 .lda = p->k,
                                 .b = p->keys,
                                 .ldb = p->tokens_ld,
                                 .m = count,
                                 .n = p->tokens,
                                 .k = p->k};
    const s24i_weighed weighed = {.scores = p->scores,
                                  .values = p->values,
                                  .out = p->out,
                                  .inverse = p->inverse,
                                  .scale = 1.0f / sqrtf((float)job->d),
                                  .rows = count,
                                  .tokens = p->tokens,
                                  .tokens_ld = p->tokens_ld,
                                  .d = job->d,
                                  .d_ld = p->d_ld};
    job->vec->product(&scores);
    s24i_attention_weigh(job->vec, &weighed);
    for (int64_t r = 0; r < count; r++)
        memcpy(job->context + (tokens[r] * job->heads + at->head) * job->d, p->out + r * p->d_ld,
               (size_t)job->d * sizeof *p->out);
}

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_attention_grid *job = arg;
    const int64_t across = (job->grid + job->side - 1) / job->side, windows = across * across;
    const int64_t width = job->heads * job->d;
    const parts p = cut(job->scratch + thread * job->scratch_elems, job->side, job->d);
    for (int64_t task = begin; task < end; task++) {
        const int64_t window = task / job->heads % windows;
        const place at = {task / job->heads / windows * job->grid * job->grid,
                          window / across * job->side, window % across * job->side,
                          task % job->heads};
        int64_t tokens[TILE], count = 0;
        pack(job, &at, &p);
        for (int64_t i = 0; i < p.tokens; i++) {
            const int64_t token = token_at(job, &at, i);
            if (token >= 0) {
                const float *q = job->qkv + token * 3 * width + at.head * job->d;
                fill_query(job, p.queries + count * p.k, q, i);
                tokens[count++] = token;
            }
            if (count < TILE && i + 1 < p.tokens) continue;
            if (count) run_tile(job, &at, &p, tokens, count);
            count = 0;
        }
    }
}

void s24i_attention_grid_run(s24_ctx *ctx, const s24i_attention_grid *job)
{
    const int64_t across = (job->grid + job->side - 1) / job->side;
    s24_ctx_parallel_for(ctx, job->images * across * across * job->heads, run_range,
                         (void *)(uintptr_t)job);
}
