// SPDX-License-Identifier: Apache-2.0
/* Dtypes by layer: the option layer_dtypes of a model. */
#ifndef S24_RUN_LOAD_LAYER_DTYPES_H
#define S24_RUN_LOAD_LAYER_DTYPES_H

#include "model/model.h"

/* Checks them, and makes the dtype of 8 bits that they name the model's. ARGUMENT, UNSUPPORTED. */
s24_status s24i_layer_dtypes_read(s24_model_opts *opts, s24_ctx *ctx);
/* Is this layer one of the others, where some run in 8 bits? The last glob that fits says so. */
int s24i_layer_is_wide(const s24_model_opts *opts, const s24_tensor *tensor);

#endif
