// SPDX-License-Identifier: Apache-2.0
/*
 * The safetensors container: 8 bytes little-endian N, N bytes of JSON, then the tensors' bytes
 * without holes. Also the packed 2:4 matrices that docs/format.md section 3 lays into it.
 */
#ifndef S24_IO_CHECKPOINT_SAFETENSORS_H
#define S24_IO_CHECKPOINT_SAFETENSORS_H

#include "io/file/io.h"
#include "io/json/json.h"

/* The container's own limit for N; also bounds what parsing a header may cost. */
#define S24I_HEADER_MAX_BYTES ((uint64_t)100000000)
/* Our own, of docs/format.md: a file of a million tensors is nobody's model, but fits such a
   header. */
enum { S24I_MAX_MEMBERS = 1 << 20 };

#define S24I_VALUES_SUFFIX  ".s24_values"
#define S24I_INDICES_SUFFIX ".s24_indices"
#define S24I_SCALES_SUFFIX  ".s24_scales"
#define S24I_STREAM_SUFFIX  ".s24_stream"
#define S24I_STARTS_SUFFIX  ".s24_starts"
#define S24I_INDEX_SUFFIX   ".s24_index"
#define S24I_ROWS_SUFFIX    ".s24_rows"
#define S24I_LEFT_SUFFIX    ".s24_left"
#define S24I_RIGHT_SUFFIX   ".s24_right"
#define S24I_VERSION_KEY    "sparse24.version"
#define S24I_PACKED_KEY     "sparse24.packed"
/* Hashes, first of a header's metadata: a header that has them begins with S24I_HASH_LEAD and the
   digits of what follows them. */
#define S24I_HASH_KEY          "sparse24.xxh3"
#define S24I_HASH_LEAD         "{\"__metadata__\":{\"" S24I_HASH_KEY "\":\"{\\\"header\\\":\\\""
#define S24I_PACKED_VERSION    "1"
#define S24I_QUANTIZED_VERSION "2" /* of a file that has a quantised matrix */
#define S24I_LAYOUT_VERSION    "3" /* of one that has a matrix in a layout */
/* Of one that has a matrix whose transpose is the tensor that it stands for, and how it says so. */
#define S24I_TRANSPOSED_VERSION "4"
#define S24I_TRANSPOSED         "transposed"
/* Of one that has a dense matrix of integers, and how it says so. */
#define S24I_DENSE_VERSION  "5"
#define S24I_DENSE          "dense"
#define S24I_SPARSE_VERSION "6" /* of one that has a matrix in a sparse format */
#define S24I_LIFTED_VERSION "7" /* of one that has a lifted matrix */
/* Of one of integers in a sparse format, or with factors, or of factors alone, and how it says so
   of those. */
#define S24I_FACTORS_VERSION  "8"
#define S24I_LOW_RANK         "low-rank"
#define S24I_FACTORS          "factors"
#define S24I_BESIDE_VERSION   "9"  /* of one that has a matrix whose first columns are dense */
#define S24I_STREAMED_VERSION "10" /* of one that has a matrix of integers in a layout */

/* What a header says. Everything in it has been checked against the file's size. */
typedef struct s24i_header {
    s24_tensor *tensors; /* data points into the file's bytes; sorted by name; file is NULL */
    size_t count;
    char *names;              /* owns the tensors' names */
    s24i_json *metadata;      /* an object of strings, or NULL */
    s24_sparse_parts *sparse; /* of matrices in sparse formats; NULL: there are none */
    size_t sparse_count;
} s24i_header;

/*
 * Reads the header of a file that is mapped, whose pages are let go again on the way: all in all it
 * takes at most four times the header's bytes. path is for sentences. On error *out is empty.
 * FORMAT names path, tensor, what stands there and what was expected. MEMORY.
 */
s24_status s24i_header_read(s24i_header *out, s24_ctx *ctx, const char *path, const s24i_map *map);
void s24i_header_free(s24i_header *header, s24_ctx *ctx);

/* Turns the stored parts of every packed matrix into one logical tensor, after checking all that
   docs/format.md wants checked, codes included. FORMAT, MEMORY, INTERRUPTED. */
s24_status s24i_header_fold_packed(s24i_header *header, s24_ctx *ctx, const char *path);

/* The codes of a packed [rows, cols] must be legal and unused bits zero; FORMAT names the place. */
s24_status s24i_check_codes(s24_ctx *ctx, const char *path, const char *name,
                            const uint8_t *indices, int64_t rows, int64_t cols);

/* The scales of a quantised matrix of these rows, cols and group must be finite and not negative;
   FORMAT names the place. */
s24_status s24i_check_scales(s24_ctx *ctx, const char *path, const char *name, const void *scales,
                             const s24_quantized *of);

/* The dtype of a layout's values; S24_DTYPE_NONE: no such layout. *name: as the library has it. */
s24_dtype s24i_layout_dtype(const char **name);
/* s24_layout_check, whose sentence names file and tensor. */
s24_status s24i_check_stream(s24_ctx *ctx, const char *path, const char *name,
                             const s24_laid_out *weight);

/* The dtype's name in a header ("F32"), NULL if it has none; back, S24_DTYPE_NONE if unknown. */
const char *s24i_dtype_label(s24_dtype dtype);
s24_dtype s24i_dtype_of_label(const char *label);
/* The order of dtypes in a file: larger comes first, wider elements before narrower ones. */
int s24i_dtype_rank(s24_dtype dtype);

/* qsort and bsearch by name, for arrays of s24_tensor. */
int s24i_compare_names(const void *a, const void *b);
s24_tensor *s24i_find_name(const s24_tensor *sorted, size_t count, const char *name);

#endif
