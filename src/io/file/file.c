// SPDX-License-Identifier: Apache-2.0
/*
 * Paths, read-only maps, and what error sentences about files are made of.
 *
 * A map stays valid when its file is renamed over or unlinked, which is what lets a model be
 * replaced by its own pruned copy. A file that someone truncates in place while it is mapped
 * raises SIGBUS; no library can repair that.
 */
#include "io/file/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

s24_status s24i_zeroed(void *out, s24_ctx *ctx, size_t bytes)
{
    void *memory = s24_ctx_alloc(ctx, bytes ? bytes : 1);
    if (memory) memset(memory, 0, bytes);
    memcpy(out, &memory, sizeof memory);
    REQUIRE(ctx, memory, S24_ERROR_MEMORY, "out of memory: %zu bytes are not to be had", bytes);
    return S24_OK;
}

s24_status s24i_alloc_elems(void *out, s24_ctx *ctx, int64_t count, size_t size, const char *what)
{
    size_t bytes;
    void *memory = NULL;
    if (count >= 0 && !__builtin_mul_overflow((size_t)count, size, &bytes))
        memory = s24_ctx_alloc(ctx, bytes ? bytes : 1);
    memcpy(out, &memory, sizeof memory);
    if (memory) return S24_OK;
    return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory: %s (%lld × %zu bytes)", what,
                        (long long)count, size);
}

s24_status s24i_reserve_elems(void *data, int64_t *room, s24_ctx *ctx, int64_t wanted, size_t size,
                              const char *what)
{
    enum { LEAST = 64 };
    void *before, *after;
    if (wanted <= *room) return S24_OK;
    const int64_t twice = *room < INT64_MAX / 2 ? 2 * *room : INT64_MAX;
    const int64_t most = wanted > twice ? wanted : twice > LEAST ? twice : LEAST;
    TRY(s24i_alloc_elems(&after, ctx, most, size, what));
    memcpy(&before, data, sizeof before);
    if (*room) memcpy(after, before, (size_t)*room * size);
    s24_ctx_free(ctx, before);
    memcpy(data, &after, sizeof after);
    *room = most;
    return S24_OK;
}

s24_status s24i_copy_string(char **out, s24_ctx *ctx, const char *text)
{
    size_t bytes = strlen(text) + 1;
    TRY(s24i_zeroed(out, ctx, bytes));
    memcpy(*out, text, bytes);
    return S24_OK;
}

s24_status s24i_join_path(char **out, s24_ctx *ctx, const char *folder, const char *file)
{
    size_t folder_bytes = strlen(folder), file_bytes = strlen(file);
    while (folder_bytes > 1 && folder[folder_bytes - 1] == '/')
        folder_bytes--;
    TRY(s24i_zeroed(out, ctx, folder_bytes + file_bytes + 2));
    memcpy(*out, folder, folder_bytes);
    if (folder_bytes == 0 || folder[folder_bytes - 1] != '/') (*out)[folder_bytes++] = '/';
    memcpy(*out + folder_bytes, file, file_bytes);
    return S24_OK;
}

s24_status s24i_parent_folder(char **out, s24_ctx *ctx, const char *path)
{
    TRY(s24i_copy_string(out, ctx, s24i_base_name(path) == path ? "." : path));
    char *slash = strrchr(*out, '/');
    if (slash) slash[slash == *out] = '\0'; /* the root keeps its slash */
    return S24_OK;
}

const char *s24i_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int s24i_ends_with(const char *text, const char *suffix)
{
    size_t text_bytes = strlen(text), suffix_bytes = strlen(suffix);
    return text_bytes >= suffix_bytes && !strcmp(text + text_bytes - suffix_bytes, suffix);
}

s24_status s24i_fail_errno(s24_ctx *ctx, const char *verb, const char *path)
{
    s24_status status = errno == ENOMEM ? S24_ERROR_MEMORY : S24_ERROR_IO;
    char reason[128];
    if (strerror_r(errno, reason, sizeof reason) != 0) strcpy(reason, "unknown error");
    return s24_ctx_fail(ctx, status, "cannot %s %s: %s", verb, path, reason);
}

s24_status s24i_next_name(const char **name, s24_ctx *ctx, DIR *entries, const char *folder)
{
    errno = 0;
    const struct dirent *entry = readdir(entries);
    *name = entry ? entry->d_name : NULL;
    return entry || !errno ? S24_OK : s24i_fail_errno(ctx, "read", folder);
}

s24_status s24i_path_is_there(int *is_there, s24_ctx *ctx, const char *path)
{
    struct stat info;
    *is_there = access(path, F_OK) == 0;
    if (*is_there) return S24_OK;
    const int reason = errno;
    /* A download that was cut short leaves links to files that it never fetched. */
    REQUIRE(ctx, reason != ENOENT || lstat(path, &info) != 0 || !S_ISLNK(info.st_mode),
            S24_ERROR_IO,
            "%s is a link to a file that is not there; the download that made it "
            "may not have ended",
            path);
    errno = reason;
    return reason == ENOENT || reason == ENOTDIR ? S24_OK : s24i_fail_errno(ctx, "look for", path);
}

/* Maps bytes (over 0) of an open file from a page's start on. */
static s24_status map_pages(s24i_map *out, s24_ctx *ctx, int fd, size_t start, size_t bytes,
                            int flags, const char *path)
{
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | flags, fd, (off_t)start);
    if (data == MAP_FAILED) return s24i_fail_errno(ctx, "map", path);
    *out = (s24i_map){data, bytes};
    return S24_OK;
}

static s24_status map_file(s24i_map *out, s24_ctx *ctx, int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return s24i_fail_errno(ctx, "read", path);
    REQUIRE(ctx, S_ISREG(info.st_mode), S24_ERROR_IO,
            "cannot read %s: it is %s, a regular file is expected%s", path,
            S_ISDIR(info.st_mode)    ? "a folder"
            : S_ISFIFO(info.st_mode) ? "a pipe"
            : S_ISSOCK(info.st_mode) ? "a socket"
                                     : "a device",
            S_ISFIFO(info.st_mode) ? "; write what it gives to one first" : "");
    return info.st_size ? map_pages(out, ctx, fd, 0, (size_t)info.st_size, 0, path) : S24_OK;
}

s24_status s24i_map_open_fd(s24i_map *out, int *fd, s24_ctx *ctx, const char *path)
{
    static const uint8_t nothing[1] = {0};
    *out = (s24i_map){nothing, 0};
    /* Without O_NONBLOCK a named pipe would wait here for a writer. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return s24i_fail_errno(ctx, "open", path);
    const s24_status status = map_file(out, ctx, *fd, path);
    if (status == S24_OK) return S24_OK;
    close(*fd);
    *fd = -1;
    return status;
}

s24_status s24i_map_open(s24i_map *out, s24_ctx *ctx, const char *path)
{
    int fd;
    const s24_status status = s24i_map_open_fd(out, &fd, ctx, path);
    if (fd >= 0) close(fd);
    return status;
}

s24_status s24i_map_again(s24i_map *out, s24_ctx *ctx, int fd, size_t begin, size_t bytes,
                          int at_once, const char *path)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), start = begin / page * page;
    return map_pages(out, ctx, fd, start, begin - start + bytes, at_once ? MAP_POPULATE : 0, path);
}

void s24i_map_touch(const void *from, size_t bytes)
{
#ifdef MADV_POPULATE_READ
    enum { LEAST = 1 << 16 }; /* what a fault enters by itself */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)from % page;
    if (bytes < LEAST) return;
    /* Where the system does not know how, the faults come. */
    (void)madvise((char *)(uintptr_t)from - before, before + bytes, MADV_POPULATE_READ);
#else
    (void)from;
    (void)bytes;
#endif
}

void s24i_map_expect(const void *from, size_t bytes)
{
    enum { AT_ONCE = 1 << 17 }; /* more than the disk's read-ahead is not heard */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)from % page;
    const char *data = (const char *)from - before;
    for (size_t at = 0; at < before + bytes; at += AT_ONCE) {
        const size_t left = before + bytes - at;
        (void)madvise((char *)(uintptr_t)data + at, left < AT_ONCE ? left : AT_ONCE, MADV_WILLNEED);
    }
}

void s24i_map_forget(const char **from, const char *to)
{
    enum { WORTH_A_CALL = 1 << 18 };
    if (to - *from < WORTH_A_CALL) return;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)*from + page - 1) / page * page;
    const uintptr_t end = (uintptr_t)to / page * page;
    (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
    *from = (const char *)end;
}

void s24i_map_close(s24i_map *map)
{
    if (map->bytes) munmap((void *)(uintptr_t)map->data, map->bytes);
    *map = (s24i_map){NULL, 0};
}
