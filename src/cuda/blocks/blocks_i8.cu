// SPDX-License-Identifier: Apache-2.0
#define ELEMENT int8_t
#define ROWS    blocks_rows_i8
#include "cuda/blocks/blocks_rows.cuh"
