// SPDX-License-Identifier: Apache-2.0
/*
 * Hugging Face folders: shards and their index, side files, and folders written anew, over another
 * or over themselves.
 */
#include "nn_io.h"

#define A1    "model-00001-of-00002.safetensors"
#define A2    "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"

static const char *in_folder(const char *folder, const char *file)
{
    char name[256];
    snprintf(name, sizeof name, "%s/%s", folder, file);
    return io_path(name);
}

static void write_index(const char *folder, const char *weight_map)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":1},\"weight_map\":%s}", weight_map);
    io_write_text(in_folder(folder, INDEX), text);
}

#define GOOD_MAP                                                                                   \
    "{\"a\":\"" A1 "\",\"w.s24_indices\":\"" A2 "\",\"w.s24_values\":\"" A2 "\",\"z\":\"" A2 "\"}"

/* a in the first shard; z and the packed w [1, 4] in the second. */
static void make_sharded(const char *folder)
{
    const uint8_t second[7] = {1, 2, 3, 4, 5, 6, 0x0e};
    assert_int_equal(mkdir(io_path(folder), 0700), 0);
    io_write_tensors(in_folder(folder, A1),
                     "{\"__metadata__\":{\"format\":\"pt\"},"
                     "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                     NULL, 2);
    io_write_tensors(in_folder(folder, A2),
                     "{\"__metadata__\":{\"format\":\"pt\",\"sparse24.version\":\"1\","
                     "\"sparse24.packed\":\"{\\\"w\\\":[1,4]}\"},"
                     "\"z\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                     "\"w.s24_values\":{\"dtype\":\"I8\",\"shape\":[1,2],\"data_offsets\":[4,6]},"
                     "\"w.s24_indices\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[6,7]}}",
                     second, 7);
    write_index(folder, GOOD_MAP);
    io_write_text(in_folder(folder, "config.json"), "{\"model_type\":\"bert\"}");
}

static void check_sharded(io_env *env, const char *path)
{
    s24_checkpoint *checkpoint;
    assert_ok(env, s24_checkpoint_open(&checkpoint, env->ctx, path));
    assert_int_equal(s24_checkpoint_count(checkpoint), 3);
    assert_string_equal(s24_checkpoint_tensor(checkpoint, 0)->name, "a");
    assert_string_equal(s24_checkpoint_tensor(checkpoint, 0)->file, A1);
    assert_string_equal(s24_checkpoint_tensor(checkpoint, 1)->name, "w");
    assert_string_equal(s24_checkpoint_tensor(checkpoint, 1)->file, A2);
    assert_int_equal(s24_checkpoint_tensor(checkpoint, 1)->packed, 1);
    assert_string_equal(s24_checkpoint_tensor(checkpoint, 2)->name, "z");
    assert_memory_equal(s24_checkpoint_tensor(checkpoint, 2)->data, "\1\2\3\4", 4);
    assert_string_equal(s24_checkpoint_model_type(checkpoint), "bert");
    assert_string_equal(s24_checkpoint_metadata(checkpoint, "format"), "pt");
    assert_non_null(s24_checkpoint_folder(checkpoint));
    s24_checkpoint_close(checkpoint);
}

static void reads_shards(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    make_sharded("shards");
    check_sharded(&env, io_path("shards"));
    check_sharded(&env, in_folder("shards", ""));
    check_sharded(&env, in_folder("shards", INDEX));
    /* From inside the folder, by a bare name. */
    char here[1024];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(io_path("shards")), 0);
    check_sharded(&env, INDEX);
    check_sharded(&env, ".");
    assert_int_equal(chdir(here), 0);
    io_end(&env);
}

static void refuses_a_folder_without_a_model(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    assert_int_equal(mkdir(io_path("empty"), 0700), 0);
    assert_refused(&env, io_path("empty"), S24_ERROR_IO, "neither model.safetensors nor " INDEX,
                   "empty");
    assert_int_equal(mkdir(in_folder("empty", "model.safetensors"), 0700), 0);
    assert_refused(&env, io_path("empty"), S24_ERROR_IO, "it is a folder", "model.safetensors");
    io_end(&env);
}

/* Index texts (the whole file) that must be refused beside the good shards. */
static void refuses_a_bad_index(void **state)
{
    static const struct {
        const char *weight_map, *says;
    } cases[] = {
        {"{}", "\"weight_map\" is not an object"},
        {"[]", "\"weight_map\" is not an object"},
        {"null", "\"weight_map\" is not an object"},
        {"{\"a\":1}", "the file of tensor \"a\" is not a string"},
        {"{\"a\":\"../" A1 "\"}", "\"a\" is said to be in \"../" A1 "\", expected a .safetensors"},
        {"{\"a\":\"/etc/x.safetensors\"}", "of the same folder"},
        {"{\"a\":\"sub\\\\x.safetensors\"}", "of the same folder"},
        {"{\"a\":\"..\"}", "of the same folder"},
        {"{\"a\":\"\"}", "of the same folder"},
        {"{\"a\":\"config.json\"}", "of the same folder"},
        {"{\"a\":\"" A1 "\",\"a\":\"" A2 "\"}", "duplicate object key"},
        {"{\"a\":\"" A1 "\",\"b\":\"" A1 "\"}",
         "\"b\" is said to be in " A1 ", which does not have it"},
        {"{\"a\":\"" A2 "\",\"z\":\"" A1 "\",\"w.s24_values\":\"" A2 "\",\"w.s24_indices\":\"" A2
         "\"}",
         "\"a\" is said to be in " A2 ", but is in " A1},
        {"{\"a\":\"" A1 "\",\"z\":\"" A2 "\"}", "\"w\" of " A2 " is not in the \"weight_map\""},
        {"{\"a\":\"" A1 "\",\"z\":\"" A2 "\",\"w.s24_values\":\"" A2 "\"}",
         "\"w\" of " A2 " is not in"},
        {"{\"a\":\"" A1 "\",\"z\":\"" A2 "\",\"w\":\"" A2 "\"}",
         "\"w\" is said to be in " A2 ", which does not"},
        {"{\"a\":\"" A1 "\",\"w.s24_indices\":\"" A2 "\",\"w.s24_values\":\"" A2 "\"}",
         "\"z\" of " A2 " is not in the \"weight_map\""},
    };
    io_env env;
    (void)state;
    io_begin(&env);
    make_sharded("index");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_index("index", cases[i].weight_map);
        assert_refused(&env, io_path("index"), S24_ERROR_FORMAT, cases[i].says, INDEX);
    }
    io_write_text(in_folder("index", INDEX), "{");
    assert_refused(&env, io_path("index"), S24_ERROR_FORMAT, "JSON is expected", INDEX);
    io_write_text(in_folder("index", INDEX), "");
    assert_refused(&env, io_path("index"), S24_ERROR_FORMAT, "JSON is expected", INDEX);
    write_index("index", GOOD_MAP);
    io_remove(in_folder("index", A2));
    assert_refused(&env, io_path("index"), S24_ERROR_IO, A2, "No such file");
    io_end(&env);
}

static void refuses_a_name_in_two_shards(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    make_sharded("twice");
    io_write_tensors(in_folder("twice", A1),
                     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                     "\"z\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
                     NULL, 3);
    assert_refused(&env, io_path("twice"), S24_ERROR_FORMAT, "tensor \"z\" is in two files", A1);
    io_end(&env);
}

static void refuses_a_bad_config(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    make_sharded("config");
    io_write_text(in_folder("config", "config.json"), "{\"model_type\":7}");
    assert_refused(&env, io_path("config"), S24_ERROR_FORMAT, "config.json",
                   "\"model_type\" is not a string");
    io_write_text(in_folder("config", "config.json"), "{\"model_type\":");
    assert_refused(&env, io_path("config"), S24_ERROR_FORMAT, "config.json", "JSON is expected");
    io_end(&env);
}

static void opens_the_golden_models(void **state)
{
    static const struct {
        const char *folder, *type, *tensor;
        int selected;
    } cases[] = {
        {"models/bert-qa", "bert", "bert.encoder.layer.0.output.dense.weight", 18},
        {"models/gpt2", "gpt2", "transformer.h.0.attn.c_attn.weight", 0},
        {"models/llama", "llama", "model.layers.0.mlp.down_proj.weight", 21},
        {"models/vit", "vit", "vit.encoder.layer.0.output.dense.weight", 18},
    };
    io_env env;
    (void)state;
    io_begin(&env);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[1024];
        s24_checkpoint *checkpoint;
        int selected = 0;
        if (!golden_path(path, sizeof path, cases[i].folder)) SKIP_WITHOUT(path);
        assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, path));
        assert_string_equal(s24_checkpoint_model_type(checkpoint), cases[i].type);
        assert_non_null(s24_checkpoint_find(checkpoint, cases[i].tensor));
        for (int64_t t = 0; t < s24_checkpoint_count(checkpoint); t++)
            selected += s24_tensor_is_selected(s24_checkpoint_tensor(checkpoint, t), NULL, NULL);
        assert_int_equal(selected, cases[i].selected);
        s24_checkpoint_close(checkpoint);
    }
    io_end(&env);
}

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

/* Nothing is left behind, and an old output stays whole, wherever memory ends or a caller stops. */
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

/* jansson's memory is not the context's and may end too. jansson cannot always tell that from bad
   JSON, so the status may be another; but nothing leaks, and an output that comes out is right. */
static void json_memory_may_end(void **state)
{
    io_env env;
    int is_through = 0, failures = 0;
    (void)state;
    assert_int_equal(mkdir(io_path("json"), 0700), 0);
    make_sharded("json/in");
    io_begin(&env);
    assert_ok(&env, copy_model(&env, io_path("json/in"), io_path("json/expected"), 0));
    io_end(&env);
    for (int64_t n = 1; !is_through; n++) {
        io_begin(&env);
        json_set_alloc_funcs(shaky_json_alloc, shaky_json_free);
        shaky_json = (shaky){.fail_at = n};
        s24_status status = copy_model(&env, io_path("json/in"), io_path("json/out"), 0);
        json_set_alloc_funcs(malloc, free);
        is_through = shaky_json.calls < n;
        assert_int_equal(shaky_json.live, 0);
        assert_int_equal(io_count_entries(io_path("json")), status == S24_OK ? 3 : 2);
        if (status == S24_OK) {
            assert_same_file("json/expected", "json/out", A1);
            assert_same_file("json/expected", "json/out", A2);
            assert_same_file("json/expected", "json/out", INDEX);
            io_remove(io_path("json/out"));
        } else {
            assert_true(*s24_ctx_error(env.ctx) != '\0');
            failures++;
        }
        io_end(&env);
    }
    assert_true(failures > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_shards),
        cmocka_unit_test(refuses_a_folder_without_a_model),
        cmocka_unit_test(refuses_a_bad_index),
        cmocka_unit_test(refuses_a_name_in_two_shards),
        cmocka_unit_test(refuses_a_bad_config),
        cmocka_unit_test(opens_the_golden_models),
        cmocka_unit_test(writes_a_folder_with_its_side_files),
        cmocka_unit_test(replaces_only_a_model_and_only_by_force),
        cmocka_unit_test(a_model_can_replace_itself),
        cmocka_unit_test(refuses_a_file_that_the_model_has_not),
        cmocka_unit_test(a_shard_without_tensors_is_not_written),
        cmocka_unit_test(unpacking_drops_the_description),
        cmocka_unit_test(failures_keep_the_old_folder),
        cmocka_unit_test(json_memory_may_end),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
