// SPDX-License-Identifier: Apache-2.0
/* What the rows that gather x share: what they ask memory for ahead of its use. */
#ifndef S24_KERNEL_CPU_X86_SPARSE_GATHER_H
#define S24_KERNEL_CPU_X86_SPARSE_GATHER_H

#include <xmmintrin.h>

#include "kernel/sparse_kernel.h"

enum { AHEAD = 512 }; /* entries */

/* A prefetch beyond the end of the memory does nothing. */
static inline void prefetch_entries(const s24i_sparse_weight *w, int64_t i)
{
    const char *columns =
        w->near ? (const char *)(w->near + i + AHEAD) : (const char *)(w->index + i + AHEAD);
    _mm_prefetch((const char *)(w->values + i + AHEAD), _MM_HINT_T0);
    _mm_prefetch(columns, _MM_HINT_T0);
}

#endif
