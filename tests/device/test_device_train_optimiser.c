// SPDX-License-Identifier: Apache-2.0
/* The gradients' norm and AdamW on a device, against PyTorch's AdamW and against double. Says in
   a line where there is no GPU. */
#include "device_train_support.h"
#include "safetensors_mini.h"

typedef struct arena {
    int64_t count;
    array p, g, m, v;
    void *narrow;
    double *sums; /* squares, loss */
} arena;

static arena arena_make(gpu *g, int64_t count)
{
    arena a = {.count = count,
               .p = wide_make(g, count, 1),
               .g = wide_make(g, count, 1),
               .m = wide_make(g, count, 0),
               .v = wide_make(g, count, 0),
               .narrow = poisoned(g, (size_t)count * 2),
               .sums = poisoned(g, 16)};
    return a;
}

static void arena_free(gpu *g, arena *a)
{
    array *const arrays[] = {&a->p, &a->g, &a->m, &a->v};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        array_free(g, arrays[i]);
    release(g, a->narrow);
    release(g, a->sums);
}

/* To the device or from there. */
static void put(gpu *g, void *there, const void *host, size_t bytes)
{
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, there, host, bytes, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
}

static s24_device_train_adamw_args step_of(const gpu *g, const arena *a, int step, double rate,
                                           double beta2)
{
    return (s24_device_train_adamw_args){.size = sizeof(s24_device_train_adamw_args),
                                         .dtype = g->dtype,
                                         .count = a->count,
                                         .p = a->p.there,
                                         .g = a->g.there,
                                         .m = a->m.there,
                                         .v = a->v.there,
                                         .narrow = a->narrow,
                                         .squares = a->sums,
                                         .loss = a->sums + 1,
                                         .gradient_scale = 1,
                                         .beta1 = 0.9,
                                         .beta2 = beta2,
                                         .eps = 1e-8,
                                         .step = rate / (1 - pow(0.9, step)),
                                         .inverse2 = 1 / sqrt(1 - pow(beta2, step))};
}

/* ---- the norm -------------------------------------------------------------------------------- */

static void test_squares(void **state)
{
    static const int64_t counts[] = {16, 128, 4112, 3000000 / 16 * 16};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    void *work = work_memory(&g);
    for (int i = 0; i < 4; i++)
        for (int masked = 0; masked < 2; masked++) {
            const int64_t n = counts[i];
            array x = wide_make(&g, n, 3);
            uint16_t *mask = malloc((size_t)n / 8);
            double sum = 0;
            for (int64_t w = 0; w < n / 16; w++)
                mask[w] = (uint16_t)(w * 40503 + 9);
            for (int64_t k = 0; k < n; k++)
                if (!masked || mask[k / 16] >> k % 16 & 1)
                    sum += (double)x.host[k] * (double)x.host[k];
            void *there = upload(&g, mask, (size_t)n / 8);
            double *total = poisoned(&g, 16), got[2];
            for (int turn = 0; turn < 2; turn++) {
                DO(&g, squares, .count = n, .g = x.there, .mask = masked ? there : NULL,
                   .sum = total, .work = work);
                got[turn] = read_double(&g, total);
            }
            close_to(sum, got[0], 1e-6, "squares", n);
            assert_true(got[0] == got[1]);
            free(mask);
            release(&g, there);
            release(&g, total);
            array_free(&g, &x);
        }
    release(&g, work);
    gpu_end(&g);
}

/* ---- AdamW ----------------------------------------------------------------------------------- */

static void test_golden(void **state)
{
    char path[512], name[16];
    const double sums[2] = {1, 1};
    gpu g = {0};
    (void)state;
    if (!golden_path(path, sizeof path, "train/adamw.safetensors")) SKIP_WITHOUT(path);
    if (!gpu_here(&g)) return;
    mini_file file = mini_open(path);
    uint16_t ones[8];
    memset(ones, 0xff, sizeof ones);
    void *matrices = upload(&g, ones, sizeof ones);
    for (int d = 0; d < 2; d++) {
        g.dtype = d ? S24_F16 : S24_BF16;
        arena a = arena_make(&g, 128);
        put(&g, a.p.there, mini_get(&file, "p.00").data, 512);
        put(&g, a.sums, sums, sizeof sums);
        for (int step = 1; step <= 10; step++) {
            s24_device_train_adamw_args args = step_of(&g, &a, step, 1e-2, 0.95);
            double expected[128];
            snprintf(name, sizeof name, "grad.%02d", step - 1);
            put(&g, a.g.there, mini_get(&file, name).data, 512);
            args.decay = 1e-2 * 0.1;
            args.matrices = matrices;
            assert_ok(g.ctx, s24_device_train_adamw(g.ctx, g.device, &args));
            snprintf(name, sizeof name, "p.%02d", step);
            for (int i = 0; i < 128; i++)
                expected[i] = (double)((const float *)mini_get(&file, name).data)[i];
            expect(&g, name, a.p.there, 1, expected, 128, 1e-6);
            expect(&g, "narrow", a.narrow, 0, expected, 128, 1e-6);
            memset(expected, 0, sizeof expected);
            expect(&g, "g", a.g.there, 1, expected, 128, 0);
        }
        arena_free(&g, &a);
    }
    release(&g, matrices);
    mini_close(&file);
    gpu_end(&g);
}

typedef struct state_of {
    double *p, *m, *v;
    const uint16_t *bits; /* the mask; every third word of 16 is without decay */
} state_of;

static void reference_step(const state_of *s, const arena *a, double factor,
                           const s24_device_train_adamw_args *args)
{
    for (int64_t i = 0; i < a->count; i++) {
        const int on = s->bits[i / 16] >> i % 16 & 1, learns = on || args->learns;
        const double slope =
            learns ? factor * (double)a->g.host[i] + (on ? 0 : args->pull * s->p[i]) : 0;
        s->m[i] = 0.9 * s->m[i] + 0.1 * slope;
        s->v[i] = 0.999 * s->v[i] + 0.001 * slope * slope;
        s->p[i] = learns ? s->p[i] * (i / 16 % 3 ? 1 - 1e-3 : 1) -
                               args->step * s->m[i] / (sqrt(s->v[i]) * args->inverse2 + 1e-8)
                         : 0;
    }
}

/* What the mask leaves of p. */
static void expect_shown(gpu *g, const arena *a, const state_of *s)
{
    double *shown = malloc((size_t)a->count * sizeof *shown);
    for (int64_t i = 0; i < a->count; i++)
        shown[i] = s->bits[i / 16] >> i % 16 & 1 ? s->p[i] : 0;
    expect(g, "narrow", a->narrow, 0, shown, a->count, 2e-6);
    free(shown);
}

/* Three steps of every kind of element beside double: masked, with decay, clipped, scaled;
   behind: what is masked learns on, and is 0 in 16 bits alone. */
static void check_steps(int behind)
{
    enum { N = 50000 / 16 * 16 };
    gpu g = {0};
    if (!gpu_here(&g)) return;
    void *work = work_memory(&g);
    for (int d = 0; d < 2; d++) {
        g.dtype = d ? S24_F16 : S24_BF16;
        arena a = arena_make(&g, N);
        uint16_t *bits = malloc(N / 8), *matrix = malloc(N / 8);
        double *p = malloc(N * sizeof *p), *m = calloc(N, sizeof *m), *v = calloc(N, sizeof *v);
        for (int64_t w = 0; w < N / 16; w++) {
            bits[w] = (uint16_t)(w * 40503 + 9);
            matrix[w] = w % 3 ? 0xffff : 0;
        }
        for (int64_t i = 0; i < N; i++)
            p[i] = (double)a.p.host[i];
        void *mask = upload(&g, bits, N / 8), *matrices = upload(&g, matrix, N / 8);
        for (int step = 1; step <= 3; step++) {
            s24_device_train_adamw_args args = step_of(&g, &a, step, 1e-2, 0.999);
            const double loss = 5;
            double norm = 0;
            for (int64_t i = 0; i < N; i++)
                a.g.host[i] = 64 * random_float();
            for (int64_t i = 0; i < N; i++)
                if (bits[i / 16] >> i % 16 & 1) norm += pow((double)a.g.host[i] / 64, 2);
            norm = sqrt(norm);
            const double clip = step == 2 ? 1e9 : step == 3 ? 0 : 10;
            const double factor = (clip > 0 && norm > clip ? clip / norm : 1) / 64;
            put(&g, a.g.there, a.g.host, N * 4);
            put(&g, a.sums + 1, &loss, sizeof loss);
            DO(&g, squares, .count = N, .g = a.g.there, .mask = mask, .sum = a.sums, .work = work);
            args.mask = mask;
            args.matrices = matrices;
            args.decay = 1e-3;
            args.gradient_scale = 64;
            args.clip = clip;
            args.learns = behind;
            args.pull = 0.3;
            assert_ok(g.ctx, s24_device_train_adamw(g.ctx, g.device, &args));
            reference_step(&(state_of){p, m, v, bits}, &a, factor, &args);
            expect(&g, "p", a.p.there, 1, p, N, 2e-6);
            /* Behind a mask p, which is in f32, is part of the slope. */
            expect(&g, "m", a.m.there, 1, m, N, behind ? 2e-7 : 1e-8);
            expect(&g, "v", a.v.there, 1, v, N, 1e-9);
            expect_shown(&g, &a, &(state_of){p, m, v, bits});
        }
        free(bits);
        free(matrix);
        free(p);
        free(m);
        free(v);
        release(&g, mask);
        release(&g, matrices);
        arena_free(&g, &a);
    }
    release(&g, work);
    gpu_end(&g);
}

static void test_steps(void **state)
{
    (void)state;
    check_steps(0);
}

static void test_steps_behind_a_mask(void **state)
{
    (void)state;
    check_steps(1);
}

/* Moments of what stays alone, next to those of all. */
static void test_halved_moments(void **state)
{
    enum { N = 33 * 16, FULL = 3 };
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    for (int step = 1; step <= 2; step++) {
        arena whole = arena_make(&g, N), half = arena_make(&g, N);
        uint16_t bits[N / 16];
        uint32_t places[N / 16];
        float m[2][N], v[2][N], p[2][N];
        uint16_t narrow[2][N];
        const double sums[2] = {4, 1};
        for (uint32_t w = 0; w < N / 16; w++) {
            bits[w] = (uint16_t)(w < FULL ? 0xffff : w % 3 ? 0x2d5a : 0x0300);
            places[w] = w < FULL ? 2 * w : (w + FULL) | 1u << 31;
        }
        void *mask = upload(&g, bits, sizeof bits), *at = upload(&g, places, sizeof places);
        put(&g, half.p.there, whole.p.host, N * 4);
        put(&g, half.g.there, whole.g.host, N * 4);
        /* Moments begin with +0: of -0 a masked weight would get another sign. */
        arena *const both[] = {&whole, &half};
        for (int i = 0; i < 2; i++) {
            assert_ok(g.ctx, s24_device_clear(g.ctx, g.device, both[i]->m.there, N * 4, NULL));
            assert_ok(g.ctx, s24_device_clear(g.ctx, g.device, both[i]->v.there, N * 4, NULL));
        }
        put(&g, whole.sums, sums, sizeof sums);
        put(&g, half.sums, sums, sizeof sums);
        s24_device_train_adamw_args args[2] = {step_of(&g, &whole, step, 1e-2, 0.999),
                                               step_of(&g, &half, step, 1e-2, 0.999)};
        args[1].moments_at = at;
        for (int i = 0; i < 2; i++) {
            args[i].mask = mask;
            assert_ok(g.ctx, s24_device_train_adamw(g.ctx, g.device, &args[i]));
            put(&g, m[i], args[i].m, sizeof m[i]);
            put(&g, v[i], args[i].v, sizeof v[i]);
            put(&g, p[i], args[i].p, sizeof p[i]);
            put(&g, narrow[i], args[i].narrow, sizeof narrow[i]);
        }
        for (int i = 0; i < N; i++) {
            const uint32_t before = bits[i / 16] & ((1u << i % 16) - 1);
            const int first = (int)(places[i / 16] & 0x7fffffff) * 8;
            const int to = first + (i < 16 * FULL ? i % 16 : __builtin_popcount(before));
            if (!(bits[i / 16] >> i % 16 & 1)) continue;
            assert_true(m[0][i] == m[1][to] && v[0][i] == v[1][to]);
        }
        assert_memory_equal(p[0], p[1], sizeof p[0]);
        assert_memory_equal(narrow[0], narrow[1], sizeof narrow[0]);
        release(&g, mask);
        release(&g, at);
        arena_free(&g, &whole);
        arena_free(&g, &half);
    }
    gpu_end(&g);
}

/* Where the norm or the loss is not finite, nothing but g changes. */
static void test_not_finite(void **state)
{
    enum { N = 1600 };
    static const double bad[][2] = {{NAN, 1}, {INFINITY, 1}, {1, NAN}, {1, -INFINITY}};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_F16;
    uint16_t ones[N / 16];
    memset(ones, 0xff, sizeof ones);
    void *matrices = upload(&g, ones, sizeof ones);
    for (int i = 0; i < 4; i++) {
        arena a = arena_make(&g, N);
        s24_device_train_adamw_args args = step_of(&g, &a, 1, 1e-2, 0.999);
        double expected[N];
        args.matrices = matrices;
        put(&g, a.sums, bad[i], sizeof bad[i]);
        assert_ok(g.ctx, s24_device_train_adamw(g.ctx, g.device, &args));
        for (int k = 0; k < N; k++)
            expected[k] = (double)a.p.host[k];
        expect(&g, "p", a.p.there, 1, expected, N, 0);
        memset(expected, 0, sizeof expected);
        expect(&g, "g", a.g.there, 1, expected, N, 0);
        expect(&g, "m", a.m.there, 1, expected, N, 0);
        expect(&g, "v", a.v.there, 1, expected, N, 0);
        arena_free(&g, &a);
    }
    release(&g, matrices);
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_F16;
    arena a = arena_make(&g, 16);
    void *work = work_memory(&g);
    REFUSED(&g, S24_ERROR_SHAPE, "count is 24", squares, .count = 24, .g = a.g.there, .sum = a.sums,
            .work = work);
    REFUSED(&g, S24_ERROR_ARGUMENT, "sum is at", squares, .count = 16, .g = a.g.there,
            .sum = (double *)(void *)((char *)a.sums + 4), .work = work);
    s24_device_train_adamw_args args = step_of(&g, &a, 1, 1e-2, 0.999);
    args.decay = 1e-3;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "matrices is NULL",
                   s24_device_train_adamw(g.ctx, g.device, &args));
    args.gradient_scale = 0;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "gradient_scale 0",
                   s24_device_train_adamw(g.ctx, g.device, &args));
    release(&g, work);
    arena_free(&g, &a);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_squares),        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_steps),          cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_steps_behind_a_mask),
        cmocka_unit_test(test_halved_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
