// SPDX-License-Identifier: Apache-2.0
/* Hugging Face folders written: side files, over another folder or over themselves, failures. */
#include "nn_io_folder.h"

/* Writes a model again, tensor by tensor. */
static s24_status copy_model(io_env *env, const char *from, const char *to, int force)
{
    s24_checkpoint *in = NULL;
    s24_writer *writer = NULL;
    s24_status status = s24_checkpoint_open(&in, env->ctx, from);
    s24_writer_opts opts = {.size = sizeof opts, .force = force, .model = in};
    if (status == S24_OK) status = s24_writer_create(&writer, env->ctx, to, &opts);
    for (int64_t i = 0; i < s24_checkpoint_count(in) && status == S24_OK; i++)
        status = s24_writer_declare(writer, s24_checkpoint_tensor(in, i));
    for (int64_t i = 0; i < s24_checkpoint_count(in) && status == S24_OK; i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(in, i);
        status = tensor->packed ? s24_writer_write_packed(writer, tensor->name, tensor->values,
                                                          tensor->indices)
                                : s24_writer_write(writer, tensor->name, tensor->data);
    }
    if (status == S24_OK) status = s24_writer_commit(writer);
    s24_writer_destroy(writer);
    s24_checkpoint_close(in);
    return status;
}

static void assert_same_file(const char *folder, const char *other, const char *file)
{
    size_t bytes, again;
    char *a = io_read_file(in_folder(folder, file), &bytes);
    char *b = io_read_file(in_folder(other, file), &again);
    assert_int_equal(bytes, again);
    assert_memory_equal(a, b, bytes);
    free(a);
    free(b);
}

static void add_side_files(const char *folder)
{
    static const char *const files[] = {"vocab.txt",
                                        "README.md",
                                        "model.onnx",
                                        "weights.gguf",
                                        ".gitattributes",
                                        "adapter.safetensors",
                                        "pytorch_model.bin",
                                        "1_Pooling/config.json",
                                        "2_Dense/model.safetensors",
                                        "onnx/model.onnx",
                                        ".git/HEAD",
                                        "pytorch_model-00001-of-00002.bin"};
    static const char *const folders[] = {"1_Pooling", "2_Dense", "onnx", ".git"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(in_folder(folder, folders[i]), 0700), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        io_write_text(in_folder(folder, files[i]), files[i]);
    assert_int_equal(symlink("vocab.txt", in_folder(folder, "linked.txt")), 0);
    assert_int_equal(symlink("nowhere", in_folder(folder, "broken.txt")), 0);
    assert_int_equal(symlink("..", in_folder(folder, "ring")), 0);
    assert_int_equal(mkfifo(in_folder(folder, "pipe"), 0600), 0);
}

static void writes_a_folder_with_its_side_files(void **state)
{
    io_env env;
    struct stat info;
    (void)state;
    io_begin(&env);
    assert_int_equal(mkdir(io_path("side"), 0700), 0);
    make_sharded("side/in");
    add_side_files("side/in");
    assert_ok(&env, copy_model(&env, io_path("side/in"), io_path("side/out/"), 0));
    check_sharded(&env, io_path("side/out"));
    assert_same_file("side/in", "side/out", "config.json");
    assert_same_file("side/in", "side/out", "vocab.txt");
    assert_same_file("side/in", "side/out", "1_Pooling/config.json");
    assert_same_file("side/in", "side/out", "2_Dense/model.safetensors");
    assert_int_equal(lstat(io_path("side/out/linked.txt"), &info), 0);
    assert_true(S_ISREG(info.st_mode));
    /* config vocab README linked; two shards and the index; 1_Pooling 2_Dense and an empty onnx */
    assert_int_equal(io_count_entries(io_path("side/out")), 10);
    assert_int_equal(io_count_entries(io_path("side")), 2);
    size_t bytes;
    char *index = io_read_file(in_folder("side/out", INDEX), &bytes);
    assert_string_equal(index,
                        "{\n  \"metadata\": {\n    \"total_size\": 9\n  },\n"
                        "  \"weight_map\": {\n    \"a\": \"" A1 "\",\n"
                        "    \"w.s24_indices\": \"" A2 "\",\n"
                        "    \"w.s24_values\": \"" A2 "\",\n    \"z\": \"" A2 "\"\n  }\n}\n");
    free(index);
    io_end(&env);
}

static void replaces_only_a_model_and_only_by_force(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    assert_int_equal(mkdir(io_path("force"), 0700), 0);
    make_sharded("force/in");
    make_sharded("force/out");
    io_write_text(io_path("force/out/old.txt"), "old");
    assert_int_equal(copy_model(&env, io_path("force/in"), io_path("force/out"), 0),
                     S24_ERROR_EXISTS);
    assert_sentence(env.ctx, "force/out exists");
    assert_int_equal(access(io_path("force/out/old.txt"), F_OK), 0);
    assert_ok(&env, copy_model(&env, io_path("force/in"), io_path("force/out"), 1));
    assert_int_equal(access(io_path("force/out/old.txt"), F_OK), -1);
    check_sharded(&env, io_path("force/out"));
    /* Not the folder of somebody's other things. */
    assert_int_equal(mkdir(io_path("force/home"), 0700), 0);
    assert_ok(&env, copy_model(&env, io_path("force/in"), io_path("force/home"), 1));
    io_remove(io_path("force/home"));
    assert_int_equal(mkdir(io_path("force/home"), 0700), 0);
    io_write_text(io_path("force/home/thesis.tex"), "years");
    assert_int_equal(copy_model(&env, io_path("force/in"), io_path("force/home"), 1),
                     S24_ERROR_EXISTS);
    assert_sentence(env.ctx, "is not a model folder");
    assert_int_equal(access(io_path("force/home/thesis.tex"), F_OK), 0);
    /* Not a repository, not a file, not the folder above the model. */
    assert_int_equal(mkdir(io_path("force/out/.git"), 0700), 0);
    assert_int_equal(copy_model(&env, io_path("force/in"), io_path("force/out"), 1),
                     S24_ERROR_EXISTS);
    assert_sentence(env.ctx, "is a git repository");
    assert_int_equal(copy_model(&env, io_path("force/in"), io_path("force/home/thesis.tex"), 1),
                     S24_ERROR_EXISTS);
    assert_sentence(env.ctx, "is a file, but a folder is to be written");
    io_write_text(io_path("force/model.safetensors"), "");
    assert_int_equal(copy_model(&env, io_path("force/in"), io_path("force"), 1), S24_ERROR_EXISTS);
    assert_sentence(env.ctx, "holds the model that is read");
    assert_int_equal(io_count_entries(io_path("force")), 4);
    io_end(&env);
}

static void a_model_can_replace_itself(void **state)
{
    io_env env;
    char here[1024];
    (void)state;
    io_begin(&env);
    assert_int_equal(mkdir(io_path("self"), 0700), 0);
    make_sharded("self/model");
    assert_int_equal(symlink("model", io_path("self/link")), 0);
    assert_ok(&env, copy_model(&env, io_path("self/model"), io_path("self/model"), 1));
    check_sharded(&env, io_path("self/model"));
    assert_ok(&env, copy_model(&env, io_path("self/link"), io_path("self/link"), 1));
    check_sharded(&env, io_path("self/link"));
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(io_path("self/model")), 0);
    assert_ok(&env, copy_model(&env, ".", ".", 1));
    assert_int_equal(chdir(here), 0);
    check_sharded(&env, io_path("self/model"));
    assert_int_equal(io_count_entries(io_path("self")), 2);
    assert_int_equal(io_count_entries(io_path("self/model")), 4);
    io_end(&env);
}

static void refuses_a_file_that_the_model_has_not(void **state)
{
    io_env env;
    s24_checkpoint *in;
    s24_writer *writer;
    const s24_tensor stray = {.name = "x", .dtype = S24_U8, .file = "other.safetensors"};
    (void)state;
    io_begin(&env);
    make_sharded("stray");
    assert_ok(&env, s24_checkpoint_open(&in, env.ctx, io_path("stray")));
    s24_writer_opts opts = {.size = sizeof opts, .model = in};
    assert_ok(&env, s24_writer_create(&writer, env.ctx, io_path("stray-out"), &opts));
    assert_int_equal(s24_writer_declare(writer, &stray), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "\"x\" is declared in other.safetensors");
    s24_writer_destroy(writer);
    s24_checkpoint_close(in);
    io_end(&env);
}

/* w comes out dense, b has no file named, and nothing goes into the second shard. */
static void a_shard_without_tensors_is_not_written(void **state)
{
    io_env env;
    s24_checkpoint *in, *out;
    s24_writer *writer;
    const s24_tensor b = {.name = "b", .dtype = S24_U8};
    const s24_tensor w = {.name = "w", .dtype = S24_I8, .rank = 2, .shape = {1, 4}, .file = A1};
    (void)state;
    io_begin(&env);
    make_sharded("part");
    assert_ok(&env, s24_checkpoint_open(&in, env.ctx, io_path("part")));
    s24_writer_opts opts = {.size = sizeof opts, .model = in};
    assert_ok(&env, s24_writer_create(&writer, env.ctx, io_path("part-out"), &opts));
    assert_ok(&env, s24_writer_declare(writer, &w));
    assert_ok(&env, s24_writer_declare(writer, &b));
    assert_ok(&env, s24_writer_write(writer, "b", "\1"));
    assert_ok(&env, s24_writer_write(writer, "w", "\0\1\2\0"));
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    s24_checkpoint_close(in);
    assert_int_equal(access(in_folder("part-out", A2), F_OK), -1);
    assert_ok(&env, s24_checkpoint_open(&out, env.ctx, io_path("part-out")));
    assert_int_equal(s24_checkpoint_count(out), 2);
    assert_string_equal(s24_checkpoint_find(out, "b")->file, A1);
    assert_memory_equal(s24_checkpoint_find(out, "w")->data, "\0\1\2\0", 4);
    assert_string_equal(s24_checkpoint_metadata(out, "format"), "pt");
    s24_checkpoint_close(out);
    io_end(&env);
}

/* A file without packed tensors carries neither of our two keys, whatever its model had. */
static void unpacking_drops_the_description(void **state)
{
    io_env env;
    s24_checkpoint *in, *out;
    s24_writer *writer;
    const s24_tensor w = {.name = "w", .dtype = S24_I8, .rank = 2, .shape = {1, 4}};
    (void)state;
    io_begin(&env);
    make_sharded("unpack");
    assert_ok(&env, s24_checkpoint_open(&in, env.ctx, in_folder("unpack", A2)));
    assert_string_equal(s24_checkpoint_metadata(in, "sparse24.version"), "1");
    s24_writer_opts opts = {.size = sizeof opts, .model = in};
    assert_ok(&env, s24_writer_create(&writer, env.ctx, io_path("unpacked.safetensors"), &opts));
    assert_ok(&env, s24_writer_declare(writer, &w));
    assert_ok(&env, s24_writer_write(writer, "w", "\0\0\5\6"));
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    s24_checkpoint_close(in);
    assert_ok(&env, s24_checkpoint_open(&out, env.ctx, io_path("unpacked.safetensors")));
    assert_string_equal(s24_checkpoint_metadata(out, "format"), "pt");
    assert_null(s24_checkpoint_metadata(out, "sparse24.version"));
    assert_null(s24_checkpoint_metadata(out, "sparse24.packed"));
    s24_checkpoint_close(out);
    io_end(&env);
}

/* Nothing is left behind, and an old output stays whole, wherever memory ends or a caller stops.
   All memory is the context's, what JSON takes too. */
static void failures_keep_the_old_folder(void **state)
{
    io_env env;
    s24_status status;
    (void)state;
    assert_int_equal(mkdir(io_path("fail"), 0700), 0);
    make_sharded("fail/in");
    make_sharded("fail/out");
    for (int is_stop = 0; is_stop < 2; is_stop++) {
        status = S24_ERROR_MEMORY;
        for (int64_t n = 1; status != S24_OK; n++) {
            io_begin(&env);
            if (is_stop)
                env.stop_at = n;
            else
                env.memory.fail_at = env.memory.calls + n;
            status = copy_model(&env, io_path("fail/in"), io_path("fail/out"), 1);
            assert_true(status == S24_OK ||
                        status == (is_stop ? S24_ERROR_INTERRUPTED : S24_ERROR_MEMORY));
            io_end(&env);
            assert_int_equal(io_count_entries(io_path("fail")), 2);
            io_begin(&env);
            check_sharded(&env, io_path("fail/out"));
            io_end(&env);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_a_folder_with_its_side_files),
        cmocka_unit_test(replaces_only_a_model_and_only_by_force),
        cmocka_unit_test(a_model_can_replace_itself),
        cmocka_unit_test(refuses_a_file_that_the_model_has_not),
        cmocka_unit_test(a_shard_without_tensors_is_not_written),
        cmocka_unit_test(unpacking_drops_the_description),
        cmocka_unit_test(failures_keep_the_old_folder),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
