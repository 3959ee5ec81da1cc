// SPDX-License-Identifier: Apache-2.0
/*
 * An output comes into being under a hidden name next to its place, is synced, then renamed. Until
 * the rename there is nothing at the place, or what was there before, whole.
 */
#ifndef S24_IO_FILE_OUTPUT_H
#define S24_IO_FILE_OUTPUT_H

#include <sys/types.h>

#include "io/file/io.h"

/*
 * A hidden file or folder, ".sparse24-" and 16 hexadecimal digits, with a lock next to it: a file
 * of the same name and ".lock" that says whose it is and is locked (flock) for as long as its
 * writer lives. One whose lock nobody holds is what a killed writer left, and the next that makes a
 * temporary there removes it. Where files cannot be locked there is no lock, and nothing is
 * removed.
 */
typedef struct s24i_temporary {
    s24_ctx *ctx;
    char *path; /* NULL: there is none */
    char *lock; /* NULL: not locked */
    int lock_fd;
} s24i_temporary;

/* A fresh file (its descriptor in *fd) or, with fd = NULL, a fresh folder next to path, of this
   mode less the umask's bits; first removes what killed writers left there, and says so. On error
   there is none. IO, MEMORY. */
s24_status s24i_temporary_create(s24i_temporary *out, int *fd, s24_ctx *ctx, const char *path,
                                 mode_t mode);
/* Removes it with all in it, if it is there still, and then its lock. */
void s24i_temporary_end(s24i_temporary *temporary);
/* From now on it is nobody's leftover. */
void s24i_temporary_unlock(s24i_temporary *temporary);
/* It stays where it is. */
void s24i_temporary_leave(s24i_temporary *temporary);

/* All bytes at offset. name is for the sentence. Asks for progress between large pieces. IO,
   INTERRUPTED. */
s24_status s24i_write_at(int fd, s24_ctx *ctx, const char *name, const void *data, size_t bytes,
                         uint64_t offset);
/* Gives a file the mode of another, which was its owner's choice; so the umask has no say in it.
   IO. */
s24_status s24i_take_mode(int fd, s24_ctx *ctx, const char *path, int from);
/* The same for folders, whose owner may always write them. */
s24_status s24i_take_folder_mode(s24_ctx *ctx, const char *path, const char *from);
/* Makes a new file of these bytes, synced, with the mode of the open file `like` (−1: a new one's).
   IO. */
s24_status s24i_write_file(s24_ctx *ctx, const char *path, const void *data, size_t bytes,
                           int like);
/* Syncs and closes; *fd becomes −1 in any case. IO. */
s24_status s24i_sync_and_close(int *fd, s24_ctx *ctx, const char *name);
s24_status s24i_sync_folder(s24_ctx *ctx, const char *path);

/* Where an output is to go. */
typedef struct s24i_place {
    const char *path;
    const char *source; /* what a folder is made of, which it may not replace */
    const char *also;   /* a file whose folder may be replaced, too; or NULL */
    int is_folder, force;
} s24i_place;
/* *out, the caller's in any case, is the path without slashes at its end; of a folder that is to be
   replaced without links. Only a model's folder is, or an empty one. EXISTS, IO, MEMORY. */
s24_status s24i_output_place(char **out, s24_ctx *ctx, const s24i_place *what);

/*
 * Gives a finished file or folder its place. Without force an existing output is EXISTS; with it
 * the old one is replaced in one step where the system can (Linux), else moved away first and moved
 * back if the new one cannot take its place. The parent folder is synced. Then the temporary has
 * ended; on error it is there still. IO, EXISTS, MEMORY (before anything is moved).
 */
s24_status s24i_put_in_place(s24i_temporary *temporary, const char *path, int force);

/* Removes what stands at a path, a file or a folder with all in it; links are removed, not
   followed. Allocates nothing. 1 if it is gone; *bytes grows by what was removed. */
int s24i_remove_tree(const char *path, int64_t *bytes);

/* Hears of each file that is copied, by its path in the folder and what it holds. */
typedef struct s24i_side_listener {
    s24_status (*heard)(void *user, const char *name, const void *data, size_t bytes);
    void *user;
} s24i_side_listener;
/* Copies the side files of a model folder: see side_files.c for which. IO, MEMORY, INTERRUPTED, and
   what the listener (may be NULL) returns. */
s24_status s24i_copy_side_files(s24_ctx *ctx, const char *from, const char *to,
                                const s24i_side_listener *listener);

#endif
