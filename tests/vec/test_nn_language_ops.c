// SPDX-License-Identifier: Apache-2.0
/* Vector operations of language models: every row that this CPU runs against f64 arithmetic. */
#include "support.h"

#include <math.h>

#include "vec/vec.h"

/* Activations and factors, in place too, against sums in double. */
static void gate(void **state)
{
    (void)state;
    for (int row = 0; s24i_vec_row(row); row++) {
        const s24i_vec *vec = s24i_vec_row(row);
        if (vec->cpu & ~s24_cpu_detect()) continue;
        for (int64_t n = 1; n <= 70; n++)
            for (int squared = 0; squared < 2; squared++) {
                float g[70], u[70], y[70];
                uint64_t random = (uint64_t)n;
                for (int64_t i = 0; i < n; i++) {
                    g[i] = (float)((int64_t)(test_random(&random) % 801) - 400) / 100;
                    u[i] = (float)((int64_t)(test_random(&random) % 801) - 400) / 100;
                }
                vec->gate(y, g, u, S24_ACTIVATION_SILU, squared, n);
                for (int64_t i = 0; i < n; i++) {
                    const double a = (double)g[i] / (1 + exp(-(double)g[i]));
                    const double want = (squared ? a * a : a) * (double)u[i];
                    assert_true(fabs(want - (double)y[i]) < 1e-5 * (1 + fabs(want)));
                }
                vec->gate(g, g, u, S24_ACTIVATION_SILU, squared, n);
                assert_memory_equal(g, y, (size_t)n * sizeof *y);
            }
    }
}

static void log_sum(void **state)
{
    (void)state;
    for (int row = 0; s24i_vec_row(row); row++) {
        const s24i_vec *vec = s24i_vec_row(row);
        if (vec->cpu & ~s24_cpu_detect()) continue;
        for (int64_t n = 1; n <= 70; n++)
            for (int shift = -1000; shift <= 1000; shift += 500) {
                float x[70];
                double top = -1e30, sum = 0;
                uint64_t random = (uint64_t)n;
                for (int64_t i = 0; i < n; i++) {
                    x[i] = (float)shift + (float)(test_random(&random) % 2000) / 100;
                    top = fmax(top, (double)x[i]);
                }
                for (int64_t i = 0; i < n; i++)
                    sum += exp((double)x[i] - top);
                const double want = top + log(sum);
                assert_true(fabs(want - (double)vec->log_sum(x, n)) < 1e-6 * (1 + fabs(want)));
            }
    }
}

static void rms_norm(void **state)
{
    (void)state;
    for (int row = 0; s24i_vec_row(row); row++) {
        const s24i_vec *vec = s24i_vec_row(row);
        if (vec->cpu & ~s24_cpu_detect()) continue;
        for (int64_t n = 1; n <= 70; n++) {
            float x[140], before[140], gamma[70];
            uint64_t random = (uint64_t)n;
            for (int64_t i = 0; i < 2 * n; i++)
                before[i] = x[i] = (float)(test_random(&random) % 1000) / 100 - 3;
            for (int64_t i = 0; i < n; i++)
                gamma[i] = (float)(test_random(&random) % 100) / 50;
            const s24i_layer_norm norm = {.gamma = gamma, .eps = 1e-5f, .n = n};
            vec->layer_norm(x, 2, &norm);
            for (int64_t i = 0; i < 2 * n; i++) {
                double squares = 0;
                for (int64_t j = i / n * n; j < i / n * n + n; j++)
                    squares += (double)before[j] * (double)before[j];
                const double want =
                    (double)before[i] / sqrt(squares / (double)n + 1e-5) * (double)gamma[i % n];
                assert_true(fabs(want - (double)x[i]) < 1e-5 * (1 + fabs(want)));
            }
        }
    }
}

/* ---- few queries ----------------------------------------------------------------------------- */

enum { QUERIES = 7, MOST_TOKENS = 21, MOST_D = 80, LD = MOST_D + 6 };

/* Random numbers that bf16 has; bf16 too where there is room for them. */
static void fill(float *x, uint16_t *narrow, int64_t count, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)((int64_t)(test_random(&seed) % 255) - 127) / 64;
    if (narrow) assert_int_equal(s24_convert(narrow, S24_BF16, x, S24_F32, count), S24_OK);
}

static void check_dots(const s24i_attend *job, const float *q, const float *rows)
{
    for (int64_t r = 0; r < QUERIES; r++)
        for (int64_t t = 0; t < job->tokens; t++) {
            double want = 0;
            for (int64_t i = 0; i < job->d; i++)
                want += (double)q[r * job->d + i] * (double)rows[t * LD + i];
            assert_true(fabs(want - (double)job->s[r * 32 + t]) < 1e-4);
        }
}

/* The same with rows in bytes, where every e4m3 there is occurs; and a row as f32. */
static void check_bytes(const s24i_vec *vec, const s24i_attend *like, const float *q)
{
    int8_t bytes[MOST_TOKENS * LD];
    float rows[MOST_TOKENS * LD], row[MOST_D];
    for (int e4m3 = 0; e4m3 < 2; e4m3++) {
        const s24_dtype dtype = e4m3 ? S24_E4M3 : S24_I8;
        s24i_attend job = *like;
        for (int64_t i = 0; i < MOST_TOKENS * LD; i++)
            bytes[i] = (int8_t)(uint8_t)((i & 127) == 127 ? 0 : i);
        assert_int_equal(s24_convert(rows, S24_F32, bytes, dtype, MOST_TOKENS * LD), S24_OK);
        for (int64_t i = 0; i < MOST_TOKENS * LD; i++)
            rows[i] /= 512;
        job.rows = bytes;
        (e4m3 ? vec->e4m3_dots : vec->i8_dots)(&job);
        for (int64_t i = 0; i < QUERIES * 32; i++)
            job.s[i] /= 512;
        check_dots(&job, q, rows);
        fill(job.s, NULL, QUERIES * 32, 3);
        (e4m3 ? vec->e4m3_mix : vec->i8_mix)(&job);
        for (int64_t r = 0; r < QUERIES; r++)
            for (int64_t i = 0; i < job.d; i++) {
                double want = 0;
                for (int64_t t = 0; t < job.tokens; t++)
                    want += (double)job.s[r * 32 + t] * (double)rows[t * LD + i];
                want *= (double)job.scale[r];
                assert_true(fabs(want - (double)job.out[r * job.d + i] / 512) < 1e-4);
            }
        vec->row_of_bytes(row, bytes + LD, dtype, 1.0f / 512, job.d);
        assert_memory_equal(row, rows + LD, (size_t)job.d * sizeof *row);
    }
}

static void check_few(const s24i_vec *vec, int64_t tokens, int64_t d, int pairs)
{
    float q[QUERIES * MOST_D], rows[MOST_TOKENS * LD], s[QUERIES * 32], out[QUERIES * MOST_D];
    uint16_t q16[QUERIES * MOST_D], rows16[MOST_TOKENS * LD], s16[QUERIES * 64];
    const float scale[QUERIES] = {1, 2, 0.5f, 1, 1, 3, 1};
    fill(q, q16, QUERIES * d, 1);
    fill(rows, rows16, MOST_TOKENS * LD, 2);
    s24i_attend job = {.rows = pairs ? (void *)rows16 : (void *)rows,
                       .ld = LD,
                       .tokens = tokens,
                       .d = d,
                       .q = pairs ? (void *)q16 : (void *)q,
                       .queries = QUERIES,
                       .s = s,
                       .s_ld = 32,
                       .out = out,
                       .scale = scale};
    (pairs ? vec->pair_dots : vec->dots)(&job);
    check_dots(&job, q, rows);
    if (!pairs) check_bytes(vec, &job, q);
    s24i_attend wide = job;
    wide.rows = rows16;
    wide.q = q;
    vec->wide_dots(&wide);
    check_dots(&wide, q, rows);
    fill(s, NULL, QUERIES * 32, 3);
    float weights[QUERIES * 32];
    memcpy(weights, s, sizeof s);
    for (int64_t r = 0; pairs && r < QUERIES; r++) {
        memset(s16 + r * 64, 0, 64 * sizeof *s16);
        assert_int_equal(s24_convert(s16 + r * 64, S24_BF16, weights + r * 32, S24_F32, tokens),
                         S24_OK);
    }
    if (pairs) memcpy(s, s16, sizeof s);
    (pairs ? vec->pair_mix : vec->mix)(&job);
    for (int64_t r = 0; r < QUERIES; r++)
        for (int64_t i = 0; i < d; i++) {
            double want = 0;
            for (int64_t t = 0; t < tokens; t++)
                want += (double)weights[r * 32 + t] * (double)rows[t * LD + i];
            assert_true(fabs((double)scale[r] * want - (double)out[r * d + i]) < 1e-4);
        }
}

/* Dot products with keys and sums of values, of any number of tokens and any width. */
static void few(void **state)
{
    (void)state;
    for (int row = 0; s24i_vec_row(row); row++) {
        const s24i_vec *vec = s24i_vec_row(row);
        if (vec->cpu & ~s24_cpu_detect()) continue;
        for (int64_t tokens = 1; tokens <= MOST_TOKENS; tokens++)
            for (int64_t d = 1; d <= MOST_D; d++) {
                check_few(vec, tokens, d, 0);
                if (vec->pair_dots && d % 2 == 0) check_few(vec, tokens, d, 1);
            }
    }
}

/* A query's results are the same bits whatever queries come with it. */
static void few_alone(void **state)
{
    enum { TOKENS = 19, D = 40 };
    float q[QUERIES * D], rows[TOKENS * D], s[2][QUERIES * 32], out[2][QUERIES * D];
    const float scale[QUERIES] = {1, 1, 1, 1, 1, 1, 1};
    (void)state;
    fill(q, NULL, QUERIES * D, 4);
    fill(rows, NULL, TOKENS * D, 5);
    for (int row = 0; s24i_vec_row(row); row++) {
        const s24i_vec *vec = s24i_vec_row(row);
        if (vec->cpu & ~s24_cpu_detect()) continue;
        memset(s, 0, sizeof s);
        s24i_attend all = {.rows = rows,
                           .ld = D,
                           .tokens = TOKENS,
                           .d = D,
                           .q = q,
                           .queries = QUERIES,
                           .s = s[0],
                           .s_ld = 32,
                           .out = out[0],
                           .scale = scale};
        vec->dots(&all);
        vec->mix(&all);
        for (int r = 0; r < QUERIES; r++) {
            s24i_attend one = all;
            one.q = q + r * D;
            one.queries = 1;
            one.s = s[1] + r * 32;
            one.out = out[1] + r * D;
            vec->dots(&one);
            vec->mix(&one);
        }
        assert_memory_equal(s[0], s[1], sizeof s[0]);
        assert_memory_equal(out[0], out[1], sizeof out[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gate), cmocka_unit_test(log_sum),
                                       cmocka_unit_test(rms_norm), cmocka_unit_test(few),
                                       cmocka_unit_test(few_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
