// SPDX-License-Identifier: Apache-2.0
/* Keys and queries of distances, of models that have a table of these. */
#ifndef S24_RUN_LOAD_MODEL_APART_H
#define S24_RUN_LOAD_MODEL_APART_H

#include "model/model.h"

/* Those of a block whose products were made. */
s24_status s24i_apart_fill(s24_model *model, s24_ctx *ctx, int64_t block);

#endif
