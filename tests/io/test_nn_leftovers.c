// SPDX-License-Identifier: Apache-2.0
/*
 * What killed writers leave is removed by the next that writes there, and nothing else is: not what
 * a living writer is at, nor what only looks like ours.
 */
#include "nn_io.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEADER "{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

static void make_model(const char *folder)
{
    char path[256];
    assert_int_equal(mkdir(io_path(folder), 0700), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    io_write_tensors(io_path(path), HEADER, NULL, 4);
    snprintf(path, sizeof path, "%s/config.json", folder);
    io_write_text(io_path(path), "{\"model_type\":\"bert\"}");
}

/* Writes the tensor; a folder where the model is one. */
static s24_writer *write_tensor(io_env *env, const char *path, const s24_checkpoint *model)
{
    s24_writer *writer = begin_writer(env, path, 1, model);
    const s24_tensor tensor = {.name = "w", .dtype = S24_U8, .rank = 1, .shape = {4}};
    assert_ok(env, s24_writer_declare(writer, &tensor));
    assert_ok(env, s24_writer_write(writer, "w", "\1\2\3\4"));
    return writer;
}

/* A process that is writing, with everything but the commit done. */
static pid_t start_writer(const char *path, const char *model)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        io_env env;
        s24_checkpoint *in = NULL;
        io_begin(&env);
        if (model) assert_ok(&env, s24_checkpoint_open(&in, env.ctx, model));
        write_tensor(&env, path, in);
        if (write(ready[1], "r", 1) != 1) _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static void stop_writer(pid_t child)
{
    int status;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* One whole run that writes in the folder; how many lines it logged. */
static int write_once(const char *path)
{
    io_env env;
    io_begin(&env);
    s24_writer *writer = write_tensor(&env, path, NULL);
    assert_ok(&env, s24_writer_commit(writer));
    s24_writer_destroy(writer);
    const int lines = env.log_lines;
    io_end(&env);
    return lines;
}

static void killed_writers_are_cleaned_up_after(void **state)
{
    (void)state;
    assert_int_equal(mkdir(io_path("killed"), 0700), 0);
    make_model("killed/model");
    for (int is_folder = 0; is_folder < 2; is_folder++) {
        const pid_t child =
            start_writer(io_path("killed/out"), is_folder ? io_path("killed/model") : NULL);
        /* The model; the temporary and its lock. */
        assert_int_equal(io_count_entries(io_path("killed")), 3);
        assert_int_equal(write_once(io_path("killed/other")), 0);
        assert_int_equal(io_count_entries(io_path("killed")), 4); /* it lives, and all stays */
        stop_writer(child);
        assert_int_equal(io_count_entries(io_path("killed")), 4);
        assert_int_equal(write_once(io_path("killed/other")), 1);
        assert_int_equal(io_count_entries(io_path("killed")), 2);
        io_remove(io_path("killed/other"));
    }
}

/* Two that were killed, and a living one between them. */
static void only_the_dead_are_swept(void **state)
{
    (void)state;
    assert_int_equal(mkdir(io_path("some"), 0700), 0);
    const pid_t first = start_writer(io_path("some/a"), NULL);
    const pid_t second = start_writer(io_path("some/b"), NULL);
    const pid_t third = start_writer(io_path("some/c"), NULL);
    stop_writer(first);
    stop_writer(third);
    assert_int_equal(write_once(io_path("some/d")), 2);
    assert_int_equal(io_count_entries(io_path("some")), 3);
    stop_writer(second);
    assert_int_equal(write_once(io_path("some/d")), 1);
    assert_int_equal(io_count_entries(io_path("some")), 1);
}

#define NAME ".sparse24-0123456789abcdef"

static void what_looks_like_ours_stays(void **state)
{
    (void)state;
    assert_int_equal(mkdir(io_path("alike"), 0700), 0);
    assert_int_equal(mkdir(io_path("alike/" NAME), 0700), 0);
    io_write_text(io_path("alike/" NAME "/mine"), "kept");
    io_write_text(io_path("alike/" NAME ".lock"), "");
    assert_int_equal(write_once(io_path("alike/out")), 0);
    io_write_text(io_path("alike/" NAME ".lock"), "my notes\n");
    assert_int_equal(write_once(io_path("alike/out")), 0);
    /* The lock of another one. */
    io_write_text(io_path("alike/" NAME ".lock"),
                  "sparse24 writes .sparse24-0123456789abcdee\non \n");
    assert_int_equal(write_once(io_path("alike/out")), 0);
    /* Names that are nearly right, with what would be right in them. */
    io_write_text(io_path("alike/.sparse24-0123456789ABCDEF.lock"),
                  "sparse24 writes " NAME "\non \n");
    io_write_text(io_path("alike/" NAME ".lock.txt"), "sparse24 writes " NAME "\non \n");
    io_remove(io_path("alike/" NAME ".lock"));
    assert_int_equal(symlink("elsewhere", io_path("alike/" NAME ".lock")), 0);
    io_write_text(io_path("alike/elsewhere"), "sparse24 writes " NAME "\non \n");
    assert_int_equal(write_once(io_path("alike/out")), 0);
    assert_int_equal(access(io_path("alike/" NAME "/mine"), F_OK), 0);
    assert_int_equal(io_count_entries(io_path("alike")), 6);
}

/* A lock whose writer was killed before it could say whose it is has no temporary. */
static void a_lock_that_says_nothing_goes(void **state)
{
    (void)state;
    assert_int_equal(mkdir(io_path("mute"), 0700), 0);
    io_write_text(io_path("mute/" NAME ".lock"), "");
    assert_int_equal(write_once(io_path("mute/out")), 0);
    assert_int_equal(io_count_entries(io_path("mute")), 1);
}

/* A lock's file that is right but held, then let go. */
static void a_held_lock_is_believed(void **state)
{
    char boot[64] = "", text[256];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    (void)state;
    assert_non_null(file);
    assert_non_null(fgets(boot, sizeof boot, file));
    fclose(file);
    snprintf(text, sizeof text, "sparse24 writes " NAME "\non %s", boot);
    assert_int_equal(mkdir(io_path("held"), 0700), 0);
    assert_int_equal(mkdir(io_path("held/" NAME), 0700), 0);
    io_write_text(io_path("held/" NAME "/model.safetensors"), "half of it");
    io_write_text(io_path("held/" NAME ".lock"), text);
    int fd = open(io_path("held/" NAME ".lock"), O_RDWR);
    assert_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    assert_int_equal(write_once(io_path("held/out")), 0);
    assert_int_equal(io_count_entries(io_path("held")), 3);
    close(fd);
    assert_int_equal(write_once(io_path("held/out")), 1);
    assert_int_equal(io_count_entries(io_path("held")), 1);
}

static void folders_of_callers(void **state)
{
    io_env env;
    s24_temporary *temporary;
    (void)state;
    assert_int_equal(mkdir(io_path("callers"), 0700), 0);
    io_begin(&env);
    assert_ok(&env, s24_temporary_create(&temporary, env.ctx, io_path("callers")));
    char inside[512];
    snprintf(inside, sizeof inside, "%s/deep", s24_temporary_path(temporary));
    assert_int_equal(mkdir(inside, 0700), 0);
    for (int i = 0; i < 300; i++) { /* more than one call of the system lists */
        char file[600];
        snprintf(file, sizeof file, "%s/a file with quite a long name, number %d", inside, i);
        io_write_text(file, "x");
    }
    assert_int_equal(io_count_entries(io_path("callers")), 2);
    s24_temporary_destroy(temporary);
    assert_int_equal(io_count_entries(io_path("callers")), 0);
    s24_temporary_destroy(NULL);
    assert_null(s24_temporary_path(NULL));
    assert_int_equal(s24_temporary_create(&temporary, env.ctx, io_path("nowhere")), S24_ERROR_IO);
    assert_int_equal(s24_temporary_create(&temporary, env.ctx, ""), S24_ERROR_ARGUMENT);
    assert_null(temporary);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_writers_are_cleaned_up_after),
        cmocka_unit_test(only_the_dead_are_swept),
        cmocka_unit_test(what_looks_like_ours_stays),
        cmocka_unit_test(a_lock_that_says_nothing_goes),
        cmocka_unit_test(a_held_lock_is_believed),
        cmocka_unit_test(folders_of_callers),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
