// SPDX-License-Identifier: Apache-2.0
/* Makes a shape on a GPU: its operands in device memory, our product of them, and the check of
   outputs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/bench_gpu.h"

/* ---- memory ---------------------------------------------------------------------------------- */

void *gpu_more(void *user, size_t bytes)
{
    gpu_bench *b = user;
    void *memory;
    if (b->block_count == GPU_MAX_BLOCKS ||
        s24_device_alloc(&memory, b->cli->ctx, b->device, bytes, b->driver.stream) != S24_OK)
        return NULL;
    return b->blocks[b->block_count++] = memory;
}

void gpu_release(gpu_bench *b)
{
    for (int i = 0; i < b->block_count; i++)
        s24_device_free(b->cli->ctx, b->device, b->blocks[i], b->driver.stream);
    b->block_count = 0;
}

void gpu_cell_free(gpu_cell *c)
{
    for (int i = 0; i < GPU_MAX_SETS; i++) {
        s24_device_weight_destroy(c->weights[i]);
        s24_device_integers_destroy(c->integers[i]);
    }
    gpu_release(c->bench);
}

s24_status gpu_fill(gpu_bench *b, void *to, int64_t count, s24_dtype dtype, uint64_t seed)
{
    enum { PIECE = 1 << 19 };
    s24_ctx *ctx = b->cli->ctx;
    const size_t bytes = s24_dtype_bytes(dtype);
    const double most = dtype == S24_I8 ? 64 : 1;
    float *values = s24_ctx_alloc(ctx, PIECE * sizeof *values);
    char *piece = s24_ctx_alloc(ctx, PIECE * bytes);
    s24_status status = values && piece ? S24_OK : S24_ERROR_MEMORY;
    for (int i = 0; i < PIECE && status == S24_OK; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double v = ((double)(seed >> 44) + (double)(seed >> 24 & 0xfffff)) / 1048576 - 1;
        values[i] = (float)(most * v);
    }
    if (status == S24_OK) status = s24_convert(piece, dtype, values, S24_F32, PIECE);
    for (int64_t at = 0; at < count && status == S24_OK; at += PIECE) {
        int64_t part = count - at < PIECE ? count - at : PIECE;
        status = s24_device_copy(ctx, b->device, (char *)to + (size_t)at * bytes, piece,
                                 (size_t)part * bytes, b->driver.stream);
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
    const size_t bytes = s24_dtype_bytes(p->dtype);
    void *stream = b->driver.stream;
    c->x[i] = gpu_more(b, bytes * (size_t)(s.m * s.k));
    c->w[i] = gpu_more(b, bytes * (size_t)(s.n * s.k));
    c->y[i] = gpu_more(b, s24_dtype_bytes(p->y_dtype) * (size_t)(s.m * s.n));
    if (!c->x[i] || !c->w[i] || !c->y[i])
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no device memory for the shape %lld,%lld,%lld",
                            (long long)s.m, (long long)s.k, (long long)s.n);
    s24_dense w = {c->w[i], p->dtype, s.n, s.k, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    s24_status status = gpu_fill(b, c->x[i], s.m * s.k, p->dtype, (uint64_t)i * 2 + 1);
    if (status == S24_OK) status = gpu_fill(b, c->w[i], s.n * s.k, p->dtype, (uint64_t)i * 2 + 2);
    if (status == S24_OK)
        status = s24_device_weight_from_dense(&c->weights[i], ctx, b->device, &w, &opts, stream);
    if (status == S24_OK)
        status = s24_device_weight_to_dense(ctx, b->device, &w, c->weights[i], stream);
    if (status == S24_OK && c->scheme) status = gpu_cell_round(c, i);
    return status;
}

/* Of X and W, and of Y. */
static double bytes_of(bench_shape s, s24_dtype dtype, s24_dtype y_dtype)
{
    return (double)s24_dtype_bytes(dtype) *
               ((double)s.m * (double)s.k + (double)s.n * (double)s.k) +
           (double)s24_dtype_bytes(y_dtype) * (double)s.m * (double)s.n;
}

/* Counts the sets: more than the L2 holds, often; but of large operands no more than needed. */
static int sets_of(double bytes)
{
    if (bytes > 800e6) return 1;
    if (bytes > 150e6) return 2;
    double sets = ceil(400e6 / bytes);
    return sets < 2 ? 2 : sets > GPU_MAX_SETS ? GPU_MAX_SETS : (int)sets;
}

/* Says what Y is where nothing is said: as X, but of 8 bits bf16. */
static s24_dtype output_of(const bench_plan *plan, s24_dtype dtype)
{
    if (plan->output) return plan->output;
    return s24_dtype_bytes(dtype) == 1 ? S24_BF16 : dtype;
}

s24_status gpu_cell_fill(gpu_cell *c, bench_shape shape, s24_dtype dtype)
{
    gpu_bench *b = c->bench;
    const s24_dtype y_dtype = output_of(b->plan, dtype);
    s24_ctx *ctx = b->cli->ctx;
    gpu_problem *p = &c->problem;
    *p = (gpu_problem){.driver = &b->driver,
                       .shape = shape,
                       .dtype = dtype,
                       .y_dtype = y_dtype,
                       .sets = sets_of(bytes_of(shape, dtype, y_dtype)),
                       .x = c->x,
                       .w = c->w,
                       .y = c->y,
                       .work_bytes = (size_t)128 << 20,
                       .more = gpu_more,
                       .user = b};
    for (int i = 0; i < p->sets; i++) {
        s24_status status = fill_set(c, i);
        if (status != S24_OK) return status;
    }
    c->share_bytes = s24_device_linear_work_bytes(b->device, c->weights[0]);
    c->share = gpu_more(b, c->share_bytes);
    p->work = gpu_more(b, p->work_bytes);
    if (!c->share || !p->work)
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no device memory for work");
    return s24_device_clear(ctx, b->device, c->share, c->share_bytes, b->driver.stream);
}

/* ---- products and their check ---------------------------------------------------------------- */

int gpu_run_ours(void *cell, int set)
{
    gpu_cell *c = cell;
    const gpu_problem *p = &c->problem;
    int i = set % p->sets;
    s24_dense x = {c->x[i], p->dtype, p->shape.m, p->shape.k, 0};
    s24_dense y = {c->y[i], p->y_dtype, p->shape.m, p->shape.n, 0};
    s24_device_linear_args args = {.size = sizeof args,
                                   .x = &x,
                                   .y = &y,
                                   .work = c->scheme ? NULL : c->share,
                                   .work_bytes = c->share_bytes,
                                   .tile = c->tile,
                                   .stream = p->driver->stream};
    if (c->scheme)
        return s24_device_integers_linear(c->bench->cli->ctx, c->bench->device, c->integers[i],
                                          &args) != S24_OK;
    return s24_device_linear(c->bench->cli->ctx, c->bench->device, c->weights[i], &args) != S24_OK;
}

/* Reads a row of a matrix in device memory, by way of `raw`, as f32; of i32 rounded. */
static s24_status row_of(gpu_cell *c, float *to, void *raw, const s24_dense *from, int64_t row)
{
    gpu_bench *b = c->bench;
    s24_ctx *ctx = b->cli->ctx;
    const size_t bytes = s24_dtype_bytes(from->dtype) * (size_t)from->cols;
    const char *at = (const char *)from->data + bytes * (size_t)row;
    s24_status status = s24_device_copy(ctx, b->device, raw, at, bytes, b->driver.stream);
    if (status == S24_OK) status = s24_device_wait(ctx, b->device, b->driver.stream);
    if (status == S24_OK && from->dtype != S24_I32)
        return s24_convert(to, S24_F32, raw, from->dtype, from->cols);
    for (int64_t i = 0; i < from->cols && status == S24_OK; i++)
        to[i] = (float)((const int32_t *)raw)[i];
    return status;
}

/* Holds an output, and what it should be. */
typedef struct output {
    const char *who; /* computed it */
    int64_t row, col;
    double got, sum;
} output;

/* Returns 1 with a sentence when an output is beyond one rounding to Y's dtype, and sums that add
   up like a random walk: of f32, of 8-bit floats with the 14 bits of the tensor cores, of
   integers with W rounded to bf16. */
static int differs(const gpu_cell *c, const output *o, char *wrong, size_t bytes)
{
    const gpu_problem *p = &c->problem;
    const bench_shape s = p->shape;
    const int narrow = p->dtype == S24_E4M3 || p->dtype == S24_E5M2;
    const double ulp = p->y_dtype == S24_BF16 ? 0x1p-8 : p->y_dtype == S24_F16 ? 0x1p-11 : 0x1p-22;
    const double walk = narrow ? 3e-3 : p->dtype == S24_I8 || c->scheme ? 1e-3 : 1e-5;
    const double sum = p->y_dtype == S24_I8 ? fmin(fmax(o->sum, -128), 127) : o->sum;
    if (fabs(o->got - sum) <= 1.05 * ulp * fabs(sum) + walk * sqrt((double)s.k)) return 0;
    snprintf(wrong, bytes,
             "shape %lld,%lld,%lld %s: the output of %s at row %lld, column %lld is %g, expected "
             "%g; no figure is given for a wrong result",
             (long long)s.m, (long long)s.k, (long long)s.n, s24_dtype_name(p->dtype), o->who,
             (long long)o->row, (long long)o->col, o->got, sum);
    return 1;
}

/* Sets all bits of Y's first set to ones, which are NaN. */
static s24_status poison(gpu_cell *c)
{
    gpu_bench *b = c->bench;
    const size_t piece = (size_t)4 << 20;
    const size_t bytes =
        s24_dtype_bytes(c->problem.y_dtype) * (size_t)(c->problem.shape.m * c->problem.shape.n);
    char *ones = s24_ctx_alloc(b->cli->ctx, piece);
    s24_status status = ones ? S24_OK : S24_ERROR_MEMORY;
    if (ones) memset(ones, 0xff, piece);
    for (size_t at = 0; at < bytes && status == S24_OK; at += piece)
        status = s24_device_copy(b->cli->ctx, b->device, (char *)c->y[0] + at, ones,
                                 bytes - at < piece ? bytes - at : piece, b->driver.stream);
    s24_ctx_free(b->cli->ctx, ones);
    return status;
}

int gpu_check(gpu_cell *c, const gpu_contestant *who, const char *name, char *wrong, size_t bytes)
{
    enum { ROWS = 16, COLS = 16 };
    gpu_bench *b = c->bench;
    s24_ctx *ctx = b->cli->ctx;
    const bench_shape s = c->problem.shape;
    int64_t longest = s.n > s.k ? s.n : s.k;
    float *x = s24_ctx_alloc(ctx, 4 * (size_t)longest),
          *w = s24_ctx_alloc(ctx, 4 * (size_t)longest);
    float *y = s24_ctx_alloc(ctx, 4 * (size_t)longest);
    char *raw = s24_ctx_alloc(ctx, 4 * (size_t)longest);
    const s24_dense at_x = {c->x[0], c->problem.dtype, s.m, s.k, 0};
    const s24_dense at_w = {c->w[0], c->problem.dtype, s.n, s.k, 0};
    const s24_dense at_y = {c->y[0], c->problem.y_dtype, s.m, s.n, 0};
    s24_status status = x && w && y && raw ? S24_OK : S24_ERROR_MEMORY;
    int code = CLI_OK;
    if (status == S24_OK) status = poison(c);
    if (status == S24_OK && who->run(who->state, 0))
        code = cli_fail(b->cli, CLI_IO, "%s failed: %s", name, s24_ctx_error(ctx));
    for (int i = 0; i < ROWS && status == S24_OK && code == CLI_OK; i++) {
        output o = {.who = name, .row = i ? (int64_t)i * 7919 % s.m : s.m - 1};
        status = row_of(c, x, raw, &at_x, o.row);
        if (status == S24_OK) status = row_of(c, y, raw, &at_y, o.row);
        for (int j = 0; j < COLS && status == S24_OK && code == CLI_OK; j++) {
            o.col = j ? (i * 16 + (int64_t)j) * 104729 % s.n : s.n - 1;
            o.got = (double)y[o.col];
            o.sum = 0;
            status = row_of(c, w, raw, &at_w, o.col);
            for (int64_t k = 0; k < s.k; k++)
                o.sum += (double)x[k] * (double)w[k];
            if (status == S24_OK && differs(c, &o, wrong, bytes)) code = CLI_NO;
        }
    }
    s24_ctx_free(ctx, x);
    s24_ctx_free(ctx, w);
    s24_ctx_free(ctx, y);
    s24_ctx_free(ctx, raw);
    return code == CLI_OK ? cli_status(b->cli, status) : code;
}
