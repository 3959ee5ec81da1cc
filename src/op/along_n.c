// SPDX-License-Identifier: Apache-2.0
/*
 * y[lane, k] = alpha·Σ_n x[lane, n]·W[n, k] + bias[k] + beta·y[lane, k]: the sums along W's rows,
 * where a stored value lands in one of four outputs. A tile of outputs, a block of columns by a few
 * lanes, stays in the first cache; every stored value is multiplied with all lanes at once, which
 * compilers make vectors of.
 *
 * Each output is summed by one thread in the order of n, whatever the number of threads.
 */
#include <string.h>

#include "op/op.h"

enum { LANES = 16, BLOCK = 64 }; /* lanes and columns of a tile; BLOCK is a multiple of 8 */

typedef struct tile {
    const s24i_along_n_job *job;
    int64_t lane, col;
    int lanes, cols;
    float sums[BLOCK * LANES]; /* [col, lane] */
} tile;

/* Adds row n of W times x; width is LANES or 1. */
static inline void add_row(tile *t, int64_t n, const float *x, int width)
{
    const s24i_storage *w = t->job->w;
    const void *stored = s24i_values_at(w, n, t->col);
    const float *values = stored;
    const uint8_t *indices = s24i_indices_at(w, n, t->col);
    float wide[BLOCK / 2];
    if (w->dtype != S24_F32) {
        s24i_widen(wide, stored, w->dtype, t->cols / 2);
        values = wide;
    }
    for (int g = 0; g < t->cols / 4; g++) {
        unsigned code = s24i_code(indices, g);
        float *first = t->sums + (4 * g + (int)(code & 3u)) * width;
        float *second = t->sums + (4 * g + (int)(code >> 2)) * width;
        float v = values[2 * g], u = values[2 * g + 1];
        for (int l = 0; l < width; l++)
            first[l] += v * x[l];
        for (int l = 0; l < width; l++)
            second[l] += u * x[l];
    }
}

static inline void sum_tile(tile *t, int width)
{
    const s24i_along_n_job *job = t->job;
    float x[LANES] = {0};
    memset(t->sums, 0, sizeof *t->sums * (size_t)(t->cols * width));
    for (int64_t n = 0; n < job->w->rows; n++) {
        const float *from = job->x + t->lane * job->x_stride_lane + n * job->x_stride_n;
        for (int l = 0; l < t->lanes; l++)
            x[l] = from[l * job->x_stride_lane];
        add_row(t, n, x, width);
    }
    for (int l = 0; l < t->lanes; l++) {
        for (int c = 0; c < t->cols; c++) {
            float *y = job->y + (t->lane + l) * job->y_stride_lane + (t->col + c) * job->y_stride_k;
            float sum = job->alpha * t->sums[c * width + l];
            if (job->bias) sum += job->bias[t->col + c];
            *y = job->beta != 0 ? sum + job->beta * *y : sum;
        }
    }
}

static void run_tiles(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_along_n_job *job = arg;
    int64_t blocks = (job->w->cols + BLOCK - 1) / BLOCK;
    tile t = {.job = job};
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        t.lane = i / blocks * LANES;
        t.col = i % blocks * BLOCK;
        t.lanes = job->lanes - t.lane < LANES ? (int)(job->lanes - t.lane) : LANES;
        t.cols = job->w->cols - t.col < BLOCK ? (int)(job->w->cols - t.col) : BLOCK;
        if (t.lanes == 1)
            sum_tile(&t, 1);
        else
            sum_tile(&t, LANES);
    }
}

void s24i_along_n(s24_ctx *ctx, const s24i_along_n_job *job)
{
    s24i_along_n_job copy = *job;
    int64_t tiles = (job->lanes + LANES - 1) / LANES * ((job->w->cols + BLOCK - 1) / BLOCK);
    s24_ctx_parallel_for(ctx, tiles, run_tiles, &copy);
}
