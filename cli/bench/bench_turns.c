// SPDX-License-Identifier: Apache-2.0
/*
 * Takes turns: every contestant once untimed, then its timed share, round after round. The untimed
 * run brings its own weights into the caches; a run of a second has no use for that, and has one
 * in the first round alone. A pause goes before it: some libraries' threads wait in a busy loop for
 * milliseconds, and would take the next one's cores.
 */
#include <stdlib.h>
#include <time.h>

#include "bench/bench.h"

enum { PAUSE = 10 /* milliseconds; OpenMP's threads of GCC watch for about five */ };

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

/* Runs until min_seconds have passed, at least once. A count fixed ahead would hold the machine for
   minutes where other work has come in between. */
static int timed(cli_app *cli, bench_turn *turn, double min_seconds, double *seconds)
{
    double start = cli_seconds(), elapsed = 0;
    int64_t runs = 0;
    if (turn->window) /* which has an untimed run of its own */
        return min_seconds > 0 ? turn->window(cli, turn->state, min_seconds, seconds) : CLI_OK;
    do {
        if (turn->run(turn->state))
            return cli_fail(cli, CLI_IO, "a product failed while it was timed");
        runs++;
        elapsed = cli_seconds() - start;
    } while (cli_ranks_go_on(cli, elapsed < min_seconds && !cli_interrupted()));
    *seconds = elapsed / (double)runs;
    return CLI_OK;
}

/* 1: the run before this one, of the same contestant, was too long for caches to matter. */
static int is_long(const double *sample, int64_t round)
{
    return round > 0 && sample[-1] >= 1;
}

static void pause_between(void)
{
    const struct timespec time = {0, PAUSE * 1000000L};
    nanosleep(&time, NULL);
}

int bench_interleave(cli_app *cli, bench_turn *turns, int count, const bench_effort *effort)
{
    int64_t rounds = effort->rounds > BENCH_MAX_ROUNDS ? BENCH_MAX_ROUNDS : effort->rounds;
    double *samples = calloc((size_t)(count * rounds), sizeof *samples);
    int code = CLI_OK;
    if (!samples) code = cli_fail(cli, CLI_IO, "out of memory for %lld rounds", (long long)rounds);
    for (int64_t r = 0; r < rounds && code == CLI_OK; r++)
        for (int i = 0; i < count && code == CLI_OK; i++) {
            double *sample = &samples[i * rounds + r];
            pause_between();
            if (cli_ranks_go_on(cli, !is_long(sample, r))) code = timed(cli, &turns[i], 0, sample);
            if (code == CLI_OK) code = timed(cli, &turns[i], effort->min_seconds, sample);
            if (code == CLI_OK && cli_interrupted()) code = cli_status(cli, S24_ERROR_INTERRUPTED);
        }
    for (int i = 0; i < count && code == CLI_OK; i++)
        turns[i].times = summarise(samples + i * rounds, rounds);
    for (int i = 0; i < count && code == CLI_OK && effort->energy; i++)
        turns[i].times.joules = bench_energy_of(effort->energy, &turns[i]);
    free(samples);
    return code;
}

int bench_latencies(cli_app *cli, bench_turn *turn, const bench_effort *effort,
                    bench_latency *latency)
{
    enum { ROOM = 4096 };
    const double least = (double)effort->rounds * effort->min_seconds, start = cli_seconds();
    double *samples = calloc(ROOM, sizeof *samples);
    int64_t count = 0;
    int code = samples ? CLI_OK : cli_fail(cli, CLI_IO, "out of memory for %d times", ROOM);
    while (code == CLI_OK && count < ROOM &&
           cli_ranks_go_on(cli, count < effort->rounds || cli_seconds() - start < least)) {
        code = timed(cli, turn, 0, &samples[count++]);
        if (code == CLI_OK && cli_interrupted()) code = cli_status(cli, S24_ERROR_INTERRUPTED);
    }
    if (code == CLI_OK) {
        latency->p50 = summarise(samples, count).median;
        latency->p95 = samples[(95 * count + 99) / 100 - 1]; /* the least that 95 % do not exceed */
    }
    free(samples);
    return code;
}
