// SPDX-License-Identifier: Apache-2.0
/*
 * The 2:4 linear on int8 with dot products of four bytes: for each token and eight columns of 16
 * rows one broadcast of its bytes, one shuffle that picks the four that a row keeps, one vpdpbusd.
 * The indices of the shuffle are made from the codes once for all tokens of the tile, or for all
 * there are (linear_i8_many_avx512.h).
 *
 * vpdpbusd takes one operand unsigned: x is stored as q + 128, and sums begin at -128·Σw. They wrap
 * on the way and are exact at the end.
 */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/cpu/x86/avx512.h"

#define TARGET                                                                                     \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,fma")))
#define TARGET_INLINE TARGET __attribute__((always_inline)) static inline

enum {
    X_OFFSET = 128,
    MAX_TOKENS = 24, /* of a tile of few tokens: sums in registers, the rest for temporaries */
    TOGETHER = 2     /* row blocks of a tile of many tokens */
};

#include "kernel/cpu/linear_i8_driver.h"

/* ---- quantisation ---------------------------------------------------------------------------- */

/* 16 columns of a token from k on; `whole`: all are there, and together. */
TARGET_INLINE __m512 token_columns(const s24i_linear_job *job, s24_dtype dtype, int whole,
                                   int64_t m, int64_t k)
{
    const void *x =
        element_of(job->x, dtype, m * job->x_stride_m + k * (whole ? 1 : job->x_stride_k));
    if (!whole) return load_lanes(x, dtype, job->x_stride_k, lane_mask(job->k - k));
    return dtype == S24_F32 ? _mm512_loadu_ps(x)
                            : widen_bf16(_mm256_loadu_si256((const __m256i *)x));
}

TARGET_INLINE uint32_t largest_magnitude(const s24i_linear_job *job, s24_dtype dtype, int64_t whole,
                                         int64_t m)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i largest[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        largest[i] = _mm512_setzero_si512();
    }
    for (int64_t k = 0; k < job->k; k += 64) {
        UNROLL for (int i = 0; i < 4; i++)
        {
            const __m512 x = token_columns(job, dtype, k < whole, m, k + 16 * i);
            largest[i] =
                _mm512_max_epu32(largest[i], _mm512_and_si512(_mm512_castps_si512(x), magnitude));
        }
    }
    return _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_max_epu32(largest[0], largest[1]),
                                                    _mm512_max_epu32(largest[2], largest[3])));
}

/* 64 columns as bytes. The packing instructions work within 128 bits, so that four vectors of 16
   come out as a 4 x 4 square of groups, turned. */
TARGET_INLINE __m512i quantise_64(const s24i_linear_job *job, s24_dtype dtype, int whole, int64_t m,
                                  int64_t k, __m512 inverse)
{
    const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i q[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        const __m512 x = token_columns(job, dtype, whole, m, k + 16 * i);
        q[i] = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
    }
    const __m512i bytes =
        _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
    return _mm512_xor_si512(_mm512_permutexvar_epi32(turn, bytes),
                            _mm512_set1_epi8((char)X_OFFSET));
}

TARGET_INLINE void quantise_as(s24_dtype dtype, const s24i_linear_job *job, int64_t m, uint8_t *to,
                               int64_t step, float *scale)
{
    const int64_t whole = job->x_stride_k == 1 ? job->k / 64 * 64 : 0;
    _Alignas(64) uint64_t eights[8];
    float inverse;
    *scale = i8_token_scale(largest_magnitude(job, dtype, whole, m), &inverse);
    for (int64_t k = 0; k < whole; k += 64) {
        const char *next = element_of(job->x, dtype, (m + 1) * job->x_stride_m + k);
        for (int i = 0; i < (dtype == S24_F32 ? 4 : 2); i++)
            _mm_prefetch(next + 64 * i, _MM_HINT_T0);
        _mm512_store_si512(eights, quantise_64(job, dtype, 1, m, k, _mm512_set1_ps(inverse)));
        UNROLL for (int i = 0; i < 8; i++)
        {
            memcpy(to + i * step, eights + i, 8);
        }
        to += 8 * step;
    }
    for (int64_t k = whole; k < job->k; k += 64) {
        const int64_t eight_count = rows16_k_blocks(job->k - k) * (COLUMNS / 8);
        _mm512_store_si512(eights, quantise_64(job, dtype, 0, m, k, _mm512_set1_ps(inverse)));
        for (int64_t i = 0; i < 8 && i < eight_count; i++, to += step)
            memcpy(to, eights + i, 8);
    }
}

TARGET static void quantise_token(const s24i_linear_job *job, int64_t m, uint8_t *to, int64_t step,
                                  float *scale)
{
    if (job->x_dtype == S24_F32)
        quantise_as(S24_F32, job, m, to, step, scale);
    else
        quantise_as(S24_BF16, job, m, to, step, scale);
}

/* ---- few tokens: the tile -------------------------------------------------------------------------------- */

/* Of each lane's two groups in a byte: where the bytes of the result begin, in bits. */
#define FIELDS 0x2624222006040200

/* From a byte of each lane's code, `from` bits up, the bytes of the shuffle for eight columns: its
   four fields of two bits, plus 4 for the second group's. */
TARGET_INLINE __m512i indices_of(__m512i code, long long from)
{
    const __m512i fields = _mm512_set1_epi64(FIELDS + from * 0x0101010101010101);
    return _mm512_ternarylogic_epi32(_mm512_multishift_epi64_epi8(fields, code),
                                     _mm512_set1_epi32(0x03030303), _mm512_set1_epi32(0x04040000),
                                     0xea); /* (a & b) | c */
}

/* The same times eight: what vpmultishiftqb takes for it. Beginning three bits before a lane, the
   first field has another lane's bits below it, which the mask takes away. */
TARGET_INLINE __m512i shifts_of(__m512i code, long long from)
{
    const __m512i fields = _mm512_set1_epi64(
        ((FIELDS + from * 0x0101010101010101) | 0x4040404040404040) - 0x0303030303030303);
    return _mm512_ternarylogic_epi32(_mm512_multishift_epi64_epi8(fields, code),
                                     _mm512_set1_epi32(0x18181818), _mm512_set1_epi32(0x20200000),
                                     0xea);
}

/* The indices are made eight columns before their use: their latency is not hidden otherwise. */
#define TILE(T_)                                                                                   \
    TARGET static void tile_##T_(const uint8_t *w, int64_t k_blocks, const uint8_t *x,             \
                                 const uint8_t *y, int64_t y_step, int32_t(*sums)[ROWS])           \
    {                                                                                              \
        enum { T = T_ };                                                                           \
        const __m512i start = _mm512_load_si512(w + 64);                                           \
        __m512i acc[T];                                                                            \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            acc[t] = start;                                                                        \
        }                                                                                          \
        w += ROW_HEAD;                                                                             \
        __m512i code = _mm512_load_si512(w), pick = indices_of(code, 0);                           \
        int64_t left = T;                                                                          \
        for (; k_blocks > 0; k_blocks--) {                                                         \
            PREFETCH_TO_WRITE(y);                                                                  \
            y += --left > 0 ? y_step : 0;                                                          \
            _mm_prefetch((const char *)w + AHEAD, T == 1 ? _MM_HINT_T0 : _MM_HINT_NTA);            \
            w += CODES;                                                                            \
            UNROLL for (int q = 0; q < 4; q++)                                                     \
            {                                                                                      \
                const __m512i quads = _mm512_load_si512(w);                                        \
                w += 64;                                                                           \
                code = q < 3           ? _mm512_srli_epi32(code, 8)                                \
                       : k_blocks == 1 ? code                                                      \
                                       : _mm512_load_si512(w);                                     \
                const __m512i next = indices_of(code, 0);                                          \
                _mm_prefetch((const char *)w + AHEAD, T == 1 ? _MM_HINT_T0 : _MM_HINT_NTA);        \
                UNROLL for (int t = 0; t < T; t++)                                                 \
                {                                                                                  \
                    long long eight;                                                               \
                    memcpy(&eight, x + 8 * t, 8);                                                  \
                    acc[t] = _mm512_dpbusd_epi32(                                                  \
                        acc[t], _mm512_shuffle_epi8(_mm512_set1_epi64(eight), pick), quads);       \
                }                                                                                  \
                x += 8 * T;                                                                        \
                pick = next;                                                                       \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            _mm512_store_si512(sums[t], acc[t]);                                                   \
        }                                                                                          \
    }

TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)
TILE(13)
TILE(14)
TILE(15)
TILE(16)
TILE(17)
TILE(18)
TILE(19)
TILE(20)
TILE(21)
TILE(22)
TILE(23)
TILE(24)

static void (*const lane_tiles[MAX_TOKENS + 1])(const uint8_t *, int64_t, const uint8_t *,
                                                const uint8_t *, int64_t, int32_t (*)[ROWS]) = {
    NULL,    tile_1,  tile_2,  tile_3,  tile_4,  tile_5,  tile_6,  tile_7,  tile_8,
    tile_9,  tile_10, tile_11, tile_12, tile_13, tile_14, tile_15, tile_16, tile_17,
    tile_18, tile_19, tile_20, tile_21, tile_22, tile_23, tile_24};

static void run_tile(int64_t tokens, const uint8_t *w, int64_t k_blocks, const uint8_t *x,
                     const uint8_t *y, int64_t y_step, int32_t (*sums)[ROWS])
{
    lane_tiles[tokens](w, k_blocks, x, y, y_step, sums);
}

/* ---- the epilogue ---------------------------------------------------------------------------- */

/* Outputs n and on of row block w, whose sums for a token lie `pitch` after those of the one before. */
TARGET static void finish_block(const s24i_linear_job *job, int64_t m, int64_t tokens, int64_t n,
                                const uint8_t *w, const float *scales, const int32_t *sums,
                                int64_t pitch)
{
    const __mmask16 mask = lane_mask(job->n - n);
    const int plain = !job->gate && !(job->residual && job->beta != 0) && mask == 0xffff &&
                      job->activation == S24_ACTIVATION_NONE && job->y_stride_n == 1;
    const __m512 w_scales = _mm512_load_ps(w), alpha = _mm512_set1_ps(job->alpha);
    const __m512 bias =
        job->bias ? _mm512_maskz_loadu_ps(mask, job->bias + n) : _mm512_setzero_ps();
    for (int64_t t = 0; t < tokens; t++) {
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + t * pitch));
        const __m512 v = _mm512_mul_ps(_mm512_mul_ps(sum, w_scales), _mm512_set1_ps(scales[t]));
        if (plain)
            store_outputs(element_to(job->y, job->y_dtype, (m + t) * job->y_stride_m + n),
                          job->y_dtype, 0xffff, _mm512_fmadd_ps(v, alpha, bias));
        else
            finish(job, m + t, n, 1, mask, v, bias);
    }
}

TARGET static void finish_tile(const s24i_linear_job *job, int64_t m, int64_t tokens, int64_t n,
                               const uint8_t *w, const float *scales, int32_t (*sums)[ROWS])
{
    finish_block(job, m, tokens, n, w, scales, sums[0], ROWS);
}

#include "kernel/cpu/x86/linear_i8_many_avx512.h"

/* ---- the row's entries ----------------------------------------------------------------------- */

static size_t row_work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    const int64_t way = way_of(m, n, threads);
    if (m <= MAX_TOKENS) return lanes_work_bytes(m, n, k, threads);
    if (way == COMMON_TOKENS) return token_bytes(m, k) + (size_t)threads * OWN_BYTES;
    return (size_t)threads * part_bytes(way == ALL_TOKENS ? m : (m + threads - 1) / threads, k);
}

static void run_row(const s24i_linear_job *job)
{
    const s24i_parallel *parallel = &job->parallel;
    const int way = way_of(job->m, job->n, parallel->threads);
    s24i_linear_job copy = *job;
    if (job->m <= MAX_TOKENS) {
        lanes_job(job);
        return;
    }
    if (way == OWN_TOKENS) {
        parallel->run(parallel->pool, parallel->threads, wide_own_tokens, &copy);
        return;
    }
    wide_run r = wide_of(job, job->work);
    if (way == COMMON_TOKENS) {
        parallel->run(parallel->pool, job->m, lanes_quantise, &r.all);
        parallel->run(parallel->pool, units_of(&r), wide_product, &r);
    } else {
        parallel->run(parallel->pool, units_of(&r), wide_all_tokens, &copy);
    }
}

const s24i_linear_kernel s24i_linear_i8_avx512vnni = {
    .name = "linear_i8_avx512vnni",
    .dtype = S24_I8,
    .bits = 8,
    .activations = S24_I8,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI,
    .rank = 20,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = row_work_bytes,
    .run = run_row,
};
#endif
