// SPDX-License-Identifier: Apache-2.0
/* What the rows of sparse weights in f32 with AVX-512 share, for sparse_lanes.h. */
#ifndef S24_KERNEL_CPU_X86_SPARSE_AVX512_H
#define S24_KERNEL_CPU_X86_SPARSE_AVX512_H

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

#endif
