// SPDX-License-Identifier: Apache-2.0
/* The linear of linear_quant_amx.h for 8-bit integers, which lie as in linear_w8_avx512vnni.h. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/cpu/rows16.h"

#define LAYOUT    s24i_layout_rows64_i8
#define OTHER_ROW s24i_linear_w8_avx512vnni_near
enum { VALUES = SLOTS * ROWS, VALUE_BITS = 0 };

#include "kernel/cpu/x86/linear_quant_amx.h"

TARGET_INLINE __m512i pair_bytes(const uint8_t *values, const int pair)
{
    return _mm512_load_si512(values + 64 * pair);
}

const s24i_linear_kernel s24i_linear_w8_amx = {
    .name = "linear_w8_amx",
    .dtype = S24_I8,
    .bits = 8,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI | S24_CPU_AVX512BF16 | S24_CPU_AMX,
    .rank = 40,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
