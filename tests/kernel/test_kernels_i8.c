// SPDX-License-Identifier: Apache-2.0
/*
 * Rows that quantise x as it comes: their integer sums bit for bit against 64-bit ones, epilogues,
 * tokens that are nothing or not finite, and the largest k.
 */
#include "support.h"

#include <math.h>

#include "activation.h"
#include "base/base.h"
#include "guarded.h"
#include "kernel/kernel.h"

typedef struct sample {
    int64_t m, n, k, pad;
    int x_columns, y_columns, threads, at_end, epilogue;
    int in_place; /* the residual is y */
    s24_activation activation;
    s24_dtype x_dtype, y_dtype;
} sample;

/* Operands of a job and what the rule makes of them. */
typedef struct operands {
    guarded x, y, gate, residual, bias, values, codes, scales, w, work;
    int64_t ldx, ldy, x_rows, y_rows;
    float *x_scales;
    int8_t *q; /* [m, k] */
} operands;

static const s24i_linear_kernel *integer_row(int i)
{
    const s24i_linear_kernel *row = s24i_linear_kernels[i];
    if (!row || row->activations != S24_I8) return NULL;
    if (!(row->cpu & ~s24_cpu_detect())) return row;
    print_message("skipped: %s is not for this CPU\n", row->name);
    return NULL;
}

static float x_at(const sample *s, const operands *o, int64_t m, int64_t k)
{
    return s24i_load_f32(o->x.data, s->x_dtype, s->x_columns ? k * o->ldx + m : m * o->ldx + k);
}

static void fill(guarded to, s24_dtype dtype, size_t count, uint64_t *seed)
{
    for (size_t i = 0; i < count; i++)
        s24i_store_f32(to.data, dtype, (int64_t)i, test_uniform(seed));
}

static operands make_operands(const sample *s, uint64_t *seed)
{
    static const uint8_t patterns[6] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};
    operands o = {.ldx = (s->x_columns ? s->m : s->k) + s->pad,
                  .ldy = (s->y_columns ? s->m : s->n) + s->pad,
                  .x_rows = s->x_columns ? s->k : s->m,
                  .y_rows = s->y_columns ? s->n : s->m};
    const size_t x_count = (size_t)(o.ldx * o.x_rows - s->pad);
    const size_t y_count = (size_t)(o.ldy * o.y_rows - s->pad);
    const size_t x_size = s24_dtype_bytes(s->x_dtype), y_size = s24_dtype_bytes(s->y_dtype);
    const int64_t row_codes = (s->k + 7) / 8;
    o.x = guard(x_count * x_size, x_size, s->at_end);
    o.y = guard(y_count * y_size, y_size, s->at_end);
    o.gate = guard(y_count * y_size, y_size, s->at_end);
    o.residual = guard(y_count * y_size, y_size, s->at_end);
    o.bias = guard((size_t)s->n * 4, 4, s->at_end);
    o.values = guard((size_t)(s->n * s->k / 2), 1, s->at_end);
    o.codes = guard((size_t)(s->n * row_codes), 1, s->at_end);
    o.scales = guard((size_t)s->n * 4, 4, s->at_end);
    fill(o.x, s->x_dtype, x_count, seed);
    memset(o.y.data, 0xff, y_count * y_size); /* NaN, where nobody may read */
    fill(s->in_place ? o.y : o.residual, s->y_dtype, y_count, seed);
    fill(o.gate, s->y_dtype, y_count, seed), fill(o.bias, S24_F32, (size_t)s->n, seed);
    fill(o.scales, S24_F32, (size_t)s->n, seed);
    for (int64_t i = 0; i < s->n * s->k / 2; i++)
        ((uint8_t *)o.values.data)[i] = (uint8_t)test_random(seed);
    memset(o.codes.data, 0, (size_t)(s->n * row_codes));
    for (int64_t i = 0; i < s->n * s->k / 4; i++)
        ((uint8_t *)o.codes.data)[i / (s->k / 4) * row_codes + i % (s->k / 4) / 2] |=
            (uint8_t)(patterns[test_random(seed) % 6] << (i % (s->k / 4) % 2 * 4));
    return o;
}

/* The rule, as docs/numerics.md has it. */
static void quantise(const sample *s, operands *o)
{
    o->x_scales = malloc((size_t)s->m * sizeof(float));
    o->q = malloc((size_t)(s->m * s->k));
    for (int64_t m = 0; m < s->m; m++) {
        float largest = 0;
        for (int64_t k = 0; k < s->k; k++) {
            const float x = fabsf(x_at(s, o, m, k));
            if (!(x <= largest)) largest = x; /* NaN too, and then it stays */
            if (isnan(largest)) break;
        }
        const int usable = largest >= 0x1p-119f && isfinite(largest);
        o->x_scales[m] = usable ? largest / 127 : isfinite(largest) ? 0 : NAN;
        for (int64_t k = 0; k < s->k; k++)
            o->q[m * s->k + k] =
                usable ? (int8_t)nearbyintf(x_at(s, o, m, k) * (127 / largest)) : 0;
    }
}

/* float(Σ)·w_scale·x_scale, in that order. */
UNWATCHED static float product(const sample *s, const operands *o, int64_t m, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < s->k / 2; i++) {
        const int byte = ((uint8_t *)o->codes.data)[n * ((s->k + 7) / 8) + i / 4];
        const int code = byte >> (i / 2 % 2 * 4);
        const int64_t k = i / 2 * 4 + (i % 2 ? code >> 2 & 3 : code & 3);
        sum += (int64_t)o->q[m * s->k + k] * ((int8_t *)o->values.data)[n * (s->k / 2) + i];
    }
    return (float)sum * ((float *)o->scales.data)[n] * o->x_scales[m];
}

static s24i_linear_job job_of(const s24i_linear_kernel *row, const sample *s, operands *o)
{
    const s24i_parallel parallel = {s->threads, run_in_turn, (void *)(uintptr_t)&s->threads};
    const s24i_weight from = {.n = s->n,
                              .k = s->k,
                              .dtype = S24_I8,
                              .values = o->values.data,
                              .indices = o->codes.data,
                              .scales = o->scales.data,
                              .group = s->k,
                              .parallel = parallel};
    const int64_t y_m = s->y_columns ? 1 : o->ldy, y_n = s->y_columns ? o->ldy : 1;
    const size_t work_bytes = row->work_bytes(s->m, s->n, s->k, s->threads);
    o->w = guard(row->weight_bytes(&from), 64, s->at_end);
    o->work = guard(work_bytes, 64, s->at_end);
    row->weight_pack(o->w.data, &from);
    memset(o->work.data, 0xff, work_bytes);
    s24i_linear_job job = {.m = s->m, .n = s->n, .k = s->k, .group = s->k};
    job.x = o->x.data, job.x_dtype = s->x_dtype;
    job.x_stride_m = s->x_columns ? 1 : o->ldx, job.x_stride_k = s->x_columns ? o->ldx : 1;
    job.w = o->w.data, job.work = o->work.data, job.alpha = 1;
    job.y = o->y.data, job.y_dtype = s->y_dtype, job.y_stride_m = y_m, job.y_stride_n = y_n;
    job.parallel = parallel;
    if (!s->epilogue) return job;
    job.bias = o->bias.data, job.gate = o->gate.data,
    job.residual = s->in_place ? o->y.data : o->residual.data;
    job.gate_stride_m = job.residual_stride_m = y_m;
    job.gate_stride_n = job.residual_stride_n = y_n;
    job.alpha = -0.5f, job.beta = 2, job.activation = s->activation;
    return job;
}

static void drop_operands(operands *o)
{
    unguard(o->x), unguard(o->y), unguard(o->gate), unguard(o->residual);
    unguard(o->bias), unguard(o->values);
    unguard(o->codes), unguard(o->scales), unguard(o->w), unguard(o->work);
    free(o->x_scales), free(o->q);
}

/* added: the residual, if the sample has an epilogue. */
static void check_output(const s24i_linear_kernel *row, const sample *s, const operands *o,
                         const float *added)
{
    for (int64_t m = 0; m < s->m; m++) {
        for (int64_t n = 0; n < s->n; n++) {
            const int64_t at = s->y_columns ? n * o->ldy + m : m * o->ldy + n;
            const float got = s24i_load_f32(o->y.data, s->y_dtype, at);
            double want = (double)product(s, o, m, n), bound = 0;
            if (s->epilogue) {
                const double gate = (double)s24i_load_f32(o->gate.data, s->y_dtype, at);
                const double bias = (double)((float *)o->bias.data)[n], sum = -0.5 * want + bias;
                /* No activation is steeper than 1.13; the last term of its bound is its own. */
                bound = 1.4e-7 * (fabs(want) + fabs(bias)) + 3e-7 * (1 + fabs(sum));
                want = activation_of(sum, s->activation) * gate;
                bound = bound * fabs(gate) + 2.4e-7 * (fabs(want) + 2 * fabs((double)added[at]));
                want += 2 * (double)added[at];
            }
            if (s->y_dtype == S24_BF16) bound += 0x1.01p-8 * (fabs(want) + bound);
            if (isnan(want) ? isnan(got) : (double)got == want || fabs((double)got - want) <= bound)
                continue;
            fail_msg("%s: m %lld n %lld k %lld: y[%lld,%lld] = %.9g, not %.9g", row->name,
                     (long long)s->m, (long long)s->n, (long long)s->k, (long long)m, (long long)n,
                     (double)got, want);
        }
    }
}

/* The thread sanitizer sees what threads share, and nothing in a product of one. */
static void check_sample(const s24i_linear_kernel *row, const sample *s, uint64_t seed)
{
    if (WATCHED && s->threads == 1) return;
    operands o = make_operands(s, &seed);
    const size_t count = (size_t)(o.ldy * o.y_rows - s->pad);
    const size_t bytes = count * s24_dtype_bytes(s->y_dtype);
    float *added = malloc(count * sizeof *added);
    char *first = malloc(bytes), *again = malloc(bytes);
    s24i_linear_job job = job_of(row, s, &o);
    quantise(s, &o);
    s24i_widen(added, s->in_place ? o.y.data : o.residual.data, s->y_dtype, (int64_t)count);
    memcpy(first, o.y.data, bytes);
    row->run(&job);
    check_output(row, s, &o, added);
    for (int64_t r = 0; r + 1 < o.y_rows; r++) { /* between the rows nothing changes */
        const size_t size = s24_dtype_bytes(s->y_dtype);
        const size_t at = (size_t)(r * o.ldy + o.ldy - s->pad) * size;
        assert_memory_equal((char *)o.y.data + at, first + at, (size_t)s->pad * size);
    }
    memcpy(again, o.y.data, bytes);
    memcpy(o.y.data, first, bytes);
    row->run(&job);
    assert_memory_equal(again, o.y.data, bytes);
    free(added), free(first), free(again);
    drop_operands(&o);
}

static sample random_sample(const s24i_linear_kernel *row, uint64_t *seed)
{
    sample s = {.m = 1 + (int64_t)(test_random(seed) % 80),
                .n = 1 + (int64_t)(test_random(seed) % 70)};
    s.k = 4 + 4 * (int64_t)(test_random(seed) % 65), s.pad = (int64_t)(test_random(seed) % 3);
    s.threads = 1 + (int)(test_random(seed) % 3), s.at_end = test_random(seed) % 4 != 0;
    s.x_columns = test_random(seed) % 4 == 0, s.y_columns = test_random(seed) % 4 == 0;
    s.epilogue = (int)(test_random(seed) % 2), s.in_place = (int)(test_random(seed) % 2);
    s.activation = (s24_activation)(test_random(seed) % 6);
    const int narrow = row->x_dtypes >> S24_BF16 & 1;
    s.x_dtype = narrow && test_random(seed) % 2 ? S24_BF16 : S24_F32;
    s.y_dtype = narrow && test_random(seed) % 2 ? S24_BF16 : S24_F32;
    return s;
}

static void random_samples(void **state)
{
    (void)state;
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = integer_row(i);
        uint64_t seed = 8;
        for (int round = 0; row && round < ROUNDS(400); round++) {
            const sample s = random_sample(row, &seed);
            check_sample(row, &s, seed);
        }
    }
}

#include "kernel_shapes.h"

static void shapes(void **state)
{
    (void)state;
    static const int64_t large[][3] = {
        {17, 33, 4092}, {1, 767, 4096}, {8, 767, 132}, {65, 767, 64}, {130, 420, 804}};
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = integer_row(i);
        if (row) check_shapes(row, 9, large, sizeof large / sizeof *large);
    }
}

/* Every number of tokens of a panel and past it; then a long k, rows that need several chunks,
   tokens that need several groups, and each way in which threads share them out. */
static void edges(void **state)
{
    (void)state;
    static const int64_t long_ones[][4] = {
        {29, 250, 4100, 2}, {150, 40, 4100, 1}, {33, 70, 4100, 3}, {9, 520, 36, 2},
        {30, 1030, 36, 3},  {100, 35, 1028, 2}, {97, 1500, 68, 2}, {200, 24, 40, 3},
        {260, 20, 128, 1},  {330, 20, 64, 2}};
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = integer_row(i);
        sample s = {.n = 33, .k = 68, .threads = 2, .at_end = 1};
        s.x_dtype = s.y_dtype = S24_F32;
        for (s.m = 1; row && s.m <= 75; s.m += WATCHED ? 7 : 1)
            check_sample(row, &s, (uint64_t)s.m);
        for (size_t j = 0; row && j < sizeof long_ones / sizeof *long_ones; j += WATCHED ? 3 : 1) {
            s.m = long_ones[j][0], s.n = long_ones[j][1], s.k = long_ones[j][2];
            s.threads = (int)long_ones[j][3], s.epilogue = j % 2 == 0;
            s.activation = S24_ACTIVATION_RELU;
            check_sample(row, &s, j);
        }
    }
}

/* Nothing, too little to be anything, the least that is something, NaN and Inf: each is its own
   token's matter. */
static void special_tokens(void **state)
{
    (void)state;
    enum { NOTHING = 4, ALONE = 5, VALUES = 9 };
    static const float values[VALUES] = {
        0, -0.0f, 1e-40f, 0x1.fffffep-120f, 0x1p-119f, NAN, INFINITY, -INFINITY, 3e38f};
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = integer_row(i);
        for (int64_t k = 64; row && k <= 136; k += 36) {
            uint64_t seed = 5;
            sample s = {.m = k == 100 ? 40 : 10, .n = 20, .k = k, .threads = 1, .at_end = 1};
            s.x_dtype = s.y_dtype = S24_F32;
            operands o = make_operands(&s, &seed);
            for (int64_t t = 0; t < VALUES; t++) {
                for (int64_t c = 0; c < k && t < ALONE; c++)
                    ((float *)o.x.data)[t * k + c] = c == k - 1 ? values[t] : 0;
                if (t >= ALONE) ((float *)o.x.data)[t * k + k - 3] = values[t];
            }
            s24i_linear_job job = job_of(row, &s, &o);
            quantise(&s, &o);
            row->run(&job);
            check_output(row, &s, &o, NULL);
            job.bias = o.bias.data;
            row->run(&job);
            for (int64_t n = 0; n < NOTHING * s.n; n++) /* exactly bias */
                assert_true(((float *)o.y.data)[n] == ((float *)o.bias.data)[n % s.n]);
            for (int64_t n = ALONE * s.n; n < (ALONE + 3) * s.n; n++)
                assert_true(isnan(((float *)o.y.data)[n]));
            drop_operands(&o);
        }
    }
}

static void largest_k(void **state)
{
    (void)state;
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = integer_row(i);
        uint64_t seed = 6;
        sample s = {.m = 2, .n = 2, .k = S24I_MAX_INTEGER_K, .threads = 1, .at_end = 1};
        s.x_dtype = s.y_dtype = S24_F32;
        if (!row) continue;
        operands o = make_operands(&s, &seed);
        for (int64_t j = 0; j < s.m * s.k; j++)
            ((float *)o.x.data)[j] = j < s.k ? 1 : -1;
        memset(o.values.data, 0x80, (size_t)(s.n * s.k / 2)); /* -128 */
        s24i_linear_job job = job_of(row, &s, &o);
        quantise(&s, &o);
        row->run(&job);
        check_output(row, &s, &o, NULL);
        drop_operands(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_samples), cmocka_unit_test(shapes),    cmocka_unit_test(edges),
        cmocka_unit_test(special_tokens), cmocka_unit_test(largest_k),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
