// SPDX-License-Identifier: Apache-2.0
/*
 * The cores of the process: those of its affinity, and of a container's quota as many as its time
 * fills. A process with more threads than its quota pays for is stopped for most of each period.
 */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT_S */
#include "base/cores.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/base.h"
#include "base/groups.h"

static int64_t group_cores(const char *folder)
{
    char path[4096 + 64], text[64];
    long long quota = -1, period = -1;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (s24i_read_text(text, sizeof text, path)) {
        if (sscanf(text, "%lld %lld", &quota, &period) != 2) return 0; /* "max 100000" */
    } else {
        quota = s24i_read_number(folder, "cpu.cfs_quota_us");
        period = s24i_read_number(folder, "cpu.cfs_period_us");
    }
    if (quota <= 0 || period <= 0) return 0;
    const long long cores = quota / period + (quota % period != 0);
    return cores > S24I_MAX_THREADS ? S24I_MAX_THREADS : cores;
}

int s24i_quota_cores(const char *root)
{
    return (int)s24i_least_group_limit(root, "cpu", group_cores);
}

static int allowed_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more cores than the set can hold */
    if (online < 1) return 1;
    return online > S24I_MAX_THREADS ? S24I_MAX_THREADS : (int)online;
}

int s24i_cores(void)
{
    const int allowed = allowed_cores(), paid = s24i_quota_cores("");
    return paid && paid < allowed ? paid : allowed;
}
