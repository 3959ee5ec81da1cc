// SPDX-License-Identifier: Apache-2.0
/* A walk over a model's tensors holds the pages of few of them. */
#include "nn_io.h"

enum { TENSORS = 4, ROWS = 2048, COLS = 2048, BYTES = ROWS * COLS * 4 };

/* Bytes of the file that are in this process's memory; −1: the system does not say. */
static int64_t held(const char *path)
{
    char line[1024];
    int64_t bytes = 0;
    int is_its = 0;
    long long kilobytes;
    FILE *file = fopen("/proc/self/smaps", "r");
    if (!file) return -1;
    while (fgets(line, sizeof line, file)) {
        if (strchr(line, '-') && strchr(line, ':') > strchr(line, ' '))
            is_its = strstr(line, path) != NULL;
        if (is_its && sscanf(line, "Rss: %lld kB", &kilobytes) == 1) bytes += 1024 * kilobytes;
    }
    fclose(file);
    return bytes;
}

static s24_tensor named(const char *name)
{
    return (s24_tensor){.name = name, .dtype = S24_F32, .rank = 2, .shape = {ROWS, COLS}};
}

static void make_model(io_env *env, const char *path)
{
    static const char *const names[TENSORS] = {"a", "b", "c", "d"};
    float *values = calloc(ROWS * COLS, sizeof *values);
    assert_non_null(values);
    s24_writer *writer = begin_writer(env, path, 0, NULL);
    for (int i = 0; i < TENSORS; i++) {
        const s24_tensor tensor = named(names[i]);
        assert_ok(env, s24_writer_declare(writer, &tensor));
    }
    for (int i = 0; i < TENSORS; i++)
        assert_ok(env, s24_writer_write(writer, names[i], values));
    assert_ok(env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    free(values);
}

static void pages_are_let_go(void **state)
{
    io_env env;
    s24_checkpoint *in;
    char path[512];
    (void)state;
    strcpy(path, io_path("large.safetensors"));
    io_begin(&env);
    make_model(&env, path);
    assert_ok(&env, s24_checkpoint_open(&in, env.ctx, path));
    s24_writer *writer = begin_writer(&env, io_path("copy.safetensors"), 0, in);
    for (int i = 0; i < TENSORS; i++)
        assert_ok(&env, s24_writer_declare(writer, s24_checkpoint_tensor(in, i)));
    for (int i = 0; i < TENSORS; i++) {
        assert_ok(&env, s24_writer_copy(writer, s24_checkpoint_tensor(in, i)));
        assert_true(held(path) < BYTES / 2);
    }
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    assert_ok(&env, s24_checkpoint_verify(NULL, env.ctx, in, 1));
    assert_true(held(path) < BYTES / 2);
    /* They come again. */
    const float *last = s24_checkpoint_tensor(in, TENSORS - 1)->data;
    assert_true(last[ROWS * COLS - 1] == 0);
    s24_checkpoint_close(in);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pages_are_let_go)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
