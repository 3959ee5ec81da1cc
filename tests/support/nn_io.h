// SPDX-License-Identifier: Apache-2.0
/*
 * What the tests of src/io share: a context whose allocations can be made to fail, a folder of
 * its own for each program, files made from a header and a number of bytes.
 */
#ifndef S24_TEST_NN_IO_H
#define S24_TEST_NN_IO_H

#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "io/checkpoint/checkpoint.h"
#include "sparse24/nn.h"

/* An allocator that counts what is not given back and says no at the fail_at-th call (0: never). */
typedef struct shaky {
    int64_t calls, fail_at, live;
} shaky;

static inline void *shaky_alloc(void *user, size_t bytes, size_t alignment)
{
    shaky *s = user;
    if (++s->calls == s->fail_at) return NULL;
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory) s->live++;
    return memory;
}

static inline void shaky_free(void *user, void *memory, size_t bytes)
{
    shaky *s = user;
    (void)bytes;
    if (memory) s->live--;
    free(memory);
}

/* Logs into nothing and stops long work at the stop_at-th progress call (0: never). */
typedef struct io_env {
    shaky memory;
    int64_t progress_calls, stop_at;
    int log_lines;
    s24_ctx *ctx;
} io_env;

static inline int io_progress(void *user, const char *stage, int64_t done, int64_t total)
{
    io_env *env = user;
    assert_non_null(stage);
    assert_true(done <= total);
    return ++env->progress_calls == env->stop_at;
}

static inline void io_log(void *user, s24_log_level level, const char *text)
{
    (void)level;
    assert_true(text[0] != '\0');
    ((io_env *)user)->log_lines++;
}

static inline void io_begin(io_env *env)
{
    *env = (io_env){0};
    s24_ctx_opts opts = {.size = sizeof opts,
                         .allocator = {shaky_alloc, shaky_free, &env->memory},
                         .progress = io_progress,
                         .log = io_log,
                         .user = env,
                         .threads = 1};
    assert_int_equal(s24_ctx_create(&env->ctx, &opts), S24_OK);
}

/* Ends the context; whatever was allocated must have been given back. */
static inline void io_end(io_env *env)
{
    s24_ctx_destroy(env->ctx);
    assert_int_equal(env->memory.live, 0);
}

/* SKIP_WITHOUT within an environment, which is ended first. */
#define IO_SKIP_WITHOUT(env, path)                                                                 \
    do {                                                                                           \
        io_end(env);                                                                               \
        SKIP_WITHOUT(path);                                                                        \
    } while (0)

#define assert_sentence(ctx, part)                                                                 \
    do {                                                                                           \
        if (!strstr(s24_ctx_error(ctx), part))                                                     \
            fail_msg("\"%s\" does not say \"%s\"", s24_ctx_error(ctx), part);                      \
    } while (0)

#define assert_ok(env, call)                                                                       \
    do {                                                                                           \
        s24_status got = (call);                                                                   \
        if (got != S24_OK)                                                                         \
            fail_msg("%s: %s (%s)", #call, s24_status_text(got), s24_ctx_error((env)->ctx));       \
    } while (0)

/* A path inside this program's own folder, which io_folder_setup makes. Four can be in use. */
static char io_root[64];
static inline const char *io_path(const char *name)
{
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    assert_true(*io_root); /* else programs that run at once would share files in "/" */
    snprintf(path, sizeof paths[0], "%s/%s", io_root, name);
    return path;
}

static inline void io_remove(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0) return;
    if (S_ISDIR(info.st_mode)) {
        DIR *folder = opendir(path);
        assert_non_null(folder);
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
            size_t bytes = strlen(path) + strlen(entry->d_name) + 2;
            char *child = malloc(bytes);
            assert_non_null(child);
            snprintf(child, bytes, "%s/%s", path, entry->d_name);
            io_remove(child);
            free(child);
        }
        closedir(folder);
    }
    assert_int_equal(remove(path), 0);
}

static inline int io_folder_setup(void **state)
{
    (void)state;
    strcpy(io_root, "/tmp/s24-io-XXXXXX");
    return mkdtemp(io_root) ? 0 : -1;
}

static inline int io_folder_teardown(void **state)
{
    (void)state;
    io_remove(io_root);
    return 0;
}

/* Entries of a folder, hidden ones too: a leftover of a failed write would be one too many. */
static inline int io_count_entries(const char *path)
{
    int count = -2; /* . and .. */
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static inline void io_write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void io_write_text(const char *path, const char *text)
{
    io_write_file(path, text, strlen(text));
}

/* The whole file; freed by the caller. */
static inline char *io_read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    data[*bytes] = '\0';
    fclose(file);
    return data;
}

/* Two folders' models, byte for byte. */
static inline void io_same_models(const char *a, const char *b)
{
    size_t bytes[2];
    char path[600], *data[2];
    const char *const folders[] = {a, b};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/model.safetensors", folders[i]);
        data[i] = io_read_file(path, &bytes[i]);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(data[0], data[1], bytes[0]);
    free(data[0]);
    free(data[1]);
}

/* A safetensors file with this header as it is, followed by data, or by bytes 0, 1, 2 … */
static inline size_t io_make(uint8_t *out, const char *header, const void *data, size_t bytes)
{
    uint64_t length = strlen(header);
    memcpy(out, &length, 8);
    memcpy(out + 8, header, length);
    for (size_t i = 0; i < bytes; i++)
        out[8 + length + i] = data ? ((const uint8_t *)data)[i] : (uint8_t)i;
    return 8 + (size_t)length + bytes;
}

static inline void io_write_tensors(const char *path, const char *header, const void *data,
                                    size_t bytes)
{
    uint8_t *file = malloc(8 + strlen(header) + bytes);
    assert_non_null(file);
    io_write_file(path, file, io_make(file, header, data, bytes));
    free(file);
}

static inline s24_writer *begin_writer(io_env *env, const char *path, int force,
                                       const s24_checkpoint *model)
{
    s24_writer *writer;
    s24_writer_opts opts = {.size = sizeof opts, .force = force, .model = model};
    if (s24_writer_create(&writer, env->ctx, path, &opts) != S24_OK)
        fail_msg("%s", s24_ctx_error(env->ctx));
    return writer;
}

/* Opening must fail with this status and a sentence that has both parts. */
static inline void assert_refused(io_env *env, const char *path, s24_status status,
                                  const char *part, const char *other)
{
    s24_checkpoint *checkpoint = (void *)env;
    s24_status got = s24_checkpoint_open(&checkpoint, env->ctx, path);
    if (got != status)
        fail_msg("%s: %s (\"%s\"), expected %s with \"%s\"", path, s24_status_text(got),
                 s24_ctx_error(env->ctx), s24_status_text(status), part);
    assert_null(checkpoint);
    assert_sentence(env->ctx, part);
    assert_sentence(env->ctx, other);
}

#endif
