// SPDX-License-Identifier: Apache-2.0
/* The order of integers for GPUs: what each lane of a warp finds in its registers, by the tables of
   docs/format.md, for odd shapes of every width, group and sparsity. */
#include "core_support.h"

#include <stdlib.h>
#include <string.h>

#include "format/format.h"

typedef struct sample {
    s24_quantized matrix;
    uint8_t *values, *indices;
    float *scales;
    int64_t stride; /* stored columns of a row */
} sample;

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static sample sample_of(int sparse, int bits, int64_t group, int64_t n, int64_t k)
{
    static const uint8_t codes[] = {0x4, 0x8, 0x9, 0xc, 0xd, 0xe};
    const int64_t stride = sparse ? k / 2 : k, index_bytes = (k + 7) / 8;
    const int64_t scales = (k + group - 1) / group;
    sample s = {.stride = stride};
    uint32_t state = (uint32_t)(n * 31 + k + bits + sparse);
    s.values = malloc((size_t)(n * stride * bits / 8) + 1);
    for (int64_t i = 0; i < n * stride * bits / 8; i++)
        s.values[i] = (uint8_t)next(&state);
    s.indices = calloc((size_t)(n * index_bytes), 1);
    for (int64_t r = 0; r < n; r++)
        for (int64_t g = 0; g < k / 4; g++)
            s.indices[r * index_bytes + g / 2] |=
                (uint8_t)(codes[next(&state) % 6] << (g % 2 ? 4 : 0));
    s.scales = malloc((size_t)(n * scales) * sizeof(float));
    for (int64_t i = 0; i < n * scales; i++)
        s.scales[i] = (float)(i + 1);
    s.matrix = (s24_quantized){.rows = n,
                               .cols = k,
                               .bits = bits,
                               .group = group,
                               .values = s.values,
                               .indices = sparse ? s.indices : NULL,
                               .scales = s.scales};
    return s;
}

static void sample_free(sample *s)
{
    free(s->values);
    free(s->indices);
    free(s->scales);
}

static int value_of(const sample *s, int64_t row, int64_t column)
{
    if (row >= s->matrix.rows || column >= s->stride) return 0;
    const int64_t at = row * s->stride + column;
    if (s->matrix.bits == 8) return (int8_t)s->values[at];
    const int q = s->values[at / 2] >> (at % 2 ? 4 : 0) & 15;
    return q > 7 ? q - 16 : q;
}

static unsigned code_of(const sample *s, int64_t row, int64_t group)
{
    if (row >= s->matrix.rows || group >= s->matrix.cols / 4) return 0xe;
    return s->indices[row * ((s->matrix.cols + 7) / 8) + group / 2] >> (group % 2 ? 4 : 0) & 15u;
}

/* Register j of lane l in a step, its low and its high half. */
static void check_step(const sample *s, const uint8_t *strip, int64_t row, int64_t column, int step)
{
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 8; i++) {
            const int j = i / 2, high = i % 2, bits = s->matrix.bits;
            const int word = bits == 4 ? step : step * 2 + j / 2;
            const int bit = high * 16 + (bits == 4 ? j * 4 : j % 2 * 8);
            uint32_t bits_of_word;
            memcpy(&bits_of_word, strip + word / 4 * 512 + lane * 16 + word % 4 * 4, 4);
            const int found = (int)(bits_of_word >> bit << (32 - bits)) >> (32 - bits);
            assert_int_equal(found, value_of(s, row + lane / 4 + j % 2 * 8,
                                             column + step * 16 + lane % 4 * 2 + high + j / 2 * 8));
        }
}

/* The register of metadata for two steps: the first one's lanes are t = 0 and 1. */
static void check_codes(const sample *s, const uint8_t *codes, int64_t row, int64_t block)
{
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 16; i++) {
            const int pair = i / 8, high = i / 4 % 2, q = i % 4, t = lane % 4;
            uint32_t word;
            memcpy(&word, codes + lane * 8 + pair * 4, 4);
            assert_int_equal(word >> (high * 16 + q * 4) & 15u,
                             code_of(s, row + lane / 4 + high * 8,
                                     block * 32 + (pair * 2 + t / 2) * 8 + t % 2 * 4 + q));
        }
}

static void check_strip(const sample *s, const s24i_strips *o, const uint8_t *strip, int64_t row,
                        int64_t block)
{
    const s24_quantized *m = &s->matrix;
    for (int step = 0; step < o->stored / 16; step++)
        check_step(s, strip, row, block * o->stored, step);
    if (m->indices) check_codes(s, strip + o->codes_at, row, block);
    for (int i = 0; i < o->scales * 16; i++) {
        const int64_t r = row + i / 2 % 8 + i % 2 * 8;
        const int64_t scales = (m->cols + m->group - 1) / m->group;
        const int64_t scale = block * o->scales + i / 16;
        float found;
        memcpy(&found, strip + o->scales_at + i * 4, 4);
        const int here = r < m->rows && scale < scales;
        assert_true(found == (here ? s->scales[r * scales + scale] : 0.0f));
    }
}

static void check_order(int sparse, int bits, int64_t group, int64_t n, int64_t k)
{
    sample s = sample_of(sparse, bits, group, n, k);
    const s24i_strips o = s24i_strips_of(&s.matrix);
    uint8_t *packed = malloc(o.bytes + 1);
    packed[o.bytes] = 0x5a;
    for (int64_t i = 0; i < o.slabs; i++)
        s24i_strips_pack_slab(packed, &s.matrix, i);
    assert_int_equal(packed[o.bytes], 0x5a);
    const uint8_t *strip = packed;
    for (int64_t i = 0; i < o.slabs; i++)
        for (int64_t b = 0; b < o.blocks; b++)
            for (int64_t r = i * 64; r < i * 64 + 64; r += 16, strip += o.strip_bytes)
                check_strip(&s, &o, strip, r, b);
    for (int64_t r = 0; !o.group && r < o.slabs * 64; r++)
        assert_true(((const float *)strip)[r] == (r < n ? s.scales[r] : 0.0f));
    free(packed);
    sample_free(&s);
}

static void test_registers(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 4}, {64, 128}, {77, 196}, {130, 332}};
    for (int i = 0; i < 12; i++)
        for (int s = 0; s < 4; s++) {
            const int64_t k = shapes[s][1], groups[] = {64, 128, k};
            check_order(i % 2, i / 2 % 2 ? 8 : 4, groups[i / 4], shapes[s][0], k);
        }
}

/* What docs/format.md says of bytes: 3.25 bits a weight of 4 bits in groups of 128. */
static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        int sparse, bits;
        int64_t group;
        int strip;
    } cases[] = {{1, 4, 128, 832},  {1, 4, 64, 896},   {1, 4, 4096, 768},  {1, 8, 128, 1344},
                 {0, 4, 128, 1088}, {0, 8, 128, 2112}, {0, 8, 4096, 2048}, {0, 4, 64, 1152}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint8_t some = 0;
        const s24_quantized m = {.rows = 100,
                                 .cols = 4096,
                                 .bits = cases[i].bits,
                                 .group = cases[i].group,
                                 .indices = cases[i].sparse ? &some : NULL};
        const s24i_strips o = s24i_strips_of(&m);
        const size_t rows = o.group ? 0 : 128 * sizeof(float);
        assert_int_equal(o.strip_bytes, cases[i].strip);
        assert_int_equal(o.bytes, (size_t)cases[i].strip * 4 * 32 * 2 + rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_registers),
                                       cmocka_unit_test(test_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
