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
 * have been stored.
 *
 * The row's file defines TARGET, TARGET_INLINE and
 *
 *   TILE_COLUMNS            columns of k in 64 bytes
 *   ROW_HEAD, TILE_BYTES    stored bytes of a row block: before its tiles, and of each
 *   DOT                     the product, of tiles.h
 *   KEPT                    1: layers of up to KEPT_BYTES of tiles keep them next to what is packed
 *
 * includes this one, and defines the functions declared below.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_AMX_H
#define S24_KERNEL_CPU_X86_LINEAR_AMX_H

#include "base/tiles.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

enum {
    TILE = 1024,              /* bytes of a tile: 16 rows of 64 */
    TOKENS = 16,              /* of a tile; */
    TILES = 4,                /* of sums, and the most of tokens */
    GROUP = TILES * TOKENS,   /* tokens that meet a row block at once */
    SQUARE = TILES * 16 * 16, /* sums of all tiles */
    PAGE = 4096,              /* what work is aligned to */
    LEAD = 2,                 /* steps between expansion and use */
    RING = 4,                 /* steps of expanded weights of one group; */
    SHARED = 384,             /* tiles of those that several groups share, in L2 */
    SLICE = 24 << 10,         /* bytes of tokens that stay in L1 */
    CHUNK = 16,               /* row blocks whose sums pass from slice to slice, at most */
    TOKENS_NEAR = 512 << 10,  /* bytes of a thread's tokens, which stay in L2, too */
    OWN_TOKENS = 96,          /* tokens for each thread from which it has its own */
    KEPT_BYTES = 3 << 19      /* of a layer's expanded tiles that L2 holds with all else */
};

/* ---- what a row defines ---------------------------------------------------------------------- */

/* A quarter of a tile's weights: rows 4·part to 4·part + 3. */
TARGET_INLINE void expand(uint8_t *to, const uint8_t *from, const int part);

/* 16 tokens at most from m on, as tiles `step` bytes apart, and 16 scales where x is quantised; 0
   if the other row has to multiply them. */
TARGET static int pack_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens, uint8_t *to,
                              int64_t step, float *scales);

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

static inline size_t packed_bytes(int64_t n, int64_t k)
{
    return (size_t)(rows16_blocks(n) * row_block_bytes(k));
}

/* Bytes of the tiles that a layer keeps, 0: none. A visit meets up to TILES row blocks from any on;
   those past the last are zeros. */
static inline size_t kept_bytes(int64_t n, int64_t k)
{
    const int64_t bytes = (rows16_blocks(n) + TILES - 1) * k_tiles(k) * TILE;
    return KEPT && bytes <= KEPT_BYTES ? (size_t)bytes : 0;
}

/* Bytes of a packed group, whole pages: its tiles, then the tokens' scales. */
static inline int64_t group_bytes(int64_t k)
{
    return (k_tiles(k) * TILES * TILE + GROUP * (int64_t)sizeof(float) + PAGE - 1) / PAGE * PAGE;
}

static inline float *scales_of(const uint8_t *group, int64_t k)
{
    return (float *)(uintptr_t)(group + k_tiles(k) * TILES * TILE);
}

/* Tiles that the tokens of a group from `tokens` before the end on fill. */
static inline int tiles_of(int64_t tokens)
{
    return tokens >= GROUP ? TILES : (int)((tokens + TOKENS - 1) / TOKENS);
}

/* Row blocks that so many tiles of tokens meet at once. */
static inline int blocks_for(int tiles)
{
    return tiles > 2 ? 1 : TILES / tiles;
}

/* Groups of tokens that a thread packs at a time when it has its own. */
static inline int64_t block_groups(int64_t k)
{
    const int64_t groups = TOKENS_NEAR / group_bytes(k);
    return groups < 1 ? 1 : groups;
}

/* Row blocks whose sums pass from slice to slice, and whose weights stay near while all groups meet
   them. */
static inline int64_t chunk_of(int64_t k)
{
    const int64_t blocks = SHARED / k_tiles(k) / TILES * TILES;
    return blocks < TILES ? TILES : blocks < CHUNK ? blocks : CHUNK;
}

/* The memory of a thread besides tokens: expanded weights, a ring or a chunk's, two squares, sums
   between slices. */
static inline int64_t expanded_bytes(int64_t k)
{
    const int64_t shared = chunk_of(k) * k_tiles(k);
    return (shared < RING * TILES ? RING * TILES : shared) * TILE;
}

static inline int64_t worker_bytes(int64_t k)
{
    return expanded_bytes(k) + (2 + CHUNK) * SQUARE * 4;
}

/* ---- a thread's work ------------------------------------------------------------------------- */

/* A square of sums: the tiles of a group's first 16 tokens, one for each row block that meets them,
   then of the next 16. Those from b on are counted by `blocks`: the last square may have more. */
typedef struct square {
    const float *sums, *x_scales;
    int64_t m, tokens, b;
    int blocks;
} square;

typedef struct worker {
    square open; /* the one whose end is still to be done, if it has tokens */
    const s24i_linear_job *job;
    const uint8_t *x;  /* packed groups */
    int64_t m, tokens; /* which these are */
    uint8_t *kept;     /* the layer's tiles, which nobody writes, or NULL: */
    uint8_t *expanded; /* a ring, or the chunk's from its first step on */
    float *squares[2], *partial;
} worker;

/* ---- the end of a square --------------------------------------------------------------------- */

/* y of two tokens as bf16; 0, with nothing done, where one is subnormal: the conversion makes those
   zeros. */
TARGET_INLINE int store_two(char *y, int64_t step, __m512 v, __m512 u)
{
    if (_mm512_fpclass_ps_mask(v, 0x20) | _mm512_fpclass_ps_mask(u, 0x20)) return 0;
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(u, v);
    _mm256_storeu_si256((void *)y, _mm512_castsi512_si256(both));
    _mm256_storeu_si256((void *)(y + step), _mm512_extracti64x4_epi64(both, 1));
    return 1;
}

TARGET_INLINE void end_tokens(const epilogue *e, const float *sums, __m512 w_scales,
                              const float *x_scales, int64_t count, s24_dtype dtype,
                              s24_activation activation)
{
    const int plain = dtype == S24_BF16 && !e->gate && !e->residual && e->mask == 0xffff;
    for (int64_t t = 0; t < count; t += 2, sums += 32) {
        __m512 v = as_floats(sums, w_scales, x_scales[t]);
        __m512 u = as_floats(sums + 16, w_scales, x_scales[t + 1]);
        v = activate(_mm512_fmadd_ps(v, e->alpha, e->bias), activation);
        u = activate(_mm512_fmadd_ps(u, e->alpha, e->bias), activation);
        if (plain && t + 1 < count && store_two(e->y + t * e->y_step, e->y_step, v, u)) continue;
        finish_token(e, t, dtype, v);
        if (t + 1 < count) finish_token(e, t + 1, dtype, u);
    }
}

/* The activation is known where its loop is compiled. */
TARGET_INLINE void end_as(const epilogue *e, const float *sums, __m512 w_scales,
                          const float *x_scales, int64_t count, s24_dtype dtype)
{
    switch (e->activation) {
    case S24_ACTIVATION_GELU:
        end_tokens(e, sums, w_scales, x_scales, count, dtype, S24_ACTIVATION_GELU);
        break;
    case S24_ACTIVATION_NONE:
        end_tokens(e, sums, w_scales, x_scales, count, dtype, S24_ACTIVATION_NONE);
        break;
    default:
        end_tokens(e, sums, w_scales, x_scales, count, dtype, e->activation);
    }
}

/* Outputs that do not lie together. */
TARGET static void end_apart(const s24i_linear_job *job, int64_t m, int64_t n, const float *sums,
                             __m512 w_scales, const float *x_scales, int64_t count)
{
    const __mmask16 mask = lane_mask(job->n - n);
    const __m512 bias =
        job->bias ? _mm512_maskz_loadu_ps(mask, job->bias + n) : _mm512_setzero_ps();
    for (int64_t t = 0; t < count; t++)
        finish(job, m + t, n, 1, mask, as_floats(sums + t * 16, w_scales, x_scales[t]), bias);
}

/* Row block b of a square, whose first tile is at `sums`. */
TARGET static void end_block(const s24i_linear_job *job, const square *of, int64_t b,
                             const float *sums)
{
    const __m512 w_scales = scales_at(job, b);
    const int64_t next = blocks_for(tiles_of(of->tokens)) * 256;
    epilogue e = epilogue_of(job, of->m, b * ROWS, job->y_dtype);
    for (int64_t t = 0; t < of->tokens; t += TOKENS, sums += next) {
        const int64_t count = of->tokens - t < TOKENS ? of->tokens - t : TOKENS;
        if (!outputs_together(job))
            end_apart(job, of->m + t, b * ROWS, sums, w_scales, of->x_scales + t, count);
        else if (job->y_dtype == S24_F32)
            end_as(&e, sums, w_scales, of->x_scales + t, count, S24_F32);
        else
            end_as(&e, sums, w_scales, of->x_scales + t, count, S24_BF16);
        e.y += TOKENS * e.y_step;
        if (e.gate) e.gate += TOKENS * e.gate_step;
        if (e.residual) e.residual += TOKENS * e.residual_step;
    }
}

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
    int ready;         /* they are there already */
    const float *from; /* sums so far, or NULL */
    float *to;
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

/* One tile of tokens and four row blocks. */
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

TARGET_INLINE void begin_sums(const float *from)
{
    if (!from) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
        return;
    }
    TILE_LOAD(0, from, 64);
    TILE_LOAD(1, from + 256, 64);
    TILE_LOAD(2, from + 512, 64);
    TILE_LOAD(3, from + 768, 64);
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
    const int64_t turn = v->ready ? v->count : v->count < LEAD ? 0 : v->count - LEAD;
    for (int64_t t = 0; !v->ready && t < LEAD && t < v->count; t++)
        for (int b = 0; b < blocks_for(T); b++)
            expand_all(tile_at(v, t, b), v->w[b] + t * TILE_BYTES);
    begin_sums(v->from);
    if (v->ready)
        steps(v, 0, turn, T, ASKS);
    else
        steps(v, 0, turn, T, EXPANDS);
    steps(v, turn, v->count, T, ALONE);
    TILE_STORE(0, v->to, 64);
    TILE_STORE(1, v->to + 256, 64);
    TILE_STORE(2, v->to + 512, 64);
    TILE_STORE(3, v->to + 768, 64);
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

/* A square of 64 tokens writes as many lines. */
TARGET static void aim_at_y(visit *v, const s24i_linear_job *job, int64_t m, int64_t b)
{
    v->y = NULL;
    if (m + GROUP > job->m || !outputs_together(job)) return;
    v->y = element_to(job->y, job->y_dtype, m * job->y_stride_m + b * ROWS);
    v->y_step = job->y_stride_m * (job->y_dtype == S24_F32 ? 4 : 2);
    v->asked = (GROUP + v->count - 1) / v->count;
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
        if (final && tiles == TILES) aim_at_y(&v, w->job, w->m + g * GROUP, b);
        v.from = s.done ? partial : NULL, v.to = final ? w->squares[0] : partial;
        multiply(&v, tiles);
        if (apart) v.tiles += blocks * v.next;
        if (!final) continue;
        end_open(w);
        w->open = (square){.sums = v.to, .x_scales = scales_of(x, k), .m = w->m + g * GROUP};
        w->open.tokens = left < GROUP ? left : GROUP;
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
