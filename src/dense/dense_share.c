// SPDX-License-Identifier: Apache-2.0
/* How threads share a product of two matrices: by the rows or the columns of its result, whichever
   there are more of. */
#include "dense/dense.h"
#include "io/file/io.h"

enum { STEP = 48 /* rows or columns that one thread takes together */ };

int64_t s24i_gemm_steps(const s24i_gemm *whole)
{
    return (s24i_max(whole->m, whole->n) + STEP - 1) / STEP;
}

s24i_gemm s24i_gemm_part(const s24i_gemm *whole, int64_t begin, int64_t end)
{
    const int by_columns = whole->n > whole->m;
    const int64_t first = begin * STEP;
    const int64_t count = s24i_min(end * STEP, by_columns ? whole->n : whole->m) - first;
    s24i_gemm part = *whole;
    if (by_columns) {
        part.n = count;
        part.b += first * (whole->transposed_b ? whole->ldb : 1);
        part.c += first;
    } else {
        part.m = count;
        part.a += first * (whole->transposed_a ? 1 : whole->lda);
        part.c += first * whole->ldc;
    }
    return part;
}
