// SPDX-License-Identifier: Apache-2.0
/* Vector operations for AVX-512 with products of bf16 pairs on AMX's tiles. See vec_table.h. */
#include "vec/vec.h"

#if defined(__x86_64__)
#include "base/tiles.h"

#define TABLE      s24i_vec_amx
#define TABLE_NAME "amx"
#define TABLE_CPU  (S24_CPU_AVX512 | S24_CPU_AVX512BF16 | S24_CPU_AMX)
#define HAVE_TILES 1
#include "vec/vec_avx512_pairs.h"
#include "vec/vec_table.h"
#endif
