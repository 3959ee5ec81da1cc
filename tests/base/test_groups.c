// SPDX-License-Identifier: Apache-2.0
/* What control groups and the machine leave the process: cores, memory. */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cores.h"
#include "base/memory.h"
#include "sparse24/sparse24.h"

static void put(const char *root, const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(whole, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

typedef struct group_case {
    const char *groups;   /* /proc/self/cgroup */
    const char *files[8]; /* paths below /sys/fs/cgroup and their texts */
    int64_t left;         /* cores, or bytes */
} group_case;

/* What `left` says of a system that has the case's files, and a meminfo unless it is NULL. */
static void assert_left(const group_case *at, size_t i, const char *meminfo,
                        int64_t (*left)(const char *root))
{
    char root[] = "/tmp/s24-cgroup-XXXXXX", command[64];
    assert_non_null(mkdtemp(root));
    if (meminfo) put(root, "proc/meminfo", meminfo);
    put(root, "proc/self/cgroup", at->groups);
    for (int f = 0; f < 8 && at->files[f]; f += 2) {
        char path[256];
        snprintf(path, sizeof path, "sys/fs/cgroup/%s", at->files[f]);
        put(root, path, at->files[f + 1]);
    }
    const int64_t found = left(root);
    snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
    if (found != at->left)
        fail_msg("case %zu: %lld, not %lld", i, (long long)found, (long long)at->left);
}

static int64_t cores_of(const char *root)
{
    return s24i_quota_cores(root);
}

static void quotas(void **state)
{
    (void)state;
    static const group_case cases[] = {
        {"0::/\n", {NULL}, 0},
        {"0::/\n", {"cpu.max", "max 100000\n"}, 0},
        {"0::/\n", {"cpu.max", "200000 100000\n"}, 2},
        {"0::/\n", {"cpu.max", "150000 100000\n"}, 2},
        {"0::/\n", {"cpu.max", "5000 100000\n"}, 1},
        {"0::/a/b\n", {"a/b/cpu.max", "max 100000\n", "a/cpu.max", "300000 100000\n"}, 3},
        {"0::/a/b\n", {"a/b/cpu.max", "400000 100000\n", "a/cpu.max", "300000 100000\n"}, 3},
        {"0::/not/here\n", {"cpu.max", "100000 50000\n"}, 2},
        {"12:cpu,cpuacct:/x\n1:name=systemd:/x\n",
         {"cpu,cpuacct/x/cpu.cfs_quota_us", "250000\n", "cpu,cpuacct/x/cpu.cfs_period_us",
          "100000\n"},
         3},
        {"4:cpu:/\n", {"cpu/cpu.cfs_quota_us", "-1\n", "cpu/cpu.cfs_period_us", "100000\n"}, 0},
        {"7:memory:/\n3:cpuset:/\n", {"cpu.max", "100000 100000\n"}, 0},
        {"3:cpuset,cpuacct:/\n",
         {"cpu/cpu.cfs_quota_us", "100000\n", "cpu/cpu.cfs_period_us", "100000\n"},
         0},
        {"3:memory,cpu:/\n",
         {"cpu/cpu.cfs_quota_us", "100000\n", "cpu/cpu.cfs_period_us", "100000\n"},
         1},
        {"0::/\n", {"cpu.max", "nonsense\n"}, 0},
        {"0::/\n", {"cpu.max", "100000 0\n"}, 0},
        {"0::/\n", {"cpu.max", "99999999999999 1\n"}, 1024},
        {"nonsense", {"cpu.max", "100000 100000\n"}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_left(&cases[i], i, NULL, cores_of);
    assert_int_equal(s24i_quota_cores("/tmp/s24-no-such-folder"), 0);
    assert_in_range(s24i_cores(), 1, 1024);
}

/* A machine with 8,000 KiB free. */
static void memory(void **state)
{
    (void)state;
    static const char meminfo[] = "MemTotal: 16000 kB\nMemFree: 10 kB\nMemAvailable:  8000 kB\n";
    static const group_case cases[] = {
        {"0::/\n", {NULL}, 8192000},
        {"0::/\n", {"memory.max", "max\n", "memory.current", "5\n"}, 8192000},
        {"0::/\n", {"memory.max", "9000000000\n", "memory.current", "5\n"}, 8192000},
        {"0::/a\n", {"a/memory.max", "100000\n", "a/memory.current", "40000\n"}, 60000},
        {"0::/a\n", {"memory.max", "100000\n", "memory.current", "40000\n"}, 60000},
        {"0::/a\n",
         {"a/memory.max", "100000\n", "a/memory.current", "40000\n", "a/memory.stat",
          "anon 20000\nfile 20000\ninactive_file 15000\nactive_file 4000\n"},
         79000},
        {"0::/a\n", {"a/memory.max", "100000\n", "a/memory.current", "100001\n"}, 1},
        {"5:memory:/x\n",
         {"memory/x/memory.limit_in_bytes", "50000\n", "memory/x/memory.usage_in_bytes", "30000\n",
          "memory/x/memory.stat", "inactive_file 1\ntotal_inactive_file 7000\n"},
         27000},
        {"5:cpu:/x\n",
         {"memory/x/memory.limit_in_bytes", "50000\n", "memory/x/memory.usage_in_bytes", "30000\n"},
         8192000},
        {"0::/\n", {"memory.max", "nonsense\n"}, 8192000},
    };
    static const group_case no_meminfo = {"0::/\n", {NULL}, INT64_MAX};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_left(&cases[i], i, meminfo, s24i_memory_free);
    assert_left(&no_meminfo, 0, NULL, s24i_memory_free);
    assert_left(&no_meminfo, 1, "MemTotal: 16000 kB\n", s24i_memory_free);
    assert_true(s24_memory_free() > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotas),
        cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
