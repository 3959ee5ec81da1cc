// SPDX-License-Identifier: Apache-2.0
/*
 * Multiplies dense weights of 4 bits for few tokens, which no library here does: what 2:4 ones are
 * compared with. The same integers and scales with their zeros, x as integers of 24 bits in units
 * of a segment's largest, as src/kernel/cpu/x86/linear_quant_avx512vnni.h has it, without codes
 * and shuffles:
 *
 *   blocks of 16 rows, each a run of segments of 128 columns (64 where a scale serves 64)
 *     float scales[16]
 *     8 columns at a time: uint32 [16], byte j of a row: column j in the low four bits,
 *       column 4 + j in the high ones, as integer + 8
 *
 * vpdpbusd takes these bytes unsigned and x's three bytes, signed, spread from four columns; 8·Σx
 * is taken off a segment's sums, which are exact.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")))

enum { ROWS = 16, MOST = 8 /* tokens */, TOGETHER = 4 /* in a pass */, DIGITS = 3, AHEAD = 4096 };

typedef struct product {
    bench_problem problem;
    int64_t segment, segments; /* columns; of a row */
    uint8_t *w;
    int8_t *x;                /* eight columns: token, digit: these columns */
    float *x_scales, *x_sums; /* token, segment: the unit of x, 8·Σx in it */
    float *y;
} product;

static void *open_own(char *version, size_t bytes)
{
    snprintf(version, bytes, "%s", s24_version());
    return (s24_cpu_detect() & S24_CPU_AVX512VNNI) ? version : NULL;
}

static void close_own(void *library)
{
    (void)library;
}

static int64_t segment_bytes(const product *p)
{
    return ROWS * (int64_t)sizeof(float) + p->segment / 8 * 64;
}

static void pack_row(product *p, int64_t row)
{
    const bench_shape *s = &p->problem.shape;
    const s24_matrix *q = p->problem.quantized;
    const int64_t group = s24_matrix_group(q), groups = (s->k + group - 1) / group;
    uint8_t *to = p->w + row / ROWS * p->segments * segment_bytes(p);
    for (int64_t begin = 0; begin < s->k; begin += p->segment, to += segment_bytes(p)) {
        const float scale = s24_matrix_scales(q)[row * groups + begin / group];
        memcpy(to + row % ROWS * 4, &scale, sizeof scale);
        for (int64_t c = 0; c < p->segment; c++) {
            const float w = begin + c < s->k ? p->problem.w[row * s->k + begin + c] : 0;
            const int integer = scale > 0 ? (int)lrintf(w / scale) + 8 : 8;
            uint8_t *byte = to + 64 + c / 8 * 64 + row % ROWS * 4 + c % 4;
            *byte = (uint8_t)(*byte | integer << (c % 8 / 4 * 4));
        }
    }
}

static void release(void *opaque)
{
    product *p = opaque;
    free(p->w);
    free(p->x);
    free(p->x_scales);
    free(p);
}

static void *prepare(void *library, const bench_problem *problem)
{
    const bench_shape *s = &problem->shape;
    (void)library;
    if (!problem->quantized || s24_matrix_bits(problem->quantized) != 4 || s->m > MOST) return NULL;
    product *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->problem = *problem;
    p->segment = s24_matrix_group(problem->quantized) == 64 ? 64 : 128;
    p->segments = (s->k + p->segment - 1) / p->segment;
    const size_t blocks = (size_t)((s->n + ROWS - 1) / ROWS);
    const size_t bytes = blocks * (size_t)(p->segments * segment_bytes(p));
    const size_t units = (size_t)(s->m * p->segments);
    p->w = aligned_alloc(64, bytes);
    p->x = aligned_alloc(64, units * DIGITS * (size_t)p->segment);
    p->x_scales = malloc(2 * units * sizeof *p->x_scales);
    if (!p->w || !p->x || !p->x_scales) {
        release(p);
        return NULL;
    }
    p->x_sums = p->x_scales + units;
    memset(p->w, 0, bytes);
    for (int64_t row = 0; row < s->n; row++)
        pack_row(p, row);
    return p;
}

/* Quantises a segment of a token in units of 2^-22 of a power of two above its largest
   magnitude. */
static void prepare_segment(product *p, int64_t unit, const float *x, int64_t columns)
{
    float largest = 0;
    int64_t sum = 0;
    const int64_t m = p->problem.shape.m, token = unit / p->segments;
    const int64_t first = unit % p->segments * (p->segment / 8);
    for (int64_t c = 0; c < columns; c++)
        largest = fabsf(x[c]) > largest ? fabsf(x[c]) : largest;
    int exponent = 0;
    frexpf(largest, &exponent);
    const float scale = ldexpf(1, 22 - exponent);
    for (int64_t c = 0; c < p->segment; c++) {
        int rest = c < columns ? (int)lrintf(x[c] * scale) : 0;
        sum += rest;
        for (int d = 0; d < DIGITS; d++) {
            const int8_t digit = (int8_t)rest;
            p->x[((first + c / 8) * m + token) * DIGITS * 8 + d * 8 + c % 8] = digit;
            rest = (rest - digit) >> 8;
        }
    }
    p->x_scales[unit] = ldexpf(1, exponent - 22);
    p->x_sums[unit] = 8 * (float)sum;
}

typedef int32_t __attribute__((may_alias)) four; /* bytes */

/* Multiplies eight columns of T tokens; two sums for each of their bytes, so that none waits for
   itself. */
#define STEP(T)                                                                                    \
    UNROLL for (int t = 0; t < (T); t++)                                                           \
    {                                                                                              \
        UNROLL for (int d = 0; d < DIGITS; d++)                                                    \
        {                                                                                          \
            const four *at = (const four *)(const void *)(x + (t * DIGITS + d) * 8);               \
            sum[t][d][0] = _mm512_dpbusd_epi32(sum[t][d][0], first, _mm512_set1_epi32(at[0]));     \
            sum[t][d][1] = _mm512_dpbusd_epi32(sum[t][d][1], second, _mm512_set1_epi32(at[1]));    \
        }                                                                                          \
    }

#define BLOCK(T)                                                                                   \
    VNNI static void block_##T(const product *p, int64_t b, int64_t m)                             \
    {                                                                                              \
        const bench_shape *s = &p->problem.shape;                                                  \
        const __m512i nibble = _mm512_set1_epi8(15);                                               \
        const uint8_t *w = p->w + b * p->segments * segment_bytes(p);                              \
        const int8_t *x = p->x + m * DIGITS * 8;                                                   \
        __m512 sums[T];                                                                            \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            sums[t] = _mm512_setzero_ps();                                                         \
        }                                                                                          \
        for (int64_t g = 0; g < p->segments; g++) {                                                \
            const __m512 scale = _mm512_load_ps((const float *)(const void *)w);                   \
            __m512i sum[T][DIGITS][2];                                                             \
            UNROLL for (int i = 0; i < T * DIGITS; i++)                                            \
            {                                                                                      \
                sum[i / DIGITS][i % DIGITS][0] = _mm512_setzero_si512();                           \
                sum[i / DIGITS][i % DIGITS][1] = _mm512_setzero_si512();                           \
            }                                                                                      \
            w += 64;                                                                               \
            for (int64_t c = 0; c < p->segment; c += 8, w += 64, x += s->m * DIGITS * 8) {         \
                const __m512i bytes = _mm512_load_si512(w);                                        \
                const __m512i first = _mm512_and_si512(bytes, nibble);                             \
                const __m512i second = _mm512_and_si512(_mm512_srli_epi32(bytes, 4), nibble);      \
                _mm_prefetch((const char *)w + AHEAD, _MM_HINT_T0);                                \
                STEP(T)                                                                            \
            }                                                                                      \
            UNROLL for (int t = 0; t < T; t++)                                                     \
            {                                                                                      \
                const int64_t unit = (m + t) * p->segments + g;                                    \
                UNROLL for (int d = 0; d < DIGITS; d++)                                            \
                {                                                                                  \
                    sum[t][d][0] = _mm512_add_epi32(sum[t][d][0], sum[t][d][1]);                   \
                }                                                                                  \
                __m512 all = _mm512_cvtepi32_ps(sum[t][DIGITS - 1][0]);                            \
                UNROLL for (int d = DIGITS - 2; d >= 0; d--)                                       \
                {                                                                                  \
                    all = _mm512_fmadd_ps(all, _mm512_set1_ps(256),                                \
                                          _mm512_cvtepi32_ps(sum[t][d][0]));                       \
                }                                                                                  \
                all = _mm512_sub_ps(all, _mm512_set1_ps(p->x_sums[unit]));                         \
                all = _mm512_mul_ps(all, _mm512_set1_ps(p->x_scales[unit]));                       \
                sums[t] = _mm512_fmadd_ps(all, scale, sums[t]);                                    \
            }                                                                                      \
        }                                                                                          \
        const int64_t left = s->n - b * ROWS;                                                      \
        const __mmask16 mask = (__mmask16)(left < ROWS ? (1u << left) - 1 : 0xffff);               \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            _mm512_mask_storeu_ps(p->y + (m + t) * s->n + b * ROWS, mask, sums[t]);                \
        }                                                                                          \
    }

BLOCK(1)
BLOCK(2)
BLOCK(3)
BLOCK(4)

static void blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    static void (*const by_tokens[TOGETHER + 1])(const product *, int64_t, int64_t) = {
        NULL, block_1, block_2, block_3, block_4};
    const product *p = arg;
    (void)thread;
    for (int64_t b = begin; b < end; b++) /* its weights stay in L2 between the tokens */
        for (int64_t m = 0; m < p->problem.shape.m; m += TOGETHER) {
            const int64_t left = p->problem.shape.m - m;
            by_tokens[left < TOGETHER ? left : TOGETHER](p, b, m);
        }
}

static int run(void *opaque, void *y)
{
    product *p = opaque;
    const bench_shape *s = &p->problem.shape;
    p->y = y;
    for (int64_t unit = 0; unit < s->m * p->segments; unit++) {
        const int64_t begin = unit % p->segments * p->segment;
        prepare_segment(p, unit, p->problem.x + unit / p->segments * s->k + begin,
                        s->k - begin < p->segment ? s->k - begin : p->segment);
    }
    s24_ctx_parallel_for(p->problem.ctx, (s->n + ROWS - 1) / ROWS, blocks, p);
    return 0;
}
#else
static void *open_own(char *version, size_t bytes)
{
    (void)version, (void)bytes;
    return NULL;
}

static void close_own(void *library)
{
    (void)library;
}

static void *prepare(void *library, const bench_problem *problem)
{
    (void)library, (void)problem;
    return NULL;
}

static int run(void *product, void *y)
{
    (void)product, (void)y;
    return 1;
}

static void release(void *product)
{
    (void)product;
}
#endif

const bench_peer peer_dense4 = {
    .name = "dense4",
    .open = open_own,
    .close = close_own,
    .prepare = prepare,
    .run = run,
    .release = release,
};
