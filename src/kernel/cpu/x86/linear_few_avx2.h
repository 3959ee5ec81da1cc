// SPDX-License-Identifier: Apache-2.0
/*
 * Few tokens in AVX2, rows in the lanes: weights are read once, in one sequential stream, and of a
 * token's four columns vpermilps picks by two code bits per lane. Up to four tokens 16 rows go
 * together; from five on sixteen registers hold the sums of eight rows, so that the other eight
 * take a second turn at each chunk of weights while it is in L1. Either way eight sums or more are
 * under way at a time, since one waits four cycles for itself. Beyond eight tokens each chunk
 * serves them in parts.
 *
 * The including file defines GROUP_BYTES (of a group's values of 16 rows), HALF_BYTES (from rows
 * 0..7 to rows 8..15 in it), FEW_BLOCK (bytes from k block to k block), values_of(at, slot) and
 * stream_of(job, b); ASK_HINT, where lines are asked for into other caches than L1 alone.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_FEW_AVX2_H
#define S24_KERNEL_CPU_X86_LINEAR_FEW_AVX2_H

#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx2.h"

enum {
    LANES_M = 20,   /* tokens; three full vectors of the tile take less */
    WHOLE = 4,      /* tokens for which 16 rows go together */
    PART = 8,       /* tokens that go together at most */
    FEW_BLOCKS = 6, /* k blocks of a chunk */
    AHEAD = 8192,   /* bytes from the weights that are used to those asked for */
    ASK_LINES = (GROUP_BYTES + 63) / 64
};

/* Two full vectors of the tile take less too, where it need not widen weights for them. */
#define IS_FEW(m) ((m) <= LANES_M && ((m) != 16 || WIDEN))

#ifndef ASK_HINT
#define ASK_HINT _MM_HINT_NTA
#endif

/* The weights of a row block: segments of some columns, each with its 16 scales in front where
   there are none for all of them. */
typedef struct stream {
    const uint8_t *w;
    const float *scales;
    int64_t segment; /* columns */
} stream;

static stream stream_of(const s24i_linear_job *job, int64_t b);

/* The values of a group's slot of eight rows, as f32. */
AVX2_INLINE __m256 values_of(const uint8_t *group, int slot);

/* ---- x: part of the tokens -> group -> [tokens of the part][4 columns] ----------------------- */

typedef float few_t;

static int64_t part_of(int64_t m)
{
    const int64_t parts = (m + PART - 1) / PART;
    return (m + parts - 1) / parts;
}

static int few_as_they_are(const s24i_linear_job *job)
{
    return job->m == 1 && job->x_stride_k == 1;
}

static void gather_few(few_t *to, int64_t stride, const s24i_linear_job *job)
{
    const int64_t part = part_of(job->m);
    (void)stride;
    for (int64_t m = 0; m < job->m; m++) {
        const int64_t first = m / part * part, left = job->m - first, t = left < part ? left : part;
        const float *x = (const float *)job->x + m * job->x_stride_m;
        few_t *own = to + first * job->k + 4 * (m - first);
        if (job->x_stride_k == 1)
            for (int64_t k = 0; k < job->k; k += 4)
                _mm_storeu_ps(own + k * t, _mm_loadu_ps(x + k));
        else
            for (int64_t k = 0; k < job->k; k++)
                own[(k - k % 4) * t + k % 4] = x[k * job->x_stride_k];
    }
}

/* ---- up to four tokens ----------------------------------------------------------------------- */

/* Hidden from gcc, which unrolls a loop that it knows to be short, tests and all. */
static inline int64_t groups_of(int64_t columns)
{
    int64_t groups = columns < COLUMNS ? columns / 4 : GROUPS;
    __asm__("" : "+r"(groups));
    return groups;
}

#define ASK(at)                                                                                    \
    UNROLL for (int line = 0; line < ASK_LINES; line++)                                            \
    {                                                                                              \
        _mm_prefetch((const char *)(at) + AHEAD + 64 * line, ASK_HINT);                            \
    }

#define FOUR(t) _mm256_broadcast_ps((const __m128 *)(const void *)(x + 4 * (t)))

/* Adds a group to the sums from `first` on, one or two for each half of the rows; half by half,
   with x loaded anew for the second, for want of registers. */
AVX2_INLINE void sixteen_group(const uint8_t *at, const few_t *x, __m256i *code,
                               __m256 (*acc)[2][4], const int T, const int S, const int first)
{
    ASK(at)
    UNROLL for (int h = 0; h < 2; h++)
    {
        const __m256 w0 = values_of(at + h * HALF_BYTES, 0);
        const __m256 w1 = values_of(at + h * HALF_BYTES, 1);
        const __m256i second = _mm256_srli_epi32(code[h], 2);
        __asm__ volatile("" ::: "memory");
        UNROLL for (int t = 0; t < T; t++)
        {
            __m256 *const sum = &acc[t][h][first];
            const __m256 four = FOUR(t);
            sum[0] = _mm256_fmadd_ps(_mm256_permutevar_ps(four, code[h]), w0, sum[0]);
            sum[S > 1] = _mm256_fmadd_ps(_mm256_permutevar_ps(four, second), w1, sum[S > 1]);
        }
        code[h] = _mm256_srli_epi32(code[h], 4);
    }
}

/* Multiplies all of k by T tokens, with S sums for each output; both are constants. */
AVX2_INLINE void sixteen(const stream *from, int64_t k, const few_t *x, float (*sums)[ROWS],
                         const int T, const int S)
{
    const uint8_t *w = from->w;
    for (int64_t left = k; left > 0; left -= from->segment) {
        const float *scales = from->scales ? from->scales : (const float *)(const void *)w;
        __m256 acc[WHOLE][2][4];
        UNROLL for (int i = 0; i < T * 2 * S; i++)
        {
            acc[i / (2 * S)][i / S % 2][i % S] = _mm256_setzero_ps();
        }
        if (!from->scales) w += ROWS * sizeof(float);
        int64_t columns = left < from->segment ? left : from->segment;
        for (; columns > 0; columns -= COLUMNS, w += FEW_BLOCK) {
            const int64_t groups = groups_of(columns);
            const uint8_t *at = w + CODES;
            int64_t g = 0;
            __m256i code[2] = {_mm256_load_si256((const __m256i *)(const void *)w),
                               _mm256_load_si256((const __m256i *)(const void *)w + 1)};
            for (; S == 4 && g + 2 <= groups; g += 2, at += 2 * GROUP_BYTES, x += 8 * T) {
                sixteen_group(at, x, code, acc, T, S, 0);
                sixteen_group(at + GROUP_BYTES, x + 4 * T, code, acc, T, S, 2);
            }
            for (; g < groups; g++, at += GROUP_BYTES, x += 4 * T)
                sixteen_group(at, x, code, acc, T, S, 0);
        }
        UNROLL for (int i = 0; i < T * 2; i++)
        {
            float *const sum = sums[i / 2] + i % 2 * 8;
            __m256 *const all = acc[i / 2][i % 2];
            UNROLL for (int s = S - 1; s > 0; s--)
            {
                all[s - 1] = _mm256_add_ps(all[s - 1], all[s]);
            }
            _mm256_store_ps(sum, _mm256_fmadd_ps(all[0], _mm256_load_ps(scales + i % 2 * 8),
                                                 _mm256_load_ps(sum)));
        }
    }
}

#define SIXTEEN_ROWS(T, S)                                                                         \
    AVX2 static void sixteen_##T(const stream *from, int64_t k, const few_t *x,                    \
                                 float(*sums)[ROWS])                                               \
    {                                                                                              \
        sixteen(from, k, x, sums, T, S);                                                           \
    }
SIXTEEN_ROWS(1, 4)
SIXTEEN_ROWS(2, 2)
SIXTEEN_ROWS(3, 1)
SIXTEEN_ROWS(4, 1)

/* ---- a part of four to eight ----------------------------------------------------------------- */

/* Multiplies rows row .. row + 7 of the k blocks at w by T tokens, a constant. */
AVX2_INLINE void eight(const uint8_t *w, int64_t row, int64_t columns, const few_t *x,
                       const float *scales, float (*sums)[ROWS], const int T)
{
    const int TWICE = T < 10 - T ? T : 10 - T; /* tokens with a sum for each slot */
    __m256 acc[PART], other[PART];
    UNROLL for (int t = 0; t < T; t++)
    {
        acc[t] = _mm256_setzero_ps();
        if (t < TWICE) other[t] = _mm256_setzero_ps();
    }
    for (; columns > 0; columns -= COLUMNS, w += FEW_BLOCK) {
        const int64_t groups = groups_of(columns);
        const uint8_t *at = w + CODES + row / 8 * HALF_BYTES, *ask = at + AHEAD + 8 * row;
        __m256i code = _mm256_load_si256((const __m256i *)(const void *)(w + 4 * row));
        __m256i second = _mm256_srli_epi32(code, 2);
        for (int64_t g = 0; g < groups; g++, at += GROUP_BYTES, ask += GROUP_BYTES, x += 4 * T) {
            const __m256 w0 = values_of(at, 0), w1 = values_of(at, 1);
            _mm_prefetch((const char *)ask, ASK_HINT);
            UNROLL for (int t = 0; t < T; t++)
            {
                const __m256 four = FOUR(t), picked = _mm256_permutevar_ps(four, second);
                acc[t] = _mm256_fmadd_ps(_mm256_permutevar_ps(four, code), w0, acc[t]);
                if (t < TWICE)
                    other[t] = _mm256_fmadd_ps(picked, w1, other[t]);
                else
                    acc[t] = _mm256_fmadd_ps(picked, w1, acc[t]);
            }
            code = _mm256_srli_epi32(code, 4);
            second = _mm256_srli_epi32(second, 4);
        }
    }
    const __m256 scale = _mm256_load_ps(scales + row);
    UNROLL for (int t = 0; t < T; t++)
    {
        float *const sum = sums[t] + row;
        if (t < TWICE) acc[t] = _mm256_add_ps(acc[t], other[t]);
        _mm256_store_ps(sum, _mm256_fmadd_ps(acc[t], scale, _mm256_load_ps(sum)));
    }
}

#define EIGHT_ROWS(T)                                                                              \
    AVX2 static void eight_##T(const uint8_t *w, int64_t row, int64_t columns, const few_t *x,     \
                               const float *scales, float(*sums)[ROWS])                            \
    {                                                                                              \
        eight(w, row, columns, x, scales, sums, T);                                                \
    }
EIGHT_ROWS(4)
EIGHT_ROWS(5)
EIGHT_ROWS(6)
EIGHT_ROWS(7)
EIGHT_ROWS(8)

static void (*const sixteen_rows[WHOLE + 1])(const stream *, int64_t, const few_t *,
                                             float (*)[ROWS]) = {NULL, sixteen_1, sixteen_2,
                                                                 sixteen_3, sixteen_4};
static void (*const eight_rows[PART + 1])(const uint8_t *, int64_t, int64_t, const few_t *,
                                          const float *, float (*)[ROWS]) = {
    NULL, NULL, NULL, NULL, eight_4, eight_5, eight_6, eight_7, eight_8};

/* ---- a row block of all tokens --------------------------------------------------------------- */

/* Columns k and on of a segment, at w. */
static void chunk_rows(const s24i_linear_job *job, const uint8_t *w, int64_t k, int64_t columns,
                       const few_t *x, const float *scales, float (*sums)[ROWS])
{
    const int64_t part = part_of(job->m);
    for (int64_t row = 0; row < ROWS; row += 8)
        for (int64_t m = 0; m < job->m; m += part) {
            const int64_t t = job->m - m < part ? job->m - m : part;
            eight_rows[t](w, row, columns, x + m * job->k + k * t, scales, sums + m);
        }
}

static void segment_rows(const s24i_linear_job *job, const stream *from, const few_t *x,
                         float (*sums)[ROWS])
{
    const uint8_t *w = from->w;
    for (int64_t k = 0, end; k < job->k; k = end) {
        const float *scales = from->scales ? from->scales : (const float *)(const void *)w;
        end = k + from->segment < job->k ? k + from->segment : job->k;
        if (!from->scales) w += ROWS * sizeof(float);
        for (; k < end; k += FEW_BLOCKS * COLUMNS) {
            const int64_t columns = FEW_BLOCKS * COLUMNS < end - k ? FEW_BLOCKS * COLUMNS : end - k;
            chunk_rows(job, w, k, columns, x, scales, sums);
            w += (columns + COLUMNS - 1) / COLUMNS * FEW_BLOCK;
        }
    }
}

static int is_plain(const s24i_linear_job *job, int64_t n)
{
    return !job->gate && !(job->residual && job->beta != 0) && job->n - n >= ROWS &&
           job->activation == S24_ACTIVATION_NONE && job->y_stride_n == 1 &&
           job->y_dtype == S24_F32;
}

/* Outputs n .. n + 7 of all tokens. */
AVX2 static void finish_few(const s24i_linear_job *job, int64_t n, const float (*sums)[ROWS],
                            int plain)
{
    const __m256 alpha = _mm256_set1_ps(job->alpha);
    const __m256 bias = job->bias ? load_lanes(job->bias + n, 1, job->n - n) : _mm256_setzero_ps();
    float *y = (float *)job->y + n;
    for (int64_t m = 0; m < job->m; m++) {
        const __m256 sum = _mm256_load_ps(sums[m]);
        if (plain)
            _mm256_storeu_ps(y + m * job->y_stride_m, _mm256_fmadd_ps(sum, alpha, bias));
        else
            finish(job, m, n, job->n - n, 1, sum, bias);
    }
}

AVX2 static int64_t few_rows(const s24i_linear_job *job, const few_t *x, int64_t stride, int64_t b,
                             int64_t end)
{
    const stream from = stream_of(job, b);
    _Alignas(32) float sums[LANES_M][ROWS];
    const int plain = is_plain(job, b * ROWS);
    (void)stride, (void)end;
    for (int64_t m = 0; m < job->m; m++) {
        _mm256_store_ps(sums[m], _mm256_setzero_ps());
        _mm256_store_ps(sums[m] + 8, _mm256_setzero_ps());
    }
    if (job->m <= WHOLE)
        sixteen_rows[job->m](&from, job->k, x, sums);
    else
        segment_rows(job, &from, x, sums);
    for (int64_t n = b * ROWS; n < job->n && n < (b + 1) * ROWS; n += 8)
        finish_few(job, n, (const float(*)[ROWS])(const void *)&sums[0][n - b * ROWS], plain);
    return 1;
}

#endif
