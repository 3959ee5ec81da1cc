// SPDX-License-Identifier: Apache-2.0
/*
 * Few tokens of linear_avx512.h, 16 and fewer at a time: rows in the lanes ("lanes") and, with f32
 * values and enough tokens, every third row block with tokens in the lanes next to it ("both",
 * linear_both_avx512.h).
 *
 * "lanes": every weight is read once, in one sequential stream. A group of a token's x is 16 bytes,
 * loaded as they are, from which vpermps picks by the code bits: a permutation and a multiply-add
 * want three ports, of which the two instructions together take 0.7 cycle alone and 0.72 to 0.74 in
 * whole calls.
 *
 * What must stay true of both: their loops are short. Weights that come from L3 or memory push all
 * else out of L2, code too, because L2 hears nothing of instructions that are read decoded; what
 * leaves L2 leaves the caches above it. 9 KB of unrolled loop are then fetched again, from L3, with
 * each megabyte of weights, which took up to a quarter of all cycles.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_FEW_AVX512_H
#define S24_KERNEL_CPU_X86_LINEAR_FEW_AVX512_H

#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

/* With more groups the tile of many tokens is faster. Where shuffles are dear it is with full
   vectors of tokens already, and the few that are left over go this way. */
#if BROADCAST
#define FEW_GROUPS     3
#define FEW_REST       9
#define IS_FEW(m)      ((m) <= 24)
#define IS_FEW_NEAR(m) ((m) <= 29 || ((m) > 2 * LANES_M && (m) <= 40))
#else
#define FEW_GROUPS (VALUE == 4 ? 3 : 2)
#endif

/*
 * How far ahead weights are asked for, and into what. Past L2 on Zen, where lines that several
 * tokens share need not go through it. On Intel such a line is in L1 alone until it is used, and
 * the tokens that are read meanwhile can push it out, to come from memory again: 16 tokens by 4096
 * x 4096 read 4 GB/s of 18.
 */
#if BROADCAST
enum { LANES_AHEAD = 4096, BOTH_AHEAD = 4096 };
#define AHEAD_INTO _MM_HINT_T0
#else
enum { LANES_AHEAD = 8192, BOTH_AHEAD = 4096 };
#define AHEAD_INTO _MM_HINT_NTA
#endif

/* One token's loads are spread to every 128 bits, whose picks need no mask: memory is what it waits
   for, and a group costs two instructions less. Nor does it ask for weights on Zen: in large pages
   the hardware alone is ahead of it. */
AVX512_INLINE __m512 load_group(const float *x, int spread)
{
    const __m128 group = _mm_loadu_ps(x);
    return spread ? _mm512_broadcast_f32x4(group) : _mm512_castps128_ps512(group);
}

AVX512_INLINE __m512i pick_of(__m512i code, int spread)
{
    return spread ? code : _mm512_and_si512(code, _mm512_set1_epi32(3));
}

AVX512_INLINE __m512 picked(__m512 group, __m512i pick, int spread)
{
    return spread ? _mm512_permutevar_ps(group, pick) : _mm512_permutexvar_ps(pick, group);
}

enum { MOST_FEW = 7 }; /* tokens of lanes_few() */

/* Multiplies row block b by T tokens, a constant up to MOST_FEW; each has a sum for both slots. */
AVX512_INLINE void lanes_few(const s24i_linear_job *job, const float *x, int64_t b, const int T)
{
    enum { S = 2 };
    const int SPREAD = T == 1;
    const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK;
    __m512 acc[MOST_FEW][S];
    UNROLL for (int t = 0; t < T; t++)
    {
        UNROLL for (int s = 0; s < S; s++)
        {
            acc[t][s] = _mm512_setzero_ps();
        }
    }
    for (int64_t k = 0; k < job->k; k += COLUMNS, w += BLOCK) {
        __m512i code = _mm512_load_si512(w);
        const uint8_t *values = w + CODES;
        const int64_t columns = job->k - k < COLUMNS ? job->k - k : COLUMNS;
        for (int64_t g = 0; g < columns; g += 4, values += 2 * ROWS * VALUE, x += 4 * T) {
            const __m512i low = pick_of(code, SPREAD);
            const __m512i high = pick_of(_mm512_srli_epi32(code, 2), SPREAD);
            const __m512 w0 = LOAD_VALUES(values);
            const __m512 w1 = LOAD_VALUES(values + ROWS * VALUE);
            if (BROADCAST || T > 1) {
                _mm_prefetch((const char *)values + LANES_AHEAD, AHEAD_INTO);
                _mm_prefetch((const char *)values + LANES_AHEAD + 64, AHEAD_INTO);
            }
            UNROLL for (int t = 0; t < T; t++)
            {
                const __m512 group = load_group(x + 4 * t, SPREAD);
                acc[t][0] = _mm512_fmadd_ps(picked(group, low, SPREAD), w0, acc[t][0]);
                acc[t][1] = _mm512_fmadd_ps(picked(group, high, SPREAD), w1, acc[t][1]);
            }
            code = _mm512_srli_epi32(code, 4);
        }
    }
    _Alignas(64) float sums[MOST_FEW][ROWS];
    UNROLL for (int t = 0; t < T; t++)
    {
        _mm512_store_ps(sums[t], _mm512_add_ps(acc[t][0], acc[t][1]));
    }
    finish_lanes(job, b * ROWS, T, (const float(*)[ROWS])sums);
}

/* What a group is multiplied by, what picks from its tokens, and picked columns on their way. */
typedef struct group {
    const float *x;
    __m512 w0, w1, picked0[8], picked1[8];
    __m512i low, high;
} group;

/* The picks of token t for both slots of a group, and its multiply-adds. In assembly for the
   order. */
AVX512_INLINE void pick(int t, group *g)
{
    __asm__ volatile("vmovups %4,%x0\n\tvpermps %0,%2,%1\n\tvpermps %0,%3,%0"
                     : "=&v"(g->picked1[t % 8]), "=&v"(g->picked0[t % 8])
                     : "v"(g->low), "v"(g->high), "m"(*(const float(*)[4])(g->x + 4 * t)));
}

AVX512_INLINE void multiply(int t, group *g, __m512 *acc)
{
    __asm__ volatile("vfmadd231ps %1,%3,%0\n\tvfmadd231ps %2,%4,%0"
                     : "+v"(acc[t])
                     : "v"(g->picked0[t % 8]), "v"(g->picked1[t % 8]), "v"(g->w0), "v"(g->w1));
}

/* Four tokens' picks, and the multiply-adds of those LATE before them. */
AVX512_INLINE void lanes_token(int t, group *g, __m512 *acc, const int T)
{
    enum { LATE = 4 };
    if (t < T) pick(t, g);
    if (t >= LATE && t - LATE < T) multiply(t - LATE, g, acc);
}

AVX512_INLINE void lanes_tokens(int t, group *g, __m512 *acc, const int T)
{
    lanes_token(t, g, acc, T);
    lanes_token(t + 1, g, acc, T);
    lanes_token(t + 2, g, acc, T);
    lanes_token(t + 3, g, acc, T);
}

/* A group, and what the next one picks by. */
AVX512_INLINE void lanes_group(const uint8_t *values, group *g, __m512 *acc, const int T)
{
    g->w0 = LOAD_VALUES(values), g->w1 = LOAD_VALUES(values + ROWS * VALUE);
    _mm_prefetch((const char *)values + LANES_AHEAD, AHEAD_INTO);
    _mm_prefetch((const char *)values + LANES_AHEAD + 64, AHEAD_INTO);
    lanes_tokens(0, g, acc, T);
    HOLD(g->low);
    __m512i next_low = _mm512_srli_epi32(g->low, 4);
    HOLD(next_low);
    lanes_tokens(4, g, acc, T);
    HOLD(g->high);
    __m512i next_high = _mm512_srli_epi32(g->high, 4);
    HOLD(next_high);
    lanes_tokens(8, g, acc, T);
    lanes_tokens(12, g, acc, T);
    lanes_tokens(16, g, acc, T);
    g->low = next_low, g->high = next_high;
}

/* The epilogue of row block b, whose sums are acc[token]. */
AVX512_INLINE void finish_few(const s24i_linear_job *job, int64_t b, const __m512 *acc, const int T)
{
    if (job->y_dtype == S24_F32 && is_plain(job, b * ROWS)) {
        const __m512 alpha = _mm512_set1_ps(job->alpha);
        const __m512 bias = job->bias ? _mm512_loadu_ps(job->bias + b * ROWS) : _mm512_setzero_ps();
        const int64_t y_step = job->y_stride_m;
        float *y = (float *)job->y + b * ROWS;
        UNROLL for (int t = 0; t < T; t++)
        {
            _mm512_storeu_ps(y + t * y_step, _mm512_fmadd_ps(acc[t], alpha, bias));
        }
    } else {
        _Alignas(64) float sums[LANES_M][ROWS];
        UNROLL for (int t = 0; t < T; t++)
        {
            _mm512_store_ps(sums[t], acc[t]);
        }
        finish_lanes(job, b * ROWS, T, (const float(*)[ROWS])sums);
    }
}

/* Multiplies row block b by T tokens, a constant from eight on. A pick looks at four bits: of each
   group's code two are left. A group at a time, not a k block: the hardware that asks for x ahead
   of its use follows a load better that comes again soon. */
AVX512_INLINE void lanes_many(const s24i_linear_job *job, const float *x, int64_t b, const int T)
{
    const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK;
    const __m512i slot = _mm512_set1_epi32(0x33333333);
    __m512 acc[LANES_M];
    group g;
    g.x = x;
    UNROLL for (int t = 0; t < T; t++)
    {
        acc[t] = _mm512_setzero_ps();
    }
    __asm__ volatile("" ::: "memory");
    for (int64_t k = 0; k < job->k; k += COLUMNS, w += BLOCK) {
        const __m512i code = _mm512_load_si512(w);
        g.low = _mm512_and_si512(code, slot);
        g.high = _mm512_and_si512(_mm512_srli_epi32(code, 2), slot);
        const uint8_t *values = w + CODES;
        const int64_t columns = job->k - k < COLUMNS ? job->k - k : COLUMNS;
        for (int64_t i = 0; i < columns; i += 4, values += 2 * ROWS * VALUE, g.x += 4 * T)
            lanes_group(values, &g, acc, T);
    }
    finish_few(job, b, acc, T);
}

#define LANES(T)                                                                                   \
    AVX512 static void lanes_##T(const s24i_linear_job *job, const float *x, int64_t stride,       \
                                 int64_t b)                                                        \
    {                                                                                              \
        (void)stride;                                                                              \
        if (T <= MOST_FEW)                                                                         \
            lanes_few(job, x, b, T);                                                               \
        else                                                                                       \
            lanes_many(job, x, b, T);                                                              \
    }
#define LANES_AT(T) [T] = lanes_##T,
FROM_1_TO_8(LANES)
FROM_9_TO_16(LANES)

static void (*const lanes[LANES_M + 1])(const s24i_linear_job *, const float *, int64_t,
                                        int64_t) = {FROM_1_TO_8(LANES_AT) FROM_9_TO_16(LANES_AT)};

#if VALUE == 4
#include "kernel/cpu/x86/linear_both_avx512.h"
#endif

static int64_t few_rows(const s24i_linear_job *job, const float *x, int64_t stride, int64_t b,
                        int64_t end)
{
#if VALUE == 4
    if (takes_both(job) && end - b >= BOTH_BLOCKS) {
        both[job->m](job, x, b);
        return BOTH_BLOCKS;
    }
#endif
    (void)end;
    lanes[job->m](job, x, stride, b);
    return 1;
}

/* The tokens as the lanes design takes them: group -> [m][4 columns]. */
typedef float few_t;

static int few_as_they_are(const s24i_linear_job *job)
{
    return job->m == 1 && job->x_stride_k == 1 && job->x_dtype == S24_F32;
}

/* Four columns of four tokens in bf16, a token in each quarter. */
AVX512_INLINE __m512 widen_four(const uint16_t *x, int64_t stride)
{
    long long four[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        memcpy(&four[i], x + i * stride, sizeof four[i]);
    }
    return widen_bf16(_mm256_set_epi64x(four[3], four[2], four[1], four[0]));
}

AVX512 static void gather_few(few_t *to, int64_t stride, const s24i_linear_job *job)
{
    int64_t m = 0;
    (void)stride;
#if VALUE == 4
    if (takes_both(job) && job->x_stride_k == 1 && job->x_dtype == S24_F32) {
        gather_both(to, job);
        return;
    }
#endif
    if (job->x_stride_k == 1 && job->x_dtype == S24_F32)
        for (; m + 4 <= job->m; m += 4) {
            const float *x = (const float *)job->x + m * job->x_stride_m;
            for (int64_t k = 0; k < job->k; k += 4)
                _mm512_storeu_ps(to + k * job->m + 4 * m,
                                 load_quarters((const char *)(x + k), 4 * job->x_stride_m));
        }
    else if (job->x_stride_k == 1)
        for (; m + 4 <= job->m; m += 4) {
            const uint16_t *x = (const uint16_t *)job->x + m * job->x_stride_m;
            for (int64_t k = 0; k < job->k; k += 4)
                _mm512_storeu_ps(to + k * job->m + 4 * m, widen_four(x + k, job->x_stride_m));
        }
    for (; m < job->m; m++)
        for (int64_t k = 0; k < job->k; k += 16) {
            float part[16];
            _mm512_storeu_ps(part,
                             load_lanes(element_of(job->x, job->x_dtype,
                                                   m * job->x_stride_m + k * job->x_stride_k),
                                        job->x_dtype, job->x_stride_k, lane_mask(job->k - k)));
            for (int64_t i = 0; i < 16 && k + i < job->k; i += 4)
                memcpy(to + (k + i) * job->m + 4 * m, part + i, 16);
        }
#if VALUE == 4
    if (takes_both(job)) add_second_form(to, job);
#endif
}

#endif
