// SPDX-License-Identifier: Apache-2.0
/* The kernels that a device that is none (fake_device.c) is asked for, by name and in their order.
   Include after support.h or core_support.h. */
#ifndef S24_TEST_FAKE_CALLS_H
#define S24_TEST_FAKE_CALLS_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_CALLS = 16384, PATH_BYTES = 64 };

/* From here on kernels are written down, until they are taken. */
static inline void record(char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "/tmp/sparse24-fake-XXXXXX");
    const int made = mkstemp(path);
    assert_true(made >= 0);
    close(made);
    setenv("S24_FAKE_CALLS", path, 1);
}

static inline void take_record(char calls[MOST_CALLS], const char *path)
{
    unsetenv("S24_FAKE_CALLS");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    calls[fread(calls, 1, MOST_CALLS - 1, file)] = '\0';
    fclose(file);
    unlink(path);
}

static inline int count_of(const char *text, const char *part)
{
    int count = 0;
    while ((text = strstr(text, part)) != NULL) {
        count++;
        text++;
    }
    return count;
}

#endif
