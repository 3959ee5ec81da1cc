// SPDX-License-Identifier: Apache-2.0
/* Every row of the selection that this CPU can run, against the reference, to the byte. */
#include "support.h"

#include <math.h>

#include "base/base.h"
#include "guarded.h"
#include "kernel/kernel.h"

static void fill_select(void *w, s24_dtype dtype, int64_t count, int kind, uint64_t *seed)
{
    static const float few[] = {0.0f, -0.0f, 1, -1, 2, -2, INFINITY, -INFINITY, NAN};
    const size_t bytes = s24_dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++) {
        float v = test_uniform(seed);
        if (kind > 0) v = few[test_random(seed) % (kind == 1 ? 6 : 9)];
        s24i_store_f32(w, dtype, i, v);
        uint32_t bits = (uint32_t)test_random(seed);
        if (kind == 3) memcpy((char *)w + (size_t)i * bytes, &bits, bytes); /* any there is */
    }
}

static void check_select(const s24i_select_kernel *row, int64_t k, int kind, int at_end,
                         uint64_t *seed)
{
    const s24i_select_kernel *ref = s24i_select_kernel_find(row->dtype, S24_CPU_BASELINE);
    const size_t bytes = s24_dtype_bytes(row->dtype), codes = (size_t)(k + 7) / 8;
    guarded w = guard((size_t)k * bytes, bytes, at_end), mask = guard((size_t)k, 1, at_end);
    guarded values = guard((size_t)k / 2 * bytes, bytes, at_end), index = guard(codes, 1, at_end);
    uint8_t *want_mask = malloc((size_t)k), *want_index = malloc(codes);
    char *want = malloc((size_t)k / 2 * bytes);
    fill_select(w.data, row->dtype, k, kind, seed);
    ref->mask(want_mask, w.data, k);
    row->mask(mask.data, w.data, k);
    assert_memory_equal(mask.data, want_mask, (size_t)k);
    int finite = ref->prune_pack(want, want_index, w.data, k);
    assert_int_equal(row->prune_pack(values.data, index.data, w.data, k), finite);
    assert_memory_equal(values.data, want, (size_t)k / 2 * bytes);
    assert_memory_equal(index.data, want_index, codes);
    free(want), free(want_mask), free(want_index);
    unguard(w), unguard(mask), unguard(values), unguard(index);
}

static void select_rows(void **state)
{
    (void)state;
    for (int i = 0; s24i_select_kernels[i]; i++) {
        const s24i_select_kernel *row = s24i_select_kernels[i];
        if (row->cpu & ~s24_cpu_detect()) continue;
        uint64_t seed = 9;
        for (int round = 0; round < ROUNDS(2000); round++) {
            int64_t k = 4 + 4 * (int64_t)(test_random(&seed) % 80);
            check_select(row, k, round % 4, round / 4 % 4 != 0, &seed);
        }
    }
}

/* Outputs that go around the caches, from an aligned place and from others. */
static void select_long_runs(void **state)
{
    (void)state;
    for (int i = 0; s24i_select_kernels[i]; i++) {
        const s24i_select_kernel *row = s24i_select_kernels[i];
        if ((row->cpu & ~s24_cpu_detect()) || row->rank == 0) continue;
        uint64_t seed = 10;
        int64_t k = ROUNDS(17 << 10) * 1024 / (int64_t)s24_dtype_bytes(row->dtype);
        for (int round = 0; round < 3; round++)
            check_select(row, k + (round == 1 ? 24 : round == 2 ? 4 : 0), 0, 1, &seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(select_rows),
        cmocka_unit_test(select_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
