// SPDX-License-Identifier: Apache-2.0
/* The memory that is free to the process: the machine's, or what a container's limit leaves. */
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#include "base/groups.h"
#include "sparse24/sparse24.h"

enum { TEXT = 8192 };

/* The number after a name that a line of a file begins with; −1: there is none. */
static int64_t named_number(const char *folder, const char *file, const char *name)
{
    char path[4096 + 64], text[TEXT];
    const size_t length = strlen(name);
    long long number;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!s24i_read_text(text, sizeof text, path)) return -1;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && sscanf(line + length, "%lld", &number) == 1)
            return number;
    }
    return -1;
}

/* Pages of files are counted as used, and given back where memory is needed. */
static int64_t pages_of_files(const char *folder, const char *active, const char *inactive)
{
    const int64_t a = named_number(folder, "memory.stat", active);
    const int64_t b = named_number(folder, "memory.stat", inactive);
    return (a > 0 ? a : 0) + (b > 0 ? b : 0);
}

static int64_t group_memory(const char *folder)
{
    int64_t most = s24i_read_number(folder, "memory.max"), used, files;
    if (most >= 0) {
        used = s24i_read_number(folder, "memory.current");
        files = pages_of_files(folder, "active_file ", "inactive_file ");
    } else {
        most = s24i_read_number(folder, "memory.limit_in_bytes");
        used = s24i_read_number(folder, "memory.usage_in_bytes");
        files = pages_of_files(folder, "total_active_file ", "total_inactive_file ");
    }
    if (most < 0 || used < 0) return 0;
    used -= files < used ? files : used;
    return most > used ? most - used : 1;
}

int64_t s24i_memory_free(const char *root)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/proc", root);
    const int64_t kib = named_number(folder, "meminfo", "MemAvailable:");
    const int64_t machine = kib >= 0 && kib <= INT64_MAX / 1024 ? 1024 * kib : INT64_MAX;
    const int64_t group = s24i_least_group_limit(root, "memory", group_memory);
    return group && group < machine ? group : machine;
}

int64_t s24_memory_free(void)
{
    return s24i_memory_free("");
}
