// SPDX-License-Identifier: Apache-2.0
/*
 * Sparse matrices that are not 2:4: coordinates, rows, columns, blocks. Part of sparse24.h, whose
 * rules hold here and which includes this file.
 */
#ifndef SPARSE24_FORMATS_H
#define SPARSE24_FORMATS_H

#include "sparse24/sparse24.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum s24_format {
    S24_FORMAT_COO = 1, /* row and column of each value, by row, then column */
    S24_FORMAT_CSR,     /* row after row: columns ascending */
    S24_FORMAT_CSC,     /* column after column: rows ascending */
    S24_FORMAT_BSR      /* rows of blocks, block columns ascending, each block whole */
} s24_format;

/* A matrix [rows, cols] of f32 f16 bf16 i8 e4m3 or e5m2 in one of these formats. Immutable; owns
   its memory. */
typedef struct s24_sparse s24_sparse;

/*
 * What a matrix consists of, as memory or a file holds it. starts: [rows + 1] of CSR, [cols + 1] of
 * CSC, [rows / block_rows + 1] of BSR: where in index and values each of them begins, the first 0,
 * the last `stored`; NULL of COO. index [stored]: columns (COO, CSR), rows (CSC), or columns of
 * blocks (BSR). rows_of [stored]: rows, of COO only. values [stored], or [stored, block_rows,
 * block_cols] of BSR.
 */
typedef struct s24_sparse_parts {
    s24_format format;
    s24_dtype dtype;
    int64_t rows, cols;
    int64_t block_rows, block_cols; /* of BSR: 1x4, 4x1, or a square of 8 16 32 64 128; else 0 */
    int64_t stored;
    const int64_t *starts;
    const int32_t *index, *rows_of;
    const void *values;
} s24_sparse_parts;

/* "coo", "csr", "csc", "bsr"; NULL of a number that is none. And back, 0 of another name. */
S24_API const char *s24_format_name(s24_format format);
S24_API s24_format s24_format_parse(const char *name);
/* A matrix of copies of such parts. Errors: ARGUMENT, SHAPE (a block that is none or does not
   divide the sides, sides past 2^31 − 1), DTYPE, FORMAT (the first place that is not as it must
   be), MEMORY. */
S24_API s24_status s24_sparse_from_parts(s24_sparse **out, s24_ctx *ctx,
                                         const s24_sparse_parts *parts);
/* What s24_sparse_from_parts refuses, with its errors but MEMORY; nothing is copied. Where starts,
   index and rows_of are NULL alike: format, dtype, sides and blocks alone. */
S24_API s24_status s24_sparse_check(s24_ctx *ctx, const s24_sparse_parts *parts);
/* What of a dense matrix is not zero, −0 being zero; of BSR every block that has such an element.
   `as` gives format and block sides alone. Errors: as above. */
S24_API s24_status s24_sparse_create(s24_sparse **out, s24_ctx *ctx, const s24_dense *src,
                                     const s24_sparse_parts *as);
/* The same matrix in another format. Stored zeros stay among COO, CSR and CSC; those of a block do
   not become entries. Errors: as above. */
S24_API s24_status s24_sparse_convert(s24_sparse **out, s24_ctx *ctx, const s24_sparse *src,
                                      const s24_sparse_parts *as);
/* Borrowed, as long as the matrix lives. */
S24_API s24_sparse_parts s24_sparse_get(const s24_sparse *matrix);
/* dst [rows, cols] in dst's dtype, as s24_convert converts. Errors: ARGUMENT, SHAPE, DTYPE,
   MEMORY. */
S24_API s24_status s24_sparse_to_dense(s24_ctx *ctx, const s24_dense *dst, const s24_sparse *src);
S24_API void s24_sparse_destroy(s24_sparse *matrix);

/*
 * A plan as s24_plan_create makes of a 2:4 matrix, for s24_plan_run and all the rest: y = x · Wᵀ
 * with bias, activation, gate and residual, in f32. BSR of square blocks and of 4x1 is multiplied
 * as it is, everything else as CSR. kernel: one of s24_sparse_kernel_name; NULL: the fastest here.
 * Errors: ARGUMENT (no such kernel), UNSUPPORTED (one of another format, or that this CPU has not),
 * MEMORY.
 */
S24_API s24_status s24_sparse_plan(s24_plan **out, s24_ctx *ctx, const s24_sparse *w,
                                   const char *kernel);
/*
 * The same with integers throughout: w of i8 in any format, whose rows are a multiple of four, is
 * multiplied as BSR of 4x1, four outputs of a column together. Tokens of f32 or bf16 become
 * integers as they come, one scale for each, sums are exact, and scales [rows], which are copied
 * (NULL: ones), multiply them: as a plan of s24_plan_opts.activations = S24_I8. Errors: as above,
 * DTYPE (w is not i8), SHAPE (rows; more than 2^17 columns), NOT_FINITE (a scale).
 */
S24_API s24_status s24_sparse_plan_integers(s24_plan **out, s24_ctx *ctx, const s24_sparse *w,
                                            const float *scales, const char *kernel);
/* Kernels of sparse matrices by index, what they multiply and the S24_CPU_ bits that they need
   (either may be NULL); NULL past the end. */
S24_API const char *s24_sparse_kernel_name(int index, s24_format *format, uint32_t *cpu);

#ifdef __cplusplus
}
#endif
#endif
