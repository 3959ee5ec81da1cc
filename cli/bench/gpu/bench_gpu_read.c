// SPDX-License-Identifier: Apache-2.0
/*
 * Measures how fast a GPU's memory is: copies within it, far beyond its caches, of which every byte
 * counts twice, as one that is read and one that is written.
 */
#include "bench/gpu/bench_gpu_read.h"

enum { HALF = 1 << 29, COPIES = 4 };

static s24_status copy_some(const bench_gpu_read *r)
{
    s24_status status = S24_OK;
    for (int i = 0; i < COPIES && status == S24_OK; i++)
        status = s24_device_copy(r->cli->ctx, r->device, (char *)r->memory + HALF, r->memory, HALF,
                                 NULL);
    return status;
}

static int copies_turn(cli_app *cli, void *state, double min_seconds, double *seconds)
{
    const bench_gpu_read *r = state;
    double sum = 0, once;
    int runs = 0;
    s24_status status = copy_some(r);
    while (status == S24_OK && (runs == 0 || sum < min_seconds)) {
        status = s24_device_timer_start(cli->ctx, r->device, NULL);
        if (status == S24_OK) status = copy_some(r);
        if (status == S24_OK) status = s24_device_timer_stop(&once, cli->ctx, r->device, NULL);
        sum += status == S24_OK ? once : 0;
        runs++;
    }
    *seconds = sum / runs / COPIES;
    return cli_status(cli, status);
}

int bench_gpu_read_open(cli_app *cli, bench_gpu_read *read, s24_device *device)
{
    *read = (bench_gpu_read){.cli = cli, .device = device};
    s24_status status = s24_device_alloc(&read->memory, cli->ctx, device, 2 * (size_t)HALF, NULL);
    if (status == S24_OK)
        status = s24_device_clear(cli->ctx, device, read->memory, 2 * (size_t)HALF, NULL);
    return cli_status(cli, status);
}

void bench_gpu_read_close(bench_gpu_read *read)
{
    if (read->memory) (void)s24_device_free(read->cli->ctx, read->device, read->memory, NULL);
}

bench_turn bench_gpu_read_turn(bench_gpu_read *read)
{
    return (bench_turn){.window = copies_turn, .state = read};
}

double bench_gpu_read_rate(const bench_turn *turn)
{
    return 2 * (double)HALF / turn->times.median;
}
