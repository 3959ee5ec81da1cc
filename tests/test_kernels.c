// SPDX-License-Identifier: Apache-2.0
/*
 * Every row of linears that this CPU can run, against sums in double: odd shapes, both orientations,
 * every epilogue, special values, threads, and operands that end at an inaccessible page.
 */
#include "support.h"

#include <math.h>

#include "activation.h"
#include "base/base.h"
#include "guarded.h"
#include "kernel/kernel.h"

/* ---- one product ----------------------------------------------------------------------------- */

typedef struct sample {
    int64_t m, n, k;
    int x_columns, y_columns; /* tokens together instead of features */
    int64_t pad;              /* leading dimensions exceed the rows by this */
    s24_activation activation;
    s24_dtype x_dtype, y_dtype; /* none: f32 */
    int bias, gate, residual, threads, at_end, special;
    float alpha, beta;
    float magnitude; /* of x; 0: 1 */
} sample;

static float special(uint64_t r)
{
    static const float values[] = {NAN, INFINITY, -INFINITY, -0.0f};
    return values[r % 4];
}

/* Values [n, k/2] in the dtype, their exact f32, codes, and for integers scales. */
typedef struct weight {
    guarded values, codes, scales;
    float *exact;
    int64_t row_codes, group; /* group is k where a row has one scale or none */
} weight;

/* Integers with a scale a row or a group, or without scales: then they are ones. */
static void fill_integers(weight *w, const sample *s, int bits, uint64_t *seed)
{
    static const int64_t groups[] = {0, 64, 128};
    const int64_t group = groups[test_random(seed) % 3];
    w->group = group ? group : s->k;
    const int64_t stride = (s->k + w->group - 1) / w->group;
    float *scales = NULL;
    if (group || test_random(seed) % 2) {
        w->scales = guard((size_t)(s->n * stride) * 4, 4, s->at_end);
        scales = w->scales.data;
        for (int64_t i = 0; i < s->n * stride; i++)
            scales[i] = test_random(seed) % 16 ? 0.02f * (1 + test_uniform(seed)) : 0;
    }
    for (int64_t i = 0; i < s->n * (s->k / 2); i++) {
        const int q = (int)(test_random(seed) % (bits == 4 ? 16 : 256)) - (bits == 4 ? 8 : 128);
        const int64_t row = i / (s->k / 2), col = i % (s->k / 2) * 2;
        ((int8_t *)w->values.data)[i] = (int8_t)q;
        w->exact[i] = scales ? scales[row * stride + col / w->group] * (float)q : (float)q;
    }
}

static void fill_floats(weight *w, const sample *s, s24_dtype dtype, uint64_t *seed)
{
    for (int64_t i = 0; i < s->n * (s->k / 2); i++) {
        float v = test_uniform(seed);
        if (s->special && test_random(seed) % 64 == 0) v = special(test_random(seed));
        s24i_store_f32(w->values.data, dtype, i, v);
        w->exact[i] = s24i_load_f32(w->values.data, dtype, i);
    }
}

static weight make_weight(const sample *s, const s24i_linear_kernel *row, uint64_t *seed)
{
    static const uint8_t patterns[6] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};
    const int64_t count = s->n * (s->k / 2);
    const size_t size = s24_dtype_bytes(row->dtype);
    weight w = {.row_codes = (s->k + 7) / 8, .group = s->k};
    w.values = guard((size_t)count * size, size, s->at_end);
    w.codes = guard((size_t)(s->n * w.row_codes), 1, s->at_end);
    w.exact = malloc((size_t)count * sizeof(float));
    if (row->bits)
        fill_integers(&w, s, row->bits, seed);
    else
        fill_floats(&w, s, row->dtype, seed);
    memset(w.codes.data, 0, (size_t)(s->n * w.row_codes));
    for (int64_t r = 0; r < s->n; r++)
        for (int64_t g = 0; g < s->k / 4; g++)
            ((uint8_t *)w.codes.data)[r * w.row_codes + g / 2] |=
                (uint8_t)(patterns[test_random(seed) % 6] << (g % 2 * 4));
    return w;
}

/* A row that multiplies in bf16 rounds x to it first. */
static double as_multiplied(const s24i_linear_kernel *row, float x)
{
    return !row->bits && row->cpu & S24_CPU_AVX512BF16 ? s24i_bf16_to_f32(s24i_f32_to_bf16(x)) : x;
}

static void expect(const sample *s, const char *name, int64_t m, int64_t n, float got, double want,
                   double bound)
{
    int ok = isnan(want)   ? isnan(got)
             : isinf(want) ? (double)got == want
                           : fabs(got - want) <= bound;
    if (ok) return;
    fail_msg("%s: m %lld n %lld k %lld activation %d threads %d: y[%lld,%lld] = %g, not %.9g (%g)",
             name, (long long)s->m, (long long)s->n, (long long)s->k, (int)s->activation,
             s->threads, (long long)m, (long long)n, (double)got, want, bound);
}

/* y was `before` in f32. */
static void check_output(const s24i_linear_kernel *row, const sample *s, const weight *w,
                         const s24i_linear_job *job, const float *before)
{
    const double unit = 1.2e-7; /* of f32 and a little; narrow weights are widened exactly */
    const double last = job->y_dtype == S24_BF16 ? 0x1.01p-8 : 0; /* y's rounding */
    for (int64_t m = 0; m < s->m; m++) {
        for (int64_t n = 0; n < s->n; n++) {
            double sum = 0, size = 0, weights = 0, largest = 0;
            for (int64_t i = 0; i < s->k; i++) {
                double x = fabs(
                    s24i_load_f32(job->x, job->x_dtype, m * job->x_stride_m + i * job->x_stride_k));
                largest = isfinite(x) ? fmax(largest, x) : largest;
            }
            for (int64_t i = 0; i < s->k / 2; i++) {
                int code = ((uint8_t *)w->codes.data)[n * w->row_codes + i / 4] >> (i / 2 % 2 * 4);
                int64_t k = i / 2 * 4 + (i % 2 ? code >> 2 & 3 : code & 3);
                double x =
                    as_multiplied(row, s24i_load_f32(job->x, job->x_dtype,
                                                     m * job->x_stride_m + k * job->x_stride_k));
                sum += x * w->exact[n * (s->k / 2) + i];
                size += fabs(x * w->exact[n * (s->k / 2) + i]);
                weights += fabs(w->exact[n * (s->k / 2) + i]);
            }
            sum = s->alpha * sum + (job->bias ? job->bias[n] : 0);
            size = fabs(s->alpha) * size + (job->bias ? fabs(job->bias[n]) : 0);
            double want = activation_of(sum, s->activation);
            /* No activation is steeper than 1.13; the last term is the approximation's. */
            double bound = (unit * (s->k < 64 ? 8 : 0.5 * sqrt((double)s->k)) + 1e-7) * size * 1.2 +
                           3e-7 * (1 + fabs(sum));
            /* x in integers of 24 bits beside the largest of its segment */
            if (row->bits && row->cpu & S24_CPU_AVX512VNNI)
                bound += 0x1.4p-23 * fabs(s->alpha) * largest * weights;
            if (job->gate) {
                int64_t at = m * job->gate_stride_m + n * job->gate_stride_n;
                double gate = s24i_load_f32(job->gate, job->y_dtype, at);
                want *= gate, bound = bound * fabs(gate) + 1.2e-7 * fabs(want);
            }
            if (job->residual && s->beta != 0) {
                int64_t at = m * job->residual_stride_m + n * job->residual_stride_n;
                want += (double)s->beta * before[at];
                bound += 1.2e-7 * fabs((double)s->beta * before[at]);
            }
            /* A difference of infinities, or one times nothing, may go either way in a GELU. */
            if (s->special && s->activation != S24_ACTIVATION_NONE && !(fabs(sum) < 1e30)) continue;
            expect(s, row->name, m, n,
                   s24i_load_f32(job->y, job->y_dtype, m * job->y_stride_m + n * job->y_stride_n),
                   want, bound + last * (fabs(want) + bound));
        }
    }
}

/* Random elements of a dtype; special: NaN, Inf and -0 among them. */
static void fill_operand(void *to, s24_dtype dtype, size_t count, int special_too, uint64_t *seed)
{
    for (size_t i = 0; i < count; i++) {
        float v = test_uniform(seed);
        if (special_too && test_random(seed) % 97 == 0) v = special(test_random(seed));
        s24i_store_f32(to, dtype, (int64_t)i, v);
    }
}

/* All of a job but its memory. */
static s24i_linear_job job_of(const sample *s)
{
    const int64_t ldx = (s->x_columns ? s->m : s->k) + s->pad;
    const int64_t ldy = (s->y_columns ? s->m : s->n) + s->pad;
    const int64_t y_m = s->y_columns ? 1 : ldy, y_n = s->y_columns ? ldy : 1;
    return (s24i_linear_job){
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .x_dtype = s->x_dtype ? s->x_dtype : S24_F32,
        .x_stride_m = s->x_columns ? 1 : ldx,
        .x_stride_k = s->x_columns ? ldx : 1,
        .y_dtype = s->y_dtype ? s->y_dtype : S24_F32,
        .y_stride_m = y_m,
        .y_stride_n = y_n,
        .gate_stride_m = y_m,
        .gate_stride_n = y_n,
        .residual_stride_m = y_m,
        .residual_stride_n = y_n,
        .alpha = s->alpha,
        .beta = s->beta,
        .activation = s->activation,
        .parallel = {s->threads, run_in_turn, (void *)(uintptr_t)&s->threads},
    };
}

/* y in bf16 is y in f32 rounded, to the bit: also where it is subnormal or not finite. */
static void check_rounding(const s24i_linear_kernel *row, s24i_linear_job job, size_t count)
{
    const uint16_t *narrow = job.y;
    float *wide = calloc(count, sizeof *wide);
    job.y_dtype = S24_F32, job.y = wide;
    row->run(&job);
    for (int64_t m = 0; m < job.m; m++)
        for (int64_t n = 0; n < job.n; n++) {
            const int64_t at = m * job.y_stride_m + n * job.y_stride_n;
            const uint16_t want = s24i_f32_to_bf16(wide[at]);
            if (narrow[at] != want)
                fail_msg("%s: m %lld n %lld: y[%lld,%lld] = %04x, not %04x (%g)", row->name,
                         (long long)job.m, (long long)job.n, (long long)m, (long long)n, narrow[at],
                         want, (double)wide[at]);
        }
    free(wide);
}

static void check_sample(const s24i_linear_kernel *row, const sample *s, uint64_t seed)
{
    s24i_linear_job job = job_of(s);
    const s24_dtype x_dtype = job.x_dtype, y_dtype = job.y_dtype;
    const size_t x_size = s24_dtype_bytes(x_dtype), y_size = s24_dtype_bytes(y_dtype);
    const int64_t ldx = (s->x_columns ? s->m : s->k) + s->pad;
    const int64_t ldy = (s->y_columns ? s->m : s->n) + s->pad;
    const int64_t x_rows = s->x_columns ? s->k : s->m, y_rows = s->y_columns ? s->n : s->m;
    /* The last row ends where its elements end, not at the leading dimension. */
    const size_t x_count = (size_t)(ldx * (x_rows - 1) + (s->x_columns ? s->m : s->k));
    const size_t y_count = (size_t)(ldy * (y_rows - 1) + (s->y_columns ? s->m : s->n));
    guarded x = guard(x_count * x_size, x_size, s->at_end);
    guarded y = guard(y_count * y_size, y_size, s->at_end);
    guarded gate = guard(y_count * y_size, y_size, s->at_end);
    guarded bias = guard((size_t)s->n * 4, 4, s->at_end);
    weight canonical = make_weight(s, row, &seed);
    const s24i_weight from = {.n = s->n,
                              .k = s->k,
                              .dtype = row->dtype,
                              .values = canonical.values.data,
                              .indices = canonical.codes.data,
                              .scales = canonical.scales.data,
                              .group = canonical.group,
                              .parallel = job.parallel};
    guarded w = guard(row->weight_bytes(&from), 64, s->at_end);
    size_t work_bytes = row->work_bytes(s->m, s->n, s->k, s->threads);
    guarded work = guard(work_bytes ? work_bytes : 64, 64, s->at_end);
    float *before = malloc(y_count * 4);
    char *first = malloc(y_count * y_size), *again = malloc(y_count * y_size);
    fill_operand(x.data, x_dtype, x_count, s->special, &seed);
    for (size_t i = 0; i < x_count && s->magnitude > 0; i++)
        s24i_store_f32(x.data, x_dtype, (int64_t)i,
                       s24i_load_f32(x.data, x_dtype, (int64_t)i) * s->magnitude);
    fill_operand(y.data, y_dtype, y_count, 0, &seed);
    fill_operand(gate.data, y_dtype, y_count, 0, &seed);
    fill_operand(bias.data, S24_F32, (size_t)s->n, 0, &seed);
    memcpy(first, y.data, y_count * y_size);
    s24i_widen(before, y.data, y_dtype, (int64_t)y_count);
    memset(work.data, 0xff, work_bytes); /* NaN: whoever reads what nobody wrote shows it */
    row->weight_pack(w.data, &from);
    job.group = from.group;
    job.x = x.data, job.w = w.data, job.y = y.data, job.work = work.data;
    job.bias = s->bias ? bias.data : NULL;
    job.gate = s->gate ? gate.data : NULL;
    job.residual = s->residual ? y.data : NULL;
    row->run(&job);
    check_output(row, s, &canonical, &job, before);
    for (int64_t r = 0; r + 1 < y_rows; r++) { /* between the rows nothing changes */
        size_t at = (size_t)(r * ldy + ldy - s->pad) * y_size;
        assert_memory_equal((char *)y.data + at, first + at, (size_t)s->pad * y_size);
    }
    /* The same once more: same bits. */
    memcpy(again, y.data, y_count * y_size);
    memcpy(y.data, first, y_count * y_size);
    row->run(&job);
    assert_memory_equal(again, y.data, y_count * y_size);
    if (y_dtype == S24_BF16 && !s->gate && !s->residual) check_rounding(row, job, y_count);
    free(first), free(again), free(before), free(canonical.exact);
    unguard(canonical.values), unguard(canonical.codes), unguard(gate);
    if (canonical.scales.base) unguard(canonical.scales);
    unguard(x), unguard(y), unguard(bias), unguard(w), unguard(work);
}

static const s24i_linear_kernel *linear_row(int i)
{
    const s24i_linear_kernel *row = s24i_linear_kernels[i];
    if (row && row->activations) return NULL; /* rounds x its own way; has tests of its own */
#ifdef S24_EMULATED /* the portable rows are tested where that takes less time */
    if (row && row->rank == 0) return NULL;
#endif
    if (row && (row->cpu & ~s24_cpu_detect())) {
        print_message("skipped: %s is not for this CPU\n", row->name);
        return NULL;
    }
    return row;
}

static sample random_sample(const s24i_linear_kernel *row, uint64_t *seed)
{
    sample s = {.alpha = 1, .beta = 1};
    s.m = 1 + (int64_t)(test_random(seed) % 130);
    s.n = 1 + (int64_t)(test_random(seed) % 70);
    s.k = 4 + 4 * (int64_t)(test_random(seed) % 65);
    if (test_random(seed) % 3 == 0) s.m = 1 + (int64_t)(test_random(seed) % 17);
    s.x_columns = test_random(seed) % 4 == 0;
    s.y_columns = test_random(seed) % 4 == 0;
    s.pad = (int64_t)(test_random(seed) % 4);
    s.activation = (s24_activation)(test_random(seed) % 5);
    s.bias = test_random(seed) % 2, s.residual = test_random(seed) % 2;
    s.gate = test_random(seed) % 3 == 0;
    s.threads = 1 + (int)(test_random(seed) % 3), s.at_end = test_random(seed) % 4 != 0;
    if (test_random(seed) % 4 == 0) s.alpha = -0.5f, s.beta = 2;
    if (test_random(seed) % 8 == 0) s.beta = 0;
    if (row->x_dtypes >> S24_BF16 & 1) {
        s.x_dtype = test_random(seed) % 2 ? S24_BF16 : S24_F32;
        s.y_dtype = test_random(seed) % 2 ? S24_BF16 : S24_F32;
    }
    return s;
}

static void linear_random(void **state)
{
    (void)state;
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = linear_row(i);
        uint64_t seed = 24;
        for (int round = 0; row && round < ROUNDS(600); round++) {
            sample s = random_sample(row, &seed);
            check_sample(row, &s, seed);
        }
    }
}

static void linear_special(void **state)
{
    (void)state;
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = linear_row(i);
        uint64_t seed = 42;
        for (int round = 0; row && round < ROUNDS(150); round++) {
            sample s = random_sample(row, &seed);
            s.special = 1;
            check_sample(row, &s, seed);
        }
    }
}

/* Every number of tokens up to past the widest panel, and a long k of many passes. */
static void linear_edges(void **state)
{
    (void)state;
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = linear_row(i);
        for (int64_t m = 1; row && m <= 300; m += m < 40 ? 1 : 13) {
            sample s = {.m = m, .n = 33, .k = 68, .alpha = 1, .threads = 2, .at_end = 1, .bias = 1};
            check_sample(row, &s, (uint64_t)m);
            if (m % 13 != 1 || !(row->x_dtypes >> S24_BF16 & 1)) continue;
            s.n = 70, s.x_dtype = s.y_dtype = S24_BF16;
            check_sample(row, &s, (uint64_t)m);
            s.alpha = 0x1p-131f, s.bias = 0; /* subnormal outputs */
            check_sample(row, &s, (uint64_t)m);
        }
        sample longs = {.m = 97, .n = 50, .k = 1540, .alpha = 1, .threads = 3, .at_end = 1};
        if (row) check_sample(row, &longs, 7);
        sample wide = {.m = 20, .n = 1300, .k = 68, .alpha = 1, .threads = 1, .at_end = 1};
        if (row) check_sample(row, &wide, 8);
        /* Several panels that visit the row blocks together, more than once; the reference has none. */
        sample visits = {.m = 200, .n = 420, .k = 388, .alpha = 1, .threads = 1, .at_end = 1};
        const int has = row && row->cpu && (row->dtype == S24_F32 || row->dtype == S24_BF16);
        if (has) check_sample(row, &visits, 9);
        visits.n = 800, visits.k = 100, visits.threads = 2;
        if (has) check_sample(row, &visits, 10);
    }
}

/* Rows of more than 2^31 bytes: only their sizes, which must be counted in more than 32 bits. */
static void long_rows(void **state)
{
    (void)state;
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = s24i_linear_kernels[i];
        const int64_t k = (int64_t)3 << 32;
        const s24i_weight from = {.n = 17, .k = k, .dtype = row->dtype, .group = k};
        const uint64_t bits = row->bits == 4 ? 4 : 8 * s24_dtype_bytes(row->dtype);
        const uint64_t least = 17 * ((uint64_t)k / 2 * bits / 8 + (uint64_t)k / 8);
        assert_in_range(row->weight_bytes(&from), least, 8 * least);
        const uint64_t x = row->work_bytes(5, 17, k, 2);
        assert_true(x == 0 || (x >= 5 * (uint64_t)k && x < 5 * (uint64_t)k * 256));
    }
}

/* Whoever brings work memory for many tokens may come with fewer. */
static void work_never_shrinks(void **state)
{
    (void)state;
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = s24i_linear_kernels[i];
        for (int threads = 1; threads <= 6; threads++) {
            size_t before = 0;
            for (int64_t m = 1; m <= 400; m++) {
                const size_t bytes = row->work_bytes(m, 384, 384, threads);
                if (bytes < before)
                    fail_msg("%s, %d threads: %zu bytes for %d tokens, %zu for one less", row->name,
                             threads, bytes, (int)m, before);
                before = bytes;
            }
        }
    }
}

/* docs/numerics.md has a bound for every row. */
static void every_row_has_a_bound(void **state)
{
    (void)state;
    static char text[1 << 16];
    FILE *file = fopen(S24_SOURCE "/docs/numerics.md", "r");
    assert_non_null(file);
    const size_t bytes = fread(text, 1, sizeof text - 1, file);
    assert_in_range(bytes, 1, sizeof text - 2);
    fclose(file);
    const char *table = strstr(text, "| rows | x | sums |");
    assert_non_null(table);
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        char name[64];
        snprintf(name, sizeof name, "`%s`", s24i_linear_kernels[i]->name);
        if (!strstr(table, name)) fail_msg("docs/numerics.md has no bound for %s", name);
    }
}

/* Tokens of which no value is near 1. */
static void linear_magnitudes(void **state)
{
    (void)state;
    static const float powers[] = {0x1p-110f, 0x1p-20f, 0x1p30f, 0x1p110f};
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = linear_row(i);
        uint64_t seed = 11;
        for (int round = 0; row && round < ROUNDS(80); round++) {
            sample s = random_sample(row, &seed);
            s.magnitude = powers[round % 4], s.alpha = 1 / s.magnitude;
            if (round % 2) s.m = 1 + s.m % 8;
            check_sample(row, &s, seed);
        }
    }
}

static void rows_are_found(void **state)
{
    (void)state;
    const s24i_linear_kernel *row =
        s24i_linear_kernel_find(S24_F32, 0, S24_DTYPE_NONE, S24_CPU_BASELINE);
    assert_non_null(row);
    assert_int_equal(row->cpu & ~(uint32_t)S24_CPU_BASELINE, 0);
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *a = s24i_linear_kernels[i];
        assert_true(a->x_dtypes >> S24_F32 & 1); /* every row takes f32 */
        for (int j = 0; j < i; j++)
            assert_string_not_equal(a->name, s24i_linear_kernels[j]->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found),     cmocka_unit_test(linear_edges),
        cmocka_unit_test(linear_random),      cmocka_unit_test(linear_special),
        cmocka_unit_test(linear_magnitudes),  cmocka_unit_test(long_rows),
        cmocka_unit_test(work_never_shrinks), cmocka_unit_test(every_row_has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
