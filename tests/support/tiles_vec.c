// SPDX-License-Identifier: Apache-2.0
/* The set of vector functions on tiles that are emulated. */
#include "tiles_emulated.h"

#define s24i_vec_amx emulated_set
#include "vec/vec_amx.c"
