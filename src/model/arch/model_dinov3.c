// SPDX-License-Identifier: Apache-2.0
/* DINOv3's names, as Meta wrote them and transformers does: ViT's blocks without rows of positions.
   Where a patch lies in the image turns queries and keys; the class token and registers before the
   patches are not turned. */
#include "model/model.h"

// clang-format off
#define DINOV3_SHAPED                                                                              \
    .model_type = "dinov3_vit",                                                                    \
    .prefix = "model.",                                                                            \
    .key_width = "hidden_size",                                                                    \
    .key_layers = "num_hidden_layers",                                                             \
    .key_heads = "num_attention_heads",                                                            \
    .key_intermediate = "intermediate_size",                                                       \
    .key_activation = "hidden_act",                                                                \
    .key_eps = "layer_norm_eps",                                                                   \
    .usual_eps = 1e-5f,                                                                            \
    .key_image = "image_size",                                                                     \
    .key_patch = "patch_size",                                                                     \
    .key_channels = "num_channels",                                                                \
    .key_attention_dropout = "attention_dropout",                                                  \
    .key_theta = "rope_theta",                                                                     \
    .usual_theta = 100.0f,                                                                         \
    .first_token = "embeddings.cls_token",                                                         \
    .more_tokens = "embeddings.register_tokens",                                                   \
    .key_more_tokens = "num_register_tokens",                                                      \
    .patches = "embeddings.patch_embeddings",                                                      \
    .attention_norm = "layer.%d.norm1",                                                            \
    .output_norm = "layer.%d.norm2",                                                               \
    .final_norm = "norm",                                                                          \
    .attention_scale = "layer.%d.layer_scale1.lambda1",                                            \
    .output_scale = "layer.%d.layer_scale2.lambda1",                                               \
    .pre_norm = 1,                                                                                 \
    .rotary = 1,                                                                                   \
    .state_normed = 1,                                                                             \
    .interpolates = 1

#define DINOV3_LAYERS                                                                              \
    [S24I_QUERY] = "layer.%d.attention.q_proj",                                                    \
    [S24I_KEY] = "layer.%d.attention.k_proj",                                                      \
    [S24I_VALUE] = "layer.%d.attention.v_proj",                                                    \
    [S24I_ATTENTION] = "layer.%d.attention.o_proj",                                                \
    [S24I_INTERMEDIATE] = "layer.%d.mlp.up_proj",                                                  \
    [S24I_OUTPUT] = "layer.%d.mlp.down_proj"
// clang-format on

static const s24i_architecture gated = {
    DINOV3_SHAPED, .slots = {DINOV3_LAYERS, [S24I_GATE] = "layer.%d.mlp.gate_proj"}};

const s24i_architecture s24i_dinov3_vit = {DINOV3_SHAPED, .key_variant = "use_gated_mlp",
                                           .variant = &gated, .slots = {DINOV3_LAYERS}};
