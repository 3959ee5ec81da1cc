// SPDX-License-Identifier: Apache-2.0
/* Layers whose products are of 8 bits, on the CPU: operands are rounded as it is written, and the
   three products are those of what was rounded. */
#include "support.h"

#include <math.h>

#include "nn_train_support.h"
#include "train/run.h"

enum { ROWS = 10, INPUTS = 32, OUTPUTS = 16 };

typedef struct narrow_layer {
    s24i_layer_rule rule;
    s24i_layer layer;
    float x[ROWS * INPUTS], w[OUTPUTS * INPUTS], dy[ROWS * OUTPUTS], bias[OUTPUTS];
    float dw[OUTPUTS * INPUTS], dbias[OUTPUTS], room[ROWS * OUTPUTS];
    float narrow[S24I_NARROWS][OUTPUTS * INPUTS];
} narrow_layer;

static float draw(uint64_t *state)
{
    return (float)(test_random(state) % 20001) / 10000.0f - 1.0f;
}

static void make(narrow_layer *l)
{
    uint64_t seed = 3;
    memset(l, 0, sizeof *l);
    l->rule = (s24i_layer_rule){.fp8 = 1, .seed = 9, .dy = l->room};
    for (int i = 0; i < S24I_NARROWS; i++)
        l->rule.narrow[i] = l->narrow[i];
    l->layer = (s24i_layer){.w = l->w,
                            .bias = l->bias,
                            .dw = l->dw,
                            .dbias = l->dbias,
                            .n = OUTPUTS,
                            .k = INPUTS,
                            .ldx = INPUTS,
                            .ldy = OUTPUTS,
                            .rule = &l->rule};
    for (int i = 0; i < ROWS * INPUTS; i++)
        l->x[i] = draw(&seed) * (i % 5 ? 3.0f : 0.003f);
    for (int i = 0; i < OUTPUTS * INPUTS; i++)
        l->w[i] = draw(&seed) * 0.02f;
    for (int i = 0; i < ROWS * OUTPUTS; i++)
        l->dy[i] = draw(&seed) * 1e-6f;
    for (int i = 0; i < OUTPUTS; i++)
        l->bias[i] = draw(&seed);
}

/* By doubles: the nearest multiple of what the format has at that size, of ties the even one. */
static double rounded(double v, double most, int mantissa, int lowest, double range)
{
    int exponent;
    double scale = 1;
    while (most > 0 && most * scale * 2 <= range)
        scale *= 2;
    while (most * scale > range)
        scale /= 2;
    (void)frexp(v * scale, &exponent);
    exponent = (exponent - 1 < lowest ? lowest : exponent - 1) - mantissa;
    return ldexp(nearbyint(ldexp(v * scale, -exponent)), exponent) / scale;
}

static void round_all(double *to, const float *from, int count, int is_gradient)
{
    double most = 0;
    for (int i = 0; i < count; i++)
        most = fmax(most, fabs((double)from[i]));
    for (int i = 0; i < count; i++)
        to[i] = is_gradient ? rounded((double)from[i], most, 2, -14, 57344)
                            : rounded((double)from[i], most, 3, -6, 448);
}

static void expect(double want, float got, double size, const char *what)
{
    if (fabs(want - (double)got) > 1e-5 * size)
        fail_msg("%s is %.9g, %.9g was expected", what, (double)got, want);
}

static void products_are_of_rounded_operands(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24i_machine m;
    static narrow_layer l;
    static double x[ROWS * INPUTS], w[OUTPUTS * INPUTS], dy[ROWS * OUTPUTS];
    float y[ROWS * OUTPUTS], dx[ROWS * INPUTS];
    (void)state;
    make(&l);
    OK(ctx, s24i_machine_cpu(&m, ctx, 16, 16, 64));
    round_all(x, l.x, ROWS * INPUTS, 0);
    round_all(w, l.w, OUTPUTS * INPUTS, 0);
    round_all(dy, l.dy, ROWS * OUTPUTS, 1);
    m.ops->linear(&m, y, l.x, &l.layer, ROWS, 1);
    for (int i = 0; i < ROWS * INPUTS; i++) /* to the bit */
        assert_true((float)x[i] == l.narrow[S24I_NARROW_INPUTS][i]);
    m.ops->linear_dw(&m, l.dy, l.x, &l.layer, ROWS, 1);
    m.ops->linear_dx(&m, dx, l.dy, &l.layer, ROWS);
    assert_int_equal(m.status, S24_OK);
    for (int i = 0; i < OUTPUTS * INPUTS; i++)
        assert_true((float)w[i] == l.narrow[S24I_NARROW_WEIGHTS][i]);
    for (int i = 0; i < ROWS * OUTPUTS; i++)
        assert_true((float)dy[i] == l.narrow[S24I_NARROW_GRADIENTS][i]);
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < OUTPUTS; o++) {
            double sum = (double)l.bias[o];
            for (int i = 0; i < INPUTS; i++)
                sum += x[r * INPUTS + i] * w[o * INPUTS + i];
            expect(sum, y[r * OUTPUTS + o], 1, "y");
        }
    for (int i = 0; i < ROWS * INPUTS; i++) {
        double sum = 0;
        for (int o = 0; o < OUTPUTS; o++)
            sum += dy[i / INPUTS * OUTPUTS + o] * w[o * INPUTS + i % INPUTS];
        expect(sum, dx[i], 1e-7, "dx");
    }
    for (int i = 0; i < OUTPUTS * INPUTS; i++) {
        double sum = 0;
        for (int r = 0; r < ROWS; r++)
            sum += dy[r * OUTPUTS + i / INPUTS] * x[r * INPUTS + i % INPUTS];
        expect(sum, l.dw[i], 1e-6, "dw");
    }
    for (int o = 0; o < OUTPUTS; o++) { /* of gradients as they came */
        double sum = 0;
        for (int r = 0; r < ROWS; r++)
            sum += (double)l.dy[r * OUTPUTS + o];
        expect(sum, l.dbias[o], 1e-6, "dbias");
    }
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

/* What MVUE24 leaves is rounded: dw, of inputs that are the identity, has two of four tokens, each
   an e5m2 of one scale; the tokens after the last four are there as well. */
static void estimates_are_rounded(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24i_machine m;
    static narrow_layer l;
    (void)state;
    OK(ctx, s24i_machine_cpu(&m, ctx, 16, 16, 64));
    for (int mvue = 1; mvue <= 2; mvue++) {
        make(&l);
        l.rule.mvue = mvue;
        memset(l.x, 0, sizeof l.x);
        for (int r = 0; r < ROWS; r++)
            l.x[r * INPUTS + r] = 1;
        m.ops->sparse_dw(&m, l.dy, l.x, &l.layer, ROWS, 0);
        assert_int_equal(m.status, S24_OK);
        for (int o = 0; o < OUTPUTS; o++) {
            const float *row = l.dw + o * INPUTS;
            for (int g = 0; g < 8; g += 4) {
                int there = 0;
                for (int i = 0; i < 4; i++)
                    there += row[g + i] != 0.0f;
                assert_int_equal(there, 2);
            }
            assert_true(row[8] != 0.0f && row[9] != 0.0f);
            for (int i = 0; i < ROWS; i++) {
                uint32_t bits;
                memcpy(&bits, &row[i], sizeof bits);
                assert_int_equal(bits & 0x1fffffu, 0); /* two bits of mantissa */
            }
        }
    }
    l.dy[5] = INFINITY; /* reaches dw, for which the step is refused */
    memset(l.dw, 0, sizeof l.dw);
    m.ops->sparse_dw(&m, l.dy, l.x, &l.layer, ROWS, 0);
    assert_true(m.status == S24_OK && !isfinite(l.dw[5 * INPUTS]));
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

/* All zeros have no scale, the smallest numbers a bounded one; what is not finite stays so. */
static void scales_are_guarded(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24i_machine m;
    static narrow_layer l;
    float y[ROWS * OUTPUTS];
    (void)state;
    OK(ctx, s24i_machine_cpu(&m, ctx, 16, 16, 64));
    make(&l);
    memset(l.x, 0, sizeof l.x);
    m.ops->linear(&m, y, l.x, &l.layer, ROWS, 0);
    for (int i = 0; i < ROWS * OUTPUTS; i++)
        assert_true(y[i] == 0.0f);
    l.x[0] = 1e-44f;
    m.ops->linear(&m, y, l.x, &l.layer, ROWS, 0);
    assert_true(l.narrow[S24I_NARROW_INPUTS][0] == 0.0f && isfinite(y[0]));
    l.x[0] = 3e38f;
    m.ops->linear(&m, y, l.x, &l.layer, ROWS, 0);
    assert_true(fabsf(l.narrow[S24I_NARROW_INPUTS][0] / 3e38f - 1) < 0.0625f);
    l.x[0] = NAN;
    l.x[INPUTS] = INFINITY;
    l.x[INPUTS + 1] = 1.0f;
    m.ops->linear(&m, y, l.x, &l.layer, ROWS, 0);
    assert_true(isnan(y[0]) && isnan(y[OUTPUTS]) && y[2 * OUTPUTS] == 0.0f);
    assert_true(l.narrow[S24I_NARROW_INPUTS][INPUTS + 1] == 1.0f);
    m.ops->close(&m);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_of_rounded_operands),
        cmocka_unit_test(estimates_are_rounded),
        cmocka_unit_test(scales_are_guarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
