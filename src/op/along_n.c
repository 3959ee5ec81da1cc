// SPDX-License-Identifier: Apache-2.0
/*
 * y[lane, k] = alpha·Σ_n x[lane, n]·W[n, k] + bias[k] + beta·y[lane, k]: the sums along W's rows,
 * where a stored value lands in one of four outputs. A tile of outputs, a block of columns by a few
 * lanes, stays in the first cache; every stored value is multiplied with all lanes at once.
 *
 * Each output is summed by one thread in the order of n with a separate multiply and add, whatever
 * the number of threads and the CPU.
 */
#include <string.h>

#include "op/op.h"

typedef float vec __attribute__((vector_size(16))); /* every CPU of today has four lanes */
enum { WIDTH = 4, VECS = 4, LANES = WIDTH * VECS, BLOCK = 64 }; /* BLOCK is a multiple of 8 */

typedef struct tile {
    const s24i_along_n_job *job;
    int64_t lane, col;
    int lanes, cols;
    union {
        vec many[BLOCK][VECS]; /* [col][lane] */
        float many_lanes[BLOCK][LANES];
        float one[BLOCK]; /* of a single lane */
    } sums;
} tile;

/* The stored values of row n in the tile's columns, as f32. */
static const float *row_values(const tile *t, int64_t n, float wide[BLOCK / 2])
{
    const s24i_storage *w = t->job->w;
    if (w->dtype == S24_F32) return s24i_values_at(w, n, t->col);
    s24i_storage_widen(wide, w, n, t->col, t->cols);
    return wide;
}

static void add_row_many(tile *t, int64_t n, const float x[LANES])
{
    float wide[BLOCK / 2];
    const float *values = row_values(t, n, wide);
    const uint8_t *indices = s24i_indices_at(t->job->w, n, t->col);
    vec lanes[VECS];
    memcpy(lanes, x, sizeof lanes);
    for (int g = 0; g < t->cols / 4; g++) {
        unsigned code = s24i_code(indices, g);
        vec *first = t->sums.many[4 * g + (int)(code & 3u)];
        vec *second = t->sums.many[4 * g + (int)(code >> 2)];
        for (int v = 0; v < VECS; v++)
            first[v] += values[2 * g] * lanes[v];
        for (int v = 0; v < VECS; v++)
            second[v] += values[2 * g + 1] * lanes[v];
    }
}

static void add_row_one(tile *t, int64_t n, float x)
{
    float wide[BLOCK / 2];
    const float *values = row_values(t, n, wide);
    const uint8_t *indices = s24i_indices_at(t->job->w, n, t->col);
    for (int g = 0; g < t->cols / 4; g++) {
        unsigned code = s24i_code(indices, g);
        t->sums.one[4 * g + (int)(code & 3u)] += values[2 * g] * x;
        t->sums.one[4 * g + (int)(code >> 2)] += values[2 * g + 1] * x;
    }
}

static void sum_tile(tile *t)
{
    const s24i_along_n_job *job = t->job;
    const float *from = job->x + t->lane * job->x_stride_lane;
    float x[LANES] = {0};
    memset(&t->sums, 0, sizeof t->sums);
    for (int64_t n = 0; n < job->w->rows; n++, from += job->x_stride_n) {
        if (t->lanes == 1) {
            add_row_one(t, n, *from);
            continue;
        }
        for (int l = 0; l < t->lanes; l++)
            x[l] = from[l * job->x_stride_lane];
        add_row_many(t, n, x);
    }
}

static void store_tile(const tile *t)
{
    const s24i_along_n_job *job = t->job;
    for (int l = 0; l < t->lanes; l++) {
        for (int c = 0; c < t->cols; c++) {
            float *y = job->y + (t->lane + l) * job->y_stride_lane + (t->col + c) * job->y_stride_k;
            float sum = t->lanes == 1 ? t->sums.one[c] : t->sums.many_lanes[c][l];
            sum *= job->alpha;
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
        sum_tile(&t);
        store_tile(&t);
    }
}

void s24i_along_n(s24_ctx *ctx, const s24i_along_n_job *job)
{
    s24i_along_n_job copy = *job;
    int64_t tiles = (job->lanes + LANES - 1) / LANES * ((job->w->cols + BLOCK - 1) / BLOCK);
    s24_ctx_parallel_for(ctx, tiles, run_tiles, &copy);
}
