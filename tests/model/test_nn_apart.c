// SPDX-License-Identifier: Apache-2.0
/* Which row of DeBERTa's table stands for a distance: those of transformers' f32, where distances
   that are powers of two make quotients that are whole numbers up to a rounding. */
#include "support.h"

#include "model/apart.h"

typedef struct row {
    int64_t near, farthest, by, bucket;
} row;

static void test_buckets(void **state)
{
    static const row rows[] = {
        {32, 129, 1, 1},        {32, 129, 16, 16},      {32, 129, 17, 17},
        {32, 129, 32, 21},      {32, 129, 64, 26},      {32, 129, 128, 31},
        {128, 513, 64, 64},     {128, 513, 128, 85},    {128, 513, 256, 106},
        {128, 513, 512, 127},   {512, 4096, 257, 257},  {512, 4096, 1024, 384},
        {512, 4096, 1643, 427}, {512, 4096, 4095, 511}, {256, 512, 256, 192},
        {256, 512, 511, 255}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        const s24i_apart apart = {.near = r->near, .farthest = r->farthest, .span = r->near};
        assert_int_equal(s24i_apart_row(&apart, r->by), r->near + r->bucket);
        assert_int_equal(s24i_apart_row(&apart, -r->by), r->near - r->bucket);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_buckets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
