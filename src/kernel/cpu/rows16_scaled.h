// SPDX-License-Identifier: Apache-2.0
/*
 * The weight layout of integers with scales: one sequential stream of scales, codes and values.
 *
 *   W [n, k]  ->  blocks of QUARTERS times 16 rows, each
 *     if a row has one scale: QUARTERS x float scales[16]
 *     a run of segments of 128 columns (64 where a scale serves 64), each QUARTERS times, for 16
 *       rows, if scales serve groups: float scales[16]
 *       k blocks of 32 columns: uint32 codes[16], those of rows16.h or what stored_codes() makes of
 *       them, then VALUES bytes that put_value() knows
 *
 * The including file defines QUARTERS, VALUES, stored_codes() and put_value().
 */
#ifndef S24_KERNEL_CPU_ROWS16_SCALED_H
#define S24_KERNEL_CPU_ROWS16_SCALED_H

#include "kernel/cpu/rows16.h"

enum { QUANT_BLOCK = CODES + VALUES, SCALES = ROWS * (int)sizeof(float) };

static inline void put_value(uint8_t *values, int64_t lane, int64_t group, int64_t slot, int8_t q);

/* Where things are, from a weight's k and group. */
typedef struct layout {
    int64_t k_blocks, per_segment; /* k blocks */
    int64_t head;                  /* bytes of scales before the segments */
    int64_t segment_head;          /* and before the k blocks of a segment's 16 rows */
    int64_t bytes;                 /* of QUARTERS times 16 rows */
} layout;

static inline layout layout_of(int64_t k, int64_t group)
{
    layout l = {.k_blocks = rows16_k_blocks(k), .per_segment = group == 64 && k > 64 ? 2 : 4};
    const int64_t segments = (l.k_blocks + l.per_segment - 1) / l.per_segment;
    l.head = group >= k ? QUARTERS * SCALES : 0;
    l.segment_head = group >= k ? 0 : SCALES;
    l.bytes = l.head + QUARTERS * (segments * l.segment_head + l.k_blocks * QUANT_BLOCK);
    return l;
}

/* The scales of 16 rows that serve k block q, and that k block. */
static inline int64_t scales_at(const layout *l, int64_t quarter, int64_t q)
{
    if (l->head) return quarter * SCALES;
    const int64_t first = q / l->per_segment * l->per_segment, rest = l->k_blocks - first;
    const int64_t here = rest < l->per_segment ? rest : l->per_segment;
    return QUARTERS * (q / l->per_segment * l->segment_head + first * QUANT_BLOCK) +
           quarter * (l->segment_head + here * QUANT_BLOCK);
}

static inline int64_t block_at(const layout *l, int64_t quarter, int64_t q)
{
    const int64_t first = q / l->per_segment * l->per_segment, rest = l->k_blocks - first;
    const int64_t here = rest < l->per_segment ? rest : l->per_segment;
    return l->head + QUARTERS * (q / l->per_segment * l->segment_head + first * QUANT_BLOCK) +
           quarter * (l->segment_head + here * QUANT_BLOCK) + l->segment_head +
           (q - first) * QUANT_BLOCK;
}

static inline int64_t quant_blocks(int64_t n)
{
    return (n + QUARTERS * ROWS - 1) / (QUARTERS * ROWS);
}

static size_t weight_bytes(const s24i_weight *from)
{
    const layout l = layout_of(from->k, from->group);
    return (size_t)(quant_blocks(from->n) * l.bytes);
}

static void pack_block_row(uint8_t *block, int64_t lane, const int8_t *values, const uint8_t *codes,
                           int64_t groups)
{
    uint8_t bytes[4] = {0x44, 0x44, 0x44, 0x44};
    uint32_t word;
    memcpy(bytes, codes, (size_t)((groups + 1) / 2));
    if (groups & 1) bytes[groups / 2] = (uint8_t)((bytes[groups / 2] & 0xf) | 0x40);
    memcpy(&word, bytes, sizeof word);
    word = stored_codes(word);
    memcpy(block + 4 * lane, &word, sizeof word);
    for (int64_t i = 0; i < 2 * groups; i++)
        put_value(block + CODES, lane, i / 2, i & 1, values[i]);
}

static void pack_row(uint8_t *w, const layout *l, const s24i_weight *from, int64_t row)
{
    const int64_t k = from->k, stride = (k + from->group - 1) / from->group;
    uint8_t *block = w + row / (QUARTERS * ROWS) * l->bytes;
    const int64_t quarter = row / ROWS % QUARTERS, lane = row % ROWS;
    for (int64_t q = 0; q < l->k_blocks; q++) {
        float *scales = (float *)(void *)(block + scales_at(l, quarter, q));
        const int64_t groups = (k - q * COLUMNS) / 4;
        scales[lane] = from->scales ? from->scales[row * stride + q * COLUMNS / from->group] : 1.0f;
        pack_block_row(block + block_at(l, quarter, q), lane,
                       (const int8_t *)from->values + row * (k / 2) + q * (COLUMNS / 2),
                       from->indices + row * ((k + 7) / 8) + q * (COLUMNS / 8),
                       groups < GROUPS ? groups : GROUPS);
    }
}

static void pack_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const packing *p = arg;
    const layout l = layout_of(p->from->k, p->from->group);
    (void)thread;
    memset((uint8_t *)p->w + begin * l.bytes, 0, (size_t)((end - begin) * l.bytes));
    for (int64_t row = begin * QUARTERS * ROWS; row < end * QUARTERS * ROWS; row++)
        if (row < p->from->n) pack_row(p->w, &l, p->from, row);
}

static void weight_pack(void *w, const s24i_weight *from)
{
    rows16_share(w, from, quant_blocks(from->n), pack_blocks);
}

#endif
