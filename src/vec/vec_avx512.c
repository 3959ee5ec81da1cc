// SPDX-License-Identifier: Apache-2.0
/* Vector operations for AVX-512. See vec_table.h. */
#include "vec/vec.h"

#if defined(__x86_64__)
#define TARGET     __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")))
#define TABLE      s24i_vec_avx512
#define TABLE_NAME "avx512"
#define TABLE_CPU  S24_CPU_AVX512
#include "vec/vec_avx512.h"
#include "vec/vec_table.h"
#endif
