// SPDX-License-Identifier: Apache-2.0
/*
 * Every row of linears that this CPU can run, against sums in double: odd shapes, both
 * orientations, every epilogue, special values, threads, and operands that end at an inaccessible
 * page.
 */
#include "support.h"

#include "kernel_sample.h"
#include "kernel_shapes.h"

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
            s.special = 1 + round % 2;
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
        const int brief = row && row->rank == 0; /* the reference has no panels, and is slow */
        for (int64_t m = 1; row && m <= (brief ? 30 : 300); m += m < 40 && !WATCHED ? 1 : 13) {
            sample s = {.m = m, .n = 33, .k = 68, .alpha = 1, .threads = 2, .at_end = 1, .bias = 1};
            check_sample(row, &s, (uint64_t)m);
            if (m % 13 != 1 || !(row->x_dtypes >> S24_BF16 & 1)) continue;
            s.n = 70, s.x_dtype = s.y_dtype = S24_BF16;
            check_sample(row, &s, (uint64_t)m);
            s.alpha = 0x1p-131f, s.bias = 0; /* subnormal outputs */
            check_sample(row, &s, (uint64_t)m);
        }
        /* Few tokens and so many row blocks that some are taken together and some are left. */
        for (int64_t m = 1; row && m <= 17; m++) {
            sample s = {.m = m, .n = 125, .k = 68, .alpha = 1, .threads = 1, .at_end = 1};
            check_sample(row, &s, (uint64_t)m);
        }
        sample longs = {.m = 97, .n = 50, .k = 1540, .alpha = 1, .threads = 3, .at_end = 1};
        if (row && !brief) check_sample(row, &longs, 7);
        for (longs.m = 1; row && !brief && longs.m <= 22; longs.m += 3)
            check_sample(row, &longs, 11);
        /* More threads than get memory of their own for few tokens. */
        sample crowd = {.n = 150, .k = 4096, .x_columns = 1, .alpha = 1, .threads = 8, .at_end = 1};
        for (crowd.m = 1; row && !brief && crowd.m <= 16; crowd.m += 12)
            check_sample(row, &crowd, 12);
        /* Weights from afar, of rows that take row blocks together only then. */
        sample far = {.n = 1013, .k = 4160, .alpha = 1, .threads = 1, .at_end = 1};
        for (far.m = 13; row && row->core && row->dtype == S24_F32 && far.m <= 28; far.m += 3)
            check_sample(row, &far, 13);
        /* A last k block with each number of groups, of one pass and of several. */
        sample tails = {.n = 33, .alpha = 1, .threads = 1, .at_end = 1, .bias = 1};
        for (tails.k = 4; row && !brief && tails.k <= 416; tails.k += tails.k == 64 ? 292 : 4)
            for (tails.m = 50; tails.m <= 116; tails.m += 33)
                check_sample(row, &tails, (uint64_t)tails.k);
        sample wide = {.m = 20, .n = 1300, .k = 68, .alpha = 1, .threads = 1, .at_end = 1};
        if (row && !brief) check_sample(row, &wide, 8);
        /* Several panels that visit the row blocks together, more than once. */
        sample visits = {.m = 200, .n = 420, .k = 388, .alpha = 1, .threads = 1, .at_end = 1};
        const int has = row && row->cpu && (row->dtype == S24_F32 || row->dtype == S24_BF16);
        if (has) check_sample(row, &visits, 9);
        visits.n = 800, visits.k = 100, visits.threads = 2;
        if (has) check_sample(row, &visits, 10);
    }
}

static void linear_shapes(void **state)
{
    (void)state;
    static const int64_t large[][3] = {{2, 33, 4096},  {1, 767, 4096}, {8, 767, 4092},
                                       {17, 64, 4096}, {65, 31, 4100}, {63, 767, 132}};
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = linear_row(i);
        const int portable = row && row->rank == 0;
        if (row) check_shapes(row, 5, large, portable ? 0 : sizeof large / sizeof *large);
    }
}

/* Memory that is only where it is touched; NULL where the system gives none. */
static float *reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Rows of x and y, gate and residual more than 2^31 bytes apart: the bits of rows that follow each
   other. */
static void linear_far_rows(void **state)
{
    (void)state;
    enum { M = 9, N = 35, K = 68 };
    const int64_t far = (INT64_C(1) << 29) + 24;
    const size_t bytes = (size_t)(far * (M - 1) + K) * sizeof(float);
    float *far_x = reserve(bytes), *far_y = reserve(bytes), y[M * N];
    if (!far_x || !far_y) SKIP_WITHOUT("memory for rows that are far apart");
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = s24i_linear_kernels[i];
        uint64_t seed = 3;
        if (row->cpu & ~s24_cpu_detect()) continue;
        const sample s = {.m = M,
                          .n = N,
                          .k = K,
                          .alpha = 1,
                          .beta = 1,
                          .threads = 2,
                          .bias = 1,
                          .gate = 1,
                          .residual = RESIDUAL_APART};
        s24i_linear_job job = job_of(&s);
        operands o = make_operands(&s, &job, &seed);
        place_operands(&job, row, &s, &o);
        place_weight(&job, row, &s, &o, &seed);
        row->run(&job);
        memcpy(y, job.y, sizeof y);
        for (int m = 0; m < M; m++) {
            memcpy(far_x + m * far, (const float *)job.x + m * K, K * sizeof(float));
            memcpy(far_y + m * far, (const float *)job.gate + m * N, N * sizeof(float));
        }
        job.x = far_x, job.x_stride_m = far;
        job.y = far_y, job.gate = far_y, job.y_stride_m = job.gate_stride_m = far;
        row->run(&job);
        for (int m = 0; m < M; m++)
            assert_memory_equal(far_y + m * far, y + m * N, N * sizeof(float));
        drop_operands(&o);
    }
    munmap(far_x, bytes), munmap(far_y, bytes);
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

/* Tokens of which no value is near 1; those of the first are subnormal. */
static void linear_magnitudes(void **state)
{
    (void)state;
    static const float powers[] = {0x1p-130f, 0x1p-110f, 0x1p-20f, 0x1p30f, 0x1p110f};
    enum { POWERS = sizeof powers / sizeof *powers };
    for (int i = 0; s24i_linear_kernels[i]; i++) {
        const s24i_linear_kernel *row = linear_row(i);
        uint64_t seed = 11;
        for (int round = 0; row && round < ROUNDS(100); round++) {
            sample s = random_sample(row, &seed);
            s.magnitude = powers[round % POWERS];
            s.alpha = s.magnitude < 0x1p-120f ? 0x1p120f : 1 / s.magnitude;
            if (round / POWERS % 2) s.m = 1 + s.m % 8;
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

/* The row that is taken of a's kind fits, and none that fits ranks higher. */
static void check_choice(const s24i_linear_kernel *a, const char *level, uint32_t cpu)
{
    const s24i_linear_kernel *found =
        s24i_linear_kernel_find(a->dtype, a->bits, a->activations, cpu);
    assert_non_null(found); /* the scalar one at least */
    assert_int_equal((found->cpu | found->core) & ~cpu, 0);
    assert_true(found->dtype == a->dtype && found->bits == a->bits &&
                found->activations == a->activations);
    if (!((a->cpu | a->core) & ~cpu) && found->rank < a->rank)
        fail_msg("%s: %s is taken, not %s", level, found->name, a->name);
}

/* Whatever a context masks, on every kind of core. */
static void masks_are_kept(void **state)
{
    (void)state;
    static const char *const levels[] = {"baseline",   "avx2", "avxvnni", "avx512", "avx512vnni",
                                         "avx512bf16", "amx",  "neon",    "dotprod"};
    for (size_t level = 0; level < sizeof levels / sizeof *levels; level++) {
        const uint32_t cpu = s24_cpu_parse(levels[level]);
        for (int i = 0; s24i_linear_kernels[i]; i++) {
            check_choice(s24i_linear_kernels[i], levels[level], cpu);
            check_choice(s24i_linear_kernels[i], levels[level], cpu | S24_CPU_PORT5);
            check_choice(s24i_linear_kernels[i], levels[level], cpu | S24_CPU_HALVES);
        }
        for (int i = 0; s24i_select_kernels[i]; i++) {
            const s24i_select_kernel *a = s24i_select_kernels[i];
            const s24i_select_kernel *found = s24i_select_kernel_find(a->dtype, cpu);
            assert_non_null(found);
            assert_int_equal(found->cpu & ~cpu, 0);
            assert_true(found->dtype == a->dtype && (a->cpu & ~cpu || found->rank >= a->rank));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found),
        cmocka_unit_test(masks_are_kept),
        cmocka_unit_test(linear_edges),
        cmocka_unit_test(linear_random),
        cmocka_unit_test(linear_special),
        cmocka_unit_test(linear_shapes),
        cmocka_unit_test(linear_magnitudes),
        cmocka_unit_test(linear_far_rows),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(work_never_shrinks),
        cmocka_unit_test(every_row_has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
