// SPDX-License-Identifier: Apache-2.0
/*
 * The linear of linear_quant_avx512.h for 4-bit integers. A k block's values are two vectors, for
 * four groups each: of a row's dword, the low word has the groups' first values and the high word
 * their second ones, group j at bits 4j.
 *
 * What a group of 16 rows costs decides here (26 bytes of the stream, 2.8 cycles at 37 GB/s), so a
 * group's two values meet their two columns in one vdpbf16ps: vpermw makes integers bf16, which is
 * exact, and vpermd picks the columns from a table of the group's sixteen pairs by the code bits;
 * both ignore the bits above theirs, so that two shifts are all the decoding. f32 x is the sum of
 * two bf16, the second rounded: off by 2^-17 of x at most. The tables of a segment stay in L1 for its
 * 64 rows.
 */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include <string.h>

#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

enum {
    VALUES = 2 * ROWS * 4,
    TABLE = 64,    /* bytes of a group's pairs */
    AHEAD = 12288, /* bytes from the weights that are used to those that L2 is asked for, */
    NEAR = 1024    /* and L1: lines on their way from memory would keep the tables' waiting */
};
#define FEW_M(job)  ((job)->x_dtype == S24_F32 ? 4 : 8)
#define TARGET_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

static inline void put_value(uint8_t *values, int64_t lane, int64_t group, int64_t slot, int8_t q)
{
    uint8_t *byte = values + group / 4 * 64 + lane * 4 + 2 * slot + group % 4 / 2;
    *byte = (uint8_t)(*byte | (q & 15) << 4 * (group & 1));
}

/* Tables: group, token, part of x. */
static inline size_t few_bytes(int64_t m, int64_t k_blocks)
{
    return (size_t)(m * k_blocks * GROUPS) * 2 * TABLE;
}

#include "kernel/cpu/x86/linear_quant_avx512.h"

AVX512_INLINE void widen_values(float *to, const uint8_t *from, __m512 scale)
{
    const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    for (int h = 0; h < 2; h++) {
        const __m512i v = _mm512_load_si512(from + 64 * h);
        _mm_prefetch((const char *)from + 4 * QUANT_BLOCK + 64 * h, _MM_HINT_T0);
        UNROLL for (int j = 0; j < 8; j++)
        {
            const __m512 q = _mm512_permutexvar_ps(
                _mm512_srli_epi32(v, (unsigned)(16 * (j & 1) + j / 2 * 4)), table);
            _mm512_store_ps(to + (8 * h + j) * ROWS, _mm512_mul_ps(q, scale));
        }
    }
}

/* ---- tables of x ----------------------------------------------------------------------------- */

/* Four groups' tables, `step` bytes apart, from 16 columns in bf16. */
AVX512_INLINE void put_tables(uint8_t *to, int64_t step, __m256i columns)
{
    /* Entry code = first | second << 2: the words of both. */
    const __m512i pairs =
        _mm512_setr_epi32(0x00000, 0x00001, 0x00002, 0x00003, 0x10000, 0x10001, 0x10002, 0x10003,
                          0x20000, 0x20001, 0x20002, 0x20003, 0x30000, 0x30001, 0x30002, 0x30003);
    const __m512i wide = _mm512_castsi256_si512(columns);
    UNROLL for (int g = 0; g < 4; g++)
    {
        const __m512i at = _mm512_add_epi16(pairs, _mm512_set1_epi16((short)(4 * g)));
        _mm512_store_si512(to + g * step, _mm512_permutexvar_epi16(at, wide));
    }
}

/* x in two parts: bf16 to nearest, but towards zero where that would be Inf, and what is left. */
AVX512_INLINE void split(__m256i parts[2], __m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512 nearest = widen_bf16(narrow_bf16(x));
    const __m512 cut =
        _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)));
    const __mmask16 finite = (__mmask16)~_mm512_fpclass_ps_mask(x, 0x99);
    const __mmask16 over = _mm512_mask_fpclass_ps_mask(finite, nearest, 0x18);
    const __m512 high = _mm512_mask_blend_ps(over, nearest, cut);
    parts[0] = narrow_bf16(high);
    parts[1] = narrow_bf16(_mm512_maskz_sub_ps(finite, x, high));
}

AVX512 static void prepare_few(void *work, const s24i_linear_job *job)
{
    const int parts = job->x_dtype == S24_F32 ? 2 : 1;
    const int64_t padded = rows16_k_blocks(job->k) * COLUMNS, sk = job->x_stride_k;
    const int64_t step = job->m * parts * TABLE;
    for (int64_t m = 0; m < job->m; m++)
        for (int64_t k = 0; k < padded; k += 16) {
            const void *x = element_of(job->x, job->x_dtype, m * job->x_stride_m + k * sk);
            uint8_t *to = (uint8_t *)work + k / 4 * step + m * parts * TABLE;
            __m256i columns[2];
            split(columns, load_lanes(x, job->x_dtype, sk, lane_mask(job->k - k)));
            for (int p = 0; p < parts; p++)
                put_tables(to + p * TABLE, step, columns[p]);
        }
}

/* ---- 64 rows --------------------------------------------------------------------------------- */

/* V tables a group: tokens times parts. Part v of a group goes to sum v, one of S for each. */
#define FEW(V_, P_)                                                                                \
    TARGET_BF16 static void few_##V_##_##P_(const s24i_linear_job *job, const layout *l,           \
                                            const uint8_t *w, float *sums)                         \
    {                                                                                              \
        enum { V = V_, P = P_, T = V / P, S = V < 3 ? 4 : V < 5 ? 2 : 1 };                         \
        const __m512i values = bf16_of_nibbles();                                                  \
        const uint8_t *next = w + l->head, *tables = job->work;                                    \
        for (int64_t q = 0; q < l->k_blocks; q += l->per_segment) {                                \
            const int64_t rest = l->k_blocks - q;                                                  \
            const int64_t here = rest < l->per_segment ? rest : l->per_segment;                    \
            for (int64_t quarter = 0; quarter < QUARTERS; quarter++) {                             \
                const float *scales =                                                              \
                    (const float *)(const void *)(l->head ? w + quarter * SCALES : next);          \
                const uint8_t *table = tables + q * GROUPS * V * TABLE;                            \
                float *sum = sums + quarter * T * ROWS;                                            \
                __m512 acc[V][S];                                                                  \
                UNROLL for (int v = 0; v < V; v++)                                                 \
                {                                                                                  \
                    UNROLL for (int s = 0; s < S; s++)                                             \
                    {                                                                              \
                        acc[v][s] = _mm512_setzero_ps();                                           \
                    }                                                                              \
                }                                                                                  \
                next += l->segment_head;                                                           \
                for (int64_t i = 0; i < here; i++, next += QUANT_BLOCK) {                          \
                    const __m512i code = _mm512_load_si512(next);                                  \
                    UNROLL for (int p = 0; p < QUANT_BLOCK; p += 64)                               \
                    {                                                                              \
                        _mm_prefetch((const char *)next + AHEAD + p, _MM_HINT_T1);                 \
                        _mm_prefetch((const char *)next + NEAR + p, _MM_HINT_T0);                  \
                    }                                                                              \
                    UNROLL for (int g = 0; g < GROUPS; g++)                                        \
                    {                                                                              \
                        const __m512i nibbles = _mm512_load_si512(next + CODES + g / 4 * 64);      \
                        const __m512bh pair = (__m512bh)_mm512_permutexvar_epi16(                  \
                            _mm512_srli_epi32(nibbles, (unsigned)(g % 4 * 4)), values);            \
                        const __m512i pick = _mm512_srli_epi32(code, (unsigned)(4 * g));           \
                        UNROLL for (int v = 0; v < V; v++, table += TABLE)                         \
                        {                                                                          \
                            const __m512i x =                                                      \
                                _mm512_permutexvar_epi32(pick, _mm512_load_si512(table));          \
                            acc[v][g % S] = _mm512_dpbf16_ps(acc[v][g % S], (__m512bh)x, pair);    \
                        }                                                                          \
                    }                                                                              \
                }                                                                                  \
                const __m512 scale = _mm512_load_ps(scales);                                       \
                UNROLL for (int t = 0; t < T; t++)                                                 \
                {                                                                                  \
                    __m512 part = _mm512_setzero_ps();                                             \
                    UNROLL for (int v = t * P; v < (t + 1) * P; v++)                               \
                    {                                                                              \
                        UNROLL for (int s = 0; s < S; s++)                                         \
                        {                                                                          \
                            part = _mm512_add_ps(part, acc[v][s]);                                 \
                        }                                                                          \
                    }                                                                              \
                    const __m512 before =                                                          \
                        q ? _mm512_load_ps(sum + t * ROWS) : _mm512_setzero_ps();                  \
                    _mm512_store_ps(sum + t * ROWS, _mm512_fmadd_ps(part, scale, before));         \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

/* Word i is the bf16 of the integer that a nibble of i's low four bits is. */
AVX512_INLINE __m512i bf16_of_nibbles(void)
{
    static const float integers[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
    const __m256i narrow = narrow_bf16(_mm512_loadu_ps(integers));
    return _mm512_inserti64x4(_mm512_castsi256_si512(narrow), narrow, 1);
}

FEW(1, 1)
FEW(2, 1)
FEW(3, 1)
FEW(4, 1)
FEW(5, 1)
FEW(6, 1)
FEW(7, 1)
FEW(8, 1)
FEW(2, 2)
FEW(4, 2)
FEW(6, 2)
FEW(8, 2)

static void few(const s24i_linear_job *job, const layout *l, const uint8_t *w, float *sums)
{
    typedef void rows64(const s24i_linear_job *, const layout *, const uint8_t *, float *);
    static rows64 *const one_part[FEW_MOST + 1] = {NULL,    few_1_1, few_2_1, few_3_1, few_4_1,
                                                   few_5_1, few_6_1, few_7_1, few_8_1};
    static rows64 *const two_parts[] = {NULL, few_2_2, few_4_2, few_6_2, few_8_2};
    (job->x_dtype == S24_F32 ? two_parts : one_part)[job->m](job, l, w, sums);
}

const s24i_linear_kernel s24i_linear_w4_avx512bf16 = {
    .name = "linear_w4_avx512bf16",
    .dtype = S24_I8,
    .bits = 4,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512BF16,
    .rank = 30,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = quant_work_bytes,
    .run = run_quant,
};
#endif
