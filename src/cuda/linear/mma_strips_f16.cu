// SPDX-License-Identifier: Apache-2.0
/* Products of tokens in f16 with integers on every GPU. */
#include "cuda/linear/mma_strips.cuh"

const strips_row strips_mma_f16 = strips_mma_row_of<__half>();
