// SPDX-License-Identifier: Apache-2.0
/* Tells the rows of bench --model: a table as they come, JSON, a chart. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench_model.h"

static json_t *bytes_json(int64_t bytes)
{
    return bytes < 0 ? json_null() : json_integer(bytes);
}

static json_t *peers_json(const model_row *row, const bench_torch *torch)
{
    json_t *list = json_array();
    for (int i = 0; i < row->peer_count; i++) {
        json_t *object = json_object();
        json_object_set_new(object, "name", json_string(row->peers[i].name));
        json_object_set_new(object, "version", json_string(torch->version));
        json_object_set_new(object, "ms", cli_real(1e3 * row->peers[i].times.median));
        json_object_set_new(object, "ratio", cli_real(row->peers[i].times.median / row->sparse));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *row_json(const model_row *row, const bench_torch *torch)
{
    json_t *object = json_object();
    json_object_set_new(object, "batch", json_integer(row->batch));
    json_object_set_new(object, "seq", json_integer(row->seq));
    if (row->shortest) json_object_set_new(object, "shortest", json_integer(row->shortest));
    json_object_set_new(object, "tokens", json_integer(row->tokens));
    json_object_set_new(object, "dtype", json_string(s24_dtype_name(row->dtype)));
    json_object_set_new(object, "threads", json_integer(row->threads));
    json_object_set_new(object, "dense_ms", cli_real(1e3 * row->dense));
    json_object_set_new(object, "sparse_ms", cli_real(1e3 * row->sparse));
    json_object_set_new(object, "ratio", cli_real(row->dense / row->sparse));
    bench_json_energy(object, "dense_mj", row->dense_joules);
    bench_json_energy(object, "sparse_mj", row->sparse_joules);
    json_object_set_new(object, "sparse_layers", json_integer(row->sparse_layers));
    json_object_set_new(object, "narrow_layers", json_integer(row->narrow_layers));
    json_object_set_new(object, "dense_narrow_layers", json_integer(row->dense_narrow_layers));
    json_object_set_new(object, "layers", json_integer(row->layers));
    json_object_set_new(object, "bytes", json_integer(row->bytes));
    json_object_set_new(object, "dense_bytes", json_integer(row->dense_bytes));
    json_object_set_new(object, "p50_ms", cli_real(1e3 * row->latency.p50));
    json_object_set_new(object, "p95_ms", cli_real(1e3 * row->latency.p95));
    json_object_set_new(object, "load_ms", cli_real(1e3 * row->sparse_residence.seconds));
    json_object_set_new(object, "dense_load_ms", cli_real(1e3 * row->dense_residence.seconds));
    json_object_set_new(object, "resident_bytes", bytes_json(row->sparse_residence.bytes));
    json_object_set_new(object, "dense_resident_bytes", bytes_json(row->dense_residence.bytes));
    json_object_set_new(object, "peers", peers_json(row, torch));
    return object;
}

/* "torch-compiled" has to fit. */
enum { PEER_COLUMN = 15 };

void model_print_head(cli_app *cli, const bench_model_plan *plan)
{
    const bench_torch *torch = plan->torch;
    const char *sparse = bench_sparse_name(&plan->source);
    const int energy = plan->effort.energy != NULL;
    char heads[3][16];
    snprintf(heads[0], sizeof heads[0], "%s ms", sparse);
    snprintf(heads[1], sizeof heads[1], "%s mJ", sparse);
    snprintf(heads[2], sizeof heads[2], "%s layers", sparse);
    cli_progress_clear(cli);
    if (cli->device) printf("%s\n", s24_device_text(cli->device));
    if (torch)
        cli_print(cli,
                  "PyTorch %s in the same windows; times in ms, \"best\": its least over our 2:4's",
                  torch->version);
    printf("%6s %6s %-5s %2s %10s %10s %7s %8s %9s %9s", "batch", "seq", "dtype", "T", "dense ms",
           heads[0], "ratio", "texts/s", "p50 ms", "p95 ms");
    if (energy) printf(" %9s %9s", "dense mJ", heads[1]);
    for (int i = 0; torch && i < torch->way_count; i++)
        printf(" %*s", PEER_COLUMN, torch->ways[i].name);
    printf("%s  %s\n", torch ? "    best" : "", heads[2]);
}

/* Prints a column for each way, empty where it could not run. */
static void print_peers(const model_row *row, const bench_torch *torch)
{
    double least = 0;
    for (int i = 0, at = 0; i < torch->way_count; i++) {
        if (at >= row->peer_count || row->peers[at].name != torch->ways[i].name) {
            printf(" %*s", PEER_COLUMN, "-");
            continue;
        }
        const double seconds = row->peers[at++].times.median;
        least = least > 0 && least < seconds ? least : seconds;
        printf(" %*.3f", PEER_COLUMN, 1e3 * seconds);
    }
    if (least > 0)
        printf(" %6.2fx", least / row->sparse);
    else
        printf(" %7s", "-");
}

/* Prints what a text or an image takes where that was asked for. */
static void print_energy(double joules)
{
    if (joules > 0)
        printf(" %9.4g", 1e3 * joules);
    else if (joules < 0)
        printf(" %9s", "-");
}

void model_print_row(const model_row *row, const bench_torch *torch)
{
    printf("%6lld %6lld %-5s %2lld %10.3f %10.3f %6.2fx %8.1f %9.3f %9.3f", (long long)row->batch,
           (long long)row->seq, s24_dtype_name(row->dtype), (long long)row->threads,
           1e3 * row->dense, 1e3 * row->sparse, row->dense / row->sparse,
           (double)row->batch / row->sparse, 1e3 * row->latency.p50, 1e3 * row->latency.p95);
    print_energy(row->dense_joules);
    print_energy(row->sparse_joules);
    if (torch) print_peers(row, torch);
    printf("  %lld of %lld", (long long)row->sparse_layers, (long long)row->layers);
    if (row->narrow_layers) printf(", %lld in 8 bits", (long long)row->narrow_layers);
    if (row->dense_narrow_layers) printf(", dense %lld", (long long)row->dense_narrow_layers);
    printf("\n");
    fflush(stdout);
}

/* Prints the loaded model's cost, a line per dtype. */
void model_print_residence(const bench_model_plan *plan, const model_row *row)
{
    const char *name = bench_sparse_name(&plan->source);
    const model_residence *dense = &row->dense_residence, *sparse = &row->sparse_residence;
    printf("%s: loaded in %.1f ms dense, %.1f ms %s", s24_dtype_name(row->dtype),
           1e3 * dense->seconds, 1e3 * sparse->seconds, name);
    if (sparse->bytes >= 0)
        printf("; holds %.1f MB dense, %.1f MB %s", 1e-6 * (double)dense->bytes,
               1e-6 * (double)sparse->bytes, name);
    if (row->dense_bytes)
        printf(", %.1f MB of it dense weights, where dense is faster",
               1e-6 * (double)row->dense_bytes);
    printf("\n");
}

int model_write_chart(cli_app *cli, const bench_model_plan *plan, const model_row *rows, int count)
{
    svg_bar *bars = calloc((size_t)count + 1, sizeof *bars);
    if (!bars) return cli_fail(cli, CLI_IO, "out of memory for the chart");
    for (int i = 0; i < count; i++) {
        snprintf(bars[i].label, sizeof bars[i].label, "%lld x %lld tokens  %s  %lldT",
                 (long long)rows[i].batch, (long long)rows[i].seq, s24_dtype_name(rows[i].dtype),
                 (long long)rows[i].threads);
        bars[i].value = rows[i].dense / rows[i].sparse;
        snprintf(bars[i].note, sizeof bars[i].note, "%.2f", bars[i].value);
    }
    const svg_chart chart = {.title = "A whole model, dense against 2:4",
                             .subtitle = plan->source.model,
                             .axis = "dense time / 2:4 time (above 1: 2:4 is faster)",
                             .bars = bars,
                             .count = count,
                             .mark = 1};
    int code = svg_write(cli, plan->svg, &chart);
    free(bars);
    return code;
}

int model_print_json(cli_app *cli, const bench_model_plan *plan, const model_row *rows, int count)
{
    json_t *object = cli_json(), *list = json_array();
    bench_json_machine(cli, object);
    if (cli->device) json_object_set_new(object, "gpu", json_string(s24_device_text(cli->device)));
    json_object_set_new(object, "model", json_string(plan->source.model));
    bench_json_format(object, &plan->source.format);
    for (int i = 0; i < count; i++)
        json_array_append_new(list, row_json(&rows[i], plan->torch));
    json_object_set_new(object, "rows", list);
    return cli_json_print(cli, object);
}
