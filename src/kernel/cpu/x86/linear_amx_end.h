// SPDX-License-Identifier: Apache-2.0
/*
 * What the rows on AMX's tiles do at the end of a square of sums (bias, activation, y), and the
 * sizes that their parts share. Included by linear_amx.h, which says what a row defines before.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_AMX_END_H
#define S24_KERNEL_CPU_X86_LINEAR_AMX_END_H

#include "base/tiles.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

enum {
    TILE = 1024,                           /* bytes of a tile: 16 rows of 64 */
    TOKENS = 16,                           /* of a tile; */
    TILES = 4,                             /* of sums, and the most of tokens */
    GROUP = TILES * TOKENS,                /* tokens that meet a row block at once */
    SQUARE = TILES * 16 * 16,              /* sums of all tiles */
    SKEW = 64,                             /* bytes */
    STRIP = TILES * (TILES * TILE + SKEW), /* bytes of a strip's sums */
    SPAN = 32,                             /* tiles of tokens that pass so with four row blocks */
    NEAR_STEPS = 6,                        /* of four row blocks' tiles that stay in L1 */
    PAGE = 4096,                           /* what work is aligned to */
    LEAD = 2,                              /* steps between expansion and use */
    RING = 4,                              /* steps of expanded weights of few tokens */
    CHUNK_TILES = 384,                     /* of the weights of a chunk, at most */
    SLICE = 24 << 10,                      /* bytes of tokens that stay in L1 */
    CHUNK = 16,              /* row blocks whose sums pass from slice to slice, at most */
    TOKENS_NEAR = 512 << 10, /* bytes of a thread's tokens, which stay in L2, too */
    EACH_PACKS = 4,      /* tokens up to which each thread packs all for itself, and none waits */
    OWN_TOKENS = 96,     /* tokens for each thread from which it has its own */
    ASKED_FOR = 1 << 20, /* bytes of y from which its lines are asked for before a square ends */
    KEPT_BYTES = 3 << 19 /* of a layer's expanded tiles that L2 holds with all else */
};

/* ---- what a row defines ---------------------------------------------------------------------- */

/* Where a row block's weights lie, and one of its tiles: one after the other, but in a row with
   OWN_ORDER, which brings these and stored_from(), stored_tile() and kept_of() below. */
#ifndef OWN_ORDER
#define OWN_ORDER 0
typedef const uint8_t *stored, *packed_tile;
#endif

/* A quarter of a tile's weights: rows 4·part to 4·part + 3. */
TARGET_INLINE void expand(uint8_t *to, packed_tile from, const int part);

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

#if !OWN_ORDER
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

static inline uint8_t *kept_of(const s24i_linear_job *job)
{
    uint8_t *w = (uint8_t *)(uintptr_t)job->w;
    return kept_bytes(job->n, job->k) ? w + packed_bytes(job->n, job->k) : NULL;
}

/* Row block b from a step along k on. */
static inline stored stored_from(const s24i_linear_job *job, int64_t b, int64_t step)
{
    return (const uint8_t *)job->w + b * row_block_bytes(job->k) + ROW_HEAD + step * TILE_BYTES;
}

static inline packed_tile stored_tile(stored from, int64_t step)
{
    return from + step * TILE_BYTES;
}
#endif

/* Bytes of a step's tiles of tokens: one token's columns of several steps lie in several sets of
   L1. */
static inline int64_t x_step(int tiles)
{
    return tiles * TILE + SKEW;
}

/* Bytes of a packed group, whole pages: its tiles, then the tokens' scales. */
static inline int64_t group_bytes(int64_t k)
{
    return (k_tiles(k) * x_step(TILES) + GROUP * (int64_t)sizeof(float) + PAGE - 1) / PAGE * PAGE;
}

static inline float *scales_of(const uint8_t *group, int64_t k)
{
    return (float *)(uintptr_t)(group + k_tiles(k) * x_step(TILES));
}

/* Tiles that the tokens of a group from `tokens` before the end on fill. */
static inline int tiles_of(int64_t tokens)
{
    return tokens >= GROUP ? TILES : (int)((tokens + TOKENS - 1) / TOKENS);
}

/* Rows of a tile of tokens, and of sums: a tile of fewer than 16 tokens in all has as many. */
static inline int token_rows(const s24i_linear_job *job)
{
    return job->m < TOKENS ? (int)job->m : TOKENS;
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

/* Row blocks whose sums pass from slice to slice of few tokens. */
static inline int64_t chunk_of(int64_t k)
{
    const int64_t blocks = CHUNK_TILES / k_tiles(k) / TILES * TILES;
    return blocks < TILES ? TILES : blocks < CHUNK ? blocks : CHUNK;
}

/* The memory of a thread besides tokens: expanded weights, a ring or a slice of four row blocks,
   two strips, sums between slices. */
enum {
    EXPANDED = TILES * (NEAR_STEPS * TILE + SKEW),
    WORKER_BYTES = EXPANDED + 2 * STRIP + SPAN * SQUARE * 4
};

/* ---- the end of a square --------------------------------------------------------------------- */

/* The sums of a group of tokens and up to TILES row blocks from b on, which end together, so that
   lines of y that lie together are written together. A row block's are `across` bytes from those
   of the one before, tiles of tokens follow each other. */
typedef struct strip {
    const float *sums, *x_scales;
    int64_t m, tokens, b, across;
    int blocks, begun; /* begun: the bias is in the sums */
} strip;

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

/* Two vectors that lie together. */
TARGET_INLINE void store_lines(char *y, s24_dtype dtype, __m512 v, __m512 u)
{
    const int64_t next = ROWS * (dtype == S24_F32 ? 4 : 2);
    if (dtype != S24_F32 && !(_mm512_fpclass_ps_mask(v, 0x20) | _mm512_fpclass_ps_mask(u, 0x20))) {
        _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh(u, v));
        return;
    }
    store_outputs(y, dtype, 0xffff, v);
    store_outputs(y + next, dtype, 0xffff, u);
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

/* `count` tokens of a strip from t on, whose outputs do not lie together. */
TARGET static void end_apart(const s24i_linear_job *job, const strip *of, int64_t t, int64_t n,
                             const float *sums, __m512 w_scales, int64_t count)
{
    const __mmask16 mask = lane_mask(job->n - n);
    const __m512 bias =
        job->bias && !of->begun ? _mm512_maskz_loadu_ps(mask, job->bias + n) : _mm512_setzero_ps();
    for (int64_t i = 0; i < count; i++)
        finish(job, of->m + t + i, n, 1, mask,
               as_floats(sums + i * 16, w_scales, of->x_scales[t + i]), bias);
}

/* `count` tokens of a strip from t on with one row block, whose sums of those are at `sums`. */
TARGET static void end_block(const s24i_linear_job *job, const strip *of, int64_t t, int64_t b,
                             const float *sums, int64_t count)
{
    const __m512 w_scales = scales_at(job, b);
    epilogue e = epilogue_of(job, of->m + t, b * ROWS, job->y_dtype);
    if (of->begun) e.bias = _mm512_setzero_ps();
    if (!outputs_together(job))
        end_apart(job, of, t, b * ROWS, sums, w_scales, count);
    else if (job->y_dtype == S24_F32)
        end_as(&e, sums, w_scales, of->x_scales + t, count, S24_F32);
    else
        end_as(&e, sums, w_scales, of->x_scales + t, count, S24_BF16);
}

/* The end of a strip whose row blocks are all there, and whole: some tokens at a time, next to the
   products of the strip after it. */
typedef struct ending ending;
struct ending {
    void (*run)(ending *of, int64_t count); /* the next `count` tokens, or those left */
    int64_t t, tokens;
    epilogue e; /* of the first row block */
    const float *sums, *x_scales;
    int64_t across; /* floats */
    __m512 w_scales[TILES], bias[TILES];
};

TARGET_INLINE void end_lines(ending *of, int64_t count, s24_dtype dtype, s24_activation activation,
                             const int PLAIN)
{
    const int64_t left = of->tokens - of->t, t0 = of->t, bytes = ROWS * (dtype == S24_F32 ? 4 : 2);
    const int64_t across = of->across, y_step = of->e.y_step;
    const int64_t gate_step = of->e.gate_step, residual_step = of->e.residual_step;
    const float *sums = of->sums + t0 * ROWS, *x_scales = of->x_scales + t0;
    const char *gate = of->e.gate, *residual = of->e.residual;
    const __m512 alpha = of->e.alpha, beta = of->e.beta;
    char *y = of->e.y + t0 * y_step;
    __m512 w_scales[TILES], bias[TILES];
    UNROLL for (int i = 0; i < TILES; i++)
    {
        w_scales[i] = of->w_scales[i], bias[i] = of->bias[i];
    }
    if (count > left) count = left;
    of->t = t0 + count;
    if (gate) gate += t0 * gate_step;
    if (residual) residual += t0 * residual_step;
    for (int64_t t = 0; t < count; t++, sums += ROWS, y += y_step) {
        __m512 v[TILES];
        UNROLL for (int i = 0; i < TILES; i++)
        {
            v[i] = as_floats(sums + i * across, w_scales[i], x_scales[t]);
            v[i] = activate(_mm512_fmadd_ps(v[i], alpha, bias[i]), activation);
        }
        for (int i = 0; i < TILES && !PLAIN && gate; i++) {
            v[i] = _mm512_mul_ps(v[i], load_outputs(gate + i * bytes, dtype, 0xffff));
        }
        for (int i = 0; i < TILES && !PLAIN && residual; i++) {
            const __m512 r = load_outputs(residual + i * bytes, dtype, 0xffff);
            v[i] = _mm512_fmadd_ps(r, beta, v[i]);
        }
        if (!PLAIN && gate) gate += gate_step;
        if (!PLAIN && residual) residual += residual_step;
        UNROLL for (int i = 0; i < TILES; i += 2)
        {
            store_lines(y + i * bytes, dtype, v[i], v[i + 1]);
        }
    }
}

#define ENDS(name, dtype, activation, plain)                                                       \
    TARGET static void name(ending *l, int64_t count)                                              \
    {                                                                                              \
        end_lines(l, count, dtype, activation, plain);                                             \
    }
ENDS(end_f32, S24_F32, S24_ACTIVATION_NONE, 1)
ENDS(end_f32_adds, S24_F32, S24_ACTIVATION_NONE, 0)
ENDS(end_f32_gelu, S24_F32, S24_ACTIVATION_GELU, 0)
ENDS(end_f32_other, S24_F32, l->e.activation, 0)
ENDS(end_bf16, S24_BF16, S24_ACTIVATION_NONE, 1)
ENDS(end_bf16_adds, S24_BF16, S24_ACTIVATION_NONE, 0)
ENDS(end_bf16_gelu, S24_BF16, S24_ACTIVATION_GELU, 0)
ENDS(end_bf16_other, S24_BF16, l->e.activation, 0)

TARGET static void begin_ending(ending *l, const s24i_linear_job *job, const strip *of)
{
    const int wide = job->y_dtype == S24_F32;
    l->t = 0, l->tokens = of->tokens;
    l->e = epilogue_of(job, of->m, of->b * ROWS, job->y_dtype);
    l->sums = of->sums, l->x_scales = of->x_scales, l->across = of->across / 4;
    for (int i = 0; i < TILES; i++) {
        l->w_scales[i] = scales_at(job, of->b + i);
        l->bias[i] = job->bias && !of->begun ? _mm512_loadu_ps(job->bias + (of->b + i) * ROWS)
                                             : _mm512_setzero_ps();
    }
    switch (job->activation) {
    case S24_ACTIVATION_NONE:
        if (l->e.gate || l->e.residual)
            l->run = wide ? end_f32_adds : end_bf16_adds;
        else
            l->run = wide ? end_f32 : end_bf16;
        break;
    case S24_ACTIVATION_GELU:
        l->run = wide ? end_f32_gelu : end_bf16_gelu;
        break;
    default:
        l->run = wide ? end_f32_other : end_bf16_other;
    }
}

/* Those of a strip that has fewer, or whose outputs do not lie together. */
TARGET static void end_strip(const s24i_linear_job *job, const strip *of)
{
    for (int64_t t = 0; t < of->tokens; t += TOKENS)
        for (int i = 0; i < of->blocks; i++)
            end_block(job, of, t, of->b + i, of->sums + i * (of->across / 4) + t * ROWS,
                      of->tokens - t < TOKENS ? of->tokens - t : TOKENS);
}

/* Whether sums begin with the bias, and whether they are outputs as they are then. */
static inline int begins_with_bias(const s24i_linear_job *job)
{
    return SUMS_ARE_FLOATS && job->alpha == 1 && job->bias;
}
TARGET static int sums_are_outputs(const s24i_linear_job *job)
{
    return SUMS_ARE_FLOATS && job->alpha == 1 && job->y_dtype == S24_F32 && outputs_together(job) &&
           job->activation == S24_ACTIVATION_NONE && !job->gate &&
           !(job->residual && job->beta != 0);
}

#endif
