// SPDX-License-Identifier: Apache-2.0
/*
 * A low-rank matrix next to a pruned one. With E = W − S and H the dampened Gram matrix of inputs
 * (without them I) the factors minimise the sum over rows d of E − U·V of d·H·dᵀ. For a U whose
 * columns are orthonormal V = Uᵀ·E is the best, and what it takes away is tr(Uᵀ·M·U), M = E·H·Eᵀ,
 * never negative: so U spans the leading eigenvectors of M [n, n], and no root or inverse of H is
 * needed.
 *
 * They are found by subspace iteration on the smaller side of E: x ← M·x, or, where k < n, on
 * x ← H·C·x, C = Eᵀ·E, whose leading subspace E maps onto that of M. Vectors are rows here.
 */
#include <math.h>
#include <string.h>

#include "op/op.h"
#include "prune/prune.h"

enum { ITERATIONS = 24 };

typedef struct low_rank {
    s24_ctx *ctx;
    int64_t n, k, rank;
    int64_t side;         /* the smaller of n and k */
    const double *h;      /* [k, k], both triangles; NULL: I */
    double *error;        /* [n, k] */
    double *square;       /* [side, side]: M, or C */
    double *rows, *other; /* [rank, larger of n and k] */
    void *work;
} low_rank;

/* c [m, n] = a [m, depth] times b, [n, depth], or [depth, n] where it is turned. */
typedef struct times {
    double *c;
    const double *a, *b;
    int64_t m, n, depth;
    int turned;
} times;

static void multiply(const low_rank *l, const times *t)
{
    const s24i_product product = {.m = t->m,
                                  .n = t->n,
                                  .depth = t->depth,
                                  .a = t->a,
                                  .a_row = t->depth,
                                  .a_depth = 1,
                                  .b = t->b,
                                  .b_row = t->turned ? 1 : t->depth,
                                  .b_depth = t->turned ? t->n : 1,
                                  .c = t->c,
                                  .ldc = t->n,
                                  .sign = 1};
    memset(t->c, 0, (size_t)(t->m * t->n) * sizeof *t->c);
    s24i_product_run(l->ctx, &product, l->work);
}

/* square = M, by way of E·H in `room` [n, k], or C. */
static void make_square(const low_rank *l, double *room)
{
    if (l->side < l->n) {
        const s24i_product product = {.m = l->k,
                                      .n = l->k,
                                      .depth = l->n,
                                      .a = l->error,
                                      .a_row = 1,
                                      .a_depth = l->k,
                                      .b = l->error,
                                      .b_row = 1,
                                      .b_depth = l->k,
                                      .c = l->square,
                                      .ldc = l->k,
                                      .sign = 1};
        memset(l->square, 0, (size_t)(l->k * l->k) * sizeof *l->square);
        s24i_product_run(l->ctx, &product, l->work);
        return;
    }
    const double *weighed = l->error;
    if (l->h) {
        multiply(l, &(times){room, l->error, l->h, l->n, l->k, l->k, 0});
        weighed = room;
    }
    multiply(l, &(times){l->square, weighed, l->error, l->n, l->n, l->k, 0});
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Gram and Schmidt, each row twice; one that the rows before it span becomes zero. */
static void make_orthonormal(double *rows, int64_t count, int64_t length)
{
    for (int64_t r = 0; r < count; r++) {
        double *row = rows + r * length;
        const double before = sqrt(dot(row, row, length));
        for (int64_t p = 0; p < 2 * r; p++) {
            const double *other = rows + p % r * length, by = dot(row, other, length);
            for (int64_t i = 0; i < length; i++)
                row[i] -= by * other[i];
        }
        const double after = sqrt(dot(row, row, length));
        const double scale = after > 1e-10 * before ? 1.0 / after : 0.0;
        for (int64_t i = 0; i < length; i++)
            row[i] *= scale;
    }
}

static void swap(low_rank *l)
{
    double *rows = l->rows;
    l->rows = l->other;
    l->other = rows;
}

/* l->rows [rank, n] = Uᵀ. */
static void find_directions(low_rank *l, uint64_t seed)
{
    const int64_t side = l->side;
    for (int64_t i = 0; i < l->rank * side; i++) {
        uint32_t words[4];
        s24_random(words, seed, (uint64_t)i);
        l->rows[i] = (double)words[0] / 4294967296.0 - 0.5;
    }
    for (int i = 0; i < ITERATIONS; i++) {
        make_orthonormal(l->rows, l->rank, side);
        multiply(l, &(times){l->other, l->rows, l->square, l->rank, side, side, 0});
        swap(l);
        if (side == l->n || !l->h) continue;
        multiply(l, &(times){l->other, l->rows, l->h, l->rank, side, side, 0});
        swap(l);
    }
    if (side < l->n) {
        make_orthonormal(l->rows, l->rank, side);
        multiply(l, &(times){l->other, l->rows, l->error, l->rank, l->n, l->k, 0});
        swap(l);
    }
    make_orthonormal(l->rows, l->rank, l->n);
}

/* E; inputs that were always zero cost nothing. */
static void fill_error(const low_rank *l, const float *w, const float *pruned,
                       const s24_stats *stats)
{
    for (int64_t i = 0; i < l->n * l->k; i++)
        l->error[i] = (double)w[i] - (double)pruned[i];
    for (int64_t c = 0; stats && c < l->k; c++)
        for (int64_t r = 0; r < l->n && stats->gram[c * l->k + c] == 0.0; r++)
            l->error[r * l->k + c] = 0.0;
}

static void store(const low_rank *l, float *left, float *right)
{
    for (int64_t r = 0; r < l->n; r++)
        for (int64_t p = 0; p < l->rank; p++)
            left[r * l->rank + p] = (float)l->rows[p * l->n + r];
    multiply(l, &(times){l->other, l->rows, l->error, l->rank, l->k, l->n, 1});
    for (int64_t i = 0; i < l->rank * l->k; i++)
        right[i] = (float)l->other[i];
}

static double *new_doubles(s24_ctx *ctx, int64_t rows, int64_t cols)
{
    size_t bytes;
    if (s24i_mul_overflow((size_t)rows, (size_t)cols, &bytes) ||
        s24i_mul_overflow(bytes, sizeof(double), &bytes))
        return NULL;
    return s24_ctx_alloc(ctx, bytes);
}

static double *new_gram(s24_ctx *ctx, const s24_stats *stats, double dampening)
{
    const int64_t k = stats->k;
    double *h = new_doubles(ctx, k, k);
    if (!h) return NULL;
    s24i_gram_dampen(ctx, h, stats, dampening);
    for (int64_t r = 0; r < k; r++)
        for (int64_t c = 0; c < r; c++)
            h[c * k + r] = h[r * k + c];
    return h;
}

/* What is asked for; both matrices are contiguous. */
typedef struct asked {
    int64_t n, k;
    const float *w;
    float *sum; /* what the factors are added to, and then the sum */
    float *left, *right;
} asked;

static s24_status find(s24_ctx *ctx, const asked *f, const s24_low_rank_opts *opts)
{
    low_rank l = {.ctx = ctx, .n = f->n, .k = f->k, .rank = opts->rank};
    const int64_t longer = l.n > l.k ? l.n : l.k;
    l.side = l.n + l.k - longer;
    double *h = opts->stats ? new_gram(ctx, opts->stats, opts->dampening) : NULL;
    double *room = h && l.side == l.n ? new_doubles(ctx, l.n, l.k) : NULL;
    double *a = new_doubles(ctx, l.rank, longer), *b = new_doubles(ctx, l.rank, longer);
    l.h = h;
    l.error = new_doubles(ctx, l.n, l.k);
    l.square = new_doubles(ctx, l.side, l.side);
    l.rows = a;
    l.other = b;
    l.work = s24_ctx_alloc(ctx, s24i_product_work_bytes(longer, longer, longer));
    s24_status status = S24_OK;
    if ((opts->stats && !h) || (h && l.side == l.n && !room) || !a || !b || !l.error || !l.square ||
        !l.work) {
        status = s24_ctx_fail(ctx, S24_ERROR_MEMORY,
                              "out of memory for factors of a weight of [%lld, %lld]",
                              (long long)l.n, (long long)l.k);
    } else {
        fill_error(&l, f->w, f->sum, opts->stats);
        make_square(&l, room);
        find_directions(&l, opts->seed);
        store(&l, f->left, f->right);
    }
    s24_ctx_free(ctx, l.work);
    s24_ctx_free(ctx, l.square);
    s24_ctx_free(ctx, l.error);
    s24_ctx_free(ctx, b);
    s24_ctx_free(ctx, a);
    s24_ctx_free(ctx, room);
    s24_ctx_free(ctx, h);
    return status;
}

static s24_status measure(s24_prune_report *report, s24_ctx *ctx, const asked *f,
                          const s24_low_rank_opts *opts)
{
    const s24_dense sum = {f->sum, S24_F32, f->n, f->k, 0};
    const s24_factors factors = {opts->rank, S24_F32, f->left, f->right};
    const s24i_prune_job after = {.n = f->n, .k = f->k, .w = f->sum, .stats = opts->stats};
    TRY(s24_factors_add(ctx, &sum, &factors));
    return s24i_prune_measure(report, ctx, f->w, &after);
}

static s24_status check(s24_ctx *ctx, const s24_dense *w, const s24_low_rank_opts *opts)
{
    const uint32_t f32 = 1u << S24_F32;
    TRY(s24i_dense_check(ctx, "w", w));
    TRY(s24i_dense_check_operand(ctx, "w", w, w->rows, w->cols, f32));
    if (opts->pruned)
        TRY(s24i_dense_check_operand(ctx, "pruned", opts->pruned, w->rows, w->cols, f32));
    const int64_t most = w->rows < w->cols ? w->rows : w->cols;
    REQUIRE(ctx, opts->rank >= 1 && opts->rank <= most, S24_ERROR_ARGUMENT,
            "the rank is %" PRId64 "; expected 1 to %" PRId64 ", the smaller side of the weight",
            opts->rank, most);
    REQUIRE(ctx, opts->dampening > 0.0 && isfinite(opts->dampening), S24_ERROR_ARGUMENT,
            "the dampening is %g; expected a positive number", opts->dampening);
    return opts->stats ? s24i_stats_check(ctx, opts->stats, w) : S24_OK;
}

s24_status s24_low_rank(s24_prune_report *report, float *left, float *right, s24_ctx *ctx,
                        const s24_dense *w, const s24_low_rank_opts *opts)
{
    s24_low_rank_opts known;
    REQUIRE(ctx, ctx && left && right && w, S24_ERROR_ARGUMENT,
            "s24_low_rank: left, right, ctx and w are required");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_low_rank_opts"));
    if (known.dampening == 0.0) known.dampening = 0.01;
    TRY(check(ctx, w, &known));
    const size_t count = (size_t)(w->rows * w->cols);
    size_t bytes;
    float *copy = NULL;
    if (!s24i_mul_overflow(count, 2 * sizeof *copy, &bytes)) copy = s24_ctx_alloc(ctx, bytes);
    REQUIRE(ctx, copy, S24_ERROR_MEMORY,
            "out of memory for factors of a weight of [%" PRId64 ", %" PRId64 "]", w->rows,
            w->cols);
    const asked f = {w->rows, w->cols, copy, copy + count, left, right};
    s24_status status = s24i_prune_copy(ctx, copy, w);
    memset(f.sum, 0, count * sizeof *f.sum);
    if (status == S24_OK && known.pruned) status = s24i_prune_copy(ctx, f.sum, known.pruned);
    if (status == S24_OK) status = find(ctx, &f, &known);
    if (status == S24_OK && report) status = measure(report, ctx, &f, &known);
    s24_ctx_free(ctx, copy);
    return status;
}
