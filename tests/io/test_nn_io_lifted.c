// SPDX-License-Identifier: Apache-2.0
/*
 * Lifted matrices in a file (docs/format.md, versions 7 and 9): what is read, what a reader must
 * refuse, what a writer takes and refuses.
 */
#include "support.h"

#include "nn_io.h"
#include "sparse24/nn.h"

#define META(version, packed)                                                                      \
    "{\"__metadata__\":{\"sparse24.version\":\"" version "\",\"sparse24.packed\":\"" packed "\"},"

#define VALUES  "\"w.s24_values\":{\"dtype\":\"I8\",\"shape\":[1,6],\"data_offsets\":[0,6]},"
#define INDICES "\"w.s24_indices\":{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[6,8]}"

#define SAYS(version, description) META(version, "{\\\"w\\\":" description "}") VALUES INDICES "}"

/* docs/format.md's examples. */
static const uint8_t example[8] = {1, 2, 3, 4, 5, 6, 0x94, 0x09};
static const int8_t dense_example[8] = {1, 2, 0, 3, 4, 5, 6, 0};
static const uint8_t beside[8] = {1, 2, 0, 3, 4, 5, 0xe4, 0x0d};
static const int8_t dense_beside[8] = {1, 2, 0, 3, 0, 4, 0, 5};

static void is_read(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    s24_matrix *matrix;
    int8_t dense[8];
    (void)state;
    io_begin(&env);
    for (int way = 0; way < 3; way++) {
        const int marked = way == 1, cut = way == 2;
        io_write_tensors(io_path("w.safetensors"),
                         cut      ? SAYS("9", "[1,8,\\\"dense:4\\\"]")
                         : marked ? SAYS("7", "[1,8,\\\"6:8\\\",\\\"transposed\\\"]")
                                  : SAYS("7", "[1,8,\\\"6:8\\\"]"),
                         cut ? beside : example, sizeof example);
        assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("w.safetensors")));
        const s24_tensor *t = s24_checkpoint_find(checkpoint, "w");
        assert_int_equal(t->packed, S24_PACKED_LIFTED);
        assert_int_equal(t->lift, cut ? -4 : 8);
        assert_int_equal(t->shape[1], 8);
        assert_int_equal(t->transposed, marked);
        assert_int_equal(t->bytes, 8);
        const s24_dense to = {dense, S24_I8, 1, 8, 0};
        assert_ok(&env, s24_tensor_to_dense(env.ctx, &to, t));
        assert_memory_equal(dense, cut ? dense_beside : dense_example, sizeof dense);
        assert_ok(&env, s24_tensor_matrix(&matrix, env.ctx, t));
        assert_int_equal(s24_matrix_cols(matrix), 12);
        s24_matrix_destroy(matrix);
        s24_checkpoint_close(checkpoint);
    }
    io_end(&env);
}

#define FORMS "or that pattern alone"

static const struct {
    const char *header, *says;
} refused[] = {
    {SAYS("6", "[1,8,\\\"6:8\\\"]"), "in the layout \"6:8\", which this build does not know"},
    {SAYS("7", "[1,8,\\\"4:8\\\"]"), "in the layout \"4:8\", which this build does not know"},
    {SAYS("7", "[1,8,\\\"6:8\\\",8]"), FORMS},
    {SAYS("7", "[1,\\\"6:8\\\"]"), FORMS},
    {SAYS("7", "[1,8,8,\\\"6:8\\\"]"), FORMS},
    {SAYS("7", "[1,8,\\\"x\\\",12,\\\"6:8\\\"]"), FORMS},
    {SAYS("7", "[1,12,\\\"6:8\\\"]"), "is 6:8, which its 12 columns do not hold"},
    {SAYS("7", "[0,8,\\\"6:8\\\"]"), "columns a multiple of 4"},
    {SAYS("7", "[1,16,\\\"6:8\\\"]"), "has shape [1, 6], expected [1, 12]"},
    {SAYS("7", "[1,8,\\\"14:16\\\"]"), "is 14:16, which its 8 columns do not hold"},
    {SAYS("8", "[1,8,\\\"dense:4\\\"]"), "in the layout \"dense:4\", which this build does not"},
    {SAYS("9", "[1,8,\\\"dense:6\\\"]"), "in the layout \"dense:6\", which this build does not"},
    {SAYS("9", "[1,8,\\\"dense:8\\\"]"), "is dense:8, which its 8 columns do not hold"},
    {SAYS("9", "[1,12,\\\"dense:8\\\"]"), "has shape [1, 6], expected [1, 10]"},
    {SAYS("7", "[1,8,8,8,\\\"6:8\\\"]"), "a scale for 8 columns, expected 64, 128 or all 12"},
    {SAYS("7", "[1,8,8,12,\\\"6:8\\\"]"), "lacks its part \"w.s24_scales\""},
};

static void refuses_what_the_format_forbids(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    int8_t dense[8];
    const s24_dense to = {dense, S24_I8, 1, 8, 0};
    /* Columns 2 and 3 of the row are stored in the first and in the second window. */
    static const uint8_t clash[8] = {1, 2, 3, 4, 5, 6, 0x4e, 0x04};
    static const uint8_t illegal[8] = {1, 2, 3, 4, 5, 6, 0x90, 0x09};
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        io_write_tensors(io_path("bad.safetensors"), refused[i].header, example, sizeof example);
        s24_status status = s24_checkpoint_open(&checkpoint, env.ctx, io_path("bad.safetensors"));
        assert_int_not_equal(status, S24_OK);
        if (!strstr(s24_ctx_error(env.ctx), refused[i].says))
            fail_msg("%s: '%s' was expected", s24_ctx_error(env.ctx), refused[i].says);
    }
    io_write_tensors(io_path("bad.safetensors"), SAYS("7", "[1,8,\\\"6:8\\\"]"), illegal, 8);
    assert_refused(&env, io_path("bad.safetensors"), S24_ERROR_FORMAT, "is no legal code",
                   "bad.safetensors: ");
    io_write_tensors(io_path("bad.safetensors"), SAYS("7", "[1,8,\\\"6:8\\\"]"), clash, 8);
    assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("bad.safetensors")));
    assert_int_equal(s24_tensor_to_dense(env.ctx, &to, s24_checkpoint_find(checkpoint, "w")),
                     S24_ERROR_FORMAT);
    assert_non_null(
        strstr(s24_ctx_error(env.ctx), "two windows have a non-zero for row 0, column 2"));
    s24_checkpoint_close(checkpoint);
    io_end(&env);
}

static void is_written(void **state)
{
    io_env env;
    s24_writer *writer;
    s24_checkpoint *checkpoint;
    s24_tensor w = {.name = "w", .dtype = S24_I8, .rank = 2, .shape = {1, 12}};
    (void)state;
    io_begin(&env);
    assert_ok(&env, s24_writer_create(&writer, env.ctx, io_path("new.safetensors"), NULL));
    const struct {
        int packed, lift;
        const char *says;
    } bad[] = {
        {S24_PACKED_LIFTED, 8, "is 6:8, which its 12 columns do not hold"},
        {S24_PACKED_LIFTED, -12, "is dense:12, which its 12 columns do not hold"},
        {S24_PACKED_LIFTED, 7, "has lift 7; s24_pattern_lift gives"},
        {S24_PACKED_LIFTED, 0, "has lift 0"},
        {1, 6, "has lift 6 and is no lifted one"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        w.packed = bad[i].packed;
        w.lift = bad[i].lift;
        assert_int_not_equal(s24_writer_declare(writer, &w), S24_OK);
        if (!strstr(s24_ctx_error(env.ctx), bad[i].says)) fail_msg("%s", s24_ctx_error(env.ctx));
    }
    w.shape[1] = 8;
    w.packed = S24_PACKED_LIFTED;
    w.lift = 8;
    assert_ok(&env, s24_writer_declare(writer, &w));
    assert_ok(&env, s24_writer_write_packed(writer, "w", example, example + 6));
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("new.safetensors")));
    int8_t dense[8];
    const s24_dense to = {dense, S24_I8, 1, 8, 0};
    assert_ok(&env, s24_tensor_to_dense(env.ctx, &to, s24_checkpoint_find(checkpoint, "w")));
    assert_memory_equal(dense, dense_example, sizeof dense);
    assert_string_equal(s24_checkpoint_metadata(checkpoint, "sparse24.packed"),
                        "{\"w\":[1,8,\"6:8\"]}");
    s24_checkpoint_close(checkpoint);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_read),
                                       cmocka_unit_test(refuses_what_the_format_forbids),
                                       cmocka_unit_test(is_written)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
