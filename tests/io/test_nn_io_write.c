// SPDX-License-Identifier: Apache-2.0
/*
 * Writing one .safetensors file: its exact bytes, every dtype and shape there and back, misuse, and
 * that whatever goes wrong leaves neither a half-written file nor a temporary one.
 */
#include "nn_io.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const s24_tensor w2x2 = {.name = "w", .dtype = S24_F32, .rank = 2, .shape = {2, 2}};

/* The format's documentation example: 57 bytes of JSON, padded to 64. */
static void writes_exact_bytes(void **state)
{
    io_env env;
    const float values[4] = {1, 2, 3, 4};
    uint8_t expected[192];
    size_t bytes;
    (void)state;
    io_begin(&env);
    s24_writer *writer = begin_writer(&env, io_path("exact.safetensors"), 0, NULL);
    assert_ok(&env, s24_writer_declare(writer, &w2x2));
    assert_ok(&env, s24_writer_write(writer, "w", values));
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    char *got = io_read_file(io_path("exact.safetensors"), &bytes);
    assert_int_equal(bytes, sizeof expected);
    io_make(expected,
            "{\"__metadata__\":{\"sparse24.xxh3\":\"{\\\"header\\\":\\\"6f4808b6c8f810bd\\\","
            "\\\"tensors\\\":{\\\"w\\\":\\\"a82f522ec4510db4\\\"}}\"},"
            "\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}} ",
            values, 16);
    assert_memory_equal(got, expected, sizeof expected);
    free(got);
    io_end(&env);
}

static const s24_tensor mixed[] = {
    {.name = "bool", .dtype = S24_BOOL, .rank = 1, .shape = {3}},
    {.name = "scalar", .dtype = S24_F64, .rank = 0},
    {.name = "u8", .dtype = S24_U8, .rank = 1, .shape = {7}},
    {.name = "i8", .dtype = S24_I8, .rank = 2, .shape = {1, 5}},
    {.name = "e5m2", .dtype = S24_E5M2, .rank = 1, .shape = {2}},
    {.name = "e4m3", .dtype = S24_E4M3, .rank = 1, .shape = {3}},
    {.name = "i16", .dtype = S24_I16, .rank = 3, .shape = {1, 2, 3}},
    {.name = "u16", .dtype = S24_U16, .rank = 1, .shape = {1}},
    {.name = "f16", .dtype = S24_F16, .rank = 1, .shape = {5}},
    {.name = "bf16", .dtype = S24_BF16, .rank = 1, .shape = {3}},
    {.name = "i32", .dtype = S24_I32, .rank = 1, .shape = {2}},
    {.name = "u32", .dtype = S24_U32, .rank = 1, .shape = {1}},
    {.name = "f32", .dtype = S24_F32, .rank = 8, .shape = {1, 2, 1, 1, 3, 1, 1, 1}},
    {.name = "f32.b", .dtype = S24_F32, .rank = 1, .shape = {1}},
    {.name = "i64", .dtype = S24_I64, .rank = 1, .shape = {2}},
    {.name = "u64", .dtype = S24_U64, .rank = 1, .shape = {1}},
    {.name = "empty", .dtype = S24_F32, .rank = 3, .shape = {4, 0, 2}},
    {.name = "\xc3\xa4 \"quoted\"\n", .dtype = S24_U8, .rank = 0},
    {.name = "packed odd", .dtype = S24_F16, .rank = 2, .shape = {3, 12}, .packed = 1},
    {.name = "packed even", .dtype = S24_E4M3, .rank = 2, .shape = {2, 8}, .packed = 1},
};
enum { MIXED = sizeof mixed / sizeof *mixed };

static size_t bytes_of(const s24_tensor *tensor)
{
    size_t bytes = s24_dtype_bytes(tensor->dtype);
    for (int i = 0; i < tensor->rank; i++)
        bytes *= (size_t)tensor->shape[i];
    return tensor->packed ? bytes / 2 : bytes;
}

static void fill(uint8_t *data, const s24_tensor *tensor)
{
    for (size_t i = 0; i < bytes_of(tensor); i++)
        data[i] = (uint8_t)(tensor->name[0] + 31 * (int)i);
}

/* Legal codes; odd row lengths leave the last half byte zero. */
static void fill_codes(uint8_t *indices, const s24_tensor *tensor)
{
    static const uint8_t codes[] = {0x4, 0x8, 0x9, 0xC, 0xD, 0xE};
    int64_t stride = (tensor->shape[1] + 7) / 8, groups = tensor->shape[1] / 4;
    memset(indices, 0, (size_t)(stride * tensor->shape[0]));
    for (int64_t i = 0; i < groups * tensor->shape[0]; i++)
        indices[i / groups * stride + i % groups / 2] |=
            (uint8_t)(codes[i % 6] << 4 * (i % groups % 2));
}

static s24_status write_mixed(s24_writer *writer, int step)
{
    uint8_t data[256], indices[64];
    s24_status status = S24_OK;
    for (int i = 0; i < MIXED && status == S24_OK; i++)
        status = s24_writer_declare(writer, &mixed[i]);
    /* In an order that is neither the declared one nor the file's. */
    for (int i = 0; i < MIXED && status == S24_OK; i++) {
        const s24_tensor *tensor = &mixed[(i * step) % MIXED];
        fill(data, tensor);
        if (tensor->packed) fill_codes(indices, tensor);
        status = tensor->packed ? s24_writer_write_packed(writer, tensor->name, data, indices)
                                : s24_writer_write(writer, tensor->name, data);
    }
    return status == S24_OK ? s24_writer_commit(writer) : status;
}

static void check_mixed(io_env *env, const char *path)
{
    s24_checkpoint *checkpoint;
    assert_ok(env, s24_checkpoint_open(&checkpoint, env->ctx, path));
    assert_int_equal(s24_checkpoint_count(checkpoint), MIXED);
    for (int i = 0; i < MIXED; i++) {
        uint8_t data[256], indices[64];
        const s24_tensor *tensor = s24_checkpoint_find(checkpoint, mixed[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, mixed[i].dtype);
        assert_int_equal(tensor->rank, mixed[i].rank);
        assert_int_equal(tensor->packed, mixed[i].packed);
        assert_memory_equal(tensor->shape, mixed[i].shape, sizeof tensor->shape);
        fill(data, &mixed[i]);
        assert_memory_equal(tensor->packed ? tensor->values : tensor->data, data, bytes_of(tensor));
        if (!tensor->packed) {
            assert_int_equal(tensor->bytes, bytes_of(tensor));
            assert_null(tensor->values);
            continue;
        }
        size_t codes = (size_t)(tensor->shape[0] * ((tensor->shape[1] + 7) / 8));
        fill_codes(indices, tensor);
        assert_null(tensor->data);
        assert_int_equal(tensor->bytes, bytes_of(tensor) + codes);
        assert_memory_equal(tensor->indices, indices, codes);
    }
    s24_checkpoint_close(checkpoint);
}

static void every_dtype_there_and_back(void **state)
{
    io_env env;
    size_t bytes, again;
    (void)state;
    io_begin(&env);
    s24_writer *writer = begin_writer(&env, io_path("mixed.safetensors"), 0, NULL);
    assert_ok(&env, write_mixed(writer, 7));
    s24_writer_destroy(writer);
    check_mixed(&env, io_path("mixed.safetensors"));
    assert_int_equal(env.log_lines, 0); /* nothing was unaligned */
    /* The bytes do not depend on the order of the writes. */
    writer = begin_writer(&env, io_path("mixed2.safetensors"), 0, NULL);
    assert_ok(&env, write_mixed(writer, 3));
    s24_writer_destroy(writer);
    char *first = io_read_file(io_path("mixed.safetensors"), &bytes);
    char *second = io_read_file(io_path("mixed2.safetensors"), &again);
    assert_int_equal(bytes, again);
    assert_memory_equal(first, second, bytes);
    assert_non_null(strstr(first + 8, ",\"sparse24.version\":\"1\","
                                      "\"sparse24.packed\":\"{\\\"packed even\\\":[2,8],"
                                      "\\\"packed odd\\\":[3,12]}\"}"));
    free(first);
    free(second);
    io_end(&env);
}

static void no_tensors_is_a_file_too(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    (void)state;
    io_begin(&env);
    s24_writer *writer = begin_writer(&env, io_path("none.safetensors"), 0, NULL);
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, io_path("none.safetensors")));
    assert_int_equal(s24_checkpoint_count(checkpoint), 0);
    s24_checkpoint_close(checkpoint);
    io_end(&env);
}

/* What follows the hashes in a header of ours, and what stands there in one without them. */
static const char *after_hashes(const char *file)
{
    const char *end = strstr(file + 8, "}}\"");
    assert_non_null(end);
    return end + (strncmp(end, "}}\"},", 5) == 0 ? 5 : 4);
}
static const char *without_hashes(const char *file)
{
    static const char lead[] = "{\"__metadata__\":{";
    return file + 8 + (strncmp(file + 8, lead, sizeof lead - 1) == 0 ? sizeof lead - 1 : 1);
}

/* The rest of two files' headers, less the spaces at their ends, and their data are the same. */
static int same_file(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    uint64_t n, m;
    memcpy(&n, a, sizeof n);
    memcpy(&m, b, sizeof m);
    const char *x = without_hashes(a), *y = after_hashes(b);
    size_t left = (size_t)(a + 8 + n - x), right = (size_t)(b + 8 + m - y);
    while (left && x[left - 1] == ' ')
        left--;
    while (right && y[right - 1] == ' ')
        right--;
    return left == right && memcmp(x, y, left) == 0 && a_bytes - n == b_bytes - m &&
           memcmp(a + 8 + n, b + 8 + m, a_bytes - n - 8) == 0;
}

/* Files of the format's own writer, read and written again, must come out byte for byte, but for
   the hashes, and the spaces that align the data after them. */
static void golden_files_are_rewritten_byte_for_byte(void **state)
{
    static const char *const names[] = {
        "models/bert-qa/model.safetensors", "models/llama/model.safetensors",
        "models/gpt2/model.safetensors", "formats/torch_cutlass.safetensors",
        "formats/coo_csr_csc_bsr.safetensors"};
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1024];
        s24_checkpoint *in;
        size_t bytes, again;
        if (!golden_path(path, sizeof path, names[i])) IO_SKIP_WITHOUT(&env, path);
        assert_ok(&env, s24_checkpoint_open(&in, env.ctx, path));
        s24_writer *writer = begin_writer(&env, io_path("again.safetensors"), 1, in);
        for (int64_t t = 0; t < s24_checkpoint_count(in); t++)
            assert_ok(&env, s24_writer_declare(writer, s24_checkpoint_tensor(in, t)));
        for (int64_t t = 0; t < s24_checkpoint_count(in); t++) {
            const s24_tensor *tensor = s24_checkpoint_tensor(in, t);
            assert_ok(&env, s24_writer_write(writer, tensor->name, tensor->data));
        }
        assert_ok(&env, s24_writer_commit(writer));
        s24_writer_destroy(writer);
        s24_checkpoint_close(in);
        char *expected = io_read_file(path, &bytes);
        char *got = io_read_file(io_path("again.safetensors"), &again);
        if (!same_file(expected, bytes, got, again)) fail_msg("%s differs", names[i]);
        free(expected);
        free(got);
    }
    io_end(&env);
}

static void refuse_declare(io_env *env, s24_tensor tensor, s24_status status, const char *says)
{
    s24_writer *writer = begin_writer(env, io_path("misuse.safetensors"), 0, NULL);
    assert_ok(env, s24_writer_declare(writer, &w2x2));
    assert_int_equal(s24_writer_declare(writer, &tensor), status);
    assert_sentence(env->ctx, says);
    s24_writer_destroy(writer);
}

static void refuses_bad_declarations(void **state)
{
    io_env env;
    s24_tensor t = {.name = "t", .dtype = S24_F32, .rank = 2, .shape = {4, 8}};
    (void)state;
    io_begin(&env);
#define BAD(change, status, says)                                                                  \
    do {                                                                                           \
        s24_tensor bad = t;                                                                        \
        change;                                                                                    \
        refuse_declare(&env, bad, status, says);                                                   \
    } while (0)
    BAD(bad.name = NULL, S24_ERROR_ARGUMENT, "without a name");
    BAD(bad.name = "w", S24_ERROR_ARGUMENT, "\"w\" is declared twice");
    BAD((bad.name = "w", bad.packed = 1), S24_ERROR_ARGUMENT, "\"w\" is declared twice");
    BAD(bad.name = "__metadata__", S24_ERROR_ARGUMENT, "may not be named");
    BAD(bad.name = "x.s24_values", S24_ERROR_ARGUMENT, "may not be named");
    BAD(bad.name = "x.s24_indices", S24_ERROR_ARGUMENT, "may not be named");
    BAD(bad.name = "\xff", S24_ERROR_ARGUMENT, "not UTF-8");
    BAD(bad.dtype = S24_DTYPE_NONE, S24_ERROR_DTYPE, "\"t\" has a dtype (none)");
    BAD(bad.rank = 9, S24_ERROR_SHAPE, "rank 9");
    BAD(bad.rank = -1, S24_ERROR_SHAPE, "rank -1");
    BAD(bad.shape[0] = -4, S24_ERROR_SHAPE, "dimension 0 (-4)");
    BAD((bad.shape[0] = INT64_MAX / 2, bad.shape[1] = 4), S24_ERROR_SHAPE, "2^63");
    BAD((bad.packed = 1, bad.dtype = S24_F64), S24_ERROR_DTYPE, "packed tensor \"t\" is f64");
    BAD((bad.packed = 1, bad.shape[1] = 6), S24_ERROR_SHAPE, "multiple of 4");
    BAD((bad.packed = 1, bad.rank = 1), S24_ERROR_SHAPE, "multiple of 4");
    BAD((bad.packed = 1, bad.shape[0] = 0), S24_ERROR_SHAPE, "packed tensor \"t\"");
#undef BAD
    assert_int_equal(access(io_path("misuse.safetensors"), F_OK), -1);
    io_end(&env);
}

static void refuses_misuse(void **state)
{
    io_env env;
    s24_writer *writer;
    const s24_tensor packed = {
        .name = "p", .dtype = S24_I8, .rank = 2, .shape = {1, 4}, .packed = 1};
    const s24_tensor late = {.name = "late", .dtype = S24_I8};
    const float values[4] = {0};
    const uint8_t good = 0x0e, illegal = 0x05, unused = 0x4e;
    (void)state;
    io_begin(&env);
    writer = begin_writer(&env, io_path("order.safetensors"), 0, NULL);
    assert_int_equal(s24_writer_write(writer, "w", values), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "\"w\" was not declared");
    assert_ok(&env, s24_writer_declare(writer, &w2x2));
    assert_ok(&env, s24_writer_declare(writer, &packed));
    assert_int_equal(s24_writer_write(writer, "w", NULL), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_writer_write(writer, "p", values), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "\"p\" was not declared as a dense one");
    assert_int_equal(s24_writer_write_packed(writer, "w", values, &good), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "\"w\" was not declared as a packed one");
    assert_int_equal(s24_writer_write_packed(writer, "p", values, &illegal), S24_ERROR_FORMAT);
    assert_sentence(env.ctx, "byte 0x05 at row 0, column 0");
    assert_int_equal(s24_writer_write_packed(writer, "p", values, &unused), S24_ERROR_FORMAT);
    assert_int_equal(s24_writer_commit(writer), S24_ERROR_ARGUMENT);
    assert_ok(&env, s24_writer_write(writer, "w", values));
    assert_int_equal(s24_writer_write(writer, "w", values), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "\"w\" is written twice");
    assert_int_equal(s24_writer_declare(writer, &late), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "\"late\" is declared after the first write");
    assert_int_equal(s24_writer_commit(writer), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "was declared but not written");
    assert_ok(&env, s24_writer_write_packed(writer, "p", values, &good));
    assert_ok(&env, s24_writer_commit(writer));
    assert_int_equal(s24_writer_commit(writer), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_writer_write(writer, "w", values), S24_ERROR_ARGUMENT);
    s24_writer_destroy(writer);
    s24_writer_destroy(NULL);
    assert_int_equal(s24_writer_create(&writer, env.ctx, "", NULL), S24_ERROR_ARGUMENT);
    assert_null(writer);
    assert_int_equal(s24_writer_create(NULL, env.ctx, "x", NULL), S24_ERROR_ARGUMENT);
    io_end(&env);
}

static void an_existing_file_is_replaced_only_by_force(void **state)
{
    io_env env;
    s24_writer *writer;
    const float old_values[4] = {1, 2, 3, 4}, new_values[4] = {5, 6, 7, 8};
    char path[512];
    (void)state;
    strcpy(path, io_path("place/kept.safetensors"));
    io_begin(&env);
    assert_int_equal(mkdir(io_path("place"), 0700), 0);
    for (int force = 0; force < 2; force++) {
        writer = begin_writer(&env, path, force, NULL);
        assert_ok(&env, s24_writer_declare(writer, &w2x2));
        assert_ok(&env, s24_writer_write(writer, "w", force ? new_values : old_values));
        assert_int_equal(io_count_entries(io_path("place")),
                         force + 2); /* a hidden one next to it, and its lock */
        assert_ok(&env, s24_writer_commit(writer));
        s24_writer_destroy(writer);
        assert_int_equal(io_count_entries(io_path("place")), 1);
    }
    assert_int_equal(s24_writer_create(&writer, env.ctx, path, NULL), S24_ERROR_EXISTS);
    assert_sentence(env.ctx, "kept.safetensors exists");
    s24_writer_opts force = {.size = sizeof force, .force = 1};
    assert_int_equal(s24_writer_create(&writer, env.ctx, io_path("place"), &force),
                     S24_ERROR_EXISTS);
    assert_sentence(env.ctx, "is a folder, but a file is to be written");
    s24_checkpoint *checkpoint;
    assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, path));
    assert_memory_equal(s24_checkpoint_tensor(checkpoint, 0)->data, new_values, 16);
    /* Over its own mapped input, which must stay as it was until it is closed. */
    writer = begin_writer(&env, path, 1, checkpoint);
    assert_ok(&env, s24_writer_declare(writer, s24_checkpoint_tensor(checkpoint, 0)));
    assert_ok(&env, s24_writer_write(writer, "w", old_values));
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    assert_memory_equal(s24_checkpoint_tensor(checkpoint, 0)->data, new_values, 16);
    s24_checkpoint_close(checkpoint);
    io_end(&env);
}

/* A file that came into being between create and commit is not replaced either. */
static void a_file_that_appears_meanwhile_is_kept(void **state)
{
    io_env env;
    const float values[4] = {0};
    char path[512];
    (void)state;
    strcpy(path, io_path("race/x.safetensors"));
    io_begin(&env);
    assert_int_equal(mkdir(io_path("race"), 0700), 0);
    s24_writer *writer = begin_writer(&env, path, 0, NULL);
    assert_ok(&env, s24_writer_declare(writer, &w2x2));
    assert_ok(&env, s24_writer_write(writer, "w", values));
    io_write_text(path, "mine");
    assert_int_equal(s24_writer_commit(writer), S24_ERROR_EXISTS);
    s24_writer_destroy(writer);
    assert_int_equal(io_count_entries(io_path("race")), 1);
    size_t bytes;
    char *text = io_read_file(path, &bytes);
    assert_string_equal(text, "mine");
    free(text);
    io_end(&env);
}

static void destroy_without_commit_leaves_nothing(void **state)
{
    io_env env;
    const float values[4] = {0};
    (void)state;
    io_begin(&env);
    assert_int_equal(mkdir(io_path("nothing"), 0700), 0);
    s24_writer *writer = begin_writer(&env, io_path("nothing/x.safetensors"), 0, NULL);
    assert_ok(&env, s24_writer_declare(writer, &w2x2));
    assert_ok(&env, s24_writer_write(writer, "w", values));
    assert_int_equal(io_count_entries(io_path("nothing")), 2);
    s24_writer_destroy(writer);
    assert_int_equal(io_count_entries(io_path("nothing")), 0);
    io_end(&env);
}

static void no_folder_to_write_into(void **state)
{
    io_env env;
    const float values[4] = {0};
    (void)state;
    io_begin(&env);
    s24_writer *writer = begin_writer(&env, io_path("missing/x.safetensors"), 0, NULL);
    assert_ok(&env, s24_writer_declare(writer, &w2x2));
    assert_int_equal(s24_writer_write(writer, "w", values), S24_ERROR_IO);
    assert_sentence(env.ctx, "missing/x.safetensors: No such file");
    assert_int_equal(s24_writer_write(writer, "w", values), S24_ERROR_IO);
    s24_writer_destroy(writer);
    io_end(&env);
}

/* The disk is full after this many bytes; in a process of its own, since the limit is a
   process's. */
static void write_on_a_small_disk(rlim_t limit, int *is_written)
{
    io_env env;
    struct rlimit limits;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) {
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
        *is_written = WEXITSTATUS(status) == 0;
        return;
    }
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limits);
    limits.rlim_cur = limit;
    setrlimit(RLIMIT_FSIZE, &limits);
    io_begin(&env);
    s24_writer *writer = begin_writer(&env, io_path("disk/x.safetensors"), 0, NULL);
    s24_status status = write_mixed(writer, 1);
    s24_writer_destroy(writer);
    int is_clean = status == S24_OK ||
                   (status == S24_ERROR_IO && strstr(s24_ctx_error(env.ctx), "cannot write") &&
                    strstr(s24_ctx_error(env.ctx), "disk/x.safetensors: "));
    s24_ctx_destroy(env.ctx);
    _exit(env.memory.live ? 3 : !is_clean ? 2 : status == S24_OK ? 0 : 1);
}

static void a_full_disk_ends_cleanly(void **state)
{
    struct stat info;
    int is_written;
    (void)state;
    assert_int_equal(mkdir(io_path("disk"), 0700), 0);
    write_on_a_small_disk(1 << 20, &is_written);
    assert_true(is_written);
    assert_int_equal(stat(io_path("disk/x.safetensors"), &info), 0);
    io_remove(io_path("disk/x.safetensors"));
    for (rlim_t limit = 0; limit < (rlim_t)info.st_size; limit += 37) {
        write_on_a_small_disk(limit, &is_written);
        assert_false(is_written);
        assert_int_equal(io_count_entries(io_path("disk")), 0);
    }
}

static void every_allocation_may_fail(void **state)
{
    io_env env;
    s24_status status = S24_ERROR_MEMORY;
    (void)state;
    assert_int_equal(mkdir(io_path("memory"), 0700), 0);
    for (int64_t n = 1; status != S24_OK; n++) {
        s24_writer *writer;
        io_begin(&env);
        env.memory.fail_at = env.memory.calls + n;
        status = s24_writer_create(&writer, env.ctx, io_path("memory/x.safetensors"), NULL);
        if (status == S24_OK) status = write_mixed(writer, 7);
        s24_writer_destroy(writer);
        assert_true(status == S24_OK || status == S24_ERROR_MEMORY);
        if (status != S24_OK) assert_sentence(env.ctx, "out of memory");
        assert_int_equal(io_count_entries(io_path("memory")), status == S24_OK);
        io_end(&env);
    }
    io_begin(&env);
    check_mixed(&env, io_path("memory/x.safetensors"));
    io_end(&env);
}

static void writing_can_be_interrupted(void **state)
{
    io_env env;
    const s24_tensor large = {.name = "large", .dtype = S24_U8, .rank = 1, .shape = {70 << 20}};
    uint8_t *data = calloc(1, 70 << 20);
    (void)state;
    assert_non_null(data);
    io_begin(&env);
    assert_int_equal(mkdir(io_path("stop"), 0700), 0);
    s24_writer *writer = begin_writer(&env, io_path("stop/x.safetensors"), 0, NULL);
    assert_ok(&env, s24_writer_declare(writer, &large));
    env.stop_at = 2;
    assert_int_equal(s24_writer_write(writer, "large", data), S24_ERROR_INTERRUPTED);
    s24_writer_destroy(writer);
    assert_int_equal(io_count_entries(io_path("stop")), 0);
    free(data);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_exact_bytes),
        cmocka_unit_test(every_dtype_there_and_back),
        cmocka_unit_test(no_tensors_is_a_file_too),
        cmocka_unit_test(golden_files_are_rewritten_byte_for_byte),
        cmocka_unit_test(refuses_bad_declarations),
        cmocka_unit_test(refuses_misuse),
        cmocka_unit_test(an_existing_file_is_replaced_only_by_force),
        cmocka_unit_test(a_file_that_appears_meanwhile_is_kept),
        cmocka_unit_test(destroy_without_commit_leaves_nothing),
        cmocka_unit_test(no_folder_to_write_into),
        cmocka_unit_test(a_full_disk_ends_cleanly),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(writing_can_be_interrupted),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
