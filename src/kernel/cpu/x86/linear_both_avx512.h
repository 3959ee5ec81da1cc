// SPDX-License-Identifier: Apache-2.0
/*
 * The second design of linear_few_avx512.h, "both": of three row blocks the outer two have their
 * rows in the lanes, and the rows of the middle one, eight with each, are broadcast to 16 tokens,
 * whose x lies there once more as [4 k][16 tokens]. A third of the multiply-adds so needs no
 * permutation: 0.59 cycle alone, 0.64 in whole calls.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_BOTH_AVX512_H
#define S24_KERNEL_CPU_X86_LINEAR_BOTH_AVX512_H

#define FEW_FORMS 2
enum {
    BOTH_M = 12,        /* tokens from which on "both" is faster, */
    BOTH_FAR = 8 << 20, /* on cores whose shuffles are dear with more bytes of weights alone */
    BOTH_BLOCKS = 3     /* row blocks that it takes together */
};

static int takes_both(const s24i_linear_job *job)
{
    if (job->m < BOTH_M) return 0;
    return !BROADCAST || rows16_blocks(job->n) * rows16_k_blocks(job->k) * BLOCK > BOTH_FAR;
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

/* Eight rows of the middle row block: where its codes and values are, and the tokens that they are
   broadcast to. Codes are complemented and turned, so that the bits that are due stand at 6 and
   7. */
typedef struct middle {
    const uint8_t *w;
    const float *tokens;
    uint64_t code[4];
    __m512 row[8];
} middle;

/* Token t of the row block whose rows are in the lanes. */
AVX512_INLINE void both_token(int t, group *g, __m512 *acc, const int T)
{
    if (t >= T) return;
    pick(t, g);
    multiply(t, g, acc);
}

/* Values of rows i and i + 1 of slot s, next to each other. */
AVX512_INLINE __m512 load_two(const middle *m, int s, int i)
{
    __m512 two;
    __asm__ volatile("vbroadcastsd %1,%0"
                     : "=v"(two)
                     : "m"(*(const float(*)[2])(m->w + CODES + (s * ROWS + i) * 4)));
    return two;
}

/* Row i's value in all lanes: one half of each of two's 64 bits or, where shuffles are dear, by a
   load of its own. */
AVX512_INLINE __m512 both_value(const middle *m, int s, int i, __m512 two)
{
    __m512 value;
    if (BROADCAST)
        __asm__ volatile("vbroadcastss %1,%0"
                         : "=v"(value)
                         : "m"(*(const float *)(m->w + CODES + (s * ROWS + i) * 4)));
    else if (i % 2)
        __asm__ volatile("vmovshdup %1,%0" : "=v"(value) : "v"(two));
    else
        __asm__ volatile("vmovsldup %1,%0" : "=v"(value) : "v"(two));
    return value;
}

/* Row i of slot s; andn makes its column's offset. */
AVX512_INLINE void both_row(int s, int i, middle *m, __m512 two)
{
    const uint64_t mask = 192;
    uint64_t offset;
    __asm__ volatile("andn %1,%2,%0" : "=r"(offset) : "r"(mask), "r"(m->code[i / 2]) : "cc");
    const __m512 value = both_value(m, s, i, two);
    __asm__ volatile("vfmadd231ps (%2,%3),%4,%0\n\tror %5,%1"
                     : "+v"(m->row[i]), "+r"(m->code[i / 2])
                     : "r"(m->tokens), "r"(offset), "v"(value), "i"(i % 2 ? 34 : 32)
                     : "cc");
}

/* Rows i and i + 1 of slot s, and a token next to each. */
AVX512_INLINE void both_rows(int s, int i, group *g, middle *m, __m512 *acc, const int T)
{
    const __m512 two = BROADCAST ? _mm512_setzero_ps() : load_two(m, s, i);
    both_token(s * 8 + i, g, acc, T);
    both_row(s, i, m, two);
    both_token(s * 8 + i + 1, g, acc, T);
    both_row(s, i + 1, m, two);
}

AVX512_INLINE void both_slot(int s, group *g, middle *m, __m512 *acc, const int T)
{
    both_rows(s, 0, g, m, acc, T);
    both_rows(s, 2, g, m, acc, T);
    both_rows(s, 4, g, m, acc, T);
    both_rows(s, 6, g, m, acc, T);
}

AVX512_INLINE void both_group(const uint8_t *w, group *g, middle *m, __m512 *acc, const int T)
{
    g->w0 = LOAD_VALUES(w + CODES), g->w1 = LOAD_VALUES(w + CODES + ROWS * VALUE);
    _mm_prefetch((const char *)w + BOTH_AHEAD, AHEAD_INTO);
    _mm_prefetch((const char *)w + BOTH_AHEAD + 64, AHEAD_INTO);
    _mm_prefetch((const char *)m->w + BOTH_AHEAD, AHEAD_INTO);
    _mm_prefetch((const char *)m->w + BOTH_AHEAD + 64, AHEAD_INTO);
    both_slot(0, g, m, acc, T);
    both_slot(1, g, m, acc, T);
    g->low = _mm512_srli_epi32(g->low, 4);
    g->high = _mm512_srli_epi32(g->high, 4);
}

/* One of the outer row blocks, w, T tokens, and eight rows of the middle one. */
AVX512_INLINE void both_tile(const s24i_linear_job *job, const uint8_t *w, group *g, middle *m,
                             __m512 *acc, const int T)
{
    const __m512i slot = _mm512_set1_epi32(0x33333333);
    UNROLL for (int t = 0; t < T; t++)
    {
        acc[t] = _mm512_setzero_ps();
    }
    UNROLL for (int i = 0; i < 8; i++)
    {
        m->row[i] = _mm512_setzero_ps();
    }
    __asm__ volatile("" ::: "memory");
    for (int64_t k = 0; k < job->k; k += COLUMNS, w += CODES, m->w += CODES) {
        const __m512i codes = _mm512_load_si512(w);
        g->low = _mm512_and_si512(codes, slot);
        g->high = _mm512_and_si512(_mm512_srli_epi32(codes, 2), slot);
        UNROLL for (int i = 0; i < 4; i++)
        {
            const uint64_t rows = ~codes_at(m->w, i);
            m->code[i] = rows << 6 | rows >> 58;
        }
        const int64_t columns = job->k - k < COLUMNS ? job->k - k : COLUMNS;
        for (int64_t i = columns; i > 0; i -= 4) {
            both_group(w, g, m, acc, T);
            w += 2 * ROWS * VALUE, m->w += 2 * ROWS * VALUE;
            g->x += 4 * T, m->tokens += 4 * LANE;
        }
    }
}

/* Multiplies row blocks b to b + 2 by T tokens, a constant. */
AVX512_INLINE void both_many(const s24i_linear_job *job, const float *few, int64_t b, const int T)
{
    const int64_t row_bytes = rows16_k_blocks(job->k) * BLOCK;
    const uint8_t *blocks = (const uint8_t *)job->w + b * row_bytes;
    _Alignas(64) float square[ROWS][LANE];
    for (int side = 0; side < 2; side++) {
        group g;
        middle m = {.w = blocks + row_bytes + side * 32, .tokens = second_form(job, few)};
        __m512 acc[LANES_M];
        g.x = few;
        both_tile(job, blocks + side * 2 * row_bytes, &g, &m, acc, T);
        UNROLL for (int i = 0; i < 8; i++)
        {
            _mm512_store_ps(square[8 * side + i], m.row[i]);
        }
        finish_few(job, b + 2 * side, acc, T);
    }
    finish_turned(job, b + 1, square);
}

#define BOTH(T)                                                                                    \
    AVX512 static void both_##T(const s24i_linear_job *job, const float *few, int64_t b)           \
    {                                                                                              \
        both_many(job, few, b, T);                                                                 \
    }
BOTH(12)
BOTH(13)
BOTH(14)
BOTH(15)
BOTH(16)

static void (*const both[LANES_M + 1])(const s24i_linear_job *, const float *, int64_t) = {
    [BOTH_M] = both_12, both_13, both_14, both_15, both_16};

#endif
