// SPDX-License-Identifier: Apache-2.0
/*
 * The criterion "sparsegpt": drop weights one column after another, and let the columns to the
 * right make good for each. With H the dampened Gram matrix and U upper triangular, UᵀU = H⁻¹, at
 * each column j:  e = (w − kept)/U_jj,  w[j:] −= e·U[j, j:]
 *
 * What stays has the largest w²/U_jj². N:M chooses at the first column of a group, of the weights
 * as they are by then; a share of single weights at the first of a block of columns, of all rows
 * together; patterns of columns and blocks before the first column, once for all. For a row that
 * goes nothing makes good: of rows those stay whose outputs are largest.
 *
 * Rows are independent, so a thread takes whole rows through a block of columns; what a block's
 * errors do to the columns beyond it is one product. All of it is f64 until the result is stored.
 * A column whose inputs are all zero is dead: its weights cost nothing and become zero.
 *
 * Beyond the paper, the weights that stay are then refitted together (see refit.c): on MiniLM's
 * layers the output error falls by a quarter; pruning the model takes 11.5 s instead of 9.3.
 *
 * Reference: Frantar, Alistarh, "SparseGPT: massive language models can be accurately pruned in
 * one-shot", ICML 2023, algorithm 1 and section 3.4 (n:m).
 */
#include <math.h>
#include <string.h>

#include "prune/far.h"
#include "prune/prune_patterns.h"

typedef struct solver {
    int64_t n, k, block;
    const double *gram;
    double *u;      /* [k, k]: the dampened Gram matrix, then U */
    double *w;      /* [n, k] */
    double *errors; /* [n, block] */
    void *work;
    s24i_far *far;      /* where products are, or NULL: then errors are in its pinned memory */
    int drops_there;    /* by the device itself, which then has w */
    s24i_choice choice; /* its scores [n, k], or of a block [n, block], and what stays [n, k] */
    int64_t begin, end; /* the columns of this block */
} solver;

/* The weights in f64. */
typedef struct widening {
    const solver *solver;
    const float *from;
} widening;

static void widen_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const widening *j = arg;
    const int64_t k = j->solver->k;
    (void)thread;
    for (int64_t i = begin * k; i < end * k; i++)
        j->solver->w[i] = (double)j->from[i];
}

/* The dampened Gram matrix in u. */
static void dampen(s24_ctx *ctx, const solver *s, const s24i_prune_job *job)
{
    s24i_gram_dampen(ctx, s->u, job->stats, job->dampening);
    for (int64_t j = 0; j < s->k; j++)
        for (int64_t r = 0; r < s->n && job->stats->gram[j * s->k + j] == 0.0; r++)
            s->w[r * s->k + j] = 0.0;
}

static double score_of(const solver *s, double w, int64_t col)
{
    const double scaled = w / s->u[col * (s->k + 1)];
    return scaled * scaled;
}

static void prune_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const solver *s = arg;
    const s24i_row_job rows = {.rule = S24I_ROW_DROP,
                               .k = s->k,
                               .count = s->end - s->begin,
                               .h = s->u + s->begin * (s->k + 1),
                               .keep = (int)s->choice.pattern->keep,
                               .group = (int)s->choice.pattern->group};
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const int64_t first = r * s->k + s->begin;
        const s24i_row row = {.w = s->w + first,
                              .steps = s->errors + r * s->block,
                              .stays = s->choice.keep + first,
                              .lanes = 1};
        (void)s24i_row_run(&rows, &row);
    }
}

/* Scores of columns begin … end as they are now, in rows of as many. */
static void score_columns(const solver *s, int64_t begin, int64_t end)
{
    double *scores = s->choice.scores;
    for (int64_t r = 0; r < s->n; r++)
        for (int64_t j = begin; j < end; j++)
            *scores++ = score_of(s, s->w[r * s->k + j], j);
}

/* The part of a share of single weights that is due by the last column and has not gone before. */
static s24_status choose_in_block(s24_ctx *ctx, const solver *s)
{
    const int64_t width = s->end - s->begin, count = s->n * width;
    const double share = s->choice.pattern->share;
    const int64_t due = (int64_t)nearbyint(share * (double)(s->n * s->end)),
                  gone = (int64_t)nearbyint(share * (double)(s->n * s->begin));
    uint8_t *flags;
    score_columns(s, s->begin, s->end);
    flags = s24_ctx_alloc(ctx, (size_t)count);
    REQUIRE(ctx, flags, S24_ERROR_MEMORY, "out of memory to choose of %lld weights",
            (long long)count);
    s24i_drop_least(flags, s->choice.scores, count, due - gone);
    for (int64_t i = 0; i < count; i++)
        s->choice.keep[i / width * s->k + s->begin + i % width] = flags[i];
    s24_ctx_free(ctx, flags);
    return S24_OK;
}

/* A weight's part of w·G·wᵀ of its row, G the inputs' Gram matrix. */
static void score_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const solver *s = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const double *w = s->w + r * s->k, *gram = s->gram;
        double *scores = s->choice.scores + r * s->k;
        for (int64_t i = 0; i < s->k; i++, gram += s->k) {
            scores[i] = gram[i] * w[i];
            for (int64_t j = 0; j < i; j++) {
                scores[i] += gram[j] * w[j];
                scores[j] += gram[j] * w[i];
            }
        }
        for (int64_t i = 0; i < s->k; i++)
            scores[i] *= w[i];
    }
}

static s24_status choose_at_once(s24_ctx *ctx, const solver *s)
{
    if (s->choice.pattern->cols == S24I_WHOLE)
        s24_ctx_parallel_for(ctx, s->n, score_rows, (void *)s);
    else
        score_columns(s, 0, s->k);
    return s24i_choose(ctx, &s->choice);
}

static void next_block(solver *s)
{
    s->begin = s->end;
    s->end = s->k - s->begin < s->block ? s->k : s->begin + s->block;
}

/* The columns of this block, as products left them in errors. */
static void take_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const solver *s = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        memcpy(s->w + r * s->k + s->begin, s->errors + r * s->block,
               (size_t)(s->end - s->begin) * sizeof *s->w);
}

static void fetch_block(s24_ctx *ctx, solver *s)
{
    if (!s->far || s->begin == 0) return;
    s24i_far_fetch(s->far, s->far->weights, s->begin, s->end);
    s24_ctx_parallel_for(ctx, s->n, take_rows, s);
}

/* What the block's errors do to the columns after it. */
static void update_rest(s24_ctx *ctx, const solver *s)
{
    if (s->far) {
        if (!s->drops_there) s24i_far_send(s->far, s->end - s->begin);
        s24i_far_add(s->far, &(s24i_far_step){s->far->weights, s->begin, s->end, s->end, -1});
        return;
    }
    const s24i_product update = {.m = s->n,
                                 .n = s->k - s->end,
                                 .depth = s->end - s->begin,
                                 .a = s->errors,
                                 .a_row = s->block,
                                 .a_depth = 1,
                                 .b = s->u + s->begin * s->k + s->end,
                                 .b_row = 1,
                                 .b_depth = s->k,
                                 .c = s->w + s->end,
                                 .ldc = s->k,
                                 .sign = -1};
    s24i_product_run(ctx, &update, s->work);
}

static s24_status prune_blocks(s24_ctx *ctx, solver *s, const s24i_sweep *drop)
{
    const s24i_pattern *pattern = s->choice.pattern;
    const int by_block = s24i_pattern_is_unstructured(pattern);
    if (pattern->group == 1 && !by_block) TRY(choose_at_once(ctx, s));
    for (s->end = 0; s->end < s->k;) {
        next_block(s);
        if (s->drops_there) {
            s24i_far_sweep(s->far, drop, s->begin, s->end);
        } else {
            fetch_block(ctx, s);
            if (by_block) TRY(choose_in_block(ctx, s));
            s24_ctx_parallel_for(ctx, s->n, prune_rows, s);
        }
        if (s->end < s->k) update_rest(ctx, s);
    }
    return S24_OK;
}

/* U there, and w; and U here where the host goes through the rows. */
static s24_status go_there(const solver *s)
{
    const int64_t k = s->k;
    TRY(s24i_far_inverse_factor(s->far, s->u));
    if (!s->drops_there) s24i_far_move(s->far, &(s24i_far_copy){s->u, s->far->square, k, k, k, k});
    s24i_far_move(s->far, &(s24i_far_copy){s->far->weights, s->w, k, k, s->n, k});
    s24i_far_wait(s->far);
    return s->far->status;
}

static s24_status solve(s24_ctx *ctx, s24i_refit *refit, const s24i_prune_job *job, double *scores)
{
    const int64_t count = refit->n * refit->k;
    solver s = {.n = refit->n,
                .k = refit->k,
                .block = refit->block,
                .gram = job->stats->gram,
                .u = refit->h,
                .w = refit->w,
                .errors = refit->errors,
                .work = refit->work,
                .far = refit->far,
                .choice = {.pattern = job->pattern,
                           .scores = scores,
                           .keep = (uint8_t *)(scores + count),
                           .n = refit->n,
                           .k = refit->k}};
    const s24i_sweep drop = {
        .rule = S24I_ROW_DROP, .keep = (int)job->pattern->keep, .group = (int)job->pattern->group};
    s.drops_there = s24i_refit_is_far(refit, &drop);
    widening wide = {&s, job->w};
    s24_ctx_parallel_for(ctx, s.n, widen_rows, &wide);
    dampen(ctx, &s, job);
    TRY(s.far ? go_there(&s) : s24i_inverse_factor(ctx, s.u, s.k));
    TRY(prune_blocks(ctx, &s, &drop));
    if (s.far) TRY(s.far->status);
    refit->is_there = s.drops_there;
    s24i_gram_dampen(ctx, refit->h, job->stats, job->dampening);
    refit->target = job->w;
    s24i_refit_run(ctx, refit);
    return s24i_refit_store(ctx, refit, job);
}

s24_status s24i_prune_sparsegpt(s24_ctx *ctx, const s24i_prune_job *job)
{
    const size_t count = (size_t)(job->n * job->k);
    s24i_refit refit;
    double *scores;
    s24_status status = S24_ERROR_MEMORY;
    TRY(s24i_refit_create(&refit, ctx, job));
    scores = s24_ctx_alloc(ctx, count * (sizeof *scores + 1));
    if (scores)
        status = solve(ctx, &refit, job, scores);
    else
        s24_ctx_fail(ctx, status, "out of memory for the scores of [%lld, %lld]", (long long)job->n,
                     (long long)job->k);
    s24_ctx_free(ctx, scores);
    s24i_refit_free(&refit, ctx);
    return status;
}

/* What a weight costs the outputs by itself, as layers are compared by: w²/U_jj². */
s24_status s24i_score_sparsegpt(void *user, s24_ctx *ctx, double *scores,
                                const s24_score_inputs *in)
{
    const s24i_prune_job *job = user;
    const int64_t k = in->cols;
    double *u = s24_ctx_alloc(ctx, (size_t)(k * k) * sizeof *u);
    REQUIRE(ctx, u, S24_ERROR_MEMORY, "out of memory for a Gram matrix of %lld columns",
            (long long)k);
    s24i_gram_dampen(ctx, u, job->stats, job->dampening);
    const s24_status status = s24i_inverse_factor(ctx, u, k);
    for (int64_t i = 0; i < in->rows * k && status == S24_OK; i++) {
        const int64_t j = i % k;
        const double scaled = (double)in->w[i] / u[j * (k + 1)];
        scores[i] = in->gram[j * (k + 1)] == 0.0 ? 0.0 : scaled * scaled;
    }
    s24_ctx_free(ctx, u);
    return status;
}
