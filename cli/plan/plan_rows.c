// SPDX-License-Identifier: Apache-2.0
/*
 * Times the rows of kernels that a layer of this dtype could take on this CPU, in turns, and the
 * dense engine with them. The row that is taken goes by instructions and kind of core, as others of
 * its kind were measured; this measures it again. Rows in plain C are left out, which nobody would
 * take.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

typedef struct candidate {
    s24_ctx *ctx;
    s24_plan *plan;
    s24_dense x, y;
    void *work;
    size_t work_bytes;
} candidate;

typedef struct contest {
    s24_ctx *ctx;
    bench_shape shape;
    s24_dtype activations; /* i8 next to integers, else none */
    s24_matrix *matrix;
    s24_dense w, x, y;
    void *dense; /* the engine's product, or NULL */
    candidate all[PLAN_ROWS];
    int count;
} contest;

static s24_status no_memory(contest *c)
{
    return s24_ctx_fail(c->ctx, S24_ERROR_MEMORY, "no memory for the shape %lld,%lld,%lld",
                        (long long)c->shape.m, (long long)c->shape.k, (long long)c->shape.n);
}

/* Makes a matrix of values that are exact in every dtype; which ones decides no time. */
static s24_status make_dense(s24_dense *out, contest *c, int64_t rows, int64_t cols)
{
    float *values = s24_ctx_alloc(c->ctx, (size_t)(rows * cols) * sizeof *values);
    if (!values) return no_memory(c);
    for (int64_t i = 0; i < rows * cols; i++)
        values[i] = (float)(i * 7919 % 127 - 63);
    *out = (s24_dense){values, S24_F32, rows, cols, 0};
    return S24_OK;
}

static s24_status make_operands(contest *c, s24_dtype dtype)
{
    const bench_shape s = c->shape;
    const int integers = dtype == S24_I8;
    const s24_matrix_opts opts = {
        .size = sizeof opts, .select = S24_SELECT_MAGNITUDE, .dtype = integers ? S24_F32 : dtype};
    s24_status status = make_dense(&c->w, c, s.n, s.k);
    if (status == S24_OK) status = s24_matrix_create(&c->matrix, c->ctx, &c->w, &opts);
    if (status == S24_OK && integers) {
        s24_matrix *floats = c->matrix;
        status = s24_matrix_quantize(&c->matrix, c->ctx, floats, "int8");
        s24_matrix_destroy(floats);
    }
    if (status == S24_OK) status = make_dense(&c->x, c, s.m, s.k);
    return status == S24_OK ? make_dense(&c->y, c, s.m, s.n) : status;
}

/* Adds a row of this name, or of the plan's choice for NULL, unless it is there. */
static s24_status add(contest *c, const char *name)
{
    const s24_plan_opts opts = {.size = sizeof opts, .kernel = name, .activations = c->activations};
    candidate *one = &c->all[c->count];
    if (name && !strcmp(name, s24_plan_kernel(c->all[0].plan, c->shape.m))) return S24_OK;
    *one = (candidate){.ctx = c->ctx, .x = c->x, .y = c->y};
    s24_status status = s24_plan_create(&one->plan, c->ctx, c->matrix, &opts);
    if (status != S24_OK) return status;
    c->count++;
    one->work_bytes = s24_plan_work_bytes(one->plan, c->ctx, c->shape.m);
    one->work = s24_ctx_alloc(c->ctx, one->work_bytes);
    return one->work || !one->work_bytes ? S24_OK : no_memory(c);
}

static s24_status add_all(contest *c, s24_dtype dtype)
{
    uint32_t needs;
    s24_dtype holds, quantised;
    s24_status status = add(c, NULL);
    for (int i = 0; status == S24_OK && c->count < PLAN_ROWS; i++) {
        const char *name = s24_kernel_name(i, &needs, &holds);
        if (!name) break;
        const int is_integer = s24_kernel_bits(i, &quantised) != 0;
        const int same =
            holds == dtype && quantised == c->activations && is_integer == (dtype == S24_I8);
        const int fits = !(needs & ~s24_ctx_cpu(c->ctx)) && needs & ~(uint32_t)S24_CPU_BASELINE;
        if (fits && same) status = add(c, name);
    }
    return status;
}

static int run_candidate(void *state)
{
    candidate *one = state;
    const s24_linear_args args = {
        .y = &one->y, .x = &one->x, .work = one->work, .work_bytes = one->work_bytes};
    return s24_plan_run(one->ctx, one->plan, &args) != S24_OK;
}

/* The dense weight is none of zeros, which decides no time either. */
static void add_dense(contest *c, s24_dtype dtype)
{
    const bench_problem problem = {.ctx = c->ctx,
                                   .shape = c->shape,
                                   .dtype = dtype,
                                   .activations = S24_F32,
                                   .threads = s24_ctx_threads(c->ctx),
                                   .x = c->x.data,
                                   .w = c->w.data};
    c->dense = plan_dense_engine.prepare(NULL, &problem);
}

static int run_dense(void *state)
{
    contest *c = state;
    return plan_dense_engine.run(c->dense, c->y.data);
}

static int compete(cli_app *cli, contest *c, plan_contest *found)
{
    const bench_effort effort = {.rounds = 7, .min_seconds = 2e-3};
    bench_turn turns[PLAN_ROWS + 1];
    for (int i = 0; i < c->count; i++) {
        turns[i] = (bench_turn){.run = run_candidate, .state = &c->all[i]};
        if (run_candidate(&c->all[i]))
            return cli_fail(cli, CLI_IO, "our product: %s", s24_ctx_error(c->ctx));
    }
    turns[c->count] = (bench_turn){.run = run_dense, .state = c};
    const int code = bench_interleave(cli, turns, c->count + (c->dense != NULL), &effort);
    found->count = code == CLI_OK ? c->count : 0;
    for (int i = 0; i < found->count; i++)
        found->rows[i] =
            (plan_row){s24_plan_kernel(c->all[i].plan, c->shape.m), turns[i].times.median};
    if (c->dense && code == CLI_OK) found->dense = turns[c->count].times.median;
    return code;
}

int plan_rows(cli_app *cli, plan_contest *found, bench_shape shape, s24_dtype dtype)
{
    contest c = {
        .ctx = cli->ctx, .shape = shape, .activations = dtype == S24_I8 ? S24_I8 : S24_DTYPE_NONE};
    s24_status status = make_operands(&c, dtype);
    if (status == S24_OK) status = add_all(&c, dtype);
    if (status == S24_OK) add_dense(&c, dtype);
    const int code = status == S24_OK ? compete(cli, &c, found) : cli_status(cli, status);
    if (c.dense) plan_dense_engine.release(c.dense);
    for (int i = 0; i < c.count; i++) {
        s24_plan_destroy(c.all[i].plan);
        s24_ctx_free(cli->ctx, c.all[i].work);
    }
    s24_matrix_destroy(c.matrix);
    s24_ctx_free(cli->ctx, c.w.data);
    s24_ctx_free(cli->ctx, c.x.data);
    s24_ctx_free(cli->ctx, c.y.data);
    return code;
}
