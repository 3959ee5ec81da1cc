// SPDX-License-Identifier: Apache-2.0
/*
 * What stays of a weight, once more. A criterion never returns to a column that it has passed, and
 * rounding looks at no neighbour. With the choice made, Σ (w − target)·H·(w − target)ᵀ has a least
 * value; block by block each weight in turn moves to the optimum for the others as they are by then
 * (Gauss and Seidel's iteration), from a start that is near already. Where weights are integers
 * times scales that optimum is the integer nearest to the free one, so no step makes the sum
 * larger.
 *
 * Reference for integers: Behdin and others, "QuantEase: optimization-based quantization for
 * language models", 2023.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "prune/far.h"

enum { SWEEPS = 8 };

typedef struct dampening_job {
    double *h;
    const s24_stats *stats;
} dampening_job;

static void copy_gram(void *arg, int64_t begin, int64_t end, int thread)
{
    const dampening_job *j = arg;
    const int64_t k = j->stats->k;
    (void)thread;
    memcpy(j->h + begin * k, j->stats->gram + begin * k,
           (size_t)((end - begin) * k) * sizeof *j->h);
}

void s24i_gram_dampen(s24_ctx *ctx, double *h, const s24_stats *stats, double dampening)
{
    const dampening_job job = {h, stats};
    const int64_t k = stats->k;
    int64_t alive = 0;
    double sum = 0.0;
    s24_ctx_parallel_for(ctx, k, copy_gram, (void *)(uintptr_t)&job);
    for (int64_t j = 0; j < k; j++) {
        sum += h[j * k + j];
        alive += h[j * k + j] != 0.0;
    }
    const double mean = alive ? sum / (double)alive : 1.0;
    for (int64_t j = 0; j < k; j++) {
        double *diagonal = &h[j * k + j];
        if (*diagonal == 0.0) *diagonal = mean;
        *diagonal += dampening * mean;
    }
}

s24_status s24i_refit_create(s24i_refit *refit, s24_ctx *ctx, const s24i_prune_job *job)
{
    const int64_t n = job->n, k = job->k, block = job->block < k ? job->block : k;
    const size_t one = sizeof(double), cells = (size_t)(n * k);
    s24i_far *far = NULL;
    if (job->device) TRY(s24i_far_create(&far, ctx, job->device, (const int64_t[3]){n, k, block}));
    *refit =
        (s24i_refit){.n = n,
                     .k = k,
                     .block = block,
                     .pattern = job->pattern,
                     .h = s24_ctx_alloc(ctx, (size_t)(k * k) * one),
                     .w = s24_ctx_alloc(ctx, cells * one),
                     .far = far,
                     .errors = far ? far->pinned : s24_ctx_alloc(ctx, (size_t)(n * block) * one),
                     .gradient = s24_ctx_alloc(ctx, cells * one),
                     .work = s24_ctx_alloc(ctx, s24i_product_work_bytes(n, k, block))};
    if (refit->h && refit->w && refit->errors && refit->gradient && refit->work) return S24_OK;
    s24i_refit_free(refit, ctx);
    return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory to prune a weight of [%lld, %lld]",
                        (long long)n, (long long)k);
}

void s24i_refit_free(s24i_refit *refit, s24_ctx *ctx)
{
    s24_ctx_free(ctx, refit->work);
    s24_ctx_free(ctx, refit->gradient);
    if (!refit->far) s24_ctx_free(ctx, refit->errors);
    s24_ctx_free(ctx, refit->w);
    s24_ctx_free(ctx, refit->h);
    s24i_far_destroy(refit->far);
}

static void move_matrix(s24i_refit *refit, double *to, const double *from)
{
    const int64_t k = refit->k;
    s24i_far_move(refit->far, &(s24i_far_copy){to, from, k, k, refit->n, k});
}

static void fetch_weights(s24i_refit *refit)
{
    if (!refit->is_there) return;
    move_matrix(refit, refit->w, refit->far->weights);
    s24i_far_wait(refit->far);
    refit->is_there = 0;
}

void s24i_refit_fetch(s24i_refit *refit)
{
    s24i_far *far = refit->far;
    if (!far) return;
    fetch_weights(refit);
    move_matrix(refit, refit->gradient, far->rows);
    s24i_far_wait(far);
}

void s24i_refit_send(s24i_refit *refit)
{
    s24i_far *far = refit->far;
    if (!far) return;
    if (!refit->is_there) move_matrix(refit, far->weights, refit->w);
    move_matrix(refit, far->rows, refit->gradient);
    s24i_far_wait(far);
}

typedef struct storing {
    const s24i_refit *refit;
    const s24i_prune_job *job;
    atomic_int bad; /* is one of them not finite? */
} storing;

static void store_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    storing *s = arg;
    const int64_t k = s->job->k;
    int bad = 0;
    (void)thread;
    for (int64_t i = begin * k; i < end * k; i++) {
        s->job->w[i] = (float)s->refit->w[i];
        bad |= !isfinite(s->job->w[i]);
    }
    if (bad) s->bad = 1;
}

s24_status s24i_refit_store(s24_ctx *ctx, s24i_refit *refit, const s24i_prune_job *job)
{
    storing s = {.refit = refit, .job = job};
    fetch_weights(refit);
    if (refit->far) TRY(refit->far->status);
    s24_ctx_parallel_for(ctx, job->n, store_rows, &s);
    for (int64_t i = 0; i < job->n * job->k && s.bad; i++) {
        REQUIRE(
            ctx, isfinite(job->w[i]), S24_ERROR_NUMERIC,
            "the updated weight at row %lld, column %lld is beyond f32; expected more inputs or "
            "a larger dampening",
            (long long)(i / job->k), (long long)(i % job->k));
    }
    return S24_OK;
}

/* gradient += errors·H for the columns at hand, whose errors are there or, with `sent`, here. */
static void add_to_gradient(s24_ctx *ctx, const s24i_refit *s, int sent)
{
    s24i_far *far = s->far;
    if (far && sent) s24i_far_send(far, s->end - s->begin);
    if (far) {
        s24i_far_add(far, &(s24i_far_step){far->rows, s->begin, s->end, 0, 1});
        return;
    }
    const s24i_product update = {.m = s->n,
                                 .n = s->k,
                                 .depth = s->end - s->begin,
                                 .a = s->errors,
                                 .a_row = s->block,
                                 .a_depth = 1,
                                 .b = s->h + s->begin * s->k,
                                 .b_row = 1,
                                 .b_depth = s->k,
                                 .c = s->gradient,
                                 .ldc = s->k,
                                 .sign = 1};
    s24i_product_run(ctx, &update, s->work);
}

/* How far a weight on the grid moves to be nearest to w + step. */
static double step_on_grid(const s24i_grid *grid, int64_t at, float scale, double w, double step)
{
    const double least = grid->bits == 8 ? -127 : -8, most = grid->bits == 8 ? 127 : 7;
    if (!grid->stored[at] || scale == 0.0f) return 0.0;
    const double q = fmin(most, fmax(least, nearbyint((w + step) / (double)scale)));
    return (double)(float)(q * (double)scale) - w;
}

static void round_row(const s24i_refit *s, int64_t row, double *restrict w, double *restrict steps)
{
    const int64_t count = s->end - s->begin;
    const s24i_grid *grid = s->grid;
    const float *scales = grid->scales + row * ((s->k + grid->group - 1) / grid->group);
    for (int64_t j = 0; j < count; j++) {
        const double *h = s->h + (s->begin + j) * s->k + s->begin;
        const int64_t col = s->begin + j;
        const double step =
            step_on_grid(grid, row * s->k + col, scales[col / grid->group], w[j], -steps[j] / h[j]);
        steps[j] = step;
        if (step == 0.0) continue;
        w[j] += step;
        for (int64_t c = j + 1; c < count; c++)
            steps[c] += step * h[c];
    }
}

typedef struct rows_job {
    const s24i_refit *refit;
    const s24i_sweep *rule;
} rows_job;

static void sweep_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_job *job = arg;
    const s24i_refit *s = job->refit;
    const s24i_sweep *rule = job->rule;
    const s24i_row_job rows = {.rule = rule->rule,
                               .k = s->k,
                               .count = s->end - s->begin,
                               .h = s->h + s->begin * (s->k + 1),
                               .keep = rule->keep,
                               .group = rule->group,
                               .rho = rule->rho,
                               .growth = rule->growth};
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const int64_t first = r * s->k + s->begin;
        const s24i_row row = {.w = s->w + first,
                              .steps = s->errors + r * s->block,
                              .d = rule->d ? rule->d + first : NULL,
                              .u = rule->u ? rule->u + first : NULL,
                              .lanes = 1};
        if (!s->far) memcpy(row.steps, s->gradient + first, (size_t)rows.count * sizeof *row.steps);
        if (s->grid)
            round_row(s, r, row.w, row.steps);
        else if (s24i_row_run(&rows, &row))
            s->moved[r] = 1;
    }
}

static void next_block(s24i_refit *s)
{
    s->begin = s->end;
    s->end = s->k - s->begin < s->block ? s->k : s->begin + s->block;
}

enum { SQUARE = 64 };

/* The upper triangle, square by square of some rows' columns. */
static void mirror_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_refit *s = arg;
    const int64_t k = s->k;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        const int64_t stop = (b + 1) * SQUARE < k ? (b + 1) * SQUARE : k;
        for (int64_t first = 0; first < stop; first += SQUARE)
            for (int64_t r = b * SQUARE; r < stop; r++)
                for (int64_t c = first; c < first + SQUARE && c < r; c++)
                    s->h[c * k + r] = s->h[r * k + c];
    }
}

/* errors = w − target in the columns at hand; or of all columns into gradient, on their way to a
   device. */
static void find_errors(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_refit *s = arg;
    const int64_t first = s->far ? 0 : s->begin, ld = s->far ? s->k : s->block;
    double *errors = s->far ? s->gradient : s->errors;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = first; j < (s->far ? s->k : s->end); j++)
            errors[r * ld + j - first] = s->w[r * s->k + j] - (double)s->target[r * s->k + j];
}

static void begin_there(s24_ctx *ctx, s24i_refit *s)
{
    s24i_far *far = s->far;
    const int is_there = s->is_there;
    s24i_far_move(far, &(s24i_far_copy){far->square, s->h, s->k, s->k, s->k, s->k});
    fetch_weights(s);
    if (!is_there) move_matrix(s, far->weights, s->w);
    s24_ctx_parallel_for(ctx, s->n, find_errors, s);
    move_matrix(s, far->other, s->gradient);
    s24i_far_times_square(far, far->rows, far->other);
    s24i_far_wait(far);
}

void s24i_refit_begin(s24_ctx *ctx, s24i_refit *s)
{
    s24_ctx_parallel_for(ctx, (s->k + SQUARE - 1) / SQUARE, mirror_rows, s);
    if (s->far) {
        begin_there(ctx, s);
        return;
    }
    memset(s->gradient, 0, (size_t)(s->n * s->k) * sizeof *s->gradient);
    for (s->end = 0; s->end < s->k;) {
        next_block(s);
        s24_ctx_parallel_for(ctx, s->n, find_errors, s);
        add_to_gradient(ctx, s, 1);
    }
}

int s24i_refit_is_far(const s24i_refit *s, const s24i_sweep *sweep)
{
    const int chooses = sweep->rule == S24I_ROW_DROP || sweep->rule == S24I_ROW_PULL;
    return s->far && !s->grid && s->block <= S24I_ROW_COLUMNS && (!chooses || sweep->group > 1);
}

static void sweep_there(s24_ctx *ctx, s24i_refit *s, const s24i_sweep *rule)
{
    s24i_far *far = s->far;
    s24i_far_clear(far, far->small, 1);
    for (s->end = 0; s->end < s->k;) {
        next_block(s);
        s24i_far_sweep(far, rule, s->begin, s->end);
        add_to_gradient(ctx, s, 0);
    }
    s->is_there = 1;
    if (!s->moved) return;
    s24i_far_move(far, &(s24i_far_copy){far->pinned, far->small, 1, 1, 1, 1});
    s24i_far_wait(far);
    s->moved[0] |= far->pinned[0] != 0.0;
}

void s24i_refit_sweep(s24_ctx *ctx, s24i_refit *s, const s24i_sweep *rule)
{
    const rows_job job = {s, rule};
    if (s24i_refit_is_far(s, rule)) {
        sweep_there(ctx, s, rule);
        return;
    }
    for (s->end = 0; s->end < s->k;) {
        next_block(s);
        if (s->far) s24i_far_fetch(s->far, s->far->rows, s->begin, s->end);
        s24_ctx_parallel_for(ctx, s->n, sweep_rows, (void *)&job);
        add_to_gradient(ctx, s, 1);
    }
}

void s24i_refit_relax(s24_ctx *ctx, s24i_refit *s)
{
    s24i_refit_sweep(ctx, s, &(s24i_sweep){.rule = S24I_ROW_RELAX});
}

void s24i_refit_run(s24_ctx *ctx, s24i_refit *s)
{
    s24i_refit_begin(ctx, s);
    for (int i = 0; i < SWEEPS; i++)
        s24i_refit_relax(ctx, s);
}
