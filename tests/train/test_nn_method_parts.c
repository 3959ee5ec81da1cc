// SPDX-License-Identifier: Apache-2.0
/* What methods of sparse training are made of: STEP's and AdamS's optimisers, unbiased gradients,
   2:4 activations, scales and patterns, against golden vectors, expectations and slopes. */
#include "support.h"

#include <math.h>

#include "nn_train_support.h"
#include "train/run.h"

static s24i_machine machine(s24_ctx *ctx)
{
    s24i_machine m;
    OK(ctx, s24i_machine_cpu(&m, ctx, 16, 16, 64));
    return m;
}

static float draw(uint64_t *state)
{
    return (float)(test_random(state) % 20001) / 10000.0f - 1.0f;
}

/* ---- optimisers ------------------------------------------------------------------------------ */

enum { P = 128, Q = 16, STEPS = 20 };

static const float *golden(const mini_file *file, int option, const char *name, int step)
{
    char full[48];
    snprintf(full, sizeof full, step < 0 ? "option%d.%s" : "option%d.%s.%02d", option, name, step);
    return mini_get(file, full).data;
}

static void expect_close(const float *expected, const float *got, int count, const char *what)
{
    for (int i = 0; i < count; i++)
        if (fabs((double)expected[i] - (double)got[i]) >
            1e-6 * fmax(0.1, fabs((double)expected[i])))
            fail_msg("%s %d is %.9g, %.9g was expected", what, i, (double)got[i],
                     (double)expected[i]);
}

/* A parameter with a mask and one without, as 2by4-pretrain's AdamW_STEP moves them. */
static void check_step(const mini_file *file, int option)
{
    s24_ctx *ctx = new_ctx();
    s24i_machine m = machine(ctx);
    float p[P + Q], g[P + Q], moment[P + Q] = {0}, v[P + Q] = {0};
    uint16_t taken[(P + Q) / 16];
    const s24i_segment segment = {.count = P + Q, .matrix = 1};
    const s24i_sums sums = {0};
    const s24i_numbers numbers = {.least = 3.0 / STEPS, .most = 12.0 / STEPS};
    const char *phase =
        mini_get(file, option == 1 ? "option1.sparse_phase" : "option2.sparse_phase").data;
    int frozen = 0;
    memset(taken, 0xff, sizeof taken);
    taken[P / 16] = 0;
    memcpy(p, golden(file, option, "p0", -1), P * sizeof *p);
    memcpy(p + P, golden(file, option, "q0", -1), Q * sizeof *p);
    for (int step = 1; step <= STEPS; step++) {
        s24i_variance change;
        s24i_update job = {.p = p,
                           .g = g,
                           .m = moment,
                           .v = v,
                           .segments = &segment,
                           .segment_count = 1,
                           .count = P + Q,
                           .sums = &sums,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .rate = 1e-2,
                           .decay = 0.1,
                           .step = step,
                           .frozen = frozen ? taken : NULL,
                           .frozen_gain = 1,
                           .frozen_eps = 1e-6};
        memcpy(g, golden(file, option, "grad_p", step - 1), P * sizeof *g);
        memcpy(g + P, golden(file, option, "grad_q", step - 1), Q * sizeof *g);
        m.ops->variance(&m, &change, &job, taken);
        assert_int_equal(change.count, P);
        m.ops->update_as(&m, &job);
        const double mean =
            option == 1 ? change.sum / P : exp(change.logs / (double)change.changed);
        frozen |= s24i_step_freezes(mean, 1e-8, (double)step / STEPS, &numbers);
        expect_close(golden(file, option, "p", step), p, P, "p");
        expect_close(golden(file, option, "q", step), p + P, Q, "q");
        assert_int_equal(frozen, phase[step - 1]);
    }
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

static void golden_step(void **state)
{
    char path[512];
    (void)state;
    if (!golden_path(path, sizeof path, "train/adamw_step.safetensors")) SKIP_WITHOUT(path);
    mini_file file = mini_open(path);
    check_step(&file, 1);
    check_step(&file, 2);
    mini_close(&file);
}

/* The moment of what is masked fades to λ·sign(p), and the variance is that of what moves. */
static void moves_by_sign(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24i_machine m = machine(ctx);
    const uint16_t mask = 0x5a5a;
    const s24i_sums sums = {.squares = 4};
    float p[16], g[16], moment[16] = {0}, v[16] = {0}, left[16];
    const s24i_segment segment = {.count = 16, .matrix = 1, .learns = p};
    double ep[16], em[16] = {0}, ev[16] = {0};
    uint64_t seed = 5;
    (void)state;
    for (int i = 0; i < 16; i++)
        ep[i] = (double)(p[i] = i == 1 ? 0.0f : draw(&seed));
    for (int step = 1; step <= 4; step++) {
        const double fade = (step - 1) / 4.0;
        for (int i = 0; i < 16; i++) {
            g[i] = draw(&seed);
            const int on = mask >> i & 1;
            em[i] = 0.9 * em[i] + 0.1 * 0.5 * (double)g[i];
            const double sign = (ep[i] > 0) - (ep[i] < 0);
            const double to = on ? em[i] : (1 - fade) * em[i] + fade * 0.02 * sign;
            ev[i] = 0.99 * ev[i] + 0.01 * to * to;
            ep[i] = ep[i] * (1 - 1e-3) -
                    1e-2 / (1 - pow(0.9, step)) * to / (sqrt(ev[i] / (1 - pow(0.99, step))) + 1e-8);
        }
        const s24i_update job = {.p = left,
                                 .g = g,
                                 .m = moment,
                                 .v = v,
                                 .mask = &mask,
                                 .segments = &segment,
                                 .segment_count = 1,
                                 .count = 16,
                                 .sums = &sums,
                                 .clip = 1,
                                 .beta1 = 0.9,
                                 .beta2 = 0.99,
                                 .eps = 1e-8,
                                 .rate = 1e-2,
                                 .decay = 0.1,
                                 .pull = 0.02,
                                 .step = step,
                                 .fade = fade,
                                 .signs = 1};
        m.ops->update_as(&m, &job);
    }
    for (int i = 0; i < 16; i++) {
        assert_true(fabs(ep[i] - (double)p[i]) < 1e-5);
        assert_true(left[i] == (mask >> i & 1 ? p[i] : 0.0f));
    }
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

/* ---- unbiased gradients ---------------------------------------------------------------------- */

enum { TOKENS = 10, OUTPUTS = 8, DRAWS = 8000 };

/* dyᵀ that came out, by inputs that are the identity; sums and their squares. */
static void expect_unbiased(int mvue, const float *dy, double *variance)
{
    s24_ctx *ctx = new_ctx();
    s24i_machine m = machine(ctx);
    float x[TOKENS * 16] = {0}, dw[OUTPUTS * 16], dbias[OUTPUTS] = {0}, room[TOKENS * OUTPUTS];
    double sum[OUTPUTS * TOKENS] = {0}, squares[OUTPUTS * TOKENS] = {0};
    s24i_layer_rule rule = {.mvue = mvue, .dy = room};
    const s24i_layer layer = {.dw = dw,
                              .dbias = dbias,
                              .n = OUTPUTS,
                              .k = 16,
                              .ldx = 16,
                              .ldy = OUTPUTS,
                              .rule = &rule,
                              .site = 3};
    for (int t = 0; t < TOKENS; t++)
        x[t * 16 + t] = 1;
    for (int turn = 0; turn < DRAWS; turn++) {
        rule.seed = (uint64_t)turn << 32;
        memset(dw, 0, sizeof dw);
        m.ops->sparse_dw(&m, dy, x, &layer, TOKENS, turn == 0);
        assert_int_equal(m.status, S24_OK);
        for (int n = 0; n < OUTPUTS; n++)
            for (int t = 0; t < TOKENS; t++) {
                const double d = (double)dw[n * 16 + t];
                sum[n * TOKENS + t] += d;
                squares[n * TOKENS + t] += d * d;
            }
    }
    *variance = 0;
    for (int n = 0; n < OUTPUTS; n++) {
        double bias = 0;
        for (int t = 0; t < TOKENS; t++) {
            const double mean = sum[n * TOKENS + t] / DRAWS, want = (double)dy[t * OUTPUTS + n];
            const double var = squares[n * TOKENS + t] / DRAWS - mean * mean;
            bias += want;
            if (n == 0 && t < 4) *variance += var;
            /* Five deviations of a mean: of 80 means none lies so far off by chance, but for one
               run in 20,000; seeds are fixed. */
            if (fabs(mean - want) > 5 * sqrt(fmax(var, 0) / DRAWS) + 1e-5)
                fail_msg("mvue %d: %g is %g in the mean", mvue, want, mean);
        }
        assert_true(fabs(bias - (double)dbias[n]) < 1e-5);
    }
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

static void gradients_are_unbiased(void **state)
{
    static const struct {
        float group[4];
        double approximate, exact; /* total variances */
    } cases[] = {{{1, 2, 3, 4}, 20.47, 20}, {{1, 1, 1, 1}, 4, 4}, {{1, 10, 1, 1}, 9.67, 6}};
    uint64_t seed = 1;
    (void)state;
    for (int c = 0; c < 3; c++) {
        float dy[TOKENS * OUTPUTS];
        double variance;
        for (int i = 0; i < TOKENS * OUTPUTS; i++)
            dy[i] = draw(&seed) * (i % 3 ? 1.0f : 0.1f);
        for (int t = 0; t < 4; t++)
            dy[t * OUTPUTS] = t % 2 ? cases[c].group[t] : -cases[c].group[t];
        expect_unbiased(1, dy, &variance);
        assert_true(fabs(variance - cases[c].approximate) < 0.05 * cases[c].approximate);
        expect_unbiased(2, dy, &variance);
        assert_true(fabs(variance - cases[c].exact) < 0.05 * cases[c].exact);
    }
}

/* Two of four tokens stay in every column; the seed alone decides which. */
static void gradients_are_two_of_four(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24i_machine m = machine(ctx);
    float dy[8 * OUTPUTS], x[64] = {0}, dw[2][OUTPUTS * 8], room[8 * OUTPUTS];
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < 8 * OUTPUTS; i++)
        dy[i] = draw(&seed);
    for (int t = 0; t < 8; t++)
        x[t * 9] = 1;
    for (int mvue = 1; mvue <= 2; mvue++) {
        s24i_layer_rule rule = {.mvue = mvue, .seed = 77, .dy = room};
        for (int again = 0; again < 2; again++) {
            const s24i_layer layer = {
                .dw = dw[again], .n = OUTPUTS, .k = 8, .ldx = 8, .ldy = OUTPUTS, .rule = &rule};
            memset(dw[again], 0, sizeof dw[again]);
            m.ops->sparse_dw(&m, dy, x, &layer, 8, 1);
        }
        assert_memory_equal(dw[0], dw[1], sizeof dw[0]);
        for (int group = 0; group < 2 * OUTPUTS; group++) {
            int there = 0;
            for (int i = 0; i < 4; i++)
                there += dw[0][4 * group + i] != 0.0f;
            assert_int_equal(there, 2);
        }
    }
    /* What is not finite reaches dW, for which the step is refused. */
    s24i_layer_rule rule = {.mvue = 1, .dy = room};
    const s24i_layer layer = {
        .dw = dw[0], .n = OUTPUTS, .k = 8, .ldx = 8, .ldy = OUTPUTS, .rule = &rule};
    dy[3] = INFINITY;
    m.ops->sparse_dw(&m, dy, x, &layer, 8, 0);
    assert_int_equal(m.status, S24_OK);
    assert_true(!isfinite(dw[0][3 * 8]));
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

/* ---- activations ----------------------------------------------------------------------------- */

enum { ROWS = 10, WIDE = 8, OUT = 4 };

typedef struct activations {
    s24i_layer_rule rule;
    s24i_layer layer;
    float x[ROWS * WIDE], w[OUT * WIDE], room[ROWS * WIDE];
    uint8_t keep[ROWS * WIDE];
    int32_t order[ROWS + 2 * WIDE]; /* then which features are whole */
} activations;

static void activations_make(activations *a, int outer)
{
    uint64_t seed = 4;
    *a = (activations){.rule = {.inputs = 1,
                                .outer = outer,
                                .tiles = !outer,
                                .seed = 9,
                                .whole_features = 0.25,
                                .x = a->room,
                                .keep = a->keep,
                                .order = a->order}};
    a->layer =
        (s24i_layer){.w = a->w, .n = OUT, .k = WIDE, .ldx = WIDE, .ldy = OUT, .rule = &a->rule};
    for (int i = 0; i < OUT * WIDE; i++)
        a->w[i] = draw(&seed);
    for (int i = 0; i < ROWS * WIDE; i++) {
        const float u = draw(&seed);
        a->x[i] = u > 0 || i % WIDE == 1 ? u * u : 0.0f;
    }
}

static double objective(s24i_machine *m, const activations *a)
{
    float y[ROWS * OUT];
    double sum = 0;
    m->ops->linear(m, y, m->ops->sparse_inputs(m, a->x, &a->layer, ROWS, 0), &a->layer, ROWS, 0);
    for (int i = 0; i < ROWS * OUT; i++)
        sum += (double)y[i] * (0.1 * (i % 7) - 0.2);
    return sum;
}

/* dx is the slope of what ran forward: 0 at what was left out. */
static void outer_slopes(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24i_machine m = machine(ctx);
    static activations a;
    float dy[ROWS * OUT], dx[ROWS * WIDE];
    (void)state;
    activations_make(&a, 1);
    for (int i = 0; i < ROWS * OUT; i++)
        dy[i] = (float)(0.1 * (i % 7) - 0.2);
    m.ops->linear_dx(&m, dx, dy, &a.layer, ROWS);
    m.ops->sparse_dx(&m, dx, a.x, &a.layer, ROWS);
    int zeros = 0;
    for (int i = 0; i < ROWS * WIDE; i++) {
        const float was = a.x[i];
        if (was == 0.0f) continue; /* squared ReLU has no slope there */
        a.x[i] = was * 1.001f;
        const double up = objective(&m, &a);
        a.x[i] = was * 0.999f;
        const double slope = (up - objective(&m, &a)) / (0.002 * (double)was);
        a.x[i] = was;
        assert_true(fabs(slope - (double)dx[i]) < 2e-3);
        zeros += dx[i] == 0.0f;
    }
    assert_true(zeros > 0);
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

/* In dW, tokens of a seeded order have two of four in every feature but the fullest. */
static void outer_tokens(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24i_machine m = machine(ctx);
    static activations a;
    float forward[ROWS * WIDE];
    int whole = 0, seen[ROWS] = {0};
    (void)state;
    activations_make(&a, 1);
    memcpy(forward, m.ops->sparse_inputs(&m, a.x, &a.layer, ROWS, 0), sizeof forward);
    const float *back = m.ops->sparse_inputs(&m, a.x, &a.layer, ROWS, 1);
    for (int t = 0; t < ROWS; t++)
        seen[a.order[t]]++;
    for (int t = 0; t < ROWS; t++)
        assert_int_equal(seen[t], 1);
    for (int c = 0; c < WIDE; c++) {
        whole += a.order[ROWS + c];
        for (int t = 0; t < ROWS; t++) {
            const float at = back[a.order[t] * WIDE + c];
            assert_true(at == 0.0f || at == forward[a.order[t] * WIDE + c]);
            if (a.order[ROWS + c]) assert_true(at == forward[a.order[t] * WIDE + c]);
        }
        for (int t = 0; t < ROWS && !a.order[ROWS + c]; t += 4) {
            int there = 0;
            for (int i = t; i < t + 4 && i < ROWS; i++)
                there += back[a.order[i] * WIDE + c] != 0.0f;
            assert_true(there <= 2);
        }
    }
    assert_int_equal(whole, 2);
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

static void tiles_of_inputs(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24i_machine m = machine(ctx);
    static activations a;
    int yes;
    (void)state;
    activations_make(&a, 0);
    const s24_dense x = {(void *)(uintptr_t)m.ops->sparse_inputs(&m, a.x, &a.layer, ROWS, 0),
                         S24_F32, ROWS, WIDE, 0};
    OK(ctx, s24_check(&yes, NULL, ctx, &x));
    assert_true(yes);
    OK(ctx, s24_check_along_n(&yes, NULL, ctx, &x));
    assert_true(yes);
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

/* ---- what learns next to the weights --------------------------------------------------------- */

enum { GROUPS = 6 };
static const double NORM = 0.25; /* of the share that squares have */
static const int pairs[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};

/* Σ of what the soft choice of a group gives, by the noise that mask_patterns.c documents. */
static double soft_objective(const float *logits, const float *g, const float *w, uint64_t seed,
                             double scale, double temperature)
{
    double total = 0;
    for (int64_t i = 0; i < GROUPS; i++) {
        uint32_t words[8];
        double weight[6], sum = 0, part = 0;
        s24_random(words, seed, 2ull << 40 | (uint64_t)i << 1);
        s24_random(words + 4, seed, (2ull << 40 | (uint64_t)i << 1) + 1);
        for (int p = 0; p < 6; p++) {
            const double noise = -log(-log(((double)words[p] + 0.5) / 4294967296.0));
            weight[p] = exp((scale * (double)logits[6 * i + p] + noise) / temperature);
            sum += weight[p];
        }
        for (int p = 0; p < 6; p++)
            for (int k = 0; k < 2; k++)
                part += weight[p] / sum * (double)w[4 * i + pairs[p][k]] *
                        ((double)g[4 * i + pairs[p][k]] - NORM * (double)w[4 * i + pairs[p][k]]);
        total += part;
    }
    return total;
}

static void pattern_slopes(void **state)
{
    float logits[6 * GROUPS], g[4 * GROUPS], w[4 * GROUPS], slopes[6 * GROUPS];
    const s24i_optimiser o = {
        .seed = 11,
        .numbers = {
            .scale = 10, .scale_end = 30, .temperature = 2, .temperature_end = 1, .norm = NORM}};
    const s24i_look look = {.moment = {.step = 4, .progress = 0.5}, .sparse = 1};
    const uint64_t seed = 11 ^ 5 * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t random = 8;
    uint8_t keep[4 * GROUPS];
    (void)state;
    for (int i = 0; i < 6 * GROUPS; i++)
        logits[i] = 0.05f * draw(&random);
    for (int i = 0; i < 4 * GROUPS; i++) {
        g[i] = draw(&random);
        w[i] = draw(&random);
    }
    const s24i_pattern_draw drawn = s24i_patterns_draw(&o, &look, 2);
    const s24i_extra_place at = {.gradients = slopes,
                                 .g = g,
                                 .w = w,
                                 .extra = logits,
                                 .rows = GROUPS,
                                 .cols = 4,
                                 .patterns = 1,
                                 .draw = drawn};
    s24i_patterns_back(&at);
    for (int i = 0; i < 6 * GROUPS; i++) {
        const float was = logits[i];
        logits[i] = was + 1e-3f;
        const double up = soft_objective(logits, g, w, seed, 20, 1.5);
        logits[i] = was - 1e-3f;
        const double slope = (up - soft_objective(logits, g, w, seed, 20, 1.5)) / 2e-3;
        logits[i] = was;
        assert_true(fabs(slope - (double)slopes[i]) < 1e-3 * (1 + fabs(slope)));
    }
    s24i_patterns_keep(keep, &drawn, logits, 4 * GROUPS);
    for (int i = 0; i < GROUPS; i++)
        assert_int_equal(keep[4 * i] + keep[4 * i + 1] + keep[4 * i + 2] + keep[4 * i + 3], 2);
}

/* At the start the pattern of the largest magnitudes is the likeliest, if its prior is strong. */
static void patterns_begin(void **state)
{
    const s24i_optimiser o = {.seed = 3, .numbers = {.prior = 50}};
    const s24i_look end = {.sparse = 1, .settles = 1};
    const uint8_t wanted[8] = {0, 1, 1, 0, 1, 0, 0, 1};
    float logits[12];
    uint8_t keep[8];
    (void)state;
    s24i_patterns_begin(&o, logits, wanted, 8, 0);
    const s24i_pattern_draw likeliest = s24i_patterns_draw(&o, &end, 0);
    s24i_patterns_keep(keep, &likeliest, logits, 8);
    assert_memory_equal(keep, wanted, sizeof keep);
}

static void scales_fold(void **state)
{
    float w[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const float scales[4] = {2, 0.5f, 1, -1}, wanted[8] = {2, 4, 1.5f, 2, 5, 6, -7, -8};
    (void)state;
    s24i_scales_apply(w, scales, 2, 4);
    assert_memory_equal(w, wanted, sizeof w);
}

/* The mask of the least loss stays; one that was never drawn is not among them. */
static void samples_end_with_the_best(void **state)
{
    double memory[S24I_REMEMBERS_FIXED] = {0};
    const s24i_optimiser o = {.numbers = {.masks = 4}, .memory = memory, .seed = 6};
    int drawn[4] = {0};
    (void)state;
    for (int64_t step = 0; step < 200; step++)
        drawn[s24i_mask_of_step(&o, &(s24i_moment){.step = step}, 0)]++;
    for (int i = 0; i < 4; i++)
        assert_in_range(drawn[i], 30, 70);
    memory[S24I_REMEMBERS_SCORES + 1] = 2;
    memory[S24I_REMEMBERS_SCORES + 2] = 1;
    assert_int_equal(s24i_mask_of_step(&o, &(s24i_moment){.step = 0}, 1), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_step),
        cmocka_unit_test(moves_by_sign),
        cmocka_unit_test(gradients_are_unbiased),
        cmocka_unit_test(gradients_are_two_of_four),
        cmocka_unit_test(outer_slopes),
        cmocka_unit_test(outer_tokens),
        cmocka_unit_test(tiles_of_inputs),
        cmocka_unit_test(pattern_slopes),
        cmocka_unit_test(patterns_begin),
        cmocka_unit_test(scales_fold),
        cmocka_unit_test(samples_end_with_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
