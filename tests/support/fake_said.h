// SPDX-License-Identifier: Apache-2.0
/* What the environment says to a device that is none, and where it says what it was asked for. */
#ifndef S24_TEST_FAKE_SAID_H
#define S24_TEST_FAKE_SAID_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void called(const char *name)
{
    const char *path = getenv("S24_FAKE_CALLS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s ", name + strlen("fake_"));
    fclose(file);
}

static inline long long number_of(const char *name, long long usual)
{
    const char *text = getenv(name);
    return text ? atoll(text) : usual;
}

#endif
