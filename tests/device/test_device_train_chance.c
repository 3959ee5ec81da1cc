// SPDX-License-Identifier: Apache-2.0
/* Masks on a device in which chance has a part, against the same numbers in double. Says in a line
   where there is no GPU. */
#include "device_mask.h"

static const int pairs[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};

/* A group's logits with Gumbel's noise, as docs of s24_device_train_chance say. */
static void noisy_logits(double noisy[6], const s24_device_train_chance *c, const float *logits,
                         int64_t group)
{
    uint32_t words[8];
    s24_random(words, c->seed, c->place << 40 | (uint64_t)group << 1);
    s24_random(words + 4, c->seed, (c->place << 40 | (uint64_t)group << 1) + 1);
    for (int p = 0; p < 6; p++) {
        const double noise = -log(-log(((double)words[p] + 0.5) / 4294967296.0));
        noisy[p] = c->temperature > 0 ? (c->scale * (double)logits[p] + noise) / c->temperature
                                      : (double)logits[p];
    }
}

static void expect_slopes(gpu *g, const matrix *m, const array *slope, const array *logits,
                          const s24_device_train_chance *c, const float *gradients)
{
    double *expected = malloc((size_t)logits->count * sizeof *expected);
    for (int64_t i = 0; i < m->count / 4; i++) {
        double noisy[6], sum = 0, mean = 0, of[6] = {0};
        noisy_logits(noisy, c, logits->host + 6 * i, i);
        for (int p = 0; p < 6; p++)
            sum += exp(noisy[p]);
        for (int p = 0; p < 6; p++) {
            for (int k = 0; k < 2; k++) {
                const int64_t at = 4 * i + pairs[p][k];
                const double w = (double)m->from.host[at];
                of[p] += (double)slope->host[at] * w - c->norm * w * w;
            }
            mean += exp(noisy[p]) / sum * of[p];
        }
        for (int p = 0; p < 6; p++)
            expected[6 * i + p] = c->scale / c->temperature * exp(noisy[p]) / sum * (of[p] - mean);
    }
    expect(g, "gradients of logits", gradients, 1, expected, logits->count, 1e-5);
    free(expected);
}

static void test_patterns(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    for (int likeliest = 0; likeliest < 2; likeliest++) {
        matrix m = matrix_make(&g, 66, 36);
        array logits = wide_make(&g, m.count / 4 * 6, 1), slope = wide_make(&g, m.count, 1);
        uint8_t *keep = calloc((size_t)m.count, 1);
        float *runs = malloc((size_t)m.count * sizeof *runs);
        float *gradients = poisoned(&g, (size_t)logits.count * 4);
        const s24_device_train_chance chance = {99, 7, 3, likeliest ? 0 : 0.7, 0.4};
        for (int64_t i = 0; i < m.count / 4; i++) {
            double noisy[6];
            int best = 0;
            noisy_logits(noisy, &chance, logits.host + 6 * i, i);
            for (int p = 1; p < 6; p++)
                if (noisy[p] > noisy[best]) best = p;
            keep[4 * i + pairs[best][0]] = keep[4 * i + pairs[best][1]] = 1;
        }
        for (int64_t i = 0; i < m.count; i++)
            runs[i] = keep[i] ? m.from.host[i] : 0;
        s24_device_train_mask_args args = mask_args(&g, &m);
        args.stays = S24_DEVICE_TRAIN_DRAWN;
        args.logits = logits.there;
        args.chance = chance;
        assert_ok(g.ctx, s24_device_train_mask(g.ctx, g.device, &args));
        expect_made(&g, &m, keep, runs, m.count / 2);
        if (!likeliest) {
            DO(&g, extra, .rows = m.rows, .cols = m.cols, .patterns = 1, .gradients = gradients,
               .g = slope.there, .w = m.from.there, .extra = logits.there, .chance = chance);
            expect_slopes(&g, &m, &slope, &logits, &chance, gradients);
        }
        free(keep);
        free(runs);
        release(&g, gradients);
        array_free(&g, &logits);
        array_free(&g, &slope);
        matrix_free(&g, &m);
    }
    gpu_end(&g);
}

/* Magnitudes times noise that is normal in its logarithm. */
static void test_samples(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_F16;
    matrix m = matrix_make(&g, 66, 36);
    uint8_t *keep = malloc((size_t)m.count);
    float *runs = malloc((size_t)m.count * sizeof *runs), *noisy = malloc((size_t)m.count * 4);
    for (int64_t i = 0; i < m.count; i++) {
        uint32_t words[4];
        s24_random(words, 42, (uint64_t)(m.first + i));
        const double u = ((double)words[0] + 1.0) / 4294967296.0;
        const double angle = (double)words[1] / 4294967296.0 * 6.283185307179586;
        noisy[i] = (float)((double)m.from.host[i] * exp(0.3 * sqrt(-2 * log(u)) * cos(angle)));
    }
    const s24_dense dense = {noisy, S24_F32, m.rows, m.cols, 0};
    assert_ok(g.ctx, s24_magnitude_mask(keep, g.ctx, &dense, 0));
    for (int64_t i = 0; i < m.count; i++)
        runs[i] = keep[i] ? m.from.host[i] : 0;
    s24_device_train_mask_args args = mask_args(&g, &m);
    args.stays = S24_DEVICE_TRAIN_SAMPLED;
    args.noise_seed = 42;
    args.noise = 0.3;
    assert_ok(g.ctx, s24_device_train_mask(g.ctx, g.device, &args));
    expect_made(&g, &m, keep, runs, m.count / 2);
    free(keep);
    free(runs);
    free(noisy);
    matrix_free(&g, &m);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_patterns),
                                       cmocka_unit_test(test_samples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
