// SPDX-License-Identifier: Apache-2.0
#define ELEMENT __nv_fp8_e4m3
#define ROWS    blocks_rows_e4m3
#include "cuda/blocks/blocks_rows.cuh"
