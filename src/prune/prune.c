// SPDX-License-Identifier: Apache-2.0
/*
 * The public face of pruning: the table of criteria, the checks that all of them rely on, and the
 * copy that makes a failing prune change nothing.
 */
#include <math.h>
#include <string.h>

#include "prune/prune.h"

static const s24i_criterion criteria[] = {
#define CRITERION(name, needs_stats, select, run) {name, needs_stats, select, run},
#include "prune/criteria.def"
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
    return found ? found->needs_stats : -1;
}

typedef struct score_job {
    float *w;
    int64_t k;
    const double *scale; /* [k] or NULL */
} score_job;

static void prune_scored_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const score_job *job = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < job->k; c += 4) {
            float *group = job->w + r * job->k + c;
            double score[4];
            for (int i = 0; i < 4; i++)
                score[i] = fabs((double)group[i]) * (job->scale ? job->scale[c + i] : 1.0);
            unsigned keep = s24i_keep_two(score);
            for (int i = 0; i < 4; i++)
                if (!(keep >> i & 1u)) group[i] = 0.0f;
        }
}

void s24i_prune_by_score(s24_ctx *ctx, float *w, int64_t rows, int64_t k, const double *scale)
{
    score_job job = {w, k, scale};
    s24_ctx_parallel_for(ctx, rows, prune_scored_rows, &job);
}

static s24_status check_weight(s24_ctx *ctx, const s24_dense *w)
{
    REQUIRE(ctx, w->dtype == S24_F32, S24_ERROR_DTYPE, "the weight is %s; expected f32",
            s24_dtype_name(w->dtype));
    REQUIRE(ctx, w->rows >= 1 && w->cols >= 4 && w->cols % 4 == 0, S24_ERROR_SHAPE,
            "the weight is [%lld, %lld]; expected columns in groups of 4 and at least one row",
            (long long)w->rows, (long long)w->cols);
    REQUIRE(ctx, w->ld == 0 || w->ld >= w->cols, S24_ERROR_SHAPE,
            "the weight's ld is %lld; expected at least its %lld columns", (long long)w->ld,
            (long long)w->cols);
    REQUIRE(ctx, w->data, S24_ERROR_ARGUMENT, "s24_prune: w.data is NULL");
    return S24_OK;
}

static s24_status check_options(s24_ctx *ctx, s24_prune_opts *known, unsigned *refinements,
                                const s24_prune_opts *opts)
{
    TRY(s24i_opts_read(ctx, known, sizeof *known, opts, "s24_prune_opts"));
    if (!known->criterion) known->criterion = "magnitude";
    if (known->dampening == 0.0) known->dampening = 0.01;
    if (known->block == 0) known->block = 128;
    REQUIRE(ctx, find_criterion(known->criterion), S24_ERROR_ARGUMENT,
            "no criterion is named \"%s\"; expected one of s24_criterion_name()", known->criterion);
    REQUIRE(ctx, known->dampening > 0.0 && isfinite(known->dampening), S24_ERROR_ARGUMENT,
            "the dampening is %g; expected a positive number", known->dampening);
    REQUIRE(ctx, known->block > 0 && known->block % 4 == 0, S24_ERROR_ARGUMENT,
            "the block is %d columns; expected a multiple of 4", known->block);
    return s24i_refinements_read(ctx, refinements, known->refine);
}

static s24_status check_stats(s24_ctx *ctx, const s24_stats *stats, const s24_dense *w,
                              const s24i_criterion *criterion, unsigned refinements)
{
    REQUIRE(ctx, stats || !criterion->needs_stats, S24_ERROR_ARGUMENT,
            "the criterion \"%s\" needs statistics of the layer's inputs", criterion->name);
    REQUIRE(ctx, stats || !refinements, S24_ERROR_ARGUMENT,
            "to refine a weight needs statistics of the layer's inputs");
    if (!stats) return S24_OK;
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

/* The weight as contiguous rows, every element finite. */
static s24_status copy_weight(s24_ctx *ctx, float *copy, const s24_dense *w)
{
    int64_t ld = w->ld ? w->ld : w->cols;
    for (int64_t r = 0; r < w->rows; r++) {
        const float *row = (const float *)w->data + r * ld;
        for (int64_t c = 0; c < w->cols; c++)
            REQUIRE(ctx, isfinite(row[c]), S24_ERROR_NOT_FINITE,
                    "the weight has %s at row %lld, column %lld; expected finite numbers",
                    isnan(row[c]) ? "NaN" : "Inf", (long long)r, (long long)c);
        memcpy(copy + r * w->cols, row, (size_t)w->cols * sizeof *copy);
    }
    return S24_OK;
}

static s24_status prune_copies(s24_prune_report *report, s24_ctx *ctx, const s24_dense *w,
                               const s24i_criterion *criterion, const s24i_prune_job *job)
{
    size_t elements = (size_t)(job->n * job->k);
    const float *before = job->w + elements;
    TRY(copy_weight(ctx, job->w, w));
    memcpy(job->w + elements, job->w, elements * sizeof *job->w);
    TRY(job->device ? s24i_prune_on_device(ctx, job) : criterion->run(ctx, job));
    if (job->refinements) TRY(s24i_prune_refine(ctx, job, before));
    s24_prune_report measured;
    if (report) TRY(s24i_prune_measure(&measured, ctx, before, job));
    if (report) *report = measured;
    int64_t ld = w->ld ? w->ld : w->cols;
    for (int64_t r = 0; r < w->rows; r++)
        memcpy((float *)w->data + r * ld, job->w + r * job->k, (size_t)job->k * sizeof *job->w);
    return S24_OK;
}

s24_status s24_prune(s24_prune_report *report, s24_ctx *ctx, const s24_dense *w,
                     const s24_stats *stats, const s24_prune_opts *opts)
{
    s24_prune_opts known;
    size_t bytes;
    REQUIRE(ctx, ctx && w, S24_ERROR_ARGUMENT, "s24_prune: ctx and w are required");
    unsigned refinements;
    TRY(check_options(ctx, &known, &refinements, opts));
    TRY(check_weight(ctx, w));
    const s24i_criterion *criterion = find_criterion(known.criterion);
    TRY(check_stats(ctx, stats, w, criterion, refinements));
    REQUIRE(ctx, !known.device || criterion->select != S24_SELECT_STRICT, S24_ERROR_UNSUPPORTED,
            "the criterion \"%s\" runs on the CPU only", criterion->name);
    void *copies = NULL;
    if (!s24i_mul_overflow((size_t)w->rows, (size_t)w->cols, &bytes) &&
        !s24i_mul_overflow(bytes, 2 * sizeof(float), &bytes))
        copies = s24_ctx_alloc(ctx, bytes);
    REQUIRE(ctx, copies, S24_ERROR_MEMORY, "out of memory to prune a weight of [%lld, %lld]",
            (long long)w->rows, (long long)w->cols);
    const s24i_prune_job job = {.n = w->rows,
                                .k = w->cols,
                                .w = copies,
                                .stats = stats,
                                .dampening = known.dampening,
                                .block = known.block,
                                .select = criterion->select,
                                .refinements = refinements,
                                .device = known.device};
    s24_status status = prune_copies(report, ctx, w, criterion, &job);
    s24_ctx_free(ctx, copies);
    return status;
}
