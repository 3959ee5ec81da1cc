// SPDX-License-Identifier: Apache-2.0
#define ELEMENT __nv_bfloat16
#define ROWS    blocks_rows_bf16
#include "cuda/blocks/blocks_rows.cuh"
