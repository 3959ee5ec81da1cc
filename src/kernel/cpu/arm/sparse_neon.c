// SPDX-License-Identifier: Apache-2.0
/* Products with sparse weights in f32 with NEON, which gathers nothing. */
#include "kernel/sparse_kernel.h"

#ifdef __aarch64__

#define LANES 4
#define VECS  3
#define OUTS  8
#define CPU   S24_CPU_NEON
#define TARGET

#include <arm_neon.h>

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float strip __attribute__((vector_size(4 * S24I_STRIP), aligned(4), may_alias));
typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));

static inline vec add_product(vec sum, vec x, float w)
{
    return (vec)vfmaq_n_f32((float32x4_t)sum, (float32x4_t)x, w);
}

static inline strip strip_product(strip sum, strip w, float x)
{
    return (strip)vfmaq_n_f32((float32x4_t)sum, (float32x4_t)w, x);
}

static inline eight eight_product(eight sum, eight w, float x)
{
    const vec low = add_product(__builtin_shufflevector(sum, sum, 0, 1, 2, 3),
                                __builtin_shufflevector(w, w, 0, 1, 2, 3), x);
    const vec high = add_product(__builtin_shufflevector(sum, sum, 4, 5, 6, 7),
                                 __builtin_shufflevector(w, w, 4, 5, 6, 7), x);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

#include "kernel/cpu/sparse_lanes.h"

ROW(s24i_sparse_csr_neon, "sparse_csr_f32_neon", S24I_SPARSE_ENTRIES)
ROW(s24i_sparse_4x1_neon, "sparse_4x1_f32_neon", S24I_SPARSE_STRIPS)
ROW(s24i_sparse_bsr_neon, "sparse_bsr_f32_neon", S24I_SPARSE_SQUARES)
#endif
