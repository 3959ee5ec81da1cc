// SPDX-License-Identifier: Apache-2.0
/* Allocations, maps, threads and processes that may be refused. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faults.h"

/* The real functions. What is asked for while they are looked up comes from `early`. */
static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static int (*real_posix_memalign)(void **, size_t, size_t);
static void *(*real_aligned_alloc)(size_t, size_t);
static void (*real_free)(void *);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);
static int (*real_pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static pid_t (*real_fork)(void);
static void *(*real_dlopen)(const char *, int);
static _Alignas(16) char early[1 << 16];
static size_t early_used;

static void look_up(void)
{
    static int is_looking;
    if (real_dlopen || is_looking) return;
    is_looking = 1;
    fault_find(&real_malloc, "malloc");
    fault_find(&real_calloc, "calloc");
    fault_find(&real_realloc, "realloc");
    fault_find(&real_posix_memalign, "posix_memalign");
    fault_find(&real_aligned_alloc, "aligned_alloc");
    fault_find(&real_free, "free");
    fault_find(&real_mmap, "mmap");
    fault_find(&real_pthread_create, "pthread_create");
    fault_find(&real_fork, "fork");
    fault_find(&real_dlopen, "dlopen");
}

static int refused(enum fault_kind kind, const void *caller)
{
    const int error = fault_now(kind, caller);
    if (error > 0) errno = error;
    return error > 0;
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
    return refused(FAULT_ALLOC, CALLER) ? NULL : real_malloc(bytes);
}

void *calloc(size_t many, size_t bytes)
{
    look_up();
    if (!real_calloc) return take_early(many * bytes);
    return refused(FAULT_ALLOC, CALLER) ? NULL : real_calloc(many, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    look_up();
    if (is_early(memory)) abort();
    return refused(FAULT_ALLOC, CALLER) ? NULL : real_realloc(memory, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    look_up();
    return refused(FAULT_ALLOC, CALLER) ? ENOMEM : real_posix_memalign(memory, alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    look_up();
    return refused(FAULT_ALLOC, CALLER) ? NULL : real_aligned_alloc(alignment, bytes);
}

void free(void *memory)
{
    look_up();
    if (!is_early(memory)) real_free(memory);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    look_up();
    return refused(FAULT_MAP, CALLER) ? MAP_FAILED
                                      : real_mmap(at, bytes, protection, flags, fd, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    look_up();
    return refused(FAULT_THREAD, CALLER) ? EAGAIN : real_pthread_create(thread, attr, run, arg);
}

pid_t fork(void)
{
    look_up();
    return refused(FAULT_FORK, CALLER) ? -1 : real_fork();
}

/* The loader looks a name up by who calls, which would be this library for all: names with a path
   are not looked up. What comes is known as soon as it has begun. */
void *dlopen(const char *name, int flags)
{
    look_up();
    void *library = real_dlopen(name, flags);
    fault_libraries();
    return library;
}
