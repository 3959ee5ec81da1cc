// SPDX-License-Identifier: Apache-2.0
#include "model/patches.h"

#include <string.h>

static void unfold_row(float *to, const float *pixels, const s24i_patches *p, int64_t patch)
{
    const int64_t n = p->patch, side = p->image / n;
    for (int64_t c = 0; c < p->channels; c++)
        for (int64_t y = 0; y < n; y++, to += n)
            memcpy(to, pixels + (c * p->image + patch / side * n + y) * p->image + patch % side * n,
                   (size_t)n * sizeof *to);
}

void s24i_unfold(float *to, const float *pixels, const s24i_patches *p, int64_t begin, int64_t end)
{
    const int64_t positions = s24i_patches_positions(p), used = p->channels * p->patch * p->patch;
    for (int64_t t = begin; t < end; t++, to += p->row) {
        const int64_t at = t % positions - p->first;
        const float *image = pixels + t / positions * p->channels * p->image * p->image;
        if (at >= 0) unfold_row(to, image, p, at);
        const int64_t kept = at < 0 ? 0 : used;
        memset(to + kept, 0, (size_t)(p->row - kept) * sizeof *to);
    }
}
