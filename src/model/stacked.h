// SPDX-License-Identifier: Apache-2.0
/* Tensors of all experts as tensors of each. */
#ifndef S24_MODEL_STACKED_H
#define S24_MODEL_STACKED_H

#include "io/checkpoint/checkpoint.h"
#include "model/model.h"

enum { S24I_STACKED_NAME = 2 * S24I_NAME_BYTES };

/* Of a row that names such tensors; arch NULL, or of another row: nothing changes. FORMAT,
   UNSUPPORTED, MEMORY. */
s24_status s24i_split_stacked(s24_checkpoint *checkpoint, const s24i_architecture *arch);

#endif
