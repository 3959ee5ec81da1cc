// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4 in integers with scales, x in floats, AVX-512. One sequential stream of values,
 * codes and scales:
 *
 *   w [n, k]  ->  blocks of 64 rows, each
 *     if a row has one scale: 4 x float scales[16]
 *     a run of segments of 128 columns (64 where a scale serves 64), each four times, for 16 rows,
 *       if scales serve groups: float scales[16]
 *       k blocks of 32 columns: uint32 codes[16] as in rows16.h, then VALUES bytes that
 *       put_value() and the row's own file know
 *
 * Few tokens: rows in the lanes, every weight read once. A segment's inputs serve four times 16
 * rows out of the first cache. Sums of a segment are exact integers times x, then times the scale.
 * More: a pass's k blocks are widened to scale·integer in L1 for the tile of linear_avx512.h.
 *
 * The including file defines VALUES, put_value(), widen_values(), FEW_M(job), few_bytes(),
 * prepare_few() and few(); linear_avx512.h comes from here.
 */
#ifndef S24_KERNEL_X86_LINEAR_QUANT_AVX512_H
#define S24_KERNEL_X86_LINEAR_QUANT_AVX512_H

#define VALUE      1
#define OWN_LAYOUT 1
#define HAS_LANES  0
#include "kernel/cpu/linear_tile.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

enum {
    QUARTERS = 4, /* times 16 rows: one block of rows */
    QUANT_BLOCK = CODES + VALUES,
    SCALES = ROWS * (int)sizeof(float)
};

/* Where things are, from a weight's k and group. */
typedef struct layout {
    int64_t k_blocks, per_segment; /* k blocks */
    int64_t head;                  /* bytes of scales before the segments */
    int64_t segment_head;          /* and before the k blocks of a segment's 16 rows */
    int64_t bytes;                 /* of 64 rows */
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

/* The scales of 16 rows (of 64) that serve k block q, and that k block. */
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

/* ---- packing the weight ---------------------------------------------------------------------- */

static size_t weight_bytes(const s24i_weight *from)
{
    const layout l = layout_of(from->k, from->group);
    return (size_t)(quant_blocks(from->n) * l.bytes);
}

static void pack_block_row(uint8_t *block, int64_t lane, const int8_t *values, const uint8_t *codes,
                           int64_t groups)
{
    uint8_t word[4] = {0x44, 0x44, 0x44, 0x44};
    memcpy(word, codes, (size_t)((groups + 1) / 2));
    if (groups & 1) word[groups / 2] = (uint8_t)((word[groups / 2] & 0xf) | 0x40);
    memcpy(block + 4 * lane, word, sizeof word);
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

static void weight_pack(void *w, const s24i_weight *from)
{
    const layout l = layout_of(from->k, from->group);
    memset(w, 0, weight_bytes(from));
    for (int64_t row = 0; row < from->n; row++)
        pack_row(w, &l, from, row);
}

/* ---- many tokens ----------------------------------------------------------------------------- */

/* To 16 rows of 16 slots of f32, from VALUES bytes. */
AVX512_INLINE void widen_values(float *to, const uint8_t *from, __m512 scale);

AVX512 static void widen(uint8_t *block, tile *t, const s24i_linear_job *job, int64_t b, int64_t q)
{
    const layout l = layout_of(job->k, job->group);
    const uint8_t *w = (const uint8_t *)job->w + b / QUARTERS * l.bytes;
    uint8_t *to = block;
    for (int64_t i = 0; i < t->blocks; i++, q++, to += CODES + SLOTS * ROWS * 4) {
        const uint8_t *from = w + block_at(&l, b % QUARTERS, q);
        const __m512 scale =
            _mm512_load_ps((const float *)(const void *)(w + scales_at(&l, b % QUARTERS, q)));
        _mm512_store_si512(to, _mm512_load_si512(from));
        widen_values((float *)(void *)(to + CODES), from + CODES, scale);
    }
    t->w = block, t->ahead = 0;
}

#include "kernel/cpu/x86/linear_avx512.h"

/* ---- few tokens ------------------------------------------------------------------------------ */

/* The tokens in the form that few() reads, into few_bytes(m, k blocks) of work. */
static void prepare_few(void *work, const s24i_linear_job *job);
/* 64 rows: sums[quarter][token][16], before the epilogue. */
static void few(const s24i_linear_job *job, const layout *l, const uint8_t *w, float *sums);

enum { FEW_MOST = 8 };

AVX512 static void few_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const layout l = layout_of(job->k, job->group);
    _Alignas(64) float sums[QUARTERS * FEW_MOST * ROWS];
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        few(job, &l, (const uint8_t *)job->w + b * l.bytes, sums);
        for (int64_t quarter = 0; quarter < QUARTERS; quarter++) {
            const int64_t n = (b * QUARTERS + quarter) * ROWS;
            const __mmask16 mask = lane_mask(job->n - n);
            if (!mask) break;
            const __m512 bias =
                job->bias ? _mm512_maskz_loadu_ps(mask, job->bias + n) : _mm512_setzero_ps();
            for (int64_t m = 0; m < job->m; m++)
                finish(job, m, n, 1, mask, _mm512_load_ps(sums + (quarter * job->m + m) * ROWS),
                       bias);
        }
    }
}

static size_t quant_work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    const size_t few_tokens = few_bytes(m < FEW_MOST ? m : FEW_MOST, rows16_k_blocks(k));
    const size_t many = work_bytes(m, n, k, threads);
    return few_tokens > many ? few_tokens : many;
}

static void run_quant(const s24i_linear_job *job)
{
    s24i_linear_job copy = *job;
    if (job->m > FEW_M(job)) {
        run_job(job);
        return;
    }
    prepare_few(job->work, job);
    job->parallel.run(job->parallel.pool, quant_blocks(job->n), few_range, &copy);
}

#endif
