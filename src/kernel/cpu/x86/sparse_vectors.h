// SPDX-License-Identifier: Apache-2.0
/* What the x86 rows of sparse weights share: vectors of four and eight floats, and what they ask
   memory for ahead of its use. Included after TARGET. */
#ifndef S24_KERNEL_CPU_X86_SPARSE_VECTORS_H
#define S24_KERNEL_CPU_X86_SPARSE_VECTORS_H

#include <immintrin.h>

#include "kernel/sparse_kernel.h"

typedef float strip __attribute__((vector_size(4 * S24I_STRIP), aligned(4), may_alias));
typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));

TARGET static inline strip strip_product(strip sum, strip w, float x)
{
    return (strip)_mm_fmadd_ps((__m128)w, _mm_set1_ps(x), (__m128)sum);
}

TARGET static inline eight eight_product(eight sum, eight w, float x)
{
    return (eight)_mm256_fmadd_ps((__m256)w, _mm256_set1_ps(x), (__m256)sum);
}

enum { ENTRIES_AHEAD = 512 };

/* A prefetch beyond the end of the memory does nothing. */
static inline void prefetch_entries(const s24i_sparse_weight *w, int64_t i)
{
    const int64_t at = i + ENTRIES_AHEAD;
    _mm_prefetch((const char *)(w->values + at), _MM_HINT_T0);
    if (w->near)
        _mm_prefetch((const char *)(w->near + at), _MM_HINT_T0);
    else
        _mm_prefetch((const char *)(w->index + at), _MM_HINT_T0);
}

#endif
