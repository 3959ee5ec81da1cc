// SPDX-License-Identifier: Apache-2.0
/* Products of tokens in bf16 with integers of 4 bits, two blocks of the weight in a place. */
#include "cuda/linear/linear_strips.cuh"
#include "cuda/linear/linear_strips_pairs.cuh"

const strips_row strips_pairs_bf16[STRIPS_PAIRS] = {
#define STRIPS_PAIRS_TILE(tokens, parts, token_slots, blocks, tall)                                \
    strips_row_of<__nv_bfloat16, tokens, 1, parts, token_slots, blocks, 2, tall>(),
#include "cuda/linear/strips_pairs.def"
};
