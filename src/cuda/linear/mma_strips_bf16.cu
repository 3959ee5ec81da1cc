// SPDX-License-Identifier: Apache-2.0
/* Products of tokens in bf16 with integers on every GPU. */
#include "cuda/linear/mma_strips.cuh"

const strips_row strips_mma_bf16 = strips_mma_row_of<__nv_bfloat16>();
