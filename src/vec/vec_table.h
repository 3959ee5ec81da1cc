// SPDX-License-Identifier: Apache-2.0
/*
 * An instruction set's vector functions and their table. Each vec_SET.c defines the macros over
 * which they are written, once for all sets, and then includes this file: vec, WIDTH, V_*, TARGET
 * (the set as a function attribute), the tiles of the product, and the table's name. Neither this
 * nor what it includes is a header of its own: no guard, included once a set.
 */
#include "vec/vec_math.h"
/* By job. */
#include "vec/vec_activation.h"
#include "vec/vec_dropout.h"
#include "vec/vec_eight.h"
#include "vec/vec_integers.h"
#include "vec/vec_keep.h"
#include "vec/vec_look_up.h"
#include "vec/vec_norm.h"
#include "vec/vec_optimiser.h"
#include "vec/vec_product.h"
#include "vec/vec_rows.h"
#include "vec/vec_softmax.h"
#include "vec/vec_transpose.h"
/* Over what is above. */
#include "vec/vec_attend.h"

const s24i_vec TABLE = {
    .name = TABLE_NAME,
    .cpu = TABLE_CPU,
#define S24I_VEC(result, name, parameters) .name = name,
#if HAVE_PAIRS
#define S24I_VEC_PAIRS(result, name, parameters) .name = name,
#endif
#include "vec/vec.def"
};
