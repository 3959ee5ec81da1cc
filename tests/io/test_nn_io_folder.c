// SPDX-License-Identifier: Apache-2.0
/* Hugging Face folders read: shards and their index, config.json, the golden models. */
#include "nn_io_folder.h"

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

/* Index texts (the whole file) that must be refused next to the good shards. */
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
    assert_refused(&env, io_path("index"), S24_ERROR_IO, A2,
                   "no such file, but model.safetensors.index.json says");
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
        {"models/gpt2", "gpt2", "transformer.h.0.attn.c_attn.weight", 12},
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
        if (!golden_path(path, sizeof path, cases[i].folder)) IO_SKIP_WITHOUT(&env, path);
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

/* Each file of an index is one that is opened. */
static void refuses_an_index_of_too_many_files(void **state)
{
    enum { FILES = 4097 };
    io_env env;
    size_t used = 0;
    char *text = malloc(64 * FILES);
    (void)state;
    assert_non_null(text);
    io_begin(&env);
    assert_int_equal(mkdir(io_path("files"), 0700), 0);
    for (int i = 0; i < FILES; i++)
        used += (size_t)sprintf(text + used, "%s\"t%d\":\"%d.safetensors\"",
                                i ? "," : "{\"weight_map\":{", i, i);
    strcpy(text + used, "}}");
    io_write_text(in_folder("files", INDEX), text);
    assert_refused(&env, io_path("files"), S24_ERROR_FORMAT,
                   "\"weight_map\" names 4097 files, at most 4096 are expected", INDEX);
    free(text);
    io_end(&env);
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
        cmocka_unit_test(refuses_an_index_of_too_many_files),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
