// SPDX-License-Identifier: Apache-2.0
/*
 * Quantised matrices: integers with scales. Part of sparse24.h, whose rules hold here and which
 * includes this file.
 *
 * Values are symmetric integers, w ≈ scale · integer, with an f32 scale for a row or for every 64
 * or 128 columns of it; a last group of fewer columns has a scale of its own. Everything that takes
 * a matrix takes them: to_dense and the products see scale·integer (rounded once to f32); copies
 * and transposed views keep the scales.
 */
#ifndef SPARSE24_INTEGERS_H
#define SPARSE24_INTEGERS_H

#include "sparse24/sparse24.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The schemes of this build, by index: "int8", "int8-g64", "int8-g128", "int4", "int4-g64",
   "int4-g128"; bits of an integer and columns that share a scale, 0 for the whole row (either may
   be NULL). NULL past the end. */
S24_API const char *s24_scheme_name(int index, int *bits, int64_t *group);
/*
 * A quantised copy of a float matrix by a scheme (NULL: "int8"); which positions are stored does
 * not change. 8 bits: scale = largest magnitude / 127, integers −127 … 127. 4 bits: integers −8 …
 * 7, the scale with the least squared error among largest / 7 … / 16. Groups of zeros have scale 0.
 * Errors: ARGUMENT (unknown scheme), SHAPE (a transposed view), DTYPE (integers already),
 * NOT_FINITE (names row, column and group), MEMORY.
 */
S24_API s24_status s24_matrix_quantize(s24_matrix **out, s24_ctx *ctx, const s24_matrix *src,
                                       const char *scheme);
/* A quantised matrix as a file holds it (docs/format.md, section 3). */
typedef struct s24_quantized {
    int64_t rows, cols;
    int bits;      /* of an integer: 8 or 4 */
    int64_t group; /* columns that share a scale: 64, 128 or cols */
    /* int8_t [rows, cols/2], or bytes [rows, cols/4], a group's first low; of a dense one int8_t
       [rows, cols], or bytes [rows, cols/2], the first column low. */
    const void *values;
    const uint8_t *indices; /* [rows, ceil(cols/8)]; NULL: the matrix is dense */
    const float *scales;    /* [rows, ceil(cols/group)], finite and not negative */
} s24_quantized;

/* A quantised matrix from a copy of such memory, which is not dense. Errors: ARGUMENT, DTYPE,
   SHAPE, FORMAT, MEMORY. */
S24_API s24_status s24_matrix_from_quantized(s24_matrix **out, s24_ctx *ctx,
                                             const s24_quantized *from);
/* Its values in that form; indices and scales are so already. Errors: ARGUMENT, DTYPE. */
S24_API s24_status s24_matrix_to_quantized(void *values, s24_ctx *ctx, const s24_matrix *src);
/*
 * Values and scales of a dense matrix of floats by a scheme (NULL: "int8"), as s24_quantized has
 * them: what s24_matrix_quantize does to the stored values of a 2:4 one is done to all. Errors:
 * ARGUMENT (unknown scheme), SHAPE (columns that 4 does not divide), DTYPE, NOT_FINITE.
 */
S24_API s24_status s24_dense_quantize(void *values, float *scales, s24_ctx *ctx,
                                      const s24_dense *src, const char *scheme);
/* And back: dst = scale·integer, rounded to f32 and then to dst's dtype. Errors: ARGUMENT (from has
   indices), SHAPE, DTYPE. */
S24_API s24_status s24_dense_from_quantized(s24_ctx *ctx, const s24_dense *dst,
                                            const s24_quantized *from);
/* Scales [rows, ceil(cols/group)] of the stored matrix, borrowed; NULL if it has none. */
S24_API const float *s24_matrix_scales(const s24_matrix *matrix);
/* Bits of an integer, 8 or 4 (a 4-bit one takes a byte in s24_matrix_values); 0 for floats. */
S24_API int s24_matrix_bits(const s24_matrix *matrix);
/* Columns that share a scale (the stored matrix's width: one per row); 0 if there are no scales. */
S24_API int64_t s24_matrix_group(const s24_matrix *matrix);

#ifdef __cplusplus
}
#endif
#endif
