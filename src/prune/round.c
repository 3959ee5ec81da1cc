// SPDX-License-Identifier: Apache-2.0
/*
 * Rounding by the inputs: a 2:4 matrix becomes integers with the scales of s24_matrix_quantize, and
 * then integers and scales in turn move to where the outputs over the inputs of the statistics
 * change least from those of a target, the weights before they were pruned or the matrix itself
 * (refit.c). Pruning and rounding so are one: what was pruned is made good for by integers too.
 */
#include <math.h>
#include <string.h>

#include "prune/prune.h"

enum { BLOCK = 128, FITS = 2 /* of the scales */, SWEEPS = 4 /* of the integers, after each */ };
static const double DAMPENING = 0.01;

typedef struct rounding {
    s24_ctx *ctx;
    int64_t n, k;
    const s24_round_opts *opts;
    const s24_matrix *integers; /* rounded to nearest */
    float *w, *target;          /* [n, k] each, in one piece of memory */
    double *wide;               /* [n, k] */
    float *scales;              /* [n, groups] */
    uint8_t *stored;            /* [n, k] */
    s24i_refit refit;
} rounding;

static s24_status check(s24_ctx *ctx, const s24_matrix *src, const s24_round_opts *opts)
{
    const s24_dense *target = opts->target;
    REQUIRE(ctx, src && opts->stats, S24_ERROR_ARGUMENT, "%s is NULL",
            src ? "s24_round_opts.stats" : "src");
    const int64_t n = s24_matrix_rows(src), k = s24_matrix_cols(src);
    REQUIRE(ctx, opts->stats->k == k, S24_ERROR_SHAPE,
            "the statistics are of inputs of width %lld; expected the weight's %lld columns",
            (long long)opts->stats->k, (long long)k);
    REQUIRE(ctx, opts->stats->tokens > 0, S24_ERROR_ARGUMENT,
            "the statistics hold no inputs; expected at least one s24_stats_add");
    if (!target) return S24_OK;
    REQUIRE(ctx, target->data && target->dtype == S24_F32, S24_ERROR_DTYPE,
            "s24_round_opts.target is %s; expected f32", s24_dtype_name(target->dtype));
    REQUIRE(ctx, target->rows == n && target->cols == k, S24_ERROR_SHAPE,
            "s24_round_opts.target is [%lld, %lld]; expected [%lld, %lld]", (long long)target->rows,
            (long long)target->cols, (long long)n, (long long)k);
    return S24_OK;
}

/* Where the codes let a weight be. */
static void mark_stored(const rounding *r)
{
    const uint8_t *indices = s24_matrix_indices(r->integers);
    memset(r->stored, 0, (size_t)(r->n * r->k));
    for (int64_t row = 0; row < r->n; row++)
        for (int64_t group = 0; group < r->k / 4; group++) {
            const unsigned pair = indices[row * ((r->k + 7) / 8) + group / 2];
            const unsigned code = pair >> 4 * (group % 2) & 15;
            uint8_t *at = r->stored + row * r->k + 4 * group;
            at[code & 3] = at[code >> 2] = 1;
        }
}

/* The stored integers of the weights as they are now, in the form of a file. */
static void gather(int8_t *values, const rounding *r)
{
    const int64_t group = s24_matrix_group(r->integers), groups = (r->k + group - 1) / group;
    const float *scales = r->scales;
    const int bits = s24_matrix_bits(r->integers);
    int64_t at = 0;
    for (int64_t row = 0; row < r->n; row++)
        for (int64_t col = 0; col < r->k; col++) {
            const int64_t place = row * r->k + col;
            const double scale = (double)scales[row * groups + col / group];
            if (!r->stored[place]) continue;
            const int q = scale > 0.0 ? (int)nearbyint(r->wide[place] / scale) : 0;
            if (bits == 8)
                values[at] = (int8_t)q;
            else if (at % 2 == 0)
                values[at / 2] = (int8_t)(q & 15);
            else
                values[at / 2] = (int8_t)((values[at / 2] & 15) | (q & 15) << 4);
            at++;
        }
}

static s24_status make(s24_matrix **out, const rounding *r)
{
    s24_ctx *ctx = r->ctx;
    int8_t *values = s24_ctx_alloc(ctx, (size_t)(r->n * r->k / 2));
    REQUIRE(ctx, values, S24_ERROR_MEMORY, "out of memory for integers");
    gather(values, r);
    const s24_quantized from = {.rows = r->n,
                                .cols = r->k,
                                .bits = s24_matrix_bits(r->integers),
                                .group = s24_matrix_group(r->integers),
                                .values = values,
                                .indices = s24_matrix_indices(r->integers),
                                .scales = r->scales};
    const s24_status status = s24_matrix_from_quantized(out, ctx, &from);
    s24_ctx_free(ctx, values);
    return status;
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* By how much the scale of a group of a row is to grow: with all else as it is, the sum over the
   inputs has its least value there. */
static double growth_of(const rounding *r, const double *w, const double *gradient, int64_t begin,
                        int64_t end, double scale)
{
    double slope = 0, bend = 0;
    for (int64_t i = begin; i < end; i++) {
        const double *h = r->refit.h + i * r->k;
        double sum = 0;
        if (w[i] == 0.0) continue;
        for (int64_t j = begin; j < end; j++)
            sum += w[j] * h[j];
        slope += w[i] * gradient[i];
        bend += w[i] * sum;
    }
    return bend > 0 ? -scale * slope / bend : 0;
}

static void fit_rows(void *arg, int64_t first, int64_t last, int thread)
{
    const rounding *r = arg;
    const int64_t k = r->k, group = s24_matrix_group(r->integers), groups = (k + group - 1) / group;
    (void)thread;
    for (int64_t i = first * groups; i < last * groups; i++) {
        const int64_t begin = i % groups * group, end = begin + group < k ? begin + group : k;
        double *w = r->wide + i / groups * k, *gradient = r->refit.gradient + i / groups * k;
        const double old = (double)r->scales[i];
        const float scale =
            old > 0 ? (float)(old + growth_of(r, w, gradient, begin, end, old)) : 0.0f;
        if (!(scale > 0 && isfinite(scale))) continue;
        r->scales[i] = scale;
        for (int64_t j = begin; j < end; j++) {
            const double *h = r->refit.h + j * k, was = w[j];
            if (was == 0.0) continue;
            w[j] = (double)(float)(nearbyint(was / old) * (double)scale);
            for (int64_t c = 0; c < k; c++)
                gradient[c] += (w[j] - was) * h[c];
        }
    }
}

/* Integers, then scales for them and integers for these, a few times. */
static void move_both(rounding *r)
{
    s24i_refit_run(r->ctx, &r->refit);
    for (int i = 0; i < FITS; i++) {
        s24_ctx_parallel_for(r->ctx, r->n, fit_rows, r);
        s24i_refit_begin(r->ctx, &r->refit);
        for (int sweep = 0; sweep < SWEEPS; sweep++)
            s24i_refit_relax(r->ctx, &r->refit);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static s24_status move(s24_prune_report *report, rounding *r)
{
    const int64_t count = r->n * r->k;
    const s24i_grid grid = {.stored = r->stored,
                            .scales = r->scales,
                            .group = s24_matrix_group(r->integers),
                            .bits = s24_matrix_bits(r->integers)};
    mark_stored(r);
    for (int64_t i = 0; i < count; i++)
        r->wide[i] = (double)r->w[i];
    s24i_gram_dampen(r->ctx, r->refit.h, r->opts->stats,
                     r->opts->dampening > 0 ? r->opts->dampening : DAMPENING);
    r->refit.grid = &grid;
    move_both(r);
    r->refit.grid = NULL;
    for (int64_t i = 0; i < count; i++)
        r->w[i] = (float)r->wide[i];
    const s24i_prune_job after = {.n = r->n, .k = r->k, .w = r->w, .stats = r->opts->stats};
    return report ? s24i_prune_measure(report, r->ctx, r->target, &after) : S24_OK;
}

/* w = the integers as floats, target = what they shall be like. */
static s24_status widen(rounding *r, const s24_matrix *src)
{
    const s24_dense w = {r->w, S24_F32, r->n, r->k, 0},
                    target = {r->target, S24_F32, r->n, r->k, 0};
    const s24_dense *given = r->opts->target;
    TRY(s24_matrix_to_dense(r->ctx, &w, r->integers));
    if (!given) return s24_matrix_to_dense(r->ctx, &target, src);
    for (int64_t row = 0; row < r->n; row++)
        memcpy(r->target + row * r->k,
               (const float *)given->data + row * (given->ld ? given->ld : given->cols),
               (size_t)r->k * sizeof *r->target);
    return S24_OK;
}

static s24_status run(s24_matrix **out, s24_prune_report *report, rounding *r,
                      const s24_matrix *src)
{
    const int64_t n = r->n, k = r->k, block = k < BLOCK ? k : BLOCK;
    const int64_t group = s24_matrix_group(r->integers);
    const size_t one = sizeof(double), scales = (size_t)(n * ((k + group - 1) / group));
    s24_status status = S24_ERROR_MEMORY;
    r->w = s24_ctx_alloc(r->ctx, 2 * (size_t)(n * k) * sizeof(float));
    r->stored = s24_ctx_alloc(r->ctx, (size_t)(n * k));
    r->scales = s24_ctx_alloc(r->ctx, scales * sizeof(float));
    r->wide = s24_ctx_alloc(r->ctx, (size_t)(n * k) * one);
    r->refit = (s24i_refit){.n = n,
                            .k = k,
                            .block = block,
                            .h = s24_ctx_alloc(r->ctx, (size_t)(k * k) * one),
                            .w = r->wide,
                            .errors = s24_ctx_alloc(r->ctx, (size_t)(n * block) * one),
                            .gradient = s24_ctx_alloc(r->ctx, (size_t)(n * k) * one),
                            .work = s24_ctx_alloc(r->ctx, s24i_product_work_bytes(n, k, block))};
    if (r->w && r->stored && r->scales && r->wide && r->refit.h && r->refit.errors &&
        r->refit.gradient && r->refit.work) {
        r->refit.target = r->target = r->w + n * k;
        memcpy(r->scales, s24_matrix_scales(r->integers), scales * sizeof(float));
        status = widen(r, src);
        if (status == S24_OK) status = move(report, r);
        if (status == S24_OK) status = make(out, r);
    } else {
        s24_ctx_fail(r->ctx, status, "out of memory to round a weight of [%lld, %lld]",
                     (long long)n, (long long)k);
    }
    s24_ctx_free(r->ctx, r->refit.work);
    s24_ctx_free(r->ctx, r->refit.gradient);
    s24_ctx_free(r->ctx, r->refit.errors);
    s24_ctx_free(r->ctx, r->refit.h);
    s24_ctx_free(r->ctx, r->wide);
    s24_ctx_free(r->ctx, r->scales);
    s24_ctx_free(r->ctx, r->stored);
    s24_ctx_free(r->ctx, r->w);
    return status;
}

s24_status s24_matrix_round(s24_matrix **out, s24_prune_report *report, s24_ctx *ctx,
                            const s24_matrix *src, const s24_round_opts *opts)
{
    s24_round_opts known;
    s24_matrix *integers;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_round_opts"));
    TRY(check(ctx, src, &known));
    TRY(s24_matrix_quantize(&integers, ctx, src, known.scheme));
    rounding r = {.ctx = ctx,
                  .n = s24_matrix_rows(src),
                  .k = s24_matrix_cols(src),
                  .opts = &known,
                  .integers = integers};
    const s24_status status = run(out, report, &r, src);
    s24_matrix_destroy(integers);
    return status;
}
