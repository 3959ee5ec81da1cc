// SPDX-License-Identifier: Apache-2.0
/* Products with sparse weights in f32 with AVX-512. */
#include "kernel/sparse_kernel.h"

#ifdef __x86_64__
#include <immintrin.h>

#define LANES  16
#define VECS   3
#define CPU    S24_CPU_AVX512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define SQUARES

#include "kernel/cpu/x86/sparse_squares.h"

/* The products of whole vectors of a row's entries from *i on, which moves past them. */
TARGET static inline float gather_sum(const s24i_sparse_weight *w, const float *x, int64_t *i,
                                      int64_t end)
{
    __m512 sum = _mm512_setzero_ps();
    for (; *i + LANES <= end; *i += LANES) {
        const __m512i places = _mm512_loadu_si512(w->index + *i);
        sum = _mm512_fmadd_ps(_mm512_loadu_ps(w->values + *i), _mm512_i32gather_ps(places, x, 4),
                              sum);
    }
    return _mm512_reduce_add_ps(sum);
}

#include "kernel/cpu/x86/sparse_x86.h"

ROW(s24i_sparse_csr_avx512, "sparse_csr_f32_avx512", S24_FORMAT_CSR)
ROW(s24i_sparse_bsr_avx512, "sparse_bsr_f32_avx512", S24_FORMAT_BSR)
#endif
