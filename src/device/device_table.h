// SPDX-License-Identifier: Apache-2.0
/*
 * The border between libsparse24 and a device's plugin (libsparse24-cuda): a table of functions
 * that the plugin's one symbol returns. The plugin is opened at run time and links nothing of
 * libsparse24, so both are built from this header and compare its number.
 *
 * Every function that can fail returns a status and then leaves a sentence in `error`. `stream` is
 * the device's own handle (a cudaStream_t), NULL its default stream; work is enqueued there and
 * not waited for, unless said. A job of an operation that callers name themselves is the caller's
 * struct in this version's shape, checked by src/device; its stream is the function's argument.
 */
#ifndef S24_DEVICE_DEVICE_TABLE_H
#define S24_DEVICE_DEVICE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "device/device_layers.h"

#define S24I_DEVICE_ABI    24
#define S24I_DEVICE_SYMBOL "s24_device_table_cuda"

typedef struct s24i_device s24i_device;
typedef struct s24i_device_train_table s24i_device_train_table; /* device/device_train_table.h */

typedef struct s24i_device_error {
    char text[256];
} s24i_device_error;

/* What a job found in dense memory, as row·k + column; −1 where there is none. */
typedef struct s24i_device_report {
    int64_t bad_group;   /* the first element of the first group along k that is not 2:4 */
    int64_t nonfinite;   /* the first NaN or Inf */
    int64_t beyond;      /* the first element that is beyond its dtype when scaled (MVUE24) */
    int64_t bad_along_n; /* the first of four rows of a column that are not 2:4 (a pair) */
} s24i_device_report;

/* A weight [n, k] in the device's order (sparse24/device.h). */
struct s24_device_weight {
    s24_allocator allocator;
    s24_device *device;
    void *stream;
    s24_dtype dtype;
    int64_t n, k;
    size_t bytes;
    void *packed;
    s24i_device_report *report; /* device memory: what the last packing there found */
    int allow_nonfinite;        /* of that packing */
    void *vendor;               /* what another backend made of it, NULL at first: the plugin's */
    int in_place;               /* 1: packed is the caller's */
};

/*
 * A weight [n, k] in rows of square blocks. A block lies as shared memory wants it, in slices whose
 * rows of 16 to 128 bytes (S24I_BLOCKS_ROW) have their 16 bytes in the order that the copy engine's
 * swizzle would give them. After the last block comes one of zeros where rows have 16 bytes: the
 * tensor cores take such blocks in pairs.
 */
struct s24_device_blocks {
    s24_allocator allocator;
    s24_device *device;
    void *stream;
    s24_dtype dtype;
    int64_t n, k, block, stored;
    size_t bytes;
    void *values;                    /* the memory; the others lie in it */
    int32_t *starts, *index, *order; /* order: lines of blocks, the longest first */
};
/* Bytes of a slice's row, of elements of `each` bytes. */
#define S24I_BLOCKS_ROW(block, each) ((block) * (each) < 128 ? (block) * (each) : 128)
/* Where 16 bytes of a row of a slice lie; and which lie there. */
#define S24I_BLOCKS_CHUNK(row_bytes, row, chunk)                                                   \
    ((row_bytes) == 128  ? (chunk) ^ (row) % 8                                                     \
     : (row_bytes) == 64 ? (chunk) ^ (row) / 2 % 4                                                 \
     : (row_bytes) == 32 ? (chunk) ^ (row) / 4 % 2                                                 \
                         : (chunk))

/* It as a dense matrix [n, k] of its dtype. */
typedef struct s24i_device_blocks_widen {
    const s24_dense *to;
    const s24_device_blocks *weight;
} s24i_device_blocks_widen;

/* A product: the caller's arguments, checked, and the weight. args->norm is complete, and its
   residual_gamma and residual_beta are NULL where it has no residual_moments. */
typedef struct s24i_device_linear {
    const s24_device_linear_args *args;
    s24_device_weight *weight;
    int64_t m;
    int tile;    /* one of the plugin's tiles; negative: its choice */
    int columns; /* x is [k, m], y and residual [n, m]; 16-bit dtypes */
} s24i_device_linear;

/* Integers [n, k] in the order of s24i_strips (format/format.h), the rows' scales after them. */
struct s24_device_integers {
    s24_allocator allocator;
    s24_device *device;
    void *stream;
    int bits, sparse;
    int group; /* 64, 128, or 0: a scale per row */
    int64_t n, k;
    size_t slab_bytes, bytes; /* of 64 rows, in all */
    void *packed;
};

/* Their product: the caller's arguments, checked. */
typedef struct s24i_device_integers {
    const s24_device_linear_args *args;
    const s24_device_integers *weight;
} s24i_device_integers;

/* Them as a dense matrix [n, k] of f16 or bf16. */
typedef struct s24i_device_integers_widen {
    const s24_dense *to;
    const s24_device_integers *weight;
} s24i_device_integers_widen;

/* An expert's weight, as kernels find it. */
typedef struct s24i_device_expert {
    const void *weight;
    int64_t packed; /* 1: 2:4, in the device's order */
} s24i_device_expert;

struct s24_device_experts {
    s24_allocator allocator;
    s24_device *device;
    s24_dtype dtype;
    int64_t n, k, experts, parts;
    const s24i_device_expert *table; /* [parts, experts], device memory */
};

/* dense [n, k] of `dtype` to or from the device's order. */
typedef struct s24i_device_weight {
    s24_dtype dtype;
    int64_t n, k, ld;
    void *packed, *dense;
    void *packed_t; /* the transpose's or NULL; 16 bits, selected by tiles, a mask or strictly */
    /* Strict and magnitude for every dtype, the other ones for f16 and bf16. */
    s24_select select;
    const uint8_t *mask; /* [n, k] device memory */
    uint64_t seed;
    s24i_device_report *report; /* device memory, written */
} s24i_device_weight;

/* dense [n, k] of any dtype that can be 2:4 to a mask or to canonical memory, all on the device. */
typedef struct s24i_device_select {
    s24_dtype dtype;
    int64_t n, k, ld;
    const void *dense;
    s24_select select;          /* of a mask: magnitude or tiles; else anything but tiles */
    const uint8_t *mask;        /* [n, k] */
    uint64_t seed;              /* MVUE24 of f32, f16 and bf16 */
    uint8_t *chosen;            /* [n, k], or NULL and */
    void *values;               /* [n, k/2] */
    uint8_t *indices;           /* [n, ceil(k/8)] */
    s24i_device_report *report; /* written */
} s24i_device_select;

/* dst[r, c] = mask[r, c] ? src[r, c] : 0, elements of `bytes`. */
typedef struct s24i_device_masking {
    size_t bytes;
    int64_t rows, cols, ld_dst, ld_src;
    void *dst;
    const void *src;
    const uint8_t *mask;
} s24i_device_masking;

/* The table: a member for each row of device_ops.def. */
typedef struct s24i_device_table {
    int abi;
#define CALL(result, name, parameters) result(*name) parameters;
#define JOB(name, type)                                                                            \
    s24_status (*name)(s24i_device * device, const type *job, void *stream,                        \
                       s24i_device_error *error);
#include "device/device_ops.def"
    const s24i_device_train_table *train;
} s24i_device_table;

#endif
