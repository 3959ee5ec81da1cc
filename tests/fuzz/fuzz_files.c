// SPDX-License-Identifier: Apache-2.0
/*
 * Files of a fuzz target. They lie in memory and stay from one input to the next, so that one costs
 * microseconds.
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include "fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 64, PATH_BYTES = 192 };

static char folder[PATH_BYTES];
static struct {
    char path[PATH_BYTES];
    int is_folder;
} files[FILES];
static int file_count;

static void remove_all(void)
{
    while (file_count--)
        if (files[file_count].is_folder)
            (void)rmdir(files[file_count].path);
        else
            (void)unlink(files[file_count].path);
    (void)rmdir(folder);
}

const char *fuzz_folder(void)
{
    const char *temporary = getenv("TMPDIR");
    if (*folder) return folder;
    if (!temporary) temporary = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%.100s/s24-fuzz-XXXXXX", temporary);
    CHECK(mkdtemp(folder) && atexit(remove_all) == 0);
    return folder;
}

/* The place of a path in the list, which keeps it from then on. */
static const char *keep(const char *path, int is_folder)
{
    for (int i = 0; i < file_count; i++)
        if (!strcmp(files[i].path, path)) return files[i].path;
    CHECK(file_count < FILES);
    strcpy(files[file_count].path, path);
    files[file_count].is_folder = is_folder;
    return files[file_count++].path;
}

const char *fuzz_path(const char *name)
{
    char path[PATH_BYTES];
    CHECK(snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name) < (int)sizeof path);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(keep(path, 1), 0700);
        *slash = '/';
    }
    return keep(path, 0);
}

const char *fuzz_put(const char *name, const void *data, size_t bytes)
{
    const char *path = fuzz_path(name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    /* Cut short after writing, so that pages are not taken back and cleared for each input. */
    CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && ftruncate(fd, (off_t)bytes) == 0);
    CHECK(close(fd) == 0);
    return path;
}

void fuzz_remove(const char *name)
{
    (void)unlink(fuzz_path(name));
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

int fuzz_remove_tree(const char *name)
{
    const char *path = fuzz_path(name);
    if (access(path, F_OK) != 0) return 0;
    CHECK(nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS) == 0);
    return 1;
}

/* Takes the head of the next part off the input; 0: there is none. */
static int take_head(char name[64], size_t *length, const uint8_t **data, size_t *bytes)
{
    char head[96];
    int used = 0;
    const size_t left = *bytes < sizeof head - 1 ? *bytes : sizeof head - 1;
    memcpy(head, *data, left);
    head[left] = '\0';
    if (sscanf(head, "%63s %zu%n", name, length, &used) != 2 || head[used] != '\n') return 0;
    *data += used + 1;
    *bytes -= (size_t)used + 1;
    if (*length > *bytes) *length = *bytes;
    return 1;
}

int fuzz_put_parts(const uint8_t *data, size_t bytes, const char *const *names, int count)
{
    char name[64];
    size_t length;
    int is_there[32] = {0}, put = 0;
    CHECK(count <= 32);
    while (take_head(name, &length, &data, &bytes)) {
        for (int i = 0; i < count; i++) {
            if (strcmp(name, names[i]) != 0) continue;
            fuzz_put(name, data, length);
            put += !is_there[i];
            is_there[i] = 1;
        }
        data += length;
        bytes -= length;
    }
    for (int i = 0; i < count; i++)
        if (!is_there[i]) fuzz_remove(names[i]);
    return put;
}

s24_ctx *fuzz_ctx(void)
{
    static s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    if (!ctx) CHECK(s24_ctx_create(&ctx, &opts) == S24_OK);
    return ctx;
}
