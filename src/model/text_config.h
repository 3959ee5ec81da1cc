// SPDX-License-Identifier: Apache-2.0
/* What config.json says of how tokens know their positions and how far they see. */
#ifndef S24_MODEL_TEXT_CONFIG_H
#define S24_MODEL_TEXT_CONFIG_H

#include "io/checkpoint/config.h"
#include "model/model.h"

/* shape->rope. UNSUPPORTED for a scaling that is not known, by its name. */
s24_status s24i_rope_read(s24i_shape *shape, const s24i_config *config,
                          const s24i_architecture *arch);
/* shape->sliding and sliding_first. UNSUPPORTED for blocks without a window after some with one. */
s24_status s24i_sliding_read(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch);
/* shape->near, near_every and near_rope. UNSUPPORTED for kinds of blocks in another order. */
s24_status s24i_near_read(s24i_shape *shape, const s24i_config *config,
                          const s24i_architecture *arch);

#endif
