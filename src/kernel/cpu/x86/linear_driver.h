// SPDX-License-Identifier: Apache-2.0
/*
 * What the x86 linear rows do around their tiles: panels of tokens, packing, passes over k, shares
 * of the threads. An instruction set's header (linear_avx512.h, linear_avx2.h) defines the macros
 * and functions named below, includes this file, and is itself included by one file a row.
 *
 *   TARGET, VALUE (bytes of a stored value), LANE (tokens of a vector), MAX_C, BEST_C, FIT_C
 *   tiles[c], lanes[m], pack_square(), finish_square(), widen() where VALUE is not 4
 */
#ifndef S24_KERNEL_X86_LINEAR_DRIVER_H
#define S24_KERNEL_X86_LINEAR_DRIVER_H

/* ---- the split of m into panels -------------------------------------------------------------- */

/* Panels of BEST_C vectors at most, as even as they come; one of up to FIT_C alone. */
typedef struct panels {
    int64_t vectors, count;
} panels;

static panels panels_of(int64_t m, int64_t threads)
{
    panels p = {(m + LANE - 1) / LANE, 0};
    p.count = p.vectors <= FIT_C ? 1 : (p.vectors + BEST_C - 1) / BEST_C;
    /* A panel for each thread needs no barrier after packing; worth it if they stay wide. */
    if (p.count == 1 && p.vectors % threads == 0 && p.vectors / threads >= 4) p.count = threads;
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
    float *x;    /* packed: [vectors before the panel] * LANE * k_padded floats, then the panel */
    float *sums; /* CHUNK row blocks a thread */
    int64_t k_padded; /* k rounded up to whole k blocks */
} run;

enum { PACK_K = 128 }; /* columns of x that one item of packing takes */

/* Columns [k0, k1) of one vector of tokens; `packed` is its panel. */
TARGET static void pack_vector(const run *r, int64_t vector, int64_t start, int64_t c, int64_t k0,
                               int64_t k1, float *packed)
{
    for (int64_t k = k0; k < k1; k += 16)
        pack_square(packed + (vector - start) * 4 * LANE + k / 4 * c * 4 * LANE, c, r->job,
                    vector * LANE, k);
}

static void pack_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    const int64_t slices = (r->k_padded + PACK_K - 1) / PACK_K;
    (void)thread;
    for (int64_t item = begin; item < end; item++) {
        int64_t vector = item / slices, k0 = item % slices * PACK_K, panel = 0;
        while (panel_start(r->p, panel + 1) <= vector)
            panel++;
        int64_t start = panel_start(r->p, panel), c = panel_start(r->p, panel + 1) - start;
        pack_vector(r, vector, start, c, k0, k0 + PACK_K < r->k_padded ? k0 + PACK_K : r->k_padded,
                    r->x + start * LANE * r->k_padded);
    }
}

/* ---- broadcast design ------------------------------------------------------------------------ */

/*
 * y is written in strips of a few row blocks: every token is a page of its own, and a visit to a
 * page should store more than one line. The first touch of those lines waits for memory, so they
 * are asked for some passes early, a slice of the tokens each pass; asked for to be written,
 * because a plain prefetch leaves the wait for their ownership to the store (4096 x 1536 outputs:
 * 23.4 ms against 18.5).
 */
enum { TOGETHER = 2 };

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

TARGET static void finish_strip(const s24i_linear_job *job, int64_t b, int64_t blocks, int64_t m,
                                int64_t c, const float *sums)
{
    for (int64_t v = 0; v < c; v++)
        for (int64_t i = 0; i < blocks; i++)
            finish_square(job, m + v * LANE, (b + i) * ROWS, sums + (i * ROWS * c + v) * LANE,
                          c * LANE);
}

/* Row blocks [b0, b1) of one panel, all of k. */
static void run_panel(const run *r, int64_t panel, const float *packed, int64_t b0, int64_t b1,
                      float *sums)
{
    const s24i_linear_job *job = r->job;
    const int64_t start = panel_start(r->p, panel), c = panel_start(r->p, panel + 1) - start;
    const int64_t blocks = rows16_k_blocks(job->k), step = tiles[c].blocks, m = start * LANE;
    const int64_t row_bytes = blocks * BLOCK, passes = (blocks + step - 1) / step;
#if VALUE != 4
    _Alignas(64) uint8_t block[MAX_BLOCKS * TILE_BLOCK];
#endif
    for (int64_t pass = 0; pass < passes; pass++) {
        const int64_t first = pass * step;
        tile t = {.first = pass == 0};
        t.blocks = blocks - first < step ? blocks - first : step;
        t.x = packed + first * COLUMNS * c * LANE;
        for (int64_t b = b0, strip = b0; b < b1; b++) {
            t.w = (const uint8_t *)job->w + b * row_bytes + first * BLOCK;
            t.sums = sums + (b - b0) * ROWS * c * LANE;
            t.ahead = b + 1 < b1 ? row_bytes : (b0 - b) * row_bytes;
#if VALUE != 4
            widen(block, &t);
#endif
            tiles[c].run(&t);
            if (b + 1 < b1 && b + 1 < strip + TOGETHER) continue;
            if (pass + 1 == passes)
                finish_strip(job, strip, b + 1 - strip, m, c,
                             sums + (strip - b0) * ROWS * c * LANE);
            else
                prefetch_strip(job, strip, b + 1 - strip, m + c * LANE * pass / (passes - 1),
                               m + c * LANE * (pass + 1) / (passes - 1));
            strip = b + 1;
        }
    }
}

/*
 * Who does what. Enough panels: each thread packs its own, one after the other, and runs them down
 * all of w; the packed panel is still in L2. Else x is packed by all, and the units shared out are
 * row blocks where they suffice, or (panel, row block).
 */
enum { ENOUGH = 8 }; /* units a thread from which an uneven share costs little */

static int shares_evenly(int64_t units, int64_t threads)
{
    return units % threads == 0 || units >= ENOUGH * threads;
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
            run_panel(r, p, r->x + panel_start(r->p, p) * LANE * r->k_padded, b,
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
    const int64_t blocks = rows16_blocks(r->job->n);
    float *packed = r->x + thread * (r->p.vectors / r->p.count + 1) * LANE * r->k_padded;
    for (int64_t p = begin; p < end; p++) {
        int64_t start = panel_start(r->p, p), stop = panel_start(r->p, p + 1);
        for (int64_t v = start; v < stop; v++)
            pack_vector(r, v, start, stop - start, 0, r->k_padded, packed);
        for (int64_t b = 0; b < blocks; b += CHUNK)
            run_panel(r, p, packed, b, b + CHUNK < blocks ? b + CHUNK : blocks, sums_of(r, thread));
    }
}

/* ---- few tokens, rows in the lanes ----------------------------------------------------------- */

#if HAS_LANES
static void lanes_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    const s24i_linear_job *job = r->job;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        if (r->x)
            lanes[job->m](job, r->x, r->k_padded, b);
        else
            lanes[job->m](job, job->x, job->x_stride_m, b);
    }
}

/* Few tokens whose columns do not lie together are gathered first. */
static void gather_tokens(const run *r)
{
    const s24i_linear_job *job = r->job;
    const float *x = job->x;
    for (int64_t m = 0; m < job->m; m++)
        for (int64_t k = 0; k < job->k; k++)
            r->x[m * r->k_padded + k] = x[m * job->x_stride_m + k * job->x_stride_k];
}

#endif

/* ---- the row's entries ----------------------------------------------------------------------- */

static size_t weight_bytes(int64_t n, int64_t k)
{
    return rows16_bytes(n, k, VALUE);
}

static void weight_pack(void *w, const s24i_weight *from)
{
    rows16_pack(w, from->values, from->indices, from->n, from->k, VALUE);
}

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    /* A panel of its own for each thread needs at most a vector a thread more than all of x. */
    size_t x = (size_t)((m + LANE * (threads + 1)) * rows16_k_blocks(k) * COLUMNS) * sizeof(float);
    (void)n;
    return x + (size_t)threads * CHUNK * ROWS * MAX_C * LANE * sizeof(float);
}

static void run_job(const s24i_linear_job *job)
{
    const s24i_parallel *parallel = &job->parallel;
    run r = {.job = job, .k_padded = rows16_k_blocks(job->k) * COLUMNS};
#if HAS_LANES
    if (job->m <= LANES_M) {
        if (job->x_stride_k != 1) {
            r.x = job->work;
            gather_tokens(&r);
        }
        parallel->run(parallel->pool, rows16_blocks(job->n), lanes_range, &r);
        return;
    }
#endif
    r.p = panels_of(job->m, parallel->threads);
    r.x = job->work;
    r.sums = r.x + (r.p.vectors + parallel->threads) * LANE * r.k_padded;
    if (r.p.count >= parallel->threads && shares_evenly(r.p.count, parallel->threads)) {
        parallel->run(parallel->pool, r.p.count, run_own_panels, &r);
        return;
    }
    const int64_t blocks = rows16_blocks(job->n);
    parallel->run(parallel->pool, r.p.vectors * ((r.k_padded + PACK_K - 1) / PACK_K), pack_range,
                  &r);
    parallel->run(parallel->pool,
                  shares_evenly(blocks, parallel->threads) ? blocks : blocks * r.p.count,
                  run_shared, &r);
}

#endif
