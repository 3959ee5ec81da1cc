// SPDX-License-Identifier: Apache-2.0
/*
 * Times one layer, 2:4 by the row that is taken and the dense engine in turns, at the number of
 * tokens that is asked for and at others around it: what the advisor says of it then is as right as
 * the turns are, for every K and N. 2:4 integers meet the dense product that a model has in their
 * place, of integers where the engine has one, else of bf16.
 */
#include <math.h>
#include <time.h>

#include "bench/bench_weight.h"
#include "plan/plan.h"

enum { ROUNDS = 7 };
/* Bounds a run, of the number of tokens that is asked for and of others: beyond that time grows
   with them, and need not be measured. */
static const double asked_seconds = 0.25, long_seconds = 0.04, min_seconds = 1e-3;
static const int64_t steps[] = {1, 2, 4, 8, 16, 17, 32, 48, 64, 96, 128, 256, 512, 1024};
enum { STEPS = (int)(sizeof steps / sizeof *steps) };
_Static_assert(STEPS < (int)PLAN_STEPS, "the steps and the number asked for fit a column");

/* Of X and Y together, 256 MB. More tokens than that are not timed either. */
static const int64_t most_numbers = INT64_C(1) << 26;

typedef struct layer {
    s24_ctx *ctx;
    bench_weight weight;
    s24_plan *plan;
    s24_dense_linear *linear;
    s24_dense x, y;
    void *work;
    size_t work_bytes;
} layer;

static s24_status no_memory(layer *l, bench_shape s)
{
    return s24_ctx_fail(l->ctx, S24_ERROR_MEMORY, "no memory for the shape %lld,%lld,%lld",
                        (long long)s.m, (long long)s.k, (long long)s.n);
}

/* Makes the operands of s.m tokens, the most. */
static s24_status make(layer *l, bench_shape s, s24_dtype dtype)
{
    const bench_weight_kind kind = {.n = s.n, .k = s.k, .dtype = dtype};
    s24_status status = bench_weight_make(&l->weight, l->ctx, &kind);
    const s24_dense w = {l->weight.dense, S24_F32, s.n, s.k, 0};
    if (status == S24_OK) status = bench_weight_plan(&l->plan, l->ctx, &l->weight);
    if (status == S24_OK)
        status = s24_dense_linear_create_as(&l->linear, l->ctx, &w, dtype, NULL, 0);
    if (status != S24_OK) return status;
    l->work_bytes = s24_plan_work_bytes(l->plan, l->ctx, s.m);
    l->work = s24_ctx_alloc(l->ctx, l->work_bytes ? l->work_bytes : 1);
    l->x = (s24_dense){.dtype = S24_F32, .rows = s.m, .cols = s.k};
    l->y = (s24_dense){.dtype = S24_F32, .rows = s.m, .cols = s.n};
    l->x.data = s24_ctx_alloc(l->ctx, (size_t)(s.m * s.k) * sizeof(float));
    l->y.data = s24_ctx_alloc(l->ctx, (size_t)(s.m * s.n) * sizeof(float));
    if (!l->work || !l->x.data || !l->y.data) return no_memory(l, s);
    bench_fill(l->x.data, s.m * s.k, 1);
    return S24_OK;
}

static void release(layer *l)
{
    s24_ctx_free(l->ctx, l->x.data);
    s24_ctx_free(l->ctx, l->y.data);
    s24_ctx_free(l->ctx, l->work);
    s24_dense_linear_destroy(l->linear);
    s24_plan_destroy(l->plan);
    bench_weight_free(&l->weight, l->ctx);
}

static int run_sparse(void *state)
{
    layer *l = state;
    const s24_linear_args args = {
        .y = &l->y, .x = &l->x, .work = l->work, .work_bytes = l->work_bytes};
    return s24_plan_run(l->ctx, l->plan, &args) != S24_OK;
}

static int run_dense(void *state)
{
    layer *l = state;
    return s24_dense_linear_run(l->linear, l->ctx, &l->y, &l->x, NULL) != S24_OK;
}

/* Adds m tokens' least times; *spread: how far the medians are above them. */
static int add_point(cli_app *cli, layer *l, plan_column *column, int64_t m, double *spread)
{
    const bench_effort effort = {.rounds = ROUNDS, .min_seconds = min_seconds};
    bench_turn turns[2] = {{.run = run_sparse, .state = l}, {.run = run_dense, .state = l}};
    l->x.rows = l->y.rows = m;
    for (int i = 0; i < 2; i++) /* the first run is dearer, and may refuse */
        if (turns[i].run(l))
            return cli_fail(cli, CLI_IO, "%s product of the layer: %s", i ? "dense" : "2:4",
                            s24_ctx_error(l->ctx));
    const int code = bench_interleave(cli, turns, 2, &effort);
    if (code != CLI_OK) return code;
    *spread = fmax(turns[0].times.median / turns[0].times.min,
                   turns[1].times.median / turns[1].times.min) -
              1;
    column->m[column->count] = (double)m;
    column->times[column->count++] = (plan_times){turns[0].times.min, turns[1].times.min};
    return CLI_OK;
}

/* Asks whether a run of m tokens, more than those before, is going to take longer than that. */
static int is_longer(const plan_column *column, int64_t m, double seconds)
{
    if (!column->count) return 0;
    const plan_times last = column->times[column->count - 1];
    return fmax(last.sparse, last.dense) * (double)m / column->m[column->count - 1] > seconds;
}

static int fill(cli_app *cli, layer *l, plan_model *model, int64_t asked)
{
    plan_column *column = &model->layer;
    const int64_t most = l->x.rows;
    double spreads[PLAN_STEPS] = {0};
    int code = CLI_OK, done = 0;
    for (int i = 0; i <= STEPS && code == CLI_OK;) {
        const int now = !done && (i == STEPS || asked <= steps[i]);
        const int64_t m = now ? asked : i < STEPS ? steps[i] : 0;
        done |= now;
        i += !now || (i < STEPS && asked == steps[i]);
        if (!m || m > most || is_longer(column, m, now ? asked_seconds : long_seconds)) continue;
        code = add_point(cli, l, column, m, &spreads[column->count]);
    }
    model->error_median = plan_median(spreads, column->count);
    model->error_worst = spreads[column->count ? column->count - 1 : 0];
    return code;
}

int plan_layer(cli_app *cli, plan_model *model, bench_shape shape, s24_dtype dtype)
{
    layer l = {.ctx = cli->ctx};
    const time_t now = time(NULL);
    struct tm utc;
    const int64_t asked = shape.m < PLAN_MOST_TOKENS ? shape.m : PLAN_MOST_TOKENS;
    const int64_t wanted = steps[STEPS - 1] > asked ? steps[STEPS - 1] : asked;
    const int64_t fit = most_numbers / (shape.k + shape.n);
    const int64_t most = fit < 1 ? 1 : fit < wanted ? fit : wanted;
    plan_model_begin(model, dtype, s24_ctx_cpu(cli->ctx), s24_ctx_threads(cli->ctx));
    model->timed = 1;
    if (gmtime_r(&now, &utc)) strftime(model->date, sizeof model->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    const s24_status status = make(&l, (bench_shape){most, shape.k, shape.n}, dtype);
    const int code = status == S24_OK ? fill(cli, &l, model, asked) : cli_status(cli, status);
    model->dense = s24_dense_linear_dtype(l.linear);
    release(&l);
    return code;
}
