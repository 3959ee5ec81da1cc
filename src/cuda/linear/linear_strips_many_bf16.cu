// SPDX-License-Identifier: Apache-2.0
/* Products of many tokens in bf16 with integers. */
#include "cuda/linear/linear_strips_many.cuh"

const strips_row strips_many_bf16[STRIPS_MANY] = {
#define STRIPS_MANY_TILE(tokens, token_slots)                                                      \
    strips_many_row_of<__nv_bfloat16, tokens, token_slots>(),
#include "cuda/linear/strips_tiles.def"
};
