// SPDX-License-Identifier: Apache-2.0
/* What a model's config.json may ask of whoever runs it besides its steps (model/steps.h): those
   who lack a part refuse the model by the part's name. */
#ifndef S24_MODEL_PARTS_H
#define S24_MODEL_PARTS_H

#include "model/model.h"

typedef enum s24i_part {
    S24I_PART_SCALE, /* scores of attention are multiplied by another number than 1/√d */
    S24I_PARTS
} s24i_part;

/* A bit (1 << part) for each that the model needs. */
unsigned s24i_parts_of(const s24i_architecture *architecture, const s24i_shape *shape);
/* Refuses a model with a part that is not among `has`, by its name; `who` says who lacks it.
   UNSUPPORTED. */
s24_status s24i_parts_require(s24_ctx *ctx, const s24i_architecture *architecture,
                              const s24i_shape *shape, unsigned has, const char *who);

#endif
