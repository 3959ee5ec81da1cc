// SPDX-License-Identifier: Apache-2.0
/* What makes keys and values of latents, as attention over them reads it. */
#ifndef S24_RUN_LOAD_LATENT_WEIGHT_H
#define S24_RUN_LOAD_LATENT_WEIGHT_H

#include "model/model.h"

/* block->latent_keys and latent_values from the layer's weight [heads · (plain + value), rank] in
   f32. MEMORY. */
s24_status s24i_latent_build(s24i_block *block, s24_ctx *ctx, const s24i_shape *shape,
                             const s24_dense *weight);
void s24i_latent_clear(s24i_block *block);

#endif
