// SPDX-License-Identifier: Apache-2.0
/*
 * Matrices in a layout in a file (docs/format.md, version 3): what is read and refused, what a
 * writer makes of a canonical matrix and of a stream, where it lies.
 */
#include "nn_io.h"

enum { ROWS = 16, COLS = 32, BYTES = 1088 };

#define META(version, packed)                                                                      \
    "\"__metadata__\":{\"sparse24.version\":\"" version "\",\"sparse24.packed\":\"" packed "\"},"
#define STREAM(dtype, shape)                                                                       \
    "\"w.s24_stream\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[0,1088]}"
#define W            META("3", "{\\\"w\\\":[16,32,\\\"rows16-f32\\\"]}")
#define GOOD         "{" W STREAM("U8", "[1088]") "}"
#define SAYS(packed) "{" META("3", packed) STREAM("U8", "[1088]") "}"

/* Row r keeps columns 0 and 1, then 4 and 5, …: value i of it is r + i / 100. */
static void fill(uint8_t *stream)
{
    memset(stream, 0x44, 64);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < COLS / 2; i++) {
            const float value = (float)r + (float)i / 100;
            memcpy(stream + 64 + (i * 16 + r) * 4, &value, 4);
        }
}

static void check_matrix(io_env *env, const s24_tensor *w)
{
    s24_matrix *matrix;
    assert_non_null(w);
    assert_int_equal(w->packed, 1);
    assert_int_equal(w->dtype, S24_F32);
    assert_int_equal(w->rank, 2);
    assert_int_equal(w->shape[0], ROWS);
    assert_int_equal(w->shape[1], COLS);
    assert_ok(env, s24_tensor_matrix(&matrix, env->ctx, w));
    const float *values = s24_matrix_values(matrix);
    for (int i = 0; i < ROWS * COLS / 2; i++)
        assert_true(values[i] == (float)(i / 16) + (float)(i % 16) / 100);
    for (int i = 0; i < ROWS * COLS / 8; i++)
        assert_int_equal(s24_matrix_indices(matrix)[i], 0x44);
    s24_matrix_destroy(matrix);
}

static void reads_a_stream(void **state)
{
    io_env env;
    uint8_t data[BYTES + 1];
    s24_checkpoint *checkpoint;
    static const char *const headers[] = {
        GOOD,
        "{" W "\"w.s24_stream\":{\"dtype\":\"U8\",\"shape\":[1088],\"data_offsets\":[1,1089]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"};
    (void)state;
    for (int askew = 0; askew < 2; askew++) {
        io_begin(&env);
        fill(data + askew);
        io_write_tensors(io_path("good.safetensors"), headers[askew], data, BYTES + (size_t)askew);
        assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("good.safetensors")));
        const s24_tensor *w = s24_checkpoint_find(checkpoint, "w");
        assert_int_equal(s24_checkpoint_count(checkpoint), 1 + askew);
        check_matrix(&env, w);
        assert_string_equal(w->layout, "rows16-f32");
        assert_null(w->data);
        assert_null(w->values);
        assert_null(w->indices);
        assert_int_equal(w->bytes, BYTES);
        assert_int_equal((uintptr_t)w->stream % 64, 0); /* wherever the file has it */
        s24_checkpoint_close(checkpoint);
        io_end(&env);
    }
}

static const struct {
    const char *header;
    s24_status status;
    const char *says;
} refused[] = {
    {"{" META("2", "{\\\"w\\\":[16,32,\\\"rows16-f32\\\"]}") STREAM("U8", "[1088]") "}",
     S24_ERROR_FORMAT, "tensor \"w\" a shape of two integers, or these, bits and group"},
    {SAYS("{\\\"w\\\":[16,32,7]}"), S24_ERROR_FORMAT, "or a layout's name"},
    {SAYS("{\\\"w\\\":[16,32,\\\"rows16-f32\\\",1]}"), S24_ERROR_FORMAT, "or a layout's name"},
    {SAYS("{\\\"w\\\":[16,\\\"32\\\",\\\"rows16-f32\\\"]}"), S24_ERROR_FORMAT,
     "or a layout's name"},
    {SAYS("{\\\"w\\\":[16,32,8,64,\\\"rows16-f32\\\"]}"), S24_ERROR_FORMAT, "or a layout's name"},
    {SAYS("{\\\"w\\\":[16,32,\\\"rows17\\\"]}"), S24_ERROR_UNSUPPORTED,
     "tensor \"w\" is stored in the layout \"rows17\", which this build does not know"},
    {SAYS("{\\\"w\\\":[16,32,\\\"rows16-i8\\\"]}"), S24_ERROR_UNSUPPORTED,
     "in the layout \"rows16-i8\", which this build does not know"},
    {"{" META("10", "{\\\"w\\\":[16,32,\\\"rows16-i8\\\"]}") STREAM("U8", "[1088]") "}",
     S24_ERROR_FORMAT, "\"w.s24_stream\" has 1088 bytes, expected 384"},
    {SAYS("{\\\"w\\\":[16,30,\\\"rows16-f32\\\"]}"), S24_ERROR_FORMAT, "\"w\" has shape [16, 30]"},
    {SAYS("{\\\"w\\\":[4294967296,1073741824,\\\"rows16-f32\\\"]}"), S24_ERROR_FORMAT,
     "\"w\" has more bytes than memory"},
    {SAYS("{\\\"v\\\":[16,32,\\\"rows16-f32\\\"]}"), S24_ERROR_FORMAT,
     "lacks its part \"v.s24_stream\""},
    {SAYS("{\\\"w\\\":[17,32,\\\"rows16-f32\\\"]}"), S24_ERROR_FORMAT,
     "\"w.s24_stream\" has 1088 bytes, expected 2176"},
    {SAYS("{\\\"w\\\":[16,32]}"), S24_ERROR_FORMAT, "lacks its part \"w.s24_values\""},
    {SAYS("{}"), S24_ERROR_FORMAT, "\"w.s24_stream\" is part of a packed tensor that"},
    {"{" W STREAM("I8", "[1088]") "}", S24_ERROR_FORMAT, "\"w.s24_stream\" is I8, expected U8"},
    {"{" W STREAM("U8", "[16,68]") "}", S24_ERROR_FORMAT, "has rank 2, expected 1"},
    {"{" W STREAM("U8", "[1088]") ",\"w\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
     S24_ERROR_FORMAT, "\"w\" is there packed and dense"},
};

static void refuses_what_the_format_forbids(void **state)
{
    io_env env;
    uint8_t data[BYTES];
    (void)state;
    io_begin(&env);
    fill(data);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        io_write_tensors(io_path("bad.safetensors"), refused[i].header, data, BYTES);
        assert_refused(&env, io_path("bad.safetensors"), refused[i].status, refused[i].says,
                       "bad.safetensors: ");
    }
    data[4 * 5 + 2] = 0x74;
    io_write_tensors(io_path("code.safetensors"), GOOD, data, BYTES);
    assert_refused(&env, io_path("code.safetensors"), S24_ERROR_FORMAT,
                   "packed tensor \"w\": the code of row 5, column 20 is none of",
                   "code.safetensors: ");
    io_end(&env);
}

/* Before version 3 the name is like any other. */
static void the_suffix_is_free_before(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    (void)state;
    io_begin(&env);
    io_write_tensors(io_path("old.safetensors"), "{" META("1", "{}") STREAM("U8", "[1088]") "}",
                     NULL, BYTES);
    assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("old.safetensors")));
    assert_non_null(s24_checkpoint_find(checkpoint, "w.s24_stream"));
    s24_checkpoint_close(checkpoint);
    io_end(&env);
}

static const s24_tensor declared = {.name = "w",
                                    .dtype = S24_F32,
                                    .rank = 2,
                                    .shape = {ROWS, COLS},
                                    .packed = 1,
                                    .layout = "rows16-f32"};
static const s24_tensor beside = {.name = "a", .dtype = S24_F64, .rank = 1, .shape = {1}};

/* From the canonical form, or from a tensor that stands in a file. */
static s24_status write_w(io_env *env, const char *path, const s24_tensor *from)
{
    float values[ROWS * COLS / 2];
    uint8_t indices[ROWS * COLS / 8];
    const double one = 1;
    s24_writer *writer;
    memset(indices, 0x44, sizeof indices);
    for (int i = 0; i < ROWS * COLS / 2; i++)
        values[i] = (float)(i / 16) + (float)(i % 16) / 100;
    s24_status status = s24_writer_create(&writer, env->ctx, path, NULL);
    if (status == S24_OK) status = s24_writer_declare(writer, &beside);
    if (status == S24_OK) status = s24_writer_declare(writer, from ? from : &declared);
    if (status == S24_OK)
        status = from ? s24_writer_copy(writer, from)
                      : s24_writer_write_packed(writer, "w", values, indices);
    if (status == S24_OK) status = s24_writer_write(writer, "a", &one);
    if (status == S24_OK) status = s24_writer_commit(writer);
    s24_writer_destroy(writer);
    return status;
}

static void writes_and_copies_streams(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    uint8_t expected[BYTES];
    size_t first_bytes, second_bytes;
    (void)state;
    io_begin(&env);
    assert_ok(&env, write_w(&env, io_path("first.safetensors"), NULL));
    assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("first.safetensors")));
    const s24_tensor *w = s24_checkpoint_find(checkpoint, "w");
    check_matrix(&env, w);
    fill(expected);
    assert_memory_equal(w->stream, expected, BYTES);
    assert_int_equal(env.log_lines, 0); /* it is used where it lies */
    assert_string_equal(s24_checkpoint_metadata(checkpoint, "sparse24.version"), "3");
    assert_string_equal(s24_checkpoint_metadata(checkpoint, "sparse24.packed"),
                        "{\"w\":[16,32,\"rows16-f32\"]}");
    assert_ok(&env, write_w(&env, io_path("second.safetensors"), w));
    s24_checkpoint_close(checkpoint);
    char *first = io_read_file(io_path("first.safetensors"), &first_bytes);
    char *second = io_read_file(io_path("second.safetensors"), &second_bytes);
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(first, second, first_bytes);
    free(first);
    free(second);
    io_end(&env);
}

enum { K = 128 };
static const s24_tensor integers = {.name = "w",
                                    .dtype = S24_I8,
                                    .rank = 2,
                                    .shape = {ROWS, K},
                                    .packed = 1,
                                    .bits = 4,
                                    .group = 64,
                                    .layout = "rows64-i4-g64"};

static void writes_and_copies_integers(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    s24_matrix *matrix;
    s24_writer *writer;
    uint8_t values[ROWS * K / 4], indices[ROWS * K / 8], again[ROWS * K / 4];
    float scales[ROWS * K / 64];
    (void)state;
    io_begin(&env);
    memset(indices, 0xe9, sizeof indices);
    for (size_t i = 0; i < sizeof values; i++)
        values[i] = (uint8_t)(7 * i);
    for (int i = 0; i < ROWS * K / 64; i++)
        scales[i] = (float)i / 8;
    assert_ok(&env, s24_writer_create(&writer, env.ctx, io_path("i.safetensors"), NULL));
    assert_ok(&env, s24_writer_declare(writer, &integers));
    assert_int_equal(s24_writer_write_packed(writer, "w", values, indices), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "written without scales");
    scales[5] = -1;
    assert_int_equal(s24_writer_write_quantized(writer, "w", values, indices, scales),
                     S24_ERROR_FORMAT);
    scales[5] = 0.5f;
    assert_ok(&env, s24_writer_write_quantized(writer, "w", values, indices, scales));
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("i.safetensors")));
    assert_string_equal(s24_checkpoint_metadata(checkpoint, "sparse24.version"), "10");
    assert_string_equal(s24_checkpoint_metadata(checkpoint, "sparse24.packed"),
                        "{\"w\":[16,128,\"rows64-i4-g64\"]}");
    const s24_tensor *w = s24_checkpoint_find(checkpoint, "w");
    assert_int_equal(w->bits, 4);
    assert_int_equal(w->group, 64);
    assert_null(w->scales);
    assert_ok(&env, s24_tensor_matrix(&matrix, env.ctx, w));
    assert_ok(&env, s24_matrix_to_quantized(again, env.ctx, matrix));
    assert_memory_equal(again, values, sizeof values);
    assert_memory_equal(s24_matrix_indices(matrix), indices, sizeof indices);
    assert_memory_equal(s24_matrix_scales(matrix), scales, sizeof scales);
    s24_matrix_destroy(matrix);
    assert_ok(&env, s24_writer_create(&writer, env.ctx, io_path("j.safetensors"), NULL));
    assert_ok(&env, s24_writer_declare(writer, w));
    assert_ok(&env, s24_writer_copy(writer, w));
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    s24_checkpoint_close(checkpoint);
    io_end(&env);
}

static void a_writer_refuses(void **state)
{
    io_env env;
    float values[ROWS * COLS / 2] = {0};
    uint8_t indices[ROWS * COLS / 8], stream[BYTES];
    (void)state;
    io_begin(&env);
    s24_writer *writer = begin_writer(&env, io_path("new.safetensors"), 0, NULL);
    s24_tensor t = declared;
    t.layout = "rows17";
    assert_int_equal(s24_writer_declare(writer, &t), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "no layout \"rows17\"");
    t.layout = "rows16-f16";
    assert_int_equal(s24_writer_declare(writer, &t), S24_ERROR_DTYPE);
    assert_sentence(env.ctx, "the layout rows16-f16 is of f16");
    t = declared;
    t.dtype = S24_I8;
    t.bits = 8;
    t.group = COLS;
    assert_int_equal(s24_writer_declare(writer, &t), S24_ERROR_DTYPE);
    t = integers;
    t.group = 128;
    assert_int_equal(s24_writer_declare(writer, &t), S24_ERROR_DTYPE);
    assert_sentence(env.ctx, "has 4 bits and a scale for 128 columns; the layout rows64-i4-g64");
    t = declared;
    t.name = "w.s24_stream";
    assert_int_equal(s24_writer_declare(writer, &t), S24_ERROR_ARGUMENT);
    assert_ok(&env, s24_writer_declare(writer, &declared));
    assert_int_equal(s24_writer_declare(writer, &declared), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "declared twice");
    memset(indices, 0x44, sizeof indices);
    indices[9] = 0x54;
    assert_int_equal(s24_writer_write_packed(writer, "w", values, indices), S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "row 2, column 12");
    assert_int_equal(s24_writer_write(writer, "w", values), S24_ERROR_ARGUMENT);
    fill(stream);
    stream[3] = 0x41;
    t = declared;
    t.stream = stream;
    assert_int_equal(s24_writer_copy(writer, &t), S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "row 0, column 24");
    t.stream = NULL;
    assert_int_equal(s24_writer_copy(writer, &t), S24_ERROR_ARGUMENT);
    s24_writer_destroy(writer);
    assert_int_not_equal(access(io_path("new.safetensors"), F_OK), 0);
    io_end(&env);
}

static void every_allocation_may_fail(void **state)
{
    io_env env;
    s24_status status = S24_ERROR_MEMORY;
    (void)state;
    assert_int_equal(mkdir(io_path("memory"), 0700), 0);
    for (int64_t n = 1; status != S24_OK; n++) {
        s24_checkpoint *checkpoint = NULL;
        io_begin(&env);
        env.memory.fail_at = env.memory.calls + n;
        status = write_w(&env, io_path("memory/w.safetensors"), NULL);
        if (status == S24_OK) {
            status = s24_checkpoint_open(&checkpoint, env.ctx, io_path("memory/w.safetensors"));
            io_remove(io_path("memory/w.safetensors"));
        }
        if (status != S24_OK) {
            assert_int_equal(status, S24_ERROR_MEMORY);
            assert_sentence(env.ctx, "out of memory");
        }
        assert_int_equal(io_count_entries(io_path("memory")), 0);
        s24_checkpoint_close(checkpoint);
        io_end(&env);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_stream),
        cmocka_unit_test(refuses_what_the_format_forbids),
        cmocka_unit_test(the_suffix_is_free_before),
        cmocka_unit_test(writes_and_copies_streams),
        cmocka_unit_test(writes_and_copies_integers),
        cmocka_unit_test(a_writer_refuses),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("nn_io_layout", tests, io_folder_setup, io_folder_teardown);
}
