// SPDX-License-Identifier: Apache-2.0
/*
 * Where a bit lives: the codes of docs/format.md, packing and unpacking rows of every dtype, the
 * golden files, the independent decoder, and the CUTLASS order of metadata.
 */
#include "support.h"

#include <math.h>

#include "core_support.h"
#include "format/format.h"
#include "safetensors_mini.h"

static void test_codes(void **state)
{
    (void)state;
    static const unsigned table[16] = {0xe, 0x8, 0x9, 0x4, 0xe, 0x8, 0x9, 0,
                                       0xe, 0xc, 0xd, 0,   0xe, 0,   0,   0};
    int legal = 0;
    for (unsigned mask = 0; mask < 16; mask++) {
        if (__builtin_popcount(mask) > 2) continue;
        unsigned code = s24i_code_of_mask(mask);
        assert_int_equal(code, table[mask]);
        assert_int_equal(mask & ~(1u << (code & 3) | 1u << (code >> 2)), 0);
    }
    for (unsigned code = 0; code < 16; code++)
        legal += s24i_code_is_legal(code);
    assert_int_equal(legal, 6);
}

static void test_codes_are_legal(void **state)
{
    (void)state;
    s24i_find find;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t indices[4] = {0xe4, 0x0e, 0xe4, 0x0e}; /* two rows of k = 12 */
        indices[2] = (uint8_t)byte;
        int low = s24i_code_is_legal(byte & 15), high = s24i_code_is_legal(byte >> 4);
        assert_int_equal(s24i_codes_are_legal(indices, 2, 12, &find), low && high);
        if (!low || !high) {
            assert_int_equal(find.row, 1);
            assert_int_equal(find.col, low ? 4 : 0);
        }
        indices[2] = 0xe4;
        indices[3] = (uint8_t)byte; /* its high half is unused */
        assert_int_equal(s24i_codes_are_legal(indices, 2, 12, &find), low && byte < 16);
        if (low && byte >= 16) assert_int_equal(find.col, 12);
    }
}

/* In rows that are checked eight bytes at a time, their ends and what follows them. */
static void bad_codes_are_found_anywhere(void **state)
{
    (void)state;
    enum { K = 204, STRIDE = (K + 7) / 8 };
    uint8_t indices[2 * STRIDE];
    s24i_find find;
    memset(indices, 0x44, sizeof indices);
    indices[STRIDE - 1] = indices[2 * STRIDE - 1] = 0x04; /* 51 groups a row */
    assert_true(s24i_codes_are_legal(indices, 2, K, &find));
    for (int64_t g = 0; g < K / 4; g++)
        for (unsigned code = 0; code < 16; code++) {
            uint8_t *byte = indices + STRIDE + g / 2;
            const uint8_t before = *byte;
            *byte = (uint8_t)(g % 2 ? (before & 0xf) | code << 4 : (before & 0xf0) | code);
            assert_int_equal(s24i_codes_are_legal(indices, 2, K, &find), (code & 3) < code >> 2);
            if ((code & 3) >= code >> 2) assert_true(find.row == 1 && find.col == 4 * g);
            *byte = before;
        }
}

/* The example of docs/format.md, byte for byte. */
static void test_documented_example(void **state)
{
    (void)state;
    const int8_t row[12] = {0, 5, 0, 7, 1, 2, 0, 0, 0, -3, 0, 0};
    const int8_t values[6] = {5, 7, 1, 2, -3, 0};
    const uint8_t indices[2] = {0x4d, 0x09};
    int8_t got_values[6], back[12];
    uint8_t got_indices[2] = {0xff, 0xff};
    s24i_pack_row(got_values, S24_I8, got_indices, row, S24_I8, 12);
    assert_memory_equal(got_values, values, 6);
    assert_memory_equal(got_indices, indices, 2);
    s24i_unpack_row(back, S24_I8, values, S24_I8, indices, 12);
    assert_memory_equal(back, row, 12);
}

static void test_pack_unpack_rows(void **state)
{
    (void)state;
    static const int64_t widths[] = {4, 8, 12, 20, 252, 256, 260, 1028};
    uint64_t seed = 1;
    for (int d = 0; d < TWO_FOUR_DTYPES; d++) {
        for (int w = 0; w < 8; w++) {
            s24_dtype dtype = two_four_dtypes[d];
            int64_t k = widths[w];
            size_t bytes = s24_dtype_bytes(dtype), stride = (size_t)s24i_index_stride(k);
            char *row = random_dense(dtype, 1, k, k, 1, &seed);
            char *values = malloc((size_t)k / 2 * bytes + 1), *back = malloc((size_t)k * bytes);
            uint8_t *indices = malloc(stride + 1);
            s24i_find find;
            values[(size_t)k / 2 * bytes] = 0x5a;
            indices[stride] = 0x5a;
            s24i_pack_row(values, dtype, indices, row, dtype, k);
            assert_int_equal(values[(size_t)k / 2 * bytes], 0x5a);
            assert_int_equal(indices[stride], 0x5a);
            assert_true(s24i_codes_are_legal(indices, 1, k, &find));
            s24i_unpack_row(back, dtype, values, dtype, indices, k);
            for (int64_t i = 0; i < k; i++) {
                const char *a = row + (size_t)i * bytes, *b = back + (size_t)i * bytes;
                /* Bit for bit, but a −0 that fell into a place that is not stored. */
                if (memcmp(a, b, bytes) != 0)
                    assert_true(s24i_load_f32(a, dtype, 0) == 0 && s24i_load_f32(b, dtype, 0) == 0);
            }
            free(row);
            free(values);
            free(back);
            free(indices);
        }
    }
}

/* The choice is made on the source; what underflows in the target keeps its place. */
static void test_pack_converts(void **state)
{
    (void)state;
    const float row[4] = {0, 1e-30f, 0, -2.5f};
    uint16_t values[2];
    uint8_t indices;
    float back[4];
    s24i_pack_row(values, S24_F16, &indices, row, S24_F32, 4);
    assert_int_equal(indices, 0xd);
    assert_int_equal(values[0], 0);
    assert_int_equal(values[1], s24i_f32_to_f16(-2.5f));
    s24i_unpack_row(back, S24_F32, values, S24_F16, &indices, 4);
    assert_true(back[0] == 0 && back[1] == 0 && back[2] == 0 && back[3] == -2.5f);
}

static void test_pack_by_mask(void **state)
{
    (void)state;
    const float row[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const uint8_t keep[12] = {0, 9, 0, 0, 1, 0, 0, 255, 0, 0, 0, 0};
    const float expected[6] = {2, 0, 5, 8, 0, 0}; /* not selected: +0, whatever the source holds */
    float values[6];
    uint8_t indices[2];
    s24i_pack_row_mask(values, S24_F32, indices, row, S24_F32, keep, 12);
    assert_memory_equal(values, expected, sizeof values);
    assert_int_equal(indices[0], 0xc9);
    assert_int_equal(indices[1], 0x0e);
}

static void test_find(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int d = 0; d < TWO_FOUR_DTYPES; d++) {
        s24_dtype dtype = two_four_dtypes[d];
        size_t bytes = s24_dtype_bytes(dtype);
        char *data = random_dense(dtype, 5, 12, 17, 1, &seed);
        s24_dense view = {data, dtype, 5, 12, 17};
        s24i_find find;
        assert_false(s24i_find_bad_group(&find, &view));
        assert_false(s24i_find_nonfinite(&find, &view));
        for (int i = 0; i < 3; i++)
            s24i_store_f32(data + (3 * 17 + 4) * bytes, dtype, i, 1);
        assert_true(s24i_find_bad_group(&find, &view));
        assert_int_equal(find.row, 3);
        assert_int_equal(find.col, 4);
        assert_in_range(find.nonzeros, 3, 4);
        if (dtype == S24_I8) {
            memset(data, 0x80, 1);
            assert_false(s24i_find_nonfinite(&find, &view));
        } else {
            /* e4m3 has no Inf; its NaN is what Inf becomes. */
            s24i_store_f32(data + (4 * 17 + 11) * bytes, dtype, 0, -INFINITY);
            assert_true(s24i_find_nonfinite(&find, &view));
            assert_int_equal(find.row, 4);
            assert_int_equal(find.col, 11);
        }
        free(data);
    }
    /* NaN is not zero, −0 is. */
    float group[4] = {-0.0f, NAN, 1, 2};
    s24_dense view = {group, S24_F32, 1, 4, 0};
    s24i_find find;
    assert_true(s24i_find_bad_group(&find, &view));
    assert_int_equal(find.nonzeros, 3);
}

/* ---- golden files and the independent decoder
   ------------------------------------------------------ */

static mini_file open_golden(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/golden/%s", S24_SOURCE, name);
    return mini_open(path);
}

static const char *const golden_names[] = {"f32",     "f16",     "bf16",       "i8",
                                           "f8_e4m3", "f8_e5m2", "minus_zero", NULL};
static const char *const transposed_names[] = {"f32",     "f16",   "bf16", "i8",   "f8_e4m3",
                                               "f8_e5m2", "plain", "int4", "int8", NULL};
enum { GOLDENS = sizeof golden_names / sizeof *golden_names - 1 };

static void test_golden_files(void **state)
{
    (void)state;
    mini_file packed = open_golden("packed.safetensors"), dense = open_golden("dense.safetensors");
    for (int i = 0; i < GOLDENS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.s24_values", golden_names[i]);
        mini_tensor values = mini_get(&packed, name);
        snprintf(name, sizeof name, "%s.s24_indices", golden_names[i]);
        mini_tensor indices = mini_get(&packed, name);
        mini_tensor decoded = mini_get(&dense, golden_names[i]);
        snprintf(name, sizeof name, "%s.source", golden_names[i]);
        mini_tensor source = mini_has(&dense, name) ? mini_get(&dense, name) : decoded;
        int64_t n = decoded.shape[0], k = decoded.shape[1];
        size_t bytes = s24_dtype_bytes(decoded.dtype);
        assert_int_equal(values.dtype, decoded.dtype);
        char *row_values = malloc((size_t)k / 2 * bytes), *row = malloc((size_t)k * bytes);
        uint8_t *row_indices = malloc((size_t)s24i_index_stride(k));
        for (int64_t r = 0; r < n; r++) {
            const char *v = (const char *)values.data + (size_t)(r * k / 2) * bytes;
            const uint8_t *c = (const uint8_t *)indices.data + r * s24i_index_stride(k);
            s24i_pack_row(row_values, decoded.dtype, row_indices,
                          (const char *)source.data + (size_t)(r * k) * bytes, decoded.dtype, k);
            assert_memory_equal(row_values, v, (size_t)k / 2 * bytes);
            assert_memory_equal(row_indices, c, (size_t)s24i_index_stride(k));
            s24i_unpack_row(row, decoded.dtype, v, decoded.dtype, c, k);
            assert_memory_equal(row, (const char *)decoded.data + (size_t)(r * k) * bytes,
                                (size_t)k * bytes);
        }
        free(row_values);
        free(row_indices);
        free(row);
    }
    mini_close(&packed);
    mini_close(&dense);
}

/* Runs tools/decode_s24.py; its exit status. */
static int decode(const char *in, const char *out)
{
    char command[9000];
    snprintf(command, sizeof command, "python3 '%s/tools/decode_s24.py' '%s' '%s' 2>/dev/null",
             S24_SOURCE, in, out);
    int status = system(command);
    return status == -1 ? -1 : status >> 8;
}

static int have_python(void)
{
    return system("python3 -c '' >/dev/null 2>&1") == 0;
}

static void temporary(char *path, size_t bytes, const char *name)
{
    snprintf(path, bytes, "/tmp/s24-test-format-%ld-%s", (long)getpid(), name);
}

/* A golden file decodes to the tensors that were written next to it; names end with NULL. */
static void decode_golden(const char *packed, const char *dense, const char *const *names,
                          const char *out)
{
    char golden[4096];
    snprintf(golden, sizeof golden, "%s/tests/golden/%s", S24_SOURCE, packed);
    assert_int_equal(decode(golden, out), 0);
    mini_file decoded = mini_open(out), expected = open_golden(dense);
    for (; *names; names++) {
        const mini_tensor a = mini_get(&decoded, *names), b = mini_get(&expected, *names);
        assert_int_equal(a.dtype, b.dtype);
        assert_int_equal(a.shape[0], b.shape[0]);
        assert_int_equal(a.shape[1], b.shape[1]);
        assert_int_equal(a.bytes, b.bytes);
        assert_memory_equal(a.data, b.data, a.bytes);
    }
    mini_close(&decoded);
    mini_close(&expected);
}

/* What the C packer writes, the decoder reads back; the golden files too. */
static void test_independent_decoder(void **state)
{
    (void)state;
    char in[128], out[128];
    if (!have_python()) SKIP_WITHOUT("python3");
    temporary(in, sizeof in, "packed");
    temporary(out, sizeof out, "dense");
    static const char metadata[] = "{\"sparse24.version\":\"1\",\"sparse24.packed\":"
                                   "\"{\\\"w\\\":[7,20]}\"}";
    enum { N = 7, K = 20 };
    uint64_t seed = 11;
    for (int d = 0; d < TWO_FOUR_DTYPES; d++) {
        s24_dtype dtype = two_four_dtypes[d];
        size_t bytes = s24_dtype_bytes(dtype);
        char *dense = random_dense(dtype, N, K, K, 1, &seed), values[N * K / 2 * 4];
        uint8_t indices[N * 3];
        char expected[N * K * 4];
        for (int64_t r = 0; r < N; r++) {
            char *v = values + (size_t)(r * K / 2) * bytes;
            s24i_pack_row(v, dtype, indices + r * 3, dense + (size_t)(r * K) * bytes, dtype, K);
            s24i_unpack_row(expected + (size_t)(r * K) * bytes, dtype, v, dtype, indices + r * 3,
                            K);
        }
        mini_tensor tensors[2] = {
            {"w.s24_values", dtype, 2, {N, K / 2}, values, N * K / 2 * bytes},
            {"w.s24_indices", S24_U8, 2, {N, 3}, indices, sizeof indices},
        };
        mini_write(in, tensors, 2, metadata);
        assert_int_equal(decode(in, out), 0);
        mini_file file = mini_open(out);
        mini_tensor w = mini_get(&file, "w");
        assert_int_equal(w.dtype, dtype);
        assert_int_equal(w.bytes, N * K * bytes);
        assert_memory_equal(w.data, expected, w.bytes);
        mini_close(&file);
        indices[4] = 0x5e; /* an illegal code in row 1, group 3 */
        mini_write(in, tensors, 2, metadata);
        assert_int_equal(decode(in, out), 1);
        free(dense);
    }
    decode_golden("packed.safetensors", "dense.safetensors", golden_names, out);
    decode_golden("transposed.safetensors", "transposed-dense.safetensors", transposed_names, out);
    unlink(in);
    unlink(out);
}

/* ---- CUTLASS
   --------------------------------------------------------------------------------------- */

static void test_cutlass_order(void **state)
{
    (void)state;
    /* The first words of one slab as (row, word), as published: 32 rows of 2-byte words. */
    static const int first2[16][2] = {{0, 0},  {8, 0},  {0, 1},  {8, 1}, {16, 0}, {24, 0},
                                      {16, 1}, {24, 1}, {1, 0},  {9, 0}, {1, 1},  {9, 1},
                                      {17, 0}, {25, 0}, {17, 1}, {25, 1}};
    static const int first4[8][2] = {{0, 0}, {8, 0}, {0, 1}, {8, 1},
                                     {1, 0}, {9, 0}, {1, 1}, {9, 1}};
    for (int i = 0; i < 16; i++)
        assert_int_equal(s24i_cutlass_offset(first2[i][0], first2[i][1], 32, 2), i);
    for (int i = 0; i < 8; i++)
        assert_int_equal(s24i_cutlass_offset(first4[i][0], first4[i][1], 16, 4), i);
    /* Every word has a place of its own. */
    for (size_t bytes = 2; bytes <= 4; bytes += 2) {
        uint8_t taken[96 * 6] = {0};
        for (int64_t r = 0; r < 96; r++) {
            for (int64_t w = 0; w < 6; w++) {
                int64_t at = s24i_cutlass_offset(r, w, 96, bytes);
                assert_in_range(at, 0, 96 * 6 - 1);
                assert_int_equal(taken[at]++, 0);
            }
        }
    }
    assert_int_equal(s24i_cutlass_word_bytes(S24_F32), 0);
}

static void test_cutlass_selectors(void **state)
{
    (void)state;
    /* One row of i8, k = 128, in a slab of 16; group 0's code takes all sixteen values. */
    uint32_t meta[16 * 4];
    for (unsigned code = 0; code < 16; code++) {
        for (int both = 0; both < 2; both++) {
            int8_t values[64] = {3, (int8_t)(both ? 5 : 0)}, dense[128], expected[4] = {0};
            uint8_t indices[16];
            int64_t col = -1;
            memset(meta, 0xee, sizeof meta);
            meta[0] = 0xeeeeeee0u | code;
            unsigned first = code & 3, second = code >> 2;
            int legal = !both || first != second;
            assert_int_equal(
                s24i_cutlass_unpack_row(values, indices, S24_I8, meta, 0, 16, 128, &col), legal);
            if (!legal) {
                assert_int_equal(col, 0);
                continue;
            }
            s24i_find find;
            assert_true(s24i_codes_are_legal(indices, 1, 128, &find));
            s24i_unpack_row(dense, S24_I8, values, S24_I8, indices, 128);
            expected[first] = 3;
            if (both) expected[second] = 5;
            assert_memory_equal(dense, expected, 4);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_codes_are_legal),
        cmocka_unit_test(bad_codes_are_found_anywhere),
        cmocka_unit_test(test_documented_example),
        cmocka_unit_test(test_pack_unpack_rows),
        cmocka_unit_test(test_pack_converts),
        cmocka_unit_test(test_pack_by_mask),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_golden_files),
        cmocka_unit_test(test_independent_decoder),
        cmocka_unit_test(test_cutlass_order),
        cmocka_unit_test(test_cutlass_selectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
