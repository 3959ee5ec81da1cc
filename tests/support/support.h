// SPDX-License-Identifier: Apache-2.0
/* What every test program includes: cmocka in the order it needs, shared data, a seeded
   generator. */
#ifndef S24_TEST_SUPPORT_H
#define S24_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Path of a golden vector file in a buffer of the caller; 0 when the vectors are absent. */
static inline int golden_path(char *path, size_t bytes, const char *name)
{
    const char *folder = getenv("SPARSE24_GOLDEN");
    if (folder && *folder)
        snprintf(path, bytes, "%s/%s", folder, name);
    else
        snprintf(path, bytes, "%s/golden/%s", S24_SHARED, name);
    return access(path, R_OK) == 0;
}
/* Path of a file of the shared data folder; 0 when absent. */
static inline int data_path(char *path, size_t bytes, const char *name)
{
    snprintf(path, bytes, "%s/data/%s", S24_SHARED, name);
    return access(path, R_OK) == 0;
}
#define SKIP_WITHOUT(path)                                                                         \
    do {                                                                                           \
        print_message("skipped: %s is not here\n", path);                                          \
        skip();                                                                                    \
    } while (0)

/* Rounds of a random test: fewer where an emulator or the thread sanitizer runs them, some fifty
   times slower than a CPU. WATCHED: it is the sanitizer, to which one shape of a kind says as
   much as ten. */
#ifdef __SANITIZE_THREAD__
enum { WATCHED = 1 };
#define UNWATCHED __attribute__((no_sanitize("thread"))) /* of one thread alone, and long */
#else
enum { WATCHED = 0 };
#define UNWATCHED
#endif
#ifdef S24_EMULATED
enum { SLOWED = 1 }; /* by one of the two */
#else
enum { SLOWED = WATCHED };
#endif
#define ROUNDS(count) (SLOWED ? (count) / 20 : (count))

/* SplitMix64: small, seeded, the same everywhere. */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
/* Uniform in [-1, 1). */
static inline float test_uniform(uint64_t *state)
{
    return (float)((double)(test_random(state) >> 11) * (2.0 / 9007199254740992.0) - 1.0);
}

#endif
