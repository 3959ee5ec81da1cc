// SPDX-License-Identifier: Apache-2.0
/* Room for what stands before and after attention over latents (latent_heads.h). */
#ifndef S24_RUN_CPU_LATENT_ROOM_H
#define S24_RUN_CPU_LATENT_ROOM_H

#include "run/session.h"

enum { S24I_LATENT_PIECE = 24 }; /* tokens of a head at a time */

/* Queries of a token as their layer gives them. */
static inline int64_t s24i_latent_wide(const s24i_shape *shape)
{
    return shape->heads * s24i_latent_query(&shape->latent);
}

/* Floats of a thread. */
int64_t s24i_latent_scratch(const s24i_shape *shape);
/* Floats that so many rows of a lane with so many threads need; 0 of other models. */
int64_t s24i_latent_room(const s24i_shape *shape, int64_t rows, int64_t threads);
/* The lanes' room, and that of heads' values; nothing of other models. MEMORY. */
s24_status s24i_latent_reserve(s24_session *session, s24_ctx *ctx, int64_t floats);

#endif
