// SPDX-License-Identifier: Apache-2.0
/*
 * Quantised matrices in a file (docs/format.md, version 2): the golden file is read to the numbers
 * that were written by hand and written again; what a reader must refuse, and a writer.
 */
#include "nn_io.h"

#include "safetensors_mini.h"

static void golden(char *path, size_t bytes, const char *name)
{
    snprintf(path, bytes, "%s/tests/golden/%s", S24_SOURCE, name);
}

static void golden_file_decodes(void **state)
{
    io_env env;
    char path[4096];
    s24_checkpoint *in;
    (void)state;
    io_begin(&env);
    golden(path, sizeof path, "quantized.safetensors");
    assert_ok(&env, s24_checkpoint_open(&in, env.ctx, path));
    golden(path, sizeof path, "quantized-dense.safetensors");
    mini_file dense = mini_open(path);
    assert_int_equal(s24_checkpoint_count(in), 6);
    for (int64_t t = 0; t < 6; t++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(in, t);
        const int64_t n = tensor->shape[0], k = tensor->shape[1];
        s24_matrix *matrix;
        assert_int_equal(tensor->packed, 1);
        assert_int_equal(tensor->dtype, S24_I8);
        assert_int_equal(tensor->bits, strstr(tensor->name, "int8") ? 8 : 4);
        assert_int_equal(tensor->bytes, n * (tensor->bits * k / 16 + (k + 7) / 8) +
                                            4 * n * ((k + tensor->group - 1) / tensor->group));
        assert_ok(&env, s24_tensor_matrix(&matrix, env.ctx, tensor));
        assert_int_equal(s24_matrix_bits(matrix), tensor->bits);
        assert_int_equal(s24_matrix_group(matrix), tensor->group);
        mini_tensor want = mini_get(&dense, tensor->name);
        float *numbers = malloc(want.bytes);
        const s24_dense view = {numbers, S24_F32, n, k, 0};
        assert_ok(&env, s24_matrix_to_dense(env.ctx, &view, matrix));
        assert_memory_equal(numbers, want.data, want.bytes);
        free(numbers);
        s24_matrix_destroy(matrix);
    }
    mini_close(&dense);
    s24_checkpoint_close(in);
    io_end(&env);
}

static void golden_file_there_and_back(void **state)
{
    io_env env;
    char path[4096];
    s24_checkpoint *in;
    (void)state;
    io_begin(&env);
    golden(path, sizeof path, "quantized.safetensors");
    assert_ok(&env, s24_checkpoint_open(&in, env.ctx, path));
    s24_writer *writer = begin_writer(&env, io_path("again.safetensors"), 1, NULL);
    for (int64_t t = 0; t < s24_checkpoint_count(in); t++)
        assert_ok(&env, s24_writer_declare(writer, s24_checkpoint_tensor(in, t)));
    for (int64_t t = 0; t < s24_checkpoint_count(in); t++)
        assert_ok(&env, s24_writer_copy(writer, s24_checkpoint_tensor(in, t)));
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    s24_checkpoint *other;
    assert_ok(&env, s24_checkpoint_open(&other, env.ctx, io_path("again.safetensors")));
    assert_string_equal(s24_checkpoint_metadata(other, "sparse24.version"), "2");
    for (int64_t t = 0; t < s24_checkpoint_count(in); t++) {
        const s24_tensor *a = s24_checkpoint_tensor(in, t), *b = s24_checkpoint_tensor(other, t);
        assert_string_equal(a->name, b->name);
        const size_t cells = (size_t)(a->shape[0] * a->shape[1]);
        const size_t groups = (size_t)((a->shape[1] + a->group - 1) / a->group);
        assert_memory_equal(a->values, b->values, cells * (size_t)a->bits / 16);
        assert_memory_equal(a->scales, b->scales, 4 * (size_t)a->shape[0] * groups);
    }
    s24_checkpoint_close(other);
    s24_checkpoint_close(in);
    io_end(&env);
}

#define META(version, packed)                                                                      \
    "\"__metadata__\":{\"sparse24.version\":\"" version "\",\"sparse24.packed\":\"" packed "\"},"
#define PART(name, dtype, shape, offsets)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define INDICES PART("w.s24_indices", "U8", "[1,1]", "[6,7]")
#define SCALES  PART("w.s24_scales", "F32", "[1,1]", "[0,4]")
#define FOUR    PART("w.s24_values", "U8", "[1,2]", "[4,6]")

static const uint8_t good_data[7] = {0, 0, 0, 0x3f, 0x7f, 0x82, 0x4d};

/* The example of the format, at a place that does not align the scales too. */
static void documented_example(void **state)
{
    static const char *const headers[] = {
        "{" META("2", "{\\\"w\\\":[1,8,4,8]}") FOUR "," INDICES "," SCALES "}",
        "{" META("2", "{\\\"w\\\":[1,8,4,64]}") FOUR "," INDICES "," SCALES "} "};
    const float want[8] = {0, -0.5f, 0, 3.5f, 1, -4, 0, 0};
    io_env env;
    (void)state;
    io_begin(&env);
    for (int i = 0; i < 2; i++) {
        s24_checkpoint *in;
        s24_matrix *matrix;
        float numbers[8];
        const s24_dense view = {numbers, S24_F32, 1, 8, 0};
        io_write_tensors(io_path("example.safetensors"), headers[i], good_data, 7);
        assert_ok(&env, s24_checkpoint_open(&in, env.ctx, io_path("example.safetensors")));
        assert_int_equal((uintptr_t)s24_checkpoint_find(in, "w")->scales % 4, 0);
        assert_ok(&env, s24_tensor_matrix(&matrix, env.ctx, s24_checkpoint_find(in, "w")));
        assert_ok(&env, s24_matrix_to_dense(env.ctx, &view, matrix));
        assert_memory_equal(numbers, want, sizeof want);
        s24_matrix_destroy(matrix);
        s24_checkpoint_close(in);
    }
    io_end(&env);
}

static const struct {
    const char *header, *says;
} refused[] = {
    {"{" META("11", "{}") FOUR "," INDICES "," SCALES "}",
     "\"sparse24.version\" is \"11\", this build reads \"1\" to \"10\""},
    {"{" META("1", "{\\\"w\\\":[1,8,4,8]}") FOUR "," INDICES "," SCALES "}",
     "a shape of two integers"},
    {"{" META("2", "{\\\"w\\\":[1,8,4]}") FOUR "," INDICES "," SCALES "}",
     "a shape of two integers, or these, bits and group"},
    {"{" META("2", "{\\\"w\\\":[1,8,4,8.0]}") FOUR "," INDICES "," SCALES "}",
     "a shape of two integers, or these, bits and group"},
    {"{" META("2", "{\\\"w\\\":[1,8,3,8]}") FOUR "," INDICES "," SCALES "}",
     "\"w\" has 3 bits, expected 8 or 4"},
    {"{" META("2", "{\\\"w\\\":[1,8,4,32]}") FOUR "," INDICES "," SCALES "}",
     "\"w\" has a scale for 32 columns, expected 64, 128 or all 8"},
    {"{" META("2", "{\\\"w\\\":[1,6,4,6]}") FOUR "," INDICES "," SCALES "}",
     "\"w\" has shape [1, 6]"},
    {"{" META("2", "{\\\"w\\\":[1,8,8,8]}") FOUR "," INDICES "," SCALES "}",
     "\"w.s24_values\" is U8, expected I8"},
    {"{" META("2", "{\\\"w\\\":[1,16,4,16]}") FOUR "," INDICES "," SCALES "}",
     "\"w.s24_values\" has shape [1, 2], expected [1, 4]"},
    {"{" META("2", "{\\\"w\\\":[1,8,4,8]}") FOUR "," INDICES
                                                 "," PART("w.scales", "F32", "[1,1]", "[0,4]") "}",
     "lacks its part \"w.s24_scales\""},
    {"{" META("2", "{\\\"w\\\":[1,8,4,8]}") FOUR
     "," INDICES "," PART("w.s24_scales", "I32", "[1,1]", "[0,4]") "}",
     "\"w.s24_scales\" is I32, expected F32"},
    {"{" META("2", "{\\\"w\\\":[1,8,4,8]}") FOUR
     "," INDICES "," PART("w.s24_scales", "F32", "[1]", "[0,4]") "}",
     "\"w.s24_scales\" has rank 1, expected 2"},
    {"{" META("2", "{}") FOUR "," INDICES "," SCALES "}", "is part of a packed tensor that"},
    {"{" META("2", "{}")
         PART("z.s24_scales", "F32", "[1,1]", "[0,4]") "," PART("y", "U8", "[3]", "[4,7]") "}",
     "\"z.s24_scales\" is part of a packed tensor that"},
};

static void reader_refuses(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        io_write_tensors(io_path("bad.safetensors"), refused[i].header, good_data, 7);
        assert_refused(&env, io_path("bad.safetensors"), S24_ERROR_FORMAT, refused[i].says,
                       "bad.safetensors: ");
    }
    static const uint8_t scales[][4] = {{0, 0, 0x80, 0x7f}, {0, 0, 0xc0, 0x7f}, {0, 0, 0x80, 0xbf}};
    for (int i = 0; i < 3; i++) { /* Inf, NaN, -1 */
        uint8_t data[7];
        memcpy(data, good_data, 7);
        memcpy(data, scales[i], 4);
        io_write_tensors(io_path("bad.safetensors"),
                         "{" META("2", "{\\\"w\\\":[1,8,4,8]}") FOUR "," INDICES "," SCALES "}",
                         data, 7);
        assert_refused(&env, io_path("bad.safetensors"), S24_ERROR_FORMAT,
                       "the scale at row 0, column 0 is", "bad.safetensors: ");
    }
    /* Without quantised matrices the name means nothing. */
    s24_checkpoint *plain;
    io_write_tensors(io_path("plain.safetensors"),
                     "{" PART("z.s24_scales", "F32", "[1,1]", "[0,4]") "}", good_data, 4);
    assert_ok(&env, s24_checkpoint_open(&plain, env.ctx, io_path("plain.safetensors")));
    assert_int_equal(s24_checkpoint_count(plain), 1);
    s24_checkpoint_close(plain);
    io_end(&env);
}

static void refuse_declare(io_env *env, s24_tensor tensor, s24_status status, const char *says)
{
    s24_writer *writer = begin_writer(env, io_path("misuse.safetensors"), 0, NULL);
    assert_int_equal(s24_writer_declare(writer, &tensor), status);
    assert_sentence(env->ctx, says);
    s24_writer_destroy(writer);
}

static void writer_refuses(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    const s24_tensor good = {.name = "w",
                             .dtype = S24_I8,
                             .rank = 2,
                             .shape = {1, 8},
                             .packed = 1,
                             .bits = 4,
                             .group = 8};
    s24_tensor bad = good;
    bad.bits = 5;
    refuse_declare(&env, bad, S24_ERROR_DTYPE, "is i8 of 5 bits, expected i8 of 8 or 4");
    bad = good, bad.dtype = S24_F32;
    refuse_declare(&env, bad, S24_ERROR_DTYPE, "is f32 of 4 bits");
    bad = good, bad.group = 4;
    refuse_declare(&env, bad, S24_ERROR_SHAPE, "a scale for 4 columns, expected 64, 128 or all 8");
    bad = good, bad.name = "x.s24_scales";
    refuse_declare(&env, bad, S24_ERROR_ARGUMENT, "may not be named");
    s24_writer *writer = begin_writer(&env, io_path("misuse.safetensors"), 0, NULL);
    s24_tensor plain = good;
    plain.name = "plain", plain.bits = 0;
    assert_ok(&env, s24_writer_declare(writer, &good));
    assert_ok(&env, s24_writer_declare(writer, &plain));
    const uint8_t values[4] = {0x7f, 0x82, 1, 2}, codes[1] = {0x4d}, wrong[1] = {0x40};
    const float scale = 0.5f, less = -1;
    assert_int_equal(s24_writer_write_packed(writer, "w", values, codes), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx,
                    "\"w\" was declared as a quantised one, but is written without scales");
    assert_int_equal(s24_writer_write_quantized(writer, "plain", values, codes, &scale),
                     S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "\"plain\" was not declared as a quantised one");
    assert_int_equal(s24_writer_write_quantized(writer, "w", values, codes, NULL),
                     S24_ERROR_ARGUMENT);
    assert_int_equal(s24_writer_write_quantized(writer, "w", values, wrong, &scale),
                     S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "row 0, column 0 is no legal code");
    assert_int_equal(s24_writer_write_quantized(writer, "w", values, codes, &less),
                     S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "the scale at row 0, column 0 is -1");
    assert_ok(&env, s24_writer_write_quantized(writer, "w", values, codes, &scale));
    assert_int_equal(s24_writer_write_quantized(writer, "w", values, codes, &scale),
                     S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "written twice");
    s24_writer_destroy(writer);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_file_decodes), cmocka_unit_test(golden_file_there_and_back),
        cmocka_unit_test(documented_example),  cmocka_unit_test(reader_refuses),
        cmocka_unit_test(writer_refuses),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
