// SPDX-License-Identifier: Apache-2.0
/* The int8 row on tiles that are emulated. */
#include "tiles_emulated.h"

#define s24i_linear_i8_amx emulated_i8_row
#include "kernel/cpu/x86/linear_i8_amx.c"
