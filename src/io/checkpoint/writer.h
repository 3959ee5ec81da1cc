// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of a writer, shared by writer.c (what callers do), writer_declare.c (what there will
 * be), writer_layout.c (what lies where) and writer_text.c (what JSON says of it).
 */
#ifndef S24_IO_CHECKPOINT_WRITER_H
#define S24_IO_CHECKPOINT_WRITER_H

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/names.h"
#include "io/file/output.h"
#include "io/file/xxh3.h"

/* One stored tensor: a dense one, or one of the parts of a packed one. */
typedef struct s24i_part {
    const char *name; /* the writer's */
    s24_dtype dtype;
    int rank;
    int64_t shape[S24_MAX_RANK];
    size_t bytes;
    size_t file;              /* index into the writer's files */
    uint64_t offset;          /* in that file after its header, once laid out */
    size_t done;              /* of its bytes */
    int is_written;           /* all of them are */
    s24i_xxh3_stream *stream; /* of those that are, where they come in pieces; else NULL */
    uint64_t hash;            /* of its bytes, once written */
    /* Of a packed tensor's first part what the metadata say of it; else cols is 0. */
    int bits;
    int64_t rows, cols, group;
    int dense;          /* all of a dense matrix, of integers */
    int transposed;     /* it stands for the transpose */
    const char *layout; /* NULL: none, else the part is its stream */
    s24_format format;  /* of one in a sparse format, whose first part are the values; else 0 */
    int64_t block_rows, block_cols;
    int lift;             /* of a lifted one, whose cols are those before; else 0 */
    int64_t factors;      /* their rank, in later parts or this one; 0: there are none */
    int is_factors;       /* and nothing that they are added to */
    size_t logical_bytes; /* of name, without its suffix */
} s24i_part;

/* A file of a folder that holds no tensors of the writer's, by its path in there. */
typedef struct s24i_side {
    const char *name; /* the writer's */
    uint64_t hash;
} s24i_side;
typedef struct s24i_sides {
    s24i_names names; /* by number */
    s24i_side *files;
    int64_t room;
} s24i_sides;

typedef struct s24i_out_file {
    const char *name;          /* the model's, or the base name of a single output */
    const s24i_json *metadata; /* the model's, or NULL */
    const char *key, *value;   /* one more, or NULL */
    size_t packed;             /* how many packed tensors it has */
    int version;               /* 1; 2: some are quantised; 3: have a layout; 4: are transposed;
                                  5: are dense; 6: are in a sparse format; 7: are lifted;
                                  8: have factors or are integers in a sparse format;
                                  9: have dense columns; 10: are integers in a layout */
    int has_streams;           /* some have a layout */
    int fd;                    /* −1: not open */
    int is_used;               /* has a tensor, or is the only file */
    const s24i_sides *sides;   /* that its header has the hashes of; NULL: it has none's */
    uint64_t begin;            /* of the data, once laid out */
} s24i_out_file;

struct s24_writer {
    s24_ctx *ctx;
    char *path;                   /* where the output goes */
    s24i_temporary temporary;     /* where it is written: a file, or a folder; none: not made yet */
    int force, is_folder;         /* or a single file */
    const s24_checkpoint *model;  /* NULL: none */
    const s24_checkpoint *folder; /* the same, if its folder goes along; else NULL */
    const char *source;           /* what a folder is made of, which it may not replace */
    s24i_json *metadata;          /* of a folder of no model's */
    char *key, *value;            /* one more of the metadata of every file; or NULL */
    char *config;                 /* the text of config.json in place of folder's, NULL: that */
    s24i_out_file *files;
    size_t file_count;
    s24i_names names; /* of the parts, by number */
    s24i_part *parts;
    int64_t count, room;
    s24i_part **order; /* as they lie in the files, once laid out */
    s24i_sides sides;
    int64_t rows;          /* of a tensor, that each write gives, in order; 0: all of them */
    s24i_writer_work work; /* of the next write */
    int is_begun;          /* laying out has begun, even if it failed */
    int is_laid_out;       /* everything has its place in the temporary output */
    int is_closed;         /* a commit has begun: nothing may follow, even if it failed */
};

/* What a folder that no model's goes along with is made of. */
typedef struct s24i_new_folder {
    const char *path, *source; /* source: the file that is read */
    int force;
} s24i_new_folder;
/* A writer of a folder that has one file of tensors and what s24i_writer_add_file gives it, as
   transformers reads it. As s24_writer_create; source must outlive the writer. */
s24_status s24i_writer_create_folder(s24_writer **out, s24_ctx *ctx, const s24i_new_folder *what);
/* As s24_writer_create, which refuses a model that another library quantised: for who writes its
   numbers. */
s24_status s24i_writer_create_converted(s24_writer **out, s24_ctx *ctx, const char *path,
                                        const s24_writer_opts *opts);
/* Adds a file to such a folder, when all tensors are declared and before the first is written.
   Errors: as s24_writer_write. */
s24_status s24i_writer_add_file(s24_writer *writer, const char *name, const void *data,
                                size_t bytes);

/* The same of what write puts there, JSON as a rule; it runs as for s24i_json_make. */
s24_status s24i_writer_add_text(s24_writer *writer, const char *name,
                                void (*write)(s24i_json_text *text, const void *user),
                                const void *user);
/* Of a writer with a model's folder: the text that config.json has in the output; it is copied.
   MEMORY. */
s24_status s24i_writer_set_config(s24_writer *writer, const char *text);

/* Is a key of the metadata the writer's to set? */
int s24i_is_own_key(const char *key);
/* The part that a name with a suffix is stored under, NULL if there is none. */
s24i_part *s24i_writer_find_part(const s24_writer *writer, const char *name, const char *suffix);
/* The open file of the model whose mode the writer's file takes, −1: there is none. */
int s24i_writer_like(const s24_writer *writer, size_t file);
/* Fixes the order and place of everything, makes the temporary output and puts side files there. */
s24_status s24i_writer_lay_out(s24_writer *writer);
/* Makes the temporary output, if it is not there yet. */
s24_status s24i_writer_make_temporary(s24_writer *writer);
/* Writes the headers, when all tensors are written and their hashes known. */
s24_status s24i_writer_put_headers(s24_writer *writer);
/* Writes the index, copies what goes along with the model's folder, and puts the writer's
   config.json in place of its own. */
s24_status s24i_writer_copy_sides(s24_writer *writer);
/* Notes what a side file holds, in place of what was noted of it before. */
s24_status s24i_writer_note_side(s24_writer *writer, const char *name, const void *data,
                                 size_t bytes);
/* The text of a file's header, padded; parts … end are the file's own. Its length depends on no
   hash. MEMORY. */
s24_status s24i_writer_header(char **out, s24_ctx *ctx, const s24i_out_file *file,
                              s24i_part *const *parts, s24i_part *const *end);
/* The text of model.safetensors.index.json; freed with s24_ctx_free. */
s24_status s24i_writer_index(char **out, const s24_writer *writer);

#endif
