// SPDX-License-Identifier: Apache-2.0
/*
 * The vector operations, written once over the macros that each vec_*.c defines before including
 * this file: vec, WIDTH, V_*, TARGET (the instruction set, as a function attribute) and the tiles
 * of the product. Not a header of its own: no guard, included once a table.
 */
#include "vec/vec_math.h"

/* ---- the product ----------------------------------------------------------------------------- */

/* The left element of a product to all lanes, and its multiply-add. */
#if HAVE_PAIRS
#define LEFT(pairs, a, i)                                                                          \
    ((pairs) ? V_SET_PAIR((const s24i_pair *)(a) + (i)) : V_SET(((const float *)(a))[i]))
#define MAC(pairs, left, b, c) ((pairs) ? V_DOT2(left, b, c) : V_FMA(left, b, c))
#else
#define LEFT(pairs, a, i)      V_SET(((const float *)(a))[i])
#define MAC(pairs, left, b, c) V_FMA(left, b, c)
#endif

/* A tile of rows × vecs·WIDTH sums, kept in registers over the whole of k. */
TARGET INLINE void tile(const s24i_product *job, int64_t i0, int64_t j0, int rows, int vecs,
                        int pairs)
{
    const int64_t lda = job->lda, ldb = job->ldb, k = job->k;
    const float *a = (const float *)job->a + i0 * lda, *b = (const float *)job->b + j0;
    vec sum[TILE_ROWS_SLIM][TILE_VECS_WIDE];
    (void)pairs;
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int j = 0; j < vecs; j++)
            sum[i][j] = V_SET(0.0f);
    }
    for (int64_t l = 0; l < k; l++, b += ldb) {
        vec column[TILE_VECS_WIDE];
        UNROLL
        for (int j = 0; j < vecs; j++)
            column[j] = V_LOAD(b + j * WIDTH);
        UNROLL
        for (int i = 0; i < rows; i++) {
            const vec left = LEFT(pairs, a, i * lda + l);
            UNROLL
            for (int j = 0; j < vecs; j++)
                sum[i][j] = MAC(pairs, left, column[j], sum[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        const vec factor = V_SET(job->scale ? job->scale[i0 + i] : 1.0f);
        float *c = job->c + (i0 + i) * job->ldc + j0;
        UNROLL
        for (int j = 0; j < vecs; j++)
            V_STORE(c + j * WIDTH, V_MUL(factor, sum[i][j]));
    }
}

/* Every row of one column of tiles: full tiles, then what is left in fours and ones. */
#define TILE_COLUMN(name, full_rows, vecs, pairs)                                                  \
    TARGET static void name(const s24i_product *job, int64_t j0)                                   \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + (full_rows) <= job->m; i += (full_rows))                                        \
            tile(job, i, j0, full_rows, vecs, pairs);                                              \
        for (; i + 4 <= job->m; i += 4)                                                            \
            tile(job, i, j0, 4, vecs, pairs);                                                      \
        for (; i < job->m; i++)                                                                    \
            tile(job, i, j0, 1, vecs, pairs);                                                      \
    }

#define PRODUCT(name, pairs)                                                                       \
    TILE_COLUMN(name##_wide, TILE_ROWS_WIDE, TILE_VECS_WIDE, pairs)                                \
    TILE_COLUMN(name##_slim, TILE_ROWS_SLIM, TILE_VECS_SLIM, pairs)                                \
    TILE_COLUMN(name##_one, TILE_ROWS_SLIM, 1, pairs)                                              \
    TARGET static void name(const s24i_product *job)                                               \
    {                                                                                              \
        const int64_t n = (job->n + WIDTH - 1) / WIDTH * WIDTH;                                    \
        int64_t j = 0;                                                                             \
        for (; j + TILE_VECS_WIDE * WIDTH <= n; j += TILE_VECS_WIDE * WIDTH)                       \
            name##_wide(job, j);                                                                   \
        for (; j + TILE_VECS_SLIM * WIDTH <= n; j += TILE_VECS_SLIM * WIDTH)                       \
            name##_slim(job, j);                                                                   \
        for (; j < n; j += WIDTH)                                                                  \
            name##_one(job, j);                                                                    \
    }

PRODUCT(product, 0)
#if HAVE_PAIRS
PRODUCT(pair_product, 1)
#endif

/* ---- softmax, transpose ---------------------------------------------------------------------- */

/* x·scale + mask in place, where there is a mask. */
TARGET INLINE void softmax_mask(float *s, const s24i_softmax *job)
{
    const vec scale = V_SET(job->scale);
    for (int64_t i = 0; i < job->n; i += WIDTH)
        V_STORE(s + i, V_FMA(V_LOAD(s + i), scale, V_LOAD(job->mask + i)));
}

/* A row's maximum. A last partial vector is filled up with what exp makes 0. */
TARGET INLINE float row_top(float *s, int64_t n)
{
    const int64_t whole = n / WIDTH * WIDTH;
    vec top = V_SET(-FLT_MAX);
    for (int64_t i = 0; i < whole; i += WIDTH)
        top = V_MAX(top, V_LOAD(s + i));
    if (whole < n) {
        const vec last = load_part(s + whole, n - whole, -HUGE_VALF);
        V_STORE(s + whole, last);
        top = V_MAX(top, last);
    }
    return V_TOP(top);
}

/* 2^x, x of at most 0 up to rounding. The constant stands first, so that NaN comes through. */
TARGET INLINE vec vec_exp2(vec x)
{
    x = V_MAX(V_SET(-200.0f), x);
    const vec n = V_ROUND(x), r = V_SUB(x, n);
    vec p = V_SET(1.3276472e-3f);
    p = V_FMA(p, r, V_SET(9.6755415e-3f));
    p = V_FMA(p, r, V_SET(5.5507133e-2f));
    p = V_FMA(p, r, V_SET(2.4022120e-1f));
    p = V_FMA(p, r, V_SET(6.9314697e-1f));
    p = V_FMA(p, r, V_SET(1.0f));
    return V_SCALE2(p, n);
}

/* One row and its maximum; returns the sum. exp(scale·(s − top)) is 2^(factor·(s − top)). */
TARGET INLINE float softmax_row(float *s, int64_t n, float top, float scale)
{
    const vec most = V_SET(top), factor = V_SET(1.44269504089f * scale);
    vec sum = V_SET(0.0f);
    for (int64_t i = 0; i < n; i += WIDTH) {
        const vec e = vec_exp2(V_MUL(V_SUB(V_LOAD(s + i), most), factor));
        sum = V_ADD(sum, e);
        V_STORE(s + i, e);
    }
    return V_SUM(sum);
}

/* Some rows' maxima come before their sums, so that no row waits for its own. */
#define SOFTMAX(name, row)                                                                         \
    TARGET static void name(const s24i_softmax *job)                                               \
    {                                                                                              \
        enum { ROWS = 8 };                                                                         \
        const float scale = job->mask ? 1.0f : job->scale;                                         \
        for (int64_t r0 = 0, end; r0 < job->rows; r0 = end) {                                      \
            end = r0 + ROWS < job->rows ? r0 + ROWS : job->rows;                                   \
            for (int64_t r = r0; r < end; r++) {                                                   \
                float *s = job->s + r * job->ld;                                                   \
                if (job->mask) softmax_mask(s, job);                                               \
                job->inverse[r] = row_top(s, job->n);                                              \
            }                                                                                      \
            for (int64_t r = r0; r < end; r++)                                                     \
                job->inverse[r] =                                                                  \
                    1.0f / row(job->s + r * job->ld, job->n, job->inverse[r], scale);              \
        }                                                                                          \
    }

SOFTMAX(softmax, softmax_row)

#if HAVE_PAIRS
/* 2^x to 8e-5: bf16 keeps 4e-3. */
TARGET INLINE vec short_exp2(vec x)
{
    x = V_MAX(V_SET(-200.0f), x);
    const vec n = V_ROUND(x), r = V_SUB(x, n);
    vec p = V_SET(5.5171669e-2f);
    p = V_FMA(p, r, V_SET(2.4261113e-1f));
    p = V_FMA(p, r, V_SET(6.9326099e-1f));
    p = V_FMA(p, r, V_SET(9.9992807e-1f));
    return V_SCALEF(p, n);
}

/* The weights take half the room of the scores, and each is stored behind what was read. */
TARGET INLINE float pair_softmax_row(float *s, int64_t n, float top, float scale)
{
    const vec most = V_SET(top), factor = V_SET(1.44269504089f * scale);
    char *to = (char *)s;
    vec sum = V_SET(0.0f);
    for (int64_t i = 0; i < n; i += WIDTH, to += 2 * WIDTH) {
        const vec e = short_exp2(V_MUL(V_SUB(V_LOAD(s + i), most), factor));
        sum = V_ADD(sum, e);
        V_STORE_BF16(to, e);
    }
    return V_SUM(sum);
}

SOFTMAX(pair_softmax, pair_softmax_row)

TARGET static void pair_rows(s24i_pair *dst, int64_t ldd, const uint16_t *src, int64_t lds,
                             int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r += 2, dst += ldd, src += 2 * lds) {
        const int both = r + 1 < rows;
        int64_t c = 0;
        for (; both && c + WIDTH <= cols; c += WIDTH)
            V_STORE((float *)(dst + c), V_ZIP(src + c, src + lds + c));
        for (; c < cols; c++)
            dst[c] = (s24i_pair)(src[c] | (uint32_t)(both ? src[lds + c] : 0) << 16);
        for (; c < ldd; c++)
            dst[c] = 0;
    }
}

TARGET static void narrow(uint16_t *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        V_STORE_BF16(y + i, V_LOAD(x + i));
    if (i < n) {
        uint16_t part[WIDTH];
        V_STORE_BF16(part, load_part(x + i, n - i, 0.0f));
        for (int64_t j = 0; i + j < n; j++)
            y[i + j] = part[j];
    }
}
#endif

#if HAVE_AVX2
/* dst[c][r] = src[r][c] for 8 × 8 elements. */
TARGET INLINE void transpose_8x8(float *dst, int64_t ldd, const float *src, int64_t lds)
{
    __m256 row[8], pair[8];
    UNROLL
    for (int i = 0; i < 4; i++) {
        /* Rows i and i + 4 share a register, so that the halves need no exchange at the end. */
        const float *low = src + i * lds, *high = src + (i + 4) * lds;
        row[i] =
            _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
        row[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low + 4)),
                                          _mm_loadu_ps(high + 4), 1);
    }
    UNROLL
    for (int h = 0; h < 8; h += 4) {
        pair[h] = _mm256_unpacklo_ps(row[h], row[h + 1]);
        pair[h + 1] = _mm256_unpackhi_ps(row[h], row[h + 1]);
        pair[h + 2] = _mm256_unpacklo_ps(row[h + 2], row[h + 3]);
        pair[h + 3] = _mm256_unpackhi_ps(row[h + 2], row[h + 3]);
        float *out = dst + h * ldd;
        _mm256_storeu_ps(out, _mm256_shuffle_ps(pair[h], pair[h + 2], 0x44));
        _mm256_storeu_ps(out + ldd, _mm256_shuffle_ps(pair[h], pair[h + 2], 0xee));
        _mm256_storeu_ps(out + 2 * ldd, _mm256_shuffle_ps(pair[h + 1], pair[h + 3], 0x44));
        _mm256_storeu_ps(out + 3 * ldd, _mm256_shuffle_ps(pair[h + 1], pair[h + 3], 0xee));
    }
}
#define TRANSPOSE_STEP                      8
#define TRANSPOSE_STEPS(dst, ldd, src, lds) transpose_8x8(dst, ldd, src, lds)
#else
#define TRANSPOSE_STEP                      1
#define TRANSPOSE_STEPS(dst, ldd, src, lds) (*(dst) = *(src))
#endif

TARGET static void transpose(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t rows,
                             int64_t cols)
{
    const int64_t whole_rows = rows / TRANSPOSE_STEP * TRANSPOSE_STEP;
    const int64_t whole_cols = cols / TRANSPOSE_STEP * TRANSPOSE_STEP;
    for (int64_t r = 0; r < whole_rows; r += TRANSPOSE_STEP)
        for (int64_t c = 0; c < whole_cols; c += TRANSPOSE_STEP)
            TRANSPOSE_STEPS(dst + c * ldd + r, ldd, src + r * lds + c, lds);
    for (int64_t c = 0; c < cols; c++) {
        for (int64_t r = c < whole_cols ? whole_rows : 0; r < rows; r++)
            dst[c * ldd + r] = src[r * lds + c];
        for (int64_t r = rows; r < ldd; r++)
            dst[c * ldd + r] = 0.0f;
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

TARGET static void layer_norm_row(float *x, const s24i_layer_norm *norm)
{
    const int64_t n = norm->n, whole = n / WIDTH * WIDTH;
    vec sum = V_SET(0.0f), squares = V_SET(0.0f);
    for (int64_t i = 0; i < whole; i += WIDTH)
        sum = V_ADD(sum, V_LOAD(x + i));
    if (whole < n) sum = V_ADD(sum, load_part(x + whole, n - whole, 0.0f));
    const float mean = V_SUM(sum) / (float)n;
    const vec centre = V_SET(mean);
    for (int64_t i = 0; i < whole; i += WIDTH) {
        const vec d = V_SUB(V_LOAD(x + i), centre);
        squares = V_FMA(d, d, squares);
    }
    if (whole < n) {
        const vec d = V_SUB(load_part(x + whole, n - whole, mean), centre);
        squares = V_FMA(d, d, squares);
    }
    const float inverse = 1.0f / __builtin_sqrtf(V_SUM(squares) / (float)n + norm->eps);
    const vec factor = V_SET(inverse);
    for (int64_t i = 0; i < whole; i += WIDTH) {
        const vec d = V_MUL(V_SUB(V_LOAD(x + i), centre), factor);
        V_STORE(x + i, V_FMA(d, V_LOAD(norm->gamma + i), V_LOAD(norm->beta + i)));
    }
    for (int64_t i = whole; i < n; i++)
        x[i] = (x[i] - mean) * inverse * norm->gamma[i] + norm->beta[i];
}

TARGET static void rms_norm_row(float *x, const s24i_layer_norm *norm)
{
    const int64_t n = norm->n, whole = n / WIDTH * WIDTH;
    vec squares = V_SET(0.0f);
    for (int64_t i = 0; i < whole; i += WIDTH) {
        const vec v = V_LOAD(x + i);
        squares = V_FMA(v, v, squares);
    }
    if (whole < n) {
        const vec v = load_part(x + whole, n - whole, 0.0f);
        squares = V_FMA(v, v, squares);
    }
    const float inverse = 1.0f / __builtin_sqrtf(V_SUM(squares) / (float)n + norm->eps);
    const vec factor = V_SET(inverse);
    for (int64_t i = 0; i < whole; i += WIDTH)
        V_STORE(x + i, V_MUL(V_MUL(V_LOAD(x + i), factor), V_LOAD(norm->gamma + i)));
    for (int64_t i = whole; i < n; i++)
        x[i] = x[i] * inverse * norm->gamma[i];
}

TARGET static void layer_norm(float *x, int64_t rows, const s24i_layer_norm *norm)
{
    for (int64_t r = 0; r < rows; r++)
        (norm->beta ? layer_norm_row : rms_norm_row)(x + r * norm->n, norm);
}

TARGET static void epilogue(float *y, const float *x, const float *bias, s24_activation activation,
                            int accumulate, int64_t n)
{
    const int64_t whole = n / WIDTH * WIDTH;
    for (int64_t i = 0; i < whole; i += WIDTH) {
        vec v = V_LOAD(x + i);
        if (bias) v = V_ADD(v, V_LOAD(bias + i));
        v = activate(v, activation);
        V_STORE(y + i, accumulate ? V_ADD(V_LOAD(y + i), v) : v);
    }
    if (whole < n) {
        vec v = load_part(x + whole, n - whole, 0.0f);
        if (bias) v = V_ADD(v, load_part(bias + whole, n - whole, 0.0f));
        v = activate(v, activation);
        if (accumulate) v = V_ADD(load_part(y + whole, n - whole, 0.0f), v);
        store_part(y + whole, v, n - whole);
    }
}

TARGET static void gate(float *y, const float *g, const float *u, s24_activation activation,
                        int squared, int64_t n)
{
    const int64_t whole = n / WIDTH * WIDTH;
    for (int64_t i = 0; i < whole; i += WIDTH) {
        const vec v = activate(V_LOAD(g + i), activation);
        V_STORE(y + i, V_MUL(squared ? V_MUL(v, v) : v, V_LOAD(u + i)));
    }
    if (whole < n) {
        const vec v = activate(load_part(g + whole, n - whole, 0.0f), activation);
        const vec factor = load_part(u + whole, n - whole, 0.0f);
        store_part(y + whole, V_MUL(squared ? V_MUL(v, v) : v, factor), n - whole);
    }
}

TARGET static float log_sum(const float *x, int64_t n)
{
    const int64_t whole = n / WIDTH * WIDTH;
    vec top = V_SET(-FLT_MAX), sum = V_SET(0.0f);
    for (int64_t i = 0; i < whole; i += WIDTH)
        top = V_MAX(top, V_LOAD(x + i));
    /* What is not there is far below: exp makes it 0. */
    if (whole < n) top = V_MAX(top, load_part(x + whole, n - whole, -FLT_MAX));
    const float most = V_TOP(top);
    for (int64_t i = 0; i < whole; i += WIDTH)
        sum = V_ADD(sum, vec_exp(V_SUB(V_LOAD(x + i), V_SET(most))));
    if (whole < n)
        sum = V_ADD(sum, vec_exp(V_SUB(load_part(x + whole, n - whole, -FLT_MAX), V_SET(most))));
    return most + logf(V_SUM(sum));
}

TARGET static void add(float *y, const float *a, const float *b, int64_t n)
{
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        V_STORE(y + i, V_ADD(V_LOAD(a + i), V_LOAD(b + i)));
    for (; i < n; i++)
        y[i] = a[i] + b[i];
}

TARGET static void axpy(float *y, float alpha, const float *x, int64_t n)
{
    const vec factor = V_SET(alpha);
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        V_STORE(y + i, V_FMA(factor, V_LOAD(x + i), V_LOAD(y + i)));
    for (; i < n; i++)
        y[i] += alpha * x[i];
}

TARGET static void maximum(float *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        V_STORE(y + i, V_MAX(V_LOAD(y + i), V_LOAD(x + i)));
    for (; i < n; i++)
        y[i] = y[i] > x[i] ? y[i] : x[i];
}

TARGET static void scale(float *y, float alpha, int64_t n)
{
    const vec factor = V_SET(alpha);
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        V_STORE(y + i, V_MUL(V_LOAD(y + i), factor));
    for (; i < n; i++)
        y[i] *= alpha;
}

TARGET static float dot(const float *a, const float *b, int64_t n)
{
    vec even = V_SET(0.0f), odd = V_SET(0.0f);
    int64_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {
        even = V_FMA(V_LOAD(a + i), V_LOAD(b + i), even);
        odd = V_FMA(V_LOAD(a + i + WIDTH), V_LOAD(b + i + WIDTH), odd);
    }
    float sum = V_SUM(V_ADD(even, odd));
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* s24_random for LANES counters from `counter` on, side by side so that they become vectors. */
enum { LANES = 16 };
TARGET INLINE void random_words(uint32_t c[4][LANES], uint64_t seed, uint64_t counter)
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int l = 0; l < LANES; l++) {
        c[0][l] = (uint32_t)(counter + (uint64_t)l);
        c[1][l] = (uint32_t)((counter + (uint64_t)l) >> 32);
        c[2][l] = c[3][l] = 0;
    }
    for (int round = 0; round < 10; round++, key0 += 0x9e3779b9u, key1 += 0xbb67ae85u)
        for (int l = 0; l < LANES; l++) {
            const uint64_t a = (uint64_t)0xd2511f53u * c[0][l], b = (uint64_t)0xcd9e8d57u * c[2][l];
            c[0][l] = (uint32_t)(b >> 32) ^ c[1][l] ^ key0;
            c[1][l] = (uint32_t)b;
            c[2][l] = (uint32_t)(a >> 32) ^ c[3][l] ^ key1;
            c[3][l] = (uint32_t)a;
        }
}

/* A block of 8·LANES elements takes 16 bits each: of word w its low halves, then its high ones. */
TARGET static void dropout(float *x, int64_t n, const s24i_dropout *drop, int64_t row)
{
    enum { BLOCK = 8 * LANES };
    const uint32_t limit = (uint32_t)(drop->rate * 65536.0f);
    const float keep = 65536.0f / (65536.0f - (float)limit);
    for (int64_t i = 0; i < n; i += BLOCK) {
        uint32_t words[4][LANES];
        float factors[BLOCK];
        random_words(words, drop->seed, (uint64_t)row << 20 | (uint64_t)(i / BLOCK * LANES));
        for (int w = 0; w < 4; w++)
            for (int l = 0; l < LANES; l++) {
                factors[2 * w * LANES + l] = (words[w][l] & 0xffff) < limit ? 0.0f : keep;
                factors[(2 * w + 1) * LANES + l] = words[w][l] >> 16 < limit ? 0.0f : keep;
            }
        for (int64_t e = 0; e < BLOCK && i + e < n; e++)
            x[i + e] *= factors[e];
    }
}

const s24i_vec TABLE = {
    .name = TABLE_NAME,
    .cpu = TABLE_CPU,
    .product = product,
    .softmax = softmax,
    .transpose = transpose,
    .layer_norm = layer_norm,
    .epilogue = epilogue,
    .gate = gate,
    .log_sum = log_sum,
    .add = add,
    .axpy = axpy,
    .maximum = maximum,
    .scale = scale,
    .dot = dot,
    .dropout = dropout,
#if HAVE_PAIRS
    .pair_product = pair_product,
    .pair_softmax = pair_softmax,
    .pair_rows = pair_rows,
    .narrow = narrow,
#endif
};
