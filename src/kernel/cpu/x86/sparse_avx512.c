// SPDX-License-Identifier: Apache-2.0
/* Products with sparse weights in f32 with AVX-512. */
#include "kernel/sparse_kernel.h"

#ifdef __x86_64__
#include <string.h>

#include "kernel/cpu/x86/sparse_avx512.h"

/* The x of four entries from i on. Loads one by one beat gathers but on Intel's cores
   (sparse_csr_avx512_gather.c). */
TARGET static inline __m128 four_at(const s24i_sparse_weight *w, const float *x, int64_t i)
{
    __m128 a;
    if (w->near) {
        uint64_t columns;
        memcpy(&columns, w->near + i, sizeof columns);
        a = _mm_load_ss(x + (columns & 0xffff));
        a = _mm_insert_ps(a, _mm_load_ss(x + (columns >> 16 & 0xffff)), 0x10);
        a = _mm_insert_ps(a, _mm_load_ss(x + (columns >> 32 & 0xffff)), 0x20);
        return _mm_insert_ps(a, _mm_load_ss(x + (columns >> 48)), 0x30);
    }
    const int32_t *index = w->index + i;
    a = _mm_load_ss(x + index[0]);
    a = _mm_insert_ps(a, _mm_load_ss(x + index[1]), 0x10);
    a = _mm_insert_ps(a, _mm_load_ss(x + index[2]), 0x20);
    return _mm_insert_ps(a, _mm_load_ss(x + index[3]), 0x30);
}

TARGET static inline __m512 tokens_at(const s24i_sparse_weight *w, const float *x, int64_t i)
{
    const __m256 low = _mm256_set_m128(four_at(w, x, i + 4), four_at(w, x, i));
    const __m256 high = _mm256_set_m128(four_at(w, x, i + 12), four_at(w, x, i + 8));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

#include "kernel/cpu/x86/sparse_entries_avx512.h"

#include "kernel/cpu/sparse_lanes.h"

ROW(s24i_sparse_csr_avx512, "sparse_csr_f32_avx512", S24I_SPARSE_ENTRIES)
ROW(s24i_sparse_4x1_avx512, "sparse_4x1_f32_avx512", S24I_SPARSE_STRIPS)
ROW(s24i_sparse_bsr_avx512, "sparse_bsr_f32_avx512", S24I_SPARSE_SQUARES)
#endif
