// SPDX-License-Identifier: Apache-2.0
/*
 * The refinement "least-squares": the weights that stay at their common optimum, row after row.
 * With M the places of a row's weights and g its gradient, they move by −H_MM⁻¹·g_M. Each row has a
 * support of its own and so a Cholesky factor of its own, which is all of the work: threads take
 * rows, and a factor is made of the register tiles of s24i_product_run without its threads.
 *
 * The factor's rows stand in panels as those tiles read them: element (i, j) of L is at
 * [i / R][j][i mod R], R the rows of a tile. A block of C columns (the columns of a tile) loses the
 * product of the columns before it, is factored, and what is below it is solved by the inverse of
 * the block's own factor: both are one tile's product a panel.
 *
 * A device goes there by conjugate gradients, all rows at a time, whose step is one product with H:
 * for k columns that is as much as k/24 of a row's factor, and each step lowers the error.
 */
#include <float.h>
#include <string.h>

#include "prune/far.h"
#include "prune/product_tiles.h"

typedef struct rows_job {
    const s24i_refit *refit;
    const s24i_product_tile *tile;
    int64_t most; /* weights that stay in a row, rounded up to whole tiles */
    double *work; /* [threads][doubles] */
    int64_t doubles;
} rows_job;

/* A thread's. */
typedef struct solver {
    const s24i_product_tile *tile;
    int64_t size, padded;    /* the row's weights; and in whole blocks */
    double *l;               /* [padded / R, rounded up][padded][R] */
    double *b;               /* [padded, C] */
    double *block, *inverse; /* [C, C] */
    double *out;             /* [R, C] */
    double *floors;          /* [padded] */
    double *x;               /* [padded] */
    int64_t *columns;        /* [padded] */
} solver;

static double *at(const solver *s, int64_t i, int64_t j)
{
    const int64_t rows = s->tile->rows;
    return s->l + i / rows * rows * s->padded + j * rows + i % rows;
}

static int64_t panels(int64_t padded, int rows)
{
    return (padded + rows - 1) / rows;
}

static int64_t solver_doubles(int64_t most, const s24i_product_tile *tile)
{
    const int64_t rows = tile->rows, cols = tile->cols;
    return panels(most, tile->rows) * rows * most + most * cols + 2 * cols * cols + rows * cols +
           3 * most;
}

static solver solver_in(const rows_job *job, int thread)
{
    const int64_t rows = job->tile->rows, cols = job->tile->cols, most = job->most;
    solver s = {.tile = job->tile, .l = job->work + thread * job->doubles};
    s.b = s.l + panels(most, job->tile->rows) * rows * most;
    s.block = s.b + most * cols;
    s.inverse = s.block + cols * cols;
    s.out = s.inverse + cols * cols;
    s.floors = s.out + rows * cols;
    s.x = s.floors + most;
    s.columns = (int64_t *)(void *)(s.x + most);
    return s;
}

/* The row's part of H, with ones on the diagonal of what fills up the last block. */
static void gather(solver *s, const s24i_refit *refit, const double *w)
{
    const int64_t rows = s->tile->rows, cols = s->tile->cols, k = refit->k;
    s->size = 0;
    for (int64_t j = 0; j < k; j++)
        if (w[j] != 0.0) s->columns[s->size++] = j;
    s->padded = (s->size + cols - 1) / cols * cols;
    for (int64_t i = 0; i < panels(s->padded, s->tile->rows) * rows; i++) {
        const double *h = i < s->size ? refit->h + s->columns[i] * k : NULL;
        for (int64_t j = 0; j < s->padded && j <= i; j++)
            *at(s, i, j) = h && j < s->size ? h[s->columns[j]] : (double)(i == j);
    }
    for (int64_t i = 0; i < s->padded; i++)
        s->floors[i] = (double)k * DBL_EPSILON * *at(s, i, i);
}

/* The columns from j on of every row from j on lose what those before j make of them. */
static void subtract(const solver *s, int64_t j)
{
    const int64_t rows = s->tile->rows, cols = s->tile->cols;
    for (int64_t c = 0; c < cols; c++)
        for (int64_t p = 0; p < j; p++)
            s->b[p * cols + c] = *at(s, j + c, p);
    for (int64_t i = j / rows * rows; i < s->padded && j > 0; i += rows) {
        s->tile->run(j, at(s, i, 0), s->b, s->out);
        double *l = at(s, i, j);
        for (int64_t c = 0; c < cols; c++)
            for (int64_t r = 0; r < rows; r++)
                l[c * rows + r] -= s->out[r * cols + c];
    }
}

/* Rows below a factored block: P ← P·L_jj⁻ᵀ. */
static void solve_below(const solver *s, int64_t j)
{
    const int64_t rows = s->tile->rows, cols = s->tile->cols, end = j + cols;
    s24i_invert_block(s->inverse, cols, s->block, cols, cols);
    for (int64_t c = 0; c < cols; c++)
        for (int64_t p = 0; p < cols; p++)
            s->b[p * cols + c] = s->inverse[c * cols + p];
    for (int64_t i = end / rows * rows; i < s->padded; i += rows) {
        s->tile->run(cols, at(s, i, j), s->b, s->out);
        for (int64_t r = end > i ? end - i : 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                *at(s, i + r, j + c) = s->out[r * cols + c];
    }
}

/* L in place of H_MM; 0 where it has no factor. */
static int factor(const solver *s)
{
    const int64_t cols = s->tile->cols;
    for (int64_t j = 0; j < s->padded; j += cols) {
        subtract(s, j);
        for (int64_t r = 0; r < cols; r++)
            for (int64_t c = 0; c <= r; c++)
                s->block[r * cols + c] = *at(s, j + r, j + c);
        if (s24i_factor_block(s->block, cols, cols, s->floors + j) >= 0) return 0;
        for (int64_t r = 0; r < cols; r++)
            for (int64_t c = 0; c <= r; c++)
                *at(s, j + r, j + c) = s->block[r * cols + c];
        solve_below(s, j);
    }
    return 1;
}

/* x ← (L·Lᵀ)⁻¹·x */
static void solve(const solver *s)
{
    for (int64_t i = 0; i < s->size; i++) {
        double sum = s->x[i];
        for (int64_t j = 0; j < i; j++)
            sum -= *at(s, i, j) * s->x[j];
        s->x[i] = sum / *at(s, i, i);
    }
    for (int64_t i = s->size - 1; i >= 0; i--) {
        s->x[i] /= *at(s, i, i);
        for (int64_t j = 0; j < i; j++)
            s->x[j] -= *at(s, i, j) * s->x[i];
    }
}

static void solve_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_job *job = arg;
    const s24i_refit *refit = job->refit;
    solver s = solver_in(job, thread);
    for (int64_t r = begin; r < end; r++) {
        double *w = refit->w + r * refit->k;
        gather(&s, refit, w);
        for (int64_t i = 0; i < s.size; i++)
            s.x[i] = refit->gradient[r * refit->k + s.columns[i]];
        if (!factor(&s)) continue;
        solve(&s);
        for (int64_t i = 0; i < s.size; i++)
            w[s.columns[i]] -= s.x[i];
    }
}

static int64_t most_of_a_row(const s24i_refit *refit)
{
    int64_t most = 0;
    for (int64_t r = 0; r < refit->n; r++) {
        int64_t count = 0;
        for (int64_t j = 0; j < refit->k; j++)
            count += refit->w[r * refit->k + j] != 0.0;
        most = count > most ? count : most;
    }
    return most;
}

enum { DESCENTS = 128, LOOKS = 8 };
static const double NEAR = 1e-24; /* of what was left at first, a square */

/* Has each row as little left as that of what it had, `first` [n], which the first look makes? */
static int is_near(const s24i_refit *refit, double *first, int look)
{
    s24i_far *far = refit->far;
    const int64_t n = refit->n;
    int near = 1;
    s24i_far_move(far, &(s24i_far_copy){far->pinned, far->strip + far->k, n, n, 1, n});
    s24i_far_wait(far);
    for (int64_t r = 0; r < n && far->status == S24_OK; r++) {
        if (!look) first[r] = far->pinned[r];
        near &= far->pinned[r] <= NEAR * first[r];
    }
    return near;
}

static s24_status descend(s24i_refit *refit)
{
    s24i_far *far = refit->far;
    double *turn, *first = refit->gradient; /* which is of no use here */
    TRY(s24i_far_more(&turn, far));
    if (!refit->is_there)
        s24i_far_move(
            far, &(s24i_far_copy){far->weights, refit->w, refit->k, refit->k, refit->n, refit->k});
    for (int64_t c = 0; c < refit->k; c++)
        refit->gradient[c] = refit->h[c * (refit->k + 1)];
    s24i_far_move(far,
                  &(s24i_far_copy){far->strip, refit->gradient, refit->k, refit->k, 1, refit->k});
    s24i_far_wait(far);
    refit->is_there = 1;
    s24i_far_descend(far, NULL);
    for (int i = 0; i < DESCENTS && !(i % LOOKS == 0 && is_near(refit, first, i)); i++) {
        s24i_far_times_square(far, turn, far->other);
        s24i_far_descend(far, turn);
    }
    return far->status;
}

s24_status s24i_refine_least_squares(s24_ctx *ctx, s24i_refit *refit)
{
    rows_job job = {.refit = refit, .tile = s24i_product_tile_find(0, s24_ctx_cpu(ctx))};
    if (refit->far) return descend(refit);
    job.most = most_of_a_row(refit) + job.tile->cols;
    job.doubles = solver_doubles(job.most, job.tile);
    job.work = s24_ctx_alloc(ctx, (size_t)(job.doubles * s24_ctx_threads(ctx)) * sizeof *job.work);
    REQUIRE(ctx, job.work, S24_ERROR_MEMORY, "out of memory for the factors of %lld weights a row",
            (long long)job.most);
    s24_ctx_parallel_for(ctx, refit->n, solve_rows, &job);
    s24_ctx_free(ctx, job.work);
    s24i_refit_begin(ctx, refit);
    return S24_OK;
}
