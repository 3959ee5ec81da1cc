// SPDX-License-Identifier: Apache-2.0
/* Tells the rows of bench --generate: a table as they come, JSON, a chart. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench_generate.h"
#include "json_name.h"

static double tokens_per_second(const generate_row *row, const generate_side *side)
{
    return (double)row->batch / side->step;
}

/* ---- a table --------------------------------------------------------------------------------- */

void generate_print_head(const bench_generate_plan *plan, const bench_decoder *peer)
{
    const char *sparse = bench_sparse_name(&plan->source);
    printf("prompts of %lld tokens, %lld new ones; tok/s of all texts, prompts in ms",
           (long long)plan->prompt_tokens, (long long)plan->new_tokens);
    if (peer) printf("; %s %s in the same turns", peer->child.peer, peer->version);
    printf("\n%6s %-9s %2s %9s %9s %7s %6s %10s %10s %7s", "batch", "dtype", "T", "dense", sparse,
           "ratio", "limit", "prompts", sparse, "ratio");
    if (peer) printf(" %-6s %9s %7s %10s %7s", "of", peer->child.peer, "ratio", "prompts", "ratio");
    printf("  %s layers\n", sparse);
}

/* Dense and 2:4, or 2:4 alone. */
static void print_sides(const generate_row *row)
{
    const generate_side *dense = &row->dense, *sparse = &row->sparse;
    if (row->alone)
        printf(" %9s %9.2f %7s %5.0f%% %10s %10.1f %7s", "-", tokens_per_second(row, sparse), "-",
               1e2 * sparse->limit_share, "-", 1e3 * sparse->prefill, "-");
    else
        printf(" %9.2f %9.2f %6.2fx %5.0f%% %10.1f %10.1f %6.2fx", tokens_per_second(row, dense),
               tokens_per_second(row, sparse), dense->step / sparse->step,
               1e2 * sparse->limit_share, 1e3 * dense->prefill, 1e3 * sparse->prefill,
               dense->prefill / sparse->prefill);
}

void generate_print_row(const generate_row *row, const bench_decoder *peer)
{
    const generate_side *sparse = &row->sparse;
    printf("%6lld %-9s %2lld", (long long)row->batch, row->form, (long long)row->threads);
    print_sides(row);
    if (row->has_peer)
        printf(" %-6s %9.2f %6.2fx %10.1f %6.2fx", row->peer_type,
               tokens_per_second(row, &row->peer), row->peer.step / sparse->step,
               1e3 * row->peer.prefill, row->peer.prefill / sparse->prefill);
    else if (peer)
        printf(" %-6s %9s %7s %10s %7s", "-", "-", "-", "-", "-");
    printf("  %lld of %lld\n", (long long)row->sparse_layers, (long long)row->layers);
    fflush(stdout);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *side_json(const generate_row *row, const generate_side *side)
{
    json_t *object = json_object();
    json_object_set_new(object, "tokens_per_second", cli_real(tokens_per_second(row, side)));
    json_object_set_new(object, "step_ms", cli_real(1e3 * side->step));
    json_object_set_new(object, "prefill_ms", cli_real(1e3 * side->prefill));
    json_object_set_new(object, "resident_bytes",
                        side->resident_bytes < 0 ? json_null()
                                                 : json_integer(side->resident_bytes));
    if (!side->step_bytes) return object;
    json_object_set_new(object, "step_bytes", json_integer(side->step_bytes));
    json_object_set_new(object, "limit_share", cli_real(side->limit_share));
    return object;
}

static json_t *peers_json(const generate_row *row, const bench_decoder *peer)
{
    json_t *list = json_array();
    if (!row->has_peer) return list;
    json_t *object = side_json(row, &row->peer);
    json_object_set_new(object, "name", json_string(peer->child.peer));
    json_object_set_new(object, "version", json_string(peer->version));
    json_object_set_new(object, "type", json_string(row->peer_type));
    json_object_set_new(object, "ratio", cli_real(row->peer.step / row->sparse.step));
    json_object_set_new(object, "prefill_ratio", cli_real(row->peer.prefill / row->sparse.prefill));
    json_array_append_new(list, object);
    return list;
}

/* What 2:4 has after the first prompt: the same wherever the model is. */
static json_t *tokens_json(const generate_row *row)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < row->id_count; i++)
        json_array_append_new(list, json_integer((json_int_t)row->ids[i]));
    return list;
}

static json_t *row_json(const generate_row *row, const bench_decoder *peer)
{
    json_t *object = json_object();
    json_object_set_new(object, "batch", json_integer(row->batch));
    json_object_set_new(object, "dtype", json_string(row->form));
    json_object_set_new(object, "threads", json_integer(row->threads));
    json_object_set_new(object, "dense", row->alone ? json_null() : side_json(row, &row->dense));
    json_object_set_new(object, "sparse", side_json(row, &row->sparse));
    json_object_set_new(object, "ratio",
                        row->alone ? json_null() : cli_real(row->dense.step / row->sparse.step));
    json_object_set_new(object, "prefill_ratio",
                        row->alone ? json_null()
                                   : cli_real(row->dense.prefill / row->sparse.prefill));
    json_object_set_new(object, "tokens", tokens_json(row));
    json_object_set_new(object, "read_gbps", cli_real(1e-9 * row->read));
    json_object_set_new(object, "sparse_layers", json_integer(row->sparse_layers));
    json_object_set_new(object, "layers", json_integer(row->layers));
    json_object_set_new(object, "peers", peers_json(row, peer));
    return object;
}

int generate_print_json(cli_app *cli, const bench_generate_plan *plan, const bench_decoder *peer,
                        const generate_row *rows, int count)
{
    json_t *object = cli_json(), *list = json_array();
    bench_json_machine(cli, object);
    json_object_set_new(object, "model", cli_json_name(plan->source.model));
    bench_json_format(object, &plan->source.format);
    json_object_set_new(object, "prompt_tokens", json_integer(plan->prompt_tokens));
    json_object_set_new(object, "new_tokens", json_integer(plan->new_tokens));
    json_object_set_new(object, "head",
                        cli->common->head ? json_string(cli->common->head) : json_null());
    for (int i = 0; i < count; i++)
        json_array_append_new(list, row_json(&rows[i], peer));
    json_object_set_new(object, "rows", list);
    return cli_json_print(cli, object);
}

/* ---- a chart --------------------------------------------------------------------------------- */

static svg_bar bar_of(const generate_row *row, const char *name, const generate_side *side)
{
    svg_bar bar = {.value = tokens_per_second(row, side)};
    snprintf(bar.label, sizeof bar.label, "%lld %s  %s  %lldT  %s", (long long)row->batch,
             row->batch == 1 ? "text" : "texts", row->form, (long long)row->threads, name);
    if (side->limit_share > 0)
        snprintf(bar.note, sizeof bar.note, "%.2f (%.0f%% of the limit)", bar.value,
                 1e2 * side->limit_share);
    else
        snprintf(bar.note, sizeof bar.note, "%.2f", bar.value);
    return bar;
}

int generate_write_chart(cli_app *cli, const bench_generate_plan *plan, const generate_row *rows,
                         int count)
{
    svg_bar *bars = calloc(3 * (size_t)count + 1, sizeof *bars);
    int used = 0;
    if (!bars) return cli_fail(cli, CLI_IO, "out of memory for the chart");
    for (int i = 0; i < count; i++) {
        char name[40];
        snprintf(name, sizeof name, "%s %s", plan->peer ? plan->peer->child.peer : "",
                 rows[i].peer_type);
        bars[used++] = bar_of(&rows[i], "2:4", &rows[i].sparse);
        if (!rows[i].alone) bars[used++] = bar_of(&rows[i], "dense", &rows[i].dense);
        if (rows[i].has_peer) bars[used++] = bar_of(&rows[i], name, &rows[i].peer);
    }
    const svg_chart chart = {.title = "A language model, token by token",
                             .subtitle = plan->source.model,
                             .axis = "new tokens a second",
                             .bars = bars,
                             .count = used};
    const int code = svg_write(cli, plan->svg, &chart);
    free(bars);
    return code;
}
