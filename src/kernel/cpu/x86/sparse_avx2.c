// SPDX-License-Identifier: Apache-2.0
/* Products with sparse weights in f32 with AVX2. */
#include "kernel/sparse_kernel.h"

#ifdef __x86_64__
#include <immintrin.h>

#define LANES  8
#define VECS   3
#define OUTS   4
#define CPU    S24_CPU_AVX2
#define TARGET __attribute__((target("avx2,fma")))
#define GATHERS

#include "kernel/cpu/x86/sparse_vectors.h"

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

TARGET static inline vec add_product(vec sum, vec x, float w)
{
    return (vec)_mm256_fmadd_ps((__m256)x, _mm256_set1_ps(w), (__m256)sum);
}

/* The columns of eight entries from i on. */
TARGET static inline __m256i columns_at(const s24i_sparse_weight *w, int64_t i)
{
    if (!w->near) return _mm256_loadu_si256((const __m256i *)(const void *)(w->index + i));
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(w->near + i)));
}

/* The products of a row's entries for one token. */
TARGET static inline float row_sum(const s24i_sparse_weight *w, const float *x, int64_t line)
{
    const int64_t end = w->starts[line + 1];
    int64_t i = w->starts[line];
    __m256 sum = _mm256_setzero_ps();
    float lanes[LANES], all = 0;
    for (; i + LANES <= end; i += LANES) {
        prefetch_entries(w, i);
        sum = _mm256_fmadd_ps(_mm256_loadu_ps(w->values + i),
                              _mm256_i32gather_ps(x, columns_at(w, i), 4), sum);
    }
    for (; i < end; i++)
        all += w->values[i] * x[s24i_sparse_column(w, i)];
    _mm256_storeu_ps(lanes, sum);
    for (int lane = 0; lane < LANES; lane++)
        all += lanes[lane];
    return all;
}

TARGET static void gather_sums(float *sums, const s24i_sparse_weight *w, const float *x,
                               int64_t line, int outs)
{
    for (int o = 0; o < outs; o++)
        sums[o] = row_sum(w, x, line + o);
}

#include "kernel/cpu/sparse_lanes.h"

ROW(s24i_sparse_csr_avx2, "sparse_csr_f32_avx2", S24I_SPARSE_ENTRIES)
ROW(s24i_sparse_4x1_avx2, "sparse_4x1_f32_avx2", S24I_SPARSE_STRIPS)
ROW(s24i_sparse_bsr_avx2, "sparse_bsr_f32_avx2", S24I_SPARSE_SQUARES)
#endif
