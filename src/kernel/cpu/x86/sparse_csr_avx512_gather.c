// SPDX-License-Identifier: Apache-2.0
/* Products with weights in rows in f32 with AVX-512, where gathers take less time than loads one by
   one, as they do on Intel's cores. */
#include "kernel/sparse_kernel.h"

#ifdef __x86_64__
#include "kernel/cpu/x86/sparse_avx512.h"

TARGET static inline __m512 tokens_at(const s24i_sparse_weight *w, const float *x, int64_t i)
{
    const __m512i columns =
        w->near ? _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)(w->near + i)))
                : _mm512_load_si512(w->index + i);
    return _mm512_i32gather_ps(columns, x, 4);
}

#include "kernel/cpu/x86/sparse_entries_avx512.h"

#define CORE S24_CPU_PORT5
#include "kernel/cpu/sparse_lanes.h"

ROW(s24i_sparse_csr_avx512_gather, "sparse_csr_f32_avx512_gather", S24I_SPARSE_ENTRIES)
#endif
