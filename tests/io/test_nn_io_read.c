// SPDX-License-Identifier: Apache-2.0
/*
 * Reading one .safetensors file: what is legal, what is refused and in which words, and that no
 * damage to a file does worse than an error.
 */
#include "nn_io.h"

#define W2X2 "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}"

static void reads_a_tensor(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    const float values[4] = {1.5f, -2, 0, 3e10f};
    (void)state;
    io_begin(&env);
    io_write_tensors(
        io_path("a.safetensors"),
        "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],"
        "\"data_offsets\":[0,16]}}     ",
        values, 16);
    assert_int_equal(s24_checkpoint_open(&checkpoint, env.ctx, io_path("a.safetensors")), S24_OK);
    assert_int_equal(s24_checkpoint_count(checkpoint), 1);
    const s24_tensor *w = s24_checkpoint_find(checkpoint, "w");
    assert_ptr_equal(w, s24_checkpoint_tensor(checkpoint, 0));
    assert_string_equal(w->name, "w");
    assert_string_equal(w->file, "a.safetensors");
    assert_int_equal(w->dtype, S24_F32);
    assert_int_equal(w->rank, 2);
    assert_int_equal(w->shape[0], 2);
    assert_int_equal(w->shape[1], 2);
    assert_int_equal(w->bytes, 16);
    assert_int_equal(w->packed, 0);
    assert_memory_equal(w->data, values, 16);
    assert_null(s24_checkpoint_find(checkpoint, "v"));
    assert_null(s24_checkpoint_tensor(checkpoint, 1));
    assert_null(s24_checkpoint_tensor(checkpoint, -1));
    assert_null(s24_checkpoint_folder(checkpoint));
    assert_null(s24_checkpoint_model_type(checkpoint));
    assert_string_equal(s24_checkpoint_metadata(checkpoint, "format"), "pt");
    assert_null(s24_checkpoint_metadata(checkpoint, "other"));
    s24_checkpoint_close(checkpoint);
    s24_checkpoint_close(NULL);
    io_end(&env);
}

/* Headers that are unusual but legal: each opens and has this many tensors. */
static void legal_oddities(void **state)
{
    static const struct {
        const char *header;
        size_t bytes;
        int64_t count;
    } cases[] = {
        {"{}", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{ \"a\" : {\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]} }\n", 1, 1},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, 1},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3,0,5],\"data_offsets\":[4,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         4, 3},
        {"{\"a\":{\"shape\":[1],\"note\":null,\"data_offsets\":[0,1],\"dtype\":\"BOOL\"}}", 1, 1},
        {"{\"a\":{\"dtype\":\"I64\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,8]}}", 8, 1},
        {"{\"\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, 1},
        {"{\"\xc3\xa4\\u00df \\\"x\\\"\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
         2, 1},
    };
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_checkpoint *checkpoint;
        io_write_tensors(io_path("odd.safetensors"), cases[i].header, NULL, cases[i].bytes);
        if (s24_checkpoint_open(&checkpoint, env.ctx, io_path("odd.safetensors")) != S24_OK)
            fail_msg("%s: %s", cases[i].header, s24_ctx_error(env.ctx));
        assert_int_equal(s24_checkpoint_count(checkpoint), cases[i].count);
        s24_checkpoint_close(checkpoint);
    }
    io_end(&env);
}

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second)                                                                         \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" first                               \
    "},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" second "}}"

/* Headers that are refused, with data bytes and what the sentence must say besides the file. */
static const struct {
    const char *header;
    size_t bytes;
    const char *says;
} refused[] = {
    {"", 0, "'{'"},
    {" {}", 0, "'{'"},
    {"[]", 0, "'{'"},
    {"{", 0, "JSON is expected"},
    {"{} {}", 0, "JSON is expected"},
    {"{\"t\":1}", 0, "\"t\" is not described by an object"},
    {"{\"t\":{}}", 0, "\"t\" has no \"dtype\""},
    {"{\"t\":{\"dtype\":\"F32\"}}", 0, "\"t\" has no \"shape\""},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "\"t\" has no \"data_offsets\""},
    {ONE("\"F33\"", "[1]", "[0,4]"), 4, "\"t\" has dtype \"F33\"; expected one of BOOL"},
    {ONE("\"f32\"", "[1]", "[0,4]"), 4, "\"f32\""},
    {ONE("\"F4\"", "[8]", "[0,4]"), 4, "\"F4\""},
    {ONE("\"C64\"", "[1]", "[0,8]"), 8, "\"C64\""},
    {ONE("\"F8_E8M0\"", "[1]", "[0,1]"), 1, "\"F8_E8M0\""},
    {ONE("7", "[1]", "[0,4]"), 4, "no \"dtype\" string"},
    {ONE("\"\"", "[1]", "[0,4]"), 4, "dtype \"\""},
    {ONE("\"F32\"", "1", "[0,4]"), 4, "no \"shape\" array"},
    {ONE("\"F32\"", "[-1]", "[0,4]"), 4, "dimension 0"},
    {ONE("\"F32\"", "[1,1.0]", "[0,4]"), 4, "dimension 1"},
    {ONE("\"F32\"", "[1e0]", "[0,4]"), 4, "dimension 0"},
    {ONE("\"F32\"", "[\"1\"]", "[0,4]"), 4, "dimension 0"},
    {ONE("\"F32\"", "[null]", "[0,4]"), 4, "dimension 0"},
    {ONE("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "9 dimensions, at most 8"},
    {ONE("\"U8\"", "[4294967296,2147483648]", "[0,0]"), 0, "more than 2^63 elements"},
    {ONE("\"U8\"", "[4294967296,4294967296,0]", "[0,0]"), 0, "more than 2^63 elements"},
    {ONE("\"F64\"", "[2305843009213693952]", "[0,0]"), 0, "more than 2^63 bytes"},
    {ONE("\"U8\"", "[9223372036854775808]", "[0,0]"), 0,
     "dimension 0 of its shape is not an integer"},
    {ONE("\"F32\"", "[1]", "4"), 4, "no \"data_offsets\""},
    {ONE("\"F32\"", "[1]", "[0]"), 4, "no \"data_offsets\""},
    {ONE("\"F32\"", "[1]", "[0,4,4]"), 4, "no \"data_offsets\""},
    {ONE("\"F32\"", "[1]", "[0.0,4]"), 4, "no \"data_offsets\""},
    {ONE("\"F32\"", "[1]", "[-4,0]"), 4, "bytes -4 to 0"},
    {ONE("\"F32\"", "[1]", "[4,0]"), 4, "bytes 4 to 0"},
    {ONE("\"F32\"", "[1]", "[0,4]"), 3, "inside the 3 bytes"},
    {ONE("\"F32\"", "[1]", "[0,9223372036854775807]"), 4, "inside the 4 bytes"},
    {ONE("\"F32\"", "[2]", "[0,4]"), 4, "has 4 bytes, its dtype and shape ask for 8"},
    {ONE("\"F32\"", "[1]", "[4,8]"), 8, "begins at byte 4 after the header, expected 0"},
    {ONE("\"F32\"", "[1]", "[0,4]"), 5, "5 bytes follow the header, its tensors take 4"},
    {"{}", 1, "1 bytes follow the header, its tensors take 0"},
    {TWO("[0,4]", "[5,9]"), 9, "\"b\" begins at byte 5 after the header, expected 4 (a hole"},
    {TWO("[0,4]", "[3,7]"), 8,
     "\"b\" begins at byte 3 after the header, expected 4 (tensors overlap)"},
    {TWO("[0,4]", "[0,4]"), 4, "tensors overlap"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     1, "duplicate object key"},
    {"{\"t\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "duplicate object key"},
    {"{\"__metadata__\":{},\"__met\\u0061data__\":{}}", 0, "duplicate object key"},
    {"{\"t\\u0000x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "JSON is expected"},
    {"{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "JSON is expected"},
    {"{\"\\ud800\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     "JSON is expected"},
    {"{\"__metadata__\":null}", 0, "\"__metadata__\" is not an object"},
    {"{\"__metadata__\":[]}", 0, "\"__metadata__\" is not an object"},
    {"{\"__metadata__\":{\"format\":1}}", 0, "\"format\" in \"__metadata__\" is not a string"},
};

static void refuses_bad_headers(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        io_write_tensors(io_path("bad.safetensors"), refused[i].header, NULL, refused[i].bytes);
        assert_refused(&env, io_path("bad.safetensors"), S24_ERROR_FORMAT, refused[i].says,
                       "bad.safetensors");
    }
    io_end(&env);
}

static void refuses_a_hostile_name_without_repeating_it(void **state)
{
    io_env env;
    char header[4096] = "{\"\\u001b[2J\xc2\x9b";
    (void)state;
    io_begin(&env);
    memset(header + strlen(header), 'n', 3000);
    strcat(header, "\":{\"dtype\":\"?\",\"shape\":[],\"data_offsets\":[0,1]}}");
    io_write_tensors(io_path("name.safetensors"), header, NULL, 1);
    assert_refused(&env, io_path("name.safetensors"), S24_ERROR_FORMAT,
                   "tensor \"\\x1b[2J\\u009bnnn", "has dtype \"?\"");
    assert_null(strchr(s24_ctx_error(env.ctx), 0x1b));
    assert_true(strlen(s24_ctx_error(env.ctx)) < 400);
    io_end(&env);
}

/* A long name is cut between characters: a euro sign takes three bytes and is not halved. */
static void shows_names_cut_between_characters(void **state)
{
    char name[301] = "";
    (void)state;
    assert_string_equal(s24i_show("short.weight").text, "short.weight");
    for (int i = 0; i < 100; i++)
        strcat(name, "\xe2\x82\xac");
    s24i_shown shown = s24i_show(name);
    size_t length = strlen(shown.text);
    assert_true(length < sizeof shown.text && length % 3 == 0);
    assert_memory_equal(shown.text, name, length - 3);
    assert_string_equal(shown.text + length - 3, "\xe2\x80\xa6");
}

/* The header's length word and the file's own length. */
static void refuses_bad_lengths(void **state)
{
    static const struct {
        uint64_t announced;
        size_t follow;
        const char *says;
    } cases[] = {
        {0, 0, "'{'"},
        {1, 0, "a header of 1 bytes is announced, but only 0 follow"},
        {100000001, 16, "a header of 100000001 bytes is announced, at most 100000000"},
        {100000000, 16, "but only 16 follow"},
        {UINT64_MAX, 16, "is announced, at most"},
        {UINT64_MAX - 7, 16, "is announced, at most"},
        {(uint64_t)1 << 63, 16, "is announced, at most"},
    };
    io_env env;
    uint8_t file[24] = {0};
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < 8; i++) {
        io_write_file(io_path("short.safetensors"), file, i);
        assert_refused(&env, io_path("short.safetensors"), S24_ERROR_FORMAT,
                       "are too few for a safetensors file", "short.safetensors");
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(file, &cases[i].announced, 8);
        io_write_file(io_path("length.safetensors"), file, 8 + cases[i].follow);
        assert_refused(&env, io_path("length.safetensors"), S24_ERROR_FORMAT, cases[i].says,
                       "length.safetensors");
    }
    io_end(&env);
}

static void refuses_depth_bombs(void **state)
{
    io_env env;
    char header[100008] = "{\"t\":";
    (void)state;
    io_begin(&env);
    memset(header + 5, '[', 100000);
    io_write_tensors(io_path("deep.safetensors"), header, NULL, 0);
    assert_refused(&env, io_path("deep.safetensors"), S24_ERROR_FORMAT, "JSON is expected",
                   "deep.safetensors");
    io_end(&env);
}

static void refuses_what_is_no_file(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    (void)state;
    io_begin(&env);
    assert_refused(&env, io_path("nowhere.safetensors"), S24_ERROR_IO, "nowhere.safetensors",
                   "No such file");
    assert_int_equal(mkfifo(io_path("pipe.safetensors"), 0600), 0);
    assert_refused(&env, io_path("pipe.safetensors"), S24_ERROR_IO, "a regular file is expected",
                   "pipe.safetensors");
    assert_refused(&env, "/dev/zero", S24_ERROR_IO, "a regular file is expected", "/dev/zero");
    assert_int_equal(s24_checkpoint_open(&checkpoint, env.ctx, NULL), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_checkpoint_open(&checkpoint, env.ctx, ""), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_checkpoint_open(NULL, env.ctx, "x"), S24_ERROR_ARGUMENT);
    if (geteuid() != 0) {
        io_write_tensors(io_path("locked.safetensors"), W2X2, NULL, 16);
        assert_int_equal(chmod(io_path("locked.safetensors"), 0), 0);
        assert_refused(&env, io_path("locked.safetensors"), S24_ERROR_IO, "Permission denied",
                       "locked.safetensors");
    }
    io_end(&env);
}

/* A file with two tensors, one of them packed: what the damage tests start from. */
#define DAMAGED                                                                                    \
    "{\"__metadata__\":{\"sparse24.version\":\"1\",\"sparse24.packed\":\"{\\\"w\\\":[2,12]}\"},"   \
    "\"w.s24_values\":{\"dtype\":\"I8\",\"shape\":[2,6],\"data_offsets\":[8,20]},"                 \
    "\"w.s24_indices\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[20,24]},"               \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"

static size_t make_damaged(uint8_t *file)
{
    uint8_t data[24] = {0};
    memcpy(data + 20, "\x4d\x09\xe4\x08", 4);
    return io_make(file, DAMAGED, data, 24);
}

/* Opens the bytes as they would come from a file; returns 1 if they were accepted. */
static int survives(io_env *env, const uint8_t *data, size_t bytes)
{
    s24i_header header;
    const s24i_map map = {data, bytes};
    s24_status status = s24i_header_read(&header, env->ctx, "damaged", &map);
    if (status == S24_OK) status = s24i_header_fold_packed(&header, env->ctx, "damaged");
    if (status != S24_OK && status != S24_ERROR_FORMAT)
        fail_msg("%s: %s", s24_status_text(status), s24_ctx_error(env->ctx));
    if (status == S24_ERROR_FORMAT) assert_sentence(env->ctx, "damaged: ");
    s24i_header_free(&header, env->ctx);
    return status == S24_OK;
}

static void truncated_anywhere_is_refused(void **state)
{
    io_env env;
    uint8_t file[1024];
    size_t bytes = make_damaged(file);
    (void)state;
    io_begin(&env);
    assert_true(survives(&env, file, bytes));
    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *copy = malloc(cut ? cut : 1); /* of its own size: a sanitizer sees over-reads */
        assert_non_null(copy);
        memcpy(copy, file, cut);
        assert_false(survives(&env, copy, cut));
        free(copy);
        io_write_file(io_path("cut.safetensors"), file, cut);
        assert_refused(&env, io_path("cut.safetensors"), S24_ERROR_FORMAT, "cut.safetensors", ": ");
    }
    io_end(&env);
}

static void bit_flips_are_survived(void **state)
{
    io_env env;
    uint8_t file[1024];
    size_t bytes = make_damaged(file), accepted = 0, flips = 8 * (bytes - 24);
    (void)state;
    io_begin(&env);
    for (size_t bit = 0; bit < flips; bit++) {
        file[bit / 8] ^= (uint8_t)(1u << bit % 8);
        accepted += (size_t)survives(&env, file, bytes);
        file[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* Some flips only rename a tensor; most must be noticed. */
    assert_true(accepted < flips / 8);
    io_end(&env);
}

static void random_damage_is_survived(void **state)
{
    io_env env;
    uint8_t file[1024], damaged[1024];
    size_t bytes = make_damaged(file);
    uint64_t seed = 24;
    (void)state;
    io_begin(&env);
    for (int round = 0; round < 20000; round++) {
        memcpy(damaged, file, bytes);
        for (int i = 0; i <= round % 4; i++) {
            size_t from = test_random(&seed) % bytes, to = test_random(&seed) % bytes;
            if (round % 2)
                damaged[to] = (uint8_t)test_random(&seed);
            else
                memmove(damaged + to, damaged + from, bytes - (from > to ? from : to));
        }
        survives(&env, damaged, bytes);
    }
    io_end(&env);
}

/* Headers of every length modulo 8: in two of eight cases the floats happen to be aligned. */
static void unaligned_tensors_are_copied(void **state)
{
    io_env env;
    const uint8_t data[10] = {9, 0, 0, 128, 63, 0, 0, 0, 192, 7};
    char header[256] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                       "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]},"
                       "\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9,10]}}";
    (void)state;
    io_begin(&env);
    for (int padding = 0; padding < 8; padding++) {
        s24_checkpoint *checkpoint;
        const char *path = io_path("unaligned.safetensors");
        io_write_tensors(path, header, data, 10);
        assert_int_equal(s24_checkpoint_open(&checkpoint, env.ctx, path), S24_OK);
        const s24_tensor *b = s24_checkpoint_find(checkpoint, "b");
        assert_int_equal((uintptr_t)b->data % sizeof(float), 0);
        assert_true(((const float *)b->data)[0] == 1.0f && ((const float *)b->data)[1] == -2.0f);
        assert_int_equal(*(const uint8_t *)s24_checkpoint_find(checkpoint, "a")->data, 9);
        assert_int_equal(*(const uint8_t *)s24_checkpoint_find(checkpoint, "c")->data, 7);
        s24_checkpoint_close(checkpoint);
        strcat(header, " ");
    }
    assert_int_equal(env.log_lines, 6);
    io_end(&env);
}

static void every_allocation_may_fail(void **state)
{
    io_env env;
    uint8_t file[1024];
    s24_status status = S24_ERROR_MEMORY;
    (void)state;
    io_write_file(io_path("memory.safetensors"), file, make_damaged(file));
    for (int64_t n = 1; status != S24_OK; n++) {
        s24_checkpoint *checkpoint;
        io_begin(&env);
        env.memory.fail_at = env.memory.calls + n;
        status = s24_checkpoint_open(&checkpoint, env.ctx, io_path("memory.safetensors"));
        if (status == S24_OK) {
            assert_true(n > 4);
            s24_checkpoint_close(checkpoint);
        } else {
            assert_int_equal(status, S24_ERROR_MEMORY);
            assert_sentence(env.ctx, "out of memory");
            assert_null(checkpoint);
        }
        io_end(&env);
    }
}

static void opening_can_be_interrupted(void **state)
{
    io_env env;
    uint8_t file[1024];
    s24_checkpoint *checkpoint;
    (void)state;
    io_begin(&env);
    io_write_file(io_path("stop.safetensors"), file, make_damaged(file));
    env.stop_at = 1;
    assert_int_equal(s24_checkpoint_open(&checkpoint, env.ctx, io_path("stop.safetensors")),
                     S24_ERROR_INTERRUPTED);
    assert_null(checkpoint);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_tensor),
        cmocka_unit_test(legal_oddities),
        cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(refuses_a_hostile_name_without_repeating_it),
        cmocka_unit_test(shows_names_cut_between_characters),
        cmocka_unit_test(refuses_bad_lengths),
        cmocka_unit_test(refuses_depth_bombs),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(truncated_anywhere_is_refused),
        cmocka_unit_test(bit_flips_are_survived),
        cmocka_unit_test(random_damage_is_survived),
        cmocka_unit_test(unaligned_tensors_are_copied),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(opening_can_be_interrupted),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
