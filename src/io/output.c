// SPDX-License-Identifier: Apache-2.0
/*
 * Temporary names, writing, syncing, renaming, removing. A write that the disk cuts short is
 * carried on with, so that the error is the system's own (no space, too large), and closing is
 * checked, because network file systems report there.
 */
#include "io/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/fs.h has these, but not every system has linux/fs.h. */
enum { RENAME_WITHOUT_REPLACING = 1, RENAME_BOTH_WAYS = 2 };

/* A hidden sibling's name: "folder/.sparse24-PID-TURN". */
static s24_status sibling(char **out, s24_ctx *ctx, const char *path, unsigned turn)
{
    char name[64];
    void *memory;
    size_t folder_bytes = (size_t)(s24i_base_name(path) - path);
    snprintf(name, sizeof name, ".sparse24-%ld-%u", (long)getpid(), turn);
    *out = NULL;
    TRY(s24i_zeroed(&memory, ctx, folder_bytes + sizeof name));
    *out = memory;
    memcpy(*out, path, folder_bytes);
    strcpy(*out + folder_bytes, name);
    return S24_OK;
}

s24_status s24i_temporary_create(char **out, int *fd, s24_ctx *ctx, const char *path)
{
    for (unsigned turn = 0;; turn++) {
        int made;
        TRY(sibling(out, ctx, path, turn));
        if (fd)
            made = *fd = open(*out, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        else
            made = mkdir(*out, 0777);
        if (made >= 0) return S24_OK;
        int reason = errno;
        s24_ctx_free(ctx, *out);
        *out = NULL;
        errno = reason;
        /* Left over from a process of the same number that was killed: take the next name. */
        if (errno != EEXIST || turn == 10000) return s24i_fail_errno(ctx, "create", path);
    }
}

s24_status s24i_write_at(int fd, s24_ctx *ctx, const char *name, const void *data, size_t bytes,
                         uint64_t offset)
{
    const size_t piece = (size_t)32 << 20;
    size_t done = 0;
    while (done < bytes) {
        size_t step = bytes - done < piece ? bytes - done : piece;
        ssize_t got = pwrite(fd, (const char *)data + done, step, (off_t)(offset + (uint64_t)done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return s24i_fail_errno(ctx, "write", name);
        done += (size_t)got;
        if (done < bytes) TRY(s24_ctx_progress(ctx, "writing", (int64_t)done, (int64_t)bytes));
    }
    return S24_OK;
}

s24_status s24i_sync_and_close(int *fd, s24_ctx *ctx, const char *name)
{
    s24_status status = S24_OK;
    if (*fd < 0) return S24_OK;
    if (fsync(*fd) != 0) status = s24i_fail_errno(ctx, "sync", name);
    if (close(*fd) != 0 && status == S24_OK) status = s24i_fail_errno(ctx, "close", name);
    *fd = -1;
    return status;
}

s24_status s24i_write_file(s24_ctx *ctx, const char *path, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return s24i_fail_errno(ctx, "create", path);
    s24_status status = s24i_write_at(fd, ctx, path, data, bytes, 0);
    if (status == S24_OK) return s24i_sync_and_close(&fd, ctx, path);
    close(fd);
    return status;
}

s24_status s24i_sync_folder(s24_ctx *ctx, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return s24i_fail_errno(ctx, "open", path);
    s24_status status = S24_OK;
    /* EINVAL: a file system that has nothing to sync for a folder. */
    if (fsync(fd) != 0 && errno != EINVAL) status = s24i_fail_errno(ctx, "sync", path);
    close(fd);
    return status;
}

/* rename with one of the flags above; ENOSYS where the system or the file system lacks it. */
static int rename_with(const char *from, const char *to, unsigned flag)
{
#ifdef SYS_renameat2
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flag) == 0) return 0;
    if (errno == EINVAL) errno = ENOSYS;
#else
    (void)from, (void)to, (void)flag;
    errno = ENOSYS;
#endif
    return -1;
}

static int rename_to_free_place(const char *from, const char *to)
{
    struct stat info;
    if (rename_with(from, to, RENAME_WITHOUT_REPLACING) == 0) return 0;
    if (errno != ENOSYS) return -1;
    if (lstat(to, &info) != 0) return rename(from, to);
    errno = EEXIST;
    return -1;
}

/* An old folder cannot be renamed over. Exchanges the two, or takes the steps one by one. */
static s24_status replace_folder(s24_ctx *ctx, const char *temporary, const char *path)
{
    char *old;
    if (rename_with(temporary, path, RENAME_BOTH_WAYS) == 0) {
        if (!s24i_remove_tree(temporary))
            s24_ctx_log(ctx, S24_LOG_WARNING, "the replaced folder remains at %s", temporary);
        return S24_OK;
    }
    if (errno != ENOSYS) return s24i_fail_errno(ctx, "replace", path);
    TRY(s24i_temporary_create(&old, NULL, ctx, path));
    s24_status status = S24_OK;
    if (rename(path, old) != 0) {
        status = s24i_fail_errno(ctx, "replace", path);
    } else if (rename(temporary, path) != 0) {
        status = s24i_fail_errno(ctx, "replace", path);
        if (rename(old, path) != 0)
            s24_ctx_log(ctx, S24_LOG_WARNING, "the folder that was at %s is now at %s", path, old);
    } else if (!s24i_remove_tree(old)) {
        s24_ctx_log(ctx, S24_LOG_WARNING, "the replaced folder remains at %s", old);
    }
    if (status != S24_OK) rmdir(old); /* only if it is still the empty one */
    s24_ctx_free(ctx, old);
    return status;
}

static s24_status move(s24_ctx *ctx, const char *temporary, const char *path, int force)
{
    struct stat info;
    if (force && lstat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return replace_folder(ctx, temporary, path);
    if ((force ? rename(temporary, path) : rename_to_free_place(temporary, path)) == 0)
        return S24_OK;
    if (errno == EEXIST)
        return s24_ctx_fail(ctx, S24_ERROR_EXISTS, "%s appeared while it was being written", path);
    return s24i_fail_errno(ctx, "rename the finished output to", path);
}

s24_status s24i_put_in_place(s24_ctx *ctx, const char *temporary, const char *path, int force)
{
    char *parent; /* asked for first: after the move nothing but the disk may fail */
    TRY(s24i_parent_folder(&parent, ctx, path));
    s24_status status = move(ctx, temporary, path, force);
    if (status == S24_OK) status = s24i_sync_folder(ctx, parent);
    s24_ctx_free(ctx, parent);
    return status;
}

/* Descends at most this far, one open folder a level. */
enum { MAX_DEPTH = 64 };

static int remove_at(int folder, const char *name, int depth)
{
    int is_gone = 1;
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT) return 1;
    int fd = depth < MAX_DEPTH ? openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW) : -1;
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        if (fd >= 0) close(fd);
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            is_gone &= remove_at(fd, entry->d_name, depth + 1);
    closedir(entries);
    return is_gone && unlinkat(folder, name, AT_REMOVEDIR) == 0;
}

int s24i_remove_tree(const char *path)
{
    return remove_at(AT_FDCWD, path, 0);
}
