// SPDX-License-Identifier: Apache-2.0
/* What the tests of kernels share: operands that end where nothing may be touched, and threads that
   run in turn. */
#ifndef SPARSE24_TESTS_GUARDED_H
#define SPARSE24_TESTS_GUARDED_H

#include "support.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- operands between inaccessible pages ----------------------------------------------------- */

typedef struct guarded {
    char *base;
    size_t mapped;
    void *data;
} guarded;

/* The last small areas that were given back: to map one and to touch it first takes longer than
   most products. What their last user wrote stays in them. */
enum { KEPT_AREAS = 256, LARGE_AREA = 1 << 20 };
static struct {
    guarded areas[KEPT_AREAS];
    int next;
} kept_areas;

/* A kept area of so many bytes, or a new one. */
static inline char *area_of(size_t mapped, size_t page)
{
    for (int i = 0; i < KEPT_AREAS; i++)
        if (kept_areas.areas[i].mapped == mapped) {
            kept_areas.areas[i].mapped = 0;
            return kept_areas.areas[i].base;
        }
    char *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    assert_int_equal(mprotect(base, page, PROT_NONE), 0);
    assert_int_equal(mprotect(base + mapped - page, page, PROT_NONE), 0);
    return base;
}

/* `bytes` that end (at_end) or begin at an inaccessible page; `align` is kept at the end too. */
static inline guarded guard(size_t bytes, size_t align, int at_end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t inner = (bytes + page - 1) / page * page, mapped = inner + 2 * page;
    char *base = area_of(mapped, page);
    return (guarded){base, mapped, base + page + (at_end ? (inner - bytes) / align * align : 0)};
}

static inline void unguard(guarded g)
{
    guarded *oldest = &kept_areas.areas[kept_areas.next++ % KEPT_AREAS];
    if (g.mapped > LARGE_AREA) {
        munmap(g.base, g.mapped);
        return;
    }
    if (oldest->mapped) munmap(oldest->base, oldest->mapped);
    *oldest = g;
}

/* ---- a pool that runs the ranges in turn: the split is what matters here --------------------- */

typedef struct guarded_range {
    void (*fn)(void *arg, int64_t begin, int64_t end, int thread);
    void *arg;
    int64_t begin, end;
    int thread;
} guarded_range;

static inline void *run_range(void *range)
{
    const guarded_range *r = range;
    r->fn(r->arg, r->begin, r->end, r->thread);
    return NULL;
}

/* Under the thread sanitizer each range has a thread of its own, so that it sees what they
   share. */
static inline void run_in_turn(void *pool, int64_t count, void (*fn)(void *, int64_t, int64_t, int),
                               void *arg)
{
    enum { MOST = 8 };
    guarded_range ranges[MOST];
    const int threads = *(int *)pool;
    assert_in_range(threads, 1, MOST);
    for (int t = 0; t < threads; t++) {
        const int64_t share = count / threads, rest = count % threads;
        const int64_t begin = share * t + (t < rest ? t : rest);
        ranges[t] = (guarded_range){fn, arg, begin, begin + share + (t < rest), t};
    }
#ifdef __SANITIZE_THREAD__
    pthread_t ids[MOST];
    for (int t = 0; t < threads; t++)
        assert_int_equal(pthread_create(&ids[t], NULL, run_range, &ranges[t]), 0);
    for (int t = 0; t < threads; t++)
        pthread_join(ids[t], NULL);
#else
    for (int t = threads - 1; t >= 0; t--)
        run_range(&ranges[t]);
#endif
}

#endif
