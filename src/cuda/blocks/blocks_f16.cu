// SPDX-License-Identifier: Apache-2.0
#define ELEMENT __half
#define ROWS    blocks_rows_f16
#include "cuda/blocks/blocks_rows.cuh"
