// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the advisor's grid with bench's turns: ours and the dense engine of this build, which is
 * what a dense layer of a model runs on. X and Y are f32 on both sides.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan/plan.h"

/* ---- the dense engine as a peer of bench ----------------------------------------------------- */

typedef struct dense_product {
    s24_ctx *ctx;
    s24_dense_linear *linear;
    s24_dense x;
    int64_t n;
} dense_product;

static void dense_release(void *opaque)
{
    dense_product *p = opaque;
    s24_dense_linear_destroy(p->linear);
    free(p);
}

static void *dense_prepare(void *library, const bench_problem *problem)
{
    (void)library;
    dense_product *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->ctx = problem->ctx;
    p->n = problem->shape.n;
    p->x =
        (s24_dense){(void *)(uintptr_t)problem->x, S24_F32, problem->shape.m, problem->shape.k, 0};
    const s24_dense w = {(void *)(uintptr_t)problem->w, S24_F32, p->n, problem->shape.k, 0};
    if (s24_dense_linear_create_as(&p->linear, p->ctx, &w, problem->dtype, NULL, 0) == S24_OK)
        return p;
    dense_release(p);
    return NULL;
}

static int dense_run(void *opaque, void *y)
{
    dense_product *p = opaque;
    s24_dense to = {y, S24_F32, p->x.rows, p->n, 0};
    return s24_dense_linear_run(p->linear, p->ctx, &to, &p->x, NULL) != S24_OK;
}

const bench_peer plan_dense_engine = {
    .name = "the dense engine",
    .prepare = dense_prepare,
    .run = dense_run,
    .release = dense_release,
};

/* ---- the grid -------------------------------------------------------------------------------- */

static const int64_t grid_sizes[] = {PLAN_LEAST_SIZE, 512, 2048, 8192};
static const int64_t grid_steps[] = {1, 4, 8, 16, 32, 64, 256, 1024};
/* Lists the checks, none on the grid, and more than half of them uneven; those beyond its largest
   size are left out. */
static const bench_shape checks[] = {
    {24, 96, 120},    {3, 120, 96},     {100, 384, 384}, {12, 768, 2304},
    {384, 384, 1536}, {48, 3072, 768},  {6, 1536, 1536}, {200, 1024, 700},
    {1, 3072, 3072},  {20, 5120, 1280}, {64, 200, 200},  {256, 360, 1000},
    {16, 1000, 360},  {40, 2000, 300},  {8, 500, 4000},  {128, 120, 600},
};
enum {
    SIZES = (int)(sizeof grid_sizes / sizeof *grid_sizes),
    STEPS = (int)(sizeof grid_steps / sizeof *grid_steps),
    CHECKS = (int)(sizeof checks / sizeof *checks),
    ROUNDS = 3
};
_Static_assert(SIZES <= (int)PLAN_SIZES && STEPS <= (int)PLAN_STEPS && CHECKS <= (int)PLAN_CHECKS &&
                   SIZES * SIZES * STEPS + CHECKS <= (int)BENCH_MAX_SHAPES,
               "the grid fits the model");
/* Ends a column: beyond a run of this length time grows with M, and need not be measured. */
static const double long_seconds = 0.02, min_seconds = 1e-3;

static double flops_of(bench_shape s)
{
    return 2.0 * (double)s.m * (double)s.k * (double)s.n;
}

/* Estimates the operations of a long run of the slowest side, from one shape that is not. */
static int most_flops(cli_app *cli, double *flops, bench_plan *plan)
{
    bench_table table = {0};
    plan->shapes[0] = (bench_shape){32, 256, 256};
    plan->shape_count = 1;
    int code = bench_products(cli, &table, plan);
    *flops = INFINITY;
    for (int i = 0; i < table.count && code == CLI_OK; i++) {
        const bench_row *row = &table.rows[i];
        double dense = row->peer_count ? row->peers[0].seconds : 0;
        double rate = row->flops / (dense > row->ours.median ? dense : row->ours.median);
        *flops = fmin(*flops, rate * long_seconds);
    }
    bench_table_free(&table);
    return code;
}

static int grid_fill(bench_plan *plan, int64_t largest, double flops)
{
    int grid = 0;
    for (int k = 0; k < SIZES && grid_sizes[k] <= largest; k++)
        for (int n = 0; n < SIZES && grid_sizes[n] <= largest; n++)
            for (int m = 0; m < STEPS; m++) {
                bench_shape s = {grid_steps[m], grid_sizes[k], grid_sizes[n]};
                if (m && flops_of(s) > flops) break;
                plan->shapes[grid++] = s;
            }
    plan->shape_count = grid;
    for (int i = 0; i < CHECKS; i++)
        if (checks[i].k <= largest && checks[i].n <= largest)
            plan->shapes[plan->shape_count++] = checks[i];
    return grid;
}

/* ---- until times agree ----------------------------------------------------------------------- */

enum { REPEATS = 8 };
/* Bounds how far apart the two least of a way's turns are, or it is measured again. A model is good
   though one shape, or so many of them, never come to that. */
static const double AGREE = 1.5, DISAGREE = 0.05;

/* Holds the two least times of 2:4 and of dense. */
typedef struct sample {
    double least[2], second[2];
} sample;

/* Holds all shapes of the grid and the checks, and which of them the plan holds. */
typedef struct survey {
    bench_shape shapes[BENCH_MAX_SHAPES];
    int count, grid;
    int index[BENCH_MAX_SHAPES]; /* of the plan's shapes */
    sample *samples;             /* [count][threads] */
    int threads;
    uint32_t cpu;
} survey;

static void sample_add(sample *s, int way, double least, double second)
{
    const int first = !(s->least[way] > 0);
    if (first || least < s->least[way]) {
        s->second[way] = first ? second : fmin(second, s->least[way]);
        s->least[way] = least;
    } else {
        s->second[way] = fmin(s->second[way], least);
    }
}

/* Takes the second, which is the median of three turns. */
static void survey_add(survey *v, const bench_table *table)
{
    for (int i = 0; i < table->count; i++) {
        const bench_row *row = &table->rows[i];
        sample *s = &v->samples[v->index[i / v->threads] * v->threads + i % v->threads];
        sample_add(s, 0, row->ours.min, row->ours.median);
        if (row->peer_count) sample_add(s, 1, row->peers[0].least, row->peers[0].seconds);
    }
}

static int agrees(const sample *s)
{
    return s->second[0] <= AGREE * s->least[0] && s->second[1] <= AGREE * s->least[1];
}

/* Makes the shapes that some number of threads disagrees on the plan's. */
static void ask_again(survey *v, bench_plan *plan)
{
    plan->shape_count = 0;
    for (int i = 0; i < v->count; i++) {
        int sure = 1;
        for (int t = 0; t < v->threads; t++)
            sure &= agrees(&v->samples[i * v->threads + t]);
        if (sure) continue;
        v->index[plan->shape_count] = i;
        plan->shapes[plan->shape_count++] = v->shapes[i];
    }
}

static int run_survey(cli_app *cli, survey *v, bench_plan *plan)
{
    int code = CLI_OK;
    v->samples = calloc((size_t)(v->count * v->threads), sizeof *v->samples);
    if (!v->samples) return cli_fail(cli, CLI_IO, "out of memory");
    for (int i = 0; i < v->count; i++)
        v->index[i] = i;
    for (int r = 0; r < REPEATS && plan->shape_count && code == CLI_OK; r++) {
        bench_table table = {0};
        code = bench_products(cli, &table, plan);
        if (code == CLI_OK) survey_add(v, &table);
        bench_table_free(&table);
        ask_again(v, plan);
    }
    return code;
}

/* Fills the samples of one number of threads; those from grid on are checks. Of a shape's turns the
   shortest counts, which other work on the machine disturbs least. */
static int model_fill(plan_model *model, const survey *v, const bench_plan *plan, int thread)
{
    time_t now = time(NULL);
    struct tm utc;
    int ok = 1, disagree = 0;
    plan_model_begin(model, plan->dtypes[0], v->cpu, plan->threads[thread]);
    if (gmtime_r(&now, &utc)) strftime(model->date, sizeof model->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    for (int i = 0; i < v->grid; i++)
        if (model->sizes == 0 || v->shapes[i].k > (int64_t)model->size[model->sizes - 1])
            model->size[model->sizes++] = (double)v->shapes[i].k;
    for (int i = 0; i < v->count && ok; i++) {
        const sample *s = &v->samples[i * v->threads + thread];
        const plan_point point = {v->shapes[i], {s->least[0], s->least[1]}};
        disagree += !agrees(s);
        if (i < v->grid)
            ok = plan_model_add(model, &point);
        else
            model->checks[model->check_count++] = point;
        ok = ok && point.times.dense > 0;
    }
    ok = ok && plan_model_finish(model);
    if (ok) model->flaw = plan_model_flaw(model);
    if (ok && disagree > 1 + DISAGREE * v->count) model->flaw = "its times do not come twice";
    return ok;
}

static int measure(cli_app *cli, bench_plan *plan, plan_model *models, int64_t largest)
{
    double flops;
    int code = most_flops(cli, &flops, plan);
    survey *v = code == CLI_OK ? calloc(1, sizeof *v) : NULL;
    if (code != CLI_OK) return code;
    if (!v) return cli_fail(cli, CLI_IO, "out of memory");
    v->grid = grid_fill(plan, largest, flops);
    v->count = plan->shape_count;
    v->threads = plan->thread_count;
    v->cpu = s24_ctx_cpu(cli->ctx);
    memcpy(v->shapes, plan->shapes, (size_t)v->count * sizeof *v->shapes);
    code = run_survey(cli, v, plan);
    for (int t = 0; t < v->threads && code == CLI_OK; t++) {
        if (!model_fill(&models[t], v, plan, t))
            code = cli_fail(cli, CLI_UNSUPPORTED,
                            "the dense engine of this build (%s) has no %s product to compare with",
                            s24_dense_engine(), s24_dtype_name(plan->dtypes[0]));
    }
    free(v->samples);
    free(v);
    return code;
}

int plan_measure(cli_app *cli, plan_model *models, s24_dtype dtype, const int64_t *threads,
                 int count, int64_t largest)
{
    if (largest < PLAN_LEAST_SIZE)
        return cli_fail(cli, CLI_USAGE, "option --largest: %lld is less than %d",
                        (long long)largest, PLAN_LEAST_SIZE);
    bench_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return cli_fail(cli, CLI_IO, "out of memory");
    plan->dtypes[0] = dtype;
    plan->dtype_count = 1;
    plan->thread_count = count;
    memcpy(plan->threads, threads, (size_t)count * sizeof *threads);
    plan->libraries[0] = (bench_library){.peer = &plan_dense_engine};
    plan->library_count = 1;
    plan->effort = (bench_effort){.rounds = ROUNDS, .min_seconds = min_seconds};
    int code = measure(cli, plan, models, largest);
    free(plan);
    return code;
}
