// SPDX-License-Identifier: Apache-2.0
/*
 * Dense matrices of integers in a file (docs/format.md, version 5): what is read, what a reader
 * must refuse, what a writer takes and writes, the same bytes again.
 */
#include "support.h"

#include "nn_io.h"
#include "sparse24/nn.h"

#define META(version, packed)                                                                      \
    "{\"__metadata__\":{\"sparse24.version\":\"" version "\",\"sparse24.packed\":\"" packed "\"},"
#define VALUES "\"w.s24_values\":{\"dtype\":\"I8\",\"shape\":[2,12],\"data_offsets\":[8,32]}"
#define SCALES "\"w.s24_scales\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}"
#define SAYS(version, description)                                                                 \
    META(version, "{\\\"w\\\":" description "}") SCALES "," VALUES "}"

/* Scales 0.5 and 2, then the integers. */
static const uint8_t data[32] = {0, 0,  0, 0x3f, 0,   0, 0, 0x40, 0, 1, 0xff, 5,  7, 1, 2,    0xfd,
                                 4, 11, 3, 127,  129, 6, 8, 9,    0, 0, 13,   14, 0, 0, 0xf0, 16};

static void is_read(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    s24_matrix *matrix;
    float dense[24];
    (void)state;
    io_begin(&env);
    for (int marked = 0; marked < 2; marked++) {
        io_write_tensors(io_path("w.safetensors"),
                         marked ? SAYS("5", "[2,12,8,12,\\\"dense\\\",\\\"transposed\\\"]")
                                : SAYS("5", "[2,12,8,12,\\\"dense\\\"]"),
                         data, sizeof data);
        assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("w.safetensors")));
        assert_int_equal(s24_checkpoint_count(checkpoint), 1);
        const s24_tensor *t = s24_checkpoint_find(checkpoint, "w");
        assert_int_equal(t->packed, S24_PACKED_DENSE);
        assert_int_equal(t->dtype, S24_I8);
        assert_int_equal(t->bits, 8);
        assert_int_equal(t->group, 12);
        assert_int_equal(t->transposed, marked);
        assert_int_equal(t->shape[0], 2);
        assert_int_equal(t->shape[1], 12);
        assert_int_equal(t->bytes, 32);
        assert_null(t->indices);
        const s24_dense to = {dense, S24_F32, 2, 12, 0};
        assert_ok(&env, s24_tensor_to_dense(env.ctx, &to, t));
        for (int i = 0; i < 24; i++)
            assert_true(dense[i] == (i < 12 ? 0.5f : 2.0f) * (float)(int8_t)data[8 + i]);
        assert_int_equal(s24_tensor_matrix(&matrix, env.ctx, t), S24_ERROR_ARGUMENT);
        assert_non_null(strstr(s24_ctx_error(env.ctx), "the tensor is dense, of integers"));
        s24_checkpoint_close(checkpoint);
    }
    io_end(&env);
}

#define FORMS "or these and bits and group, with or without \"dense\", or a layout's name"

static const struct {
    const char *header;
    s24_status status;
    const char *says;
} refused[] = {
    {SAYS("4", "[2,12,8,12,\\\"dense\\\"]"), S24_ERROR_FORMAT, "or a layout's name"},
    {SAYS("5", "[2,12,\\\"dense\\\"]"), S24_ERROR_UNSUPPORTED, "the layout \"dense\""},
    {SAYS("5", "[2,12,8,12,\\\"Dense\\\"]"), S24_ERROR_FORMAT, FORMS},
    {SAYS("5", "[2,12,8,12,true]"), S24_ERROR_FORMAT, FORMS},
    {SAYS("5", "[2,12,\\\"dense\\\",8,12]"), S24_ERROR_FORMAT, FORMS},
    {SAYS("5", "[2,12,8,12,\\\"transposed\\\",\\\"dense\\\"]"), S24_ERROR_FORMAT, FORMS},
    {SAYS("5", "[2,12,8,12]"), S24_ERROR_FORMAT, "has shape [2, 12], expected [2, 6]"},
    {SAYS("5", "[2,12,4,12,\\\"dense\\\"]"), S24_ERROR_FORMAT,
     "\"w.s24_values\" is I8, expected U8"},
    {SAYS("5", "[2,12,2,12,\\\"dense\\\"]"), S24_ERROR_FORMAT, "has 2 bits, expected 8 or 4"},
    {SAYS("5", "[2,12,8,32,\\\"dense\\\"]"), S24_ERROR_FORMAT, "a scale for 32 columns"},
    {SAYS("5", "[4,6,8,6,\\\"dense\\\"]"), S24_ERROR_FORMAT, "columns a multiple of 4"},
    {META("5", "{\\\"w\\\":[2,12,8,12,\\\"dense\\\"]}") VALUES ",\"x\":{\"dtype\":\"F32\",\"shape\""
                                                               ":[2],\"data_offsets\":[0,8]}}",
     S24_ERROR_FORMAT, "lacks its part \"w.s24_scales\""},
    {META("5", "{\\\"w\\\":[2,12,8,12,\\\"dense\\\"]}") SCALES
     ",\"w.s24_values\":{\"dtype\":\"I8\",\"shape\":[2,12],\"data_offsets\":[8,32]},"
     "\"w.s24_indices\":{\"dtype\":\"U8\",\"shape\":[0,2],\"data_offsets\":[32,32]}}",
     S24_ERROR_FORMAT, "\"w.s24_indices\" is part of a packed tensor that"},
};

static void refuses_what_the_format_forbids(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        io_write_tensors(io_path("bad.safetensors"), refused[i].header, data, sizeof data);
        assert_refused(&env, io_path("bad.safetensors"), refused[i].status, refused[i].says,
                       "bad.safetensors: ");
    }
    uint8_t other[sizeof data];
    memcpy(other, data, sizeof data);
    other[7] = 0xc0; /* −2 */
    io_write_tensors(io_path("bad.safetensors"), SAYS("5", "[2,12,8,12,\\\"dense\\\"]"), other,
                     sizeof other);
    assert_refused(&env, io_path("bad.safetensors"), S24_ERROR_FORMAT,
                   "the scale at row 1, column 0 is -2", "bad.safetensors: ");
    io_end(&env);
}

static s24_writer *writer_of(io_env *env, const s24_tensor *w)
{
    s24_writer *writer;
    const s24_writer_opts opts = {.size = sizeof opts, .force = 1};
    assert_ok(env, s24_writer_create(&writer, env->ctx, io_path("out.safetensors"), &opts));
    assert_ok(env, s24_writer_declare(writer, w));
    return writer;
}

/* Of both widths; written, read, and copied to the same bytes. */
static void is_written(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    size_t bytes, again;
    float scales[4] = {1, 2, 3, 4};
    uint8_t values[2 * 68];
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof values; i++)
        values[i] = (uint8_t)(37 * i);
    for (int bits = 4; bits <= 8; bits += 4) {
        const s24_tensor w = {.name = "w",
                              .dtype = S24_I8,
                              .rank = 2,
                              .shape = {2, 68},
                              .packed = S24_PACKED_DENSE,
                              .bits = bits,
                              .group = 64};
        s24_writer *writer = writer_of(&env, &w);
        const uint8_t codes[18] = {0};
        assert_int_equal(s24_writer_write_quantized(writer, "w", values, codes, scales),
                         S24_ERROR_ARGUMENT);
        assert_non_null(strstr(s24_ctx_error(env.ctx), "\"w\" was declared as a dense one"));
        assert_ok(&env, s24_writer_write_quantized(writer, "w", values, NULL, scales));
        assert_ok(&env, s24_writer_commit(writer));
        s24_writer_destroy(writer);
        char *first = io_read_file(io_path("out.safetensors"), &bytes);
        assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("out.safetensors")));
        assert_string_equal(s24_checkpoint_metadata(checkpoint, "sparse24.packed"),
                            bits == 8 ? "{\"w\":[2,68,8,64,\"dense\"]}"
                                      : "{\"w\":[2,68,4,64,\"dense\"]}");
        const s24_tensor *t = s24_checkpoint_find(checkpoint, "w");
        assert_memory_equal(t->values, values, (size_t)(2 * 68 * bits / 8));
        assert_memory_equal(t->scales, scales, sizeof scales);
        writer = writer_of(&env, t);
        assert_ok(&env, s24_writer_copy(writer, t));
        assert_ok(&env, s24_writer_commit(writer));
        s24_writer_destroy(writer);
        s24_checkpoint_close(checkpoint);
        char *second = io_read_file(io_path("out.safetensors"), &again);
        assert_int_equal(bytes, again);
        assert_memory_equal(first, second, bytes);
        free(first);
        free(second);
    }
    io_end(&env);
}

static void floats_are_not_declared_so(void **state)
{
    io_env env;
    s24_writer *writer;
    const s24_tensor w = {
        .name = "w", .dtype = S24_F32, .rank = 2, .shape = {2, 8}, .packed = S24_PACKED_DENSE};
    (void)state;
    io_begin(&env);
    assert_ok(&env, s24_writer_create(&writer, env.ctx, io_path("floats.safetensors"), NULL));
    assert_int_equal(s24_writer_declare(writer, &w), S24_ERROR_DTYPE);
    assert_non_null(strstr(s24_ctx_error(env.ctx), "\"w\" is dense, but not of integers"));
    s24_writer_destroy(writer);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_read), cmocka_unit_test(refuses_what_the_format_forbids),
        cmocka_unit_test(is_written), cmocka_unit_test(floats_are_not_declared_so)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
