// SPDX-License-Identifier: Apache-2.0
/*
 * Removes a folder with all in it. It does so when memory has ended too, so it allocates nothing:
 * opendir does.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/file/output.h"

/* Descends at most this far, one open folder a level. */
enum { MAX_DEPTH = 64, BUFFER = 2048 };

/* As the system call writes them. */
typedef struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short bytes; /* of all of it */
    unsigned char type;
    char name[];
} entry;

static int remove_at(int folder, const char *name, int depth, int64_t *bytes);

/* Removes what it can of a folder's entries; how many. */
static int remove_entries(int fd, int depth, int64_t *bytes)
{
    _Alignas(entry) char buffer[BUFFER];
    int removed = 0;
    if (lseek(fd, 0, SEEK_SET) != 0) return 0;
    for (long got; (got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0;) {
        for (long at = 0; at < got;) {
            const entry *e = (const entry *)(const void *)(buffer + at);
            at += e->bytes;
            if (strcmp(e->name, ".") != 0 && strcmp(e->name, "..") != 0)
                removed += remove_at(fd, e->name, depth + 1, bytes);
        }
    }
    return removed;
}

static int remove_folder(int folder, const char *name, int depth, int64_t *bytes)
{
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return 0;
    /* Entries may be passed over while others go; then another round finds them. */
    while (depth < MAX_DEPTH && remove_entries(fd, depth, bytes) > 0)
        ;
    close(fd);
    return unlinkat(folder, name, AT_REMOVEDIR) == 0;
}

static int remove_at(int folder, const char *name, int depth, int64_t *bytes)
{
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
    if (S_ISDIR(info.st_mode)) return remove_folder(folder, name, depth, bytes);
    if (unlinkat(folder, name, 0) != 0) return 0;
    *bytes += info.st_size;
    return 1;
}

int s24i_remove_tree(const char *path, int64_t *bytes)
{
    return remove_at(AT_FDCWD, path, 0, bytes);
}
