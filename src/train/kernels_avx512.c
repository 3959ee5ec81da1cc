// SPDX-License-Identifier: Apache-2.0
/* Training's vector functions for AVX-512. See kernels_impl.h. */
#include "train/kernels.h"

#if defined(__x86_64__)
#define TARGET     __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")))
#define TABLE      s24i_train_avx512
#define TABLE_NAME "avx512"
#define TABLE_CPU  S24_CPU_AVX512
#include "nn/vec_avx512.h"
#include "train/kernels_impl.h"
#endif
