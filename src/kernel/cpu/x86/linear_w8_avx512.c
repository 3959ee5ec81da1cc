// SPDX-License-Identifier: Apache-2.0
/*
 * The linear of linear_quant_avx512.h for 8-bit integers. A k block's values are slots [16] of 16
 * rows, a byte each. For few tokens x is f32: each group is broadcast as four floats, vpermilps picks
 * by the code bits, integers are widened exactly.
 */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include <string.h>

#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

enum {
    VALUES = SLOTS * ROWS,
    AHEAD = 4096 /* bytes from the weights that are used to those asked for */
};
#define FEW_M(job) 8

static inline void put_value(uint8_t *values, int64_t lane, int64_t group, int64_t slot, int8_t q)
{
    values[(2 * group + slot) * ROWS + lane] = (uint8_t)q;
}

/* The tokens as rows of f32, padded to whole k blocks. */
static inline size_t few_bytes(int64_t m, int64_t k_blocks)
{
    return (size_t)(m * k_blocks * COLUMNS) * sizeof(float);
}

#include "kernel/cpu/x86/linear_quant_avx512.h"

AVX512_INLINE __m512 integers(const uint8_t *p)
{
    const __m128i bytes = _mm_load_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

AVX512_INLINE void widen_values(float *to, const uint8_t *from, __m512 scale)
{
    for (int s = 0; s < SLOTS; s++) {
        _mm_prefetch((const char *)from + 4 * QUANT_BLOCK + s * ROWS, _MM_HINT_T0);
        _mm512_store_ps(to + s * ROWS, _mm512_mul_ps(integers(from + s * ROWS), scale));
    }
}

AVX512 static void prepare_few(void *work, const s24i_linear_job *job)
{
    const int64_t padded = rows16_k_blocks(job->k) * COLUMNS, step = job->x_stride_k;
    float *to = work;
    for (int64_t m = 0; m < job->m; m++, to += padded)
        for (int64_t k = 0; k < padded; k += 16) {
            const void *x = element_of(job->x, job->x_dtype, m * job->x_stride_m + k * step);
            _mm512_store_ps(to + k, load_lanes(x, job->x_dtype, step, lane_mask(job->k - k)));
        }
}

#define FEW(T_)                                                                                    \
    AVX512 static void few_##T_(const s24i_linear_job *job, const layout *l, const uint8_t *w,     \
                                float *sums)                                                       \
    {                                                                                              \
        enum { T = T_, S = T < 3 ? 2 : 1 };                                                        \
        const float *x = job->work;                                                                \
        const int64_t stride = l->k_blocks * COLUMNS;                                              \
        const uint8_t *next = w + l->head;                                                         \
        for (int64_t q = 0; q < l->k_blocks; q += l->per_segment) {                                \
            const int64_t rest = l->k_blocks - q;                                                  \
            const int64_t here = rest < l->per_segment ? rest : l->per_segment;                    \
            for (int64_t quarter = 0; quarter < QUARTERS; quarter++) {                             \
                const float *scales =                                                              \
                    (const float *)(const void *)(l->head ? w + quarter * SCALES : next);          \
                float *sum = sums + quarter * T * ROWS;                                            \
                __m512 acc[T][S];                                                                  \
                UNROLL for (int t = 0; t < T; t++)                                                 \
                {                                                                                  \
                    acc[t][0] = _mm512_setzero_ps(), acc[t][S - 1] = acc[t][0];                    \
                }                                                                                  \
                next += l->segment_head;                                                           \
                for (int64_t i = 0; i < here; i++, next += QUANT_BLOCK) {                          \
                    __m512i code = _mm512_load_si512(next);                                        \
                    UNROLL for (int p = 0; p < QUANT_BLOCK; p += 64)                               \
                    {                                                                              \
                        _mm_prefetch((const char *)next + AHEAD + p, _MM_HINT_T0);                 \
                    }                                                                              \
                    UNROLL for (int g = 0; g < GROUPS; g++)                                        \
                    {                                                                              \
                        const __m512i high = _mm512_srli_epi32(code, 2);                           \
                        const __m512 w0 = integers(next + CODES + 2 * g * ROWS);                   \
                        const __m512 w1 = integers(next + CODES + (2 * g + 1) * ROWS);             \
                        UNROLL for (int t = 0; t < T; t++)                                         \
                        {                                                                          \
                            const __m512 four = _mm512_broadcast_f32x4(                            \
                                _mm_load_ps(x + t * stride + (q + i) * COLUMNS + 4 * g));          \
                            acc[t][0] =                                                            \
                                _mm512_fmadd_ps(_mm512_permutevar_ps(four, code), w0, acc[t][0]);  \
                            acc[t][S - 1] = _mm512_fmadd_ps(_mm512_permutevar_ps(four, high), w1,  \
                                                            acc[t][S - 1]);                        \
                        }                                                                          \
                        code = _mm512_srli_epi32(code, 4);                                         \
                    }                                                                              \
                }                                                                                  \
                const __m512 scale = _mm512_load_ps(scales);                                       \
                UNROLL for (int t = 0; t < T; t++)                                                 \
                {                                                                                  \
                    const __m512 before =                                                          \
                        q ? _mm512_load_ps(sum + t * ROWS) : _mm512_setzero_ps();                  \
                    const __m512 part =                                                            \
                        S == 2 ? _mm512_add_ps(acc[t][0], acc[t][S - 1]) : acc[t][0];              \
                    _mm512_store_ps(sum + t * ROWS, _mm512_fmadd_ps(part, scale, before));         \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

FEW(1)
FEW(2)
FEW(3)
FEW(4)
FEW(5)
FEW(6)
FEW(7)
FEW(8)

static void few(const s24i_linear_job *job, const layout *l, const uint8_t *w, float *sums)
{
    static void (*const by_tokens[FEW_MOST + 1])(const s24i_linear_job *, const layout *,
                                                 const uint8_t *, float *) = {
        NULL, few_1, few_2, few_3, few_4, few_5, few_6, few_7, few_8};
    by_tokens[job->m](job, l, w, sums);
}

const s24i_linear_kernel s24i_linear_w8_avx512 = {
    .name = "linear_w8_avx512",
    .dtype = S24_I8,
    .bits = 8,
    .cpu = S24_CPU_AVX512,
    .rank = 20,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = quant_work_bytes,
    .run = run_quant,
};
#endif
