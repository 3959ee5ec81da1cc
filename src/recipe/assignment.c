// SPDX-License-Identifier: Apache-2.0
/*
 * The assignment problem by shortest augmenting paths (Kuhn, 1955; Jonker and Volgenant, 1987): a
 * row after another enters, and the cheapest chain of changes gives it a column.
 */
#include <math.h>
#include <string.h>

#include "model/model.h"
#include "recipe/channel_search.h"

/* Columns and rows from 1 on; 0 stands for the row that enters. */
typedef struct assignment {
    int64_t count;
    const float *gains;
    double *u, *v, *least; /* [count + 1]: potentials of rows and columns; distances */
    int32_t *row, *before; /* [count + 1]: of a column: its row; the column before it on a path */
    uint8_t *seen;
} assignment;

/* The cheapest free column for row i, with the path to it in `before`. */
static int64_t find_path(assignment *a, int32_t i)
{
    int64_t at = 0;
    a->row[0] = i;
    for (int64_t j = 0; j <= a->count; j++) {
        a->least[j] = HUGE_VAL;
        a->seen[j] = 0;
    }
    do {
        const int64_t row = a->row[at];
        int64_t next = 0;
        double step = HUGE_VAL;
        a->seen[at] = 1;
        for (int64_t j = 1; j <= a->count; j++) {
            if (a->seen[j]) continue;
            const double cost =
                -(double)a->gains[(row - 1) * a->count + j - 1] - a->u[row] - a->v[j];
            if (cost < a->least[j]) {
                a->least[j] = cost;
                a->before[j] = (int32_t)at;
            }
            if (a->least[j] < step) {
                step = a->least[j];
                next = j;
            }
        }
        for (int64_t j = 0; j <= a->count; j++) {
            if (!a->seen[j]) {
                a->least[j] -= step;
                continue;
            }
            a->u[a->row[j]] += step;
            a->v[j] -= step;
        }
        at = next;
    } while (a->row[at] != 0);
    return at;
}

s24_status s24i_assign(s24_ctx *ctx, int32_t *chosen, const float *gains, int64_t count)
{
    const size_t places = (size_t)count + 1;
    const size_t one = 3 * sizeof(double) + 2 * sizeof(int32_t) + 1;
    assignment a = {.count = count, .gains = gains};
    a.u = s24_ctx_alloc(ctx, places * one);
    REQUIRE(ctx, a.u, S24_ERROR_MEMORY, "out of memory to assign %lld channels", (long long)count);
    memset(a.u, 0, places * one);
    a.v = a.u + places;
    a.least = a.v + places;
    a.row = (int32_t *)(a.least + places);
    a.before = a.row + places;
    a.seen = (uint8_t *)(a.before + places);
    for (int32_t i = 1; i <= count; i++) {
        int64_t at = find_path(&a, i);
        for (int64_t before; at; at = before) {
            before = a.before[at];
            a.row[at] = a.row[before];
        }
    }
    for (int64_t j = 1; j <= count; j++)
        chosen[a.row[j] - 1] = (int32_t)(j - 1);
    s24_ctx_free(ctx, a.u);
    return S24_OK;
}
