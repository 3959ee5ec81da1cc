// SPDX-License-Identifier: Apache-2.0
/* Finds the control groups of the process, version 2 or 1, and the tightest of their limits. */
#include "base/groups.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096 };

typedef struct search {
    const char *root, *controller;
    s24i_group_limit limit;
} search;

int s24i_read_text(char *text, size_t bytes, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t got = read(fd, text, bytes - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

int64_t s24i_read_number(const char *folder, const char *file)
{
    char path[PATH + 64], text[64];
    long long number;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return s24i_read_text(text, sizeof text, path) && sscanf(text, "%lld", &number) == 1 ? number
                                                                                         : -1;
}

static int64_t less_of(int64_t a, int64_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* Of the group at folder[0 … strlen] and those above it, down to its first `top` characters. */
static int64_t tightest(const search *s, char *folder, size_t top)
{
    int64_t least = 0;
    for (;;) {
        least = less_of(least, s->limit(folder));
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < top) return least;
        *slash = '\0';
    }
}

/* Is a name one of those with commas between them? */
static int has_name(const char *names, const char *name)
{
    const size_t length = strlen(name);
    for (; names; names = strchr(names, ',')) {
        names += *names == ',';
        if (strcspn(names, ",") == length && strncmp(names, name, length) == 0) return 1;
    }
    return 0;
}

/* A line of /proc/self/cgroup, "ID:CONTROLLERS:PATH". Where its controllers are mounted: version 2
   has none in its line and is mounted at the root of all; version 1 under the controller's own
   name, or that of the two that are often mounted together. */
static int64_t line_limit(const search *s, char *line)
{
    const char *const mounts[] = {"", s->controller, "cpu,cpuacct"};
    char folder[PATH];
    int64_t least = 0;
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) return 0;
    *path++ = '\0';
    const int first = controllers[1] != '\0';
    if (first && !has_name(controllers + 1, s->controller)) return 0;
    for (int i = first; i < (first ? 3 : 1); i++) {
        if (i && !has_name(mounts[i], s->controller)) continue;
        const int top = snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s%s", s->root,
                                 i ? "/" : "", mounts[i]);
        if (top < 0 || (size_t)top + strlen(path) >= sizeof folder) continue;
        strcpy(folder + top, strcmp(path, "/") == 0 ? "" : path);
        least = less_of(least, tightest(s, folder, (size_t)top));
    }
    return least;
}

int64_t s24i_least_group_limit(const char *root, const char *controller, s24i_group_limit limit)
{
    const search s = {root, controller, limit};
    char path[PATH], text[PATH];
    int64_t least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!s24i_read_text(text, sizeof text, path)) return 0;
    for (char *line = text, *end; *line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        else
            end = line + strlen(line);
        least = less_of(least, line_limit(&s, line));
    }
    return least;
}
