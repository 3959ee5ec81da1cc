// SPDX-License-Identifier: Apache-2.0
/*
 * What the vector linear rows do around their tiles: panels of tokens, packing, passes over k,
 * shares of the threads. An instruction set's header (x86/linear_avx512.h, x86/linear_avx2.h) or a
 * row's own file defines the macros and functions named below and includes this file.
 *
 *   TARGET            function attribute of the instruction set
 *   LAYOUT            of w: a row of format/layouts.def, by its symbol
 *   BLOCK             bytes of a stored k block
 *   LANE              tokens of a vector
 *   PANEL             bytes of a packed k block of one vector of tokens, GROUPS equal parts of it
 *   KBLOCK(c)         bytes of a panel's k block of c vectors where that is less than c * PANEL
 *   PANEL_SLACK       bytes that tiles may touch beyond the last panel (a multiple of 64)
 *   PREFETCH_TO_WRITE(p)  asks for a line that will be stored to
 *   MAX_C, BEST_C, FIT_C, CHUNK, tiles[c], pack_block(), finish_square()
 *   NEAR              bytes of L2 that the packed panels of one visit to the weights may take
 *   FOURS(c)          how many of a panel's c vectors, the last ones, lie in its tile's other form;
 *                     pack_block() and finish_square() then are told
 *   PAIRS             1: finish_pair() may do the squares of two row blocks at once
 *   WIDEN             1: widen() copies a pass's weights into the form that the tile reads
 *   OWN_LAYOUT        1: LAYOUT is of integers, and widen() is told the place:
 *                     widen(block, &tile, job, row block, k block)
 *   HAS_LANES         1: few tokens go another way: LANES_M, IS_FEW(m) (all groups' tokens unless
 *                     it is defined), IS_FEW_NEAR(m) (the same where weights are near, or more),
 *                     few_rows(), which says how many row blocks it did at once, few_t,
 *                     few_as_they_are(), gather_few()
 *   FEW_FORMS         forms in which gather_few() lays them down, 1 if not defined
 *   FEW_GROUPS        groups of LANES_M tokens that go that way after each other, 1 if not defined.
 *                     Either is more than 1 only where LANES_M tokens are one vector
 *   FETCH_PRODUCTS    multiply-adds of the dense product in the time of fetching a column of a
 *                     token that another thread has packed, 220 if not defined
 *   FEW_REST          of more tokens so many that fill no vector go that way, 0 if not defined
 */
#ifndef S24_KERNEL_CPU_LINEAR_DRIVER_H
#define S24_KERNEL_CPU_LINEAR_DRIVER_H

#ifdef FOURS
#define IF_FOURS(vector, c) , (vector) >= (c)-FOURS(c)
#else
#define IF_FOURS(vector, c)
#endif

#ifndef FEW_FORMS
#define FEW_FORMS 1
#endif
#ifndef FEW_GROUPS
#define FEW_GROUPS 1
#endif

#ifndef FEW_REST
#define FEW_REST 0
#endif

#ifndef FETCH_PRODUCTS
#define FETCH_PRODUCTS 220
#endif

#ifndef KBLOCK
#define KBLOCK(c) ((c)*PANEL)
#endif

/* ---- the split of m into panels -------------------------------------------------------------- */

enum { ENOUGH = 8 }; /* units a thread from which an uneven share costs little */

static int shares_evenly(int64_t units, int64_t threads)
{
    return units % threads == 0 || units >= ENOUGH * threads;
}

/* Panels of BEST_C vectors at most, as even as they come; one of up to FIT_C alone. */
typedef struct panels {
    int64_t vectors, count;
} panels;

static panels panels_of(int64_t m, int64_t threads)
{
    panels p = {(m + LANE - 1) / LANE, 0};
    p.count = p.vectors <= FIT_C ? 1 : (p.vectors + BEST_C - 1) / BEST_C;
    /* Panels of its own for each thread need no barrier after packing; worth it if they stay
       wide. */
    if (p.count == 1 && p.vectors % threads == 0 && p.vectors / threads >= 4) p.count = threads;
    if (p.count > 1 && !shares_evenly(p.count, threads)) {
        const int64_t more = (p.count + threads - 1) / threads * threads;
        if (p.vectors / more >= 3) p.count = more;
    }
    return p;
}

static int64_t panel_start(panels p, int64_t i)
{
    int64_t share = p.vectors / p.count, rest = p.vectors % p.count;
    return share * i + (i < rest ? i : rest);
}

/* ---- packing of x ---------------------------------------------------------------------------- */

typedef struct run {
    const s24i_linear_job *job;
    panels p;
    uint8_t *x;       /* packed: vector of tokens, k block -> PANEL bytes */
    float *sums;      /* CHUNK row blocks per thread */
    int64_t k_blocks; /* of job->k */
} run;

enum { PACK_BLOCKS = 4 }; /* k blocks of x that one item of packing takes */

/* K blocks [q0, q1) of one vector of tokens; `packed` is its panel. */
TARGET static void pack_vector(const run *r, int64_t vector, int64_t start, int64_t c, int64_t q0,
                               int64_t q1, uint8_t *packed)
{
    for (int64_t q = q0; q < q1; q++)
        pack_block(packed + q * KBLOCK(c) + (vector - start) * (PANEL / GROUPS), c, r->job,
                   vector * LANE, q * COLUMNS IF_FOURS(vector - start, c));
}

static void pack_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    const int64_t slices = (r->k_blocks + PACK_BLOCKS - 1) / PACK_BLOCKS;
    (void)thread;
    for (int64_t item = begin; item < end; item++) {
        int64_t vector = item / slices, q0 = item % slices * PACK_BLOCKS, panel = 0;
        while (panel_start(r->p, panel + 1) <= vector)
            panel++;
        int64_t start = panel_start(r->p, panel), c = panel_start(r->p, panel + 1) - start;
        pack_vector(r, vector, start, c, q0,
                    q0 + PACK_BLOCKS < r->k_blocks ? q0 + PACK_BLOCKS : r->k_blocks,
                    r->x + start * r->k_blocks * PANEL);
    }
}

/* ---- broadcast design ------------------------------------------------------------------------ */

/*
 * y is written in strips of a few row blocks: every token is a page of its own, and a visit to a
 * page should store more than one line. The first touch of those lines waits for memory, so they
 * are asked for in the last passes before, a slice of the tokens each pass; not earlier, because
 * tokens that lie a multiple of a page apart share a few sets of the caches and push each other
 * out. Asked for to be written, because a plain prefetch leaves the wait for their ownership to the
 * store (4096 x 1536 outputs on Golden Cove: 23.4 ms against 18.5).
 */
enum { TOGETHER = 8, LEAD = 2 };

static void prefetch_strip(const s24i_linear_job *job, int64_t b, int64_t blocks, int64_t m,
                           int64_t last)
{
    if (job->y_stride_n != 1) return;
    if (last > job->m) last = job->m;
    for (; m < last; m++)
        for (int64_t i = 0; i < blocks; i++)
            PREFETCH_TO_WRITE(
                element_to(job->y, job->y_dtype, m * job->y_stride_m + (b + i) * ROWS));
}

/* The slice of `tokens` that is due when `left` of `all` passes come before the strip's last. */
static void prefetch_early(const s24i_linear_job *job, int64_t b, int64_t blocks, int64_t m,
                           int64_t tokens, int64_t left, int64_t all)
{
    const int64_t lead = all < LEAD ? all : LEAD;
    if (left <= lead)
        prefetch_strip(job, b, blocks, m + tokens * (lead - left) / lead,
                       m + tokens * (lead - left + 1) / lead);
}

TARGET static void finish_strip(const s24i_linear_job *job, int64_t b, int64_t blocks, int64_t m,
                                int64_t c, const float *sums)
{
    for (int64_t v = 0; v < c; v++)
        for (int64_t i = 0; i < blocks; i++) {
            const float *square = sums + (i * ROWS * c + v) * LANE;
#if PAIRS
            if (i + 1 < blocks && finish_pair(job, m + v * LANE, (b + i) * ROWS, square,
                                              ROWS * c * LANE, c * LANE IF_FOURS(v, c))) {
                i++;
                continue;
            }
#endif
            finish_square(job, m + v * LANE, (b + i) * ROWS, square, c * LANE IF_FOURS(v, c));
        }
}

/* Weights of so many bytes do not stay near between two panels: the part of a shared L3 that a
   process can count on. */
enum { FAR = 6 << 20 };

/* Row blocks [b0, b1) of one panel, all of k; cold if no panel before it used them just now. */
static void run_panel(const run *r, int64_t panel, int cold, const uint8_t *packed, int64_t b0,
                      int64_t b1, float *sums)
{
    const s24i_linear_job *job = r->job;
    const int64_t start = panel_start(r->p, panel), c = panel_start(r->p, panel + 1) - start;
    const int64_t blocks = r->k_blocks, m = start * LANE, row_bytes = blocks * BLOCK;
    const int64_t passes = (blocks + tiles[c].blocks - 1) / tiles[c].blocks;
    const int64_t step = (blocks + passes - 1) / passes;
#if WIDEN
    _Alignas(64) uint8_t block[MAX_BLOCKS * TILE_BLOCK];
#endif
    cold = !WIDEN && (cold || rows16_blocks(job->n) * row_bytes > FAR);
    for (int64_t pass = 0; pass < passes; pass++) {
        const int64_t first = pass * step;
        tile t = {.first = pass == 0, .cold = cold};
        t.blocks = blocks - first < step ? blocks - first : step;
        t.groups = first + t.blocks < blocks ? GROUPS : rows16_last_groups(job->k);
        t.x = packed + first * KBLOCK(c);
        for (int64_t b = b0, strip = b0; b < b1; b++) {
#if !OWN_LAYOUT
            t.w = (const uint8_t *)job->w + b * row_bytes + first * BLOCK;
#endif
            /* Sums of a single pass are over with their strip. */
            float *const strip_sums = sums + (passes > 1 ? strip - b0 : 0) * ROWS * c * LANE;
            t.sums = strip_sums + (b - strip) * ROWS * c * LANE;
            t.ahead = b + 1 < b1 ? row_bytes : (b0 - b) * row_bytes;
#if OWN_LAYOUT
            widen(block, &t, job, b, first);
#elif WIDEN
            widen(block, &t);
#endif
            tiles[c].run(&t);
            if (b + 1 < b1 && b + 1 < strip + TOGETHER) continue;
            if (pass + 1 == passes)
                finish_strip(job, strip, b + 1 - strip, m, c, strip_sums);
            else
                prefetch_early(job, strip, b + 1 - strip, m, c * LANE, passes - 1 - pass,
                               passes - 1);
            strip = b + 1;
        }
    }
}

/*
 * Who does what. Panels for all: each thread packs its own and runs them down all of w, as many at
 * a time as L2 holds with a few row blocks, so that those come from far once for all of them. One
 * panel for a few threads: each packs all of it for itself, which takes less than fetching it from
 * another core's cache (a lone vector is little to fetch). Else x is packed by all, and the units
 * shared out are row blocks where they suffice, or (panel, row block).
 */
enum { COPIES = 4 }; /* threads at most */

static int packs_copies(panels p, int64_t blocks, int64_t threads)
{
    return p.count == 1 && p.vectors > 1 && threads > 1 && threads <= COPIES && blocks >= threads;
}

static int has_own_panels(panels p, int64_t threads)
{
    return p.count >= threads && shares_evenly(p.count, threads);
}

/*
 * Panels for each thread, though they are narrow or uneven, where that costs less than fetching
 * what others have packed, some 2 ns a column of a token. Narrow panels, of two vectors at least,
 * since not every row has a tile for one, take 1.3 times as long, and each thread reads all of w,
 * which takes what 8 tokens more would.
 */
static panels panels_apart(panels p, const s24i_linear_job *job)
{
    const int64_t threads = job->parallel.threads;
    const int64_t count = (p.count + threads - 1) / threads * threads;
    const double own = (double)((p.vectors + threads - 1) / threads * LANE);
    const double shared = (double)job->m / (double)threads;
    const int is_near = rows16_blocks(job->n) * rows16_k_blocks(job->k) * BLOCK <= FAR;
    if (has_own_panels(p, threads) || 2 * count > p.vectors || !is_near) return p;
    if ((double)job->n * (1.3 * own - shared + 8) > FETCH_PRODUCTS * (double)job->m) return p;
    p.count = count;
    return p;
}

/* How many panels of its own a thread runs together. */
static int64_t panels_together(panels p, int64_t threads, int64_t k_blocks)
{
    const int64_t own = (p.count + threads - 1) / threads;
    const int64_t widest = (p.vectors + p.count - 1) / p.count;
    const int64_t near = NEAR / (widest * k_blocks * PANEL);
    return near < 1 ? 1 : near < own ? near : own;
}

/* How many row blocks those panels meet at a time: 256 KiB of weights, in whole strips. */
static int64_t visit_blocks(int64_t together, int64_t k_blocks)
{
    const int64_t blocks = (256 << 10) / (k_blocks * BLOCK) / TOGETHER * TOGETHER;
    if (together == 1 || blocks > CHUNK) return CHUNK;
    return blocks < TOGETHER ? TOGETHER : blocks;
}

/* The packed vectors that there is room for: all, or a lone panel for each thread; never fewer for
   more tokens, because whoever asks for many may come with few, in all their forms. */
static int64_t packed_vectors(int64_t vectors, int64_t threads)
{
    const int64_t few = (vectors < FEW_GROUPS ? vectors : FEW_GROUPS) * FEW_FORMS;
    const int64_t lone = vectors < FIT_C ? vectors : FIT_C;
    const int64_t copies = (threads <= COPIES ? threads : 1) * (lone > few ? lone : few);
    return vectors > copies ? vectors : copies;
}

static float *sums_of(const run *r, int thread)
{
    return r->sums + thread * (int64_t)CHUNK * ROWS * MAX_C * LANE;
}

static void run_blocks(const run *r, int64_t panel0, int64_t panel1, int64_t b0, int64_t b1,
                       float *sums)
{
    for (int64_t b = b0; b < b1; b += CHUNK)
        for (int64_t p = panel0; p < panel1; p++)
            run_panel(r, p, p == panel0, r->x + panel_start(r->p, p) * r->k_blocks * PANEL, b,
                      b + CHUNK < b1 ? b + CHUNK : b1, sums);
}

static void run_shared(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    const int64_t blocks = rows16_blocks(r->job->n);
    if (shares_evenly(blocks, r->job->parallel.threads)) {
        run_blocks(r, 0, r->p.count, begin, end, sums_of(r, thread));
        return;
    }
    while (begin < end) {
        int64_t panel = begin / blocks, b = begin % blocks;
        int64_t stop = b + end - begin < blocks ? b + end - begin : blocks;
        run_blocks(r, panel, panel + 1, b, stop, sums_of(r, thread));
        begin += stop - b;
    }
}

static void run_own_panels(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    const int64_t blocks = rows16_blocks(r->job->n), vector = r->k_blocks * PANEL;
    const int64_t together = panels_together(r->p, r->job->parallel.threads, r->k_blocks);
    const int64_t visit = visit_blocks(together, r->k_blocks);
    /* No later panels take more room than the first ones. */
    uint8_t *packed = r->x + panel_start(r->p, begin) * vector;
    for (int64_t p0 = begin, p1; p0 < end; p0 = p1) {
        const int64_t first = panel_start(r->p, p0);
        p1 = p0 + together < end ? p0 + together : end;
        for (int64_t p = p0; p < p1; p++) {
            const int64_t start = panel_start(r->p, p), stop = panel_start(r->p, p + 1);
            for (int64_t v = start; v < stop; v++)
                pack_vector(r, v, start, stop - start, 0, r->k_blocks,
                            packed + (start - first) * vector);
        }
        for (int64_t b = 0; b < blocks; b += visit)
            for (int64_t p = p0; p < p1; p++)
                run_panel(r, p, p == p0, packed + (panel_start(r->p, p) - first) * vector, b,
                          b + visit < blocks ? b + visit : blocks, sums_of(r, thread));
    }
}

static void run_own_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    uint8_t *packed = r->x + thread * r->p.vectors * r->k_blocks * PANEL;
    for (int64_t v = 0; v < r->p.vectors && begin < end; v++)
        pack_vector(r, v, 0, r->p.vectors, 0, r->k_blocks, packed);
    for (int64_t b = begin; b < end; b += CHUNK)
        run_panel(r, 0, 1, packed, b, b + CHUNK < end ? b + CHUNK : end, sums_of(r, thread));
}

#if HAS_LANES
#include "kernel/cpu/linear_lanes.h"
#endif

/* ---- the row's entries ----------------------------------------------------------------------- */

#include "kernel/cpu/rows16_pack.h"

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    (void)n;
    return (size_t)packed_vectors((m + LANE - 1) / LANE, threads) * (size_t)rows16_k_blocks(k) *
               PANEL +
           PANEL_SLACK + (size_t)threads * CHUNK * ROWS * MAX_C * LANE * sizeof(float);
}

static run run_of(const s24i_linear_job *job)
{
    return (run){.job = job,
                 .p = panels_of(job->m, job->parallel.threads),
                 .x = job->work,
                 .k_blocks = rows16_k_blocks(job->k)};
}

static void run_panels(const s24i_linear_job *job)
{
    const s24i_parallel *parallel = &job->parallel;
    run r = run_of(job);
    r.p = panels_apart(r.p, job);
    r.sums = (float *)(void *)(r.x +
                               packed_vectors(r.p.vectors, parallel->threads) * r.k_blocks * PANEL +
                               PANEL_SLACK);
    if (has_own_panels(r.p, parallel->threads)) {
        parallel->run(parallel->pool, r.p.count, run_own_panels, &r);
        return;
    }
    const int64_t blocks = rows16_blocks(job->n);
    if (packs_copies(r.p, blocks, parallel->threads)) {
        parallel->run(parallel->pool, blocks, run_own_rows, &r);
        return;
    }
    parallel->run(parallel->pool, r.p.vectors * ((r.k_blocks + PACK_BLOCKS - 1) / PACK_BLOCKS),
                  pack_range, &r);
    parallel->run(parallel->pool,
                  shares_evenly(blocks, parallel->threads) ? blocks : blocks * r.p.count,
                  run_shared, &r);
}

#if HAS_LANES
static void run_job(const s24i_linear_job *job)
{
    const int64_t few = few_of(job), many = job->m - few;
    const s24i_linear_job first = tokens_of(job, 0, many), last = tokens_of(job, many, few);
    const run r = run_of(&last);
    if (few) run_lanes(&r);
    if (many) run_panels(&first);
}
#else
static void run_job(const s24i_linear_job *job)
{
    run_panels(job);
}
#endif

#endif
