// SPDX-License-Identifier: Apache-2.0
/*
 * Measures products: for every shape and dtype one pruned weight and one X, for every number of
 * threads one cell of our plan and the peers. Shapes in a row that differ in M only share their
 * weight. Our time is s24_plan_run's whole: X's packing or quantisation and every transpose are in
 * it. A peer multiplies the same weight with its zeros; in i8 onednn is handed X quantised,
 * onednn-dynamic is not.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench_weight.h"

typedef struct cell {
    cli_app *cli;
    const bench_plan *plan;
    bench_shape shape;
    s24_dtype dtype, activations;
    const char *scheme; /* of integers with x in f32, or NULL */
    float *x;           /* [m, k] */
    void *x_given;      /* x in `activations` */
    void *y, *y_peer;   /* [m, n] in `activations` */
    bench_weight weight;
    double tolerance; /* of |y − y_peer|, and what of it grows with y */
    double relative;
} cell;

/* Keeps only values that bf16 holds, so that rounding X is no difference between two bf16 products.
   For i8 integers, of which each token has the largest, so that quantising them changes none. */
static s24_status round_to(float *values, int64_t count, s24_dtype dtype, int64_t cols,
                           s24_ctx *ctx)
{
    if (dtype == S24_F32) return S24_OK;
    for (int64_t i = 0; i < count && dtype == S24_I8; i++)
        values[i] = i % cols ? rintf(fabsf(values[i]) * 127) : 127;
    if (dtype == S24_I8) return S24_OK;
    uint16_t *narrow = s24_ctx_alloc(ctx, (size_t)count * sizeof *narrow);
    if (!narrow)
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for %lld values", (long long)count);
    s24_status status = s24_convert(narrow, dtype, values, S24_F32, count);
    if (status == S24_OK) status = s24_convert(values, S24_F32, narrow, dtype, count);
    s24_ctx_free(ctx, narrow);
    return status;
}

static double output(const cell *c, const void *y, int64_t i)
{
    float value;
    s24_convert(&value, S24_F32, (const char *)y + (size_t)i * s24_dtype_bytes(c->activations),
                c->activations, 1);
    return (double)value;
}

static int agree(const cell *c, double a, double b)
{
    return fabs(a - b) <= c->tolerance + c->relative * fabs(b);
}

static void cell_free_tokens(cell *c)
{
    s24_ctx *ctx = c->cli->ctx;
    s24_ctx_free(ctx, c->x);
    s24_ctx_free(ctx, c->x_given);
    s24_ctx_free(ctx, c->y);
    s24_ctx_free(ctx, c->y_peer);
    c->x = NULL;
    c->x_given = c->y = c->y_peer = NULL;
}

static s24_status no_memory(const cell *c)
{
    return s24_ctx_fail(c->cli->ctx, S24_ERROR_MEMORY, "no memory for the shape %lld,%lld,%lld",
                        (long long)c->shape.m, (long long)c->shape.k, (long long)c->shape.n);
}

static s24_status cell_fill_tokens(cell *c)
{
    s24_ctx *ctx = c->cli->ctx;
    bench_shape s = c->shape;
    c->x = s24_ctx_alloc(ctx, (size_t)(s.m * s.k) * sizeof *c->x);
    const size_t element = s24_dtype_bytes(c->activations);
    c->x_given = s24_ctx_alloc(ctx, (size_t)(s.m * s.k) * element);
    c->y = s24_ctx_alloc(ctx, (size_t)(s.m * s.n) * element);
    c->y_peer = s24_ctx_alloc(ctx, (size_t)(s.m * s.n) * element);
    if (!c->x || !c->x_given || !c->y || !c->y_peer) return no_memory(c);
    bench_fill(c->x, s.m * s.k, 1);
    /* k roundings, each up to 2^-24 of a partial sum of about sqrt(k), add up like a random walk to
       about k·2^-24; two such sums are compared. A product left out or doubled is far above it. */
    c->tolerance = (c->dtype == S24_I8 && !c->scheme ? 4 * 127 : 4) * (double)s.k * 0x1p-24;
    if (c->scheme) c->tolerance *= 4; /* x is in fixed point, its unit the largest's of a segment */
    /* On tiles a group's scale times an integer is rounded to bf16, each by itself. */
    if (c->scheme && strchr(c->scheme, '-') && s24_ctx_cpu(ctx) & S24_CPU_AMX)
        c->tolerance += 0x1p-9 * sqrt((double)s.k);
    c->relative = c->activations == S24_F32 ? 0 : 0x1p-7; /* y's own rounding, twice */
    s24_status status = S24_OK;
    /* Tokens are what multiplies them: next to integers bf16, to which they may be rounded. */
    status = round_to(c->x, s.m * s.k, c->scheme ? S24_BF16 : c->dtype, s.k, ctx);
    if (status != S24_OK) return status;
    return s24_convert(c->x_given, c->activations, c->x, S24_F32, s.m * s.k);
}

typedef struct ours {
    s24_ctx *ctx;
    s24_plan *plan;
    void *work;
    s24_dense x, y;
    s24_linear_args args;
    int threads;
} ours;

static int run_ours(void *state)
{
    ours *o = state;
    return s24_plan_run(o->ctx, o->plan, &o->args) != S24_OK;
}

static s24_status ours_make(ours *o, cell *c)
{
    s24_ctx *ctx = c->cli->ctx;
    o->ctx = ctx;
    o->x = (s24_dense){
        .data = c->x_given, .dtype = c->activations, .rows = c->shape.m, .cols = c->shape.k};
    o->y =
        (s24_dense){.data = c->y, .dtype = c->activations, .rows = c->shape.m, .cols = c->shape.n};
    s24_status status = bench_weight_plan(&o->plan, ctx, &c->weight);
    if (status != S24_OK) return status;
    size_t bytes = s24_plan_work_bytes(o->plan, ctx, c->shape.m);
    o->work = s24_ctx_alloc(ctx, bytes ? bytes : 1);
    if (!o->work)
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for %zu bytes of work", bytes);
    o->args = (s24_linear_args){.y = &o->y, .x = &o->x, .work = o->work, .work_bytes = bytes};
    return S24_OK;
}

typedef struct theirs {
    const bench_library *library;
    void *product;
    void *y;
} theirs;

static int run_theirs(void *state)
{
    theirs *t = state;
    return t->library->peer->run(t->product, t->y);
}

/* Compares ours with theirs, once; a difference beyond rounding is the end of the run. */
static int compare_outputs(cell *c, const theirs *t)
{
    int64_t count = c->shape.m * c->shape.n;
    /* NaN: what is not written shows. */
    memset(c->y_peer, 0xff, (size_t)count * s24_dtype_bytes(c->activations));
    if (t->library->peer->run(t->product, c->y_peer))
        return cli_fail(c->cli, CLI_IO, "%s failed", t->library->peer->name);
    for (int64_t i = 0; i < count; i++)
        if (!agree(c, output(c, c->y, i), output(c, c->y_peer, i)))
            return cli_fail(c->cli, CLI_NO,
                            "shape %lld,%lld,%lld %s: our output at row %lld, column %lld is %g, "
                            "that of %s %g; no figure is given for a wrong result",
                            (long long)c->shape.m, (long long)c->shape.k, (long long)c->shape.n,
                            bench_dtype_name(c->dtype, c->scheme), (long long)(i / c->shape.n),
                            (long long)(i % c->shape.n), output(c, c->y, i), t->library->peer->name,
                            output(c, c->y_peer, i));
    return CLI_OK;
}

/* Compares a few outputs with sums in double, where no peer is. */
static int compare_sums(cell *c)
{
    bench_shape s = c->shape;
    for (int64_t i = 0; i < 64; i++) {
        int64_t row = i * 7919 % s.m, col = i * 104729 % s.n;
        double sum = 0;
        for (int64_t k = 0; k < s.k; k++)
            sum += (double)c->x[row * s.k + k] * (double)c->weight.dense[col * s.k + k];
        double got = output(c, c->y, row * s.n + col);
        if (!agree(c, got, sum))
            return cli_fail(c->cli, CLI_NO,
                            "shape %lld,%lld,%lld %s: our output at row %lld, column %lld is %g, "
                            "expected %g; no figure is given for a wrong result",
                            (long long)s.m, (long long)s.k, (long long)s.n,
                            bench_dtype_name(c->dtype, c->scheme), (long long)row, (long long)col,
                            got, sum);
    }
    return CLI_OK;
}

static void row_fill(bench_row *row, const cell *c, const ours *o)
{
    bench_shape s = c->shape;
    row->shape = s;
    row->dtype = c->dtype;
    row->scheme = c->scheme;
    row->activations = c->activations;
    row->threads = o->threads;
    snprintf(row->kernel, sizeof row->kernel, "%s", s24_plan_kernel(o->plan, s.m));
    row->flops = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    row->format = c->weight.kind.format.name;
    row->kept = bench_weight_kept(&c->weight);
    row->bytes = bench_weight_bytes(&c->weight, o->plan) +
                 (double)s24_dtype_bytes(c->activations) * (double)(s.m * s.k + s.m * s.n);
}

/* Gives the least seconds that the limits of the row's dtype and threads allow, of multiply-adds
   and of memory; 0 for a table without limits. */
static void row_limits(double *compute, double *memory, const bench_row *row,
                       const bench_table *table)
{
    *compute = *memory = 0;
    for (int i = 0; i < table->limit_count; i++) {
        const bench_limit *limit = &table->limits[i];
        if (limit->dtype != row->dtype || limit->threads != row->threads) continue;
        if (limit->scheme != row->scheme) continue;
        *compute = row->kept * row->flops / limit->flops;
        *memory = row->bytes / (row->read > 0 ? row->read : limit->bytes);
        return;
    }
}

static void row_limit(bench_row *row, const bench_table *table)
{
    double compute, memory;
    row_limits(&compute, &memory, row, table);
    row->limit_share = (compute > memory ? compute : memory) / row->ours.median;
}

/* 1: all that the product touches stays in the cores' own caches, so that reads of memory would say
   nothing about it. */
static int stays_near(const bench_row *row)
{
    double own = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    own = (double)sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return row->bytes < own * row->threads;
}

/* Times ours, every peer that has such a product, and reads where memory bounds it, in turns; fills
   the row. */
static int measure(cell *c, ours *o, theirs *peers, int count, bench_row *row,
                   const bench_table *table)
{
    double compute, memory;
    row_limits(&compute, &memory, row, table);
    const int reads = memory > compute && !stays_near(row) ? BENCH_READS : 0;
    bench_turn turns[1 + BENCH_MAX_PEERS + BENCH_READS] = {{.run = run_ours, .state = o}};
    int code = run_ours(o) ? cli_fail(c->cli, CLI_IO, "our product: %s", s24_ctx_error(o->ctx))
                           : compare_sums(c);
    for (int i = 0; i < count && code == CLI_OK; i++) {
        turns[1 + i] = (bench_turn){.run = run_theirs, .state = &peers[i]};
        code = compare_outputs(c, &peers[i]);
    }
    if (reads) bench_limit_turns(turns + 1 + count, table);
    if (code == CLI_OK) code = bench_interleave(c->cli, turns, 1 + count + reads, &c->plan->effort);
    if (code != CLI_OK) return code;
    if (reads) row->read = bench_limit_read(turns + 1 + count, table);
    row->ours = turns[0].times;
    for (int i = 0; i < count; i++) {
        double seconds = turns[1 + i].times.median, ratio = seconds / row->ours.median;
        row->peers[i] = (bench_peer_result){peers[i].library->peer->name,
                                            peers[i].library->version,
                                            seconds,
                                            turns[1 + i].times.min,
                                            ratio,
                                            0};
        if (i == 0 || ratio < row->ratio) row->ratio = ratio;
    }
    row->peer_count = count;
    return CLI_OK;
}

static int cell_run(cell *c, int threads, bench_row *row, const bench_table *table)
{
    ours o = {.threads = threads};
    theirs peers[BENCH_MAX_PEERS];
    int count = 0;
    bench_problem problem = {.ctx = c->cli->ctx,
                             .shape = c->shape,
                             .dtype = c->scheme ? S24_DTYPE_NONE : c->dtype,
                             .quantized = c->scheme ? c->weight.matrix : NULL,
                             .activations = c->activations,
                             .threads = threads,
                             .x = c->x,
                             .w = c->weight.dense};
    s24_ctx_set_threads(c->cli->ctx, threads);
    int code = cli_status(c->cli, ours_make(&o, c));
    for (int i = 0; i < c->plan->library_count && code == CLI_OK; i++) {
        const bench_library *library = &c->plan->libraries[i];
        void *product = library->peer->prepare(library->library, &problem);
        if (product) peers[count++] = (theirs){library, product, c->y_peer};
    }
    if (code == CLI_OK) row_fill(row, c, &o);
    if (code == CLI_OK) code = measure(c, &o, peers, count, row, table);
    for (int i = 0; i < count; i++)
        peers[i].library->peer->release(peers[i].product);
    s24_ctx_free(c->cli->ctx, o.work);
    s24_plan_destroy(o.plan);
    return code;
}

/* Measures every number of threads of one shape and dtype. */
static int run_threads(cell *c, bench_table *table)
{
    const bench_plan *plan = c->plan;
    int code = cli_status(c->cli, cell_fill_tokens(c));
    for (int t = 0; t < plan->thread_count && code == CLI_OK; t++) {
        bench_row *row = &table->rows[table->count];
        code = cell_run(c, (int)plan->threads[t], row, table);
        if (code != CLI_OK) break;
        row_limit(row, table);
        table->count++;
        if (plan->row_done) {
            cli_progress_clear(c->cli);
            plan->row_done(plan, row);
        }
    }
    cell_free_tokens(c);
    return code;
}

int bench_products(cli_app *cli, bench_table *table, const bench_plan *plan)
{
    int64_t total = (int64_t)plan->shape_count * plan->dtype_count;
    cell c = {.cli = cli, .plan = plan};
    int code = CLI_OK;
    table->rows = calloc((size_t)(total * plan->thread_count), sizeof *table->rows);
    if (!table->rows) return cli_fail(cli, CLI_IO, "out of memory for the table");
    for (int64_t i = 0; i < total && code == CLI_OK; i++) {
        c.shape = plan->shapes[i % plan->shape_count];
        c.dtype = plan->dtypes[i / plan->shape_count];
        c.scheme = plan->schemes[i / plan->shape_count];
        c.activations = c.dtype == S24_BF16 && plan->activations ? plan->activations : S24_F32;
        const bench_weight_kind kind = {c.shape.n, c.shape.k, c.dtype, c.scheme, plan->format};
        code = cli_status(cli, s24_ctx_progress(cli->ctx, "measuring", i, total));
        if (code == CLI_OK && !bench_weight_is(&c.weight, &kind))
            code = cli_status(cli, bench_weight_make(&c.weight, cli->ctx, &kind));
        if (code == CLI_OK) code = run_threads(&c, table);
    }
    bench_weight_free(&c.weight, cli->ctx);
    return code;
}

void bench_table_free(bench_table *table)
{
    free(table->rows);
    bench_limits_free(table);
}
