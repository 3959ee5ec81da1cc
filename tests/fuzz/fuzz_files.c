// SPDX-License-Identifier: Apache-2.0
/*
 * Files of a fuzz target. They lie in memory and stay from one input to the next, so that one costs
 * microseconds.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 64, PATH_BYTES = 192 };

static char folder[PATH_BYTES];
static struct {
    char path[PATH_BYTES];
    int is_folder;
} files[FILES];
static int count;

static void remove_all(void)
{
    while (count--)
        if (files[count].is_folder)
            (void)rmdir(files[count].path);
        else
            (void)unlink(files[count].path);
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
    for (int i = 0; i < count; i++)
        if (!strcmp(files[i].path, path)) return files[i].path;
    CHECK(count < FILES);
    strcpy(files[count].path, path);
    files[count].is_folder = is_folder;
    return files[count++].path;
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
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    CHECK(close(fd) == 0);
    return path;
}

void fuzz_remove(const char *name)
{
    (void)unlink(fuzz_path(name));
}

s24_ctx *fuzz_ctx(void)
{
    static s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    if (!ctx) CHECK(s24_ctx_create(&ctx, &opts) == S24_OK);
    return ctx;
}
