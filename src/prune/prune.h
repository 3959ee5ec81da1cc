// SPDX-License-Identifier: Apache-2.0
/*
 * What the criteria share: the statistics of a layer's inputs, one job of pruning, the row of the
 * table, and the float64 linear algebra under them. Private to libsparse24.
 *
 * A criterion makes its choice and its new weights in job->w, a copy; only when it and the report
 * succeed are they written back, so a failing prune changes nothing.
 */
#ifndef S24_PRUNE_PRUNE_H
#define S24_PRUNE_PRUNE_H

#include "base/base.h"
#include "kernel/row_rules.h"

/* The Gram matrix of `tokens` inputs of width k. Only its lower triangle is kept up to date; what
   lies above the diagonal is zero. */
struct s24_stats {
    s24_allocator allocator; /* of the context that made it, which may end before it */
    int64_t k;
    int64_t tokens;
    double *gram; /* [k, k] */
};

typedef struct s24i_pattern s24i_pattern; /* prune/prune_patterns.h */

typedef struct s24i_far s24i_far; /* prune/far.h */

typedef struct s24i_prune_job {
    int64_t n, k;
    float *w;               /* [n, k] contiguous, finite; pruned in place */
    const s24_stats *stats; /* of width k and not empty, or NULL */
    const s24i_pattern *pattern;
    s24_score_fn *score; /* of the criterion, or the caller's; NULL: it has none */
    void *score_user;    /* of a criterion's the job itself */
    const s24_weight_gradients *gradients; /* or NULL */
    uint64_t seed;
    double dampening;
    int64_t block;
    s24_select select;    /* of the criterion; S24_SELECT_STRICT where it is none */
    unsigned refinements; /* a bit a row of refinements.def */
    int selects;          /* the choice is the device's, else products alone */
    s24_device *device;   /* or NULL */
} s24i_prune_job;

/* What a criterion can make. */
typedef enum s24i_patterns { S24I_TWO_FOUR_PATTERN, S24I_ALL_PATTERNS } s24i_patterns;

enum { S24I_NEEDS_STATS = 1, S24I_NEEDS_GRADIENTS = 2 };
typedef struct s24i_criterion {
    const char *name;
    int needs; /* bits: S24I_NEEDS_… */
    s24_select select;
    s24i_patterns patterns;
    s24_status (*run)(s24_ctx *ctx, const s24i_prune_job *job);
    s24_score_fn *score;
} s24i_criterion;

#define SCORE(name, needs, select, score) s24_score_fn score;
#define CRITERION(name, needs, select, patterns, run, score)
#include "prune/criteria.def"
#undef SCORE
#undef CRITERION
s24_status s24i_prune_sparsegpt(s24_ctx *ctx, const s24i_prune_job *job);
s24_status s24i_prune_alps(s24_ctx *ctx, const s24i_prune_job *job);
s24_score_fn s24i_score_sparsegpt;
s24_status s24i_prune_tiles(s24_ctx *ctx, const s24i_prune_job *job);
/* scores [n, k]: what job->score gives, finite. */
s24_status s24i_prune_scores(s24_ctx *ctx, const s24i_prune_job *job, double *scores);
/* Zeroes what job->pattern drops by job->score. */
s24_status s24i_prune_scored(s24_ctx *ctx, const s24i_prune_job *job);
/* The same choice as a criterion's with a way to select, made on job->device. */
s24_status s24i_prune_on_device(s24_ctx *ctx, const s24i_prune_job *job);

/* copy [n, k] contiguous = w, every element finite. */
s24_status s24i_prune_copy(s24_ctx *ctx, float *copy, const s24_dense *w);
/* Are they of the weight's inputs, some, and finite? */
s24_status s24i_stats_check(s24_ctx *ctx, const s24_stats *stats, const s24_dense *w);

/* s24_prune of a weight whose first columns stay dense, by what moves weights; job->w has room for
   it, and opts are those that made job. */
s24_status s24i_prune_beside_dense(s24_prune_report *report, s24_ctx *ctx, const s24_dense *w,
                                   const s24i_prune_job *job, const s24_prune_opts *opts);

/* How much of `before` is left in `after`, both [n, k] contiguous; see s24_prune_report. */
s24_status s24i_prune_measure(s24_prune_report *report, s24_ctx *ctx, const float *before,
                              const s24i_prune_job *after);

/*
 * c[i, j] += sign · Σ_p a[i, p]·b[j, p]   for i < m, j < n, p < depth
 *
 * Element (i, p) of a is at a[i*a_row + p*a_depth], and so for b; one of each pair of strides is 1.
 * f32 operands are multiplied and summed in f32 over runs of S24I_PRODUCT_RUN and added to c in
 * f64; f64 operands are f64 throughout. The order of the sums depends on the CPU level alone, not
 * on the number of threads.
 */
enum { S24I_PRODUCT_RUN = 256 };
typedef struct s24i_product {
    int64_t m, n, depth;
    const void *a;
    int64_t a_row, a_depth;
    const void *b;
    int64_t b_row, b_depth;
    double *c;
    int64_t ldc;
    double sign; /* +1 or −1 */
    int f32;     /* the operands' type: 1 f32, 0 f64 */
    int lower;   /* 1: only j ≤ i is computed and written; then m = n */
} s24i_product;

/* Work memory that serves every product of at most m, n and depth. */
size_t s24i_product_work_bytes(int64_t m, int64_t n, int64_t depth);
void s24i_product_run(s24_ctx *ctx, const s24i_product *product, void *work);

/*
 * h [k, k] = the lower triangle of the Gram matrix + dampening·mean(diagonal)·I, zeros above. A
 * dead column gets the mean of the living ones' diagonal: it then stands apart from the others
 * whatever the inputs' scale, and leaves the mean as it is.
 */
void s24i_gram_dampen(s24_ctx *ctx, double *h, const s24_stats *stats, double dampening);

/* What weights may be, where they are integers times scales. */
typedef struct s24i_grid {
    const uint8_t *stored; /* [n, k]: 1 where a weight may be other than 0 */
    const float *scales;   /* [n, ceil(k/group)] */
    int64_t group;
    int bits;
} s24i_grid;

/* A pass of a rule through the columns: what of s24i_row_job all of them have, and what PULL
   keeps [n, k], here and on a device. */
typedef struct s24i_sweep {
    s24i_row_rule rule;
    int keep, group;
    double rho, growth;
    double *d, *u, *d_there, *u_there;
} s24i_sweep;

/* Moves the weights that stay so that Σ (w − target)·H·(w − target)ᵀ becomes small: see refit.c. */
typedef struct s24i_refit {
    int64_t n, k, block;
    double *h;                   /* [k, k]: its lower triangle; the upper one is made */
    double *w;                   /* [n, k] */
    const float *target;         /* [n, k] */
    const s24i_grid *grid;       /* w is on it and stays there; NULL: w is free where it is not 0 */
    double *errors;              /* [n, block] */
    double *gradient;            /* [n, k] */
    void *work;                  /* s24i_product_work_bytes(n, k, block) */
    int64_t begin, end;          /* the columns at hand */
    uint8_t *moved;              /* [n]: swaps note which rows chose otherwise; else NULL */
    const s24i_pattern *pattern; /* of the job; NULL: integers are rounded */
    s24i_far *far; /* where gradient and products are, on a device: then h is in both places, and
                      errors in its pinned memory; NULL: here */
    int is_there;  /* w as it is now is on the device; what is here is older */
} s24i_refit;
void s24i_refit_run(s24_ctx *ctx, s24i_refit *refit);
/* One sweep of it, from the gradient as it is. */
void s24i_refit_relax(s24_ctx *ctx, s24i_refit *refit);
/* Memory of all that has a length there but `moved`; nothing is left where there is too little. */
s24_status s24i_refit_create(s24i_refit *refit, s24_ctx *ctx, const s24i_prune_job *job);
void s24i_refit_free(s24i_refit *refit, s24_ctx *ctx);
/* w and gradient from there, and to there after they were changed; nothing where they are here. */
void s24i_refit_fetch(s24i_refit *refit);
void s24i_refit_send(s24i_refit *refit);
/* job->w = refit->w, or NUMERIC where a weight is beyond f32. */
s24_status s24i_refit_store(s24_ctx *ctx, s24i_refit *refit, const s24i_prune_job *job);

/* Fills h's upper triangle and gradient; then one pass of a rule through all columns, in which
   gradient stays that of w. The columns at hand are the sweep's. */
void s24i_refit_begin(s24_ctx *ctx, s24i_refit *refit);
void s24i_refit_sweep(s24_ctx *ctx, s24i_refit *refit, const s24i_sweep *sweep);
/* Does the device itself run the rule? */
int s24i_refit_is_far(const s24i_refit *refit, const s24i_sweep *sweep);

/*
 * Refinements of a weight that is pruned already: the rows of refinements.def. Each begins and ends
 * with refit->gradient = (w − target)·H, H dampened, and never raises (w − target)·H·(w − target)ᵀ
 * of any row.
 */
typedef struct s24i_refinement {
    const char *name;
    int singles; /* 1: of patterns that choose single weights alone */
    s24_status (*run)(s24_ctx *ctx, s24i_refit *refit);
} s24i_refinement;
s24_status s24i_refine_swaps(s24_ctx *ctx, s24i_refit *refit);
s24_status s24i_swap_pairs(s24_ctx *ctx, s24i_refit *refit); /* of other patterns than 2:4 */
s24_status s24i_refine_least_squares(s24_ctx *ctx, s24i_refit *refit);
/* The bits of the refinements that `names` has, separated by commas; NULL: none. Those that are of
   single weights alone are refused of other patterns, where "all" goes without them. */
s24_status s24i_refinements_read(s24_ctx *ctx, unsigned *chosen, const char *names, int singles);
/* Runs job->refinements on job->w, whose target is `before` [n, k]. */
s24_status s24i_prune_refine(s24_ctx *ctx, const s24i_prune_job *job, const float *before);

/*
 * From the lower triangle of H [k, k], symmetric and positive definite, to U, upper triangular
 * with UᵀU = H⁻¹, in place; below U's diagonal zeros are left. NUMERIC names the column
 * whose pivot is not positive beyond rounding. h is lost on error.
 */
s24_status s24i_inverse_factor(s24_ctx *ctx, double *h, int64_t k);
s24_status s24i_no_factor(s24_ctx *ctx, int64_t column, int64_t k);
enum { S24I_FACTOR_BLOCK = 64 };
/* Of small blocks: L in place of the lower triangle of a; the number of the pivot that does not
   exceed its floor, or −1. */
int64_t s24i_factor_block(double *a, int64_t lda, int64_t count, const double *floors);
/* out [count, ldo] = L⁻¹ of the lower triangle l, zero above the diagonal. */
void s24i_invert_block(double *out, int64_t ldo, const double *l, int64_t ldl, int64_t count);

#endif
