// SPDX-License-Identifier: Apache-2.0
/*
 * What the x86 rows with int8 activations share: the weight's layout, the tokens' layout, and who
 * does what. Rows of W lie in the lanes: a tile is 16 rows by up to MAX_TOKENS tokens, all of k.
 *
 *   W [n, k]  ->  row blocks of 16 rows:
 *     64 B   f32 scales[16]
 *     64 B   i32 sums[16]        the row's integers, summed
 *     then k blocks of 32 columns:
 *       64 B      u32 codes[16]  row r of the block: 8 nibbles, as in rows16.h
 *       4 x 64 B  i8 quads[16][4]  the four kept values of columns 8q..8q+7, one row a lane
 *   one sequential stream of 5 bits a dense weight. What is past n and k is zero.
 *
 *   x [m, k]  ->  panels of tokens: [eight columns][token][8]  bytes, q + X_OFFSET
 * so that a tile reads its panel in a row too, eight columns of a token by one broadcast.
 *
 * A row's file defines TARGET, X_OFFSET and MAX_TOKENS, includes this one and defines the three
 * functions declared below.
 */
#ifndef S24_KERNEL_X86_LINEAR_I8_H
#define S24_KERNEL_X86_LINEAR_I8_H

#include "kernel/linear_i8.h"

enum {
    ROWS = 16,
    COLUMNS = 32,
    HEAD = 128,        /* bytes of a row block before its k blocks */
    CODES = 64,        /* bytes of a k block's codes */
    BLOCK = 320,       /* bytes of a k block */
    CHUNK = 256 << 10, /* bytes of W that all panels pass over before the next: they stay in L2 */
    AHEAD = 4096       /* bytes of W that are asked for early */
};

/* Token m: its bytes, `step` bytes from eight columns to the next, and its scale. */
TARGET static void quantise_token(const s24i_linear_job *job, int64_t m, uint8_t *to, int64_t step,
                                  float *scale);

/* The integer sums of a row block and the tokens of a panel. */
static void run_tile(int64_t tokens, const uint8_t *w, int64_t k_blocks, const uint8_t *x,
                     int32_t (*sums)[ROWS]);

/* The epilogue of tokens m and on, outputs n to n + 15, whose row block is w. */
TARGET static void finish_tile(const s24i_linear_job *job, int64_t m, int64_t tokens, int64_t n,
                               const uint8_t *w, const float *scales, int32_t (*sums)[ROWS]);

static inline int64_t k_blocks_of(int64_t k)
{
    return (k + COLUMNS - 1) / COLUMNS;
}

static inline int64_t row_block_bytes(int64_t k)
{
    return HEAD + k_blocks_of(k) * BLOCK;
}

/* ---- the weight ------------------------------------------------------------------------------ */

static size_t weight_bytes(const s24i_weight *from)
{
    return (size_t)((from->n + ROWS - 1) / ROWS * row_block_bytes(from->k));
}

/* Row `row`, lane `lane` of its block. */
static void pack_row(uint8_t *block, int64_t lane, const s24i_weight *from, int64_t row)
{
    const int8_t *values = (const int8_t *)from->values + row * (from->k / 2);
    const uint8_t *indices = from->indices + row * ((from->k + 7) / 8);
    const float scale = from->scales ? from->scales[row] : 1;
    int32_t sum = 0;
    uint8_t *k_block = block + HEAD;
    for (int64_t k = 0; k < from->k; k += COLUMNS, k_block += BLOCK) {
        const int64_t groups = from->k - k < COLUMNS ? (from->k - k) / 4 : COLUMNS / 4;
        uint8_t codes[4] = {0};
        memcpy(codes, indices + k / 8, (size_t)((groups + 1) / 2));
        if (groups & 1) codes[groups / 2] &= 0xf;
        memcpy(k_block + 4 * lane, codes, sizeof codes);
        for (int64_t i = 0; i < 2 * groups; i++) {
            const int8_t value = values[k / 2 + i];
            memcpy(k_block + CODES + i / 4 * 4 * ROWS + 4 * lane + i % 4, &value, 1);
            sum += value;
        }
    }
    memcpy(block + 4 * lane, &scale, sizeof scale);
    memcpy(block + 64 + 4 * lane, &sum, sizeof sum);
}

static void weight_pack(void *w, const s24i_weight *from)
{
    memset(w, 0, weight_bytes(from));
    for (int64_t row = 0; row < from->n; row++)
        pack_row((uint8_t *)w + row / ROWS * row_block_bytes(from->k), row % ROWS, from, row);
}

/* ---- the tokens ------------------------------------------------------------------------------ */

typedef struct run {
    const s24i_linear_job *job;
    int64_t panels;
    float *scales; /* [m] */
    uint8_t *x;
} run;

/* Panels are as even as they come. */
static int64_t panels_of(int64_t m)
{
    return (m + MAX_TOKENS - 1) / MAX_TOKENS;
}

static int64_t panel_start(const run *r, int64_t panel)
{
    return r->job->m / r->panels * panel +
           (panel < r->job->m % r->panels ? panel : r->job->m % r->panels);
}

static uint8_t *panel_of(const run *r, int64_t panel)
{
    return r->x + panel_start(r, panel) * k_blocks_of(r->job->k) * COLUMNS;
}

static void quantise_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    int64_t panel = 0;
    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        while (panel_start(r, panel + 1) <= m)
            panel++;
        const int64_t start = panel_start(r, panel);
        quantise_token(r->job, m, panel_of(r, panel) + 8 * (m - start),
                       8 * (panel_start(r, panel + 1) - start), r->scales + m);
    }
}

static size_t scale_bytes(int64_t m)
{
    return ((size_t)m * sizeof(float) + 63) & ~(size_t)63;
}

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    (void)n, (void)threads;
    return scale_bytes(m) + (size_t)(m * k_blocks_of(k) * COLUMNS);
}

/* ---- the product ----------------------------------------------------------------------------- */

static void product_tile(const run *r, int64_t panel, int64_t b)
{
    const s24i_linear_job *job = r->job;
    const int64_t start = panel_start(r, panel), tokens = panel_start(r, panel + 1) - start;
    const uint8_t *w = (const uint8_t *)job->w + b * row_block_bytes(job->k);
    _Alignas(64) int32_t sums[MAX_TOKENS][ROWS];
    /* Lines of y that are written for the first time wait for memory, unless asked for early. */
    for (int64_t t = 0; t < tokens && job->y_stride_n == 1; t++)
        PREFETCH_TO_WRITE(
            element_to(job->y, job->y_dtype, (start + t) * job->y_stride_m + b * ROWS));
    run_tile(tokens, w, k_blocks_of(job->k), panel_of(r, panel), sums);
    finish_tile(job, start, tokens, b * ROWS, w, r->scales + start, sums);
}

static void run_blocks(const run *r, int64_t panel0, int64_t panel1, int64_t b0, int64_t b1)
{
    const int64_t bytes = row_block_bytes(r->job->k), fit = bytes < CHUNK ? CHUNK / bytes : 1;
    for (int64_t b = b0; b < b1; b += fit)
        for (int64_t panel = panel0; panel < panel1; panel++)
            for (int64_t i = b; i < b + fit && i < b1; i++)
                product_tile(r, panel, i);
}

/* A unit is a row block under all panels where that shares out evenly, else under one panel. */
static int shares_rows(const run *r, int64_t blocks)
{
    const int64_t threads = r->job->parallel.threads;
    return blocks % threads == 0 || blocks >= 8 * threads;
}

static void product_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    const int64_t blocks = (r->job->n + ROWS - 1) / ROWS;
    (void)thread;
    if (shares_rows(r, blocks)) {
        run_blocks(r, 0, r->panels, begin, end);
        return;
    }
    while (begin < end) {
        const int64_t panel = begin / blocks, b = begin % blocks;
        const int64_t stop = b + end - begin < blocks ? b + end - begin : blocks;
        run_blocks(r, panel, panel + 1, b, stop);
        begin += stop - b;
    }
}

static void run_job(const s24i_linear_job *job)
{
    run r = {.job = job, .panels = panels_of(job->m), .scales = job->work};
    const int64_t blocks = (job->n + ROWS - 1) / ROWS;
    r.x = (uint8_t *)job->work + scale_bytes(job->m);
    job->parallel.run(job->parallel.pool, job->m, quantise_range, &r);
    job->parallel.run(job->parallel.pool, shares_rows(&r, blocks) ? blocks : blocks * r.panels,
                      product_range, &r);
}

#endif
