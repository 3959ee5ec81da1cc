// SPDX-License-Identifier: Apache-2.0
/*
 * Temporary outputs, and the ones that killed writers left. What must stay true:
 *
 * A writer locks its lock's file before it writes into it whose it is, and a sweeper removes
 * nothing but what such a file names after it has got the lock, so that of two sweepers the second
 * finds nothing. A lock that is free and empty has no temporary yet and goes alone; the writer
 * whose own one went before it was locked makes another. Where locks may hold for one machine alone
 * (file systems that are shared), a lock of another machine, or of before this one's start, says
 * nothing. What is another user's stays.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/file/output.h"

#define PREFIX ".sparse24-"
#define LOCK   ".lock"
enum { DIGITS = 16, NAME = sizeof PREFIX - 1 + DIGITS, BOOT = 36, MARK = 160 };

/* ---- what a lock's file says ----------------------------------------------------------------- */

/* Which machine this is, since when; the same in all its containers. Empty: not known. */
static void read_boot(char boot[BOOT + 1])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? 0 : read(fd, boot, BOOT);
    boot[got == BOOT ? BOOT : 0] = '\0';
    if (fd >= 0) close(fd);
}

/* The file's text for a temporary's name, without a machine and with. */
static size_t write_mark(char mark[MARK], const char *name, const char *boot)
{
    return (size_t)snprintf(mark, MARK, "sparse24 writes %.*s\non %s\n", (int)NAME, name, boot);
}

/* File systems of one machine, on which a lock that is free is free on every machine. */
static int is_local(int fd)
{
    static const unsigned long kinds[] = {
        0xef53 /* ext4 */,      0x58465342 /* xfs */,     0x9123683e /* btrfs */,
        0x01021994 /* tmpfs */, 0x794c7630 /* overlay */, 0xf2f52010 /* f2fs */,
        0x2fc12fc1 /* zfs */,
    };
    struct statfs info;
    if (fstatfs(fd, &info) != 0) return 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((unsigned long)info.f_type == kinds[i]) return 1;
    return 0;
}

/* Does the locked file say that it is the lock of that temporary, and is its free lock to be
   trusted? */
static int is_ours(int fd, const char *name)
{
    char boot[BOOT + 1], mark[MARK], text[MARK];
    read_boot(boot);
    const ssize_t got = pread(fd, text, sizeof text, 0);
    const size_t bytes = write_mark(mark, name, boot), fixed = write_mark(mark, name, "") - 1;
    write_mark(mark, name, boot);
    if (got == (ssize_t)bytes && !memcmp(text, mark, bytes) && *boot) return 1;
    return got > (ssize_t)fixed && !memcmp(text, mark, fixed) && text[got - 1] == '\n' &&
           is_local(fd);
}

/* ---- leftovers ------------------------------------------------------------------------------- */

/* ".sparse24-0123456789abcdef.lock" */
static int is_lock_name(const char *name)
{
    return strlen(name) == NAME + sizeof LOCK - 1 && !strncmp(name, PREFIX, sizeof PREFIX - 1) &&
           strspn(name + sizeof PREFIX - 1, "0123456789abcdef") == DIGITS &&
           !strcmp(name + NAME, LOCK);
}

static int is_mine(const struct stat *info)
{
    return info->st_uid == geteuid();
}

/* Removes the temporary whose lock's file is open and locked, and that file. */
static void remove_leftover(s24_ctx *ctx, const char *lock, int fd)
{
    struct stat info;
    char path[4096];
    int64_t bytes = 0;
    const char *name = s24i_base_name(lock);
    const int length = (int)(strlen(lock) - (sizeof LOCK - 1));
    if (fstat(fd, &info) != 0 || !is_mine(&info)) return;
    const int says_nothing = info.st_size == 0 && is_local(fd);
    if (!says_nothing && !is_ours(fd, name)) return;
    if (snprintf(path, sizeof path, "%.*s", length, lock) >= (int)sizeof path) return;
    if (lstat(path, &info) == 0) {
        if (says_nothing) return;
        if (!is_mine(&info)) return;
        const int is_gone = s24i_remove_tree(path, &bytes);
        s24_ctx_log(ctx, S24_LOG_INFO, "%s %s, left by a writer that was killed (%.1f MB)",
                    is_gone ? "removed" : "could not remove all of", path, 1e-6 * (double)bytes);
        if (!is_gone) return;
    }
    unlink(lock);
}

static void sweep_one(s24_ctx *ctx, const char *lock)
{
    int fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) remove_leftover(ctx, lock, fd);
    close(fd);
}

/* Goes through the folder that path lies in. What fails here is no error of the writer's. */
static void sweep(s24_ctx *ctx, const char *path)
{
    const int length = (int)(s24i_base_name(path) - path);
    char folder[4096], lock[4096 + NAME + sizeof LOCK];
    if (snprintf(folder, sizeof folder, "%.*s", length, path) >= (int)sizeof folder) return;
    DIR *entries = opendir(*folder ? folder : ".");
    if (!entries) return;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (!is_lock_name(entry->d_name)) continue;
        snprintf(lock, sizeof lock, "%s%.*s%s", folder, (int)NAME, entry->d_name, LOCK);
        sweep_one(ctx, lock);
    }
    closedir(entries);
}

/* ---- temporaries ----------------------------------------------------------------------------- */

void s24i_temporary_unlock(s24i_temporary *temporary)
{
    if (!temporary->lock) return;
    unlink(temporary->lock); /* while it is locked: nobody else touches it */
    close(temporary->lock_fd);
    s24_ctx_free(temporary->ctx, temporary->lock);
    temporary->lock = NULL;
}

void s24i_temporary_leave(s24i_temporary *temporary)
{
    s24i_temporary_unlock(temporary);
    s24_ctx_free(temporary->ctx, temporary->path);
    temporary->path = NULL;
}

/* Lets the lock go, whose file stays: what is left is for the next writer to remove. */
static void abandon(s24i_temporary *temporary)
{
    s24_ctx_log(temporary->ctx, S24_LOG_WARNING, "an unfinished or replaced output remains at %s",
                temporary->path);
    if (!temporary->lock) return;
    close(temporary->lock_fd);
    s24_ctx_free(temporary->ctx, temporary->lock);
    temporary->lock = NULL;
}

void s24i_temporary_end(s24i_temporary *temporary)
{
    int64_t bytes = 0;
    if (!temporary->path) return;
    if (!s24i_remove_tree(temporary->path, &bytes)) abandon(temporary);
    s24i_temporary_leave(temporary);
}

/* Paths of a temporary and its lock, with a name that nobody has. */
static s24_status name_it(s24i_temporary *out, s24_ctx *ctx, const char *path)
{
    unsigned long long number;
    char name[NAME + 1];
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return s24i_fail_errno(ctx, "take a random name beside", path);
    snprintf(name, sizeof name, PREFIX "%016llx", number);
    const int folder = (int)(s24i_base_name(path) - path);
    const size_t bytes = (size_t)folder + sizeof name + sizeof LOCK;
    *out = (s24i_temporary){.ctx = ctx, .lock_fd = -1};
    s24_status status = s24i_zeroed(&out->path, ctx, bytes);
    if (status == S24_OK) status = s24i_zeroed(&out->lock, ctx, bytes);
    if (status == S24_OK) {
        snprintf(out->path, bytes, "%.*s%s", folder, path, name);
        snprintf(out->lock, bytes, "%.*s%s%s", folder, path, name, LOCK);
    } else {
        s24i_temporary_leave(out);
    }
    return status;
}

/* Makes the lock's file and locks it; 0: a sweeper was there in between. *fd is −1 where it cannot
   be. */
static int make_lock(int *fd, const char *path)
{
    struct stat info = {.st_nlink = 1};
    *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (*fd < 0) return 1;
    const int is_locked = flock(*fd, LOCK_EX | LOCK_NB) == 0;
    const int is_held = !is_locked && errno == EWOULDBLOCK;
    if (is_locked && (fstat(*fd, &info) != 0 || info.st_nlink > 0)) return 1;
    unlink(path);
    close(*fd);
    *fd = -1;
    return !is_held && info.st_nlink > 0;
}

/* Takes the lock; where that cannot be, the temporary has none. */
static void lock_it(s24i_temporary *temporary)
{
    enum { TIMES = 3 };
    char boot[BOOT + 1], mark[MARK];
    int fd = -1;
    for (int i = 0; i < TIMES && !make_lock(&fd, temporary->lock); i++)
        ;
    read_boot(boot);
    const size_t bytes = write_mark(mark, s24i_base_name(temporary->path), boot);
    temporary->lock_fd = fd;
    /* Synced, so that after a loss of power no temporary stands there whose lock says nothing. */
    if (fd >= 0 && write(fd, mark, bytes) == (ssize_t)bytes && fsync(fd) == 0) return;
    if (fd >= 0) {
        unlink(temporary->lock);
        close(fd);
    }
    s24_ctx_free(temporary->ctx, temporary->lock);
    temporary->lock = NULL;
}

s24_status s24i_temporary_create(s24i_temporary *out, int *fd, s24_ctx *ctx, const char *path,
                                 mode_t mode)
{
    sweep(ctx, path);
    TRY(name_it(out, ctx, path));
    lock_it(out);
    const int made =
        fd ? open(out->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode) : mkdir(out->path, mode);
    if (fd) *fd = made;
    if (made >= 0) return S24_OK;
    const s24_status status = s24i_fail_errno(ctx, "create", path);
    s24i_temporary_leave(out);
    return status;
}

/* ---- folders of callers ---------------------------------------------------------------------- */

struct s24_temporary {
    s24_ctx *ctx;
    s24i_temporary folder;
};

s24_status s24_temporary_create(s24_temporary **out, s24_ctx *ctx, const char *parent)
{
    s24_temporary *temporary;
    char *beside;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, parent && *parent, S24_ERROR_ARGUMENT,
            "the path of a temporary's parent is empty");
    TRY(s24i_zeroed(&temporary, ctx, sizeof *temporary));
    temporary->ctx = ctx;
    s24_status status = s24i_join_path(&beside, ctx, parent, "");
    if (status == S24_OK)
        status = s24i_temporary_create(&temporary->folder, NULL, ctx, beside, 0700);
    s24_ctx_free(ctx, beside);
    GIVE(out, temporary, s24_temporary_destroy, status);
}

const char *s24_temporary_path(const s24_temporary *temporary)
{
    return temporary ? temporary->folder.path : NULL;
}

void s24_temporary_destroy(s24_temporary *temporary)
{
    if (!temporary) return;
    s24_ctx *ctx = temporary->ctx;
    s24i_temporary_end(&temporary->folder);
    s24_ctx_free(ctx, temporary);
}
