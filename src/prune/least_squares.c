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
 */
#include <float.h>
#include <string.h>

#include "prune/product_tiles.h"
#include "prune/prune.h"

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

s24_status s24i_refine_least_squares(s24_ctx *ctx, s24i_refit *refit)
{
    rows_job job = {.refit = refit, .tile = s24i_product_tile_find(0, s24_ctx_cpu(ctx))};
    job.most = most_of_a_row(refit) + job.tile->cols;
    job.doubles = solver_doubles(job.most, job.tile);
    job.work = s24_ctx_alloc(ctx, (size_t)(job.doubles * s24_ctx_threads(ctx)) * sizeof *job.work);
    REQUIRE(ctx, job.work, S24_ERROR_MEMORY, "out of memory for the factors of %lld weights a row",
            (long long)job.most);
    s24i_refit_fetch(refit);
    s24_ctx_parallel_for(ctx, refit->n, solve_rows, &job);
    s24_ctx_free(ctx, job.work);
    s24i_refit_begin(ctx, refit);
    return S24_OK;
}
