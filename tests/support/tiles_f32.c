// SPDX-License-Identifier: Apache-2.0
/* The f32 row on tiles that are emulated. */
#include "tiles_emulated.h"

#define s24i_linear_f32_amx emulated_f32_row
#include "kernel/cpu/x86/linear_f32_amx.c"
