// SPDX-License-Identifier: Apache-2.0
/*
 * Products of bench on a GPU. A GPU slows down as it warms, and what it did before counts for
 * milliseconds: so every contestant's turn is a window after a pause, in rounds, and only ratios of
 * one run mean anything. Operands are many enough that no cache keeps them from run to run.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_gpu.h"

#define PEER(name) extern const gpu_peer gpu_peer_##name;
#include "bench_gpu_peers.def"
#undef PEER

static const gpu_peer *const peers[] = {
#define PEER(name) &gpu_peer_##name,
#include "bench_gpu_peers.def"
#undef PEER
};

enum { PEERS = (int)(sizeof peers / sizeof *peers), MAX_SETS = 40, MAX_BLOCKS = 320 };

const gpu_peer *gpu_peer_at(int index)
{
    return index >= 0 && index < PEERS ? peers[index] : NULL;
}

typedef struct gpu_library {
    const gpu_peer *peer;
    void *library;
    char version[48];
} gpu_library;

typedef struct gpu_bench {
    cli_app *cli;
    const bench_plan *plan;
    s24_device *device;
    gpu_driver driver;
    gpu_library libraries[PEERS];
    int library_count;
    void *blocks[MAX_BLOCKS]; /* device memory of the cell */
    int block_count;
} gpu_bench;

typedef struct gpu_cell {
    gpu_bench *bench;
    gpu_problem problem;
    void *x[MAX_SETS], *w[MAX_SETS], *y[MAX_SETS];
    s24_device_weight *weights[MAX_SETS];
    void *share; /* s24_device_linear's work memory */
    size_t share_bytes;
} gpu_cell;

/* ---- memory ---------------------------------------------------------------------------------- */

static void *more(void *user, size_t bytes)
{
    gpu_bench *b = user;
    void *memory;
    if (b->block_count == MAX_BLOCKS ||
        s24_device_alloc(&memory, b->cli->ctx, b->device, bytes, b->driver.stream) != S24_OK)
        return NULL;
    return b->blocks[b->block_count++] = memory;
}

static void cell_free(gpu_cell *c)
{
    gpu_bench *b = c->bench;
    for (int i = 0; i < MAX_SETS; i++)
        s24_device_weight_destroy(c->weights[i]);
    for (int i = 0; i < b->block_count; i++)
        s24_device_free(b->cli->ctx, b->device, b->blocks[i], b->driver.stream);
    b->block_count = 0;
}

/* Random values, the sum of two uniform ones, into device memory: a piece again and again. */
static s24_status fill(gpu_bench *b, void *to, int64_t count, s24_dtype dtype, uint64_t seed)
{
    enum { PIECE = 1 << 19 };
    s24_ctx *ctx = b->cli->ctx;
    float *values = s24_ctx_alloc(ctx, PIECE * sizeof *values);
    uint16_t *piece = s24_ctx_alloc(ctx, PIECE * sizeof *piece);
    s24_status status = values && piece ? S24_OK : S24_ERROR_MEMORY;
    for (int i = 0; i < PIECE && status == S24_OK; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)((double)(seed >> 44) + (double)(seed >> 24 & 0xfffff)) / 1048576 - 1;
    }
    if (status == S24_OK) status = s24_convert(piece, dtype, values, S24_F32, PIECE);
    for (int64_t at = 0; at < count && status == S24_OK; at += PIECE) {
        int64_t part = count - at < PIECE ? count - at : PIECE;
        status = s24_device_copy(ctx, b->device, (char *)to + 2 * at, piece, 2 * (size_t)part,
                                 b->driver.stream);
    }
    if (status == S24_OK) status = s24_device_wait(ctx, b->device, b->driver.stream);
    s24_ctx_free(ctx, values);
    s24_ctx_free(ctx, piece);
    return status;
}

static s24_status fill_set(gpu_cell *c, int i)
{
    gpu_bench *b = c->bench;
    s24_ctx *ctx = b->cli->ctx;
    const gpu_problem *p = &c->problem;
    const bench_shape s = p->shape;
    void *stream = b->driver.stream;
    c->x[i] = more(b, 2 * (size_t)(s.m * s.k));
    c->w[i] = more(b, 2 * (size_t)(s.n * s.k));
    c->y[i] = more(b, 2 * (size_t)(s.m * s.n));
    if (!c->x[i] || !c->w[i] || !c->y[i])
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no device memory for the shape %lld,%lld,%lld",
                            (long long)s.m, (long long)s.k, (long long)s.n);
    s24_dense w = {c->w[i], p->dtype, s.n, s.k, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    s24_status status = fill(b, c->x[i], s.m * s.k, p->dtype, (uint64_t)i * 2 + 1);
    if (status == S24_OK) status = fill(b, c->w[i], s.n * s.k, p->dtype, (uint64_t)i * 2 + 2);
    if (status == S24_OK)
        status = s24_device_weight_from_dense(&c->weights[i], ctx, b->device, &w, &opts, stream);
    if (status == S24_OK)
        status = s24_device_weight_to_dense(ctx, b->device, &w, c->weights[i], stream);
    return status;
}

/* More than the L2 holds, often; but of large operands no more than needed. */
static int sets_of(bench_shape s)
{
    double bytes =
        2.0 * ((double)s.m * (double)s.k + (double)s.m * (double)s.n + (double)s.n * (double)s.k);
    if (bytes > 800e6) return 1;
    if (bytes > 150e6) return 2;
    double sets = ceil(400e6 / bytes);
    return sets < 2 ? 2 : sets > MAX_SETS ? MAX_SETS : (int)sets;
}

static s24_status cell_fill(gpu_cell *c, bench_shape shape, s24_dtype dtype)
{
    gpu_bench *b = c->bench;
    s24_ctx *ctx = b->cli->ctx;
    gpu_problem *p = &c->problem;
    *p = (gpu_problem){.driver = &b->driver,
                       .shape = shape,
                       .dtype = dtype,
                       .sets = sets_of(shape),
                       .x = c->x,
                       .w = c->w,
                       .y = c->y,
                       .work_bytes = (size_t)128 << 20,
                       .more = more,
                       .user = b};
    for (int i = 0; i < p->sets; i++) {
        s24_status status = fill_set(c, i);
        if (status != S24_OK) return status;
    }
    c->share_bytes = s24_device_linear_work_bytes(b->device, c->weights[0]);
    c->share = more(b, c->share_bytes);
    p->work = more(b, p->work_bytes);
    if (!c->share || !p->work)
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no device memory for work");
    return s24_device_clear(ctx, b->device, c->share, c->share_bytes, b->driver.stream);
}

/* ---- contestants ----------------------------------------------------------------------------- */

typedef struct contestant {
    int (*run)(void *state, int set);
    void *state;
    int runs; /* a window */
    double samples[BENCH_MAX_ROUNDS];
} contestant;

static int run_ours(void *state, int set)
{
    gpu_cell *c = state;
    const gpu_problem *p = &c->problem;
    int i = set % p->sets;
    s24_dense x = {c->x[i], p->dtype, p->shape.m, p->shape.k, 0};
    s24_dense y = {c->y[i], p->dtype, p->shape.m, p->shape.n, 0};
    s24_device_linear_args args = {.size = sizeof args,
                                   .x = &x,
                                   .y = &y,
                                   .work = c->share,
                                   .work_bytes = c->share_bytes,
                                   .stream = p->driver->stream};
    return s24_device_linear(c->bench->cli->ctx, c->bench->device, c->weights[i], &args) != S24_OK;
}

/* A row of device memory as f32. */
static s24_status row_of(gpu_cell *c, float *to, uint16_t *half, const void *from, int64_t row,
                         int64_t cols)
{
    gpu_bench *b = c->bench;
    s24_ctx *ctx = b->cli->ctx;
    s24_status status =
        s24_device_copy(ctx, b->device, half, (const char *)from + 2 * (size_t)(row * cols),
                        2 * (size_t)cols, b->driver.stream);
    if (status == S24_OK) status = s24_device_wait(ctx, b->device, b->driver.stream);
    if (status == S24_OK) status = s24_convert(to, S24_F32, half, c->problem.dtype, cols);
    return status;
}

/* 1 with a sentence when an output is beyond one rounding to 16 bits, and f32 sums that add up like
   a random walk. */
static int differs(const gpu_cell *c, char *wrong, size_t bytes, const char *who, double got,
                   double sum, const int64_t place[2])
{
    const bench_shape s = c->problem.shape;
    const double ulp = c->problem.dtype == S24_BF16 ? 0x1p-8 : 0x1p-11;
    if (fabs(got - sum) <= 1.05 * ulp * fabs(sum) + 1e-5 * sqrt((double)s.k)) return 0;
    snprintf(wrong, bytes,
             "shape %lld,%lld,%lld %s: the output of %s at row %lld, column %lld is %g, expected "
             "%g; no figure is given for a wrong result",
             (long long)s.m, (long long)s.k, (long long)s.n, s24_dtype_name(c->problem.dtype), who,
             (long long)place[0], (long long)place[1], got, sum);
    return 1;
}

/* Outputs of one run, written over with NaN before, against sums in double: 256 of them, the last
   row's and column's among them. CLI_NO with a sentence in wrong, not yet said, if they differ. */
static int check(gpu_cell *c, const contestant *who, const char *name, char *wrong, size_t bytes)
{
    enum { ROWS = 16, COLS = 16 };
    gpu_bench *b = c->bench;
    s24_ctx *ctx = b->cli->ctx;
    const bench_shape s = c->problem.shape;
    int64_t longest = s.n > s.k ? s.n : s.k;
    float *x = s24_ctx_alloc(ctx, 4 * (size_t)longest),
          *w = s24_ctx_alloc(ctx, 4 * (size_t)longest);
    float *y = s24_ctx_alloc(ctx, 4 * (size_t)longest);
    uint16_t *half = s24_ctx_alloc(ctx, 2 * (size_t)longest);
    s24_status status = x && w && y && half ? S24_OK : S24_ERROR_MEMORY;
    int code = CLI_OK;
    if (half) memset(half, 0xff, 2 * (size_t)longest);
    for (int64_t r = 0; r < s.m && status == S24_OK; r++)
        status = s24_device_copy(ctx, b->device, (char *)c->y[0] + 2 * (size_t)(r * s.n), half,
                                 2 * (size_t)s.n, b->driver.stream);
    if (status == S24_OK && who->run(who->state, 0))
        code = cli_fail(b->cli, CLI_IO, "%s failed: %s", name, s24_ctx_error(ctx));
    for (int i = 0; i < ROWS && status == S24_OK && code == CLI_OK; i++) {
        int64_t row = i ? (int64_t)i * 7919 % s.m : s.m - 1;
        status = row_of(c, x, half, c->x[0], row, s.k);
        if (status == S24_OK) status = row_of(c, y, half, c->y[0], row, s.n);
        for (int j = 0; j < COLS && status == S24_OK && code == CLI_OK; j++) {
            int64_t col = j ? (i * 16 + (int64_t)j) * 104729 % s.n : s.n - 1;
            double sum = 0;
            status = row_of(c, w, half, c->w[0], col, s.k);
            for (int64_t k = 0; k < s.k; k++)
                sum += (double)x[k] * (double)w[k];
            if (status == S24_OK &&
                differs(c, wrong, bytes, name, (double)y[col], sum, (const int64_t[2]){row, col}))
                code = CLI_NO;
        }
    }
    s24_ctx_free(ctx, x);
    s24_ctx_free(ctx, w);
    s24_ctx_free(ctx, y);
    s24_ctx_free(ctx, half);
    return code == CLI_OK ? cli_status(b->cli, status) : code;
}

/* ---- turns ----------------------------------------------------------------------------------- */

static int timed(gpu_bench *b, contestant *who, int runs, double *seconds)
{
    *seconds = gpu_time(&b->driver, runs, who->run, who->state);
    if (*seconds >= 0) return CLI_OK;
    return cli_fail(b->cli, CLI_IO, "a product failed while it was timed: %s",
                    s24_ctx_error(b->cli->ctx));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int interleave(gpu_bench *b, contestant *all, int count)
{
    const bench_effort *effort = &b->plan->effort;
    const struct timespec pause = {0, 30000000};
    double seconds;
    int code = CLI_OK;
    for (int i = 0; i < count && code == CLI_OK; i++) {
        code = timed(b, &all[i], 3, &seconds);
        if (code == CLI_OK) code = timed(b, &all[i], 3, &seconds);
        double runs = effort->min_seconds / (seconds > 1e-6 ? seconds : 1e-6);
        all[i].runs = runs < 1 ? 1 : (int)runs;
    }
    for (int64_t r = 0; r < effort->rounds && code == CLI_OK; r++)
        for (int i = 0; i < count && code == CLI_OK; i++) {
            nanosleep(&pause, NULL);
            code = timed(b, &all[i], all[i].runs, &all[i].samples[r]);
            if (code == CLI_OK && cli_interrupted())
                code = cli_status(b->cli, S24_ERROR_INTERRUPTED);
        }
    for (int i = 0; i < count && code == CLI_OK; i++)
        qsort(all[i].samples, (size_t)effort->rounds, sizeof *all[i].samples, compare);
    return code;
}

static double median(const contestant *who, int64_t rounds)
{
    return 0.5 * (who->samples[rounds / 2] + who->samples[(rounds - 1) / 2]);
}

static void row_fill(bench_row *row, const gpu_cell *c, const contestant *ours)
{
    const bench_shape s = c->problem.shape;
    const int64_t rounds = c->bench->plan->effort.rounds;
    row->shape = s;
    row->dtype = row->activations = c->problem.dtype;
    snprintf(row->kernel, sizeof row->kernel, "cuda %s",
             s24_device_linear_tile(c->bench->device, c->weights[0], s.m));
    row->ours = (bench_times){median(ours, rounds), ours->samples[0], ours->samples[rounds - 1]};
    row->flops = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    row->bytes =
        (double)s24_device_weight_bytes(c->weights[0]) + 2.0 * (double)s.m * (double)(s.k + s.n);
}

static int measure(gpu_cell *c, bench_row *row)
{
    gpu_bench *b = c->bench;
    contestant *all = calloc(1 + PEERS, sizeof *all);
    const gpu_library *who[PEERS];
    void *products[PEERS];
    int count = 0;
    if (!all) return cli_fail(b->cli, CLI_IO, "out of memory");
    all[0] = (contestant){.run = run_ours, .state = c};
    char wrong[256];
    int code = check(c, &all[0], "sparse24", wrong, sizeof wrong);
    if (code == CLI_NO) code = cli_fail(b->cli, CLI_NO, "%s", wrong);
    for (int i = 0; i < b->library_count && code == CLI_OK; i++) {
        void *product = b->libraries[i].peer->prepare(b->libraries[i].library, &c->problem);
        if (!product) continue;
        contestant *next = &all[1 + count];
        next->run = b->libraries[i].peer->run;
        next->state = product;
        if (check(c, next, b->libraries[i].peer->name, wrong, sizeof wrong) != CLI_OK) {
            cli_note(b->cli, "%s", wrong);
            b->libraries[i].peer->release(product);
            continue;
        }
        who[count] = &b->libraries[i];
        products[count++] = product;
    }
    if (code == CLI_OK) code = interleave(b, all, 1 + count);
    if (code == CLI_OK) row_fill(row, c, &all[0]);
    for (int i = 0; i < count; i++) {
        double seconds = median(&all[1 + i], b->plan->effort.rounds);
        double ratio = row->ours.median > 0 ? seconds / row->ours.median : 0;
        row->peers[i] = (bench_peer_result){who[i]->peer->name, who[i]->version, seconds, ratio};
        if (i == 0 || ratio < row->ratio) row->ratio = ratio;
        who[i]->peer->release(products[i]);
    }
    row->peer_count = count;
    free(all);
    return code;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void print_row(const bench_row *row)
{
    double seconds = row->ours.median;
    printf("%6lld %6lld %6lld %-5s %9.4f %8.1f %7.1f", (long long)row->shape.m,
           (long long)row->shape.k, (long long)row->shape.n, s24_dtype_name(row->dtype),
           1e3 * seconds, 1e-12 * row->flops / seconds, 1e-9 * row->bytes / seconds);
    for (int i = 0; i < row->peer_count; i++)
        printf("  %s %.2fx", row->peers[i].name, row->peers[i].ratio);
    printf("  %s\n", row->kernel);
    fflush(stdout);
}

static int run_cells(gpu_bench *b, bench_table *table)
{
    const bench_plan *plan = b->plan;
    const int64_t total = (int64_t)plan->shape_count * plan->dtype_count;
    gpu_cell *c = calloc(1, sizeof *c);
    table->rows = calloc((size_t)total, sizeof *table->rows);
    if (!c || !table->rows) {
        free(c);
        return cli_fail(b->cli, CLI_IO, "out of memory for the table");
    }
    int code = CLI_OK;
    snprintf(table->gpu, sizeof table->gpu, "%s", s24_device_text(b->device));
    if (!b->cli->json)
        printf("%s\n%6s %6s %6s %-5s %9s %8s %7s  peers: their time over ours\n", table->gpu, "M",
               "K", "N", "dtype", "ms", "TFLOP/s", "GB/s");
    for (int64_t i = 0; i < total && code == CLI_OK; i++) {
        bench_row *row = &table->rows[table->count];
        *c = (gpu_cell){.bench = b};
        code = cli_status(b->cli, s24_ctx_progress(b->cli->ctx, "measuring", i, total));
        if (code == CLI_OK)
            code = cli_status(b->cli, cell_fill(c, plan->shapes[i % plan->shape_count],
                                                plan->dtypes[i / plan->shape_count]));
        if (code == CLI_OK) code = measure(c, row);
        cell_free(c);
        if (code != CLI_OK) break;
        table->count++;
        cli_progress_clear(b->cli);
        if (!b->cli->json) print_row(row);
    }
    free(c);
    return code;
}

static void open_peers(gpu_bench *b, const char *list)
{
    char item[32];
    for (int i = 0; i < PEERS; i++) {
        const char *rest = list;
        int wanted = 0;
        while (cli_list_next(item, sizeof item, &rest))
            wanted |= strcmp(item, peers[i]->name) == 0 || strcmp(item, "all") == 0;
        gpu_library *l = &b->libraries[b->library_count];
        if (!wanted) continue;
        *l = (gpu_library){.peer = peers[i]};
        l->library = peers[i]->open(l->version, sizeof l->version);
        if (l->library)
            b->library_count++;
        else
            cli_note(b->cli, "%s is not here; compared without it", peers[i]->name);
    }
}

int bench_gpu_products(cli_app *cli, bench_table *table, const bench_plan *plan, const char *list)
{
    gpu_bench *b = calloc(1, sizeof *b);
    const char *colon = strchr(cli->common->device, ':');
    if (!b) return cli_fail(cli, CLI_IO, "out of memory");
    b->cli = cli;
    b->plan = plan;
    int code = cli_device(cli, &b->device);
    if (code == CLI_OK && gpu_driver_open(&b->driver, colon ? atoi(colon + 1) : 0))
        code = cli_fail(cli, CLI_UNSUPPORTED, "CUDA's driver cannot be used for timing");
    if (code == CLI_OK) {
        open_peers(b, list);
        code = run_cells(b, table);
    }
    for (int i = 0; i < b->library_count; i++)
        b->libraries[i].peer->close(b->libraries[i].library);
    if (b->driver.handle) gpu_driver_close(&b->driver);
    s24_device_destroy(b->device);
    free(b);
    return code;
}
