// SPDX-License-Identifier: Apache-2.0
/* Training's vector functions for AVX2. See kernels_impl.h. */
#include "train/kernels.h"

#if defined(__x86_64__)
#define TARGET     __attribute__((target("avx2,fma")))
#define TABLE      s24i_train_avx2
#define TABLE_NAME "avx2"
#define TABLE_CPU  S24_CPU_AVX2
#include "nn/vec_avx2.h"
#include "train/kernels_impl.h"
#endif
