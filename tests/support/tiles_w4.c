// SPDX-License-Identifier: Apache-2.0
/* The row of 4-bit integers on tiles that are emulated. */
#include "tiles_emulated.h"

#define s24i_linear_w4_amx emulated_w4_row
#include "kernel/cpu/x86/linear_w4_amx.c"
