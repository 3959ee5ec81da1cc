// SPDX-License-Identifier: Apache-2.0
/*
 * Threads: one primitive, a loop over contiguous ranges. What must stay true: the ranges and their
 * `thread` numbers depend on count and the context's number of threads only, never on how many
 * threads really came.
 */
#include "base/cores.h"
#include "base/team.h"

/* The context's team, large enough for its threads; NULL when memory is out. */
static s24i_team *find_team(s24_ctx *ctx)
{
    if (ctx->team && s24i_team_threads(ctx->team) >= ctx->threads) return ctx->team;
    s24i_team_destroy(ctx->team);
    ctx->team = s24i_team_create(&ctx->allocator, ctx->threads);
    return ctx->team;
}

void s24_ctx_parallel_for(s24_ctx *ctx, int64_t count, s24i_range_fn *fn, void *arg)
{
    if (count <= 0) return;
    s24i_loop loop = {fn, arg, count, s24_ctx_threads(ctx)};
    if (loop.ranges > count) loop.ranges = (int)count;
    /* A nested call only reads in_parallel, which the loop's owner set before it began. */
    s24i_team *team = loop.ranges == 1 || ctx->in_parallel ? NULL : find_team(ctx);
    if (!team) {
        s24i_loop_run(&loop);
        return;
    }
    ctx->in_parallel = 1;
    const int missing = s24i_team_run(team, &loop);
    ctx->in_parallel = 0;
    if (missing)
        s24_ctx_log(ctx, S24_LOG_INFO, "the system gave %d of %d threads; these do the work of all",
                    loop.ranges - missing, loop.ranges);
}

void s24_ctx_set_threads(s24_ctx *ctx, int threads)
{
    if (!ctx) return;
    if (threads <= 0) threads = s24i_cores();
    ctx->threads = threads > S24I_MAX_THREADS ? S24I_MAX_THREADS : threads;
}
