// SPDX-License-Identifier: Apache-2.0
/* What stands before and after attention over latents (model/latent.h), on the CPU. */
#ifndef S24_RUN_CPU_LATENT_HEADS_H
#define S24_RUN_CPU_LATENT_HEADS_H

#include "run/cpu/cpu_steps.h"
#include "run/cpu/latent_room.h"

/* Where a pass's first token has its latents: after the queries of all heads. */
typedef struct s24i_latent_places {
    void *keys;
    int64_t ld; /* from a token's queries or latents to the next one's */
} s24i_latent_places;
s24i_latent_places s24i_latent_places_of(const s24_session *session);

/* The step before attention; *ends: the observer wants no more of the block. */
s24_status s24i_latent_run(const s24i_chunk *c, const s24i_block_step *step, const float *angles,
                           int *ends);
/* The step after it. */
void s24i_latent_values(const s24i_chunk *c);

#endif
