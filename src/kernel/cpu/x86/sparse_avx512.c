// SPDX-License-Identifier: Apache-2.0
/* Products with sparse weights in f32 with AVX-512. */
#include "kernel/sparse_kernel.h"

#ifdef __x86_64__
#include <immintrin.h>

#define LANES  16
#define VECS   3
#define OUTS   8
#define CPU    S24_CPU_AVX512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define SQUARES
#define GATHERS

#include "kernel/cpu/x86/sparse_squares.h"
#include "kernel/cpu/x86/sparse_vectors.h"

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

TARGET static inline vec add_product(vec sum, vec x, float w)
{
    return (vec)_mm512_fmadd_ps((__m512)x, _mm512_set1_ps(w), (__m512)sum);
}

/* The columns of those of sixteen entries from i on that the mask has. */
TARGET static inline __m512i columns_at(const s24i_sparse_weight *w, int64_t i, __mmask16 mask)
{
    if (!w->near) return _mm512_maskz_loadu_epi32(mask, w->index + i);
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, w->near + i));
}

/* The products of a row's entries for one token, in sixteen sums. */
TARGET static inline __m512 row_sums(const s24i_sparse_weight *w, const float *x, int64_t line)
{
    const int64_t end = w->starts[line + 1];
    int64_t i = w->starts[line];
    __m512 sum = _mm512_setzero_ps();
    for (; i + LANES <= end; i += LANES) {
        prefetch_entries(w, i);
        sum = _mm512_fmadd_ps(_mm512_loadu_ps(w->values + i),
                              _mm512_i32gather_ps(columns_at(w, i, 0xffff), x, 4), sum);
    }
    if (i == end) return sum;
    const __mmask16 mask = lane_mask(end - i);
    const __m512 tokens =
        _mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, columns_at(w, i, mask), x, 4);
    return _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, w->values + i), tokens, sum);
}

/* Those of up to sixteen rows, summed up by turning them. */
TARGET static void gather_sums(float *sums, const s24i_sparse_weight *w, const float *x,
                               int64_t line, int outs)
{
    __m512 r[LANES];
    for (int o = 0; o < LANES; o++)
        r[o] = o < outs ? row_sums(w, x, line + o) : _mm512_setzero_ps();
    transpose16(r);
    for (int half = LANES / 2; half; half /= 2)
        for (int o = 0; o < half; o++)
            r[o] = _mm512_add_ps(r[o], r[o + half]);
    _mm512_storeu_ps(sums, r[0]);
}

#include "kernel/cpu/sparse_lanes.h"

ROW(s24i_sparse_csr_avx512, "sparse_csr_f32_avx512", S24I_SPARSE_ENTRIES)
ROW(s24i_sparse_4x1_avx512, "sparse_4x1_f32_avx512", S24I_SPARSE_STRIPS)
ROW(s24i_sparse_bsr_avx512, "sparse_bsr_f32_avx512", S24I_SPARSE_SQUARES)
#endif
