// SPDX-License-Identifier: Apache-2.0
/* The row of 8-bit integers on tiles that are emulated. */
#include "tiles_emulated.h"

#define s24i_linear_w8_amx emulated_w8_row
#include "kernel/cpu/x86/linear_w8_amx.c"
