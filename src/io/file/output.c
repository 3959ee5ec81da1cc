// SPDX-License-Identifier: Apache-2.0
/*
 * Writing, syncing, renaming. A write that the disk cuts short is
 * carried on with, so that the error is the system's own (no space, too large), and closing is
 * checked, because network file systems report there.
 */
#include "io/file/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/fs.h has these, but not every system has linux/fs.h. */
enum { RENAME_WITHOUT_REPLACING = 1, RENAME_BOTH_WAYS = 2 };

/* Has the system begin with what was written, so that a sync at the end waits for little. */
static void start_writing_back(int fd, uint64_t offset, size_t bytes)
{
#if defined(SYS_sync_file_range) && LONG_MAX > INT_MAX
    enum { WORTH = 1 << 19, BEGIN = 2 };
    if (bytes >= WORTH) (void)syscall(SYS_sync_file_range, fd, (long)offset, (long)bytes, BEGIN);
#else
    (void)fd, (void)offset, (void)bytes;
#endif
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
        start_writing_back(fd, offset + (uint64_t)done, (size_t)got);
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

s24_status s24i_take_mode(int fd, s24_ctx *ctx, const char *path, int from)
{
    struct stat info;
    if (fstat(from, &info) == 0 && fchmod(fd, info.st_mode & 0777) == 0) return S24_OK;
    return s24i_fail_errno(ctx, "set the mode of", path);
}

s24_status s24i_take_folder_mode(s24_ctx *ctx, const char *path, const char *from)
{
    struct stat info;
    if (stat(from, &info) == 0 && chmod(path, (info.st_mode & 0777) | S_IRWXU) == 0) return S24_OK;
    return s24i_fail_errno(ctx, "set the mode of", path);
}

s24_status s24i_write_file(s24_ctx *ctx, const char *path, const void *data, size_t bytes, int like)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, like < 0 ? 0666 : 0600);
    if (fd < 0) return s24i_fail_errno(ctx, "create", path);
    s24_status status = like < 0 ? S24_OK : s24i_take_mode(fd, ctx, path, like);
    if (status == S24_OK) status = s24i_write_at(fd, ctx, path, data, bytes, 0);
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

/* The same where the two cannot be exchanged: step by step. Neither folder may then pass for what a
   killed writer left: both are all that there is of a model. */
static s24_status replace_in_steps(s24i_temporary *temporary, const char *path)
{
    s24_ctx *ctx = temporary->ctx;
    s24i_temporary old;
    s24i_temporary_unlock(temporary);
    TRY(s24i_temporary_create(&old, NULL, ctx, path, 0700));
    s24i_temporary_unlock(&old);
    s24_status status = S24_OK;
    if (rename(path, old.path) != 0) {
        status = s24i_fail_errno(ctx, "replace", path);
    } else if (rename(temporary->path, path) != 0) {
        status = s24i_fail_errno(ctx, "replace", path);
        if (rename(old.path, path) != 0) {
            s24_ctx_log(ctx, S24_LOG_WARNING, "the folder that was at %s is now at %s", path,
                        old.path);
            s24i_temporary_leave(&old);
        }
    }
    s24i_temporary_end(&old);
    return status;
}

/* An old folder cannot be renamed over. Exchanges the two, which makes the old one the
   temporary. */
static s24_status replace_folder(s24i_temporary *temporary, const char *path)
{
    if (rename_with(temporary->path, path, RENAME_BOTH_WAYS) == 0) return S24_OK;
    if (errno != ENOSYS) return s24i_fail_errno(temporary->ctx, "replace", path);
    return replace_in_steps(temporary, path);
}

static s24_status move(s24i_temporary *temporary, const char *path, int force)
{
    struct stat info;
    if (force && lstat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return replace_folder(temporary, path);
    if ((force ? rename(temporary->path, path) : rename_to_free_place(temporary->path, path)) == 0)
        return S24_OK;
    if (errno == EEXIST)
        return s24_ctx_fail(temporary->ctx, S24_ERROR_EXISTS,
                            "%s appeared while it was being written", path);
    return s24i_fail_errno(temporary->ctx, "rename the finished output to", path);
}

s24_status s24i_put_in_place(s24i_temporary *temporary, const char *path, int force)
{
    char *parent; /* asked for first: after the move nothing but the disk may fail */
    TRY(s24i_parent_folder(&parent, temporary->ctx, path));
    s24_status status = move(temporary, path, force);
    if (status == S24_OK) status = s24i_sync_folder(temporary->ctx, parent);
    s24_ctx_free(temporary->ctx, parent);
    if (status == S24_OK) s24i_temporary_end(temporary);
    return status;
}
