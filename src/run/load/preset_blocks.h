// SPDX-License-Identifier: Apache-2.0
/* Random weights in a sparse format that is not 2:4. */
#ifndef S24_RUN_LOAD_PRESET_BLOCKS_H
#define S24_RUN_LOAD_PRESET_BLOCKS_H

#include "model/model.h"

#define S24I_PRESET_STEP UINT64_C(0x9e3779b97f4a7c15)
/* The generator of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014):
   its state is a sum of equal steps, S24I_PRESET_STEP. */
static inline uint64_t s24i_preset_random(uint64_t state)
{
    uint64_t z = state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Refuses options of a preset that ask for a format which is none or does not run. */
s24_status s24i_preset_format_check(s24_ctx *ctx, const s24_model_opts *opts);
/* Zeroes the share of a layer's numbers or blocks that the options say, by `seed`, and makes what
   is left a matrix with values of that dtype, unless out is NULL. SHAPE, MEMORY. */
s24_status s24i_preset_blocks(s24_sparse **out, s24_ctx *ctx, const s24_dense *dense,
                              const s24_model_opts *opts, s24_dtype values, uint64_t seed);

#endif
