// SPDX-License-Identifier: Apache-2.0
/* Numbers of config.json that scores, embeddings, sums and logits are multiplied or capped by. */
#include <math.h>

#include "model/text_config.h"

/* A number over 0, or without the key or where it is null what is usual. */
static s24_status read_number(float *out, const s24i_config *config, const char *key, float usual)
{
    double value = (double)usual;
    if (key) TRY(s24i_config_double(&value, config, key, S24I_OPTIONAL, 0, 1e6));
    *out = (float)value;
    return S24_OK;
}

/* A cap that is null is none. */
static s24_status read_cap(float *out, const s24i_config *config, const char *key, float usual)
{
    const int is_there = key && s24i_json_get(config->json, key);
    return read_number(out, config, key, is_there ? 0.0f : usual);
}

static s24_status read_scores(s24i_shape *shape, const s24i_config *config,
                              const s24i_architecture *arch)
{
    int scaled = 1;
    float root;
    if (arch->key_scaled) TRY(s24i_config_bool(&scaled, config, arch->key_scaled, S24I_OPTIONAL));
    if (!scaled) shape->score_scale = 1.0f;
    if (arch->key_scaled_by_block)
        TRY(s24i_config_bool(&shape->scaled_by_block, config, arch->key_scaled_by_block,
                             S24I_OPTIONAL));
    if (arch->key_score_factor || arch->usual_score_factor > 0.0f)
        TRY(read_number(&shape->score_scale, config, arch->key_score_factor,
                        arch->usual_score_factor));
    if (!arch->key_score_root) return S24_OK;
    TRY(read_number(&root, config, arch->key_score_root, arch->usual_score_root));
    if (root != (float)shape->head_width) shape->score_scale = 1.0f / sqrtf(root);
    return S24_OK;
}

s24_status s24i_factors_read(s24i_shape *shape, const s24i_config *config,
                             const s24i_architecture *arch)
{
    float divisor;
    TRY(read_scores(shape, config, arch));
    TRY(read_number(&shape->embedding_factor, config, arch->key_embedding_factor, 0.0f));
    if (arch->embedding_root) shape->embedding_factor = sqrtf((float)shape->width);
    TRY(read_number(&shape->residual_factor, config, arch->key_residual, 0.0f));
    if (arch->by_depth) shape->residual_factor /= sqrtf((float)shape->layers);
    TRY(read_number(&shape->logits_factor, config, arch->key_logits_factor,
                    arch->usual_logits_factor));
    TRY(read_number(&divisor, config, arch->key_logits_divisor, 0.0f));
    if (arch->by_base_width && divisor > 0.0f) divisor = (float)shape->width / divisor;
    if (divisor > 0.0f) shape->logits_factor = 1.0f / divisor;
    TRY(read_cap(&shape->scores_cap, config, arch->key_scores_cap, arch->usual_scores_cap));
    return read_cap(&shape->logits_cap, config, arch->key_logits_cap, arch->usual_logits_cap);
}
