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
 * Up to 64 tokens expand each weight a few steps ahead into a ring, and stay in L1: k goes in
 * slices whose tokens fit there, and the sums of some row blocks pass through memory between two
 * slices. Of more tokens the first 16 expand a slice of four row blocks, which then stays in L1
 * while the others meet it. Four row blocks end together (bias, activation, y), next to the
 * products after them, because a line of y costs three times as much by itself as next to three
 * more: rows of y fall into few sets of L1. But sums that begin with the bias and are outputs as
 * they are go to y at once.
 *
 * The row's file defines TARGET, TARGET_INLINE and
 *
 *   TILE_COLUMNS            columns of k in 64 bytes
 *   ROW_HEAD, TILE_BYTES    stored bytes of a row block: before its tiles, and of each
 *   DOT                     the product, of tiles.h
 *   SUMS_ARE_FLOATS         1: sums are f32 in the outputs' unit
 *   KEPT                    1: layers of up to KEPT_BYTES of tiles keep them next to what is packed
 *   OWN_ORDER               optional, 1: row blocks have no ROW_HEAD and no tiles of TILE_BYTES
 *
 * includes this one, and defines the functions declared below.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_AMX_H
#define S24_KERNEL_CPU_X86_LINEAR_AMX_H

#include "kernel/cpu/x86/linear_amx_end.h"

/* ---- a thread's work ------------------------------------------------------------------------- */

typedef struct worker {
    strip next;    /* that grows, if it has row blocks */
    ending ending; /* of the one before, if tokens are left */
    const s24i_linear_job *job;
    const uint8_t *x;         /* packed groups */
    int64_t m, tokens;        /* which these are */
    int plain;                /* sums are outputs as they are */
    float bias[TILES * ROWS]; /* of row blocks the last of which is not whole */
    uint8_t *kept;            /* the layer's tiles, which nobody writes, or NULL: */
    uint8_t *expanded;        /* a ring, or a slice of four row blocks */
    float *strips[2], *partial;
} worker;

TARGET static void end_open(worker *w)
{
    if (w->ending.t < w->ending.tokens) w->ending.run(&w->ending, GROUP);
}

/* ---- a square -------------------------------------------------------------------------------- */

/* `count` steps along k of a group of tokens and the row blocks that it meets. */
typedef struct visit {
    const uint8_t *x;
    stored w[TILES];
    int64_t x_next; /* bytes from a step's tokens to the next one's */
    uint8_t *tiles; /* row block i's expanded weights of step t: i · next + (t & ring) · step on */
    int64_t next, step, ring;
    int64_t count;
    int ready;                /* they are there already */
    const float *from, *bias; /* sums so far, or NULL; what they begin with, or NULL */
    /* Where they go: rows of a tile and tiles of tokens and of row blocks, so many bytes apart. */
    float *to;
    int64_t to_step, down, across;
    char *y; /* whose lines are asked for, `asked` of `lines` at each step; or NULL */
    int64_t y_step, asked, lines;
    int shift; /* 2^shift lines of a token follow each other */
} visit;

TARGET_INLINE void expand_all(uint8_t *to, packed_tile from)
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
TARGET_INLINE void prepare(uint8_t *to, packed_tile from, const int part, const int WHAT)
{
    if (WHAT == EXPANDS) expand(to, from, part);
    for (int i = 0; WHAT == ASKS && i < 4; i++)
        _mm_prefetch((const char *)to + 256 * part + 64 * i, _MM_HINT_T0);
}

/* Three or four tiles of tokens and one row block. */
TARGET_INLINE void step_tall(const visit *v, int64_t t, const int T, const int WHAT)
{
    const uint8_t *x = v->x + t * v->x_next;
    const packed_tile w = stored_tile(v->w[0], t + LEAD);
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
    const uint8_t *x = v->x + t * v->x_next;
    const packed_tile first = stored_tile(v->w[0], t + LEAD);
    const packed_tile second = stored_tile(v->w[1], t + LEAD);
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
    const int64_t at = t + LEAD;
    TILE_LOAD(7, v->x + t * v->x_next, 64);
    TILE_LOAD(4, tile_at(v, t, 0), 64);
    DOT(0, 7, 4);
    if (WHAT == EXPANDS) expand_all(tile_at(v, at, 0), stored_tile(v->w[0], at));
    TILE_LOAD(5, tile_at(v, t, 1), 64);
    DOT(1, 7, 5);
    if (WHAT == EXPANDS) expand_all(tile_at(v, at, 1), stored_tile(v->w[1], at));
    TILE_LOAD(6, tile_at(v, t, 2), 64);
    DOT(2, 7, 6);
    if (WHAT == EXPANDS) expand_all(tile_at(v, at, 2), stored_tile(v->w[2], at));
    TILE_LOAD(4, tile_at(v, t, 3), 64);
    DOT(3, 7, 4);
    if (WHAT == EXPANDS) expand_all(tile_at(v, at, 3), stored_tile(v->w[3], at));
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
    for (int64_t i = t * v->asked; i < end && i < v->lines; i++) {
        const int64_t row = i >> v->shift, line = i - (row << v->shift);
        PREFETCH_TO_WRITE(v->y + row * v->y_step + line * 64);
    }
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
            expand_all(tile_at(v, t, b), stored_tile(v->w[b], t));
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

/* Lines of y of a square are asked for where sums go there at once, and where L2 does not hold y:
   in L1 they would push out tokens before they are written. */
TARGET static void aim_at_y(visit *v, const worker *w, int64_t m, int64_t b, int tiles)
{
    const s24i_linear_job *job = w->job;
    const int64_t element = job->y_dtype == S24_F32 ? 4 : 2, bytes = job->m * job->n * element;
    const int64_t outputs = ROWS * blocks_for(tiles);
    v->y = NULL;
    if (m + tiles * TOKENS > job->m || b * ROWS + outputs > job->n || !outputs_together(job))
        return;
    if (!(w->plain && tiles == TILES) && bytes < ASKED_FOR) return;
    v->y = element_to(job->y, job->y_dtype, m * job->y_stride_m + b * ROWS);
    v->y_step = job->y_stride_m * element;
    v->shift = tiles == 1 ? job->y_dtype == S24_F32 ? 2 : 1 : 0;
    v->lines = tiles * TOKENS << v->shift;
    v->asked = (v->lines + v->count - 1) / v->count;
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

/* Which square a visit makes. */
typedef struct square_of {
    int64_t m, b, left;
    int tiles;
    const float *x_scales;
} square_of;

/* Sums that end later go to the strip that grows. */
TARGET static void aim_at_strip(visit *v, worker *w, square_of s, const float *x_scales)
{
    strip *to = &w->next;
    if (!to->blocks) {
        *to = (strip){.sums = w->strips[0], .x_scales = x_scales, .m = s.m, .b = s.b};
        to->tokens = s.left < GROUP ? s.left : GROUP, to->across = s.tiles * TILE + SKEW;
        to->begun = begins_with_bias(w->job);
    }
    v->to = w->strips[0] + to->blocks * (to->across / 4);
    v->down = TILE, v->across = to->across;
}

/* Some row blocks of a strip are there. */
TARGET static void end_visit(worker *w, int blocks, int last)
{
    strip *of = &w->next;
    float *const sums = w->strips[0];
    of->blocks += blocks;
    if (of->blocks < TILES && !last) {
        if (w->ending.t < w->ending.tokens) w->ending.run(&w->ending, TOKENS);
        return;
    }
    end_open(w);
    if (of->blocks == TILES && (of->b + TILES) * ROWS <= w->job->n && outputs_together(w->job))
        begin_ending(&w->ending, w->job, of);
    else
        end_strip(w->job, of);
    of->blocks = 0;
    w->strips[0] = w->strips[1], w->strips[1] = sums;
}

/* A slice of k: `count` steps from `done` on. */
typedef struct slice {
    int64_t done, count;
} slice;

/* The weights of row blocks from b on, the first of them once more where b1 is before. */
static void aim_at_weights(visit *v, const s24i_linear_job *job, slice s, int64_t b, int64_t b1)
{
    for (int i = 0; i < TILES; i++)
        v->w[i] = stored_from(job, i < b1 - b ? b + i : b, s.done);
}

/* What a visit with all of k, or a slice of it, makes of its sums, and runs it. */
TARGET static void run_visit(worker *w, visit *v, square_of s, int64_t b1, float *partial, slice k)
{
    const int blocks = blocks_for(s.tiles), last = s.b + blocks >= b1;
    const int final = k.done + k.count == k_tiles(w->job->k);
    v->from = k.done ? partial : NULL, v->to = partial;
    v->to_step = 64, v->down = blocks * TILE, v->across = TILE;
    aim_from(v, w, s.b, blocks);
    const int done = final && aim_to(v, w, s.m, s.b, b1, s.tiles);
    if (final && !done) aim_at_strip(v, w, s, s.x_scales);
    multiply(v, s.tiles);
    if (final && !done) end_visit(w, last ? (int)(b1 - s.b) : blocks, last);
}

/* A group's slice with row blocks [b0, b1). */
TARGET static void run_group(worker *w, int64_t b0, int64_t b1, slice s)
{
    const int64_t k = w->job->k, all = k_tiles(k);
    const int tiles = tiles_of(w->tokens), blocks = blocks_for(tiles);
    float *partial = w->partial;
    visit v = {.x_next = x_step(tiles), .count = s.count, .tiles = w->expanded};
    v.x = w->x + s.done * v.x_next;
    v.next = TILE, v.step = blocks * TILE, v.ring = RING - 1, v.ready = w->kept != NULL;
    if (w->kept) v.tiles = w->kept + (b0 * all + s.done) * TILE, v.next = all * TILE;
    if (w->kept) v.step = TILE, v.ring = -1;
    for (int64_t b = b0; b < b1; b += blocks, partial += SQUARE) {
        const square_of square = {w->m, b, w->tokens, tiles, scales_of(w->x, k)};
        aim_at_weights(&v, w->job, s, b, b1);
        if (s.done + s.count == all && tiles == TILES) aim_at_y(&v, w, w->m, b, TILES);
        run_visit(w, &v, square, b1, partial, s);
        if (w->kept) v.tiles += blocks * v.next;
    }
}

/* A slice of four row blocks from b on with the tokens from t0 on that sums pass for, tile after
   tile: the first one expands it. */
TARGET static void run_slice(worker *w, int64_t t0, int64_t b, int64_t b1, slice s)
{
    const int64_t k = w->job->k, all = k_tiles(k);
    float *partial = w->partial;
    visit v = {.count = s.count, .tiles = w->expanded, .next = s.count * TILE + SKEW, .step = TILE};
    v.ring = -1, v.ready = w->kept != NULL;
    if (w->kept) v.tiles = w->kept + (b * all + s.done) * TILE, v.next = all * TILE;
    aim_at_weights(&v, w->job, s, b, b1);
    const int64_t end = t0 + SPAN * TOKENS < w->tokens ? t0 + SPAN * TOKENS : w->tokens;
    for (int64_t t = t0; t < end; t += TOKENS, partial += SQUARE) {
        const int64_t g = t / GROUP, tile = t % GROUP / TOKENS;
        const int width = tiles_of(w->tokens - g * GROUP);
        const uint8_t *group = w->x + g * group_bytes(k);
        const square_of square = {w->m + t, b, w->tokens - t < TOKENS ? w->tokens - t : TOKENS, 1,
                                  scales_of(group, k) + tile * TOKENS};
        v.x = group + s.done * x_step(width) + tile * TILE, v.x_next = x_step(width);
        if (s.done + s.count == all) aim_at_y(&v, w, w->m + t, b, 1);
        run_visit(w, &v, square, b + TILES < b1 ? b + TILES : b1, partial, s);
        v.ready = 1;
    }
}

/* Up to 64 tokens: k in slices whose tokens stay in L1, one after the other for some row blocks. */
TARGET static void run_few(worker *w, int64_t b0, int64_t b1)
{
    const int64_t all = k_tiles(w->job->k), chunk = chunk_of(w->job->k);
    const int width = tiles_of(w->tokens);
    const int64_t most = width > 2 ? SLICE / TILE / width : all, slices = (all + most - 1) / most;
    for (int64_t b = b0; b < b1; b += chunk)
        for (int64_t s = 0; s < slices; s++) {
            const int64_t done = all * s / slices, next = all * (s + 1) / slices;
            run_group(w, b, b + chunk < b1 ? b + chunk : b1, (slice){done, next - done});
        }
}

TARGET static void run_many(worker *w, int64_t b0, int64_t b1)
{
    const int64_t all = k_tiles(w->job->k), slices = (all + NEAR_STEPS - 1) / NEAR_STEPS;
    for (int64_t b = b0; b < b1; b += TILES)
        for (int64_t t = 0; t < w->tokens; t += SPAN * TOKENS)
            for (int64_t s = 0; s < slices; s++) {
                const int64_t done = all * s / slices, next = all * (s + 1) / slices;
                run_slice(w, t, b, b1, (slice){done, next - done});
            }
}

TARGET static void run_blocks(worker *w, int64_t b0, int64_t b1)
{
    if (w->tokens <= GROUP)
        run_few(w, b0, b1);
    else
        run_many(w, b0, b1);
    end_open(w);
}

#endif
