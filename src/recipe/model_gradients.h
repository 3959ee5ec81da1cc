// SPDX-License-Identifier: Apache-2.0
/* Gradients of a model's matrices, found by a tensor's name. */
#ifndef S24_RECIPE_MODEL_GRADIENTS_H
#define S24_RECIPE_MODEL_GRADIENTS_H

#include "sparse24/train.h"

/* The means of a tensor, as the model stores it; 0: there are none. */
int s24i_model_gradients_find(s24_weight_gradients *found, const s24_model_gradients *gradients,
                              const char *name);

#endif
