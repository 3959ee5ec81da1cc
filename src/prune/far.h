// SPDX-License-Identifier: Apache-2.0
/*
 * The large f64 matrices of what prunes, in a device's memory, and their products there. The host
 * keeps control and all that goes weight by weight: it fetches the columns at hand, and sends back
 * what was done to them. So criteria, patterns and refinements are the same here and there, and
 * only the order of sums differs.
 *
 * All of it is enqueued in the default stream. The first failure stays in `status`, and what
 * follows it does nothing.
 */
#ifndef S24_PRUNE_FAR_H
#define S24_PRUNE_FAR_H

#include "prune/prune.h"

typedef struct s24i_far {
    s24_ctx *ctx;
    s24_device *device;
    int64_t n, k, block;
    double *square; /* [k, k] */
    double *rows;   /* [n, k] */
    double *strip;  /* [n, block], [k, S24I_FACTOR_BLOCK] or turned */
    double *small;  /* [S24I_FACTOR_BLOCK, S24I_FACTOR_BLOCK] */
    double *pinned; /* [n, block], and a small one at least, of the host */
    s24_status status;
} s24i_far;

/* For weights [n, k] that are gone through by `block` columns. Errors: MEMORY, UNSUPPORTED. */
s24_status s24i_far_create(s24i_far **out, s24_ctx *ctx, s24_device *device,
                           const int64_t shape[3]);
void s24i_far_destroy(s24i_far *far);

/* A product of matrices that are there, of f64, added to c or in its place; `lower` is not looked
   at. */
void s24i_far_product(s24i_far *far, const s24i_product *product, int add);
/* to [rows, cols] = from, `to_ld` and `from_ld` elements from one row to the next; either may be
   the host's, then pinned, or what is waited for. */
typedef struct s24i_far_copy {
    double *to;
    const double *from;
    int64_t to_ld, from_ld, rows, cols;
} s24i_far_copy;
void s24i_far_move(s24i_far *far, const s24i_far_copy *copy);
void s24i_far_clear(s24i_far *far, double *there, int64_t count);
void s24i_far_wait(s24i_far *far);

/* Columns begin … end of `rows`: into pinned memory, `block` apart, waiting; and products with what
   is there, strip·factor with sign, factor being rows begin … end of `square` from column `first`
   on. */
void s24i_far_fetch(s24i_far *far, int64_t begin, int64_t end);
typedef struct s24i_far_step {
    int64_t begin, end, first;
    double sign;
} s24i_far_step;
void s24i_far_add(s24i_far *far, const s24i_far_step *step);

/* s24i_inverse_factor there: of h's lower triangle, whose U is left in `square` and in h. */
s24_status s24i_far_inverse_factor(s24i_far *far, double *h);

#endif
