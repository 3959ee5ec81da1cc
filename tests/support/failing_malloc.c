// SPDX-License-Identifier: Apache-2.0
/*
 * A library to be preloaded: the S24_FAIL_AT-th allocation of the whole process fails, and with
 * S24_FAIL_ALL set all later ones too. How many there were is written, when the process ends, to
 * the file S24_FAIL_COUNT.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The real functions. What is asked for while they are looked up comes from `early`. */
static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static int (*real_posix_memalign)(void **, size_t, size_t);
static void *(*real_aligned_alloc)(size_t, size_t);
static void (*real_free)(void *);
static _Alignas(16) char early[1 << 16];
static size_t early_used;

static atomic_int started;
static atomic_long count;
static long fail_at;
static int fail_all;

static void find(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof found);
}

static void look_up(void)
{
    static int is_looking;
    if (real_free || is_looking) return;
    is_looking = 1;
    find(&real_malloc, "malloc");
    find(&real_calloc, "calloc");
    find(&real_realloc, "realloc");
    find(&real_posix_memalign, "posix_memalign");
    find(&real_aligned_alloc, "aligned_alloc");
    find(&real_free, "free");
}

static int fails(void)
{
    if (!atomic_load(&started)) return 0;
    const long n = atomic_fetch_add(&count, 1) + 1;
    if (n != fail_at && !(fail_all && n > fail_at)) return 0;
    errno = ENOMEM;
    return 1;
}

static void *take_early(size_t bytes)
{
    bytes = (bytes + 15) / 16 * 16;
    if (bytes > sizeof early - early_used) abort();
    early_used += bytes;
    return early + early_used - bytes; /* zeros, like all of it */
}

static int is_early(const void *memory)
{
    return (uintptr_t)memory - (uintptr_t)early < sizeof early;
}

void *malloc(size_t bytes)
{
    look_up();
    if (!real_malloc) return take_early(bytes);
    return fails() ? NULL : real_malloc(bytes);
}

void *calloc(size_t many, size_t bytes)
{
    look_up();
    if (!real_calloc) return take_early(many * bytes);
    return fails() ? NULL : real_calloc(many, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    look_up();
    if (is_early(memory)) abort();
    return fails() ? NULL : real_realloc(memory, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    look_up();
    return fails() ? ENOMEM : real_posix_memalign(memory, alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    look_up();
    return fails() ? NULL : real_aligned_alloc(alignment, bytes);
}

void free(void *memory)
{
    look_up();
    if (!is_early(memory)) real_free(memory);
}

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("S24_FAIL_AT");
    fail_at = at ? atol(at) : 0;
    fail_all = getenv("S24_FAIL_ALL") != NULL;
    atomic_store(&started, 1);
}

__attribute__((destructor)) static void end(void)
{
    atomic_store(&started, 0);
    const char *path = getenv("S24_FAIL_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld\n", atomic_load(&count));
    fclose(file);
}
