// SPDX-License-Identifier: Apache-2.0
/* Dropout that is known from its place: what a pass forward drops, the pass backward drops again,
   on any number of threads. */
#ifndef S24_VEC_DROPOUT_H
#define S24_VEC_DROPOUT_H

#include <stdint.h>

typedef struct s24i_dropout {
    float rate;    /* of elements that become 0, in 1/65536; the others are divided by 1 − rate */
    uint64_t seed; /* of the step and the place in the model */
} s24i_dropout;

#endif
