// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4 in integers with scales, x in floats, AVX-512 with VNNI and VBMI. The weights lie
 * as rows16_scaled.h has it, in blocks of 64 rows.
 *
 * x becomes integers of 24 bits relative to the largest magnitude of its segment, in three bytes,
 * and products of bytes are summed exactly:
 *
 *   x = 2^(E-22)·(X - 2^23),  X = d2·2^16 + d1·2^8 + d0,  E the exponent of the largest magnitude
 *   Σ q·x = 2^(E-22)·(2^16·Σ q·(d2 - 128) + 2^8·Σ q·d1 + Σ q·d0)
 *
 * then times the scale in f32. In a call of more tokens than EXACT x, if it may be rounded, has 16
 * bits in two bytes (14 and 15 in the place of 22 and 23): there the number of products of bytes is
 * what limits, while few tokens wait for memory. vpdpbusd takes two groups of a row at a time,
 * which is four values, and vpermb picks their columns from 64 columns of one of the bytes. For one
 * token all must keep up with memory, where 32 columns of 16 rows of 4 bits are 192 bytes, 19
 * cycles at 40 GB/s, and shifts and shuffles share two ports. So a k block is made for few of them:
 * pair p of its groups is 2p and 2p + 1, with values 0..3, and byte j of a row's codes has the
 * 2-bit place of value j at bits 2p. They are index bits of vpermb as they lie, with constants:
 * pairs 0 and 1 have theirs in bits 0 and 1, pairs 2 and 3 in bits 4 and 5, and the bytes of x are
 * in that order.
 *
 * Tokens with a NaN or an Inf, and all that come with them: a pass's k blocks are widened to
 * scale·integer in L1 for the tile of linear_avx512.h.
 *
 * The including file defines LAYOUT, VALUES, VALUE_BITS (a byte holds the integer times two to
 * that), pair_values() and widen_values().
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_QUANT_AVX512VNNI_H
#define S24_KERNEL_CPU_X86_LINEAR_QUANT_AVX512VNNI_H

#define VALUE      1
#define OWN_LAYOUT 1
#define HAS_LANES  0
#include "kernel/cpu/linear_tile.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

#define TARGET_VNNI                                                                                \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,fma")))
#define VNNI_INLINE TARGET_VNNI __attribute__((always_inline)) static inline

enum {
    TOKENS = 32,      /* that a pass over the weights serves */
    FEW_TOGETHER = 4, /* and that share a decoded weight */
    EXACT = 32,       /* tokens of a call, of which an integer x always has all its bytes */
    DIGITS = 3,       /* which are so many, and of more one less */
    HALF = 64,        /* columns that a vpermb picks from */
    AHEAD = 4096,     /* bytes from the weights that are used to those asked for */
    QUARTERS = 4      /* times 16 rows: one block of rows */
};
/* And to those asked for into L1; nearer ones come into L2 first. */
#ifndef NEAR_AHEAD
#define NEAR_AHEAD AHEAD
#endif

/* The four values of a pair of groups of 16 rows, times 2^VALUE_BITS. */
AVX512_INLINE __m512i pair_values(const uint8_t *values, int pair);

/* ---- codes ----------------------------------------------------------------------------------- */

/* Of 16 rows, as layouts of one quarter have them (format/scaled.c, turn_codes). */
AVX512_INLINE __m512i rows16_codes(__m512i v)
{
    __m512i t = _mm512_and_si512(_mm512_xor_si512(v, _mm512_srli_epi32(v, 6)),
                                 _mm512_set1_epi32(0x00cc00cc));
    v = _mm512_xor_si512(v, _mm512_xor_si512(t, _mm512_slli_epi32(t, 6)));
    t = _mm512_and_si512(_mm512_xor_si512(v, _mm512_srli_epi32(v, 12)),
                         _mm512_set1_epi32(0x0000f0f0));
    return _mm512_xor_si512(v, _mm512_xor_si512(t, _mm512_slli_epi32(t, 12)));
}

#include "kernel/cpu/rows16_scaled.h"

/* ---- tokens that are no integers ------------------------------------------------------------- */

/* To 16 rows of 16 slots of f32, from VALUES bytes. */
AVX512_INLINE void widen_values(float *to, const uint8_t *from, __m512 scale);

AVX512 static void widen(uint8_t *block, tile *t, const s24i_linear_job *job, int64_t b, int64_t q)
{
    const s24i_scaled l = places_of(job);
    const uint8_t *w = (const uint8_t *)job->w + b / QUARTERS * l.bytes;
    uint8_t *to = block;
    for (int64_t i = 0; i < t->blocks; i++, q++, to += CODES + SLOTS * ROWS * 4) {
        const uint8_t *from = w + s24i_scaled_block(&l, b % QUARTERS, q);
        const __m512 scale = _mm512_load_ps(
            (const float *)(const void *)(w + s24i_scaled_scales(&l, b % QUARTERS, q)));
        _mm512_store_si512(to, rows16_codes(_mm512_load_si512(from)));
        widen_values((float *)(void *)(to + CODES), from + CODES, scale);
    }
    t->w = block, t->ahead = 0;
}

#include "kernel/cpu/x86/linear_avx512.h"

/* What few() reads of a token: for each half of a segment a vector of each byte, and the exponent
   of the segment's unit, less VALUE_BITS, in 16 lanes. A segment is followed by its next token. */
static inline int64_t token_bytes(int64_t per_segment, int digits)
{
    return per_segment / 2 * digits * HALF + 64;
}

static inline size_t few_bytes(int64_t m, int64_t k_blocks)
{
    return (size_t)(m * ((k_blocks + 1) / 2 + 1) * (DIGITS * HALF + 64));
}

/* ---- x as integers --------------------------------------------------------------------------- */

/* Where vpermb finds column c of 64: byte i of the vector is of column order[i]. */
TARGET_VNNI static __m512i column_order(void)
{
    uint8_t order[HALF];
    for (int c = 0; c < HALF; c++) {
        const int block = c / COLUMNS, pair = c / 8 % 4, h = c / 4 % 2, i = c % 4;
        const int line = 2 * block + h;
        order[pair < 2 ? 16 * line + 4 * pair + i : 16 * i + 4 * pair + line] = (uint8_t)c;
    }
    return _mm512_loadu_si512(order);
}

typedef struct batch {
    s24i_linear_job job; /* of up to TOKENS tokens */
    s24i_scaled l;
    int digits; /* bytes of an integer x */
    _Atomic int not_finite;
} batch;

/* A segment's columns from k on of one token; 0 if one is not finite. */
TARGET_VNNI static int prepare_segment(uint8_t *to, const batch *b, int64_t m, int64_t k,
                                       __m512i order)
{
    const s24i_linear_job *job = &b->job;
    const int64_t columns = b->l.per_segment * COLUMNS;
    const __m512i top = _mm512_set1_epi32(1 << (8 * b->digits - 1));
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i largest = _mm512_setzero_si512();
    float x[4 * COLUMNS];
    uint8_t digits[DIGITS][HALF];
    for (int64_t c = 0; c < columns; c += 16) {
        const void *at =
            element_of(job->x, job->x_dtype, m * job->x_stride_m + (k + c) * job->x_stride_k);
        const __m512 v = load_lanes(at, job->x_dtype, job->x_stride_k, lane_mask(job->k - k - c));
        largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(v), magnitude));
        _mm512_storeu_ps(x + c, v);
    }
    const uint32_t bits = _mm512_reduce_max_epu32(largest);
    if (bits >= 0x7f800000u) return 0;
    const __m512 exponent =
        bits ? _mm512_getexp_ps(_mm512_castsi512_ps(_mm512_set1_epi32((int)bits)))
             : _mm512_setzero_ps();
    const int unit = 8 * b->digits - 2;
    const __m512 shift = _mm512_sub_ps(_mm512_set1_ps((float)unit), exponent);
    for (int64_t half = 0; half < columns; half += HALF) {
        for (int64_t c = 0; c < HALF; c += 16) {
            __m512i v = _mm512_cvtps_epi32(_mm512_scalef_ps(_mm512_loadu_ps(x + half + c), shift));
            /* Only the largest can round up to the top. */
            v = _mm512_add_epi32(_mm512_min_epi32(v, _mm512_sub_epi32(top, _mm512_set1_epi32(1))),
                                 top);
            for (int d = 0; d < b->digits; d++, v = _mm512_srli_epi32(v, 8))
                _mm_storeu_si128((__m128i *)(void *)(digits[d] + c), _mm512_cvtepi32_epi8(v));
        }
        for (int d = 0; d < b->digits; d++, to += HALF)
            _mm512_store_si512(to, _mm512_permutexvar_epi8(order, _mm512_loadu_si512(digits[d])));
    }
    _mm512_store_ps((float *)(void *)to,
                    _mm512_sub_ps(exponent, _mm512_set1_ps((float)(unit + VALUE_BITS))));
    return 1;
}

TARGET_VNNI static void prepare_range(void *arg, int64_t begin, int64_t end, int thread)
{
    batch *b = arg;
    const __m512i order = column_order();
    const int64_t columns = b->l.per_segment * COLUMNS, m = b->job.m;
    const int64_t bytes = token_bytes(b->l.per_segment, b->digits);
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        if (!prepare_segment((uint8_t *)b->job.work + i * bytes, b, i % m, i / m * columns, order))
            b->not_finite = 1;
}

/* The tokens as integers, into few_bytes(m, k blocks) of work; 0: one of them has none. */
static int prepare(batch *b)
{
    enum { FEW = 1 << 16 }; /* elements that are not worth the threads' time */
    const int64_t segments = (b->l.k_blocks + b->l.per_segment - 1) / b->l.per_segment;
    const s24i_parallel *parallel = &b->job.parallel;
    if (b->job.m * b->job.k < FEW)
        prepare_range(b, 0, b->job.m * segments, 0);
    else
        parallel->run(parallel->pool, b->job.m * segments, prepare_range, b);
    return !b->not_finite;
}

/* ---- 64 rows --------------------------------------------------------------------------------- */

/* Bytes j of a dword: the constant part of the index for value j of a pair in k block `block`. */
#define PLACE(block, pair, h)                                                                      \
    ((pair) < 2 ? 16 * (2 * (block) + (h)) + 4 * (pair) : 4 * (pair) + 2 * (block) + (h))
#define PLACES(block, pair) (PLACE(block, pair, 0) * 0x0101 + PLACE(block, pair, 1) * 0x01010000)

/* Multiplies `here` k blocks of 16 rows by T tokens of D digits, constants where it is called; one
   or two tokens have two sums for each of their digits, which take turns. */
VNNI_INLINE void few_tokens(const uint8_t *w, int64_t here, const uint8_t *x, int64_t token,
                            __m512 scale, float *sums, int first, const int T, const int D)
{
    const int S = T < 3 ? 2 : 1;
    const __m512i places[2][4] = {
        {_mm512_set1_epi32(PLACES(0, 0)), _mm512_set1_epi32(PLACES(0, 1)),
         _mm512_set1_epi32(PLACES(0, 2)), _mm512_set1_epi32(PLACES(0, 3))},
        {_mm512_set1_epi32(PLACES(1, 0)), _mm512_set1_epi32(PLACES(1, 1)),
         _mm512_set1_epi32(PLACES(1, 2)), _mm512_set1_epi32(PLACES(1, 3))}};
    const __m512i low = _mm512_set1_epi8(3), high = _mm512_set1_epi8(0x30);
    const __m512i middle = _mm512_set1_epi8((char)128);
    __m512i acc[FEW_TOGETHER][DIGITS][2], all[2];
    UNROLL for (int i = 0; i < T * D * S; i++)
    {
        acc[i / (D * S)][i / S % D][i % S] = _mm512_setzero_si512();
    }
    all[0] = _mm512_setzero_si512();
    all[S - 1] = all[0];
    const uint8_t *at = x;
    for (int64_t i = 0; i < here; i += 2, at += D * HALF) {
        UNROLL for (int block = 0; block < 2; block++)
        {
            if (i + block == here) break;
            const __m512i codes = _mm512_load_si512(w);
            const __m512i codes2 = _mm512_srli_epi32(codes, 2);
            UNROLL for (int p = 0; p < QUANT_BLOCK; p += 64)
            {
                _mm_prefetch((const char *)w + AHEAD + p,
                             NEAR_AHEAD < AHEAD ? _MM_HINT_T1 : _MM_HINT_T0);
                if (NEAR_AHEAD < AHEAD) _mm_prefetch((const char *)w + NEAR_AHEAD + p, _MM_HINT_T0);
            }
            UNROLL for (int pair = 0; pair < 4; pair++)
            {
                const __m512i q = pair_values(w + CODES, pair);
                /* (codes & mask) | places */
                const __m512i pick = _mm512_ternarylogic_epi32(
                    pair & 1 ? codes2 : codes, pair & 2 ? high : low, places[block][pair], 0xea);
                all[pair % S] = _mm512_dpbusd_epi32(all[pair % S], middle, q);
                UNROLL for (int t = 0; t < T; t++)
                {
                    UNROLL for (int d = 0; d < D; d++)
                    {
                        const __m512i bytes = _mm512_permutexvar_epi8(
                            pick, _mm512_load_si512(at + t * token + d * HALF));
                        acc[t][d][pair % S] = _mm512_dpbusd_epi32(acc[t][d][pair % S], bytes, q);
                    }
                }
            }
            w += QUANT_BLOCK;
        }
    }
    if (S == 2) all[0] = _mm512_add_epi32(all[0], all[S - 1]);
    UNROLL for (int t = 0; t < T; t++)
    {
        if (S == 2) {
            UNROLL for (int d = 0; d < D; d++)
            {
                acc[t][d][0] = _mm512_add_epi32(acc[t][d][0], acc[t][d][S - 1]);
            }
        }
        __m512i top = _mm512_sub_epi32(acc[t][D - 1][0], all[0]);
        if (D == 3) top = _mm512_add_epi32(_mm512_slli_epi32(top, 8), acc[t][1][0]);
        const __m512 part = _mm512_fmadd_ps(_mm512_cvtepi32_ps(top), _mm512_set1_ps(256),
                                            _mm512_cvtepi32_ps(acc[t][0][0]));
        const __m512 sum = _mm512_scalef_ps(
            part, _mm512_load_ps((const float *)(const void *)(x + t * token + token - 64)));
        const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + t * ROWS);
        _mm512_store_ps(sums + t * ROWS, _mm512_fmadd_ps(sum, scale, before));
    }
}

typedef void some_tokens(const uint8_t *w, int64_t here, const uint8_t *x, int64_t token,
                         __m512 scale, float *sums, int first);

#define SOME(T, D)                                                                                 \
    TARGET_VNNI static void tokens_##T##_##D(const uint8_t *w, int64_t here, const uint8_t *x,     \
                                             int64_t token, __m512 scale, float *sums, int first)  \
    {                                                                                              \
        few_tokens(w, here, x, token, scale, sums, first, T, D);                                   \
    }
SOME(1, 2)
SOME(2, 2)
SOME(3, 2)
SOME(4, 2)
SOME(1, 3)
SOME(2, 3)
SOME(3, 3)
SOME(4, 3)

/* By the digits less two, and the tokens less one. */
static some_tokens *const some_of[2][FEW_TOGETHER] = {
    {tokens_1_2, tokens_2_2, tokens_3_2, tokens_4_2},
    {tokens_1_3, tokens_2_3, tokens_3_3, tokens_4_3}};

/* 64 rows: sums[quarter][token][16], before the epilogue. */
TARGET_VNNI static void few(const batch *tokens, const uint8_t *w, float *sums)
{
    const s24i_linear_job *job = &tokens->job;
    const s24i_scaled *l = &tokens->l;
    const int64_t token = token_bytes(l->per_segment, tokens->digits);
    const uint8_t *next = w + l->head, *x = job->work;
    for (int64_t q = 0; q < l->k_blocks; q += l->per_segment, x += job->m * token) {
        const int64_t rest = l->k_blocks - q, here = rest < l->per_segment ? rest : l->per_segment;
        for (int64_t quarter = 0; quarter < QUARTERS; quarter++) {
            const __m512 scale = _mm512_load_ps(
                (const float *)(const void *)(l->head ? w + quarter * S24I_SCALES : next));
            next += l->segment_head;
            for (int64_t m = 0; m < job->m; m += FEW_TOGETHER) {
                const int64_t t = job->m - m < FEW_TOGETHER ? job->m - m : FEW_TOGETHER;
                some_of[tokens->digits - 2][t - 1](next, here, x + m * token, token, scale,
                                                   sums + (quarter * job->m + m) * ROWS, q == 0);
            }
            next += here * QUANT_BLOCK;
        }
    }
}

AVX512 static void few_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const batch *tokens = arg;
    const s24i_linear_job *job = &tokens->job;
    _Alignas(64) float sums[QUARTERS * TOKENS * ROWS];
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        few(tokens, (const uint8_t *)job->w + b * tokens->l.bytes, sums);
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

/* ---- the row's entries ----------------------------------------------------------------------- */

static size_t quant_work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    const int64_t tokens = m < TOKENS ? m : TOKENS;
    const size_t few_tokens = few_bytes(tokens, rows16_k_blocks(k));
    const size_t widened = work_bytes(tokens, n, k, threads);
    return few_tokens > widened ? few_tokens : widened;
}

static void run_quant(const s24i_linear_job *job)
{
    for (int64_t m = 0; m < job->m; m += TOKENS) {
        batch b = {.job = *job,
                   .l = places_of(job),
                   .digits = job->rounds && job->m > EXACT ? DIGITS - 1 : DIGITS};
        b.job.m = job->m - m < TOKENS ? job->m - m : TOKENS;
        b.job.x = element_of(job->x, job->x_dtype, m * job->x_stride_m);
        b.job.y = element_to(job->y, job->y_dtype, m * job->y_stride_m);
        if (job->gate) b.job.gate = element_of(job->gate, job->y_dtype, m * job->gate_stride_m);
        if (job->residual)
            b.job.residual = element_of(job->residual, job->y_dtype, m * job->residual_stride_m);
        if (prepare(&b))
            job->parallel.run(job->parallel.pool, quant_blocks(job->n), few_range, &b);
        else
            run_job(&b.job);
    }
}

#endif
