// SPDX-License-Identifier: Apache-2.0
/*
 * Weights in the orders in which kernels of the CPU read them, and plans that use them where they
 * lie. Part of sparse24.h, whose rules hold here and which includes this file.
 */
#ifndef SPARSE24_LAYOUTS_H
#define SPARSE24_LAYOUTS_H

#include "sparse24/sparse24.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The orders of weights, as files may hold them (docs/format.md, section 4); a name never changes
 * its meaning. By index: the dtype of the values and the rows of a row block (either may be NULL):
 * matrices of a multiple of so many rows, one after the other, are one matrix in the layout too.
 * NULL past the end.
 */
S24_API const char *s24_layout_name(int index, s24_dtype *dtype, int64_t *rows);
/* Bits of an integer of a layout, 8 or 4, and how many columns share a scale, 0: those of a row
   (group may be NULL). 0: a layout of floats, or none. */
S24_API int s24_layout_bits(const char *layout, int64_t *group);
/* The layout of plans of a dtype's matrices with this context; NULL: one that no file holds. */
S24_API const char *s24_layout_of(const s24_ctx *ctx, s24_dtype dtype);
/* The same of matrices of integers of 8 or 4 bits with a scale for 64 or 128 columns, or, group 0,
   for a row. */
S24_API const char *s24_layout_of_integers(const s24_ctx *ctx, int bits, int64_t group);
/* Bytes of [rows, cols] in a layout, a multiple of 64; 0: no such layout, or no matrix of 2:4. */
S24_API size_t s24_layout_bytes(const char *layout, int64_t rows, int64_t cols);
/* A weight [rows, cols] in a layout. */
typedef struct s24_laid_out {
    const char *layout;
    int64_t rows, cols;
    const void *data; /* s24_layout_bytes(layout, rows, cols) */
} s24_laid_out;

/* A matrix's weight in the layout, and a matrix of a weight in one, which is copied and checked.
   Errors: ARGUMENT (an unknown layout), SHAPE (a transposed view), DTYPE (not the layout's dtype,
   bits or group), FORMAT (as below), MEMORY. */
S24_API s24_status s24_matrix_to_layout(void *to, s24_ctx *ctx, const s24_matrix *src,
                                        const char *layout);
S24_API s24_status s24_matrix_from_layout(s24_matrix **out, s24_ctx *ctx, const s24_laid_out *from);
/* Are all codes legal, scales finite and not negative, and is what is past rows and cols as the
   layout wants it? Values are not judged. Errors: ARGUMENT, SHAPE, FORMAT (names the place). */
S24_API s24_status s24_layout_check(s24_ctx *ctx, const s24_laid_out *from);

/*
 * A plan that multiplies with w where it lies, 64-byte aligned, without a copy: w->data must
 * outlive the plan and not change. Nothing of it is read here; s24_layout_check does. opts (NULL:
 * defaults): `rounds` alone. Errors: ARGUMENT, SHAPE, UNSUPPORTED (s24_layout_of or
 * s24_layout_of_integers says another layout), MEMORY.
 */
S24_API s24_status s24_plan_create_in_place(s24_plan **out, s24_ctx *ctx, const s24_laid_out *w,
                                            const s24_plan_opts *opts);

#ifdef __cplusplus
}
#endif

#endif
