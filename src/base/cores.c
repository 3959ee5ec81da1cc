// SPDX-License-Identifier: Apache-2.0
/*
 * The cores of the process: those of its affinity, and of a container's quota as many as its time
 * fills. A process with more threads than its quota pays for is stopped for most of each period.
 */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT_S */
#include "base/cores.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

enum { PATH = 4096 };

/* A small file as a string; 0: it cannot be read. */
static int read_text(char *text, size_t bytes, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t got = read(fd, text, bytes - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

static long long read_number(const char *folder, const char *file)
{
    char path[PATH + 64], text[64];
    long long number;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return read_text(text, sizeof text, path) && sscanf(text, "%lld", &number) == 1 ? number : -1;
}

/* Of one group, version 2 or 1 of control groups; 0: none. */
static int group_cores(const char *folder)
{
    char path[PATH + 64], text[64];
    long long quota = -1, period = -1;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_text(text, sizeof text, path)) {
        if (sscanf(text, "%lld %lld", &quota, &period) != 2) return 0; /* "max 100000" */
    } else {
        quota = read_number(folder, "cpu.cfs_quota_us");
        period = read_number(folder, "cpu.cfs_period_us");
    }
    if (quota <= 0 || period <= 0) return 0;
    const long long cores = quota / period + (quota % period != 0);
    return cores > S24I_MAX_THREADS ? S24I_MAX_THREADS : (int)cores;
}

/* Of the group at folder[0 … strlen] and those above it, down to its first `top` characters. */
static int tightest(char *folder, size_t top)
{
    int least = 0;
    for (;;) {
        const int cores = group_cores(folder);
        if (cores && (!least || cores < least)) least = cores;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < top) return least;
        *slash = '\0';
    }
}

/* Is "cpu" one of the names with commas between them? */
static int has_cpu(const char *names)
{
    for (; names; names = strchr(names, ',')) {
        names += *names == ',';
        if (strcspn(names, ",") == 3 && strncmp(names, "cpu", 3) == 0) return 1;
    }
    return 0;
}

/* A line of /proc/self/cgroup, "ID:CONTROLLERS:PATH". Where its controllers are mounted: version 2
   has none in its line and is mounted at the root of all. */
static int line_cores(const char *root, char *line)
{
    static const char *const mounts[] = {"", "/cpu", "/cpu,cpuacct"};
    char folder[PATH];
    int least = 0;
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) return 0;
    *path++ = '\0';
    const int first = controllers[1] != '\0';
    if (first && !has_cpu(controllers + 1)) return 0;
    for (int i = first; i < (first ? 3 : 1); i++) {
        const int top = snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s", root, mounts[i]);
        if (top < 0 || (size_t)top + strlen(path) >= sizeof folder) continue;
        strcpy(folder + top, strcmp(path, "/") == 0 ? "" : path);
        const int cores = tightest(folder, (size_t)top);
        if (cores && (!least || cores < least)) least = cores;
    }
    return least;
}

int s24i_quota_cores(const char *root)
{
    char path[PATH], text[PATH];
    int least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!read_text(text, sizeof text, path)) return 0;
    for (char *line = text, *end; *line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        else
            end = line + strlen(line);
        const int cores = line_cores(root, line);
        if (cores && (!least || cores < least)) least = cores;
    }
    return least;
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
