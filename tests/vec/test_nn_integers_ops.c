// SPDX-License-Identifier: Apache-2.0
/* Products with dense weights of integers, and their rows as floats: every row that this CPU runs
   against sums in double; tokens as bytes for products of integers, and what these sum up. */
#include "support.h"

#include <math.h>

#include "vec/vec.h"

enum { N = 19, M = 9, MOST_K = 640, MOST_GROUPS = 10 };

typedef struct sample {
    s24_quantized w;
    uint8_t values[N * MOST_K];
    float scales[N * MOST_GROUPS];
    float x[M * MOST_K];     /* in the order of columns */
    float given[M * MOST_K]; /* as the product wants it, rows of `ldx` */
    int64_t ldx;
} sample;

static int integer_of(const s24_quantized *w, int64_t row, int64_t col)
{
    const uint8_t *bytes = w->values;
    const int64_t at = row * w->cols + col;
    if (w->bits == 8) return (int8_t)bytes[at];
    const int half = at % 2 ? bytes[at / 2] >> 4 : bytes[at / 2] & 15;
    return half < 8 ? half : half - 16;
}

static float scale_of(const s24_quantized *w, int64_t row, int64_t col)
{
    return w->scales[row * ((w->cols + w->group - 1) / w->group) + col / w->group];
}

static void fill(const s24i_vec *vec, sample *s, int bits, int64_t group, int64_t k)
{
    uint64_t seed = (uint64_t)(k + bits);
    s->w = (s24_quantized){N, k, bits, group, s->values, NULL, s->scales};
    for (size_t i = 0; i < sizeof s->values; i++)
        s->values[i] = (uint8_t)test_random(&seed);
    for (int i = 0; i < N * MOST_GROUPS; i++)
        s->scales[i] = i % 7 ? test_uniform(&seed) + 1.5f : 0;
    s->ldx = bits == 4 ? s24i_vec_split_columns(k) : k;
    for (int64_t i = 0; i < M * k; i++)
        s->x[i] = test_uniform(&seed);
    for (int64_t t = 0; t < M; t++)
        if (bits == 4)
            vec->integer_split(s->given + t * s->ldx, s->x + t * k, k);
        else
            memcpy(s->given + t * k, s->x + t * k, (size_t)k * sizeof *s->x);
}

static void check_product(const s24i_vec *vec, const sample *s, int64_t first, int64_t rows,
                          int64_t m)
{
    float y[M * N];
    const s24i_integer_product job = {.y = y,
                                      .ldy = N,
                                      .x = s->given,
                                      .ldx = s->ldx,
                                      .w = &s->w,
                                      .first = first,
                                      .rows = rows,
                                      .m = m};
    vec->integer_product(&job);
    for (int64_t t = 0; t < m; t++)
        for (int64_t r = 0; r < rows; r++) {
            double sum = 0, size = 0;
            for (int64_t c = 0; c < s->w.cols; c++) {
                const double p = (double)integer_of(&s->w, first + r, c) *
                                 (double)scale_of(&s->w, first + r, c) *
                                 (double)s->x[t * s->w.cols + c];
                sum += p;
                size += fabs(p);
            }
            assert_true(fabs((double)y[t * N + r] - sum) <= 1e-5 * size);
        }
}

/* A widened row, put in the order that tokens are split in; zeros after it. */
static void check_rows(const s24i_vec *vec, const sample *s)
{
    float row[MOST_K], want[MOST_K], split[MOST_K];
    for (int64_t r = 0; r < N; r++) {
        vec->integer_widen(row, &s->w, r);
        for (int64_t c = 0; c < s->w.cols; c++)
            want[c] = scale_of(&s->w, r, c) * (float)integer_of(&s->w, r, c);
        if (s->w.bits == 4) vec->integer_split(split, want, s->w.cols);
        for (int64_t c = 0; c < s->ldx; c++)
            assert_true(row[c] == (s->w.bits == 4 ? split : want)[c]);
    }
}

static void integers(void **state)
{
    (void)state;
    static const int64_t widths[] = {4, 32, 36, 64, 100, 128, 332, 576, 640};
    sample *s = malloc(sizeof *s);
    for (int row = 0; s24i_vec_row(row); row++) {
        const s24i_vec *vec = s24i_vec_row(row);
        if (vec->cpu & ~s24_cpu_detect()) continue;
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
            for (int bits = 4; bits <= 8; bits += 4)
                for (int g = 0; g < 3; g++) {
                    fill(vec, s, bits, g ? 64 * g : widths[i], widths[i]);
                    for (int64_t m = 1; m <= M; m++)
                        check_product(vec, s, 0, N, m);
                    check_product(vec, s, 3, 9, 5);
                    check_rows(vec, s);
                }
    }
    free(s);
}

/* What makes a token special: nothing, zeros, too small a number, one that is none. */
static void spoil(float *x, int64_t n, int how)
{
    for (int64_t i = 0; i < n && (how == 1 || how == 2); i++)
        x[i] *= how == 1 ? 0 : 0x1p-122f;
    if (how == 3) x[n / 2] = NAN;
    if (how == 4) x[n - 1] = -INFINITY;
}

static void check_bytes(const s24i_vec *vec, const float *x, s24_dtype dtype, int64_t n)
{
    uint8_t q[MOST_K + 1];
    float given[MOST_K], read[MOST_K], inverse, largest = 0;
    int finite = 1;
    q[n] = 77;
    assert_int_equal(s24_convert(given, dtype, x, S24_F32, n), S24_OK);
    assert_int_equal(s24_convert(read, S24_F32, given, dtype, n), S24_OK);
    for (int64_t i = 0; i < n; i++) {
        finite &= isfinite(read[i]) != 0;
        largest = fabsf(read[i]) > largest ? fabsf(read[i]) : largest;
    }
    uint32_t bits;
    memcpy(&bits, &largest, sizeof bits);
    const float scale = s24i_token_scale(bits, &inverse);
    const float got = vec->to_bytes(q, given, dtype, n);
    assert_int_equal(q[n], 77);
    assert_true(finite ? got == scale : isnan(got));
    for (int64_t i = 0; i < n && finite; i++)
        assert_int_equal(q[i], 128 + (int)nearbyintf(read[i] * inverse));
}

static void check_sums(const s24i_vec *vec, uint64_t *seed, int64_t n)
{
    int32_t sums[MOST_K], offsets[MOST_K];
    float scales[MOST_K], y[MOST_K + 1];
    y[n] = 77;
    for (int64_t i = 0; i < n; i++) {
        sums[i] = (int32_t)(test_random(seed) % 4000000);
        offsets[i] = (int32_t)(test_random(seed) % 4000000) - 2000000;
        scales[i] = test_uniform(seed);
    }
    const s24i_byte_sums job = {sums, offsets, scales, 0.37f};
    vec->from_sums(y, &job, n);
    assert_true(y[n] == 77);
    for (int64_t i = 0; i < n; i++) {
        const float scaled = (float)(sums[i] - offsets[i]) * scales[i];
        assert_true(y[i] == scaled * 0.37f);
    }
}

/* Tokens as bytes and sums as numbers: every row has the same bits. */
static void bytes(void **state)
{
    (void)state;
    static const int64_t widths[] = {1, 3, 4, 15, 16, 17, 31, 32, 33, 70, 300};
    uint64_t seed = 5;
    float x[300];
    for (int row = 0; s24i_vec_row(row); row++) {
        const s24i_vec *vec = s24i_vec_row(row);
        if (vec->cpu & ~s24_cpu_detect()) continue;
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            for (int how = 0; how < 5; how++) {
                for (int64_t c = 0; c < widths[i]; c++)
                    x[c] = test_uniform(&seed);
                spoil(x, widths[i], how);
                check_bytes(vec, x, S24_F32, widths[i]);
                check_bytes(vec, x, S24_BF16, widths[i]);
            }
            check_sums(vec, &seed, widths[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(integers), cmocka_unit_test(bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
