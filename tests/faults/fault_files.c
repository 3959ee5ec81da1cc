// SPDX-License-Identifier: Apache-2.0
/* Calls on files and folders that may fail. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* its headers define some of them themselves */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "faults.h"

static int (*real_openat)(int, const char *, int, ...);
static DIR *(*real_opendir)(const char *);
static struct dirent *(*real_readdir)(DIR *);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_close)(int);
static int (*real_fsync)(int);
static int (*real_rename)(const char *, const char *);
static int (*real_unlinkat)(int, const char *, int);
static int (*real_mkdir)(const char *, mode_t);
static int (*real_fstatat)(int, const char *, struct stat *, int);
static int (*real_fstat)(int, struct stat *);
static int (*real_access)(const char *, int);
static int (*real_chmod)(const char *, mode_t);
static int (*real_fchmod)(int, mode_t);
static int (*real_flock)(int, int);
static int (*real_pipe)(int *);
static int (*real_socket)(int, int, int);
static long (*real_syscall)(long, ...);

void fault_begin(void)
{
    fault_find(&real_openat, "openat");
    fault_find(&real_opendir, "opendir");
    fault_find(&real_readdir, "readdir");
    fault_find(&real_read, "read");
    fault_find(&real_pread, "pread");
    fault_find(&real_write, "write");
    fault_find(&real_pwrite, "pwrite");
    fault_find(&real_close, "close");
    fault_find(&real_fsync, "fsync");
    fault_find(&real_rename, "rename");
    fault_find(&real_unlinkat, "unlinkat");
    fault_find(&real_mkdir, "mkdir");
    fault_find(&real_fstatat, "fstatat");
    fault_find(&real_fstat, "fstat");
    fault_find(&real_access, "access");
    fault_find(&real_chmod, "chmod");
    fault_find(&real_fchmod, "fchmod");
    fault_find(&real_flock, "flock");
    fault_find(&real_pipe, "pipe");
    fault_find(&real_socket, "socket");
    fault_find(&real_syscall, "syscall");
}

static void ready(void)
{
    if (!real_syscall) fault_begin();
}

static int fails(enum fault_kind kind, const void *caller)
{
    ready();
    const int error = fault_now(kind, caller);
    if (error > 0) errno = error;
    return error > 0;
}

/* ---- opened and closed ----------------------------------------------------------------------- */

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    const int fd = real_openat(folder, path, flags, mode);
    const fault_change change = {.what = 'o',
                                 .fd = fd,
                                 .flags = flags & (O_CREAT | O_TRUNC | O_APPEND),
                                 .offset = folder,
                                 .path = path};
    if (fd >= 0) fault_changed(&change);
    return fd;
}

static mode_t mode_of(int flags, va_list *more)
{
    return flags & O_CREAT ? va_arg(*more, mode_t) : 0;
}

int fault_open(const char *path, int flags, mode_t mode, const void *caller)
{
    return fails(FAULT_OPEN, caller) ? -1 : open_at(AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = mode_of(flags, &more);
    va_end(more);
    return fault_open(path, flags, mode, CALLER);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const mode_t mode = mode_of(flags, &more);
    va_end(more);
    return fails(FAULT_OPEN, CALLER) ? -1 : open_at(folder, path, flags, mode);
}

DIR *opendir(const char *path)
{
    return fails(FAULT_OPEN, CALLER) ? NULL : real_opendir(path);
}

int pipe(int ends[2])
{
    return fails(FAULT_OPEN, CALLER) ? -1 : real_pipe(ends);
}

int socket(int domain, int type, int protocol)
{
    return fails(FAULT_OPEN, CALLER) ? -1 : real_socket(domain, type, protocol);
}

/* A close that fails has closed, too. */
int fault_close(int fd, const void *caller)
{
    const int is_failing = fails(FAULT_CLOSE, caller), reason = errno;
    const fault_change change = {.what = 'c', .fd = fd};
    fault_changed(&change);
    const int result = real_close(fd);
    if (!is_failing) return result;
    errno = reason;
    return -1;
}

int close(int fd)
{
    return fault_close(fd, CALLER);
}

/* ---- read and written ------------------------------------------------------------------------ */

/* Counters between threads (eventfd) are no files: to them and from them eight bytes go, always. */
static int is_counter(int fd)
{
    struct stat info;
    return real_fstat(fd, &info) == 0 && !(info.st_mode & S_IFMT);
}

/* How many bytes a call may do; −1: it fails. */
static ssize_t may(enum fault_kind kind, int fd, size_t bytes, const void *caller)
{
    ready();
    if (is_counter(fd)) return (ssize_t)bytes;
    const int what = fault_now(kind, caller);
    if (what > 0) errno = what;
    if (what > 0) return -1;
    return (ssize_t)(what == FAULT_SHORT && bytes > 1 ? bytes / 2 : bytes);
}

ssize_t fault_read(int fd, void *data, size_t bytes, const void *caller)
{
    const ssize_t now = may(FAULT_READ, fd, bytes, caller);
    return now < 0 ? -1 : real_read(fd, data, (size_t)now);
}

ssize_t read(int fd, void *data, size_t bytes)
{
    return fault_read(fd, data, bytes, CALLER);
}

ssize_t __read_chk(int fd, void *data, size_t bytes, size_t room);
ssize_t __read_chk(int fd, void *data, size_t bytes, size_t room)
{
    if (bytes > room) abort();
    return fault_read(fd, data, bytes, CALLER);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    const ssize_t now = may(FAULT_READ, fd, bytes, CALLER);
    return now < 0 ? -1 : real_pread(fd, data, (size_t)now, offset);
}

struct dirent *readdir(DIR *entries)
{
    return fails(FAULT_READ, CALLER) ? NULL : real_readdir(entries);
}

/* offset −1: where the file stands. */
static ssize_t write_at(int fd, const void *data, size_t bytes, off_t offset, const void *caller)
{
    const ssize_t now = may(FAULT_WRITE, fd, bytes, caller);
    if (now < 0) return -1;
    const size_t room = fault_disk(fd, (size_t)now);
    if (room == 0 && now > 0) {
        errno = ENOSPC;
        return -1;
    }
    const ssize_t done =
        offset < 0 ? real_write(fd, data, room) : real_pwrite(fd, data, room, offset);
    const fault_change change = {.what = 'w',
                                 .fd = fd,
                                 .offset = offset,
                                 .data = data,
                                 .bytes = done > 0 ? (size_t)done : 0};
    if (done > 0) fault_changed(&change);
    return done;
}

ssize_t fault_write(int fd, const void *data, size_t bytes, const void *caller)
{
    return write_at(fd, data, bytes, -1, caller);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    return write_at(fd, data, bytes, -1, CALLER);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return write_at(fd, data, bytes, offset, CALLER);
}

int fsync(int fd)
{
    if (fails(FAULT_SYNC, CALLER)) return -1;
    const int result = real_fsync(fd);
    const fault_change change = {.what = 's', .fd = fd};
    if (result == 0) fault_changed(&change);
    return result;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int renamed(int result, char what, const char *from, const char *to)
{
    const fault_change change = {.what = what, .path = from, .other = to};
    if (result == 0) fault_changed(&change);
    return result;
}

int rename(const char *from, const char *to)
{
    if (fails(FAULT_RENAME, CALLER)) return -1;
    return renamed(real_rename(from, to), 'r', from, to);
}

/* Of a folder that is open, and of a name in it. */
static int unlink_at(int folder, const char *path, int flags)
{
    const int result = real_unlinkat(folder, path, flags);
    const fault_change change = {.what = 'u', .fd = folder, .path = path};
    if (result == 0) fault_changed(&change);
    return result;
}

int unlinkat(int folder, const char *path, int flags)
{
    return fails(FAULT_UNLINK, CALLER) ? -1 : unlink_at(folder, path, flags);
}

int unlink(const char *path)
{
    return fails(FAULT_UNLINK, CALLER) ? -1 : unlink_at(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return fails(FAULT_UNLINK, CALLER) ? -1 : unlink_at(AT_FDCWD, path, AT_REMOVEDIR);
}

int mkdir(const char *path, mode_t mode)
{
    if (fails(FAULT_MKDIR, CALLER)) return -1;
    const int result = real_mkdir(path, mode);
    const fault_change change = {.what = 'm', .path = path};
    if (result == 0) fault_changed(&change);
    return result;
}

/* The calls that have no function of their own in the C library's older versions. */
long syscall(long number, ...)
{
    long a[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(more, long);
    va_end(more);
    ready();
    if (number == SYS_getdents64 && fails(FAULT_READ, CALLER)) return -1;
    if (number == SYS_renameat2 && fails(FAULT_RENAME, CALLER)) return -1;
    const long result = real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number != SYS_renameat2) return result;
    return renamed((int)result, a[4] & 2 ? 'x' : 'r', (const char *)a[1], (const char *)a[3]);
}

/* ---- what is known of files ------------------------------------------------------------------ */

int fstatat(int folder, const char *restrict path, struct stat *restrict info, int flags)
{
    return fails(FAULT_STAT, CALLER) ? -1 : real_fstatat(folder, path, info, flags);
}

int stat(const char *restrict path, struct stat *restrict info)
{
    return fails(FAULT_STAT, CALLER) ? -1 : real_fstatat(AT_FDCWD, path, info, 0);
}

int lstat(const char *restrict path, struct stat *restrict info)
{
    return fails(FAULT_STAT, CALLER) ? -1 : real_fstatat(AT_FDCWD, path, info, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *info)
{
    return fails(FAULT_STAT, CALLER) ? -1 : real_fstat(fd, info);
}

int access(const char *path, int mode)
{
    return fails(FAULT_STAT, CALLER) ? -1 : real_access(path, mode);
}

int chmod(const char *path, mode_t mode)
{
    return fails(FAULT_MODE, CALLER) ? -1 : real_chmod(path, mode);
}

int fchmod(int fd, mode_t mode)
{
    return fails(FAULT_MODE, CALLER) ? -1 : real_fchmod(fd, mode);
}

int flock(int fd, int what)
{
    return fails(FAULT_LOCK, CALLER) ? -1 : real_flock(fd, what);
}
