// SPDX-License-Identifier: Apache-2.0
/* The control groups of the process. Private to base. */
#ifndef S24_BASE_GROUPS_H
#define S24_BASE_GROUPS_H

#include <stddef.h>
#include <stdint.h>

/* A small file as a string; 0: it cannot be read. */
int s24i_read_text(char *text, size_t bytes, const char *path);
/* The number that a file of a folder begins with; −1: there is none. */
int64_t s24i_read_number(const char *folder, const char *file);

/* What a group's folder says of a limit, of version 2 or 1 of control groups; 0: none. */
typedef int64_t (*s24i_group_limit)(const char *folder);

/* The least limit of the process's own groups and all above them; 0: there is none. Reads
   /proc/self/cgroup and /sys/fs/cgroup under the folder `root` ("" for the system's own); of
   version 1 those of a controller ("cpu"). */
int64_t s24i_least_group_limit(const char *root, const char *controller, s24i_group_limit limit);

#endif
