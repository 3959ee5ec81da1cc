// SPDX-License-Identifier: Apache-2.0
/* What config.json says of attention over latents. */
#include <math.h>

#include "model/text_config.h"

enum { MOST_WIDTH = 1 << 16 };

/* Scores are as of heads whose elements all were keys', and louder where YaRN says so of all. */
static float scale_of(const s24i_shape *shape)
{
    const float scale = 1.0f / sqrtf((float)s24i_latent_query(&shape->latent));
    return shape->rope.loud_all > 0.0f ? scale * shape->rope.loud_all * shape->rope.loud_all
                                       : scale;
}

void s24i_latent_spread(s24i_shape *shape)
{
    const s24i_latent *latent = &shape->latent;
    if (!latent->rank) return;
    shape->kv_heads = shape->heads;
    shape->head_width = s24i_round_up(s24i_max(s24i_latent_query(latent), latent->value), 8);
}

s24_status s24i_latent_read(s24i_shape *shape, const s24i_config *config,
                            const s24i_architecture *arch)
{
    const s24i_latent_row *row = arch->latent;
    s24i_latent *latent = &shape->latent;
    int adjacent = 1;
    if (!row) return S24_OK;
    TRY(s24i_config_int(&latent->rank, config, row->key_rank, S24I_REQUIRED, 1, MOST_WIDTH));
    TRY(s24i_config_int(&latent->queries, config, row->key_queries, S24I_OPTIONAL, 0, MOST_WIDTH));
    TRY(s24i_config_int(&latent->turned, config, row->key_turned, S24I_REQUIRED, 2, MOST_WIDTH));
    TRY(s24i_config_int(&latent->plain, config, row->key_plain, S24I_REQUIRED, 1, MOST_WIDTH));
    latent->value = shape->width / shape->heads;
    TRY(s24i_config_int(&latent->value, config, row->key_value, S24I_OPTIONAL, 1, MOST_WIDTH));
    if (row->key_adjacent)
        TRY(s24i_config_bool(&adjacent, config, row->key_adjacent, S24I_OPTIONAL));
    latent->halves = row->halves || !adjacent;
    shape->turned = latent->turned;
    shape->head_width = latent->rank + latent->turned;
    shape->kv_heads = 1;
    shape->score_scale = scale_of(shape);
    return S24_OK;
}
