// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of this room share: paths, read-only maps, names made fit for an
 * error sentence. Private to libsparse24-nn; like a customer it sees the core's public
 * header only.
 *
 * All memory comes from the context.
 */
#ifndef S24_IO_FILE_IO_H
#define S24_IO_FILE_IO_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>

#include "base/try.h"
#include "sparse24/nn.h"

/* Zeroed memory of the context into the pointer at out; MEMORY with a sentence, then it is NULL. */
s24_status s24i_zeroed(void *out, s24_ctx *ctx, size_t bytes);
/* count·size bytes of context memory (not zeroed), or S24_ERROR_MEMORY with a sentence that says
   what for. */
s24_status s24i_alloc_elems(void *out, s24_ctx *ctx, int64_t count, size_t size, const char *what);
/* Room for `wanted` elements in *data, context memory for *room of them (NULL: 0), what is
   there kept: where they are more, for twice as many as before at least. MEMORY, then all is as
   it was. */
s24_status s24i_reserve_elems(void *data, int64_t *room, s24_ctx *ctx, int64_t wanted, size_t size,
                              const char *what);
/* A copy of a string; "folder/file"; the folder that a path lies in. Freed with s24_ctx_free.
   MEMORY. */
s24_status s24i_copy_string(char **out, s24_ctx *ctx, const char *text);
s24_status s24i_join_path(char **out, s24_ctx *ctx, const char *folder, const char *file);
s24_status s24i_parent_folder(char **out, s24_ctx *ctx, const char *path);
/* The part of a path after its last '/'. */
const char *s24i_base_name(const char *path);
/* 1 if text ends with suffix. */
int s24i_ends_with(const char *text, const char *suffix);

/* Fails with "cannot VERB PATH: what errno says": IO, or MEMORY for ENOMEM. */
s24_status s24i_fail_errno(s24_ctx *ctx, const char *verb, const char *path);

/* The next name in an open folder; NULL: there is no more. IO. */
s24_status s24i_next_name(const char **name, s24_ctx *ctx, DIR *entries, const char *folder);
/* Is there something at a path? IO, where the system does not say. */
s24_status s24i_path_is_there(int *is_there, s24_ctx *ctx, const char *path);

/* A name out of a file, cut to a bearable length and escaped as by s24_text_escape, for a sentence:
   s24_ctx_fail(ctx, …, "%s", s24i_show(name).text). */
typedef struct s24i_shown {
    char text[104];
} s24i_shown;
s24i_shown s24i_show(const char *name);

/* A regular file mapped for reading. data is not NULL even for an empty file. */
typedef struct s24i_map {
    const uint8_t *data;
    size_t bytes;
} s24i_map;
/* IO (not there, not readable, not a regular file), MEMORY. On error *out is empty. */
s24_status s24i_map_open(s24i_map *out, s24_ctx *ctx, const char *path);
/* The same, and the file stays open in *fd (−1 on error), for s24i_map_again. */
s24_status s24i_map_open_fd(s24i_map *out, int *fd, s24_ctx *ctx, const char *path);
/* Pages begin … begin + bytes of an open file once more, the caller's own, read when they are
   touched or at once. data is where begin's page starts, which begin % (the page's size) bytes
   precede. IO, MEMORY. */
s24_status s24i_map_again(s24i_map *out, s24_ctx *ctx, int fd, size_t begin, size_t bytes,
                          int at_once, const char *path);
void s24i_map_close(s24i_map *map);
/* All of these bytes, which may lie in a map, are about to be read: its pages are entered at once,
   which takes less than one fault after the other. */
void s24i_map_touch(const void *from, size_t bytes);
/* These bytes, which may lie in a map, will be read soon: the disk may begin. */
void s24i_map_expect(const void *from, size_t bytes);
/* What lies in a map from *from to `to` was read: where that is as much as is worth a call, its
   pages are let go (they come again when they are touched) and *from moves on. */
void s24i_map_forget(const char **from, const char *to);

/* Reads a reader that has given no line yet to its end; the text is the reader's. IO, MEMORY. */
s24_status s24i_line_reader_all(s24_text *all, s24_line_reader *reader);
/* Makes a text of line `number` of the file `name`, given without its LF: a CR before an LF (ended:
   there was one) drops, and what is not UTF-8 is refused. FORMAT. */
s24_status s24i_line_take(s24_text *line, s24_ctx *ctx, const char *name, int64_t number,
                          int ended);

#endif
