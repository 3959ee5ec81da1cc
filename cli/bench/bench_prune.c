// SPDX-License-Identifier: Apache-2.0
/*
 * Measures prune and pack: a dense matrix into the canonical form by magnitude, as
 * s24_matrix_create does it with all its checks, in turns with memcpy of the same matrix on the
 * same threads. Both write memory that is there already, of the library's own kind (huge pages
 * where the system has them): the matrix is made in a context whose allocator hands the same block
 * out again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

enum { COLS = 4096, LINE = 64, HANDLE = 4096 /* bytes; what is smaller is no matrix */ };

/* Holds one large block that is kept. */
typedef struct keeper {
    s24_ctx *from; /* whose memory it is */
    void *block;
    size_t bytes;
    int used;
} keeper;

static void *keeper_alloc(void *user, size_t bytes, size_t alignment)
{
    keeper *k = user;
    if (bytes < HANDLE) return aligned_alloc(alignment, (bytes + LINE - 1) / LINE * LINE);
    if (k->used) return NULL;
    if (k->bytes < bytes) {
        s24_ctx_free(k->from, k->block);
        k->bytes = bytes;
        k->block = s24_ctx_alloc(k->from, bytes);
        if (!k->block) k->bytes = 0;
    }
    k->used = k->block != NULL;
    return k->block;
}

static void keeper_free(void *user, void *memory, size_t bytes)
{
    keeper *k = user;
    (void)bytes;
    if (memory == k->block)
        k->used = 0;
    else
        free(memory);
}

typedef struct pruning {
    s24_ctx *ctx;
    s24_dense w;
    char *copy;
    int64_t bytes;
} pruning;

static int run_ours(void *state)
{
    pruning *p = state;
    s24_matrix *matrix;
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    if (s24_matrix_create(&matrix, p->ctx, &p->w, &opts) != S24_OK) return 1;
    s24_matrix_destroy(matrix);
    return 0;
}

static void copy_lines(void *arg, int64_t begin, int64_t end, int thread)
{
    const pruning *p = arg;
    (void)thread;
    memcpy(p->copy + begin * LINE, (const char *)p->w.data + begin * LINE,
           (size_t)((end - begin) * LINE));
}

static int run_copy(void *state)
{
    pruning *p = state;
    s24_ctx_parallel_for(p->ctx, p->bytes / LINE, copy_lines, p);
    return 0;
}

/* Makes values like weights: uniform in [-1, 1), converted. */
static s24_status fill(s24_ctx *ctx, const s24_dense *w)
{
    float *row = s24_ctx_alloc(ctx, COLS * sizeof *row);
    uint64_t state = 1;
    s24_status status = row ? S24_OK : S24_ERROR_MEMORY;
    for (int64_t r = 0; r < w->rows && status == S24_OK; r++) {
        for (int i = 0; i < COLS; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            row[i] = (float)((double)(state >> 40) * (2.0 / 16777216.0) - 1.0);
        }
        char *to = (char *)w->data + (size_t)r * COLS * s24_dtype_bytes(w->dtype);
        status = s24_convert(to, w->dtype, row, S24_F32, COLS);
    }
    s24_ctx_free(ctx, row);
    return status;
}

static void add_row(json_t *rows, const pruning *p, int threads, const bench_turn turns[2])
{
    json_t *row = json_object();
    double ours = turns[0].times.median, copy = turns[1].times.median;
    json_object_set_new(row, "rows", json_integer(p->w.rows));
    json_object_set_new(row, "cols", json_integer(p->w.cols));
    json_object_set_new(row, "dtype", json_string(s24_dtype_name(p->w.dtype)));
    json_object_set_new(row, "threads", json_integer(threads));
    json_object_set_new(row, "ms", cli_real(1e3 * ours));
    json_object_set_new(row, "ms_min", cli_real(1e3 * turns[0].times.min));
    json_object_set_new(row, "ms_max", cli_real(1e3 * turns[0].times.max));
    json_object_set_new(row, "gbps", cli_real(1e-9 * (double)p->bytes / ours));
    json_object_set_new(row, "copy_ms", cli_real(1e3 * copy));
    json_object_set_new(row, "ratio", cli_real(copy / ours));
    json_array_append_new(rows, row);
}

/* Measures every number of threads of one dtype. */
static int run_dtype(cli_app *cli, pruning *p, const bench_prune_plan *plan, json_t *rows)
{
    int code = cli_status(cli, fill(cli->ctx, &p->w));
    memset(p->copy, 0, (size_t)p->bytes); /* so that its pages are there */
    for (int t = 0; t < plan->thread_count && code == CLI_OK; t++) {
        bench_turn turns[2] = {{.run = run_ours, .state = p}, {.run = run_copy, .state = p}};
        s24_ctx_set_threads(p->ctx, (int)plan->threads[t]);
        code = bench_interleave(cli, turns, 2, &plan->effort);
        if (code != CLI_OK) break;
        double ours = turns[0].times.median, copy = turns[1].times.median;
        if (!cli->json)
            printf("%-5s %2d %9.3f ms %7.1f GB/s %7.2fx memcpy\n", s24_dtype_name(p->w.dtype),
                   (int)plan->threads[t], 1e3 * ours, 1e-9 * (double)p->bytes / ours, copy / ours);
        add_row(rows, p, (int)plan->threads[t], turns);
    }
    return code;
}

int bench_prune(cli_app *cli, const bench_prune_plan *plan)
{
    keeper kept = {.from = cli->ctx};
    pruning p = {.bytes = plan->mebibytes << 20};
    s24_ctx_opts opts = {.size = sizeof opts,
                         .allocator = {keeper_alloc, keeper_free, &kept},
                         .cpu_mask = s24_ctx_cpu(cli->ctx)};
    json_t *rows = json_array();
    void *data = s24_ctx_alloc(cli->ctx, (size_t)p.bytes);
    p.copy = s24_ctx_alloc(cli->ctx, (size_t)p.bytes);
    int code = CLI_OK;
    if (!data || !p.copy || s24_ctx_create(&p.ctx, &opts) != S24_OK)
        code = cli_fail(cli, CLI_IO, "out of memory for two times %lld MiB",
                        (long long)plan->mebibytes);
    for (int d = 0; d < plan->dtype_count && code == CLI_OK; d++) {
        int64_t row = COLS * (int64_t)s24_dtype_bytes(plan->dtypes[d]);
        p.w = (s24_dense){data, plan->dtypes[d], p.bytes / row, COLS, 0};
        code = run_dtype(cli, &p, plan, rows);
    }
    s24_ctx_destroy(p.ctx);
    s24_ctx_free(cli->ctx, kept.block);
    s24_ctx_free(cli->ctx, data);
    s24_ctx_free(cli->ctx, p.copy);
    if (code != CLI_OK || !cli->json) {
        json_decref(rows);
        return code;
    }
    json_t *object = cli_json();
    bench_json_machine(cli, object);
    json_object_set_new(object, "rows", rows);
    return cli_json_print(cli, object);
}
