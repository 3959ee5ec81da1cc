// SPDX-License-Identifier: Apache-2.0
/*
 * Threads: one primitive, a loop over contiguous ranges. With OpenMP the runtime keeps its threads
 * between regions; without it (the thread sanitizer does not understand libgomp) threads are made
 * and joined for each region. What must stay true: the ranges and their `thread` numbers depend on
 * count and the context's number of threads only, never on how many threads really came.
 */
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT_S */
#include <sched.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#else
#include <pthread.h>
#endif

#include "base/base.h"

typedef void range_fn(void *arg, int64_t begin, int64_t end, int thread);

typedef struct loop {
    range_fn *fn;
    void *arg;
    int64_t count;
    int threads;
} loop;

static void run_range(const loop *l, int thread)
{
    int64_t share = l->count / l->threads, rest = l->count % l->threads;
    int64_t begin = share * thread + (thread < rest ? thread : rest);
    l->fn(l->arg, begin, begin + share + (thread < rest), thread);
}

static void run_inline(const loop *l)
{
    for (int t = 0; t < l->threads; t++)
        run_range(l, t);
}

#ifdef _OPENMP

static void run_threads(const loop *l)
{
#pragma omp parallel num_threads(l->threads)
    {
        /* Inside a caller's own parallel region the team is smaller than asked for. */
        int team = omp_get_num_threads();
        for (int t = omp_get_thread_num(); t < l->threads; t += team)
            run_range(l, t);
    }
}

#else

typedef struct worker {
    const loop *l;
    int thread;
} worker;

static void *work(void *arg)
{
    const worker *w = arg;
    run_range(w->l, w->thread);
    return NULL;
}

static void run_threads(const loop *l)
{
    pthread_t ids[S24I_MAX_THREADS];
    worker workers[S24I_MAX_THREADS];
    int started = 1; /* range 0 is the caller's */
    for (; started < l->threads; started++) {
        workers[started] = (worker){l, started};
        if (pthread_create(&ids[started], NULL, work, &workers[started])) break;
    }
    run_range(l, 0);
    for (int t = started; t < l->threads; t++)
        run_range(l, t);
    for (int t = 1; t < started; t++)
        pthread_join(ids[t], NULL);
}

#endif

void s24_ctx_parallel_for(s24_ctx *ctx, int64_t count, range_fn *fn, void *arg)
{
    if (count <= 0) return;
    loop l = {fn, arg, count, s24_ctx_threads(ctx)};
    if (l.threads > count) l.threads = (int)count;
    /* A nested call only reads in_parallel, which the region's owner set before it began. */
    if (l.threads == 1 || ctx->in_parallel) {
        run_inline(&l);
        return;
    }
    ctx->in_parallel = 1;
    run_threads(&l);
    ctx->in_parallel = 0;
}

static int allowed_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more cores than the set can hold */
    if (online < 1) return 1;
    return online > S24I_MAX_THREADS ? S24I_MAX_THREADS : (int)online;
}

void s24_ctx_set_threads(s24_ctx *ctx, int threads)
{
    if (!ctx) return;
    if (threads <= 0) threads = allowed_cores();
    ctx->threads = threads > S24I_MAX_THREADS ? S24I_MAX_THREADS : threads;
}
