// SPDX-License-Identifier: Apache-2.0
/*
 * What the rows on AMX's tiles share. The tile unit knows no 2:4, so weights stay packed and are
 * expanded while it multiplies, by the vector units, which are idle then:
 *
 *   tokens, the first operand     16 tokens x 64 bytes along k, packed once for a block of tokens
 *   weights, the second           16 outputs in the lanes, one group of four a row (8 bits) or half
 *                                 of one (16 bits): a stored vector of kept values, byte-shuffled
 *   sums                          32 tokens x 32 outputs in four tiles: a load for each product
 *
 * A pair of row blocks meets all groups of 32 tokens of a block. The first group's steps along k
 * expand LEAD steps ahead of themselves into scratch that stays near, later groups read it, and the
 * last one's steps begin the next pair's. What ends a square (bias, activation, y) is done between
 * the steps of the next one, some tokens each, and the lines of y are asked for a square before.
 *
 * The row's file defines TARGET, TARGET_INLINE and
 *
 *   TILE_COLUMNS            columns of k in 64 bytes
 *   ROW_HEAD, TILE_BYTES    stored bytes of a row block: before its tiles, and of each
 *   DOT                     the product, of tiles.h
 *
 * includes this one, and defines the functions declared below.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_AMX_H
#define S24_KERNEL_CPU_X86_LINEAR_AMX_H

#include "base/tiles.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

enum {
    TILE = 1024,             /* bytes of a tile: 16 rows of 64 */
    STEP = 2 * TILE,         /* of tokens, and of weights, in a step along k */
    PAGE = 4096,             /* what work is aligned to */
    GROUP = 32,              /* tokens of a step; */
    PAIR = 2 * ROWS,         /* and outputs */
    SQUARE = GROUP * PAIR,   /* sums of a group and a pair */
    LEAD = 2,                /* steps between expansion and use */
    RING = 32,               /* steps of expanded weights that several groups share, */
    SLICE = RING - LEAD,     /* of which so many are in use; */
    SHORT_RING = 4,          /* and of one group, which stay in a part of L1 */
    TOKENS_NEAR = 512 << 10, /* bytes of tokens that meet a pair: a part of L2 */
    OWN_TOKENS = 96          /* tokens for each thread from which it has its own */
};

/* ---- what a row defines ---------------------------------------------------------------------- */

/* A quarter of a tile's weights: rows 4·part to 4·part + 3. */
TARGET_INLINE void expand(uint8_t *to, const uint8_t *from, const int part);

/* 16 tokens at most from m on, as tiles STEP bytes apart, and 16 scales where x is quantised; 0 if
   the other row has to multiply them. */
TARGET static int pack_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens, uint8_t *to,
                              float *scales);

/* The scales of row block b, ones where there are none. */
TARGET_INLINE __m512 scales_at(const s24i_linear_job *job, int64_t b);

/* What a token's 16 sums are as floats. */
TARGET_INLINE __m512 as_floats(const float *sums, __m512 w_scales, float x_scale);

/* ---- sizes ----------------------------------------------------------------------------------- */

static inline int64_t k_tiles(int64_t k)
{
    return (k + TILE_COLUMNS - 1) / TILE_COLUMNS;
}

static inline int64_t row_block_bytes(int64_t k)
{
    return ROW_HEAD + k_tiles(k) * TILE_BYTES;
}

/* Bytes of a packed group, whole pages: its tiles, then the tokens' scales. */
static inline int64_t group_bytes(int64_t k)
{
    return (k_tiles(k) * STEP + GROUP * (int64_t)sizeof(float) + PAGE - 1) / PAGE * PAGE;
}

static inline float *scales_of(const uint8_t *group, int64_t k)
{
    return (float *)(uintptr_t)(group + k_tiles(k) * STEP);
}

/* Groups of tokens that a thread packs at a time when it has its own: half of an L2 at most. */
static inline int64_t block_groups(int64_t k)
{
    const int64_t groups = TOKENS_NEAR / group_bytes(k);
    return groups < 2 ? 2 : groups;
}

/* The memory of a thread besides tokens: expanded weights, two squares, and the sums of `groups`
   groups between two slices. */
static inline int64_t worker_bytes(int64_t k, int64_t groups)
{
    return RING * STEP + (2 + (k_tiles(k) > SLICE ? groups : 0)) * SQUARE * 4;
}

/* ---- a thread's work ------------------------------------------------------------------------- */

/* A square of sums and the epilogues of its two row blocks; tokens from `next` on are still to be
   done. */
typedef struct ending {
    epilogue left, right;
    __m512 w_scales[2];
    const float *sums, *x_scales;
    int64_t m, n, next, tokens;
} ending;

typedef struct worker {
    ending end;
    const s24i_linear_job *job;
    const uint8_t *x;  /* packed groups */
    int64_t m, tokens; /* which these are */
    uint8_t *tiles;    /* expanded weights: a ring of so many steps; */
    int64_t ring, at;  /* where in it the slice's first step is */
    float *squares[2];
    float *partial; /* a square for each group */
    /* The weights that are expanded next: a pair of row blocks at a k tile. */
    const uint8_t *w[2];
    int64_t block, last, tile; /* the pair's first row block, the end, the k tile */
} worker;

static inline void aim(worker *w)
{
    const int64_t bytes = row_block_bytes(w->job->k), last = rows16_blocks(w->job->n) - 1;
    const uint8_t *first = (const uint8_t *)w->job->w + ROW_HEAD;
    w->w[0] = first + w->block * bytes;
    w->w[1] = first + (w->block < last ? w->block + 1 : last) * bytes;
    w->tile = 0;
}

/* The weights of a step are expanded: on to the next. */
static inline void move_on(worker *w)
{
    w->w[0] += TILE_BYTES, w->w[1] += TILE_BYTES;
    if (++w->tile < k_tiles(w->job->k)) return;
    w->block += 2;
    if (w->block < w->last) aim(w);
}

/* ---- the end of a square --------------------------------------------------------------------- */

/* y of both row blocks at once, where all outputs are there and nothing is added; 0, with nothing
   done, where one is subnormal: the conversion makes those zeros. */
TARGET_INLINE int store_pair(const epilogue *left, int64_t t, __m512 v, __m512 u)
{
    if (_mm512_fpclass_ps_mask(v, 0x20) | _mm512_fpclass_ps_mask(u, 0x20)) return 0;
    _mm512_storeu_si512(left->y + t * left->y_step, (__m512i)_mm512_cvtne2ps_pbh(u, v));
    return 1;
}

TARGET_INLINE void end_rows_as(const ending *end, s24_dtype dtype, int64_t count)
{
    const epilogue left = end->left, right = end->right;
    const __m512 first = end->w_scales[0], second = end->w_scales[1];
    const int paired = dtype == S24_BF16 && !left.gate && !left.residual && right.mask == 0xffff;
    const float *sums = end->sums + end->next * PAIR;
    for (int64_t t = end->next; t < end->next + count; t++, sums += PAIR) {
        __m512 v = as_floats(sums, first, end->x_scales[t]);
        __m512 u = as_floats(sums + ROWS, second, end->x_scales[t]);
        v = _mm512_fmadd_ps(v, left.alpha, left.bias);
        u = _mm512_fmadd_ps(u, left.alpha, right.bias);
        if (left.activation != S24_ACTIVATION_NONE) {
            v = activate(v, left.activation);
            u = activate(u, left.activation);
        }
        if (paired && store_pair(&left, t, v, u)) continue;
        finish_token(&left, t, dtype, v);
        if (right.mask) finish_token(&right, t, dtype, u);
    }
}

/* Outputs that do not lie together. */
TARGET static void end_rows_apart(const s24i_linear_job *job, const ending *end, int64_t count)
{
    for (int64_t t = end->next; t < end->next + count; t++)
        for (int64_t i = 0, n = end->n; i < 2 && n < job->n; i++, n += ROWS) {
            const float *sums = end->sums + t * PAIR + i * ROWS;
            finish(job, end->m + t, n, 1, lane_mask(job->n - n),
                   as_floats(sums, end->w_scales[i], end->x_scales[t]),
                   i ? end->right.bias : end->left.bias);
        }
}

TARGET static void end_rows(worker *w, int64_t count)
{
    ending *end = &w->end;
    const int64_t left = end->tokens - end->next;
    if (count > left) count = left;
    if (count <= 0) return;
    if (!outputs_together(w->job))
        end_rows_apart(w->job, end, count);
    else if (w->job->y_dtype == S24_F32)
        end_rows_as(end, S24_F32, count);
    else
        end_rows_as(end, S24_BF16, count);
    end->next += count;
}

TARGET static void begin_end(worker *w, int64_t g, int64_t b, const float *sums)
{
    ending *end = &w->end;
    const s24_dtype dtype = w->job->y_dtype;
    const int64_t left = w->tokens - g * GROUP;
    end->m = w->m + g * GROUP, end->n = b * ROWS;
    end->left = epilogue_of(w->job, end->m, end->n, dtype);
    end->right = epilogue_of(w->job, end->m, end->n + ROWS, dtype);
    end->sums = sums;
    end->w_scales[0] = scales_at(w->job, b);
    end->w_scales[1] = scales_at(w->job, b + 1 < rows16_blocks(w->job->n) ? b + 1 : b);
    end->x_scales = scales_of(w->x + g * group_bytes(w->job->k), w->job->k);
    end->next = 0, end->tokens = left < GROUP ? left : GROUP;
}

/* ---- a square -------------------------------------------------------------------------------- */

/* A slice of `count` steps of one group. The slice's first group expands what is `lead` steps on,
   its last one the next slice's first steps. */
typedef struct visit {
    const uint8_t *x;
    int64_t count, lead;
    int first, last;
    const float *from; /* sums so far, or NULL */
    float *to;
    char *y; /* of the square, to be asked for */
    int64_t y_step;
    int y_bytes;
} visit;

static inline uint8_t *ring_at(const worker *w, int64_t t)
{
    return w->tiles + (w->at + t) % w->ring * STEP;
}

/* 32 (TWO) or 16 tokens by 32 outputs; with MAKE the next weights are expanded to `made`. */
TARGET_INLINE void step(worker *w, const uint8_t *x, const uint8_t *tiles, uint8_t *made,
                        const int TWO, const int MAKE)
{
    const uint8_t *const first = w->w[0], *const second = w->w[1];
    TILE_LOAD(4, tiles, 64);
    TILE_LOAD(6, x, 64);
    DOT(0, 6, 4);
    if (MAKE) expand(made, first, 0);
    if (MAKE) expand(made, first, 1);
    TILE_LOAD(5, tiles + TILE, 64);
    DOT(1, 6, 5);
    if (MAKE) expand(made, first, 2);
    if (MAKE) expand(made, first, 3);
    if (TWO) TILE_LOAD(7, x + TILE, 64);
    if (TWO) DOT(2, 7, 4);
    if (MAKE) expand(made + TILE, second, 0);
    if (MAKE) expand(made + TILE, second, 1);
    if (TWO) DOT(3, 7, 5);
    if (MAKE) expand(made + TILE, second, 2);
    if (MAKE) expand(made + TILE, second, 3);
    if (MAKE) move_on(w);
}

/* Steps [from, to) of a visit, each with `rows` tokens of the square before and `asked` lines. */
TARGET_INLINE void steps(worker *w, const visit *v, int64_t from, int64_t to, int64_t rows,
                         const int TWO, const int MAKE)
{
    char *y = v->y + from * rows * v->y_step;
    for (int64_t t = from; t < to; t++) {
        step(w, v->x + t * STEP, ring_at(w, t), ring_at(w, t + v->lead), TWO, MAKE);
        end_rows(w, rows);
        for (int64_t i = 0; i < rows; i++, y += v->y_step) {
            PREFETCH_TO_WRITE(y);
            PREFETCH_TO_WRITE(y + v->y_bytes);
        }
    }
}

TARGET_INLINE void begin_sums(const float *from)
{
    if (!from) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
        return;
    }
    TILE_LOAD(0, from, 4 * PAIR);
    TILE_LOAD(1, from + ROWS, 4 * PAIR);
    TILE_LOAD(2, from + 16 * PAIR, 4 * PAIR);
    TILE_LOAD(3, from + 16 * PAIR + ROWS, 4 * PAIR);
}

TARGET_INLINE void multiply_as(worker *w, const visit *v, const int TWO)
{
    const int64_t turn = v->count - v->lead, rows = (GROUP + v->count - 1) / v->count;
    begin_sums(v->from);
    if (v->first)
        steps(w, v, 0, turn, rows, TWO, 1);
    else
        steps(w, v, 0, turn, rows, TWO, 0);
    if (v->last)
        steps(w, v, turn, v->count, rows, TWO, 1);
    else
        steps(w, v, turn, v->count, rows, TWO, 0);
    TILE_STORE(0, v->to, 4 * PAIR);
    TILE_STORE(1, v->to + ROWS, 4 * PAIR);
    if (TWO) TILE_STORE(2, v->to + 16 * PAIR, 4 * PAIR);
    if (TWO) TILE_STORE(3, v->to + 16 * PAIR + ROWS, 4 * PAIR);
}

TARGET static void multiply(worker *w, const visit *v, int two)
{
    if (two)
        multiply_as(w, v, 1);
    else
        multiply_as(w, v, 0);
}

/* ---- row blocks [b0, b1) of a worker's tokens ------------------------------------------------ */

/* The steps along k in slices as even as they come. */
typedef struct slices {
    int64_t count, steps, lead;
} slices;

static slices slices_of(const worker *w)
{
    const int64_t tiles = k_tiles(w->job->k);
    const int64_t count = w->tokens <= GROUP ? 1 : (tiles + SLICE - 1) / SLICE;
    const int64_t steps = (tiles + count - 1) / count, last = tiles - (count - 1) * steps;
    return (slices){count, steps, last >= LEAD ? LEAD : 0};
}

TARGET static void expand_steps(worker *w, int64_t count)
{
    for (int64_t t = 0; t < count; t++) {
        uint8_t *to = ring_at(w, t);
        UNROLL for (int i = 0; i < 8; i++)
        {
            expand(to + i / 4 * TILE, w->w[i / 4], i % 4);
        }
        move_on(w);
    }
}

/* Where y of a group and a row block is, or its sums where there is nothing to ask for. */
static inline void aim_at_y(visit *v, const worker *w, int64_t m, int64_t b)
{
    const s24i_linear_job *job = w->job;
    v->y = (char *)v->to, v->y_step = 0, v->y_bytes = 0;
    if (job->y_stride_n != 1 || m + GROUP > job->m) return;
    v->y = element_to(job->y, job->y_dtype, m * job->y_stride_m + b * ROWS);
    v->y_step = job->y_stride_m * (job->y_dtype == S24_F32 ? 4 : 2);
    v->y_bytes = job->y_dtype == S24_F32 ? 64 : 0;
}

TARGET static void run_slice(worker *w, slices all, int64_t s, int64_t b, int more)
{
    const int64_t k = w->job->k, done = s * all.steps, groups = (w->tokens + GROUP - 1) / GROUP;
    const int final = s + 1 == all.count;
    visit v = {.count = final ? k_tiles(k) - done : all.steps, .lead = all.lead};
    if (!v.lead) expand_steps(w, v.count); /* too few steps to be ahead */
    for (int64_t g = 0; g < groups; g++) {
        float *const partial = w->partial + g * SQUARE, *const square = w->squares[0];
        v.x = w->x + g * group_bytes(k) + done * STEP;
        v.first = v.lead && g == 0, v.last = v.lead && more && g + 1 == groups;
        v.from = s ? partial : NULL, v.to = final ? square : partial;
        aim_at_y(&v, w, w->m + g * GROUP, b);
        multiply(w, &v, w->tokens - g * GROUP > GROUP / 2);
        if (!final) continue;
        begin_end(w, g, b, square);
        w->squares[0] = w->squares[1], w->squares[1] = square;
    }
    w->at += v.count;
}

TARGET static void run_pairs(worker *w, int64_t b0, int64_t b1)
{
    const slices all = slices_of(w);
    if (b0 >= b1) return;
    w->block = b0, w->last = b1;
    w->ring = w->tokens <= GROUP ? SHORT_RING : RING, w->at = 0;
    w->end.next = w->end.tokens = 0;
    aim(w);
    expand_steps(w, all.lead);
    for (int64_t b = b0; b < b1; b += 2)
        for (int64_t s = 0; s < all.count; s++)
            run_slice(w, all, s, b, s + 1 < all.count || b + 2 < b1);
    end_rows(w, GROUP);
}

#endif
