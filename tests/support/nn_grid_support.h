// SPDX-License-Identifier: Apache-2.0
/* Attention over a grid in double, for tests of the CPU's and of a device's. Include after
   support.h. */
#ifndef S24_TEST_NN_GRID_SUPPORT_H
#define S24_TEST_NN_GRID_SUPPORT_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/cpu/attention_grid.h"

/* The row of q, k and v of window token i, the biases beyond the grid; *token: −1 there. */
static inline const float *grid_row(const s24i_attention_grid *job, int64_t first, int64_t window,
                                    int64_t i, int64_t *token)
{
    const int64_t across = (job->grid + job->side - 1) / job->side;
    const int64_t y = window / across * job->side + i / job->side;
    const int64_t x = window % across * job->side + i % job->side;
    *token = y < job->grid && x < job->grid ? first + y * job->grid + x : -1;
    return *token < 0 ? job->bias : job->qkv + *token * 3 * job->heads * job->d;
}

static inline double grid_dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* One query of a window and head. */
static inline void grid_query(double *y, double *weights, const s24i_attention_grid *job,
                              int64_t first, int64_t window, int64_t query, int64_t head)
{
    const int64_t side = job->side, d = job->d, width = job->heads * d;
    int64_t token;
    const float *q = grid_row(job, first, window, query, &token) + head * d;
    double most = -HUGE_VAL, sum = 0;
    for (int64_t i = 0; i < side * side; i++) {
        const float *k = grid_row(job, first, window, i, &token) + width + head * d;
        weights[i] = grid_dot(q, k, d) / sqrt((double)d) +
                     grid_dot(q, job->rel_h + (query / side - i / side + side - 1) * d, d) +
                     grid_dot(q, job->rel_w + (query % side - i % side + side - 1) * d, d);
        most = fmax(most, weights[i]);
    }
    memset(y, 0, (size_t)d * sizeof *y);
    for (int64_t i = 0; i < side * side; i++) {
        const float *v = grid_row(job, first, window, i, &token) + 2 * width + head * d;
        const double p = exp(weights[i] - most);
        sum += p;
        for (int64_t e = 0; e < d; e++)
            y[e] += p * (double)v[e];
    }
    for (int64_t e = 0; e < d; e++)
        y[e] /= sum;
}

/* The whole of a job, of every `step`-th query; what is left out is NaN. */
static inline double *grid_expected(const s24i_attention_grid *job, int64_t step)
{
    const int64_t across = (job->grid + job->side - 1) / job->side, square = job->grid * job->grid;
    const int64_t width = job->heads * job->d, count = job->images * square * width;
    double *y = malloc((size_t)count * sizeof *y);
    double *weights = malloc((size_t)(job->side * job->side) * sizeof *weights);
    for (int64_t i = 0; i < count; i++)
        y[i] = NAN;
    for (int64_t i = 0; i < job->images * across * across; i++)
        for (int64_t query = 0; query < job->side * job->side; query += step)
            for (int64_t head = 0; head < job->heads; head++) {
                const int64_t first = i / (across * across) * square,
                              window = i % (across * across);
                int64_t token;
                grid_row(job, first, window, query, &token);
                if (token >= 0)
                    grid_query(y + token * width + head * job->d, weights, job, first, window,
                               query, head);
            }
    free(weights);
    return y;
}

#endif
