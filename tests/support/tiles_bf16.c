// SPDX-License-Identifier: Apache-2.0
/* The bf16 row on tiles that are emulated. */
#include "tiles_emulated.h"

#define s24i_linear_bf16_amx emulated_bf16_row
#include "kernel/cpu/x86/linear_bf16_amx.c"
