// SPDX-License-Identifier: Apache-2.0
/* Products with sparse weights in f32 with NEON, which gathers nothing. */
#include "kernel/sparse_kernel.h"

#ifdef __aarch64__

#define LANES 4
#define VECS  3
#define OUTS  8
#define CPU   S24_CPU_NEON
#define TARGET

#include "kernel/cpu/sparse_lanes.h"

ROW(s24i_sparse_csr_neon, "sparse_csr_f32_neon", S24I_SPARSE_ENTRIES)
ROW(s24i_sparse_4x1_neon, "sparse_4x1_f32_neon", S24I_SPARSE_STRIPS)
ROW(s24i_sparse_bsr_neon, "sparse_bsr_f32_neon", S24I_SPARSE_SQUARES)
#endif
