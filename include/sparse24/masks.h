// SPDX-License-Identifier: Apache-2.0
/*
 * Masks and checks on raw memory, and the steps of training in 2:4. Part of sparse24.h, whose rules
 * hold here and which includes this file.
 */
#ifndef SPARSE24_MASKS_H
#define SPARSE24_MASKS_H

#include "sparse24/sparse24.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first group that breaks 2:4: row, the group's first column, and how many non-zeros it has. */
typedef struct s24_bad_group {
    int64_t row;
    int64_t col;
    int nonzeros;
} s24_bad_group;

/* Is src [n, k] 2:4 along k? *two_four is 1 or 0; bad (may be NULL) is filled when it is 0. Zero
   is ±0; NaN counts as non-zero. Errors: SHAPE, DTYPE. */
S24_API s24_status s24_check(int *two_four, s24_bad_group *bad, s24_ctx *ctx, const s24_dense *src);

/* The same along n: of every four consecutive rows (the last may be fewer) of a column at most two
   are non-zero. bad->row is the first of them. Any number of rows and columns. */
S24_API s24_status s24_check_along_n(int *two_four, s24_bad_group *bad, s24_ctx *ctx,
                                     const s24_dense *src);

/* mask[n,k] (1 keep, 0 drop; exactly two a group) by magnitude, ties keep the higher column.
   Errors: SHAPE, DTYPE, NOT_FINITE (unless allow_nonfinite). */
S24_API s24_status s24_magnitude_mask(uint8_t *mask, s24_ctx *ctx, const s24_dense *src,
                                      int allow_nonfinite);
/* The same by one of S24_SELECT_TILE_*: at most two a group along k and along n. */
S24_API s24_status s24_tile_mask(uint8_t *mask, s24_ctx *ctx, const s24_dense *src,
                                 s24_select select, int allow_nonfinite);

/*
 * Trains in 2:4, with s24_matrix_create_pair for the weights and S24_SELECT_MVUE24 for
 * gradients (with transpose = 1 for dYᵀ, whose groups are of tokens). Masks are [rows, cols]
 * contiguous, not zero where a weight is kept. NaN and Inf go through. Errors: ARGUMENT, SHAPE,
 * DTYPE.
 */

/* dst = src where mask is not zero, else +0; of one dtype; dst may be src. */
S24_API s24_status s24_mask_apply(s24_ctx *ctx, const s24_dense *dst, const s24_dense *src,
                                  const uint8_t *mask);
/* In how many of count places only one of two masks keeps. Over count it is the flip rate of Hu et
   al., "Accelerating Transformer Pre-training with 2:4 Sparsity", ICML 2024. */
S24_API s24_status s24_mask_flips(int64_t *flips, s24_ctx *ctx, const uint8_t *before,
                                  const uint8_t *after, int64_t count);
/* grad += decay·w where mask is zero: what is not kept is drawn to zero through the optimiser
   (SR-STE, Zhou et al., ICLR 2021; on gradients: Hu et al., section 4). grad is f32. */
S24_API s24_status s24_masked_decay(s24_ctx *ctx, const s24_dense *grad, const s24_dense *w,
                                    const uint8_t *mask, float decay);
/*
 * dst = scale·S(src): of each group along k the two largest |w|, each less the third largest, so
 * that S is continuous (S-STE, Hu, Zhu and Chen, NeurIPS 2024); a weight level with the third is
 * +0. mask, if not NULL, is 1 where S is not zero. dst is src itself or apart, then of any floating
 * dtype.
 */
S24_API s24_status s24_soft_threshold(s24_ctx *ctx, const s24_dense *dst, uint8_t *mask,
                                      const s24_dense *src, float scale);
/* The scale that S-STE takes once and keeps, Σw·S(w) / ΣS(w)²: the least Σ(w − scale·S(w))². 1
   where S is all zeros. */
S24_API s24_status s24_soft_threshold_scale(double *scale, s24_ctx *ctx, const s24_dense *src);

#ifdef __cplusplus
}
#endif

#endif
