// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of a writer, shared by writer.c (what callers do), writer_declare.c (what there will be)
 * and writer_layout.c (what lies where).
 */
#ifndef S24_IO_WRITER_H
#define S24_IO_WRITER_H

#include "io/checkpoint.h"

/* One stored tensor: a dense one, or one of the parts of a packed one. */
typedef struct s24i_part {
    char *name;
    s24_dtype dtype;
    int rank;
    int64_t shape[S24_MAX_RANK];
    size_t bytes;
    size_t file;     /* index into the writer's files */
    uint64_t offset; /* in that file, once laid out */
    int is_stream;   /* of a layout */
    int is_written;
} s24i_part;

typedef struct s24i_out_file {
    const char *name;       /* the model's, or the base name of a single output */
    const json_t *metadata; /* the model's, or NULL */
    /* name → [rows, cols], [rows, cols, bits, group] or [rows, cols, layout] of its packed tensors */
    json_t *packed;
    int version; /* 1; 2: some are quantised; 3: some have a layout */
    int fd;      /* −1: not open */
    int is_used; /* has a tensor, or is the only file */
} s24i_out_file;

struct s24_writer {
    s24_ctx *ctx;
    char *path;      /* where the output goes */
    char *temporary; /* where it is written: a file, or a folder; NULL: not made yet */
    int force;
    const s24_checkpoint *folder; /* the model whose folder goes along; NULL: a single file */
    s24i_out_file *files;
    size_t file_count;
    s24i_part *parts;
    size_t count, capacity;
    json_t *by_name; /* stored name → index into parts */
    int is_laid_out; /* everything has its place in the temporary output */
    int is_closed;   /* a commit has begun: nothing may follow, even if it failed */
    int is_done;     /* the output is in its place */
};

/* The part that a name with a suffix is stored under, NULL if there is none. MEMORY. */
s24_status s24i_writer_find_part(s24i_part **out, const s24_writer *writer, const char *name,
                                 const char *suffix);
/* Fixes the order and place of everything, makes the temporary output and writes the headers. */
s24_status s24i_writer_lay_out(s24_writer *writer);
/* The text of model.safetensors.index.json; freed with s24_ctx_free. */
s24_status s24i_writer_index(char **out, const s24_writer *writer);

#endif
