// SPDX-License-Identifier: Apache-2.0
/* Tells what bench found: a table for people, an object for programs, a chart of the ratios. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "bench/bench.h"

void bench_json_machine(cli_app *cli, json_t *object)
{
    struct utsname system;
    char model[128], date[32] = "";
    time_t now = time(NULL);
    struct tm utc;
    memset(&system, 0, sizeof system);
    uname(&system);
    cli_cpu_model(model, sizeof model);
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_t *machine = json_object();
    json_object_set_new(machine, "system", json_string(system.sysname));
    json_object_set_new(machine, "release", json_string(system.release));
    json_object_set_new(machine, "architecture", json_string(system.machine));
    json_object_set_new(machine, "busy", json_integer(cli->busy));
    json_t *cpu = json_object();
    json_object_set_new(cpu, "model", json_string(model));
    json_object_set_new(cpu, "isa", json_string(s24_cpu_name(s24_ctx_cpu(cli->ctx))));
    json_object_set_new(cpu, "units", json_string(cli_cpu_units(s24_ctx_cpu(cli->ctx))));
    const uint32_t dense = cli_on_cpu(cli) ? s24_dense_engine_cpu(cli->ctx) : 0;
    json_object_set_new(cpu, "dense_isa", dense ? json_string(s24_cpu_name(dense)) : json_null());
    json_t *versions = json_object();
    json_object_set_new(versions, "sparse24", json_string(s24_version()));
    json_object_set_new(versions, "dense_engine", json_string(s24_dense_engine()));
    json_object_set_new(object, "date", json_string(date));
    json_object_set_new(object, "machine", machine);
    json_object_set_new(object, "cpu", cpu);
    json_object_set_new(object, "versions", versions);
}

const char *bench_dtype_name(s24_dtype dtype, const char *scheme)
{
    return scheme ? scheme : s24_dtype_name(dtype);
}

void bench_json_energy(json_t *object, const char *key, double joules)
{
    if (joules != 0)
        json_object_set_new(object, key, joules > 0 ? cli_real(1e3 * joules) : json_null());
}

static json_t *row_json(const bench_row *row)
{
    double seconds = row->ours.median;
    json_t *object = json_object();
    json_object_set_new(object, "m", json_integer(row->shape.m));
    json_object_set_new(object, "k", json_integer(row->shape.k));
    json_object_set_new(object, "n", json_integer(row->shape.n));
    json_object_set_new(object, "dtype", json_string(bench_dtype_name(row->dtype, row->scheme)));
    json_object_set_new(object, "activations", json_string(s24_dtype_name(row->activations)));
    json_object_set_new(object, "threads", json_integer(row->threads));
    json_object_set_new(object, "kernel", json_string(row->kernel));
    if (row->format) json_object_set_new(object, "format", json_string(row->format));
    if (row->format) json_object_set_new(object, "zeros", cli_real(1 - row->kept));
    json_object_set_new(object, "ms", cli_real(1e3 * seconds));
    json_object_set_new(object, "ms_min", cli_real(1e3 * row->ours.min));
    json_object_set_new(object, "ms_max", cli_real(1e3 * row->ours.max));
    json_object_set_new(object, "gflops", cli_real(1e-9 * row->flops / seconds));
    json_object_set_new(object, "gbps", cli_real(1e-9 * row->bytes / seconds));
    bench_json_energy(object, "mj", row->ours.joules);
    json_object_set_new(object, "limit_share", cli_real(row->limit_share));
    json_object_set_new(object, "read_gbps",
                        row->read > 0 ? cli_real(1e-9 * row->read) : json_null());
    json_t *peers = json_array();
    for (int i = 0; i < row->peer_count; i++) {
        json_t *peer = json_object();
        json_object_set_new(peer, "name", json_string(row->peers[i].name));
        json_object_set_new(peer, "version", json_string(row->peers[i].version));
        json_object_set_new(peer, "ms", cli_real(1e3 * row->peers[i].seconds));
        json_object_set_new(peer, "ms_min", cli_real(1e3 * row->peers[i].least));
        json_object_set_new(peer, "ratio", cli_real(row->peers[i].ratio));
        bench_json_energy(peer, "mj", row->peers[i].joules);
        json_array_append_new(peers, peer);
    }
    json_object_set_new(object, "peers", peers);
    if (row->tiles) json_object_set(object, "tiles", row->tiles);
    return object;
}

int bench_json_products(cli_app *cli, const bench_table *table)
{
    json_t *object = cli_json();
    bench_json_machine(cli, object);
    if (*table->gpu) json_object_set_new(object, "gpu", json_string(table->gpu));
    json_t *limits = json_array();
    for (int i = 0; i < table->limit_count; i++) {
        const bench_limit *limit = &table->limits[i];
        json_t *entry = json_object();
        json_object_set_new(entry, "dtype",
                            json_string(bench_dtype_name(limit->dtype, limit->scheme)));
        json_object_set_new(entry, "threads", json_integer(limit->threads));
        json_object_set_new(entry, "gflops", cli_real(1e-9 * limit->flops));
        json_object_set_new(entry, "gbps", cli_real(1e-9 * limit->bytes));
        json_array_append_new(limits, entry);
    }
    json_object_set_new(object, "limits", limits);
    json_t *rows = json_array();
    for (int i = 0; i < table->count; i++)
        json_array_append_new(rows, row_json(&table->rows[i]));
    json_object_set_new(object, "rows", rows);
    return cli_json_print(cli, object);
}

/* Is the width of a peer's column. */
static int width_of(const char *peer)
{
    const int width = (int)strlen(peer);
    return width > 9 ? width : 9;
}

void bench_print_head(const bench_plan *plan)
{
    printf("%6s %6s %6s %-9s %2s %9s %8s %7s %6s", "M", "K", "N", "dtype", "T", "ms", "GFLOP/s",
           "GB/s", "limit");
    for (int i = 0; i < plan->library_count; i++)
        printf(" %9s", plan->libraries[i].peer->name);
    printf("  kernel\n");
}

/* Prints the peer's ratio under its own heading; not every peer has every product. */
static void print_ratio(const bench_row *row, const char *peer)
{
    for (int i = 0; i < row->peer_count; i++)
        if (strcmp(row->peers[i].name, peer) == 0) {
            printf(" %*.2fx", width_of(peer) - 1, row->peers[i].ratio);
            return;
        }
    printf(" %*s", width_of(peer), "-");
}

void bench_print_row(const bench_plan *plan, const bench_row *row)
{
    double seconds = row->ours.median;
    printf("%6lld %6lld %6lld %-9s %2d %9.4f %8.1f %7.1f %5.0f%%", (long long)row->shape.m,
           (long long)row->shape.k, (long long)row->shape.n,
           bench_dtype_name(row->dtype, row->scheme), row->threads, 1e3 * seconds,
           1e-9 * row->flops / seconds, 1e-9 * row->bytes / seconds, 100 * row->limit_share);
    for (int i = 0; i < plan->library_count; i++)
        print_ratio(row, plan->libraries[i].peer->name);
    printf("  %s\n", row->kernel);
    fflush(stdout);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_print_summary(const bench_table *table)
{
    double *ratios = calloc((size_t)table->count + 1, sizeof *ratios);
    int count = 0;
    for (int i = 0; ratios && i < table->count; i++)
        if (table->rows[i].peer_count) ratios[count++] = table->rows[i].ratio;
    for (int i = 0; i < table->limit_count; i++)
        printf("limit %s, %d %s: %.1f GFLOP/s, %.1f GB/s\n",
               bench_dtype_name(table->limits[i].dtype, table->limits[i].scheme),
               table->limits[i].threads, cli_plural(table->limits[i].threads, "thread", "threads"),
               1e-9 * table->limits[i].flops, 1e-9 * table->limits[i].bytes);
    if (count) {
        qsort(ratios, (size_t)count, sizeof *ratios, compare);
        printf("to the best peer: median %.2fx, worst %.2fx of %d\n",
               0.5 * (ratios[count / 2] + ratios[(count - 1) / 2]), ratios[0], count);
    }
    free(ratios);
}

int bench_svg_products(cli_app *cli, const char *path, const bench_table *table)
{
    svg_bar *bars = calloc((size_t)table->count + 1, sizeof *bars);
    if (!bars) return cli_fail(cli, CLI_IO, "out of memory for the chart");
    int with_peers = 0;
    for (int i = 0; i < table->count; i++)
        with_peers |= table->rows[i].peer_count;
    for (int i = 0; i < table->count; i++) {
        const bench_row *row = &table->rows[i];
        snprintf(bars[i].label, sizeof bars[i].label, "%lld x %lld x %lld  %s  %dT",
                 (long long)row->shape.m, (long long)row->shape.k, (long long)row->shape.n,
                 bench_dtype_name(row->dtype, row->scheme), row->threads);
        bars[i].value = with_peers ? row->ratio : row->limit_share;
        snprintf(bars[i].note, sizeof bars[i].note, "%.2f", bars[i].value);
    }
    char model[128], isa[64], subtitle[256];
    cli_cpu_model(model, sizeof model);
    snprintf(subtitle, sizeof subtitle, "%s, %s; M x K x N, medians of interleaved runs", model,
             cli_cpu_text(isa, sizeof isa, s24_ctx_cpu(cli->ctx)));
    const svg_chart chart = {
        .title = with_peers ? "2:4 linear layers against the best dense peer"
                            : "2:4 linear layers against the machine's limit",
        .subtitle = subtitle,
        .axis = with_peers
                    ? "time of the best peer / time of sparse24 (above 1: sparse24 is faster)"
                    : "share of the limit",
        .bars = bars,
        .count = table->count,
        .mark = 1};
    int code = svg_write(cli, path, &chart);
    free(bars);
    return code;
}
