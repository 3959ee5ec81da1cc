// SPDX-License-Identifier: Apache-2.0
/*
 * Few tokens of linear_avx512.h, 16 and fewer at a time: rows in the lanes ("lanes") and, with f32
 * values and enough tokens, every third row block with tokens in the lanes next to it ("both").
 *
 * "lanes": every weight is read once, in one sequential stream. A group of a token's x is 16 bytes,
 * loaded as they are, from which vpermps picks by the code bits: a permutation and a multiply-add
 * want three ports, of which the two instructions together take 0.7 cycle alone and 0.72 to 0.74 in
 * whole calls.
 *
 * "both": of three row blocks the outer two have their rows in the lanes, and the rows of the
 * middle one, eight with each, are broadcast to 16 tokens, whose x lies there once more as
 * [4 k][16 tokens]. A third of the multiply-adds so needs no permutation: 0.59 cycle alone, 0.64 in
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

#define FEW_GROUPS (VALUE == 4 ? 3 : 2) /* with more tokens the tile of many is faster */

/* One token's loads are spread to every 128 bits, whose picks need no mask: memory is what it waits
   for, and a group costs two instructions less. Nor does it ask for weights: in large pages the
   hardware alone is ahead of it. */
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
            if (T > 1) {
                _mm_prefetch((const char *)values + 8192, _MM_HINT_NTA);
                _mm_prefetch((const char *)values + 8256, _MM_HINT_NTA);
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

#define LANES_FEW(T)                                                                               \
    AVX512 static void lanes_##T(const s24i_linear_job *job, const float *x, int64_t stride,       \
                                 int64_t b)                                                        \
    {                                                                                              \
        (void)stride;                                                                              \
        lanes_few(job, x, b, T);                                                                   \
    }

/* The picks of token t for both slots of a group, and its multiply-adds, which come LATE tokens
   later. In assembly for the order. */
#define PICK(t, i)                                                                                 \
    __asm__ volatile("vmovups %c4(%5),%x0\n\tvpermps %0,%2,%1\n\tvpermps %0,%3,%0"                 \
                     : "=&v"(picked1[(t) % 8]), "=&v"(picked0[(t) % 8])                            \
                     : "v"(low), "v"(high), "i"(16 * (i)), "r"(x))
#define MULTIPLY(t, i)                                                                             \
    __asm__ volatile("vfmadd231ps %1,%3,%0\n\tvfmadd231ps %2,%4,%0"                                \
                     : "+v"(acc[i])                                                                \
                     : "v"(picked0[(t) % 8]), "v"(picked1[(t) % 8]), "v"(w0), "v"(w1))
#define IS_TOKEN(t) ((t) >= 0 && (t) < T)
#define TOKEN(t)                                                                                   \
    if (IS_TOKEN(t)) PICK(t, IS_TOKEN(t) ? (t) : 0);                                               \
    if (IS_TOKEN((t)-LATE)) MULTIPLY((t)-LATE + 8, IS_TOKEN((t)-LATE) ? (t)-LATE : 0);
#define TOKENS(t) TOKEN(t) TOKEN(t + 1) TOKEN(t + 2) TOKEN(t + 3)

/* A group, and what the next one picks by. */
#define LANES_GROUP                                                                                \
    {                                                                                              \
        const __m512 w0 = LOAD_VALUES(values), w1 = LOAD_VALUES(values + ROWS * VALUE);            \
        __m512 picked0[8], picked1[8];                                                             \
        _mm_prefetch((const char *)values + 8192, _MM_HINT_NTA);                                   \
        _mm_prefetch((const char *)values + 8256, _MM_HINT_NTA);                                   \
        TOKENS(0)                                                                                  \
        HOLD(low);                                                                                 \
        __m512i next_low = _mm512_srli_epi32(low, 4);                                              \
        HOLD(next_low);                                                                            \
        TOKENS(4)                                                                                  \
        HOLD(high);                                                                                \
        __m512i next_high = _mm512_srli_epi32(high, 4);                                            \
        HOLD(next_high);                                                                           \
        TOKENS(8)                                                                                  \
        TOKENS(12)                                                                                 \
        TOKENS(16)                                                                                 \
        low = next_low, high = next_high;                                                          \
    }

/* The epilogue of row block b_, whose sums are acc[token]. */
#define FINISH_LANES(b_)                                                                           \
    if (job->y_dtype == S24_F32 && is_plain(job, (b_)*ROWS)) {                                     \
        const __m512 alpha = _mm512_set1_ps(job->alpha);                                           \
        const __m512 bias =                                                                        \
            job->bias ? _mm512_loadu_ps(job->bias + (b_)*ROWS) : _mm512_setzero_ps();              \
        const int64_t y_step = job->y_stride_m;                                                    \
        float *y = (float *)job->y + (b_)*ROWS;                                                    \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            _mm512_storeu_ps(y + t * y_step, _mm512_fmadd_ps(acc[t], alpha, bias));                \
        }                                                                                          \
    } else {                                                                                       \
        _Alignas(64) float sums[T][ROWS];                                                          \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            _mm512_store_ps(sums[t], acc[t]);                                                      \
        }                                                                                          \
        finish_lanes(job, (b_)*ROWS, T, (const float(*)[ROWS])sums);                               \
    }

/* Row block b, T tokens, eight and more. A pick looks at four bits: of each group's code two are
   left. A group at a time, not a k block: the hardware that asks for x ahead of its use follows a
   load better that comes again soon. */
#define LANES(T_)                                                                                  \
    AVX512 static void lanes_##T_(const s24i_linear_job *job, const float *x, int64_t stride,      \
                                  int64_t b)                                                       \
    {                                                                                              \
        enum { T = T_, LATE = 4 };                                                                 \
        const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK;          \
        const __m512i slot = _mm512_set1_epi32(0x33333333);                                        \
        __m512 acc[T];                                                                             \
        (void)stride;                                                                              \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            acc[t] = _mm512_setzero_ps();                                                          \
        }                                                                                          \
        __asm__ volatile("" ::: "memory");                                                         \
        for (int64_t k = 0; k < job->k; k += COLUMNS, w += BLOCK) {                                \
            const __m512i code = _mm512_load_si512(w);                                             \
            __m512i low = _mm512_and_si512(code, slot);                                            \
            __m512i high = _mm512_and_si512(_mm512_srli_epi32(code, 2), slot);                     \
            const uint8_t *values = w + CODES;                                                     \
            const int64_t columns = job->k - k < COLUMNS ? job->k - k : COLUMNS;                   \
            for (int64_t g = 0; g < columns; g += 4, values += 2 * ROWS * VALUE, x += 4 * T)       \
                LANES_GROUP                                                                        \
        }                                                                                          \
        FINISH_LANES(b)                                                                            \
    }

LANES_FEW(1)
LANES_FEW(2)
LANES_FEW(3)
LANES_FEW(4)
LANES_FEW(5)
LANES_FEW(6)
LANES_FEW(7)
LANES(8)
LANES(9)
LANES(10)
LANES(11)
LANES(12)
LANES(13)
LANES(14)
LANES(15)
LANES(16)

static void (*const lanes[LANES_M + 1])(const s24i_linear_job *, const float *, int64_t,
                                        int64_t) = {
    NULL,    lanes_1,  lanes_2,  lanes_3,  lanes_4,  lanes_5,  lanes_6,  lanes_7, lanes_8,
    lanes_9, lanes_10, lanes_11, lanes_12, lanes_13, lanes_14, lanes_15, lanes_16};

/* ---- rows in the lanes and rows broadcast ---------------------------------------------------- */

#if VALUE == 4
#define FEW_FORMS 2
enum {
    BOTH_M = 12,    /* tokens from which on "both" is faster */
    BOTH_BLOCKS = 3 /* row blocks that it takes together */
};

/* Token t of the row block whose rows are in the lanes. */
#define BOTH_TOKEN(t)                                                                              \
    if (IS_TOKEN(t)) {                                                                             \
        PICK(t, IS_TOKEN(t) ? (t) : 0);                                                            \
        MULTIPLY(t, IS_TOKEN(t) ? (t) : 0);                                                        \
    }

/* Rows i and i + 1 of eight, slot s: their values are loaded together, and of a code, complemented
   and turned so that the bits that are due stand at 6 and 7, andn makes the column's offset. */
#define BOTH_ROW(i, dup, turn)                                                                     \
    __asm__ volatile("andn %4,%3,%1\n\t" dup " %5,%0\n\tvfmadd231ps (%6,%1),%0,%2\n\tror $" turn   \
                     ",%3"                                                                         \
                     : "=&v"(value), "=&r"(offset), "+v"(row[i]), "+r"(code[(i) / 2])              \
                     : "r"(mask), "v"(two), "r"(tokens)                                            \
                     : "cc")
#define BOTH_ROWS(s, i)                                                                            \
    {                                                                                              \
        __m512 two, value;                                                                         \
        uint64_t offset;                                                                           \
        __asm__ volatile("vbroadcastsd %c1(%2),%0"                                                 \
                         : "=v"(two)                                                               \
                         : "i"(CODES + (s)*ROWS * 4 + (i)*4), "r"(middle));                        \
        BOTH_TOKEN((s)*8 + (i))                                                                    \
        BOTH_ROW(i, "vmovsldup", "32");                                                            \
        BOTH_TOKEN((s)*8 + (i) + 1)                                                                \
        BOTH_ROW((i) + 1, "vmovshdup", "34");                                                      \
    }
#define BOTH_SLOT(s) BOTH_ROWS(s, 0) BOTH_ROWS(s, 2) BOTH_ROWS(s, 4) BOTH_ROWS(s, 6)

#define BOTH_GROUP                                                                                 \
    {                                                                                              \
        const __m512 w0 = LOAD_VALUES(w + CODES), w1 = LOAD_VALUES(w + CODES + ROWS * VALUE);      \
        __m512 picked0[8], picked1[8];                                                             \
        _mm_prefetch((const char *)w + AHEAD, _MM_HINT_NTA);                                       \
        _mm_prefetch((const char *)w + AHEAD + 64, _MM_HINT_NTA);                                  \
        _mm_prefetch((const char *)middle + AHEAD, _MM_HINT_NTA);                                  \
        _mm_prefetch((const char *)middle + AHEAD + 64, _MM_HINT_NTA);                             \
        BOTH_SLOT(0)                                                                               \
        BOTH_SLOT(1)                                                                               \
        low = _mm512_srli_epi32(low, 4);                                                           \
        high = _mm512_srli_epi32(high, 4);                                                         \
    }

/* One of the outer row blocks, w, all T tokens, and eight rows of the middle one, whose sums go to
   square; its codes and values start at `middle`. Sums of the lanes' rows are left in acc. */
#define BOTH_TILE                                                                                  \
    __m512 acc[T], row[8];                                                                         \
    UNROLL for (int t = 0; t < T; t++)                                                             \
    {                                                                                              \
        acc[t] = _mm512_setzero_ps();                                                              \
    }                                                                                              \
    UNROLL for (int i = 0; i < 8; i++)                                                             \
    {                                                                                              \
        row[i] = _mm512_setzero_ps();                                                              \
    }                                                                                              \
    __asm__ volatile("" ::: "memory");                                                             \
    for (int64_t k = 0; k < job->k; k += COLUMNS, w += CODES, middle += CODES) {                   \
        const __m512i codes = _mm512_load_si512(w);                                                \
        __m512i low = _mm512_and_si512(codes, slot);                                               \
        __m512i high = _mm512_and_si512(_mm512_srli_epi32(codes, 2), slot);                        \
        uint64_t code[4];                                                                          \
        UNROLL for (int i = 0; i < 4; i++)                                                         \
        {                                                                                          \
            const uint64_t rows = ~CODES_AT(middle, i);                                            \
            code[i] = rows << 6 | rows >> 58;                                                      \
        }                                                                                          \
        const int64_t columns = job->k - k < COLUMNS ? job->k - k : COLUMNS;                       \
        for (int64_t g = columns; g > 0; g -= 4) {                                                 \
            BOTH_GROUP                                                                             \
            w += 2 * ROWS * VALUE, middle += 2 * ROWS * VALUE;                                     \
            x += 4 * T, tokens += 4 * LANE;                                                        \
        }                                                                                          \
    }                                                                                              \
    UNROLL for (int i = 0; i < 8; i++)                                                             \
    {                                                                                              \
        _mm512_store_ps(square[8 * side + i], row[i]);                                             \
    }

/* Row blocks b to b + 2. */
#define BOTH(T_)                                                                                   \
    AVX512 static void both_##T_(const s24i_linear_job *job, const float *few, int64_t b)          \
    {                                                                                              \
        enum { T = T_, AHEAD = 4096 };                                                             \
        const int64_t row_bytes = rows16_k_blocks(job->k) * BLOCK;                                 \
        const uint8_t *blocks = (const uint8_t *)job->w + b * row_bytes;                           \
        const __m512i slot = _mm512_set1_epi32(0x33333333);                                        \
        const uint64_t mask = 192;                                                                 \
        _Alignas(64) float square[ROWS][LANE];                                                     \
        for (int side = 0; side < 2; side++) {                                                     \
            const uint8_t *w = blocks + side * 2 * row_bytes;                                      \
            const uint8_t *middle = blocks + row_bytes + side * 32;                                \
            const float *x = few, *tokens = second_form(job, few);                                 \
            BOTH_TILE                                                                              \
            FINISH_LANES(b + 2 * side)                                                             \
        }                                                                                          \
        finish_turned(job, b + 1, square);                                                         \
    }

/* x as it is broadcast to lies after its first form: group -> [4 k][16 tokens], lane 4q + j token
   4j + q. */
AVX512_INLINE const float *second_form(const s24i_linear_job *job, const float *few)
{
    return few + rows16_k_blocks(job->k) * COLUMNS * LANE;
}

/* A group of all tokens, four a vector, in both forms; what vectors hold beyond the last token the
   next group overwrites. */
AVX512_INLINE void store_group(float *to, int64_t m, float *second, __m512 r[4])
{
    UNROLL for (int j = 0; j < 4; j++)
    {
        if (4 * j < m) _mm512_storeu_ps(to + 16 * j, r[j]);
    }
    transpose_quarters(r);
    UNROLL for (int i = 0; i < 4; i++)
    {
        _mm512_store_ps(second + 16 * i, r[i]);
    }
}

/* `count` groups of the tokens that start at p. */
AVX512_INLINE void gather_groups(float *to, int64_t m, float *second, const float *const p[LANE],
                                 int64_t k, int count)
{
    __m512 r[4][4];
    UNROLL for (int j = 0; j < 4; j++)
    {
        UNROLL for (int g = 0; g < count; g++)
        {
            __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(p[4 * j] + k + 4 * g));
            v = _mm512_insertf32x4(v, _mm_loadu_ps(p[4 * j + 1] + k + 4 * g), 1);
            v = _mm512_insertf32x4(v, _mm_loadu_ps(p[4 * j + 2] + k + 4 * g), 2);
            r[g][j] = _mm512_insertf32x4(v, _mm_loadu_ps(p[4 * j + 3] + k + 4 * g), 3);
        }
    }
    UNROLL for (int g = 0; g < count; g++)
    {
        store_group(to + (k + 4 * g) * m, m, second + (k + 4 * g) * LANE, r[g]);
    }
}

/* Both forms; lanes without a token repeat the last one. */
AVX512 static void gather_both(float *to, const s24i_linear_job *job)
{
    float *second = to + rows16_k_blocks(job->k) * COLUMNS * LANE;
    const float *p[LANE];
    int64_t k = 0;
    for (int64_t i = 0; i < LANE; i++)
        p[i] = (const float *)job->x + (i < job->m ? i : job->m - 1) * job->x_stride_m;
    for (; k + 16 <= job->k; k += 16)
        gather_groups(to, job->m, second, p, k, 4);
    for (; k < job->k; k += 4)
        gather_groups(to, job->m, second, p, k, 1);
}

/* The second form from the first. */
AVX512 static void add_second_form(float *few, const s24i_linear_job *job)
{
    float *second = few + rows16_k_blocks(job->k) * COLUMNS * LANE;
    for (int64_t k = 0; k < job->k; k += 4) {
        __m512 r[4];
        UNROLL for (int j = 0; j < 4; j++)
        {
            r[j] =
                _mm512_maskz_loadu_ps(lane_mask(4 * (job->m - 4 * j)), few + k * job->m + 16 * j);
        }
        store_group(few + k * job->m, 0, second + k * LANE, r);
    }
}

/* The epilogue of row block b, whose sums are square[output][lane of the second form]. */
AVX512 static void finish_turned(const s24i_linear_job *job, int64_t b, float (*square)[LANE])
{
    _Alignas(64) float sums[LANE][ROWS];
    __m512 r[ROWS];
    UNROLL for (int i = 0; i < ROWS; i++)
    {
        r[i] = _mm512_load_ps(square[i]);
    }
    transpose_fours(r);
    UNROLL for (int j = 0; j < 4; j++)
    {
        exchange_quarters(r + j, 4);
        UNROLL for (int q = 0; q < 4; q++)
        {
            _mm512_store_ps(sums[4 * j + q], r[4 * q + j]);
        }
    }
    finish_lanes(job, b * ROWS, job->m, (const float(*)[ROWS])sums);
}

BOTH(12)
BOTH(13)
BOTH(14)
BOTH(15)
BOTH(16)

static void (*const both[LANES_M + 1])(const s24i_linear_job *, const float *, int64_t) = {
    [BOTH_M] = both_12, both_13, both_14, both_15, both_16};
#endif

static int64_t few_rows(const s24i_linear_job *job, const float *x, int64_t stride, int64_t b,
                        int64_t end)
{
#if VALUE == 4
    if (job->m >= BOTH_M && end - b >= BOTH_BLOCKS) {
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

AVX512 static void gather_few(few_t *to, int64_t stride, const s24i_linear_job *job)
{
    int64_t m = 0;
    (void)stride;
#if VALUE == 4
    if (job->m >= BOTH_M && job->x_stride_k == 1 && job->x_dtype == S24_F32) {
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
    if (job->m >= BOTH_M) add_second_form(to, job);
#endif
}

#endif
