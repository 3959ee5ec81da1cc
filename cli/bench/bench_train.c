// SPDX-License-Identifier: Apache-2.0
/*
 * Measures bench --train-linear: one layer's step of training on the CPU, forward, dX and dW, dense
 * in the first peer that is here and with W 2:4 along both sides; choosing and packing W and Wᵀ
 * alone; dW of 2:4 gradients. dW of a step is the peer's in both. Transposes of what is dense are
 * there before; outputs are compared first.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

enum { FORWARD, BACK, WEIGHT, PRODUCTS };

typedef struct layer {
    cli_app *cli;
    bench_shape shape;
    const bench_library *dense;
    void *products[PRODUCTS];
    float *memory, *x, *w, *wt, *dy, *dyt, *xt, *y, *dx, *dw;
    s24_matrix *forward, *back;
} layer;

static s24_dense view(float *data, int64_t rows, int64_t cols)
{
    return (s24_dense){data, S24_F32, rows, cols, 0};
}

/* ---- what has its turn ----------------------------------------------------------------------- */

static int run_product(const layer *l, int which)
{
    float *const outputs[PRODUCTS] = {l->y, l->dx, l->dw};
    return l->dense->peer->run(l->products[which], outputs[which]);
}

static int run_dense(void *state)
{
    const layer *l = state;
    return run_product(l, FORWARD) || run_product(l, BACK) || run_product(l, WEIGHT);
}

static int run_weight(void *state)
{
    return run_product(state, WEIGHT);
}

static int run_both(const layer *l)
{
    const bench_shape *s = &l->shape;
    const s24_dense x = view(l->x, s->m, s->k), y = view(l->y, s->m, s->n);
    const s24_dense dy = view(l->dy, s->m, s->n), dx = view(l->dx, s->m, s->k);
    return s24_linear(l->cli->ctx, &y, &x, l->forward, NULL) != S24_OK ||
           s24_linear(l->cli->ctx, &dx, &dy, l->back, NULL) != S24_OK;
}

static int run_sparse(void *state)
{
    return run_both(state) || run_product(state, WEIGHT);
}

static s24_status select_pair(s24_matrix **forward, s24_matrix **back, const layer *l)
{
    const s24_dense w = view(l->w, l->shape.n, l->shape.k);
    const s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_TILE_GREEDY};
    return s24_matrix_create_pair(forward, back, l->cli->ctx, &w, &opts);
}

static int run_select(void *state)
{
    s24_matrix *forward, *back;
    if (select_pair(&forward, &back, state) != S24_OK) return 1;
    s24_matrix_destroy(forward);
    s24_matrix_destroy(back);
    return 0;
}

static int run_unbiased(void *state)
{
    const layer *l = state;
    const bench_shape *s = &l->shape;
    const s24_dense dy = view(l->dy, s->m, s->n), x = view(l->x, s->m, s->k);
    const s24_dense dw = view(l->dw, s->n, s->k);
    const s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MVUE24, .transpose = 1};
    s24_matrix *matrix;
    if (s24_matrix_create(&matrix, l->cli->ctx, &dy, &opts) != S24_OK) return 1;
    const s24_status status = s24_mm_sparse_dense(l->cli->ctx, &dw, matrix, &x);
    s24_matrix_destroy(matrix);
    return status != S24_OK;
}

/* ---- one layer ------------------------------------------------------------------------------- */

static void transpose(float *to, const float *from, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[c * rows + r] = from[r * cols + c];
}

static void fill(float *to, int64_t count, uint64_t seed)
{
    uint32_t words[4];
    for (int64_t i = 0; i < count; i++) {
        s24_random(words, seed, (uint64_t)i);
        to[i] = (float)words[0] * (2.0f / 4294967296.0f) - 1.0f;
    }
}

/* The weights become what the selection leaves of them, so that dense products give the same. */
static int make_weights(layer *l)
{
    const bench_shape *s = &l->shape;
    const s24_dense w = view(l->w, s->n, s->k);
    s24_status status = select_pair(&l->forward, &l->back, l);
    if (status == S24_OK) status = s24_matrix_to_dense(l->cli->ctx, &w, l->forward);
    transpose(l->wt, l->w, s->n, s->k);
    return cli_status(l->cli, status);
}

static int make_products(layer *l)
{
    const bench_shape *s = &l->shape;
    const bench_problem problems[PRODUCTS] = {
        {.shape = {s->m, s->k, s->n}, .x = l->x, .w = l->w},
        {.shape = {s->m, s->n, s->k}, .x = l->dy, .w = l->wt},
        {.shape = {s->n, s->m, s->k}, .x = l->dyt, .w = l->xt}};
    for (int i = 0; i < PRODUCTS; i++) {
        bench_problem problem = problems[i];
        problem.ctx = l->cli->ctx;
        problem.dtype = problem.activations = S24_F32;
        problem.threads = s24_ctx_threads(l->cli->ctx);
        l->products[i] = l->dense->peer->prepare(l->dense->library, &problem);
        if (!l->products[i])
            return cli_fail(l->cli, CLI_UNSUPPORTED, "%s has no product of %lld,%lld,%lld",
                            l->dense->peer->name, (long long)problem.shape.m,
                            (long long)problem.shape.k, (long long)problem.shape.n);
    }
    return CLI_OK;
}

static int make_layer(layer *l)
{
    const bench_shape *s = &l->shape;
    const int64_t x = s->m * s->k, w = s->n * s->k, y = s->m * s->n;
    l->memory = s24_ctx_alloc(l->cli->ctx, (size_t)(3 * x + 3 * w + 3 * y) * sizeof *l->memory);
    if (!l->memory) return cli_fail(l->cli, CLI_IO, "out of memory for a layer");
    float **const parts[] = {&l->x, &l->xt, &l->dx, &l->w, &l->wt, &l->dw, &l->y, &l->dy, &l->dyt};
    float *at = l->memory;
    for (int i = 0; i < 9; i++) {
        *parts[i] = at;
        at += i < 3 ? x : i < 6 ? w : y;
    }
    fill(l->x, x, 1);
    fill(l->w, w, 2);
    fill(l->dy, y, 3);
    transpose(l->xt, l->x, s->m, s->k);
    transpose(l->dyt, l->dy, s->m, s->n);
    const int code = make_weights(l);
    return code == CLI_OK ? make_products(l) : code;
}

static void free_layer(layer *l)
{
    for (int i = 0; i < PRODUCTS; i++)
        if (l->products[i]) l->dense->peer->release(l->products[i]);
    s24_matrix_destroy(l->forward);
    s24_matrix_destroy(l->back);
    s24_ctx_free(l->cli->ctx, l->memory);
}

static double difference(const float *a, const float *b, int64_t count)
{
    double most = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)a[i]));
    }
    return most / fmax(largest, 1e-30);
}

/* Forward and dX of the dense products and of ours; x and dy's transposes are room for copies. */
static int compare(layer *l)
{
    const bench_shape *s = &l->shape;
    const size_t y = (size_t)(s->m * s->n) * sizeof *l->y, x = (size_t)(s->m * s->k) * sizeof *l->x;
    float *copy = s24_ctx_alloc(l->cli->ctx, y + x);
    if (!copy) return cli_fail(l->cli, CLI_IO, "out of memory for a layer");
    int failed = run_dense(l);
    memcpy(copy, l->y, y);
    memcpy((char *)copy + y, l->dx, x);
    failed = failed || run_both(l);
    const double wrong = failed ? INFINITY
                                : fmax(difference(copy, l->y, s->m * s->n),
                                       difference(copy + s->m * s->n, l->dx, s->m * s->k));
    s24_ctx_free(l->cli->ctx, copy);
    if (wrong < 1e-4) return CLI_OK;
    return cli_fail(l->cli, CLI_FORMAT, "%lld,%lld,%lld: dense and 2:4 products differ by %g",
                    (long long)s->m, (long long)s->k, (long long)s->n, wrong);
}

/* ---- the table ------------------------------------------------------------------------------- */

enum { DENSE, SPARSE, SELECT, DENSE_WEIGHT, UNBIASED, TURNS };

static void add_row(json_t *rows, const layer *l, const bench_turn *turns)
{
    static const char *const names[TURNS] = {"dense_ms", "sparse_ms", "select_ms", "dense_dw_ms",
                                             "mvue_dw_ms"};
    const bench_shape *s = &l->shape;
    json_t *row = json_object();
    json_object_set_new(row, "m", json_integer(s->m));
    json_object_set_new(row, "k", json_integer(s->k));
    json_object_set_new(row, "n", json_integer(s->n));
    json_object_set_new(row, "threads", json_integer(s24_ctx_threads(l->cli->ctx)));
    json_object_set_new(row, "peer", json_string(l->dense->peer->name));
    for (int i = 0; i < TURNS; i++)
        json_object_set_new(row, names[i], cli_real(1e3 * turns[i].times.median));
    json_object_set_new(row, "ratio",
                        cli_real(turns[DENSE].times.median /
                                 (turns[SPARSE].times.median + turns[SELECT].times.median)));
    json_object_set_new(row, "dense_bytes", json_integer(s->n * s->k * (int64_t)sizeof(float)));
    json_object_set_new(
        row, "sparse_bytes",
        json_integer((json_int_t)(s24_matrix_bytes(l->forward) + s24_matrix_bytes(l->back))));
    json_array_append_new(rows, row);
}

static void print_row(const layer *l, const bench_turn *turns)
{
    char shape[64];
    snprintf(shape, sizeof shape, "%lld,%lld,%lld", (long long)l->shape.m, (long long)l->shape.k,
             (long long)l->shape.n);
    printf("%-18s dense %8.3f ms  2:4 %8.3f  select and pack %8.3f  ratio %5.2f  dW %8.3f, of "
           "2:4 gradients %8.3f\n",
           shape, 1e3 * turns[DENSE].times.median, 1e3 * turns[SPARSE].times.median,
           1e3 * turns[SELECT].times.median,
           turns[DENSE].times.median / (turns[SPARSE].times.median + turns[SELECT].times.median),
           1e3 * turns[DENSE_WEIGHT].times.median, 1e3 * turns[UNBIASED].times.median);
}

static int measure(layer *l, const bench_train_plan *plan, json_t *rows)
{
    bench_turn turns[TURNS] = {{.run = run_dense, .state = l},
                               {.run = run_sparse, .state = l},
                               {.run = run_select, .state = l},
                               {.run = run_weight, .state = l},
                               {.run = run_unbiased, .state = l}};
    int code = make_layer(l);
    if (code == CLI_OK) code = compare(l);
    if (code == CLI_OK) code = bench_interleave(l->cli, turns, TURNS, &plan->effort);
    if (code == CLI_OK && !l->cli->json) print_row(l, turns);
    if (code == CLI_OK) add_row(rows, l, turns);
    free_layer(l);
    return code;
}

/* A GPU's rows are a multiple of 16 bytes. */
static int check_shapes(cli_app *cli, const bench_shape *shapes, int count)
{
    const int by = cli_on_cpu(cli) ? 4 : 8;
    for (int i = 0; i < count; i++)
        if (shapes[i].m % by || shapes[i].n % by || shapes[i].k % by)
            return cli_fail(cli, CLI_USAGE,
                            "option --train-linear: %lld,%lld,%lld; tokens, inputs and outputs "
                            "that %d divides are expected",
                            (long long)shapes[i].m, (long long)shapes[i].k, (long long)shapes[i].n,
                            by);
    return CLI_OK;
}

static int report(cli_app *cli, json_t *rows)
{
    json_t *object = cli_json();
    bench_json_machine(cli, object);
    json_object_set(object, "rows", rows);
    return cli_json_print(cli, object);
}

static int measure_all(cli_app *cli, const bench_train_plan *plan, const bench_shape *shapes,
                       int count)
{
    bench_library libraries[BENCH_MAX_PEERS];
    int peers = 0, code = CLI_OK;
    json_t *rows = json_array();
    bench_peers_open(cli, libraries, &peers, plan->peers);
    if (!peers)
        code = cli_fail(cli, CLI_UNSUPPORTED,
                        "--train-linear needs a peer for what is dense, and none of --peers %s is "
                        "here",
                        plan->peers);
    for (int i = 0; i < count * plan->thread_count && code == CLI_OK; i++) {
        layer l = {.cli = cli, .shape = shapes[i % count], .dense = &libraries[0]};
        s24_ctx_set_threads(cli->ctx, (int)plan->threads[i / count]);
        code = measure(&l, plan, rows);
    }
    /* Before peers go: some leave variables of the environment in their own memory. */
    if (code == CLI_OK && cli->json) code = report(cli, rows);
    bench_peers_close(libraries, peers);
    json_decref(rows);
    return code;
}

int bench_train(cli_app *cli, const bench_train_plan *plan)
{
    bench_shape shapes[BENCH_MAX_SHAPES];
    int count;
    int code = bench_shapes_parse(cli, shapes, &count, "train-linear", plan->shapes);
    if (code == CLI_OK) code = check_shapes(cli, shapes, count);
    if (code != CLI_OK) return code;
    return cli_on_cpu(cli) ? measure_all(cli, plan, shapes, count)
                           : bench_train_gpu(cli, plan, shapes, count);
}
