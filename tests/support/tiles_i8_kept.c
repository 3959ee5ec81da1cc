// SPDX-License-Identifier: Apache-2.0
/* The int8 row that keeps its tiles, on tiles that are emulated. */
#include "tiles_emulated.h"

#define s24i_linear_i8_amx_kept emulated_i8_kept_row
#include "kernel/cpu/x86/linear_i8_amx_kept.c"
