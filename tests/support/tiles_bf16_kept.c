// SPDX-License-Identifier: Apache-2.0
/* The bf16 row that keeps its tiles, on tiles that are emulated. */
#include "tiles_emulated.h"

#define s24i_linear_bf16_amx_kept emulated_bf16_kept_row
#include "kernel/cpu/x86/linear_bf16_amx_kept.c"
