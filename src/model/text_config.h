// SPDX-License-Identifier: Apache-2.0
/* What config.json says of how tokens know their positions and how far they see. */
#ifndef S24_MODEL_TEXT_CONFIG_H
#define S24_MODEL_TEXT_CONFIG_H

#include "io/checkpoint/config.h"
#include "model/model.h"

/* shape->rope. UNSUPPORTED for a scaling that is not known, by its name. */
s24_status s24i_rope_read(s24i_shape *shape, const s24i_config *config,
                          const s24i_architecture *arch);
/* shape->windowed with sliding, or with near. */
s24_status s24i_windows_read(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch);
/* shape->latent, and of head_width, kv_heads and score_scale what follows (latent_config.c). */
s24_status s24i_latent_read(s24i_shape *shape, const s24i_config *config,
                            const s24i_architecture *arch);
/* shape->mixture (mixture_config.c). */
s24_status s24i_mixture_read(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch);
/* Numbers that scores, embeddings, sums and logits are multiplied or capped by (factors_config.c).
   */
s24_status s24i_factors_read(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch);

#endif
