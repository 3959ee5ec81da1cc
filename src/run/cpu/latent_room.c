// SPDX-License-Identifier: Apache-2.0
/* What attention over latents needs of a session. */
#include "run/cpu/latent_room.h"

#include "io/file/io.h"

int64_t s24i_latent_scratch(const s24i_shape *shape)
{
    const s24i_latent *l = &shape->latent;
    return S24I_LATENT_PIECE *
           (s24i_round_up(l->rank, S24I_VEC_PAD) + s24i_round_up(l->value, S24I_VEC_PAD) + 1);
}

int64_t s24i_latent_room(const s24i_shape *shape, int64_t rows, int64_t threads)
{
    const s24i_latent *l = &shape->latent;
    if (!l->rank) return 0;
    const int64_t columns = l->queries + s24i_latent_wide(shape) + l->rank + l->turned;
    return s24i_round_up(rows * columns, S24I_VEC_PAD) +
           threads * s24i_round_up(s24i_latent_scratch(shape), S24I_VEC_PAD);
}

s24_status s24i_latent_reserve(s24_session *session, s24_ctx *ctx, int64_t floats)
{
    const s24i_shape *shape = &session->model->shape;
    if (!shape->latent.rank) return S24_OK;
    TRY(s24i_alloc_elems(&session->whole.latent, ctx, floats, sizeof(float), "latents"));
    return s24i_alloc_elems(&session->values, ctx, session->max_tokens * s24i_attended(shape),
                            s24_dtype_bytes(session->between), "values");
}
