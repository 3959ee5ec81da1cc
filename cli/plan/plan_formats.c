// SPDX-License-Identifier: Apache-2.0
/*
 * From which share of zeros on do rows and blocks that are not 2:4 beat dense and 2:4, and does 6:8
 * at its own share? Times them for one shape, each in turns with the dense engine and the 2:4
 * product; least times, since other work that runs as well delays one or the other.
 */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static const int shares[PLAN_SHARES] = {50, 60, 70, 80, 90, 95};
static const int lifted_share[] = {25};
/* 0: 6:8; 1x1: in rows. */
static const struct block {
    int rows, cols;
} blocks[PLAN_FORMATS] = {{0, 0}, {1, 1}, {4, 1}, {16, 16}, {32, 32}, {64, 64}, {128, 128}};
enum { LIFT = 8 };

int plan_share(int index)
{
    return shares[index];
}

/* One product that is timed: one of the two is set. */
typedef struct runner {
    s24_ctx *ctx;
    s24_plan *plan;
    s24_dense_linear *dense;
    const s24_dense *x, *y;
    void *work;
    size_t work_bytes;
} runner;

typedef struct measuring {
    cli_app *cli;
    s24_ctx *ctx;
    bench_shape shape;
    s24_dtype dtype;
    float *numbers; /* as many as the largest operand has, all 1 */
    void *narrow;   /* [n, k] of them in the weights' dtype */
    s24_dense x, y;
    runner dense, two_four;
} measuring;

static s24_status make_room(runner *r, const measuring *m)
{
    r->ctx = m->ctx;
    r->x = &m->x;
    r->y = &m->y;
    if (!r->plan) return S24_OK;
    r->work_bytes = s24_plan_work_bytes(r->plan, m->ctx, m->shape.m);
    r->work = s24_ctx_alloc(m->ctx, r->work_bytes);
    if (r->work || !r->work_bytes) return S24_OK;
    return s24_ctx_fail(m->ctx, S24_ERROR_MEMORY, "no memory for %zu bytes", r->work_bytes);
}

static void free_runner(runner *r)
{
    s24_plan_destroy(r->plan);
    s24_dense_linear_destroy(r->dense);
    if (r->ctx) s24_ctx_free(r->ctx, r->work);
    *r = (runner){0};
}

static int run(void *state)
{
    const runner *r = state;
    if (r->dense) return s24_dense_linear_run(r->dense, r->ctx, r->y, r->x, NULL) != S24_OK;
    const s24_linear_args args = {
        .y = r->y, .x = r->x, .work = r->work, .work_bytes = r->work_bytes};
    return s24_plan_run(r->ctx, r->plan, &args) != S24_OK;
}

/* ---- operands -------------------------------------------------------------------------------- */

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static s24_status make_operands(measuring *m)
{
    const bench_shape s = m->shape;
    const int64_t count = most(most(s.n * s.k, s.m * s.k), s.m * s.n);
    m->numbers = s24_ctx_alloc(m->ctx, (size_t)count * sizeof *m->numbers);
    m->narrow = s24_ctx_alloc(m->ctx, (size_t)(s.n * s.k) * s24_dtype_bytes(m->dtype));
    float *y = s24_ctx_alloc(m->ctx, (size_t)(s.m * s.n) * sizeof *y);
    m->y = (s24_dense){y, S24_F32, s.m, s.n, 0};
    if (!m->numbers || !m->narrow || !y)
        return s24_ctx_fail(m->ctx, S24_ERROR_MEMORY, "no memory for the shape %lld,%lld,%lld",
                            (long long)s.m, (long long)s.k, (long long)s.n);
    for (int64_t i = 0; i < count; i++)
        m->numbers[i] = 1;
    m->x = (s24_dense){m->numbers, S24_F32, s.m, s.k, 0};
    return S24_OK;
}

/* As a model has them: in integers throughout where the dtype is i8. */
static s24_status plan_two_four(measuring *m, const s24_dense *w)
{
    const int integers = m->dtype == S24_I8;
    const s24_matrix_opts opts = {.size = sizeof opts,
                                  .select = S24_SELECT_MAGNITUDE,
                                  .dtype = integers ? S24_F32 : m->dtype};
    const s24_plan_opts how = {.size = sizeof how,
                               .activations = integers ? S24_I8 : S24_DTYPE_NONE};
    s24_matrix *matrix = NULL, *floats;
    s24_status status = s24_matrix_create(&matrix, m->ctx, w, &opts);
    if (status == S24_OK && integers) {
        floats = matrix;
        status = s24_matrix_quantize(&matrix, m->ctx, floats, "int8");
        s24_matrix_destroy(floats);
    }
    if (status == S24_OK) status = s24_plan_create(&m->two_four.plan, m->ctx, matrix, &how);
    s24_matrix_destroy(matrix);
    return status;
}

static s24_status make_rivals(measuring *m)
{
    const s24_dense w = {m->numbers, S24_F32, m->shape.n, m->shape.k, 0};
    s24_status status = s24_convert(m->narrow, m->dtype, w.data, S24_F32, w.rows * w.cols);
    if (status == S24_OK)
        status = s24_dense_linear_create_as(&m->dense.dense, m->ctx, &w, m->dtype, NULL, 0);
    if (status == S24_OK) status = plan_two_four(m, &w);
    if (status == S24_OK) status = make_room(&m->dense, m);
    return status == S24_OK ? make_room(&m->two_four, m) : status;
}

/* Makes a weight of which each line of blocks (or row) has the same share, in other places. */
static s24_status make_weight(s24_sparse **out, const measuring *m, struct block block, int share)
{
    const int64_t lines = m->shape.n / block.rows, across = m->shape.k / block.cols;
    const int64_t kept = most(1, (across * (100 - share) + 50) / 100);
    int64_t *starts = s24_ctx_alloc(m->ctx, (size_t)(lines + 1) * sizeof *starts);
    int32_t *index = s24_ctx_alloc(m->ctx, (size_t)(lines * kept) * sizeof *index);
    s24_status status = starts && index ? S24_OK : S24_ERROR_MEMORY;
    for (int64_t l = 0; l <= lines && status == S24_OK; l++) {
        /* One of each piece of a line, another one in the next line: real ones share few. */
        const int64_t shift = (int64_t)((uint64_t)l * 0x9e3779b97f4a7c15u >> 33) % across;
        starts[l] = l * kept;
        for (int64_t i = 0; i < kept && l < lines; i++)
            index[l * kept + i] = (int32_t)((i * across + shift) / kept);
    }
    const s24_sparse_parts parts = {.format = block.rows > 1 ? S24_FORMAT_BSR : S24_FORMAT_CSR,
                                    .dtype = m->dtype,
                                    .rows = m->shape.n,
                                    .cols = m->shape.k,
                                    .block_rows = block.rows,
                                    .block_cols = block.cols,
                                    .stored = lines * kept,
                                    .starts = starts,
                                    .index = index,
                                    .values = m->narrow};
    if (status == S24_OK) status = s24_sparse_from_parts(out, m->ctx, &parts);
    s24_ctx_free(m->ctx, starts);
    s24_ctx_free(m->ctx, index);
    return status;
}

/* Makes a plan of a 6:8 weight, the two zeros of each group in other places than the last one's. */
static s24_status plan_lifted(s24_plan **out, measuring *m)
{
    const s24_plan_opts opts = {.size = sizeof opts, .lift = LIFT};
    const s24_dense w = {m->narrow, m->dtype, m->shape.n, m->shape.k, 0};
    const size_t size = s24_dtype_bytes(m->dtype);
    const int64_t groups = w.rows * w.cols / LIFT;
    char ones[8];
    s24_matrix *matrix;
    memcpy(ones, m->narrow, size);
    for (int64_t g = 0; g < groups; g++)
        for (int64_t i = 0; i < 2; i++)
            memset((char *)m->narrow + (size_t)(g * LIFT + (g + 3 * i) % LIFT) * size, 0, size);
    s24_status status = s24_matrix_lift(&matrix, m->ctx, &w, LIFT);
    for (int64_t i = 0; i < w.rows * w.cols; i++)
        memcpy((char *)m->narrow + (size_t)i * size, ones, size);
    if (status == S24_OK) status = s24_plan_create(out, m->ctx, matrix, &opts);
    s24_matrix_destroy(matrix);
    return status;
}

/* ---- times ----------------------------------------------------------------------------------- */

/* Times the format at every share, next to both rivals. */
static int time_runners(measuring *m, plan_format *f, runner *runners)
{
    enum { RIVALS = 2 };
    const bench_effort effort = {.rounds = 7, .min_seconds = 2e-3};
    bench_turn turns[RIVALS + PLAN_SHARES];
    for (int i = 0; i < RIVALS + f->count; i++) {
        runner *r = !i ? &m->dense : i == 1 ? &m->two_four : &runners[i - RIVALS];
        turns[i] = (bench_turn){.run = run, .state = r};
        if (run(r)) return cli_fail(m->cli, CLI_IO, "our product: %s", s24_ctx_error(m->ctx));
    }
    const int code = bench_interleave(m->cli, turns, RIVALS + f->count, &effort);
    if (code != CLI_OK) return code;
    f->dense = turns[0].times.min;
    f->two_four = turns[1].times.min;
    for (int i = 0; i < f->count; i++)
        f->seconds[i] = turns[RIVALS + i].times.min;
    return CLI_OK;
}

static s24_status plan_sparse(s24_plan **out, measuring *m, struct block block, int share)
{
    s24_sparse *w = NULL;
    s24_status status = make_weight(&w, m, block, share);
    if (status == S24_OK)
        status = m->dtype == S24_I8 ? s24_sparse_plan_integers(out, m->ctx, w, NULL, NULL)
                                    : s24_sparse_plan(out, m->ctx, w, NULL);
    s24_sparse_destroy(w);
    return status;
}

static int time_format(measuring *m, plan_format *f, struct block block)
{
    runner runners[PLAN_SHARES] = {{0}};
    s24_status status = S24_OK;
    *f = (plan_format){.count = block.rows ? PLAN_SHARES : 1,
                       .shares = block.rows ? shares : lifted_share};
    if (block.rows > 1)
        snprintf(f->name, sizeof f->name, "bsr:%dx%d", block.rows, block.cols);
    else
        snprintf(f->name, sizeof f->name, "%s", block.rows ? "csr" : "6:8");
    for (int i = 0; i < f->count && status == S24_OK; i++) {
        s24_plan **plan = &runners[i].plan;
        status = block.rows ? plan_sparse(plan, m, block, shares[i]) : plan_lifted(plan, m);
        if (status == S24_OK) status = make_room(&runners[i], m);
    }
    const int code = status == S24_OK ? time_runners(m, f, runners) : cli_status(m->cli, status);
    for (int i = 0; i < f->count; i++)
        free_runner(&runners[i]);
    return code;
}

/* Of integers in any format the products are those of 4x1. */
static int is_timed(const measuring *m, struct block block)
{
    if (m->dtype == S24_I8 && (block.rows != 4 || block.cols != 1)) return 0;
    if (!block.rows) return m->shape.k % LIFT == 0;
    return m->shape.n % block.rows == 0 && m->shape.k % block.cols == 0;
}

int plan_formats(cli_app *cli, plan_format formats[PLAN_FORMATS], int *count, bench_shape shape,
                 s24_dtype dtype)
{
    measuring m = {.cli = cli, .ctx = cli->ctx, .shape = shape, .dtype = dtype};
    s24_status status = make_operands(&m);
    if (status == S24_OK) status = make_rivals(&m);
    int code = cli_status(cli, status);
    *count = 0;
    for (int i = 0; i < PLAN_FORMATS && code == CLI_OK; i++) {
        if (!is_timed(&m, blocks[i])) continue;
        code = time_format(&m, &formats[(*count)++], blocks[i]);
    }
    free_runner(&m.dense);
    free_runner(&m.two_four);
    s24_ctx_free(cli->ctx, m.numbers);
    s24_ctx_free(cli->ctx, m.narrow);
    s24_ctx_free(cli->ctx, m.y.data);
    return code;
}

int plan_format_from(const plan_format *f, double rival)
{
    int from = f->count;
    while (from && f->seconds[from - 1] < rival)
        from--;
    return from == f->count ? 0 : f->shares[from];
}
