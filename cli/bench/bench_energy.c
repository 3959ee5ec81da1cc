// SPDX-License-Identifier: Apache-2.0
/*
 * Asks NVML, opened at run time, what a GPU has used since its driver was loaded. The counter moves
 * some ten times a second: so work goes on from one of its steps to another one, half a second
 * later or more, and what was used between the two is divided by the runs between them.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

struct bench_energy {
    void *cuda, *nvml, *device; /* device NULL: nobody counts */
    int (*total)(void *device, unsigned long long *millijoules);
    int (*shutdown)(void);
};

static const double LEAST = 0.5, MOST = 5; /* seconds of a measurement; MOST: the counter rests */

/* NVML knows a GPU by its place on the bus, since it counts those that CUDA does not see, too. */
static const char *find_device(bench_energy *e, int ordinal)
{
    int (*cuda_init)(unsigned) = NULL;
    int (*cuda_device)(int *, int) = NULL;
    int (*bus_id)(char *, int, int) = NULL;
    int (*init)(void) = NULL;
    int (*by_bus)(const char *, void **) = NULL;
    char bus[32];
    int device;
    unsigned long long now;
    e->cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    e->nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!e->nvml) return "libnvidia-ml.so.1 is not here";
    if (!e->cuda || !cli_symbol(&cuda_init, e->cuda, "cuInit") ||
        !cli_symbol(&cuda_device, e->cuda, "cuDeviceGet") ||
        !cli_symbol(&bus_id, e->cuda, "cuDeviceGetPCIBusId") || cuda_init(0) ||
        cuda_device(&device, ordinal) || bus_id(bus, sizeof bus, device))
        return "CUDA's driver does not say on which bus the GPU is";
    if (!cli_symbol(&init, e->nvml, "nvmlInit_v2") ||
        !cli_symbol(&by_bus, e->nvml, "nvmlDeviceGetHandleByPciBusId_v2") ||
        !cli_symbol(&e->total, e->nvml, "nvmlDeviceGetTotalEnergyConsumption") ||
        !cli_symbol(&e->shutdown, e->nvml, "nvmlShutdown"))
        return "libnvidia-ml.so.1 lacks a function";
    if (init()) {
        e->shutdown = NULL;
        return "NVML cannot be started";
    }
    if (by_bus(bus, &e->device) || e->total(e->device, &now)) {
        e->device = NULL;
        return "NVML has no counter of this GPU";
    }
    return NULL;
}

int bench_energy_open(cli_app *cli, bench_energy **out)
{
    const char *colon = strchr(cli->common->device, ':');
    *out = calloc(1, sizeof **out);
    if (!*out) return cli_fail(cli, CLI_IO, "out of memory");
    const char *missing = find_device(*out, colon ? atoi(colon + 1) : 0);
    if (missing) cli_note(cli, "no energy is measured: %s", missing);
    return CLI_OK;
}

void bench_energy_close(bench_energy *e)
{
    if (!e) return;
    if (e->shutdown) e->shutdown();
    if (e->nvml) dlclose(e->nvml);
    if (e->cuda) dlclose(e->cuda);
    free(e);
}

/* Runs until the counter moves and `least` seconds have passed: how often, and what it says then,
   a moment after. */
static int run_to_step(const bench_energy *e, const bench_turn *turn, double least, int64_t *runs,
                       unsigned long long *millijoules)
{
    unsigned long long before, now;
    const double start = cli_seconds();
    if (e->total(e->device, &before)) return 1;
    do {
        if (turn->run(turn->state) || e->total(e->device, &now)) return 1;
        ++*runs;
        if (cli_seconds() - start < least) before = now;
        if (cli_seconds() - start > MOST || cli_interrupted()) return 1;
    } while (now == before);
    *millijoules = now;
    return 0;
}

double bench_energy_of(const bench_energy *e, const bench_turn *turn)
{
    unsigned long long from, to;
    int64_t runs = 0;
    if (!e->device || !turn->run || run_to_step(e, turn, 0, &runs, &from)) return -1;
    runs = 0;
    if (run_to_step(e, turn, LEAST, &runs, &to)) return -1;
    return 1e-3 * (double)(to - from) / (double)runs;
}
