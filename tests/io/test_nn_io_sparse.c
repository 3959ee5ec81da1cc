// SPDX-License-Identifier: Apache-2.0
/*
 * Matrices in rows, columns, coordinates and blocks in a file (docs/format.md, version 6): what is
 * read, what a reader must refuse, what a writer takes and writes, the same bytes again.
 */
#include "support.h"

#include "nn_io.h"
#include "sparse24/nn.h"

#define META(version, packed)                                                                      \
    "{\"__metadata__\":{\"sparse24.version\":\"" version "\",\"sparse24.packed\":\"" packed "\"},"
#define STARTS "\"w.s24_starts\":{\"dtype\":\"I64\",\"shape\":[4],\"data_offsets\":[0,32]},"
#define INDEX  "\"w.s24_index\":{\"dtype\":\"I32\",\"shape\":[3],\"data_offsets\":[32,44]},"
#define VALUES "\"w.s24_values\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[44,47]}"
#define SAYS(version, description)                                                                 \
    META(version, "{\\\"w\\\":" description "}") STARTS INDEX VALUES "}"

/* docs/format.md's example. */
typedef struct example {
    int64_t starts[4];
    int32_t index[3];
    int8_t values[3];
} example;
static const example rows = {{0, 1, 1, 3}, {1, 0, 2}, {5, 7, 1}};
enum { BYTES = 47 };

/* A file whose tensors begin at a multiple of 8, as the parts must. */
static void write_file(const char *path, const char *header, const example *data)
{
    char text[1024];
    const size_t bytes = strlen(header), padded = (bytes + 7) / 8 * 8;
    assert_true(padded < sizeof text);
    memset(text, ' ', padded);
    memcpy(text, header, bytes);
    text[padded] = '\0';
    io_write_tensors(path, text, data, BYTES);
}

static void is_read(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    s24_matrix *matrix;
    static const int8_t expected[9] = {0, 5, 0, 0, 0, 0, 7, 0, 1};
    int8_t dense[9];
    (void)state;
    io_begin(&env);
    for (int marked = 0; marked < 2; marked++) {
        write_file(io_path("w.safetensors"),
                   marked ? SAYS("6", "[3,3,\\\"csr\\\",\\\"transposed\\\"]")
                          : SAYS("6", "[3,3,\\\"csr\\\"]"),
                   &rows);
        assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("w.safetensors")));
        assert_int_equal(s24_checkpoint_count(checkpoint), 1);
        const s24_tensor *t = s24_checkpoint_find(checkpoint, "w");
        assert_int_equal(t->packed, S24_PACKED_SPARSE);
        assert_int_equal(t->dtype, S24_I8);
        assert_int_equal(t->transposed, marked);
        assert_int_equal(t->bytes, BYTES);
        assert_int_equal(t->sparse->format, S24_FORMAT_CSR);
        assert_int_equal(t->sparse->stored, 3);
        const s24_dense to = {dense, S24_I8, 3, 3, 0};
        assert_ok(&env, s24_tensor_to_dense(env.ctx, &to, t));
        assert_memory_equal(dense, expected, sizeof dense);
        assert_int_equal(s24_tensor_matrix(&matrix, env.ctx, t), S24_ERROR_ARGUMENT);
        assert_non_null(strstr(s24_ctx_error(env.ctx), "the tensor is stored as csr"));
        s24_checkpoint_close(checkpoint);
    }
    io_end(&env);
}

#define FORMS "or a layout's or a format's name, bsr with two integers"

static const struct {
    const char *header;
    s24_status status;
    const char *says;
} refused[] = {
    {SAYS("5", "[3,3,\\\"csr\\\"]"), S24_ERROR_FORMAT, "columns a multiple of 4"},
    {SAYS("6", "[3,3,\\\"ell\\\"]"), S24_ERROR_FORMAT, "columns a multiple of 4"},
    {SAYS("6", "[3,3,\\\"csr\\\",3]"), S24_ERROR_FORMAT, FORMS},
    {SAYS("6", "[3,3,\\\"bsr\\\"]"), S24_ERROR_FORMAT, FORMS},
    {SAYS("6", "[3,3,\\\"bsr\\\",1,\\\"4\\\"]"), S24_ERROR_FORMAT, FORMS},
    {SAYS("6", "[3,3,\\\"bsr\\\",1,4]"), S24_ERROR_FORMAT, "has rank 1, expected 3"},
    {SAYS("6", "[0,3,\\\"csr\\\"]"), S24_ERROR_SHAPE, "sides of 1 to 2^31 - 1"},
    {SAYS("6", "[3,2147483648,\\\"csr\\\"]"), S24_ERROR_SHAPE, "sides of 1 to 2^31 - 1"},
    {SAYS("7", "[3,4,8,4,\\\"csr\\\"]"), S24_ERROR_FORMAT, FORMS},
    {SAYS("8", "[3,4,8,\\\"csr\\\"]"), S24_ERROR_FORMAT, FORMS},
    {SAYS("8", "[3,4,8,4,\\\"bsr\\\",4]"), S24_ERROR_FORMAT, FORMS},
    {SAYS("8", "[3,4,8,4,\\\"ell\\\"]"), S24_ERROR_FORMAT, FORMS},
    {SAYS("8", "[3,3,8,3,\\\"csr\\\"]"), S24_ERROR_FORMAT, "columns a multiple of 4"},
    {SAYS("8", "[3,4,4,4,\\\"csr\\\"]"), S24_ERROR_FORMAT, "has integers of 4 bits"},
    {SAYS("8", "[3,128,8,64,\\\"csr\\\"]"), S24_ERROR_FORMAT, "a scale for 64 of 128 columns"},
    {SAYS("8", "[3,4,8,4,\\\"csr\\\"]"), S24_ERROR_FORMAT, "lacks its part \"w.s24_scales\""},
    {SAYS("6", "[4,3,\\\"csr\\\"]"), S24_ERROR_FORMAT, "has shape [4], expected [5]"},
    {SAYS("6", "[3,2,\\\"csr\\\"]"), S24_ERROR_FORMAT, "index[2] is 2, expected 0 to 1"},
    {SAYS("6", "[3,3,\\\"coo\\\"]"), S24_ERROR_FORMAT, "lacks its part \"w.s24_rows\""},
    {META("6", "{\\\"w\\\":[3,3,\\\"csr\\\"]}") STARTS
     "\"w.s24_index\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[32,40]},"
     "\"w.s24_values\":{\"dtype\":\"I8\",\"shape\":[7],\"data_offsets\":[40,47]}}",
     S24_ERROR_FORMAT, "\"w.s24_index\" has shape [2], expected [7]"},
    {META("6", "{\\\"w\\\":[3,3,\\\"csr\\\"]}") STARTS
     "\"w.s24_values\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[32,35]},"
     "\"w.s24_index\":{\"dtype\":\"I32\",\"shape\":[3],\"data_offsets\":[35,47]}}",
     S24_ERROR_FORMAT, "\"w.s24_index\" does not begin at a multiple of its elements' 4 bytes"},
    {META("6", "{\\\"w\\\":[3,3,\\\"csr\\\"]}") STARTS
     "\"w.s24_index\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[32,44]}," VALUES "}",
     S24_ERROR_FORMAT, "\"w.s24_index\" is F32, expected I32"},
    {META("6", "{}") STARTS INDEX VALUES "}", S24_ERROR_FORMAT,
     "is part of a packed tensor that \"sparse24.packed\" in the metadata does not describe"},
};

static void refuses_what_the_format_forbids(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        write_file(io_path("bad.safetensors"), refused[i].header, &rows);
        assert_refused(&env, io_path("bad.safetensors"), refused[i].status, refused[i].says,
                       "bad.safetensors: ");
    }
    example other = rows;
    other.starts[2] = 4;
    write_file(io_path("bad.safetensors"), SAYS("6", "[3,3,\\\"csr\\\"]"), &other);
    assert_refused(&env, io_path("bad.safetensors"), S24_ERROR_FORMAT,
                   "packed tensor \"w\": starts[2] is 4, expected 1 to 3", "bad.safetensors: ");
    io_end(&env);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_as(io_env *env, const s24_sparse_parts *parts, const char *path)
{
    s24_writer *writer;
    const s24_writer_opts opts = {.size = sizeof opts, .force = 1};
    const s24_tensor w = {.name = "w",
                          .dtype = parts->dtype,
                          .rank = 2,
                          .shape = {parts->rows, parts->cols},
                          .packed = S24_PACKED_SPARSE,
                          .sparse = parts};
    assert_ok(env, s24_writer_create(&writer, env->ctx, path, &opts));
    assert_ok(env, s24_writer_declare(writer, &w));
    assert_ok(env, s24_writer_write_sparse(writer, "w", parts));
    assert_ok(env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
}

/* Reads it, expects the parts, and writes what was read to another file of the same bytes. */
static void same_again(io_env *env, const s24_sparse_parts *parts, const s24_dense *dense)
{
    s24_checkpoint *checkpoint;
    size_t bytes, again;
    const size_t size = (size_t)(dense->rows * dense->cols) * s24_dtype_bytes(dense->dtype);
    void *back = malloc(size);
    const s24_dense to = {back, dense->dtype, dense->rows, dense->cols, 0};
    write_as(env, parts, io_path("one.safetensors"));
    assert_ok(env, s24_checkpoint_open(&checkpoint, env->ctx, io_path("one.safetensors")));
    const s24_tensor *t = s24_checkpoint_find(checkpoint, "w");
    assert_int_equal(t->sparse->stored, parts->stored);
    assert_ok(env, s24_tensor_to_dense(env->ctx, &to, t));
    assert_memory_equal(back, dense->data, size);
    write_as(env, t->sparse, io_path("two.safetensors"));
    s24_checkpoint_close(checkpoint);
    char *first = io_read_file(io_path("one.safetensors"), &bytes);
    char *second = io_read_file(io_path("two.safetensors"), &again);
    assert_int_equal(bytes, again);
    assert_memory_equal(first, second, bytes);
    free(first);
    free(second);
    free(back);
}

static const s24_sparse_parts kinds[] = {
    {.format = S24_FORMAT_COO},
    {.format = S24_FORMAT_CSR},
    {.format = S24_FORMAT_CSC},
    {.format = S24_FORMAT_BSR, .block_rows = 1, .block_cols = 4},
    {.format = S24_FORMAT_BSR, .block_rows = 4, .block_cols = 1},
    {.format = S24_FORMAT_BSR, .block_rows = 16, .block_cols = 16},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Every pair: a file of one format becomes one of the other. */
static void is_written(void **state)
{
    enum { ROWS = 32, COLS = 48 };
    static const s24_dtype dtypes[] = {S24_F32, S24_BF16};
    io_env env;
    float wide[ROWS * COLS];
    uint8_t numbers[sizeof wide];
    uint64_t seed = 11;
    s24_sparse *one, *other;
    (void)state;
    io_begin(&env);
    for (int d = 0; d < 2; d++) {
        const s24_dense dense = {numbers, dtypes[d], ROWS, COLS, 0};
        for (int i = 0; i < ROWS * COLS; i++)
            wide[i] = d && test_random(&seed) % 8 == 0 ? (float)(test_random(&seed) % 16) : 0;
        assert_int_equal(s24_convert(numbers, dtypes[d], wide, S24_F32, ROWS * COLS), S24_OK);
        for (int from = 0; from < KINDS; from++)
            for (int to = 0; to < KINDS; to++) {
                assert_ok(&env, s24_sparse_create(&one, env.ctx, &dense, &kinds[from]));
                assert_ok(&env, s24_sparse_convert(&other, env.ctx, one, &kinds[to]));
                const s24_sparse_parts parts = s24_sparse_get(other);
                same_again(&env, &parts, &dense);
                s24_sparse_destroy(one);
                s24_sparse_destroy(other);
            }
    }
    io_end(&env);
}

static void writer_refuses(void **state)
{
    io_env env;
    s24_writer *writer;
    const s24_sparse_parts good = {.format = S24_FORMAT_CSR,
                                   .dtype = S24_I8,
                                   .rows = 3,
                                   .cols = 3,
                                   .stored = 3,
                                   .starts = rows.starts,
                                   .index = rows.index,
                                   .values = rows.values};
    s24_sparse_parts bad = good;
    s24_tensor w = {
        .name = "w", .dtype = S24_I8, .rank = 2, .shape = {3, 3}, .packed = S24_PACKED_SPARSE};
    (void)state;
    io_begin(&env);
    assert_ok(&env, s24_writer_create(&writer, env.ctx, io_path("new.safetensors"), NULL));
    assert_int_equal(s24_writer_declare(writer, &w), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(env.ctx), "in a format that `sparse` names"));
    bad.format = S24_FORMAT_BSR;
    w.sparse = &bad;
    assert_int_equal(s24_writer_declare(writer, &w), S24_ERROR_SHAPE);
    assert_non_null(strstr(s24_ctx_error(env.ctx), "a block of 0x0"));
    w.sparse = &good;
    w.bits = 8;
    w.group = 3;
    assert_int_equal(s24_writer_declare(writer, &w), S24_ERROR_DTYPE);
    assert_non_null(strstr(s24_ctx_error(env.ctx), "columns a multiple of 4"));
    w.bits = 0;
    w.name = "x.s24_index";
    assert_int_equal(s24_writer_declare(writer, &w), S24_ERROR_ARGUMENT);
    w.name = "w";
    assert_ok(&env, s24_writer_declare(writer, &w));
    assert_int_equal(s24_writer_declare(writer, &w), S24_ERROR_ARGUMENT);
    bad = good;
    bad.stored = 2;
    assert_int_equal(s24_writer_write_sparse(writer, "w", &bad), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(env.ctx), "\"w\" was not declared as such"));
    const int32_t index[] = {1, 2, 0};
    bad = good;
    bad.index = index;
    assert_int_equal(s24_writer_write_sparse(writer, "w", &bad), S24_ERROR_FORMAT);
    assert_non_null(strstr(s24_ctx_error(env.ctx), "\"w\": line 2, index[2] is 0 after 2"));
    s24_writer_destroy(writer);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_read), cmocka_unit_test(refuses_what_the_format_forbids),
        cmocka_unit_test(is_written), cmocka_unit_test(writer_refuses)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
