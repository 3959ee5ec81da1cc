// SPDX-License-Identifier: Apache-2.0
/* What calibration noted of the inputs of a model's layers. */
#ifndef S24_RUN_LOAD_MODEL_INPUTS_H
#define S24_RUN_LOAD_MODEL_INPUTS_H

#include "model/model.h"

/* Sets input_most of the model's blocks from the checkpoint's metadata, if they have it. FORMAT
   names file, layer and what was expected; MEMORY. */
s24_status s24i_inputs_read(s24_model *model, s24_ctx *ctx, const s24_checkpoint *checkpoint);

#endif
