// SPDX-License-Identifier: Apache-2.0
/* The products of few tokens in bf16. */
#include "cuda/linear/linear_few.cuh"
#include "cuda/linear/linear_kept.cuh"

const linear_row few_rows_bf16[] = {
#define FEW_TILE(rows, tokens, weight_slots, token_slots)                                          \
    few_row_of<__nv_bfloat16, rows, tokens, weight_slots, token_slots>(#rows "x" #tokens "/few"),
#include "cuda/linear/tiles.def"
};

const linear_row kept_rows_bf16[] = {
#define KEPT_TILE(rows, tokens, kept, slots, groups)                                               \
    kept_row_of<__nv_bfloat16, kept, slots, groups>(#rows "x" #tokens "/kept"),
#include "cuda/linear/tiles.def"
};
