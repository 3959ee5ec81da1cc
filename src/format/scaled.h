// SPDX-License-Identifier: Apache-2.0
/*
 * Where things lie in the layouts of integers with scales (docs/format.md, section 4): a row block
 * of `quarters` times 16 rows is one sequential stream,
 *
 *   if a row has one scale: quarters x float scales[16]
 *   a run of segments of 128 columns (64 where a scale serves 64), each quarters times, for 16
 *     rows, if scales serve groups: float scales[16]
 *     k blocks of 32 columns: uint32 codes[16], then 32 bytes of integers for each bit of them
 */
#ifndef S24_FORMAT_SCALED_H
#define S24_FORMAT_SCALED_H

#include "format/format.h"

enum { S24I_SCALES = S24I_ROWS16 * (int)sizeof(float) }; /* bytes of 16 rows' */

typedef struct s24i_scaled {
    int64_t quarters, block;       /* bytes of a k block */
    int64_t k_blocks, per_segment; /* k blocks */
    int64_t head;                  /* bytes of scales before the segments */
    int64_t segment_head;          /* and before the k blocks of a segment's 16 rows */
    int64_t bytes;                 /* of a row block */
} s24i_scaled;

static inline s24i_scaled s24i_scaled_of(int64_t quarters, int bits, int64_t k, int64_t group)
{
    s24i_scaled l = {.quarters = quarters,
                     .block = S24I_ROWS16_CODES + 32 * bits,
                     .k_blocks = (k + S24I_ROWS16_COLUMNS - 1) / S24I_ROWS16_COLUMNS,
                     .per_segment = group == 64 && k > 64 ? 2 : 4};
    const int64_t segments = (l.k_blocks + l.per_segment - 1) / l.per_segment;
    l.head = group >= k ? quarters * S24I_SCALES : 0;
    l.segment_head = group >= k ? 0 : S24I_SCALES;
    l.bytes = l.head + quarters * (segments * l.segment_head + l.k_blocks * l.block);
    return l;
}

/* Where a quarter's part of the segment of k block q begins. */
static inline int64_t s24i_scaled_segment(const s24i_scaled *l, int64_t quarter, int64_t q)
{
    const int64_t first = q / l->per_segment * l->per_segment, rest = l->k_blocks - first;
    const int64_t here = rest < l->per_segment ? rest : l->per_segment;
    return l->head + l->quarters * (q / l->per_segment * l->segment_head + first * l->block) +
           quarter * (l->segment_head + here * l->block);
}

/* The scales of 16 rows that serve k block q, and that k block. */
static inline int64_t s24i_scaled_scales(const s24i_scaled *l, int64_t quarter, int64_t q)
{
    return l->head ? quarter * S24I_SCALES : s24i_scaled_segment(l, quarter, q);
}

static inline int64_t s24i_scaled_block(const s24i_scaled *l, int64_t quarter, int64_t q)
{
    return s24i_scaled_segment(l, quarter, q) + l->segment_head + q % l->per_segment * l->block;
}

/* Row blocks of integers from and to the canonical form, and what is wrong with one. */
void s24i_scaled_pack(const s24i_layout *layout, uint8_t *block, const s24i_rows *of);
void s24i_scaled_unpack(const s24i_layout *layout, const s24i_rows *to, const uint8_t *block);
s24i_layout_fault s24i_scaled_find_fault(s24i_find *find, const s24i_layout *layout,
                                         const uint8_t *block, int64_t rows, int64_t k);

#endif
