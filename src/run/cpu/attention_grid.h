// SPDX-License-Identifier: Apache-2.0
/* Attention of images over a grid of tokens, or over its windows, with decomposed relative
   positions. */
#ifndef S24_RUN_CPU_ATTENTION_GRID_H
#define S24_RUN_CPU_ATTENTION_GRID_H

#include "model/model.h"

/* As s24_device_attention_grid, all in f32; side is the window's or the grid's. */
typedef struct s24i_attention_grid {
    const s24i_vec *vec;
    const float *qkv, *bias; /* [images·grid², 3·heads·d], [3·heads·d] */
    const float *rel_h, *rel_w;
    float *context; /* [images·grid², heads·d] */
    int64_t images, grid, side, heads, d;
    float *scratch; /* s24i_attention_grid_scratch(…) floats a thread */
    int64_t scratch_elems;
} s24i_attention_grid;

int64_t s24i_attention_grid_scratch(const s24i_shape *shape);
void s24i_attention_grid_run(s24_ctx *ctx, const s24i_attention_grid *job);

#endif
