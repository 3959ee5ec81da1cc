// SPDX-License-Identifier: Apache-2.0
/*
 * The linear of linear_quant_avx2.h for 8-bit integers: slots [16] of 16 rows, a byte each.
 */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include <string.h>

#include "kernel/cpu/rows16.h"

enum { VALUES = SLOTS * ROWS };

#include "kernel/cpu/x86/linear_quant_avx2.h"

static inline void put_value(uint8_t *values, int64_t lane, int64_t group, int64_t slot, int8_t q)
{
    values[(2 * group + slot) * ROWS + lane] = (uint8_t)q;
}

AVX2_INLINE __m256 values_of(const uint8_t *group, int slot)
{
    const __m128i eight = _mm_loadl_epi64((const void *)(group + slot * ROWS));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
}

const s24i_linear_kernel s24i_linear_w8_avx2 = {
    .name = "linear_w8_avx2",
    .dtype = S24_I8,
    .bits = 8,
    .cpu = S24_CPU_AVX2,
    .rank = 11, /* no less than that of any f32 row of AVX2 */
    .x_dtypes = 1u << S24_F32,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
