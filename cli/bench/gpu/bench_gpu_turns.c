// SPDX-License-Identifier: Apache-2.0
/* Times contestants on a GPU in turns: each is warmed up and recorded as a graph that fills a
   window, then all play their windows, round after round, with a pause before each. */
#include <stdlib.h>
#include <time.h>

#include "bench/gpu/bench_gpu.h"

static int timed(gpu_bench *b, gpu_contestant *who, int runs, double *seconds)
{
    *seconds = who->graph ? gpu_play(&b->driver, who->graph, runs)
                          : gpu_time(&b->driver, runs, who->run, who->state);
    if (*seconds >= 0) return CLI_OK;
    return cli_fail(b->cli, CLI_IO, "a product failed while it was timed: %s",
                    s24_ctx_error(b->cli->ctx));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct window {
    gpu_bench *bench;
    gpu_contestant *who;
} window;

static int run_window(void *state)
{
    const window *w = state;
    double seconds;
    return timed(w->bench, w->who, w->who->runs, &seconds) != CLI_OK;
}

static void measure_energy(gpu_bench *b, gpu_contestant *who)
{
    window w = {b, who};
    const bench_turn turn = {.run = run_window, .state = &w};
    who->joules = bench_energy_of(b->plan->effort.energy, &turn);
    if (who->joules > 0) who->joules /= who->runs;
}

int gpu_interleave(gpu_bench *b, gpu_contestant *all, int count, int64_t rounds)
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
        if (code == CLI_OK)
            all[i].graph = gpu_record(&b->driver, all[i].runs, all[i].run, all[i].state);
    }
    for (int64_t r = 0; r < rounds && code == CLI_OK; r++)
        for (int i = 0; i < count && code == CLI_OK; i++) {
            nanosleep(&pause, NULL);
            code = timed(b, &all[i], all[i].runs, &all[i].samples[r]);
            if (code == CLI_OK && cli_interrupted())
                code = cli_status(b->cli, S24_ERROR_INTERRUPTED);
        }
    for (int i = 0; i < count && code == CLI_OK && effort->energy; i++)
        measure_energy(b, &all[i]);
    for (int i = 0; i < count; i++) {
        if (all[i].graph) b->driver.graph_destroy(all[i].graph);
        all[i].graph = NULL;
    }
    for (int i = 0; i < count && code == CLI_OK; i++)
        qsort(all[i].samples, (size_t)rounds, sizeof *all[i].samples, compare);
    return code;
}

double gpu_median(const gpu_contestant *who, int64_t rounds)
{
    return 0.5 * (who->samples[rounds / 2] + who->samples[(rounds - 1) / 2]);
}
