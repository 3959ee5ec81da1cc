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
    EACH_PACKS = 4,      /* tokens up to which each thread packs all for itself, and none waits */
    OWN_TOKENS = 96,     /* tokens for each thread from which it has its own */
    ASKED_FOR = 1 << 20, /* bytes of y from which its lines are asked for before a square ends */
    KEPT_BYTES = 3 << 19 /* of a layer's expanded tiles that L2 holds with all else */
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

/* ---- the end of a square --------------------------------------------------------------------- */

/* A square of sums: the tiles of a group's first 16 tokens, one for each row block that meets them,
   then of the next 16. Those from b on are counted by `blocks`: the last square may have more. */
typedef struct square {
    const float *sums, *x_scales;
    int64_t m, tokens, b;
    int blocks, begun; /* begun: the bias is in the sums */
} square;

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

/* `count` tokens of a square from t on, whose outputs do not lie together. */
TARGET static void end_apart(const s24i_linear_job *job, const square *of, int64_t t, int64_t n,
                             const float *sums, __m512 w_scales, int64_t count)
{
    const __mmask16 mask = lane_mask(job->n - n);
    const __m512 bias =
        job->bias && !of->begun ? _mm512_maskz_loadu_ps(mask, job->bias + n) : _mm512_setzero_ps();
    for (int64_t i = 0; i < count; i++)
        finish(job, of->m + t + i, n, 1, mask,
               as_floats(sums + i * 16, w_scales, of->x_scales[t + i]), bias);
}

/* Row block b of a square, whose first tile is at `sums`. */
TARGET static void end_block(const s24i_linear_job *job, const square *of, int64_t b,
                             const float *sums)
{
    const __m512 w_scales = scales_at(job, b);
    const int64_t next = blocks_for(tiles_of(of->tokens)) * 256;
    epilogue e = epilogue_of(job, of->m, b * ROWS, job->y_dtype);
    if (of->begun) e.bias = _mm512_setzero_ps();
    for (int64_t t = 0; t < of->tokens; t += TOKENS, sums += next) {
        const int64_t count = of->tokens - t < TOKENS ? of->tokens - t : TOKENS;
        if (!outputs_together(job))
            end_apart(job, of, t, b * ROWS, sums, w_scales, count);
        else if (job->y_dtype == S24_F32)
            end_as(&e, sums, w_scales, of->x_scales + t, count, S24_F32);
        else
            end_as(&e, sums, w_scales, of->x_scales + t, count, S24_BF16);
        e.y += TOKENS * e.y_step;
        if (e.gate) e.gate += TOKENS * e.gate_step;
        if (e.residual) e.residual += TOKENS * e.residual_step;
    }
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
