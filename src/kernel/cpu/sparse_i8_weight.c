// SPDX-License-Identifier: Apache-2.0
/* Packs weights of 8-bit integers in blocks of 4x1 for the rows that multiply them. */
#include <string.h>

#include "kernel/sparse_i8.h"

enum { LINE = 64, OUTS = S24I_SPARSE_OUTS };

static size_t rounded(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static int64_t groups_of(const s24_sparse_parts *p, int64_t line)
{
    return (p->starts[line + 1] - p->starts[line] + 3) / 4;
}

/* Where the parts of a weight lie in its memory, in bytes; the last is all of it. */
typedef struct places {
    size_t starts, index, values, totals, scales, end;
} places;

static places places_of(const s24_sparse_parts *p)
{
    const int64_t lines = p->rows / OUTS;
    int64_t groups = 0;
    places at;
    for (int64_t l = 0; l < lines; l++)
        groups += groups_of(p, l);
    at.starts = rounded(sizeof(s24i_sparse_i8));
    at.index = at.starts + rounded((size_t)(lines + 1) * sizeof(int64_t));
    at.values = at.index + rounded((size_t)groups * 4 * sizeof(int32_t));
    at.totals = at.values + rounded((size_t)groups * 4 * OUTS);
    at.scales = at.totals + rounded((size_t)p->rows * sizeof(int32_t));
    at.end = at.scales + rounded((size_t)p->rows * sizeof(float));
    return at;
}

size_t s24i_sparse_i8_bytes(const s24_sparse_parts *parts)
{
    return places_of(parts).end;
}

void s24i_sparse_i8_pack(void *w, const s24_sparse_parts *p, const float *scales)
{
    const places at = places_of(p);
    const int64_t lines = p->rows / OUTS;
    char *memory = w;
    int64_t *starts = (int64_t *)(void *)(memory + at.starts);
    int32_t *index = (int32_t *)(void *)(memory + at.index);
    int32_t *totals = (int32_t *)(void *)(memory + at.totals);
    float *own = (float *)(void *)(memory + at.scales);
    int8_t *values = (int8_t *)(memory + at.values);
    const s24i_sparse_i8 weight = {lines, starts, index, values, totals, own};
    memset(w, 0, at.end);
    memcpy(w, &weight, sizeof weight);
    for (int64_t l = 0; l < lines; l++) {
        starts[l + 1] = starts[l] + groups_of(p, l);
        for (int64_t i = p->starts[l]; i < p->starts[l + 1]; i++) {
            const int64_t to = 4 * starts[l] + i - p->starts[l];
            const int8_t *block = (const int8_t *)p->values + i * OUTS;
            index[to] = p->index[i];
            for (int64_t o = 0; o < OUTS; o++) {
                values[to / 4 * 4 * OUTS + 4 * o + to % 4] = block[o];
                totals[OUTS * l + o] += block[o];
            }
        }
    }
    for (int64_t n = 0; n < p->rows; n++)
        own[n] = scales ? scales[n] : 1;
}
