// SPDX-License-Identifier: Apache-2.0
/*
 * CLIP and SigLIP: a tower of texts and one of images in one folder, whose vectors lie in one
 * space, or either tower alone. CLIP's texts see what came before, and their vector is that of the
 * token that ends them; SigLIP's are all of one length, filled with the token that pads, and their
 * vector is the last one's. SigLIP's images are pooled by a head of their own.
 */
#include "model/model.h"

// clang-format off
#define TOWER                                                                                      \
    .key_width = "hidden_size",                                                                    \
    .key_layers = "num_hidden_layers",                                                             \
    .key_heads = "num_attention_heads",                                                            \
    .key_intermediate = "intermediate_size",                                                       \
    .key_activation = "hidden_act",                                                                \
    .key_eps = "layer_norm_eps",                                                                   \
    .key_attention_dropout = "attention_dropout",                                                  \
    .positions = "embeddings.position_embedding.weight",                                           \
    .slots = {[S24I_QUERY] = "encoder.layers.%d.self_attn.q_proj",                                 \
              [S24I_KEY] = "encoder.layers.%d.self_attn.k_proj",                                   \
              [S24I_VALUE] = "encoder.layers.%d.self_attn.v_proj",                                 \
              [S24I_ATTENTION] = "encoder.layers.%d.self_attn.out_proj",                           \
              [S24I_INTERMEDIATE] = "encoder.layers.%d.mlp.fc1",                                   \
              [S24I_OUTPUT] = "encoder.layers.%d.mlp.fc2"},                                        \
    .attention_norm = "encoder.layers.%d.layer_norm1",                                             \
    .output_norm = "encoder.layers.%d.layer_norm2",                                                \
    .pre_norm = 1,                                                                                 \
    .biases = 1

#define VISION TOWER,                                                                              \
    .prefix = "vision_model.",                                                                     \
    .key_image = "image_size",                                                                     \
    .key_patch = "patch_size",                                                                     \
    .key_channels = "num_channels",                                                                \
    .patches = "embeddings.patch_embedding",                                                       \
    .final_norm = "post_layernorm"

#define TEXT TOWER,                                                                                \
    .prefix = "text_model.",                                                                       \
    .key_vocabulary = "vocab_size",                                                                \
    .key_positions = "max_position_embeddings",                                                    \
    .words = "embeddings.token_embedding.weight",                                                  \
    .final_norm = "final_layer_norm",                                                              \
    .state_normed = 1

#define CLIP_VISION VISION,                                                                        \
    .first_token = "embeddings.class_embedding",                                                   \
    .embedding_norm = "pre_layrnorm",                                                              \
    .projection = "visual_projection",                                                             \
    .bare_patches = 1,                                                                             \
    .usual_config = "{\"hidden_size\": 768, \"intermediate_size\": 3072, "                         \
                    "\"num_hidden_layers\": 12, \"num_attention_heads\": 12, "                     \
                    "\"image_size\": 224, \"patch_size\": 32, "                                    \
                    "\"hidden_act\": \"quick_gelu\", \"layer_norm_eps\": 1e-5}"

#define CLIP_TEXT TEXT,                                                                            \
    .key_end = "eos_token_id",                                                                     \
    .projection = "text_projection",                                                               \
    .causal = 1,                                                                                   \
    .usual_config = "{\"vocab_size\": 49408, \"hidden_size\": 512, \"intermediate_size\": 2048, "  \
                    "\"num_hidden_layers\": 12, \"num_attention_heads\": 8, "                      \
                    "\"max_position_embeddings\": 77, \"eos_token_id\": 49407, "                   \
                    "\"hidden_act\": \"quick_gelu\", \"layer_norm_eps\": 1e-5}"

#define SIGLIP_TEXT TEXT,                                                                          \
    .projection = "head",                                                                          \
    .filled = 1,                                                                                   \
    .usual_config = "{\"vocab_size\": 32000, \"hidden_size\": 768, "                               \
                    "\"intermediate_size\": 3072, \"num_hidden_layers\": 12, "                     \
                    "\"num_attention_heads\": 12, \"max_position_embeddings\": 64, "               \
                    "\"hidden_act\": \"gelu_pytorch_tanh\", \"layer_norm_eps\": 1e-6}"

#define SIGLIP_VISION VISION,                                                                      \
    .probe = probe,                                                                                \
    .key_probe = "vision_use_head",                                                                \
    .state_normed = 1,                                                                             \
    .usual_config = "{\"hidden_size\": 768, \"intermediate_size\": 3072, "                         \
                    "\"num_hidden_layers\": 12, \"num_attention_heads\": 12, "                     \
                    "\"image_size\": 224, \"patch_size\": 16, "                                    \
                    "\"hidden_act\": \"gelu_pytorch_tanh\", \"layer_norm_eps\": 1e-6}"
// clang-format on

static const char *const probe[S24I_PROBE_PARTS] = {
    [S24I_PROBE] = "head.probe",
    [S24I_PROBE_IN] = "head.attention.in_proj_weight",
    [S24I_PROBE_IN_BIAS] = "head.attention.in_proj_bias",
    [S24I_PROBE_OUT] = "head.attention.out_proj.weight",
    [S24I_PROBE_OUT_BIAS] = "head.attention.out_proj.bias",
    [S24I_PROBE_GAMMA] = "head.layernorm.weight",
    [S24I_PROBE_BETA] = "head.layernorm.bias",
    [S24I_PROBE_UP] = "head.mlp.fc1.weight",
    [S24I_PROBE_UP_BIAS] = "head.mlp.fc1.bias",
    [S24I_PROBE_DOWN] = "head.mlp.fc2.weight",
    [S24I_PROBE_DOWN_BIAS] = "head.mlp.fc2.bias"};

const s24i_architecture s24i_clip_vision = {.model_type = "clip_vision_model", CLIP_VISION};

const s24i_architecture s24i_clip_text = {.model_type = "clip_text_model", CLIP_TEXT};

static const s24i_architecture clip_images = {
    .model_type = "clip", CLIP_VISION, .key_tower = "vision_config"};

const s24i_architecture s24i_clip = {
    .model_type = "clip", CLIP_TEXT, .key_tower = "text_config", .images = &clip_images};

const s24i_architecture s24i_siglip_vision = {.model_type = "siglip_vision_model", SIGLIP_VISION};

const s24i_architecture s24i_siglip_text = {.model_type = "siglip_text_model", SIGLIP_TEXT};

static const s24i_architecture siglip_images = {
    .model_type = "siglip", SIGLIP_VISION, .key_tower = "vision_config"};

const s24i_architecture s24i_siglip = {
    .model_type = "siglip", SIGLIP_TEXT, .key_tower = "text_config", .images = &siglip_images};
