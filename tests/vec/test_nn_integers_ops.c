// SPDX-License-Identifier: Apache-2.0
/* Products with dense weights of integers, and their rows as floats: every row that this CPU runs
   against sums in double. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(integers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
