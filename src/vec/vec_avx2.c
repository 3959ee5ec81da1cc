// SPDX-License-Identifier: Apache-2.0
/* Vector operations for AVX2 with FMA. See vec_impl.h. */
#include "vec/vec.h"

#if defined(__x86_64__)
#define TARGET     __attribute__((target("avx2,fma")))
#define TABLE      s24i_vec_avx2
#define TABLE_NAME "avx2"
#define TABLE_CPU  S24_CPU_AVX2
#include "vec/vec_avx2.h"
#include "vec/vec_impl.h"
#endif
