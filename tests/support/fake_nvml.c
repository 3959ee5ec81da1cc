// SPDX-License-Identifier: Apache-2.0
/* NVML, and of CUDA's driver what it takes to find a GPU there, of a GPU that uses five watts; its
   counter moves every 100 ms, of the bus that cuDeviceGetPCIBusId names alone. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

static const char BUS[] = "00000000:65:00.0";

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGet(int *device, int ordinal);
EXPORT int cuDeviceGetPCIBusId(char *bus, int bytes, int device);
EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);

int cuInit(unsigned flags)
{
    return flags != 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = 7;
    return ordinal != 0;
}

int cuDeviceGetPCIBusId(char *bus, int bytes, int device)
{
    if (bytes < (int)sizeof BUS || device != 7) return 1;
    memcpy(bus, BUS, sizeof BUS);
    return 0;
}

int nvmlInit_v2(void)
{
    return getenv("S24_FAKE_NVML_FAILS") != NULL;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
    static int the_one;
    *device = &the_one;
    return strcmp(bus, BUS) != 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    struct timespec now;
    (void)device;
    if (clock_gettime(CLOCK_MONOTONIC, &now)) return 1;
    *millijoules = (unsigned long long)(now.tv_sec * 10 + now.tv_nsec / 100000000) * 500;
    return 0;
}
