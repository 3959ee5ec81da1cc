// SPDX-License-Identifier: Apache-2.0
/* Magnitude selection in scalar C: the specification that every other row is compared with. */
#include <string.h>

#include "kernel/kernel.h"

/* |w| as an integer that orders like it, all NaN above Inf and equal. */
static uint32_t rank_of(float w)
{
    uint32_t bits;
    memcpy(&bits, &w, sizeof bits);
    bits &= 0x7fffffffu;
    return bits > 0x7f800000u ? 0x7f800001u : bits;
}

/* The two largest of a group as first < second; of equals the higher column. */
static void pick(int *first, int *second, const float *group)
{
    int best = 0, next = -1;
    for (int i = 1; i < 4; i++) {
        if (rank_of(group[i]) >= rank_of(group[best])) {
            next = best;
            best = i;
        } else if (next < 0 || rank_of(group[i]) >= rank_of(group[next])) {
            next = i;
        }
    }
    *first = best < next ? best : next;
    *second = best < next ? next : best;
}

static void mask(uint8_t *out, const void *w, int64_t count)
{
    const float *values = w;
    for (int64_t i = 0; i < count; i += 4) {
        int first, second;
        pick(&first, &second, values + i);
        for (int j = 0; j < 4; j++)
            out[i + j] = j == first || j == second;
    }
}

static int prune_pack(void *values, uint8_t *indices, const void *w, int64_t k)
{
    const float *row = w;
    float *kept = values;
    int finite = 1;
    memset(indices, 0, (size_t)((k + 7) / 8));
    for (int64_t g = 0; g < k / 4; g++) {
        int first, second;
        pick(&first, &second, row + 4 * g);
        kept[2 * g] = row[4 * g + first];
        kept[2 * g + 1] = row[4 * g + second];
        indices[g >> 1] |= (uint8_t)((first | second << 2) << ((g & 1) * 4));
        for (int j = 0; j < 4; j++)
            finite &= rank_of(row[4 * g + j]) < 0x7f800000u;
    }
    return finite;
}

const s24i_select_kernel s24i_select_f32_ref = {
    .name = "select_f32_ref",
    .dtype = S24_F32,
    .cpu = S24_CPU_BASELINE,
    .rank = 0,
    .mask = mask,
    .prune_pack = prune_pack,
};
