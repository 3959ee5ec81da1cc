// SPDX-License-Identifier: Apache-2.0
/*
 * Turns: every contestant once untimed, then its timed share, round after round. The untimed run brings its
 * own weights into the caches and lets the threads of the one before it go to sleep: some
 * libraries' threads wait in a busy loop and would take the next one's cores.
 */
#include <stdlib.h>

#include "bench.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bench_times summarise(double *samples, int64_t count)
{
    qsort(samples, (size_t)count, sizeof *samples, compare);
    double middle = samples[count / 2];
    if (count % 2 == 0) middle = 0.5 * (middle + samples[count / 2 - 1]);
    return (bench_times){.median = middle, .min = samples[0], .max = samples[count - 1]};
}

static int timed(cli_app *cli, bench_turn *turn, int64_t times, double *seconds)
{
    double start = cli_seconds();
    for (int64_t i = 0; i < times; i++)
        if (turn->run(turn->state))
            return cli_fail(cli, CLI_IO, "a product failed while it was timed");
    *seconds = (cli_seconds() - start) / (double)times;
    return CLI_OK;
}

/* How often a turn repeats its run to last long enough to be timed. */
static int repeats(cli_app *cli, bench_turn *turn, double min_seconds, int64_t *times)
{
    double once = 0;
    int code = timed(cli, turn, 1, &once);
    if (code == CLI_OK) code = timed(cli, turn, 1, &once); /* the first one paid for page faults */
    double wanted = once > 0 ? min_seconds / once : 1;
    *times = wanted < 1 ? 1 : wanted > 1e6 ? 1000000 : (int64_t)wanted + 1;
    return code;
}

int bench_interleave(cli_app *cli, bench_turn *turns, int count, const bench_effort *effort)
{
    int64_t rounds = effort->rounds > BENCH_MAX_ROUNDS ? BENCH_MAX_ROUNDS : effort->rounds;
    double *samples = calloc((size_t)(count * rounds), sizeof *samples);
    int64_t *times = calloc((size_t)count, sizeof *times);
    int code = CLI_OK;
    if (!samples || !times)
        code = cli_fail(cli, CLI_IO, "out of memory for %lld rounds", (long long)rounds);
    for (int i = 0; i < count && code == CLI_OK; i++)
        code = repeats(cli, &turns[i], effort->min_seconds, &times[i]);
    for (int64_t r = 0; r < rounds && code == CLI_OK; r++)
        for (int i = 0; i < count && code == CLI_OK; i++) {
            double *sample = &samples[i * rounds + r];
            code = timed(cli, &turns[i], 1, sample);
            if (code == CLI_OK) code = timed(cli, &turns[i], times[i], sample);
            if (code == CLI_OK && cli_interrupted()) code = cli_status(cli, S24_ERROR_INTERRUPTED);
        }
    for (int i = 0; i < count && code == CLI_OK; i++)
        turns[i].times = summarise(samples + i * rounds, rounds);
    free(samples);
    free(times);
    return code;
}
