// SPDX-License-Identifier: Apache-2.0
/* Activations in double, as the field defines them, for every test that holds something against
   them. */
#ifndef S24_TEST_ACTIVATION_H
#define S24_TEST_ACTIVATION_H

#include <math.h>

#include "sparse24/sparse24.h"

/* A NaN stays one. */
static inline double activation_of(double x, s24_activation activation)
{
    switch (activation) {
    case S24_ACTIVATION_RELU:
        return x < 0 ? 0 : x;
    case S24_ACTIVATION_GELU:
        return x / 2 * (1 + erf(x / sqrt(2)));
    case S24_ACTIVATION_GELU_TANH:
        return x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case S24_ACTIVATION_SILU:
        return x / (1 + exp(-x));
    case S24_ACTIVATION_GELU_QUICK:
        return x / (1 + exp(-1.702 * x));
    case S24_ACTIVATION_NONE:
        break;
    }
    return x;
}

#endif
