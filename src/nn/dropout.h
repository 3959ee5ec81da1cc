// SPDX-License-Identifier: Apache-2.0
/* Dropout that is known from its place: what a pass forward drops, the pass backward drops again,
   on any number of threads. */
#ifndef S24_NN_DROPOUT_H
#define S24_NN_DROPOUT_H

#include <stdint.h>

typedef struct s24i_dropout {
    float rate;    /* of elements that become 0; the others are divided by 1 − rate */
    uint64_t seed; /* of the step and the place in the model */
} s24i_dropout;

/* Row `row` (below 2^44) of n (below 2^22) elements. */
void s24i_dropout_row(float *x, int64_t n, const s24i_dropout *drop, int64_t row);

#endif
