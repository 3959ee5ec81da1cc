// SPDX-License-Identifier: Apache-2.0
/*
 * The large f64 matrices of what prunes, in a device's memory, and their products there. Rules of
 * kernel/row_rules.h run there, too. What else goes weight by weight is the host's: it fetches the
 * columns at hand, and sends back what was done to them. So criteria, patterns and refinements are
 * the same here and there, and only the order of sums differs.
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
    double *square;  /* [k, k] */
    double *weights; /* [n, k] */
    double *rows;    /* [n, k]: their gradient */
    double *other;   /* [n, k]: what is on its way */
    double *strip;   /* [n, block], [k, S24I_FACTOR_BLOCK] or turned, or k and n numbers */
    double *small;   /* [S24I_FACTOR_BLOCK, S24I_FACTOR_BLOCK] */
    double *pinned;  /* [n, block], and a small one at least, of the host */
    double *more[2]; /* [n, k], where they were asked for */
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

/* One more matrix [n, k], which goes with the rest. */
s24_status s24i_far_more(double **out, s24i_far *far);

/* Columns begin … end of a matrix [n, k] that is there into pinned memory, `block` apart, waiting;
   and pinned memory into `strip`. */
void s24i_far_fetch(s24i_far *far, const double *from, int64_t begin, int64_t end);
void s24i_far_send(s24i_far *far, int64_t columns);
/* to [n, k] from column `first` on += sign·strip·factor, which is rows begin … end of `square`. */
typedef struct s24i_far_step {
    double *to;
    int64_t begin, end, first;
    double sign;
} s24i_far_step;
void s24i_far_add(s24i_far *far, const s24i_far_step *step);
/* to [n, k] = from·square, both there and not the same. */
void s24i_far_times_square(s24i_far *far, double *to, const double *from);
/* A rule over columns begin … end of `weights`, what it leaves being in `strip`. Of SWAP the first
   number of `small` becomes 1 where a row chose otherwise. */
void s24i_far_sweep(s24i_far *far, const s24i_sweep *sweep, int64_t begin, int64_t end);
/* A step of conjugate gradients of all rows' weights; with no turn the first. `rows` is their
   gradient, `other` the way, `strip` has H's diagonal, and after it what is left of each row. */
void s24i_far_descend(s24i_far *far, const double *turn);

/* s24i_inverse_factor there: of h's lower triangle, which is lost; U is left in `square`. */
s24_status s24i_far_inverse_factor(s24i_far *far, double *h);

#endif
