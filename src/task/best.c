// SPDX-License-Identifier: Apache-2.0
#include "task/best.h"

/* Is what stands at a worse than what stands at b? */
static int worse(const s24i_best *best, int64_t a, int64_t b)
{
    if (best->scores[a] != best->scores[b]) return best->scores[a] < best->scores[b];
    return best->indices[a] > best->indices[b];
}

static void swap(s24i_best *best, int64_t a, int64_t b)
{
    const int64_t index = best->indices[a];
    const float score = best->scores[a];
    best->indices[a] = best->indices[b];
    best->scores[a] = best->scores[b];
    best->indices[b] = index;
    best->scores[b] = score;
}

static void sink(s24i_best *best, int64_t count)
{
    int64_t at = 0;
    for (int64_t child = 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && worse(best, child + 1, child);
        if (!worse(best, child, at)) return;
        swap(best, child, at);
        at = child;
    }
}

void s24i_best_add(s24i_best *best, int64_t index, float score)
{
    if (best->count == best->k) {
        const float least = best->scores[0];
        if (score < least || (score == least && index > best->indices[0])) return;
        best->indices[0] = index;
        best->scores[0] = score;
        sink(best, best->k);
        return;
    }
    int64_t at = best->count++;
    best->indices[at] = index;
    best->scores[at] = score;
    for (; at && worse(best, at, (at - 1) / 2); at = (at - 1) / 2)
        swap(best, at, (at - 1) / 2);
}

void s24i_best_sort(s24i_best *best)
{
    for (int64_t left = best->count - 1; left > 0; left--) {
        swap(best, 0, left);
        sink(best, left);
    }
}
