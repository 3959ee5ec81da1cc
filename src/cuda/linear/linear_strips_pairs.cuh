// SPDX-License-Identifier: Apache-2.0
/* Tiles with two blocks of the weight in a place of their rings: linear_strips.cuh's kernel. */
#ifndef S24_CUDA_LINEAR_LINEAR_STRIPS_PAIRS_CUH
#define S24_CUDA_LINEAR_LINEAR_STRIPS_PAIRS_CUH

#include "cuda/linear/linear_strips_row.cuh"

enum {
    STRIPS_PAIRS = 0
#define STRIPS_PAIRS_TILE(...) +1
#include "cuda/linear/strips_pairs.def"
    ,
    STRIPS_EIGHTS = 0 /* those of 8 tokens, which come first */
#define STRIPS_PAIRS_TILE(tokens, ...) +(tokens == 8)
#include "cuda/linear/strips_pairs.def"
};

/* By strips_pairs.def; of orders that they are not made for there is no kernel. */
extern const strips_row strips_pairs_bf16[STRIPS_PAIRS], strips_pairs_f16[STRIPS_PAIRS];

#endif
