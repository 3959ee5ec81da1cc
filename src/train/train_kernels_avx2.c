// SPDX-License-Identifier: Apache-2.0
/* Training's vector functions for AVX2. See train_kernels_impl.h. */
#include "train/train_kernels.h"

#if defined(__x86_64__)
#define TARGET     __attribute__((target("avx2,fma")))
#define TABLE      s24i_train_avx2
#define TABLE_NAME "avx2"
#define TABLE_CPU  S24_CPU_AVX2
#include "vec/vec_avx2.h"

#include "train/train_kernels_impl.h"
#endif
