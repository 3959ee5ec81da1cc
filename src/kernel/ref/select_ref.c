// SPDX-License-Identifier: Apache-2.0
/* Magnitude selection in scalar C: the specification that every other row is compared with. */
#include <string.h>

#include "format/element.h"
#include "kernel/kernel.h"

/* |w| as an integer that orders like it, all NaN above Inf and equal. */
static uint32_t rank_of(const void *w, int64_t i, s24_dtype dtype)
{
    const s24i_element e = s24i_element_of(dtype);
    uint32_t bits = s24i_element_bits(w, e.bytes, i);
    if (dtype == S24_I8) return (uint32_t)(bits < 128 ? bits : 256 - bits);
    bits &= e.magnitude;
    return bits > e.nonfinite ? e.nonfinite + 1 : bits;
}

/* The two largest of the group at i as first < second; of equals the higher column. */
static void pick(int *first, int *second, const void *w, int64_t i, s24_dtype dtype)
{
    int best = 0, next = -1;
    for (int j = 1; j < 4; j++) {
        const uint32_t rank = rank_of(w, i + j, dtype);
        if (rank >= rank_of(w, i + best, dtype)) {
            next = best;
            best = j;
        } else if (next < 0 || rank >= rank_of(w, i + next, dtype)) {
            next = j;
        }
    }
    *first = best < next ? best : next;
    *second = best < next ? next : best;
}

static void mask(uint8_t *out, const void *w, int64_t count, s24_dtype dtype)
{
    for (int64_t i = 0; i < count; i += 4) {
        int first, second;
        pick(&first, &second, w, i, dtype);
        for (int j = 0; j < 4; j++)
            out[i + j] = j == first || j == second;
    }
}

static int prune_pack(void *values, uint8_t *indices, const void *w, int64_t count, s24_dtype dtype)
{
    const s24i_element e = s24i_element_of(dtype);
    int finite = 1;
    memset(indices, 0, (size_t)((count + 7) / 8));
    for (int64_t g = 0; g < count / 4; g++) {
        int first, second;
        pick(&first, &second, w, 4 * g, dtype);
        s24i_element_put(values, e.bytes, 2 * g, s24i_element_bits(w, e.bytes, 4 * g + first));
        s24i_element_put(values, e.bytes, 2 * g + 1, s24i_element_bits(w, e.bytes, 4 * g + second));
        indices[g >> 1] |= (uint8_t)((first | second << 2) << ((g & 1) * 4));
        for (int j = 0; j < 4; j++)
            finite &= rank_of(w, 4 * g + j, dtype) < e.nonfinite;
    }
    return finite;
}

#define REFERENCE(dtype_, DTYPE)                                                                   \
    static void mask_##dtype_(uint8_t *out, const void *w, int64_t count)                          \
    {                                                                                              \
        mask(out, w, count, DTYPE);                                                                \
    }                                                                                              \
    static int prune_pack_##dtype_(void *values, uint8_t *indices, const void *w, int64_t count)   \
    {                                                                                              \
        return prune_pack(values, indices, w, count, DTYPE);                                       \
    }                                                                                              \
    const s24i_select_kernel s24i_select_##dtype_##_ref = {                                        \
        .name = "select_" #dtype_ "_ref",                                                          \
        .dtype = DTYPE,                                                                            \
        .cpu = S24_CPU_BASELINE,                                                                   \
        .rank = 0,                                                                                 \
        .mask = mask_##dtype_,                                                                     \
        .prune_pack = prune_pack_##dtype_,                                                         \
    };

REFERENCE(f32, S24_F32)
REFERENCE(f16, S24_F16)
REFERENCE(bf16, S24_BF16)
REFERENCE(i8, S24_I8)
REFERENCE(e4m3, S24_E4M3)
REFERENCE(e5m2, S24_E5M2)
