// SPDX-License-Identifier: Apache-2.0
/*
 * Matrices with at most M−2 non-zeros of every M, such as 6:8, as 2:4 ones. Part of sparse24.h,
 * whose rules hold here and which includes this file.
 *
 * A group of M consecutive columns of a row, M even, 6 to 32, is lifted into M/2−1 windows of four
 * columns, each two further on: columns 0 to 3, 2 to 5, … of the group. Each of its non-zeros is in
 * one of the windows that have its column, and no window has more than two. So the lifted matrix
 * has 2·(M−2)/M times the columns, is 2:4, and is stored, quantised and multiplied like any other;
 * tokens are lifted by repeating columns, which a plan does (s24_plan_opts.lift).
 *
 * A matrix whose first D columns are dense, D a multiple of 4, and whose others, at least four, are
 * 2:4 is lifted, too: each four of the first have two windows of all four, of which one has the
 * non-zeros of two columns and one those of the other two. It has D columns more, and lift is −D.
 */
#ifndef SPARSE24_LIFTED_H
#define SPARSE24_LIFTED_H

#include "sparse24/sparse24.h"

#ifdef __cplusplus
extern "C" {
#endif

/* M of a pattern's text "4:6", "6:8", … "30:32", or −D of "dense:D"; 0 for a text that is none of
   these. */
S24_API int s24_pattern_lift(const char *pattern);
/* And the text of a lift; NULL: it is none. */
#define S24_LIFT_BYTES 24
S24_API const char *s24_lift_pattern(char text[S24_LIFT_BYTES], int lift);
/* Columns of what `cols` columns are lifted into; 0 where M does not divide them, or no four follow
   those that are dense, or lift is none. */
S24_API int64_t s24_lifted_cols(int64_t cols, int lift);
/* And the columns of what was lifted into `cols`; 0: nothing is. */
S24_API int64_t s24_lowered_cols(int64_t cols, int lift);
/* The lifted matrix of src [n, k], in its dtype; lift is M or −D. A window takes the non-zeros of
   its first two columns that the one before left, then those of its other two from the left as long
   as there is room; of four dense columns the first window takes the first two. Errors: ARGUMENT,
   SHAPE (no such columns, see s24_lifted_cols), DTYPE, NOT_FINITE, NOT_TWO_FOUR (a group has more
   than M−2 non-zeros, or two; row and columns are named), MEMORY. */
S24_API s24_status s24_matrix_lift(s24_matrix **out, s24_ctx *ctx, const s24_dense *src, int lift);
/* FORMAT, naming row and column, if two windows of a lifted matrix both have a non-zero for one
   column, which no matrix is lifted to. Other errors: ARGUMENT, SHAPE (its columns are not those of
   whole groups, or it is a transposed view). */
S24_API s24_status s24_lifted_check(s24_ctx *ctx, const s24_matrix *src, int lift);
/* dst [n, k] = what the matrix was lifted from, in dst's dtype. Errors: those of s24_lifted_check
   and s24_matrix_to_dense, MEMORY. */
S24_API s24_status s24_lifted_to_dense(s24_ctx *ctx, const s24_dense *dst, const s24_matrix *src,
                                       int lift);

#ifdef __cplusplus
}
#endif
#endif
