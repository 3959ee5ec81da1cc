// SPDX-License-Identifier: Apache-2.0
/*
 * Measures bench --train-linear on a GPU: one layer's step of training, forward, dX and dW, dense
 * and with W 2:4 along both sides, where dW is dense too; choosing and packing W and Wᵀ alone; dW
 * of 2:4 gradients. What 2:4 products give is compared with the dense ones first.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/gpu/bench_gpu.h"
#include "device/device_train.h"

typedef struct layer {
    gpu_bench *bench;
    s24_dense x, w, y, dx, dy, dw, left; /* left: what MVUE24 leaves of dy */
    s24_device_weight *forward, *back;
    void *work, *share;
    size_t share_bytes;
} layer;

/* ---- what has its turn ----------------------------------------------------------------------- */

static int product(const layer *l, const s24_device_train_product_args *wanted)
{
    s24_device_train_product_args args = *wanted;
    args.size = sizeof args;
    args.work = l->work;
    args.work_bytes = S24_DEVICE_TRAIN_WORK;
    args.stream = l->bench->driver.stream;
    return s24_device_train_product(l->bench->cli->ctx, l->bench->device, &args) != S24_OK;
}

static int run_weight_of(const layer *l, const s24_dense *dy)
{
    return product(l, &(s24_device_train_product_args){
                          .y = &l->dw, .a = dy, .b = &l->x, .transposed_a = 1, .add = 1});
}

static int run_weight(void *state, int set)
{
    const layer *l = state;
    (void)set;
    return run_weight_of(l, &l->dy);
}

static int run_dense_both(const layer *l)
{
    return product(l,
                   &(s24_device_train_product_args){
                       .y = &l->y, .a = &l->x, .b = &l->w, .transposed_b = 1}) ||
           product(l, &(s24_device_train_product_args){.y = &l->dx, .a = &l->dy, .b = &l->w});
}

static int run_dense(void *state, int set)
{
    return run_dense_both(state) || run_weight(state, set);
}

static int run_linear(const layer *l, const s24_device_weight *w, const s24_dense *y,
                      const s24_dense *x)
{
    const s24_device_linear_args args = {.size = sizeof args,
                                         .y = y,
                                         .x = x,
                                         .work = l->share,
                                         .work_bytes = l->share_bytes,
                                         .stream = l->bench->driver.stream};
    return s24_device_linear(l->bench->cli->ctx, l->bench->device, w, &args) != S24_OK;
}

static int run_sparse_both(const layer *l)
{
    return run_linear(l, l->forward, &l->y, &l->x) || run_linear(l, l->back, &l->dx, &l->dy);
}

static int run_sparse(void *state, int set)
{
    return run_sparse_both(state) || run_weight(state, set);
}

static int run_select(void *state, int set)
{
    const layer *l = state;
    const s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_TILE_GREEDY};
    (void)set;
    return s24_device_weight_update(l->bench->cli->ctx, l->forward, l->back, &l->w, &opts,
                                    l->bench->driver.stream) != S24_OK;
}

static int run_unbiased(void *state, int set)
{
    const layer *l = state;
    const s24_device_train_mvue_args args = {.size = sizeof args,
                                             .dtype = l->dy.dtype,
                                             .rows = l->dy.rows,
                                             .cols = l->dy.cols,
                                             .ld = l->dy.cols,
                                             .seed = 1,
                                             .to = l->left.data,
                                             .from = l->dy.data,
                                             .stream = l->bench->driver.stream};
    (void)set;
    return s24_device_train_mvue(l->bench->cli->ctx, l->bench->device, &args) != S24_OK ||
           run_weight_of(l, &l->left);
}

/* ---- one layer ------------------------------------------------------------------------------- */

static s24_status make_matrix(s24_dense *d, const layer *l, int64_t rows, int64_t cols,
                              s24_dtype dtype)
{
    static uint64_t seed;
    gpu_bench *b = l->bench;
    *d = (s24_dense){gpu_more(b, (size_t)(rows * cols) * s24_dtype_bytes(dtype)), dtype, rows, cols,
                     cols};
    if (!d->data)
        return s24_ctx_fail(b->cli->ctx, S24_ERROR_MEMORY,
                            "no device memory for a layer of %lld to %lld", (long long)rows,
                            (long long)cols);
    if (dtype == S24_F32)
        return s24_device_clear(b->cli->ctx, b->device, d->data, (size_t)(rows * cols) * 4,
                                b->driver.stream);
    return gpu_fill(b, d->data, rows * cols, dtype, ++seed);
}

/* The weights become what the selection leaves of them, so that dense products give the same. */
static s24_status make_weights(layer *l)
{
    gpu_bench *b = l->bench;
    s24_ctx *ctx = b->cli->ctx;
    const s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_TILE_GREEDY};
    s24_status status = s24_device_weight_pair_from_dense(&l->forward, &l->back, ctx, b->device,
                                                          &l->w, &opts, b->driver.stream);
    if (status == S24_OK)
        status = s24_device_weight_to_dense(ctx, b->device, &l->w, l->forward, b->driver.stream);
    if (status != S24_OK) return status;
    l->share_bytes = s24_device_linear_work_bytes(b->device, l->forward);
    l->share = gpu_more(b, l->share_bytes ? l->share_bytes : 16);
    l->work = gpu_more(b, S24_DEVICE_TRAIN_WORK);
    if (!l->share || !l->work)
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no device memory for %s", "products");
    return s24_device_clear(ctx, b->device, l->share, l->share_bytes, b->driver.stream);
}

static s24_status make_layer(layer *l, const bench_shape *s, s24_dtype dtype)
{
    const struct {
        s24_dense *matrix;
        int64_t rows, cols;
        s24_dtype dtype;
    } each[] = {{&l->x, s->m, s->k, dtype},    {&l->dx, s->m, s->k, dtype},
                {&l->y, s->m, s->n, dtype},    {&l->dy, s->m, s->n, dtype},
                {&l->left, s->m, s->n, dtype}, {&l->w, s->n, s->k, dtype},
                {&l->dw, s->n, s->k, S24_F32}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        const s24_status status =
            make_matrix(each[i].matrix, l, each[i].rows, each[i].cols, each[i].dtype);
        if (status != S24_OK) return status;
    }
    return make_weights(l);
}

static void free_layer(layer *l)
{
    s24_device_weight_destroy(l->forward);
    s24_device_weight_destroy(l->back);
    gpu_release(l->bench);
}

enum { COMPARED = 1 << 16 };

/* The first numbers of y and dx, as f32. */
static s24_status read_some(float *to, const layer *l)
{
    gpu_bench *b = l->bench;
    s24_ctx *ctx = b->cli->ctx;
    const s24_dense *const from[2] = {&l->y, &l->dx};
    s24_status status = S24_OK;
    uint16_t *raw = s24_ctx_alloc(ctx, COMPARED * sizeof *raw);
    if (!raw) return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory for %s", "a comparison");
    for (int i = 0; i < 2 && status == S24_OK; i++) {
        const int64_t all = from[i]->rows * from[i]->cols, count = all < COMPARED ? all : COMPARED;
        status = s24_device_copy(ctx, b->device, raw, from[i]->data, (size_t)count * sizeof *raw,
                                 b->driver.stream);
        if (status == S24_OK) status = s24_device_wait(ctx, b->device, b->driver.stream);
        if (status == S24_OK)
            status = s24_convert(to + i * COMPARED, S24_F32, raw, from[i]->dtype, count);
    }
    s24_ctx_free(ctx, raw);
    return status;
}

static int compare(const layer *l)
{
    cli_app *cli = l->bench->cli;
    float *both = calloc(4 * COMPARED, sizeof *both);
    double most = 0, largest = 1e-30;
    if (!both) return cli_fail(cli, CLI_IO, "out of memory for a layer");
    int failed = run_dense_both(l) || read_some(both, l) != S24_OK || run_sparse_both(l) ||
                 read_some(both + 2 * COMPARED, l) != S24_OK;
    for (int i = 0; i < 2 * COMPARED; i++) {
        most = fmax(most, fabs((double)both[i] - (double)both[2 * COMPARED + i]));
        largest = fmax(largest, fabs((double)both[i]));
    }
    free(both);
    if (failed) return cli_fail(cli, CLI_UNSUPPORTED, "%s", s24_ctx_error(cli->ctx));
    if (most <= 2e-2 * largest) return CLI_OK;
    return cli_fail(cli, CLI_FORMAT, "%lld,%lld,%lld: dense and 2:4 products differ by %g",
                    (long long)l->x.rows, (long long)l->x.cols, (long long)l->y.cols,
                    most / largest);
}

/* ---- the table ------------------------------------------------------------------------------- */

enum { DENSE, SPARSE, SELECT, DENSE_WEIGHT, UNBIASED, TURNS };

static void add_row(json_t *rows, const layer *l, const double ms[TURNS])
{
    static const char *const names[TURNS] = {"dense_ms", "sparse_ms", "select_ms", "dense_dw_ms",
                                             "mvue_dw_ms"};
    const int64_t bytes = l->w.rows * l->w.cols * (int64_t)s24_dtype_bytes(l->w.dtype);
    json_t *row = json_object();
    json_object_set_new(row, "m", json_integer(l->x.rows));
    json_object_set_new(row, "k", json_integer(l->x.cols));
    json_object_set_new(row, "n", json_integer(l->y.cols));
    json_object_set_new(row, "dtype", json_string(s24_dtype_name(l->x.dtype)));
    for (int i = 0; i < TURNS; i++)
        json_object_set_new(row, names[i], cli_real(ms[i]));
    json_object_set_new(row, "ratio", cli_real(ms[DENSE] / (ms[SPARSE] + ms[SELECT])));
    json_object_set_new(row, "dense_bytes", json_integer(bytes));
    json_object_set_new(row, "sparse_bytes",
                        json_integer((json_int_t)(s24_device_weight_bytes(l->forward) +
                                                  s24_device_weight_bytes(l->back))));
    json_array_append_new(rows, row);
    if (l->bench->cli->json) return;
    printf("%lld,%lld,%lld  dense %.3f ms  2:4 %.3f  select and pack %.3f  ratio %.2f  dW %.3f, of "
           "2:4 gradients %.3f\n",
           (long long)l->x.rows, (long long)l->x.cols, (long long)l->y.cols, ms[DENSE], ms[SPARSE],
           ms[SELECT], ms[DENSE] / (ms[SPARSE] + ms[SELECT]), ms[DENSE_WEIGHT], ms[UNBIASED]);
    fflush(stdout);
}

static int measure(layer *l, const bench_train_plan *plan, json_t *rows)
{
    static int (*const runs[TURNS])(void *, int) = {run_dense, run_sparse, run_select, run_weight,
                                                    run_unbiased};
    gpu_contestant *all = calloc(TURNS, sizeof *all);
    double ms[TURNS];
    int code = all ? compare(l) : cli_fail(l->bench->cli, CLI_IO, "out of memory");
    for (int i = 0; i < TURNS && all; i++) {
        all[i].run = runs[i];
        all[i].state = l;
    }
    if (code == CLI_OK) code = gpu_interleave(l->bench, all, TURNS, plan->effort.rounds);
    for (int i = 0; i < TURNS && code == CLI_OK; i++)
        ms[i] = 1e3 * gpu_median(&all[i], plan->effort.rounds);
    if (code == CLI_OK) add_row(rows, l, ms);
    free(all);
    return code;
}

int bench_train_gpu(cli_app *cli, const bench_train_plan *plan, const bench_shape *shapes,
                    int count)
{
    bench_plan effort = {.effort = plan->effort};
    gpu_bench b = {.cli = cli, .plan = &effort};
    json_t *rows = json_array();
    int code = gpu_open(&b);
    for (int i = 0; i < count && code == CLI_OK; i++) {
        layer l = {.bench = &b};
        code = cli_status(cli, make_layer(&l, &shapes[i], plan->dtype));
        if (code == CLI_OK) code = measure(&l, plan, rows);
        free_layer(&l);
    }
    return gpu_close(&b, rows, code);
}
