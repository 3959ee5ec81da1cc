// SPDX-License-Identifier: Apache-2.0
/*
 * What the rows on AMX's tiles share. The tile unit knows no 2:4, so weights stay packed and are
 * expanded into tiles next to the products:
 *
 *   tokens, the first operand     16 tokens x 64 bytes along k, packed once for a block of tokens
 *   weights, the second           16 outputs in the lanes, one group of four a row (8 bits) or half
 *                                 of one (16 bits): a stored vector of kept values, byte-shuffled
 *   sums                          four tiles: 64 tokens x 16 outputs, 32 x 32 or 16 x 64
 *
 * A product occupies a port that shuffles need, so expansion adds to its time. Up to 64 tokens
 * expand each weight a few steps ahead into a ring that stays in L1; of more, the first 64 leave
 * what they expand for the others, some row blocks of it at a time, which L2 holds. Tokens stay in
 * L1: k goes in slices whose tokens fit there, and the sums of those row blocks pass through memory
 * between two slices. What ends a square (bias, activation, y) follows the next one, when its sums
 * have been stored; but sums that begin with the bias and are outputs as they are go to y at once.
 *
 * The row's file defines TARGET, TARGET_INLINE and
 *
 *   TILE_COLUMNS            columns of k in 64 bytes
 *   ROW_HEAD, TILE_BYTES    stored bytes of a row block: before its tiles, and of each
 *   DOT                     the product, of tiles.h
 *   SUMS_ARE_FLOATS         1: sums are f32 in the outputs' unit
 *   KEPT                    1: layers of up to KEPT_BYTES of tiles keep them next to what is packed
 *
 * includes this one, and defines the functions declared below.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_AMX_H
#define S24_KERNEL_CPU_X86_LINEAR_AMX_H

#include "kernel/cpu/x86/linear_amx_end.h"

/* ---- a thread's work ------------------------------------------------------------------------- */

typedef struct worker {
    square open; /* the one whose end is still to be done, if it has tokens */
    const s24i_linear_job *job;
    const uint8_t *x;         /* packed groups */
    int64_t m, tokens;        /* which these are */
    int plain;                /* sums are outputs as they are */
    float bias[TILES * ROWS]; /* of row blocks the last of which is not whole */
    uint8_t *kept;            /* the layer's tiles, which nobody writes, or NULL: */
    uint8_t *expanded;        /* a ring, or the chunk's from its first step on */
    float *squares[2], *partial;
} worker;

TARGET static void end_open(worker *w)
{
    const square *of = &w->open;
    for (int64_t i = 0; i < of->blocks; i++)
        end_block(w->job, of, of->b + i, of->sums + i * 256);
    w->open.blocks = 0;
}

/* ---- a square -------------------------------------------------------------------------------- */

/* `count` steps along k of a group of tokens and the row blocks that it meets. */
typedef struct visit {
    const uint8_t *x, *w[TILES];
    uint8_t *tiles; /* row block i's expanded weights of step t: i · next + (t & ring) · step on */
    int64_t next, step, ring;
    int64_t count;
    int ready;                /* they are there already */
    const float *from, *bias; /* sums so far, or NULL; what they begin with, or NULL */
    /* Where they go: rows of a tile and tiles of tokens and of row blocks, so many bytes apart. */
    float *to;
    int64_t to_step, down, across;
    char *y; /* of a whole square whose lines are asked for, `asked` at each step; or NULL */
    int64_t y_step, asked;
} visit;

TARGET_INLINE void expand_all(uint8_t *to, const uint8_t *from)
{
    UNROLL for (int part = 0; part < 4; part++)
    {
        expand(to, from, part);
    }
}

static inline uint8_t *tile_at(const visit *v, int64_t t, int block)
{
    return v->tiles + block * v->next + (t & v->ring) * v->step;
}

/* What happens next to the products of a step: nothing, expansion of what is LEAD steps on, or the
   lines of the next step's tiles are asked for, which lie in L2. */
enum { ALONE, EXPANDS, ASKS };

/* Where that is done, of a visit that meets so many row blocks: the next one is further by them. */
TARGET_INLINE uint8_t *aim(const visit *v, int64_t t, int block, const int blocks, const int WHAT)
{
    if (WHAT != ASKS) return tile_at(v, t + LEAD, block);
    return t + 1 < v->count ? tile_at(v, t + 1, block) : tile_at(v, 0, block + blocks);
}

/* A quarter of a tile. */
TARGET_INLINE void prepare(uint8_t *to, const uint8_t *from, const int part, const int WHAT)
{
    if (WHAT == EXPANDS) expand(to, from, part);
    for (int i = 0; WHAT == ASKS && i < 4; i++)
        _mm_prefetch((const char *)to + 256 * part + 64 * i, _MM_HINT_T0);
}

/* Three or four tiles of tokens and one row block. */
TARGET_INLINE void step_tall(const visit *v, int64_t t, const int T, const int WHAT)
{
    const uint8_t *x = v->x + t * (T * TILE), *w = v->w[0] + (t + LEAD) * TILE_BYTES;
    uint8_t *made = aim(v, t, 0, 1, WHAT);
    TILE_LOAD(4, tile_at(v, t, 0), 64);
    TILE_LOAD(5, x, 64);
    DOT(0, 5, 4);
    prepare(made, w, 0, WHAT);
    TILE_LOAD(6, x + TILE, 64);
    DOT(1, 6, 4);
    prepare(made, w, 1, WHAT);
    TILE_LOAD(7, x + 2 * TILE, 64);
    DOT(2, 7, 4);
    prepare(made, w, 2, WHAT);
    if (T == 4) TILE_LOAD(5, x + 3 * TILE, 64);
    if (T == 4) DOT(3, 5, 4);
    prepare(made, w, 3, WHAT);
}

/* Two tiles of tokens and two row blocks. */
TARGET_INLINE void step_even(const visit *v, int64_t t, const int WHAT)
{
    const uint8_t *x = v->x + t * (2 * TILE);
    const uint8_t *first = v->w[0] + (t + LEAD) * TILE_BYTES;
    const uint8_t *second = v->w[1] + (t + LEAD) * TILE_BYTES;
    uint8_t *made = aim(v, t, 0, 2, WHAT), *other = aim(v, t, 1, 2, WHAT);
    TILE_LOAD(4, tile_at(v, t, 0), 64);
    TILE_LOAD(6, x, 64);
    DOT(0, 6, 4);
    prepare(made, first, 0, WHAT), prepare(made, first, 1, WHAT);
    TILE_LOAD(5, tile_at(v, t, 1), 64);
    DOT(1, 6, 5);
    prepare(made, first, 2, WHAT), prepare(made, first, 3, WHAT);
    TILE_LOAD(7, x + TILE, 64);
    DOT(2, 7, 4);
    prepare(other, second, 0, WHAT), prepare(other, second, 1, WHAT);
    DOT(3, 7, 5);
    prepare(other, second, 2, WHAT), prepare(other, second, 3, WHAT);
}

/* One tile of tokens, the 7th, and four row blocks. */
TARGET_INLINE void step_wide(const visit *v, int64_t t, const int WHAT)
{
    const int64_t at = (t + LEAD) * TILE_BYTES;
    TILE_LOAD(7, v->x + t * TILE, 64);
    TILE_LOAD(4, tile_at(v, t, 0), 64);
    DOT(0, 7, 4);
    if (WHAT == EXPANDS) expand_all(tile_at(v, t + LEAD, 0), v->w[0] + at);
    TILE_LOAD(5, tile_at(v, t, 1), 64);
    DOT(1, 7, 5);
    if (WHAT == EXPANDS) expand_all(tile_at(v, t + LEAD, 1), v->w[1] + at);
    TILE_LOAD(6, tile_at(v, t, 2), 64);
    DOT(2, 7, 6);
    if (WHAT == EXPANDS) expand_all(tile_at(v, t + LEAD, 2), v->w[2] + at);
    TILE_LOAD(4, tile_at(v, t, 3), 64);
    DOT(3, 7, 4);
    if (WHAT == EXPANDS) expand_all(tile_at(v, t + LEAD, 3), v->w[3] + at);
}

TARGET_INLINE void begin_sums(const visit *v, const int B)
{
    if (v->from) {
        TILE_LOAD(0, v->from, 64);
        TILE_LOAD(1, v->from + 256, 64);
        TILE_LOAD(2, v->from + 512, 64);
        TILE_LOAD(3, v->from + 768, 64);
    } else if (v->bias) {
        TILE_LOAD(0, v->bias, 0);
        TILE_LOAD(1, v->bias + 1 % B * ROWS, 0);
        TILE_LOAD(2, v->bias + 2 % B * ROWS, 0);
        TILE_LOAD(3, v->bias + 3 % B * ROWS, 0);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
}

/* Tile i of the sums, of which those of B row blocks follow each other. */
static inline char *sums_to(const visit *v, int i, const int B)
{
    return (char *)v->to + i / B * v->down + i % B * v->across;
}

TARGET_INLINE void ask_for_y(const visit *v, int64_t t)
{
    const int64_t end = (t + 1) * v->asked;
    if (!v->y) return;
    for (int64_t i = t * v->asked; i < end && i < GROUP; i++)
        PREFETCH_TO_WRITE(v->y + i * v->y_step);
}

/* Steps [from, to) of a visit with T tiles of tokens. */
TARGET_INLINE void steps(const visit *of, int64_t from, int64_t to, const int T, const int WHAT)
{
    const visit v = *of; /* which no store can change for all that the compiler knows */
    for (int64_t t = from; t < to; t++) {
        if (T == 1)
            step_wide(&v, t, WHAT);
        else if (T == 2)
            step_even(&v, t, WHAT);
        else
            step_tall(&v, t, T, WHAT);
        ask_for_y(&v, t);
    }
}

TARGET_INLINE void multiply_as(const visit *v, const int T)
{
    const int B = blocks_for(T);
    const int64_t turn = v->ready ? v->count : v->count < LEAD ? 0 : v->count - LEAD;
    for (int64_t t = 0; !v->ready && t < LEAD && t < v->count; t++)
        for (int b = 0; b < blocks_for(T); b++)
            expand_all(tile_at(v, t, b), v->w[b] + t * TILE_BYTES);
    begin_sums(v, B);
    if (v->ready)
        steps(v, 0, turn, T, ASKS);
    else
        steps(v, 0, turn, T, EXPANDS);
    steps(v, turn, v->count, T, ALONE);
    TILE_STORE(0, sums_to(v, 0, B), v->to_step);
    TILE_STORE(1, sums_to(v, 1, B), v->to_step);
    TILE_STORE(2, sums_to(v, 2, B), v->to_step);
    if (T != 3) TILE_STORE(3, sums_to(v, 3, B), v->to_step);
}

TARGET static void multiply(const visit *v, int tiles)
{
    switch (tiles) {
    case 1:
        multiply_as(v, 1);
        break;
    case 2:
        multiply_as(v, 2);
        break;
    case 3:
        multiply_as(v, 3);
        break;
    default:
        multiply_as(v, 4);
    }
}

/* ---- row blocks [b0, b1) of a worker's tokens ------------------------------------------------ */

/* A square of 64 tokens writes as many lines. They are asked for where sums go there at once, and
   where L2 does not hold y: in L1 they would push out tokens before they are written. */
TARGET static void aim_at_y(visit *v, const worker *w, int64_t m, int64_t b)
{
    const s24i_linear_job *job = w->job;
    const int64_t bytes = job->m * job->n * (job->y_dtype == S24_F32 ? 4 : 2);
    v->y = NULL;
    if (m + GROUP > job->m || !outputs_together(job) || (!w->plain && bytes < ASKED_FOR)) return;
    v->y = element_to(job->y, job->y_dtype, m * job->y_stride_m + b * ROWS);
    v->y_step = job->y_stride_m * (job->y_dtype == S24_F32 ? 4 : 2);
    v->asked = (GROUP + v->count - 1) / v->count;
}

/* What sums of row blocks from b on begin with, for all tokens alike. */
static void aim_from(visit *v, worker *w, int64_t b, int blocks)
{
    const s24i_linear_job *job = w->job;
    const int64_t left = job->n - b * ROWS;
    v->bias = NULL;
    if (!begins_with_bias(job)) return;
    v->bias = job->bias + b * ROWS;
    if (left >= blocks * ROWS) return;
    memset(w->bias, 0, sizeof w->bias);
    memcpy(w->bias, v->bias, (size_t)left * sizeof(float));
    v->bias = w->bias;
}

/* The final ones go to y itself if all of its places are there, and are this thread's: 1 then. */
TARGET static int aim_to(visit *v, const worker *w, int64_t m, int64_t b, int64_t b1, int tiles)
{
    const s24i_linear_job *job = w->job;
    const int blocks = blocks_for(tiles);
    const int64_t end = m + (tiles - 1) * TOKENS + token_rows(job);
    const int whole = end <= w->m + w->tokens && b + blocks <= b1 && (b + blocks) * ROWS <= job->n;
    if (!w->plain || !whole) return 0;
    v->to = (float *)job->y + m * job->y_stride_m + b * ROWS;
    v->to_step = job->y_stride_m * 4, v->down = TOKENS * v->to_step, v->across = 64;
    return 1;
}

/* The weights of row blocks from b on, the first of them once more where b1 is before. */
static void aim_at_weights(visit *v, const uint8_t *weights, int64_t bytes, int64_t b, int64_t b1)
{
    for (int i = 0; i < TILES; i++)
        v->w[i] = weights + (i < b1 - b ? b + i : b) * bytes;
}

/* A slice of k: `count` steps from `done` on. */
typedef struct slice {
    int64_t done, count;
} slice;

/* A group's slice with row blocks [b0, b1). */
TARGET static void run_slice(worker *w, int64_t g, int64_t b0, int64_t b1, slice s)
{
    const int64_t k = w->job->k, left = w->tokens - g * GROUP, all = k_tiles(k);
    const int64_t m = w->m + g * GROUP;
    const int tiles = tiles_of(left), blocks = blocks_for(tiles), shared = w->tokens > GROUP;
    const uint8_t *x = w->x + g * group_bytes(k);
    const uint8_t *weights = (const uint8_t *)w->job->w + ROW_HEAD + s.done * TILE_BYTES;
    const int final = s.done + s.count == all, apart = shared || w->kept;
    visit v = {.x = x + s.done * tiles * TILE, .count = s.count, .tiles = w->expanded};
    v.next = apart ? all * TILE : TILE, v.step = apart ? TILE : blocks * TILE;
    v.ring = apart ? -1 : RING - 1, v.ready = w->kept || (shared && g > 0);
    if (w->kept) v.tiles = w->kept + b0 * all * TILE;
    if (apart) v.tiles += s.done * TILE;
    float *partial = w->partial;
    for (int64_t b = b0; b < b1; b += blocks, partial += SQUARE) {
        aim_at_weights(&v, weights, row_block_bytes(k), b, b1);
        if (final && tiles == TILES) aim_at_y(&v, w, m, b);
        v.from = s.done ? partial : NULL, v.to = final ? w->squares[0] : partial;
        v.to_step = 64, v.down = blocks * TILE, v.across = TILE;
        aim_from(&v, w, b, blocks);
        const int done = final && aim_to(&v, w, m, b, b1, tiles);
        multiply(&v, tiles);
        if (apart) v.tiles += blocks * v.next;
        if (!final || done) continue;
        end_open(w);
        w->open = (square){.sums = v.to, .x_scales = scales_of(x, k), .m = m};
        w->open.tokens = left < GROUP ? left : GROUP;
        w->open.begun = begins_with_bias(w->job);
        w->open.b = b, w->open.blocks = b + blocks < b1 ? blocks : (int)(b1 - b);
        w->squares[0] = w->squares[1], w->squares[1] = v.to;
    }
}

TARGET static void run_blocks(worker *w, int64_t b0, int64_t b1)
{
    const int64_t tiles = k_tiles(w->job->k), chunk = chunk_of(w->job->k);
    for (int64_t b = b0; b < b1; b += chunk)
        for (int64_t g = 0; g * GROUP < w->tokens; g++) {
            const int width = tiles_of(w->tokens - g * GROUP);
            const int64_t most = width > 2 ? SLICE / TILE / width : tiles;
            const int64_t slices = (tiles + most - 1) / most;
            for (int64_t s = 0; s < slices; s++) {
                const int64_t done = tiles * s / slices, next = tiles * (s + 1) / slices;
                run_slice(w, g, b, b + chunk < b1 ? b + chunk : b1, (slice){done, next - done});
            }
        }
    end_open(w);
}

#endif
