// SPDX-License-Identifier: Apache-2.0
/*
 * Times every tile of the library for one shape, against each other: first a short window each,
 * then those that came within a quarter of the best in rounds, as peers are timed.
 */
#include <stdlib.h>

#include "bench/gpu/bench_gpu.h"

enum { TILES = 192 };

typedef struct candidate {
    gpu_cell cell; /* with the tile's name */
    double seconds;
} candidate;

static int by_time(const void *a, const void *b)
{
    double x = ((const candidate *)a)->seconds, y = ((const candidate *)b)->seconds;
    return (x > y) - (x < y);
}

/* A millisecond's products of a tile in a graph, so that nobody's host is timed; in seconds,
   negative when it failed. */
static double look(gpu_bench *b, gpu_cell *cell)
{
    const double once = gpu_time(&b->driver, 3, gpu_run_ours, cell);
    const int fit = once > 0 ? (int)(1e-3 / once) : 0;
    const int runs = fit < 3 ? 3 : fit > 32 ? 32 : fit;
    void *graph = gpu_record(&b->driver, runs, gpu_run_ours, cell);
    double seconds = -1;
    for (int i = 0; i < 3 && graph; i++) /* the first one warms up */
        seconds = gpu_play(&b->driver, graph, runs);
    if (graph) b->driver.graph_destroy(graph);
    return seconds;
}

/* Lists candidates that the shape and dtype have, timed once, the best first. Returns their
   number. */
static int first_look(gpu_cell *c, candidate *all)
{
    gpu_bench *b = c->bench;
    const char *name;
    int count = 0;
    for (int i = 0; count < TILES && (name = s24_device_tile_name(b->device, i)) != NULL; i++) {
        candidate *next = &all[count];
        *next = (candidate){.cell = *c};
        next->cell.tile = name;
        if (gpu_run_ours(&next->cell, 0)) continue; /* the dtype has not every tile */
        next->seconds = look(b, &next->cell);
        count += next->seconds > 0;
    }
    qsort(all, (size_t)count, sizeof *all, by_time);
    return count;
}

static int rounds(gpu_bench *b, candidate *all, int count)
{
    gpu_contestant *turns = calloc((size_t)count, sizeof *turns);
    if (!turns) return cli_fail(b->cli, CLI_IO, "out of memory");
    for (int i = 0; i < count; i++)
        turns[i] = (gpu_contestant){.run = gpu_run_ours, .state = &all[i].cell};
    const int64_t half = (b->plan->effort.rounds + 1) / 2;
    int code = gpu_interleave(b, turns, count, half);
    for (int i = 0; i < count && code == CLI_OK; i++)
        all[i].seconds = gpu_median(&turns[i], half);
    free(turns);
    if (code == CLI_OK) qsort(all, (size_t)count, sizeof *all, by_time);
    return code;
}

int gpu_tune(gpu_cell *c, bench_row *row)
{
    gpu_bench *b = c->bench;
    candidate *all = calloc(TILES, sizeof *all);
    if (!all) return cli_fail(b->cli, CLI_IO, "out of memory");
    int count = first_look(c, all), close = 0;
    while (close < count && all[close].seconds < 1.25 * all[0].seconds)
        close++;
    int code = close ? rounds(b, all, close)
                     : cli_fail(b->cli, CLI_IO, "no tile runs: %s", s24_ctx_error(b->cli->ctx));
    if (code == CLI_OK) {
        const gpu_problem *p = &c->problem;
        row->tiles = json_array();
        for (int i = 0; i < count; i++) {
            json_t *tile = json_object();
            json_object_set_new(tile, "tile", json_string(all[i].cell.tile));
            json_object_set_new(tile, "ms", cli_real(1e3 * all[i].seconds));
            json_array_append_new(row->tiles, tile);
        }
        s24_device_choice best = {p->dtype, p->shape.m, p->shape.k, p->shape.n, all[0].cell.tile};
        cli_tiles_keep(b->cli, b->device, &best);
    }
    free(all);
    return code;
}
