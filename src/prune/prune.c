// SPDX-License-Identifier: Apache-2.0
/*
 * The public face of pruning: the table of criteria, the checks that all of them rely on, and the
 * copy that makes a failing prune change nothing.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "prune/prune_patterns.h"

static const s24i_criterion criteria[] = {
#define SCORE(name, needs, select, score)                                                          \
    {name, needs, select, S24I_ALL_PATTERNS, s24i_prune_scored, score},
#define CRITERION(name, needs, select, patterns, run, score)                                       \
    {name, needs, select, patterns, run, score},
#include "prune/criteria.def"
#undef SCORE
#undef CRITERION
};
enum { CRITERIA = sizeof criteria / sizeof *criteria };

static const s24i_criterion *find_criterion(const char *name)
{
    for (int i = 0; name && i < CRITERIA; i++)
        if (strcmp(criteria[i].name, name) == 0) return &criteria[i];
    return NULL;
}

const char *s24_criterion_name(int index)
{
    return index >= 0 && index < CRITERIA ? criteria[index].name : NULL;
}

int s24_criterion_needs_stats(const char *criterion)
{
    const s24i_criterion *found = find_criterion(criterion);
    return found ? (found->needs & S24I_NEEDS_STATS) != 0 : -1;
}

int s24_criterion_needs_gradients(const char *criterion)
{
    const s24i_criterion *found = find_criterion(criterion);
    return found ? (found->needs & S24I_NEEDS_GRADIENTS) != 0 : -1;
}

static s24_status check_weight(s24_ctx *ctx, const s24_dense *w, const s24i_pattern *pattern)
{
    REQUIRE(ctx, w->dtype == S24_F32, S24_ERROR_DTYPE, "the weight is %s; expected f32",
            s24_dtype_name(w->dtype));
    REQUIRE(ctx, w->rows >= 1 && w->cols >= pattern->group, S24_ERROR_SHAPE,
            "the weight is [%lld, %lld]; expected columns in groups of %lld and at least one row",
            (long long)w->rows, (long long)w->cols, (long long)pattern->group);
    TRY(s24i_pattern_check(ctx, pattern, w->rows, w->cols));
    REQUIRE(ctx, w->ld == 0 || w->ld >= w->cols, S24_ERROR_SHAPE,
            "the weight's ld is %lld; expected at least its %lld columns", (long long)w->ld,
            (long long)w->cols);
    REQUIRE(ctx, w->data, S24_ERROR_ARGUMENT, "s24_prune: w.data is NULL");
    return S24_OK;
}

/* The caller's score stands where a criterion's would. */
static const s24i_criterion of_caller = {
    "the caller's score", 0, S24_SELECT_STRICT, S24I_ALL_PATTERNS, s24i_prune_scored, NULL};

/* What the options say, with defaults. */
typedef struct settings {
    s24_prune_opts opts;
    const s24i_criterion *criterion;
    s24i_pattern pattern;
    unsigned refinements;
    int selects; /* the choice itself is the device's */
} settings;

static s24_status read_criterion(s24_ctx *ctx, settings *s)
{
    const s24_prune_opts *o = &s->opts;
    REQUIRE(ctx, !o->score || !o->criterion, S24_ERROR_ARGUMENT,
            "the criterion \"%s\" and a score of the caller's were given; expected one of them",
            o->criterion);
    s->criterion =
        o->score ? &of_caller : find_criterion(o->criterion ? o->criterion : "magnitude");
    REQUIRE(ctx, s->criterion, S24_ERROR_ARGUMENT,
            "no criterion is named \"%s\"; expected one of s24_criterion_name()", o->criterion);
    TRY(s24i_pattern_read(ctx, &s->pattern, o->pattern));
    const int two_four = s24i_pattern_is_two_four(&s->pattern);
    REQUIRE(ctx, two_four || s->criterion->patterns == S24I_ALL_PATTERNS, S24_ERROR_UNSUPPORTED,
            "the criterion \"%s\" does not make the pattern \"%s\"", s->criterion->name,
            o->pattern);
    s->selects = o->device && two_four && s->criterion->select != S24_SELECT_STRICT;
    const s24_weight_gradients *g = o->gradients;
    REQUIRE(ctx,
            !(s->criterion->needs & S24I_NEEDS_GRADIENTS) || (g && g->mean && g->size && g->square),
            S24_ERROR_ARGUMENT, "the criterion \"%s\" needs gradients of the weight",
            s->criterion->name);
    const int singles = s->pattern.group > 1 || s24i_pattern_is_unstructured(&s->pattern);
    return s24i_refinements_read(ctx, &s->refinements, o->refine, singles);
}

static s24_status read_options(s24_ctx *ctx, settings *s, const s24_prune_opts *opts)
{
    s24_prune_opts *known = &s->opts;
    TRY(s24i_opts_read(ctx, known, sizeof *known, opts, "s24_prune_opts"));
    TRY(read_criterion(ctx, s));
    const int group = (int)s->pattern.group, least = group > 1 ? group : 4;
    if (known->dampening == 0.0) known->dampening = 0.01;
    if (known->block == 0) known->block = 128 / least * least;
    REQUIRE(ctx, known->dampening > 0.0 && isfinite(known->dampening), S24_ERROR_ARGUMENT,
            "the dampening is %g; expected a positive number", known->dampening);
    REQUIRE(ctx, known->block > 0 && known->block % least == 0, S24_ERROR_ARGUMENT,
            "the block is %d columns; expected a multiple of %d", known->block, least);
    return S24_OK;
}

s24_status s24i_stats_check(s24_ctx *ctx, const s24_stats *stats, const s24_dense *w)
{
    REQUIRE(ctx, stats->k == w->cols, S24_ERROR_SHAPE,
            "the statistics are of inputs of width %lld; expected the weight's %lld columns",
            (long long)stats->k, (long long)w->cols);
    REQUIRE(ctx, stats->tokens > 0, S24_ERROR_ARGUMENT,
            "the statistics hold no inputs; expected at least one s24_stats_add");
    for (int64_t j = 0; j < stats->k; j++)
        REQUIRE(ctx, isfinite(stats->gram[j * stats->k + j]), S24_ERROR_NUMERIC,
                "the inputs' squares in column %lld add up beyond f32; expected smaller inputs",
                (long long)j);
    return S24_OK;
}

/* Are its rows apart, so that it takes a second copy to have them together before and after? */
static int has_gaps(const s24_dense *w)
{
    return w->ld > w->cols;
}

static s24_status check_stats(s24_ctx *ctx, const s24_stats *stats, const s24_dense *w,
                              const s24i_criterion *criterion, unsigned refinements)
{
    REQUIRE(ctx, stats || !(criterion->needs & S24I_NEEDS_STATS), S24_ERROR_ARGUMENT,
            "the criterion \"%s\" needs statistics of the layer's inputs", criterion->name);
    REQUIRE(ctx, stats || !refinements, S24_ERROR_ARGUMENT,
            "to refine a weight needs statistics of the layer's inputs");
    return stats ? s24i_stats_check(ctx, stats, w) : S24_OK;
}

typedef struct copying {
    const s24_dense *w;
    float *copy;    /* [rows, cols] */
    int back;       /* from it to w */
    atomic_int bad; /* is an element not finite? */
} copying;

static float *row_of(const s24_dense *w, int64_t row)
{
    return (float *)w->data + row * (w->ld ? w->ld : w->cols);
}

static void copy_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    copying *j = arg;
    const int64_t cols = j->w->cols;
    int bad = 0;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *row = row_of(j->w, r), *copy = j->copy + r * cols;
        memcpy(j->back ? row : copy, j->back ? copy : row, (size_t)cols * sizeof *copy);
        for (int64_t c = 0; c < cols && !j->back; c++)
            bad |= !isfinite(row[c]);
    }
    if (bad) j->bad = 1;
}

s24_status s24i_prune_copy(s24_ctx *ctx, float *copy, const s24_dense *w)
{
    copying job = {.w = w, .copy = copy};
    s24_ctx_parallel_for(ctx, w->rows, copy_rows, &job);
    for (int64_t r = 0; r < w->rows && job.bad; r++) {
        const float *row = row_of(w, r);
        for (int64_t c = 0; c < w->cols; c++)
            REQUIRE(ctx, isfinite(row[c]), S24_ERROR_NOT_FINITE,
                    "the weight has %s at row %lld, column %lld; expected finite numbers",
                    isnan(row[c]) ? "NaN" : "Inf", (long long)r, (long long)c);
    }
    return S24_OK;
}

static s24_status prune_copies(s24_prune_report *report, s24_ctx *ctx, const s24_dense *w,
                               const s24i_criterion *criterion, const s24i_prune_job *job)
{
    const float *before = w->data;
    TRY(s24i_prune_copy(ctx, job->w, w));
    if (has_gaps(w)) {
        const size_t elements = (size_t)(job->n * job->k);
        before = memcpy(job->w + elements, job->w, elements * sizeof *job->w);
    }
    TRY(job->selects ? s24i_prune_on_device(ctx, job) : criterion->run(ctx, job));
    if (job->refinements) TRY(s24i_prune_refine(ctx, job, before));
    s24_prune_report measured;
    if (report) TRY(s24i_prune_measure(&measured, ctx, before, job));
    if (report) *report = measured;
    copying back = {.w = w, .copy = job->w, .back = 1};
    s24_ctx_parallel_for(ctx, w->rows, copy_rows, &back);
    return S24_OK;
}

/* What both calls begin with: options, checks, and room for copies of the weight. */
static s24_status begin(s24_ctx *ctx, settings *known, s24i_prune_job *job, const s24_dense *w,
                        const s24_stats *stats, const s24_prune_opts *opts)
{
    TRY(read_options(ctx, known, opts));
    TRY(check_weight(ctx, w, &known->pattern));
    TRY(check_stats(ctx, stats, w, known->criterion, known->refinements));
    REQUIRE(ctx, stats || !known->opts.device || known->selects, S24_ERROR_UNSUPPORTED,
            "the criterion \"%s\" with the pattern \"%s\" runs on the CPU only without statistics",
            known->criterion->name, known->opts.pattern ? known->opts.pattern : "2:4");
    *job =
        (s24i_prune_job){.n = w->rows,
                         .k = w->cols,
                         .stats = stats,
                         .pattern = &known->pattern,
                         .score = known->opts.score ? known->opts.score : known->criterion->score,
                         .score_user = known->opts.score ? known->opts.score_user : job,
                         .gradients = known->opts.gradients,
                         .seed = known->opts.seed,
                         .dampening = known->opts.dampening,
                         .block = known->opts.block,
                         .select = known->criterion->select,
                         .refinements = known->refinements,
                         .selects = known->selects,
                         .device = known->opts.device};
    size_t bytes;
    if (!s24i_mul_overflow((size_t)w->rows, (size_t)w->cols, &bytes) &&
        !s24i_mul_overflow(bytes, (has_gaps(w) ? 2 : 1) * sizeof(float), &bytes))
        job->w = s24_ctx_alloc(ctx, bytes);
    REQUIRE(ctx, job->w, S24_ERROR_MEMORY, "out of memory to prune a weight of [%lld, %lld]",
            (long long)w->rows, (long long)w->cols);
    return S24_OK;
}

s24_status s24_prune(s24_prune_report *report, s24_ctx *ctx, const s24_dense *w,
                     const s24_stats *stats, const s24_prune_opts *opts)
{
    settings known;
    s24i_prune_job job;
    REQUIRE(ctx, ctx && w, S24_ERROR_ARGUMENT, "s24_prune: ctx and w are required");
    TRY(begin(ctx, &known, &job, w, stats, opts));
    const int moves = job.refinements || known.criterion->run != s24i_prune_scored;
    const s24_status status = known.pattern.dense && moves
                                  ? s24i_prune_beside_dense(report, ctx, w, &job, &known.opts)
                                  : prune_copies(report, ctx, w, known.criterion, &job);
    s24_ctx_free(ctx, job.w);
    return status;
}

s24_status s24_prune_scores(double *scores, s24_ctx *ctx, const s24_dense *w,
                            const s24_stats *stats, const s24_prune_opts *opts)
{
    settings known;
    s24i_prune_job job;
    REQUIRE(ctx, ctx && w && scores, S24_ERROR_ARGUMENT,
            "s24_prune_scores: scores, ctx and w are required");
    TRY(begin(ctx, &known, &job, w, stats, opts));
    s24_status status = s24i_prune_copy(ctx, job.w, w);
    if (status == S24_OK && !job.score)
        status = s24_ctx_fail(ctx, S24_ERROR_UNSUPPORTED,
                              "the criterion \"%s\" chooses weights together and scores none",
                              known.criterion->name);
    if (status == S24_OK) status = s24i_prune_scores(ctx, &job, scores);
    s24_ctx_free(ctx, job.w);
    return status;
}

s24_status s24_prune_measure(s24_prune_report *report, s24_ctx *ctx, const s24_dense *before,
                             const s24_dense *after, const s24_stats *stats)
{
    const s24_dense *both[] = {before, after};
    REQUIRE(ctx, ctx && report && before && after, S24_ERROR_ARGUMENT,
            "s24_prune_measure: report, ctx, before and after are required");
    for (int i = 0; i < 2; i++) {
        REQUIRE(ctx, both[i]->data && both[i]->dtype == S24_F32, S24_ERROR_DTYPE,
                "a weight to measure is %s; expected f32", s24_dtype_name(both[i]->dtype));
        REQUIRE(ctx,
                both[i]->rows > 0 && both[i]->rows == before->rows && both[i]->cols > 0 &&
                    both[i]->cols == before->cols,
                S24_ERROR_SHAPE, "the weights to measure are [%lld, %lld] and [%lld, %lld]",
                (long long)before->rows, (long long)before->cols, (long long)after->rows,
                (long long)after->cols);
    }
    if (stats) TRY(s24i_stats_check(ctx, stats, before));
    const int64_t n = before->rows, k = before->cols;
    size_t bytes;
    float *copies = NULL;
    if (!s24i_mul_overflow((size_t)n, (size_t)k, &bytes) &&
        !s24i_mul_overflow(bytes, 2 * sizeof *copies, &bytes))
        copies = s24_ctx_alloc(ctx, bytes);
    REQUIRE(ctx, copies, S24_ERROR_MEMORY, "out of memory to measure a weight of [%lld, %lld]",
            (long long)n, (long long)k);
    const s24i_prune_job job = {.n = n, .k = k, .w = copies + n * k, .stats = stats};
    s24_status status = s24i_prune_copy(ctx, copies, before);
    if (status == S24_OK) status = s24i_prune_copy(ctx, job.w, after);
    if (status == S24_OK) status = s24i_prune_measure(report, ctx, copies, &job);
    s24_ctx_free(ctx, copies);
    return status;
}
