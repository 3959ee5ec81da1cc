// SPDX-License-Identifier: Apache-2.0
/*
 * Attention by content and distance (model/apart.h) in training, a text and head at a time, by
 * tiles of queries:
 *
 *     S[i,j] = q_i·k_j + A[i, row(i − j)] + B[j, row(i − j)]
 *     A = queries · keys of distancesᵀ, B = keys · queries of distancesᵀ
 *
 * Back, with dS as attention has it, dA and dB are the sums of dS by row, and are left as products
 * are. What distances' keys and queries get is summed up by turn, for texts share them.
 */
#include <string.h>

#include "io/file/io.h"
#include "model/apart.h"
#include "run/cpu/attention.h"
#include "train/cpu_room.h"

enum { TILE = 96 };

/* A thread's scratch; rows end in room for the vectors. */
typedef struct parts {
    float *keys_t, *values_t;               /* [d][tokens] */
    float *keys, *values, *dkeys, *dvalues; /* [tokens][d] */
    float *row_keys_t, *row_queries_t;      /* [d][rows]: distances' */
    float *row_keys, *row_queries;          /* [rows][d] */
    float *drow_keys, *drow_queries;        /* likewise */
    float *of_keys, *dof_keys;              /* [tokens][rows]: B */
    float *queries, *dout;                  /* [TILE][d] */
    float *p, *dp;                          /* [TILE][tokens] */
    float *of_tile, *dof_tile;              /* [TILE][rows]: A */
    float *sum;                             /* [tokens or rows][d] */
    float *turned;                          /* [tokens or rows][tokens or TILE] */
    float *mask, *inverse;                  /* [tokens], [TILE] */
    int64_t tokens, first, rows;            /* of the table those that count, from `first` on */
    int64_t tokens_ld, rows_ld, d_ld, turned_ld, elems;
} parts;

typedef struct job {
    s24i_machine *m;
    const s24i_heads *h;
    const float *qkv, *dcontext;
    float *dqkv, *context;
    int64_t turns;
} job;

static parts cut(float *memory, const s24i_apart *apart, int64_t tokens, int64_t d)
{
    parts p = {.tokens = tokens, .first = s24i_apart_row(apart, 1 - tokens)};
    p.rows = s24i_apart_row(apart, tokens - 1) + 1 - p.first;
    p.tokens_ld = s24i_round_up(tokens, S24I_VEC_PAD);
    p.rows_ld = s24i_round_up(p.rows, S24I_VEC_PAD);
    p.d_ld = s24i_round_up(d, S24I_VEC_PAD);
    p.turned_ld = s24i_round_up(s24i_max(tokens, TILE), S24I_VEC_PAD);
    const int64_t most = s24i_max(tokens, p.rows);
    const struct {
        float **at;
        int64_t count;
    } arrays[] = {{&p.keys_t, d * p.tokens_ld},     {&p.values_t, d * p.tokens_ld},
                  {&p.keys, tokens * p.d_ld},       {&p.values, tokens * p.d_ld},
                  {&p.dkeys, tokens * p.d_ld},      {&p.dvalues, tokens * p.d_ld},
                  {&p.row_keys_t, d * p.rows_ld},   {&p.row_queries_t, d * p.rows_ld},
                  {&p.row_keys, p.rows * p.d_ld},   {&p.row_queries, p.rows * p.d_ld},
                  {&p.drow_keys, p.rows * p.d_ld},  {&p.drow_queries, p.rows * p.d_ld},
                  {&p.of_keys, tokens * p.rows_ld}, {&p.dof_keys, tokens * p.rows_ld},
                  {&p.queries, TILE * p.d_ld},      {&p.dout, TILE * p.d_ld},
                  {&p.p, TILE * p.tokens_ld},       {&p.dp, TILE * p.tokens_ld},
                  {&p.of_tile, TILE * p.rows_ld},   {&p.dof_tile, TILE * p.rows_ld},
                  {&p.sum, most * p.d_ld},          {&p.turned, most * p.turned_ld},
                  {&p.mask, p.tokens_ld},           {&p.inverse, TILE}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i].at = memory ? memory + p.elems : NULL;
        p.elems += s24i_round_up(arrays[i].count, S24I_VEC_PAD);
    }
    return p;
}

int64_t s24i_cpu_apart_scratch(const s24i_apart *apart, int64_t longest, int64_t d)
{
    return cut(NULL, apart, longest, d).elems;
}

/* Where a text's head stands. */
typedef struct place {
    int64_t text, head, first, tokens; /* first: token of the batch */
    int64_t ld, wide;                  /* rows of qkv, of the context */
} place;

static place place_of(const s24i_heads *h, int64_t item)
{
    const int64_t text = item / h->heads, first = h->step->offsets[text];
    return (place){text,
                   item % h->heads,
                   first,
                   h->step->offsets[text + 1] - first,
                   3 * h->heads * h->d,
                   h->heads * h->d};
}

/* c[m, n] = a[m, k] · b[k, n]. */
static void multiply(const job *j, float *c, int64_t ldc, s24i_operand a, s24i_operand b,
                     const int64_t mnk[3])
{
    const s24i_product product = {.c = c,
                                  .ldc = ldc,
                                  .a = a.at,
                                  .lda = a.ld,
                                  .b = b.at,
                                  .ldb = b.ld,
                                  .m = mnk[0],
                                  .n = mnk[1],
                                  .k = mnk[2]};
    j->m->vec->product(&product);
}

static void pack(const parts *p, const job *j, const place *at)
{
    const s24i_heads *h = j->h;
    const s24i_vec *vec = j->m->vec;
    const int64_t d = h->d, n = at->tokens, head = at->head * d;
    const float *k = j->qkv + at->first * at->ld + at->wide + head, *v = k + at->wide;
    const float *row_q = h->apart_qkv + p->first * at->ld + head, *row_k = row_q + at->wide;
    vec->transpose(p->keys_t, p->tokens_ld, k, at->ld, n, d);
    s24i_pad_rows(p->keys, p->d_ld, k, at->ld, n, d);
    s24i_pad_rows(p->values, p->d_ld, v, at->ld, n, d);
    vec->transpose(p->row_keys_t, p->rows_ld, row_k, at->ld, p->rows, d);
    vec->transpose(p->row_queries_t, p->rows_ld, row_q, at->ld, p->rows, d);
    if (h->step->mask) s24i_attention_mask(p->mask, p->tokens_ld, h->step->mask + at->first, n);
    if (h->apart->of_keys)
        multiply(j, p->of_keys, p->rows_ld, (s24i_operand){p->keys, p->d_ld},
                 (s24i_operand){p->row_queries_t, p->rows_ld}, (int64_t[]){n, p->rows, d});
}

/* The weights of a tile's queries, before any is dropped. */
static void weigh(const parts *p, const job *j, const place *at, int64_t row, int64_t rows)
{
    const s24i_heads *h = j->h;
    const s24i_vec *vec = j->m->vec;
    const float *q = j->qkv + (at->first + row) * at->ld + at->head * h->d;
    const s24i_softmax soft = {.s = p->p,
                               .ld = p->tokens_ld,
                               .rows = rows,
                               .n = at->tokens,
                               .scale = h->scale,
                               .mask = h->step->mask ? p->mask : NULL,
                               .inverse = p->inverse};
    s24i_pad_rows(p->queries, p->d_ld, q, at->ld, rows, h->d);
    multiply(j, p->p, p->tokens_ld, (s24i_operand){p->queries, p->d_ld},
             (s24i_operand){p->keys_t, p->tokens_ld}, (int64_t[]){rows, at->tokens, h->d});
    if (h->apart->of_queries)
        multiply(j, p->of_tile, p->rows_ld, (s24i_operand){p->queries, p->d_ld},
                 (s24i_operand){p->row_keys_t, p->rows_ld}, (int64_t[]){rows, p->rows, h->d});
    for (int64_t r = 0; r < rows; r++) {
        const int32_t *by = h->apart_rows + row + r; /* by[−k]: of the query's distance to key k */
        const float *a = p->of_tile + r * p->rows_ld - p->first, *b = p->of_keys - p->first;
        float *s = p->p + r * p->tokens_ld;
        for (int64_t k = 0; h->apart->of_queries && k < at->tokens; k++)
            s[k] += a[by[-k]];
        for (int64_t k = 0; h->apart->of_keys && k < at->tokens; k++)
            s[k] += b[k * p->rows_ld + by[-k]];
    }
    vec->softmax(&soft);
    for (int64_t r = 0; r < rows; r++) {
        float *s = p->p + r * p->tokens_ld;
        vec->scale(s, p->inverse[r], at->tokens);
        memset(s + at->tokens, 0, (size_t)(p->tokens_ld - at->tokens) * sizeof *s);
    }
}

static void drop_rows(const job *j, const place *at, float *x, int64_t ld, const int64_t span[2])
{
    const s24i_heads *h = j->h;
    for (int64_t r = 0; h->drop && r < span[1]; r++)
        j->m->vec->dropout(x + r * ld, at->tokens, h->drop,
                           (at->first + span[0] + r) * h->heads + at->head);
}

static void tile_forward(const parts *p, const job *j, const place *at, int64_t row)
{
    const int64_t d = j->h->d, rows = s24i_min(TILE, at->tokens - row);
    weigh(p, j, at, row, rows);
    drop_rows(j, at, p->p, p->tokens_ld, (int64_t[]){row, rows});
    multiply(j, p->dout, p->d_ld, (s24i_operand){p->p, p->tokens_ld},
             (s24i_operand){p->values, p->d_ld}, (int64_t[]){rows, d, at->tokens});
    for (int64_t r = 0; r < rows; r++)
        memcpy(j->context + (at->first + row + r) * at->wide + at->head * d, p->dout + r * p->d_ld,
               (size_t)d * sizeof(float));
}

/* total[cols, d] += a[rows, cols]ᵀ · b[rows, d]. */
static void add_turned(const parts *p, const job *j, float *total, s24i_operand a, const float *b,
                       const int64_t sides[2])
{
    j->m->vec->transpose(p->turned, p->turned_ld, a.at, a.ld, sides[0], sides[1]);
    multiply(j, p->sum, p->d_ld, (s24i_operand){p->turned, p->turned_ld},
             (s24i_operand){b, p->d_ld}, (int64_t[]){sides[1], j->h->d, sides[0]});
    j->m->vec->add(total, total, p->sum, sides[1] * p->d_ld);
}

/* total[rows, d] += a[rows, k] · b[k, d]. */
static void add_product(const parts *p, const job *j, float *total, s24i_operand a, const float *b,
                        const int64_t sides[2])
{
    multiply(j, p->sum, p->d_ld, a, (s24i_operand){b, p->d_ld},
             (int64_t[]){sides[0], j->h->d, sides[1]});
    j->m->vec->add(total, total, p->sum, sides[0] * p->d_ld);
}

/* Sums of a tile's dS by rows of distances. */
static void sum_distances(const parts *p, const job *j, const place *at, int64_t row, int64_t rows)
{
    memset(p->dof_tile, 0, (size_t)(rows * p->rows_ld) * sizeof *p->dof_tile);
    for (int64_t r = 0; r < rows; r++) {
        const int32_t *by = j->h->apart_rows + row + r;
        const float *ds = p->dp + r * p->tokens_ld;
        float *a = p->dof_tile + r * p->rows_ld - p->first, *b = p->dof_keys - p->first;
        for (int64_t k = 0; k < at->tokens; k++) {
            a[by[-k]] += ds[k];
            b[k * p->rows_ld + by[-k]] += ds[k];
        }
    }
}

static void tile_back(const parts *p, const job *j, const place *at, int64_t row)
{
    const s24i_heads *h = j->h;
    const int64_t d = h->d, n = at->tokens, rows = s24i_min(TILE, n - row);
    const int64_t span[2] = {row, rows}, token = at->first + row;
    const float *dout = j->dcontext + token * at->wide + at->head * d;
    const s24i_operand ds = {p->dp, p->tokens_ld}, dof = {p->dof_tile, p->rows_ld};
    weigh(p, j, at, row, rows);
    s24i_pad_rows(p->dout, p->d_ld, dout, at->wide, rows, d);
    multiply(j, p->dp, p->tokens_ld, (s24i_operand){p->dout, p->d_ld},
             (s24i_operand){p->values_t, p->tokens_ld}, (int64_t[]){rows, n, d});
    drop_rows(j, at, p->dp, p->tokens_ld, span);
    for (int64_t r = 0; r < rows; r++)
        j->m->vec->softmax_back(p->dp + r * p->tokens_ld, p->p + r * p->tokens_ld, h->scale, n);
    drop_rows(j, at, p->p, p->tokens_ld, span);
    sum_distances(p, j, at, row, rows);
    add_turned(p, j, p->dvalues, (s24i_operand){p->p, p->tokens_ld}, p->dout, (int64_t[]){rows, n});
    add_turned(p, j, p->dkeys, ds, p->queries, (int64_t[]){rows, n});
    if (h->apart->of_queries)
        add_turned(p, j, p->drow_keys, dof, p->queries, (int64_t[]){rows, p->rows});
    multiply(j, p->dout, p->d_ld, ds, (s24i_operand){p->keys, p->d_ld}, (int64_t[]){rows, d, n});
    if (h->apart->of_queries)
        add_product(p, j, p->dout, dof, p->row_keys, (int64_t[]){rows, p->rows});
    for (int64_t r = 0; r < rows; r++)
        memcpy(j->dqkv + (token + r) * at->ld + at->head * d, p->dout + r * p->d_ld,
               (size_t)d * sizeof(float));
}

/* Where a turn has the gradients of distances' queries and keys, [table's rows, 2 · wide]. */
static float *turn_sums(const s24i_heads *h, int64_t turn)
{
    return (float *)h->work + turn * s24i_apart_rows(h->apart) * 2 * h->heads * h->d;
}

static void begin_back(const parts *p, const job *j, const place *at)
{
    const s24i_heads *h = j->h;
    const int64_t d = h->d;
    const float *v = j->qkv + at->first * at->ld + 2 * at->wide + at->head * d;
    const float *row_q = h->apart_qkv + p->first * at->ld + at->head * d;
    const size_t tokens = (size_t)(at->tokens * p->d_ld) * sizeof(float);
    const size_t rows = (size_t)(p->rows * p->d_ld) * sizeof(float);
    j->m->vec->transpose(p->values_t, p->tokens_ld, v, at->ld, at->tokens, d);
    s24i_pad_rows(p->row_queries, p->d_ld, row_q, at->ld, p->rows, d);
    s24i_pad_rows(p->row_keys, p->d_ld, row_q + at->wide, at->ld, p->rows, d);
    memset(p->dkeys, 0, tokens);
    memset(p->dvalues, 0, tokens);
    memset(p->drow_keys, 0, rows);
    memset(p->drow_queries, 0, rows);
    memset(p->dof_keys, 0, (size_t)(at->tokens * p->rows_ld) * sizeof(float));
}

static void end_back(const parts *p, const job *j, const place *at, float *sums)
{
    const s24i_heads *h = j->h;
    const int64_t d = h->d, n = at->tokens;
    const s24i_operand dof = {p->dof_keys, p->rows_ld};
    if (h->apart->of_keys) {
        add_product(p, j, p->dkeys, dof, p->row_queries, (int64_t[]){n, p->rows});
        add_turned(p, j, p->drow_queries, dof, p->keys, (int64_t[]){n, p->rows});
    }
    for (int64_t t = 0; t < n; t++) {
        float *k = j->dqkv + (at->first + t) * at->ld + at->wide + at->head * d;
        memcpy(k, p->dkeys + t * p->d_ld, (size_t)d * sizeof *k);
        memcpy(k + at->wide, p->dvalues + t * p->d_ld, (size_t)d * sizeof *k);
    }
    for (int64_t r = 0; r < p->rows; r++) {
        float *to = sums + (p->first + r) * 2 * at->wide + at->head * d;
        j->m->vec->add(to, to, p->drow_queries + r * p->d_ld, d);
        j->m->vec->add(to + at->wide, to + at->wide, p->drow_keys + r * p->d_ld, d);
    }
}

static void run_item(float *memory, const job *j, int64_t item, float *sums)
{
    const place at = place_of(j->h, item);
    const parts p = cut(memory, j->h->apart, at.tokens, j->h->d);
    pack(&p, j, &at);
    if (j->dqkv) begin_back(&p, j, &at);
    for (int64_t row = 0; row < at.tokens; row += TILE)
        (j->dqkv ? tile_back : tile_forward)(&p, j, &at, row);
    if (j->dqkv) end_back(&p, j, &at, sums);
}

/* Threads take turns, as attention's do. */
static void run_turns(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const int64_t items = j->h->step->texts * j->h->heads;
    float *memory = j->m->scratch + thread * j->m->scratch_elems;
    for (int64_t turn = begin; turn < end; turn++)
        for (int64_t i = turn; i < items; i += j->turns)
            run_item(memory, j, i, j->dqkv ? turn_sums(j->h, turn) : NULL);
}

size_t s24i_cpu_apart_bytes(const s24i_machine *m, const s24i_heads *h)
{
    return (size_t)(m->threads * s24i_apart_rows(h->apart) * 2 * h->heads * h->d) * sizeof(float);
}

void s24i_cpu_attention_apart(s24i_machine *m, void *context, const void *qkv, const s24i_heads *h)
{
    const job j = {
        .m = m, .h = h, .qkv = qkv, .context = context, .turns = s24_ctx_threads(m->ctx)};
    s24i_cpu_run(m, j.turns, run_turns, &j);
}

void s24i_cpu_attention_apart_back(s24i_machine *m, void *dqkv, const void *dcontext,
                                   const void *qkv, const s24i_heads *h)
{
    const int64_t rows = s24i_apart_rows(h->apart), wide = h->heads * h->d;
    const job j = {.m = m,
                   .h = h,
                   .qkv = qkv,
                   .dcontext = dcontext,
                   .dqkv = dqkv,
                   .turns = s24_ctx_threads(m->ctx)};
    if (m->status != S24_OK) return;
    memset(h->work, 0, h->work_bytes);
    s24i_cpu_run(m, j.turns, run_turns, &j);
    memset(h->dapart_qkv, 0, (size_t)(rows * 3 * wide) * sizeof *h->dapart_qkv);
    for (int64_t turn = 0; turn < j.turns; turn++)
        for (int64_t r = 0; r < rows; r++) {
            float *to = h->dapart_qkv + r * 3 * wide;
            m->vec->add(to, to, turn_sums(h, turn) + r * 2 * wide, 2 * wide);
        }
}
