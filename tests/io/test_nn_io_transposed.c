// SPDX-License-Identifier: Apache-2.0
/*
 * Packed matrices that stand for their transpose (docs/format.md, version 4): the golden file is
 * read to the numbers that were written by hand and written again to the same bytes; what a reader
 * must refuse, what older versions make of the mark, and what a writer does with it.
 */
#include "nn_io.h"

#include "safetensors_mini.h"

static const char *golden(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/tests/golden/%s", S24_SOURCE, name);
    return path;
}

/* The tensor that a packed one stands for. */
static void *as_stored(io_env *env, const s24_tensor *tensor)
{
    const int turned = tensor->transposed;
    s24_matrix *matrix, *view;
    s24_dense dense = {NULL, tensor->bits ? S24_F32 : tensor->dtype, tensor->shape[turned],
                       tensor->shape[!turned], 0};
    assert_ok(env, s24_tensor_matrix(&matrix, env->ctx, tensor));
    assert_int_equal(s24_matrix_rows(matrix), tensor->shape[0]);
    assert_int_equal(s24_matrix_cols(matrix), tensor->shape[1]);
    assert_ok(env, turned ? s24_matrix_transpose(&view, env->ctx, matrix)
                          : s24_matrix_copy(&view, env->ctx, matrix));
    dense.data = malloc((size_t)(dense.rows * dense.cols) * s24_dtype_bytes(dense.dtype));
    assert_ok(env, s24_matrix_to_dense(env->ctx, &dense, view));
    s24_matrix_destroy(matrix);
    s24_matrix_destroy(view);
    return dense.data;
}

static void golden_file_decodes(void **state)
{
    io_env env;
    s24_checkpoint *in;
    int transposed = 0;
    (void)state;
    io_begin(&env);
    mini_file dense = mini_open(golden("transposed-dense.safetensors"));
    assert_ok(&env, s24_checkpoint_open(&in, env.ctx, golden("transposed.safetensors")));
    assert_int_equal(s24_checkpoint_count(in), 9);
    for (int64_t t = 0; t < 9; t++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(in, t);
        const mini_tensor want = mini_get(&dense, tensor->name);
        assert_int_equal(tensor->packed, 1);
        assert_int_equal(tensor->transposed, strcmp(tensor->name, "plain") != 0);
        transposed += tensor->transposed;
        assert_int_equal(tensor->shape[tensor->transposed], want.shape[0]);
        assert_int_equal(tensor->shape[!tensor->transposed], want.shape[1]);
        void *numbers = as_stored(&env, tensor);
        assert_memory_equal(numbers, want.data, want.bytes);
        free(numbers);
    }
    assert_int_equal(transposed, 8);
    s24_checkpoint_close(in);
    mini_close(&dense);
    io_end(&env);
}

/* Copies tensors first … end of a file into a new one. */
static void copy(io_env *env, const char *to, const s24_checkpoint *in, int64_t first, int64_t end)
{
    s24_writer *writer = begin_writer(env, to, 1, NULL);
    for (int64_t t = first; t < end; t++)
        assert_ok(env, s24_writer_declare(writer, s24_checkpoint_tensor(in, t)));
    for (int64_t t = first; t < end; t++)
        assert_ok(env, s24_writer_copy(writer, s24_checkpoint_tensor(in, t)));
    assert_ok(env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
}

static void copies_keep_the_mark(void **state)
{
    io_env env;
    s24_checkpoint *in, *other;
    size_t first_bytes, second_bytes;
    (void)state;
    io_begin(&env);
    assert_ok(&env, s24_checkpoint_open(&in, env.ctx, golden("transposed.safetensors")));
    copy(&env, io_path("first.safetensors"), in, 0, 9);
    assert_ok(&env, s24_checkpoint_open(&other, env.ctx, io_path("first.safetensors")));
    assert_string_equal(s24_checkpoint_metadata(other, "sparse24.version"), "4");
    assert_string_equal(s24_checkpoint_metadata(other, "sparse24.packed"),
                        s24_checkpoint_metadata(in, "sparse24.packed"));
    copy(&env, io_path("second.safetensors"), other, 0, 9);
    s24_checkpoint_close(other);
    char *first = io_read_file(io_path("first.safetensors"), &first_bytes);
    char *second = io_read_file(io_path("second.safetensors"), &second_bytes);
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(first, second, first_bytes);
    free(first);
    free(second);
    /* Without a transposed one the version is that of what is there. */
    assert_string_equal(s24_checkpoint_tensor(in, 8)->name, "plain");
    copy(&env, io_path("plain.safetensors"), in, 8, 9);
    assert_ok(&env, s24_checkpoint_open(&other, env.ctx, io_path("plain.safetensors")));
    assert_string_equal(s24_checkpoint_metadata(other, "sparse24.version"), "1");
    s24_checkpoint_close(other);
    s24_checkpoint_close(in);
    io_end(&env);
}

#define META(version, packed)                                                                      \
    "{\"__metadata__\":{\"sparse24.version\":\"" version "\",\"sparse24.packed\":\"" packed "\"},"
#define PARTS                                                                                      \
    "\"w.s24_values\":{\"dtype\":\"I8\",\"shape\":[2,6],\"data_offsets\":[0,12]},"                 \
    "\"w.s24_indices\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[12,16]}}"
#define SAYS(version, description) META(version, "{\\\"w\\\":" description "}") PARTS

static const uint8_t data[16] = {5, 7, 1, 2, 0xfd, 0, 1, 2, 3, 4, 5, 6, 0x4d, 0x09, 0xe4, 0x08};

#define OTHER_WAY "or a layout's name, with or without \"transposed\" after them"

static const struct {
    const char *header;
    s24_status status;
    const char *says;
} refused[] = {
    /* of another type or value, or in another place */
    {SAYS("4", "[2,12,true]"), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "[2,12,1]"), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "[2,12,null]"), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "[2,12,[\\\"transposed\\\"]]"), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "[\\\"transposed\\\",2,12]"), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "[2,\\\"transposed\\\"]"), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "[\\\"transposed\\\"]"), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "\\\"transposed\\\""), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "[]"), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "[2,12,\\\"transposed\\\",\\\"rows16-f32\\\"]"), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "[2,12,8,\\\"transposed\\\",12]"), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "[2,12,8,\\\"transposed\\\"]"), S24_ERROR_FORMAT, OTHER_WAY},
    {SAYS("4", "[2,12,\\\"Transposed\\\"]"), S24_ERROR_UNSUPPORTED, "the layout \"Transposed\""},
    {SAYS("4", "[2,12,\\\"transposed\\\",\\\"transposed\\\"]"), S24_ERROR_UNSUPPORTED,
     "the layout \"transposed\", which this build does not know"},
    /* [n, k] turned around, or other parts */
    {SAYS("4", "[12,2,\\\"transposed\\\"]"), S24_ERROR_FORMAT, "\"w\" has shape [12, 2]"},
    {SAYS("4", "[12,4,\\\"transposed\\\"]"), S24_ERROR_FORMAT,
     "\"w.s24_values\" has shape [2, 6], expected [12, 2]"},
    {SAYS("4", "[2,12,8,12,\\\"transposed\\\"]"), S24_ERROR_FORMAT,
     "lacks its part \"w.s24_scales\""},
    {SAYS("4", "[2,12,\\\"rows16-f32\\\",\\\"transposed\\\"]"), S24_ERROR_FORMAT,
     "lacks its part \"w.s24_stream\""},
    {SAYS("4", "[4611686018427387904,4,\\\"transposed\\\"]"), S24_ERROR_FORMAT, "fewer than 2^63"},
    /* a mark in a file of an older version */
    {SAYS("1", "[2,12,\\\"transposed\\\"]"), S24_ERROR_FORMAT, "a shape of two integers"},
    {SAYS("2", "[2,12,\\\"transposed\\\"]"), S24_ERROR_FORMAT, "or these, bits and group"},
    {SAYS("2", "[2,12,8,12,\\\"transposed\\\"]"), S24_ERROR_FORMAT, "or these, bits and group"},
    {SAYS("3", "[2,12,\\\"transposed\\\"]"), S24_ERROR_UNSUPPORTED, "the layout \"transposed\""},
    {SAYS("3", "[2,12,8,12,\\\"transposed\\\"]"), S24_ERROR_FORMAT, "or a layout's name"},
    {SAYS("11", "[2,12]"), S24_ERROR_FORMAT, "is \"11\", this build reads \"1\" to \"10\""},
    /* all the suffixes are the format's own */
    {META("4", "{}") "\"w.s24_stream\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}",
     S24_ERROR_FORMAT, "\"w.s24_stream\" is part of a packed tensor that"},
};

static void refuses_what_the_format_forbids(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        io_write_tensors(io_path("bad.safetensors"), refused[i].header, data, 16);
        assert_refused(&env, io_path("bad.safetensors"), refused[i].status, refused[i].says,
                       "bad.safetensors: ");
    }
    io_end(&env);
}

/* Both forms of the other versions may stand in such a file, with the mark and without. */
static void every_form_may_have_the_mark(void **state)
{
    enum { N = 16, K = 64 };
    static const char *const versions[] = {"1", "2", "3"};
    io_env env;
    float values[N * K / 2], scales[N];
    int8_t integers[N * K / 2];
    uint8_t indices[N * K / 8];
    (void)state;
    io_begin(&env);
    memset(indices, 0x44, sizeof indices);
    for (int i = 0; i < N * K / 2; i++)
        values[i] = integers[i] = (int8_t)(i % 100);
    for (int i = 0; i < N; i++)
        scales[i] = 1;
    for (int form = 0; form < 6; form++) {
        const int marked = form % 2, bits = form / 2 == 1 ? 8 : 0;
        const char *layout = form / 2 == 2 ? "rows16-f32" : NULL;
        const s24_tensor w = {.name = "w",
                              .dtype = bits ? S24_I8 : S24_F32,
                              .rank = 2,
                              .shape = {N, K},
                              .packed = 1,
                              .bits = bits,
                              .group = bits ? K : 0,
                              .layout = layout,
                              .transposed = marked};
        s24_checkpoint *in;
        s24_writer *writer = begin_writer(&env, io_path("form.safetensors"), 1, NULL);
        assert_ok(&env, s24_writer_declare(writer, &w));
        assert_ok(&env, bits ? s24_writer_write_quantized(writer, "w", integers, indices, scales)
                             : s24_writer_write_packed(writer, "w", values, indices));
        assert_ok(&env, s24_writer_commit(writer));
        s24_writer_destroy(writer);
        assert_ok(&env, s24_checkpoint_open(&in, env.ctx, io_path("form.safetensors")));
        assert_string_equal(s24_checkpoint_metadata(in, "sparse24.version"),
                            marked ? "4" : versions[form / 2]);
        const s24_tensor *got = s24_checkpoint_find(in, "w");
        assert_int_equal(got->transposed, marked);
        assert_int_equal(got->shape[0], N);
        assert_int_equal(env.log_lines, 0); /* a stream is aligned, whatever the version */
        float *dense = as_stored(&env, got);
        assert_true(dense[marked ? N + 3 : 3 * K + 1] == values[3 * K / 2 + 1]);
        free(dense);
        s24_checkpoint_close(in);
    }
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_file_decodes),
        cmocka_unit_test(copies_keep_the_mark),
        cmocka_unit_test(refuses_what_the_format_forbids),
        cmocka_unit_test(every_form_may_have_the_mark),
    };
    return cmocka_run_group_tests_name("nn_io_transposed", tests, io_folder_setup,
                                       io_folder_teardown);
}
