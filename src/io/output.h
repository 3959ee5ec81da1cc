// SPDX-License-Identifier: Apache-2.0
/*
 * How an output comes into being: under a hidden name beside its place, synced, then renamed. Until
 * the rename there is nothing at the place, or what was there before, whole.
 */
#ifndef S24_IO_OUTPUT_H
#define S24_IO_OUTPUT_H

#include "io/io.h"

/* A fresh file (its descriptor in *fd) or, with fd = NULL, a fresh folder beside path. *out is its
   path, NULL on error. IO, MEMORY. */
s24_status s24i_temporary_create(char **out, int *fd, s24_ctx *ctx, const char *path);

/* All bytes at offset. name is for the sentence. Asks for progress between large pieces. IO,
   INTERRUPTED. */
s24_status s24i_write_at(int fd, s24_ctx *ctx, const char *name, const void *data, size_t bytes,
                         uint64_t offset);
/* Makes a new file of these bytes, synced. IO. */
s24_status s24i_write_file(s24_ctx *ctx, const char *path, const void *data, size_t bytes);
/* Syncs and closes; *fd becomes −1 in any case. IO. */
s24_status s24i_sync_and_close(int *fd, s24_ctx *ctx, const char *name);
s24_status s24i_sync_folder(s24_ctx *ctx, const char *path);

/*
 * Gives a finished file or folder its place. Without force an existing output is EXISTS; with it
 * the old one is replaced in one step where the system can (Linux), else moved away first and
 * moved back if the new one cannot take its place. The parent folder is synced. IO, EXISTS,
 * MEMORY (before anything is moved).
 */
s24_status s24i_put_in_place(s24_ctx *ctx, const char *temporary, const char *path, int force);

/* Removes a file, or a folder with all in it; links are removed, not followed. 1 if gone. */
int s24i_remove_tree(const char *path);

/* Copies the side files of a model folder: see side_files.c for which. IO, MEMORY, INTERRUPTED. */
s24_status s24i_copy_side_files(s24_ctx *ctx, const char *from, const char *to);

#endif
