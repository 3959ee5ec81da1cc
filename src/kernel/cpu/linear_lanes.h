// SPDX-License-Identifier: Apache-2.0
/*
 * Few tokens of linear_driver.h, which includes this: they go in groups of up to LANES_M, with rows
 * of w in the lanes, and so do the tokens of more that fill no vector.
 */
#ifndef S24_KERNEL_CPU_LINEAR_LANES_H
#define S24_KERNEL_CPU_LINEAR_LANES_H

#ifndef IS_FEW
#define IS_FEW(m) ((m) <= FEW_GROUPS * LANES_M)
#endif
#ifndef IS_FEW_NEAR
#define IS_FEW_NEAR(m) IS_FEW(m)
#endif

enum { TURN_BLOCKS = 3 }; /* row blocks that all groups visit before the next ones */

/* The tokens of a job in groups of LANES_M at most, each a job of its own. */
typedef struct few_groups {
    int64_t count;
    s24i_linear_job job[FEW_GROUPS];
    const few_t *x[FEW_GROUPS];
    int64_t stride[FEW_GROUPS];
} few_groups;

/* `count` tokens of a job from `first` on, as a job of their own. */
static s24i_linear_job tokens_of(const s24i_linear_job *all, int64_t first, int64_t count)
{
    const s24_dtype y = all->y_dtype;
    s24i_linear_job job = *all;
    job.m = count;
    job.x = element_of(all->x, all->x_dtype, first * all->x_stride_m);
    job.y = element_to(all->y, y, first * all->y_stride_m);
    if (all->gate) job.gate = element_of(all->gate, y, first * all->gate_stride_m);
    if (all->residual) job.residual = element_of(all->residual, y, first * all->residual_stride_m);
    return job;
}

static void split_tokens(few_groups *groups, const run *r, int thread)
{
    const s24i_linear_job *all = r->job;
    groups->count = (all->m + LANES_M - 1) / LANES_M;
    for (int64_t g = 0; g < groups->count; g++) {
        const int64_t m = all->m * g / groups->count;
        s24i_linear_job *job = &groups->job[g];
        *job = tokens_of(all, m, all->m * (g + 1) / groups->count - m);
        groups->x[g] = job->x;
        groups->stride[g] = job->x_stride_m;
        if (few_as_they_are(job)) continue;
        groups->x[g] =
            (const few_t *)(void *)(r->x + (thread * r->p.vectors * FEW_FORMS + g * FEW_FORMS) *
                                               r->k_blocks * PANEL);
        groups->stride[g] = r->k_blocks * COLUMNS;
    }
}

static void gather_all(const few_groups *groups)
{
    for (int64_t g = 0; g < groups->count; g++)
        if (groups->x[g] != groups->job[g].x)
            gather_few((few_t *)groups->x[g], groups->stride[g], &groups->job[g]);
}

/* Up to COPIES threads each gather the tokens for themselves, which takes less than fetching them
   from another core's cache. A packed vector's tokens take no more room than it in each form.
   Weights that come from far are near for all groups but the first. */
static void lanes_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    const int copies = r->job->parallel.threads <= COPIES;
    few_groups groups;
    split_tokens(&groups, r, copies ? thread : 0);
    if (copies && begin < end) gather_all(&groups);
    for (int64_t b = begin, stop; b < end; b = stop) {
        stop = groups.count > 1 && end - b > TURN_BLOCKS ? b + TURN_BLOCKS : end;
        for (int64_t g = 0; g < groups.count; g++)
            for (int64_t i = b; i < stop;)
                i += few_rows(&groups.job[g], groups.x[g], groups.stride[g], i, stop);
    }
}

static void run_lanes(const run *r)
{
    const s24i_parallel *parallel = &r->job->parallel;
    if (parallel->threads > COPIES) {
        few_groups groups;
        split_tokens(&groups, r, 0);
        gather_all(&groups);
    }
    parallel->run(parallel->pool, rows16_blocks(r->job->n), lanes_range, (void *)r);
}

/* The tokens that go the way of few: all, or those beyond whole vectors where rows in the lanes
   take less time than a vector for them, FEW_REST at most. These read the weights once more, which
   must be near for that. */
static int64_t few_of(const s24i_linear_job *job)
{
    const int64_t rest = job->m % LANE;
    if (IS_FEW(job->m)) return job->m;
    if (rows16_blocks(job->n) * rows16_k_blocks(job->k) * BLOCK > FAR) return 0;
    return IS_FEW_NEAR(job->m) ? job->m : rest <= FEW_REST ? rest : 0;
}

#endif
