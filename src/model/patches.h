// SPDX-License-Identifier: Apache-2.0
/* Images as rows of numbers, one a patch, that a linear layer reads. */
#ifndef S24_MODEL_PATCHES_H
#define S24_MODEL_PATCHES_H

#include <stdint.h>

/* Square images [channels, image, image] in square patches, line by line. */
typedef struct s24i_patches {
    int64_t image, patch, channels;
    int64_t first; /* rows of zeros before an image's patches: where tokens of no patch stand */
    int64_t row;   /* floats of a row: channels · patch², or more, which are zeros */
} s24i_patches;

/* Rows of an image. */
static inline int64_t s24i_patches_positions(const s24i_patches *p)
{
    const int64_t side = p->image / p->patch;
    return p->first + side * side;
}

/* Rows begin … end of all images' rows, row `begin` at `to`. */
void s24i_unfold(float *to, const float *pixels, const s24i_patches *p, int64_t begin, int64_t end);

#endif
