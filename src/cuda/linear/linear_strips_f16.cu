// SPDX-License-Identifier: Apache-2.0
/* Products of tokens in f16 with integers. */
#include "cuda/linear/linear_strips.cuh"

const strips_row strips_rows_f16[STRIPS_TILES] = {
#define STRIPS_TILE(tokens, wide, parts, token_slots)                                              \
    strips_row_of<__half, tokens, wide, parts, token_slots>(),
#include "cuda/linear/strips_tiles.def"
};
