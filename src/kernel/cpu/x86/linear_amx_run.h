// SPDX-License-Identifier: Apache-2.0
/*
 * Who does what of a product on tiles: each thread has its own tokens, block after block, where
 * there are enough of them, else all share the packed ones and each has its own outputs. Included
 * by a row's file after what linear_amx.h asks of it.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_AMX_RUN_H
#define S24_KERNEL_CPU_X86_LINEAR_AMX_RUN_H

#include <stdatomic.h>

#include "kernel/cpu/x86/linear_amx.h"

#if !OWN_ORDER
/* ---- kept tiles ------------------------------------------------------------------------------ */

/* Expands row blocks [begin, end), those past the last to zeros. */
TARGET static void keep_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const packing *p = arg;
    const int64_t n = p->from->n, k = p->from->k, all = k_tiles(k);
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        const uint8_t *from = (const uint8_t *)p->w + b * row_block_bytes(k) + ROW_HEAD;
        uint8_t *to = (uint8_t *)p->w + packed_bytes(n, k) + b * all * TILE;
        if (b >= rows16_blocks(n)) memset(to, 0, (size_t)(all * TILE));
        for (int64_t i = 0; i < all && b < rows16_blocks(n); i++)
            expand_all(to + i * TILE, from + i * TILE_BYTES);
    }
}

static void keep_tiles(void *w, const s24i_weight *from)
{
    const int64_t blocks = rows16_blocks(from->n) + TILES - 1;
    if (kept_bytes(from->n, from->k)) rows16_share(w, from, blocks, keep_blocks);
}
#endif

/* ---- the threads ----------------------------------------------------------------------------- */

/* The row that multiplies what this one cannot, or NULL. */
static const s24i_linear_kernel *other_row(void);

typedef struct run {
    const s24i_linear_job *job;
    uint8_t *x, *workers; /* packed tokens; WORKER_BYTES of each thread */
    int64_t groups;       /* of tokens in x: of all threads, or of each */
    int each;             /* 1: each thread packs the tokens that all share */
    atomic_int refused;   /* tokens that the other row has to multiply */
} run;

static worker worker_of(const run *r, int thread)
{
    worker w = {.job = r->job, .x = r->x, .tokens = r->job->m, .plain = sums_are_outputs(r->job)};
    w.expanded = r->workers + thread * WORKER_BYTES;
    w.strips[0] = (float *)(void *)(w.expanded + EXPANDED);
    w.strips[1] = w.strips[0] + STRIP / 4;
    w.partial = w.strips[1] + STRIP / 4;
    w.kept = kept_of(r->job);
    return w;
}

/* Packs tokens [m, m + tokens) to `to`; 0 if some need the other row. */
TARGET static int pack_groups(const s24i_linear_job *job, int64_t m, int64_t tokens, uint8_t *to)
{
    int fine = 1;
    for (int64_t t = 0; t < tokens; t += TOKENS) {
        const int64_t first = t / GROUP * GROUP, tile = (t - first) / TOKENS;
        uint8_t *group = to + t / GROUP * group_bytes(job->k);
        fine &=
            pack_tokens(job, m + t, tokens - t < TOKENS ? tokens - t : TOKENS, group + tile * TILE,
                        x_step(tiles_of(tokens - first)), scales_of(group, job->k) + tile * TOKENS);
    }
    return fine;
}

static void pack_common(void *arg, int64_t begin, int64_t end, int thread)
{
    run *r = arg;
    const int64_t m = begin * GROUP, stop = end * GROUP < r->job->m ? end * GROUP : r->job->m;
    (void)thread;
    if (!pack_groups(r->job, m, stop - m, r->x + begin * group_bytes(r->job->k)))
        atomic_store_explicit(&r->refused, 1, memory_order_relaxed);
}

static int64_t own_bytes(int64_t m, int64_t n, int64_t k, int64_t threads);

/* A thread's own copy of the tokens that all share; 0: the other row has to multiply them. */
static int pack_each(worker *w, run *r, int thread)
{
    const s24i_linear_job *job = r->job;
    uint8_t *const x = r->x + thread * own_bytes(job->m, job->n, job->k, job->parallel.threads);
    w->x = x;
    const int fine = pack_groups(job, 0, job->m, x);
    if (!fine) atomic_store_explicit(&r->refused, 1, memory_order_relaxed);
    return fine;
}

static void run_common(void *arg, int64_t begin, int64_t end, int thread)
{
    run *r = arg;
    worker w = worker_of(r, thread);
    const int64_t blocks = rows16_blocks(r->job->n);
    if (r->each && !pack_each(&w, r, thread)) return;
    begin_tiles(token_rows(r->job));
    run_blocks(&w, 2 * begin, 2 * end < blocks ? 2 * end : blocks);
    TILES_END();
}

static void run_alone(void *pool, int64_t count,
                      void (*fn)(void *arg, int64_t begin, int64_t end, int thread), void *arg)
{
    (void)pool;
    fn(arg, 0, count, 0);
}

/* The tokens that a worker has packed, by the other row. */
static void run_other(const worker *w, void *work)
{
    const s24i_linear_job *all = w->job;
    const s24_dtype y = all->y_dtype;
    s24i_linear_job job = *all;
    job.m = w->tokens, job.work = work, job.parallel = (s24i_parallel){1, run_alone, NULL};
    job.x = element_of(all->x, all->x_dtype, w->m * all->x_stride_m);
    job.y = element_to(all->y, y, w->m * all->y_stride_m);
    if (all->gate) job.gate = element_of(all->gate, y, w->m * all->gate_stride_m);
    if (all->residual) job.residual = element_of(all->residual, y, w->m * all->residual_stride_m);
    other_row()->run(&job);
}

/* Groups that a thread with tokens of its own packs at a time, and the memory for them. */
static int64_t own_groups(int64_t m, int64_t k, int64_t threads)
{
    const int64_t all = (m + GROUP - 1) / GROUP, own = (all + threads - 1) / threads + 1;
    return own < block_groups(k) ? own : block_groups(k);
}

static int64_t own_bytes(int64_t m, int64_t n, int64_t k, int64_t threads)
{
    const int64_t groups = own_groups(m, k, threads), bytes = groups * group_bytes(k);
    const s24i_linear_kernel *other = other_row();
    const int64_t others = other ? (int64_t)other->work_bytes(groups * GROUP, n, k, 1) : 0;
    return ((others > bytes ? others : bytes) + PAGE - 1) / PAGE * PAGE;
}

/* The tokens of a thread, block after block, each with all outputs. */
static void run_own(void *arg, int64_t begin, int64_t end, int thread)
{
    run *r = arg;
    const s24i_linear_job *job = r->job;
    const int64_t threads = job->parallel.threads, most = r->groups * GROUP;
    worker w = worker_of(r, thread);
    uint8_t *const x = r->x + thread * own_bytes(job->m, job->n, job->k, threads);
    w.x = x;
    begin_tiles(token_rows(job));
    for (int64_t i = begin; i < end; i++) {
        const int64_t stop = job->m * (i + 1) / threads;
        for (w.m = job->m * i / threads; w.m < stop; w.m += w.tokens) {
            w.tokens = stop - w.m < most ? stop - w.m : most;
            if (pack_groups(job, w.m, w.tokens, x))
                run_blocks(&w, 0, rows16_blocks(job->n));
            else
                run_other(&w, x);
        }
    }
    TILES_END();
}

static int has_own_tokens(int64_t m, int64_t threads)
{
    return threads == 1 || m >= OWN_TOKENS * threads;
}

/* Never less for more tokens, because whoever asks for many may come with few. */
static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    const int64_t all = (m + GROUP - 1) / GROUP, few = (int64_t)OWN_TOKENS * threads / GROUP + 1;
    const int64_t common = all < few ? all : few;
    const int64_t own_x = own_bytes(m, n, k, threads) * threads, x = common * group_bytes(k);
    const size_t bytes = (size_t)((x > own_x ? x : own_x) + threads * WORKER_BYTES + PAGE);
    const s24i_linear_kernel *other = other_row();
    const size_t others = other ? other->work_bytes(m, n, k, threads) : 0;
    return bytes > others ? bytes : others;
}

static void run_tiles(const s24i_linear_job *job)
{
    const s24i_parallel *parallel = &job->parallel;
    const int64_t threads = parallel->threads, groups = (job->m + GROUP - 1) / GROUP;
    run r = {.job = job, .groups = groups};
    r.x = (uint8_t *)(((uintptr_t)job->work + PAGE - 1) / PAGE * PAGE);
    atomic_init(&r.refused, 0);
    if (has_own_tokens(job->m, threads)) {
        r.groups = own_groups(job->m, job->k, threads);
        r.workers = r.x + threads * own_bytes(job->m, job->n, job->k, threads);
        parallel->run(parallel->pool, threads, run_own, &r);
        return;
    }
    r.each = job->m <= EACH_PACKS;
    r.workers = r.x + (r.each ? threads * own_bytes(job->m, job->n, job->k, threads)
                              : groups * group_bytes(job->k));
    if (!r.each) parallel->run(parallel->pool, groups, pack_common, &r);
    if (!atomic_load(&r.refused))
        parallel->run(parallel->pool, (rows16_blocks(job->n) + 1) / 2, run_common, &r);
    if (atomic_load(&r.refused)) other_row()->run(job);
}

#endif
