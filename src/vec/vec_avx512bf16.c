// SPDX-License-Identifier: Apache-2.0
/* Vector operations for AVX-512 with products of bf16 pairs. See vec_table.h. */
#include "vec/vec.h"

#if defined(__x86_64__)
#define TABLE      s24i_vec_avx512bf16
#define TABLE_NAME "avx512bf16"
#define TABLE_CPU  (S24_CPU_AVX512 | S24_CPU_AVX512BF16)
#include "vec/vec_avx512_pairs.h"
#include "vec/vec_table.h"
#endif
