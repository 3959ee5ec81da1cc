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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gate), cmocka_unit_test(log_sum),
                                       cmocka_unit_test(rms_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
