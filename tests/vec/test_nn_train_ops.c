// SPDX-License-Identifier: Apache-2.0
/* Training's vector functions on every instruction set against sums in double, and AdamW against
   PyTorch's. */
#include "support.h"

#include <float.h>
#include <math.h>

#include "activation.h"
#include "safetensors_mini.h"
#include "vec/vec.h"

enum { MOST = 70 };

static float draw(uint64_t *state)
{
    return (float)((int64_t)(test_random(state) % 4001) - 2000) / 500.0f;
}

static void close_to(double expected, float got, double bound, const char *what, int64_t i)
{
    if (!(fabs(expected - (double)got) <= bound * (1 + fabs(expected))))
        fail_msg("%s at %lld: expected %g, got %g", what, (long long)i, expected, (double)got);
}

#define EACH_ROW(k)                                                                                \
    for (int row_ = 0; s24i_vec_row(row_); row_++)                                                 \
        for (const s24i_vec *k = s24i_vec_row(row_); k && !(k->cpu & ~s24_cpu_detect()); k = NULL)

/* ---- norms ----------------------------------------------------------------------------------- */

typedef struct rows {
    float x[MOST], dy[MOST], gamma[MOST], beta[MOST], y[MOST], dx[MOST], dgamma[MOST], dbeta[MOST];
} rows;

static double norm_reference(const rows *r, const s24i_norm_row *norm, int64_t at, double shift,
                             int64_t out)
{
    double mean = 0, square = 0;
    for (int64_t i = 0; i < norm->n; i++)
        mean += ((double)r->x[i] + (i == at ? shift : 0)) / (double)norm->n;
    if (norm->rms) mean = 0;
    for (int64_t i = 0; i < norm->n; i++) {
        const double d = (double)r->x[i] + (i == at ? shift : 0) - mean;
        square += d * d / (double)norm->n;
    }
    const double x = (double)r->x[out] + (out == at ? shift : 0) - mean;
    return x / sqrt(square + (double)norm->eps) * ((double)r->gamma[out] + norm->grown) +
           (norm->rms ? 0 : (double)r->beta[out]);
}

static void check_norm(const s24i_vec *k, int64_t n, int rms, int grown)
{
    rows r = {.x = {0}};
    uint64_t state = (uint64_t)n;
    for (int64_t i = 0; i < n; i++) {
        r.x[i] = draw(&state) + 1.0f;
        r.dy[i] = draw(&state);
        r.gamma[i] = draw(&state);
        r.beta[i] = draw(&state);
        r.dgamma[i] = r.dbeta[i] = 1.0f;
    }
    const s24i_norm_row norm = {r.gamma, rms ? NULL : r.beta, 1e-3f, rms, grown, n};
    float stats[2];
    k->norm_forward(r.y, stats, r.x, &norm);
    for (int64_t i = 0; i < n; i++)
        close_to(norm_reference(&r, &norm, -1, 0, i), r.y[i], 1e-5, "norm", i);
    const s24i_norm_sums sums = {r.dgamma, rms ? NULL : r.dbeta};
    k->norm_back(r.dx, &sums, r.dy, r.x, stats, &norm);
    for (int64_t at = 0; at < n; at++) {
        double slope = 0;
        for (int64_t i = 0; i < n; i++)
            slope +=
                (double)r.dy[i] *
                (norm_reference(&r, &norm, at, 1e-5, i) - norm_reference(&r, &norm, at, -1e-5, i)) /
                2e-5;
        close_to(slope, r.dx[at], 2e-4, "norm_back", at);
        const double gamma = (double)r.gamma[at] + grown;
        const double h =
            (norm_reference(&r, &norm, -1, 0, at) - (rms ? 0 : (double)r.beta[at])) / gamma;
        if (gamma != 0) close_to(1 + (double)r.dy[at] * h, r.dgamma[at], 1e-4, "dgamma", at);
        if (!rms) close_to(1 + (double)r.dy[at], r.dbeta[at], 1e-6, "dbeta", at);
    }
}

static void norms(void **state)
{
    (void)state;
    EACH_ROW(k)
    for (int64_t n = 2; n < MOST; n += n < 20 ? 1 : 7)
        for (int kind = 0; kind < 4; kind++)
            check_norm(k, n, kind % 2, kind / 2);
}

/* ---- activations ----------------------------------------------------------------------------- */

static double activation_reference(double x, s24_activation activation, int squared)
{
    const double y = activation_of(x, activation);
    return squared ? y * y : y;
}

static void activations(void **state)
{
    (void)state;
    EACH_ROW(k)
    for (int a = S24_ACTIVATION_NONE; a <= S24_ACTIVATION_GELU_QUICK; a++)
        for (int squared = 0; squared <= 1; squared++) {
            float x[MOST], y[MOST], dx[MOST], dy[MOST];
            uint64_t seed = 5;
            for (int i = 0; i < MOST; i++) {
                x[i] = draw(&seed) * 2;
                dy[i] = draw(&seed);
                if (x[i] == 0.0f) x[i] = 0.5f; /* ReLU has no slope there */
            }
            x[3] = 60.0f;
            x[4] = -60.0f;
            const s24_activation activation = (s24_activation)a;
            k->activate(y, x, activation, squared, MOST - 1);
            k->activate_back(dx, dy, x, activation, squared, MOST - 1);
            for (int i = 0; i < MOST - 1; i++) {
                const double v = (double)x[i];
                close_to(activation_reference(v, activation, squared), y[i], 4e-6, "activate", i);
                const double slope = (activation_reference(v + 1e-5, activation, squared) -
                                      activation_reference(v - 1e-5, activation, squared)) /
                                     2e-5;
                close_to((double)dy[i] * slope, dx[i], 1e-5, "activate_back", i);
            }
        }
}

/* ---- softmax --------------------------------------------------------------------------------- */

static void softmaxes(void **state)
{
    (void)state;
    EACH_ROW(k)
    for (int n = 1; n < MOST; n++) {
        float x[MOST], p[MOST], dp[MOST];
        uint64_t seed = (uint64_t)n;
        double sum = 0, mean = 0;
        for (int i = 0; i < n; i++) {
            x[i] = 5 * draw(&seed);
            dp[i] = draw(&seed);
            sum += exp(0.5 * (double)x[i]);
        }
        close_to(log(sum), k->softmax_forward(p, x, 0.5f, n), 1e-6, "log of the sum", n);
        for (int i = 0; i < n; i++) {
            close_to(exp(0.5 * (double)x[i]) / sum, p[i], 1e-6, "softmax", i);
            mean += (double)p[i] * (double)dp[i];
        }
        float ds[MOST];
        memcpy(ds, dp, sizeof ds);
        k->softmax_back(ds, p, 0.25f, n);
        for (int i = 0; i < n; i++)
            close_to(0.25 * (double)p[i] * ((double)dp[i] - mean), ds[i], 1e-5, "softmax_back", i);
    }
}

static void flat(void **state)
{
    (void)state;
    EACH_ROW(k)
    for (int n = 1; n < MOST; n++) {
        float x[MOST], y[MOST], dx[MOST], product[MOST];
        uint64_t seed = (uint64_t)n;
        double squares = 0, masked = 0, distance = 0;
        uint16_t mask[MOST / 16 + 1] = {0x1234, 0xfffe, 0, 0x8001, 0xffff};
        for (int i = 0; i < n; i++) {
            x[i] = draw(&seed);
            y[i] = draw(&seed);
            dx[i] = 1.0f;
            squares += (double)x[i] * (double)x[i];
            if (mask[i / 16] >> i % 16 & 1) masked += (double)x[i] * (double)x[i];
            distance += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        }
        close_to(squares, k->squares(x, NULL, n), 1e-5, "squares", n);
        close_to(masked, k->squares(x, mask, n), 1e-5, "masked squares", n);
        close_to(distance, k->pull(dx, 0.5f, x, y, n), 1e-5, "pull", n);
        k->multiply(product, x, y, n);
        for (int i = 0; i < n; i++) {
            close_to(1 + 0.5 * ((double)x[i] - (double)y[i]), dx[i], 1e-5, "pull", i);
            assert_true(product[i] == x[i] * y[i]);
        }
    }
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* Every row of the table drops the same elements, about as many as it should, by s24_random's
   words. */
static void dropouts(void **state)
{
    enum { N = 1000, ROWS = 50 };
    (void)state;
    EACH_ROW(vec)
    {
        const s24i_dropout drop = {.rate = 0.25f, .seed = UINT64_C(0x123456789abcdef)};
        int dropped = 0;
        for (int64_t r = 0; r < ROWS; r++) {
            float x[N];
            for (int i = 0; i < N; i++)
                x[i] = 3.0f;
            vec->dropout(x, N - (int)r, &drop, r);
            for (int i = 0; i < N - r; i++) {
                const int block = i / 128, word = i % 128 / 32, lane = i % 16, high = i / 16 % 2;
                uint32_t words[4];
                s24_random(words, drop.seed, (uint64_t)r << 20 | (uint64_t)(16 * block + lane));
                const uint32_t bits = high ? words[word] >> 16 : words[word] & 0xffff;
                assert_true(x[i] == (bits < 16384 ? 0.0f : 4.0f));
                dropped += x[i] == 0.0f;
            }
            for (int i = N - (int)r; i < N; i++)
                assert_true(x[i] == 3.0f);
        }
        assert_in_range(dropped, N * ROWS / 4 - 700, N * ROWS / 4 + 300);
    }
}

/* ---- AdamW ----------------------------------------------------------------------------------- */

static s24i_adamw adamw_step(int step, double rate, double decay, double beta1, double beta2)
{
    return (s24i_adamw){.gscale = 1.0f,
                        .beta1 = (float)beta1,
                        .beta2 = (float)beta2,
                        .eps = 1e-8f,
                        .keep = (float)(1 - rate * decay),
                        .step = (float)(rate / (1 - pow(beta1, step))),
                        .inverse2 = (float)(1 / sqrt(1 - pow(beta2, step)))};
}

static void golden_adamw(void **state)
{
    char path[512], name[16];
    (void)state;
    if (!golden_path(path, sizeof path, "train/adamw.safetensors")) SKIP_WITHOUT(path);
    mini_file file = mini_open(path);
    EACH_ROW(k)
    {
        float p[128], g[128], m[128] = {0}, v[128] = {0};
        memcpy(p, mini_get(&file, "p.00").data, sizeof p);
        for (int step = 1; step <= 10; step++) {
            snprintf(name, sizeof name, "grad.%02d", step - 1);
            memcpy(g, mini_get(&file, name).data, sizeof g);
            s24i_adamw job = adamw_step(step, 1e-2, 0.1, 0.9, 0.95);
            job.p = p;
            job.g = g;
            job.m = m;
            job.v = v;
            job.n = 128;
            k->adamw(&job);
            snprintf(name, sizeof name, "p.%02d", step);
            const float *expected = mini_get(&file, name).data;
            for (int i = 0; i < 128; i++) {
                close_to((double)expected[i], p[i], 1e-6, name, i);
                assert_true(g[i] == 0.0f);
            }
        }
    }
    mini_close(&file);
}

/* What the mask does not let be stays 0, whatever its gradient; the rest is as without a mask. */
static void masked_adamw(void **state)
{
    (void)state;
    EACH_ROW(k)
    {
        const uint16_t mask[4] = {0x5a5a, 0, 0xffff, 0x0180};
        float p[2][64], g[2][64], m[2][64] = {{0}}, v[2][64] = {{0}};
        uint64_t seed = 9;
        for (int i = 0; i < 64; i++) {
            p[1][i] = draw(&seed);
            p[0][i] = mask[i / 16] >> i % 16 & 1 ? p[1][i] : 0.0f;
        }
        for (int step = 1; step <= 3; step++)
            for (int which = 0; which <= 1; which++) {
                uint64_t gradient = (uint64_t)step;
                s24i_adamw job = adamw_step(step, 1e-2, 0.1, 0.9, 0.999);
                for (int i = 0; i < 64; i++)
                    g[which][i] = draw(&gradient);
                job.p = p[which];
                job.g = g[which];
                job.m = m[which];
                job.v = v[which];
                job.mask = which ? NULL : mask;
                job.gscale = 0.5f;
                job.n = 64;
                k->adamw(&job);
            }
        for (int i = 0; i < 64; i++)
            assert_true(p[0][i] == (mask[i / 16] >> i % 16 & 1 ? p[1][i] : 0.0f));
    }
}

/* Behind a mask weights learn on, pulled to 0, and what the mask leaves of them goes elsewhere. */
static void adamw_behind_a_mask(void **state)
{
    (void)state;
    EACH_ROW(k)
    {
        const uint16_t mask[4] = {0x5a5a, 0, 0xffff, 0x0180};
        float p[64], g[64], m[64] = {0}, v[64] = {0}, left[64];
        double expected[64], em[64] = {0}, ev[64] = {0};
        uint64_t seed = 9;
        for (int i = 0; i < 64; i++)
            expected[i] = (double)(p[i] = draw(&seed));
        for (int step = 1; step <= 3; step++) {
            s24i_adamw job = adamw_step(step, 1e-2, 0.1, 0.9, 0.999);
            for (int i = 0; i < 64; i++) {
                const int on = mask[i / 16] >> i % 16 & 1;
                g[i] = draw(&seed);
                const double slope = 0.5 * (double)g[i] + (on ? 0 : 0.3 * expected[i]);
                em[i] = 0.9 * em[i] + 0.1 * slope;
                ev[i] = 0.999 * ev[i] + 0.001 * slope * slope;
                expected[i] =
                    expected[i] * (1 - 1e-3) - 1e-2 / (1 - pow(0.9, step)) * em[i] /
                                                   (sqrt(ev[i] / (1 - pow(0.999, step))) + 1e-8);
            }
            job.p = p;
            job.g = g;
            job.m = m;
            job.v = v;
            job.mask = mask;
            job.masked = left;
            job.pull = 0.3f;
            job.gscale = 0.5f;
            job.n = 64;
            k->adamw(&job);
            for (int i = 0; i < 64; i++) {
                close_to(expected[i], p[i], 1e-5, "p", i);
                assert_true(left[i] == (mask[i / 16] >> i % 16 & 1 ? p[i] : 0.0f));
                assert_true(g[i] == 0.0f);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(activations),
        cmocka_unit_test(softmaxes),
        cmocka_unit_test(flat),
        cmocka_unit_test(golden_adamw),
        cmocka_unit_test(masked_adamw),
        cmocka_unit_test(adamw_behind_a_mask),
        cmocka_unit_test(dropouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
