// SPDX-License-Identifier: Apache-2.0
/* What pack and unpack share: what becomes of each tensor, and how it is written. */
#ifndef SPARSE24_CLI_PACK_PACK_H
#define SPARSE24_CLI_PACK_PACK_H

#include "passages.h"

struct pack_options {
    cli_common common;
    const char *include, *exclude, *quantize, *head, *layout, *format;
    int dense;
    passages_options passages;
};

/* Describes a tensor that changed its form. */
typedef struct pack_layer {
    const s24_tensor *tensor;
    size_t bytes_out;
} pack_layer;

typedef struct pack_scheme {
    const char *name; /* NULL: none */
    int bits;
    int64_t group; /* 0: the row */
} pack_scheme;

/* What becomes of a tensor. */
typedef enum pack_fate { STAYS, PACKED, INTEGERS /* dense ones */, SPARSE, UNPACKED } pack_fate;

typedef struct pack_job {
    cli_app *cli;
    const struct pack_options *options;
    int packing;                 /* 1: pack, 0: unpack */
    pack_scheme scheme, head_by; /* of the selected, and of the head */
    const s24_tensor *head;      /* a language model's, where it is quantised */
    s24_sparse_parts format;     /* --format's, sides alone; format 0: 2:4 */
    int lift;                    /* --format 6:8's 8; 0: 2:4 */
    s24_device *device;          /* NULL: the CPU */
    const s24_checkpoint *checkpoint;
    s24_writer *writer;
    pack_fate *fates;         /* of every tensor, in their order */
    s24_sparse_parts *sparse; /* of every tensor that becomes sparse, but for its memory */
    int64_t declared;         /* tensors */
    pack_layer *layers;       /* room for every tensor; NULL: no --json */
    int64_t changed, bytes_in, bytes_out;
} pack_job;

/* Names the scheme's bits and group; name NULL: none. */
pack_scheme pack_scheme_named(const char *name);
int pack_wants_layout(const pack_job *j);
int pack_is_selected(const pack_job *j, const s24_tensor *tensor);
/* Reads --format. */
int pack_read_format(pack_job *j);
/* Makes the numbers [n, k] of a tensor in its own dtype: where they lie, or in memory of their own,
   which is the caller's. */
s24_status pack_numbers(s24_dense *out, void **own, pack_job *j, const s24_tensor *tensor);
/* Holds a matrix in a sparse format, and of integers their rows' scales. */
typedef struct pack_sparse {
    s24_sparse *matrix;
    float *scales;
} pack_sparse;
/* Makes a tensor [n, k] of the job's format; freed unless that fails. */
s24_status pack_make_sparse(pack_sparse *out, pack_job *j, const s24_tensor *tensor);
void pack_free_sparse(pack_sparse *sparse);
/* Writes a tensor in it. */
s24_status pack_write_sparse(pack_job *j, const s24_tensor *tensor, size_t *bytes);
/* Gives the bytes that such parts take in a file, with scales of rows or without. */
size_t pack_sparse_bytes(const s24_sparse_parts *parts, int scaled);
/* Gives n and k of the matrix that the tensor is packed into, or is. */
s24_dense pack_shape(const s24_tensor *tensor);
/* Adds the tensor's name to a failure's sentence: the library speaks of a matrix, and which one is
   known here only. */
s24_status pack_of_tensor(pack_job *j, const s24_tensor *tensor, s24_status status);
/* Settles what becomes of every tensor, and refuses what no packing can do before anything is
   written. */
int pack_settle(pack_job *j);
/* Declares the next tensor as it stands in the output; user is the job. */
void pack_declare(void *user, s24_tensor *tensor);
/* Writes a tensor that changes its form. */
s24_status pack_write(pack_job *j, const s24_tensor *tensor, pack_fate to, size_t *bytes);
/* Refuses a tensor that is to be packed and is not 2:4. */
s24_status pack_check_two_four(pack_job *j, const s24_tensor *tensor);
/* Writes all of the output, integers rounded by the inputs of --calibration's passages
   (pack_rounded.c). */
int pack_rounded(pack_job *j);

#endif
