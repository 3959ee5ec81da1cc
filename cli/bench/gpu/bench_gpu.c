// SPDX-License-Identifier: Apache-2.0
/*
 * Measures products on a GPU. A GPU slows down as it warms, and what it did before counts for
 * milliseconds: so every contestant's turn is a window after a pause, in rounds, and only ratios of
 * one run mean anything. Operands are many enough that no cache keeps them from run to run, and a
 * window is one graph on all sides, so that no host's calls are timed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpu/bench_gpu.h"

#define PEER(name) extern const gpu_peer gpu_peer_##name;
#include "bench/gpu/bench_gpu_peers.def"
#undef PEER

static const gpu_peer *const peers[] = {
#define PEER(name) &gpu_peer_##name,
#include "bench/gpu/bench_gpu_peers.def"
#undef PEER
};

enum { PEERS = (int)(sizeof peers / sizeof *peers) };

const gpu_peer *gpu_peer_at(int index)
{
    return index >= 0 && index < PEERS ? peers[index] : NULL;
}

static void row_fill(bench_row *row, const gpu_cell *c, const gpu_contestant *ours)
{
    const bench_shape s = c->problem.shape;
    const int64_t rounds = c->bench->plan->effort.rounds;
    row->shape = s;
    row->dtype = c->problem.dtype;
    row->scheme = c->scheme;
    row->activations = c->problem.y_dtype;
    snprintf(row->kernel, sizeof row->kernel, "cuda %s",
             c->scheme ? "integers" : s24_device_linear_tile(c->bench->device, c->weights[0], s.m));
    row->ours = (bench_times){gpu_median(ours, rounds), ours->samples[0], ours->samples[rounds - 1],
                              ours->joules};
    row->flops = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    row->bytes = (double)(c->scheme ? s24_device_integers_bytes(c->integers[0])
                                    : s24_device_weight_bytes(c->weights[0])) +
                 (double)s24_dtype_bytes(row->dtype) * (double)s.m * (double)s.k +
                 (double)s24_dtype_bytes(row->activations) * (double)s.m * (double)s.n;
}

static int measure(gpu_cell *c, bench_row *row)
{
    gpu_bench *b = c->bench;
    gpu_contestant *all = calloc(1 + PEERS, sizeof *all);
    const gpu_library *who[PEERS];
    void *products[PEERS];
    int count = 0;
    if (!all) return cli_fail(b->cli, CLI_IO, "out of memory");
    all[0] = (gpu_contestant){.run = gpu_run_ours, .state = c};
    char wrong[256];
    int code = gpu_check(c, &all[0], "sparse24", wrong, sizeof wrong);
    if (code == CLI_NO) code = cli_fail(b->cli, CLI_NO, "%s", wrong);
    for (int i = 0; i < b->library_count && code == CLI_OK; i++) {
        void *product = b->libraries[i].peer->prepare(b->libraries[i].library, &c->problem);
        if (!product) continue;
        gpu_contestant *next = &all[1 + count];
        next->run = b->libraries[i].peer->run;
        next->state = product;
        if (gpu_check(c, next, b->libraries[i].peer->name, wrong, sizeof wrong) != CLI_OK) {
            cli_note(b->cli, "%s", wrong);
            b->libraries[i].peer->release(product);
            continue;
        }
        who[count] = &b->libraries[i];
        products[count++] = product;
    }
    if (code == CLI_OK) code = gpu_interleave(b, all, 1 + count, b->plan->effort.rounds);
    if (code == CLI_OK) row_fill(row, c, &all[0]);
    for (int i = 0; i < count; i++) {
        double seconds = gpu_median(&all[1 + i], b->plan->effort.rounds);
        double ratio = row->ours.median > 0 ? seconds / row->ours.median : 0;
        row->peers[i] = (bench_peer_result){.name = who[i]->peer->name,
                                            .version = who[i]->version,
                                            .seconds = seconds,
                                            .least = all[1 + i].samples[0],
                                            .joules = all[1 + i].joules,
                                            .ratio = ratio};
        if (i == 0 || ratio < row->ratio) row->ratio = ratio;
        who[i]->peer->release(products[i]);
    }
    row->peer_count = count;
    free(all);
    return code;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* A column of energy where it was asked for. */
static void print_energy(double joules, int width)
{
    if (joules > 0)
        printf(" %*.3g mJ", width, 1e3 * joules);
    else if (joules < 0)
        printf(" %*s mJ", width, "-");
}

static void print_row(const bench_row *row)
{
    double seconds = row->ours.median;
    char dtypes[24];
    snprintf(dtypes, sizeof dtypes, "%s>%s", bench_dtype_name(row->dtype, row->scheme),
             s24_dtype_name(row->activations));
    printf("%6lld %6lld %6lld %-9s %9.4f %8.1f %7.1f", (long long)row->shape.m,
           (long long)row->shape.k, (long long)row->shape.n, dtypes, 1e3 * seconds,
           1e-12 * row->flops / seconds, 1e-9 * row->bytes / seconds);
    print_energy(row->ours.joules, 7);
    for (int i = 0; i < row->peer_count; i++) {
        printf("  %s %.2fx", row->peers[i].name, row->peers[i].ratio);
        print_energy(row->peers[i].joules, 1);
    }
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
        printf("%s\n%6s %6s %6s %-9s %9s %8s %7s%s  peers: their time over ours\n", table->gpu, "M",
               "K", "N", "dtype", "ms", "TFLOP/s", "GB/s",
               plan->effort.energy ? "     energy" : "");
    for (int64_t i = 0; i < total && code == CLI_OK; i++) {
        bench_row *row = &table->rows[table->count];
        const int d = (int)(i / plan->shape_count);
        *c = (gpu_cell){.bench = b, .scheme = plan->schemes[d]};
        code = cli_status(b->cli, s24_ctx_progress(b->cli->ctx, "measuring", i, total));
        if (code == CLI_OK)
            code = cli_status(b->cli, gpu_cell_fill(c, plan->shapes[i % plan->shape_count],
                                                    c->scheme ? S24_BF16 : plan->dtypes[d]));
        if (code == CLI_OK && plan->tune && !c->scheme) code = gpu_tune(c, row);
        if (code == CLI_OK) code = measure(c, row);
        gpu_cell_free(c);
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
        l->library = peers[i]->open(b, l->version, sizeof l->version);
        if (l->library)
            b->library_count++;
        else
            cli_note(b->cli, "%s is not here; compared without it", peers[i]->name);
    }
}

int gpu_open(gpu_bench *b)
{
    const char *colon = strchr(b->cli->common->device, ':');
    const int code = cli_device(b->cli, &b->device);
    if (code != CLI_OK || !gpu_driver_open(&b->driver, colon ? atoi(colon + 1) : 0)) return code;
    return cli_fail(b->cli, CLI_UNSUPPORTED, "CUDA's driver cannot be used for timing");
}

int gpu_close(gpu_bench *b, json_t *rows, int code)
{
    if (b->driver.handle) gpu_driver_close(&b->driver);
    if (code != CLI_OK || !b->cli->json) {
        json_decref(rows);
        return code;
    }
    json_t *object = cli_json();
    bench_json_machine(b->cli, object);
    json_object_set_new(object, "gpu", json_string(s24_device_text(b->device)));
    json_object_set_new(object, "rows", rows);
    return cli_json_print(b->cli, object);
}

int bench_gpu_products(cli_app *cli, bench_table *table, const bench_plan *plan, const char *list)
{
    gpu_bench *b = calloc(1, sizeof *b);
    if (!b) return cli_fail(cli, CLI_IO, "out of memory");
    b->cli = cli;
    b->plan = plan;
    int code = gpu_open(b);
    if (code == CLI_OK) cli_tiles_load(cli, b->device);
    if (code == CLI_OK) {
        open_peers(b, list);
        code = run_cells(b, table);
    }
    for (int i = 0; i < b->library_count; i++)
        b->libraries[i].peer->close(b->libraries[i].library);
    if (b->driver.handle) gpu_driver_close(&b->driver);
    free(b);
    return code;
}
