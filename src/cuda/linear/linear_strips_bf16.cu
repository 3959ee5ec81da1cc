// SPDX-License-Identifier: Apache-2.0
/* Products of tokens in bf16 with integers. */
#include "cuda/linear/linear_strips.cuh"

const strips_row strips_rows_bf16[STRIPS_TILES] = {
#define STRIPS_TILE(tokens, wide, parts, token_slots)                                              \
    strips_row_of<__nv_bfloat16, tokens, wide, parts, token_slots>(),
#include "cuda/linear/strips_tiles.def"
};
