// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4 in bf16, on AMX: x is rounded to bf16 unless it is bf16, sums are f32. Included
 * by the rows' files, which define KEPT (linear_amx.h).
 *
 * linear_amx_pairs.h says how a stored vector becomes two rows of a tile.
 *
 * Tokens with an Inf or NaN go to the row of dots: a dropped weight is a zero here, and zero times
 * NaN would reach outputs that have nothing to do with it.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_BF16_AMX_H
#define S24_KERNEL_CPU_X86_LINEAR_BF16_AMX_H

#include "kernel/cpu/x86/avx512.h"
#include "kernel/kernel.h"

#define TARGET                                                                                     \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,"                         \
                          "avx512vbmi,gfni,fma")))
#define TARGET_INLINE TARGET __attribute__((always_inline)) static inline
#define DOT           TILE_DOT_BF16

enum {
    TILE_COLUMNS = 32,
    ROW_HEAD = 0,
    SUMS_ARE_FLOATS = 1,
    FEW =
        2, /* tokens that the row of dots is faster with, as it stores nothing on its way, up to */
    NEAR_BYTES = 4 << 20,                   /* of packed weights */
    TOO_LARGE = 0x7f80,                     /* Inf */
    TILE_BYTES = S24I_ROWS16_CODES + 8 * 64 /* a k block of rows16_bf16_pairs */
};

#include "kernel/cpu/x86/linear_amx_pairs.h"
#include "kernel/cpu/x86/linear_amx_run.h"
#include "kernel/cpu/x86/linear_amx_tokens.h"

/* ---- weights --------------------------------------------------------------------------------- */

TARGET_INLINE void expand(uint8_t *to, const uint8_t *from, const int part)
{
    const int j = 0x01010101 * part;
    const __m512i both =
        _mm512_shuffle_epi8(_mm512_load_si512(from),
                            _mm512_set4_epi32(0x0c0c0c0c + j, 0x08080808 + j, 0x04040404 + j, j));
    const __m512i even = even_bits(both), odd = odd_bits(both);
    from += S24I_ROWS16_CODES + 128 * part;
    expand_group(to + 256 * part, _mm512_load_si512(from), even, 0, 4);
    expand_group(to + 256 * part + 128, _mm512_load_si512(from + 64), odd, 4, 0);
}

/* ---- sums ------------------------------------------------------------------------------------ */

TARGET_INLINE __m512 scales_at(const s24i_linear_job *job, int64_t b)
{
    (void)job, (void)b;
    return _mm512_set1_ps(1);
}

TARGET_INLINE __m512 as_floats(const float *sums, __m512 w_scales, float x_scale)
{
    (void)w_scales, (void)x_scale;
    return _mm512_load_ps(sums);
}

/* ---- the row's entries ----------------------------------------------------------------------- */

extern const s24i_linear_kernel s24i_linear_bf16_avx512bf16_near;

static const s24i_linear_kernel *other_row(void)
{
    return &s24i_linear_bf16_avx512bf16_near;
}

static size_t weight_bytes(const s24i_weight *from)
{
    return packed_bytes(from->n, from->k) + kept_bytes(from->n, from->k);
}

static void weight_pack(void *w, const s24i_weight *from)
{
    other_row()->weight_pack(w, from);
    keep_tiles(w, from);
}

static void run_job(const s24i_linear_job *job)
{
    if (job->m > FEW || packed_bytes(job->n, job->k) > NEAR_BYTES)
        run_tiles(job);
    else
        other_row()->run(job);
}

#endif
