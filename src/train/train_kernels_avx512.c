// SPDX-License-Identifier: Apache-2.0
/* Training's vector functions for AVX-512. See train_kernels_impl.h. */
#include "train/train_kernels.h"

#if defined(__x86_64__)
#define TARGET     __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")))
#define TABLE      s24i_train_avx512
#define TABLE_NAME "avx512"
#define TABLE_CPU  S24_CPU_AVX512
#include "vec/vec_avx512.h"

#include "train/train_kernels_impl.h"
#endif
