// SPDX-License-Identifier: Apache-2.0
/* Declares how fast a GPU's memory is, measured next to what runs there. */
#ifndef SPARSE24_CLI_BENCH_GPU_BENCH_GPU_READ_H
#define SPARSE24_CLI_BENCH_GPU_BENCH_GPU_READ_H

#include "bench/bench.h"
#include "sparse24/device.h"

typedef struct bench_gpu_read {
    cli_app *cli;
    s24_device *device;
    void *memory; /* two halves, of which one is copied to the other */
} bench_gpu_read;

int bench_gpu_read_open(cli_app *cli, bench_gpu_read *read, s24_device *device);
void bench_gpu_read_close(bench_gpu_read *read);
bench_turn bench_gpu_read_turn(bench_gpu_read *read);
/* Gives the bytes per second that the turn's copies read and wrote. */
double bench_gpu_read_rate(const bench_turn *turn);

#endif
