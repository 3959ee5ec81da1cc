// SPDX-License-Identifier: Apache-2.0
/* A key of the metadata that a writer is told to write: as it was told, in place of the model's. */
#include "nn_io.h"

static const s24_tensor w2x2 = {.name = "w", .dtype = S24_F32, .rank = 2, .shape = {2, 2}};

static void a_key_of_the_metadata_is_set(void **state)
{
    io_env env;
    s24_checkpoint *checkpoint;
    const float values[4] = {1, 2, 3, 4};
    char path[512];
    (void)state;
    strcpy(path, io_path("noted.safetensors"));
    io_begin(&env);
    s24_writer *writer = begin_writer(&env, path, 0, NULL);
    assert_ok(&env, s24_writer_declare(writer, &w2x2));
    assert_int_equal(s24_writer_set_metadata(writer, NULL, "1"), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "key is NULL");
    assert_int_equal(s24_writer_set_metadata(writer, "a", NULL), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_writer_set_metadata(writer, "sparse24.packed", "1"), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "\"sparse24.packed\" cannot be set, it is the writer's own");
    assert_ok(&env, s24_writer_set_metadata(writer, "a", "first"));
    assert_ok(&env, s24_writer_set_metadata(writer, "a", "\"second\""));
    assert_int_equal(s24_writer_set_metadata(writer, "b", "1"), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "\"b\" cannot be set next to a");
    assert_ok(&env, s24_writer_write(writer, "w", values));
    assert_int_equal(s24_writer_set_metadata(writer, "a", "late"), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "\"a\" is set after the first write");
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    assert_int_equal(s24_writer_set_metadata(NULL, "a", "1"), S24_ERROR_ARGUMENT);
    /* What comes from a model stays, unless it is set anew. */
    for (int anew = 0; anew < 2; anew++) {
        assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, path));
        assert_string_equal(s24_checkpoint_metadata(checkpoint, "a"), "\"second\"");
        writer = begin_writer(&env, path, 1, checkpoint);
        assert_ok(&env, s24_writer_declare(writer, s24_checkpoint_tensor(checkpoint, 0)));
        if (anew) assert_ok(&env, s24_writer_set_metadata(writer, "a", "third"));
        assert_ok(&env, s24_writer_write(writer, "w", values));
        assert_ok(&env, s24_writer_commit(writer));
        s24_writer_destroy(writer);
        s24_checkpoint_close(checkpoint);
    }
    assert_ok(&env, s24_checkpoint_open(&checkpoint, env.ctx, path));
    assert_string_equal(s24_checkpoint_metadata(checkpoint, "a"), "third");
    s24_checkpoint_close(checkpoint);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_key_of_the_metadata_is_set)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
