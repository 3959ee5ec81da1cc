// SPDX-License-Identifier: Apache-2.0
/* Products with sparse weights in f32 with AVX2. */
#include "kernel/sparse_kernel.h"

#ifdef __x86_64__
#include <immintrin.h>

#define LANES  8
#define VECS   3
#define CPU    S24_CPU_AVX2
#define TARGET __attribute__((target("avx2,fma")))

/* The products of whole vectors of a row's entries from *i on, which moves past them. */
TARGET static inline float gather_sum(const s24i_sparse_weight *w, const float *x, int64_t *i,
                                      int64_t end)
{
    __m256 sum = _mm256_setzero_ps();
    float lanes[LANES], all = 0;
    for (; *i + LANES <= end; *i += LANES) {
        const __m256i places = _mm256_loadu_si256((const __m256i *)(const void *)(w->index + *i));
        sum = _mm256_fmadd_ps(_mm256_loadu_ps(w->values + *i), _mm256_i32gather_ps(x, places, 4),
                              sum);
    }
    _mm256_storeu_ps(lanes, sum);
    for (int lane = 0; lane < LANES; lane++)
        all += lanes[lane];
    return all;
}

#include "kernel/cpu/x86/sparse_x86.h"

ROW(s24i_sparse_csr_avx2, "sparse_csr_f32_avx2", S24_FORMAT_CSR)
ROW(s24i_sparse_bsr_avx2, "sparse_bsr_f32_avx2", S24_FORMAT_BSR)
#endif
