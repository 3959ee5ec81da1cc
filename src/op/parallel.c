// SPDX-License-Identifier: Apache-2.0
/* Who shares an operation: the context's threads, or nobody. */
#include "op/op.h"

static void run_parallel(void *pool, int64_t count,
                         void (*fn)(void *arg, int64_t begin, int64_t end, int thread), void *arg)
{
    s24_ctx_parallel_for(pool, count, fn, arg);
}

s24i_parallel s24i_parallel_of(s24_ctx *ctx)
{
    return (s24i_parallel){s24_ctx_threads(ctx), run_parallel, ctx};
}

static void run_alone(void *pool, int64_t count,
                      void (*fn)(void *arg, int64_t begin, int64_t end, int thread), void *arg)
{
    (void)pool;
    if (count > 0) fn(arg, 0, count, 0);
}

s24i_parallel s24i_alone(void)
{
    return (s24i_parallel){1, run_alone, NULL};
}
