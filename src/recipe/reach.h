// SPDX-License-Identifier: Apache-2.0
/*
 * How far a layer's error reaches: what the dense model gives for the first calibration texts, next
 * to what it gives where one layer alone is pruned. Texts' vectors are compared where modules.json
 * says how they are made, else the states that the model ends with.
 */
#ifndef S24_RECIPE_REACH_H
#define S24_RECIPE_REACH_H

#include "recipe/calibration.h"

/* Runs the dense model, whose weights are all in memory from here on, each block's until it is
   done. The calibration's texts have their embeddings. *out stays as it is where memory does not
   hold these weights and need not. Errors: those of reading weights, MEMORY. */
s24_status s24i_reach_create(s24i_reach **out, s24i_calibration *c);
void s24i_reach_destroy(s24i_reach *reach, s24_ctx *ctx);
/* *error = how far what the model gives moves with w [n, k] as the slot's weight of a block, whose
   input the calibration's states are. */
s24_status s24i_reach_measure(double *error, s24i_calibration *c, int64_t block, s24i_slot slot,
                              float *w);

#endif
