// SPDX-License-Identifier: Apache-2.0
/*
 * Encoders of images in ViT's blocks: DINOv2, without and with registers, whose layers' results are
 * scaled and whose positions follow the size of images, DeiT, which has a token more, MSN and
 * I-JEPA, which has none but the patches.
 */
#include "model/model.h"

// clang-format off
#define VIT_SHAPED                                                                                 \
    .key_width = "hidden_size",                                                                    \
    .key_layers = "num_hidden_layers",                                                             \
    .key_heads = "num_attention_heads",                                                            \
    .key_activation = "hidden_act",                                                                \
    .key_eps = "layer_norm_eps",                                                                   \
    .key_image = "image_size",                                                                     \
    .key_patch = "patch_size",                                                                     \
    .key_channels = "num_channels",                                                                \
    .key_dropout = "hidden_dropout_prob",                                                          \
    .key_attention_dropout = "attention_probs_dropout_prob",                                       \
    .positions = "embeddings.position_embeddings",                                                 \
    .patches = "embeddings.patch_embeddings.projection",                                           \
    .final_norm = "layernorm",                                                                     \
    .pre_norm = 1,                                                                                 \
    .state_normed = 1,                                                                             \
    .biases = 1

#define VIT_ATTENTION                                                                              \
    [S24I_QUERY] = "encoder.layer.%d.attention.attention.query",                                   \
    [S24I_KEY] = "encoder.layer.%d.attention.attention.key",                                       \
    [S24I_VALUE] = "encoder.layer.%d.attention.attention.value",                                   \
    [S24I_ATTENTION] = "encoder.layer.%d.attention.output.dense"

#define VIT_BLOCK                                                                                  \
    .key_intermediate = "intermediate_size",                                                       \
    .slots = {VIT_ATTENTION,                                                                       \
              [S24I_INTERMEDIATE] = "encoder.layer.%d.intermediate.dense",                         \
              [S24I_OUTPUT] = "encoder.layer.%d.output.dense"},                                    \
    .attention_norm = "encoder.layer.%d.layernorm_before",                                         \
    .output_norm = "encoder.layer.%d.layernorm_after"

#define DINO_SHAPED VIT_SHAPED,                                                                    \
    .first_token = "embeddings.cls_token",                                                         \
    .key_ratio = "mlp_ratio",                                                                      \
    .attention_scale = "encoder.layer.%d.layer_scale1.lambda1",                                    \
    .output_scale = "encoder.layer.%d.layer_scale2.lambda1",                                       \
    .attention_norm = "encoder.layer.%d.norm1",                                                    \
    .output_norm = "encoder.layer.%d.norm2",                                                       \
    .interpolates = 1

#define DINO_PLAIN DINO_SHAPED,                                                                    \
    .slots = {VIT_ATTENTION,                                                                       \
              [S24I_INTERMEDIATE] = "encoder.layer.%d.mlp.fc1",                                    \
              [S24I_OUTPUT] = "encoder.layer.%d.mlp.fc2"}

#define DINO_GATED DINO_SHAPED,                                                                    \
    .slots = {VIT_ATTENTION,                                                                       \
              [S24I_INTERMEDIATE] = "encoder.layer.%d.mlp.weights_in",                             \
              [S24I_OUTPUT] = "encoder.layer.%d.mlp.weights_out"},                                 \
    .joint_gate = 1

#define REGISTERS                                                                                  \
    .more_tokens = "embeddings.register_tokens",                                                   \
    .key_more_tokens = "num_register_tokens",                                                      \
    .more_unplaced = 1,                                                                            \
    .antialiases = 1
// clang-format on

/* A gate's activation is SiLU, whatever config.json says. */
static const s24i_architecture dinov2_gated = {
    .model_type = "dinov2", .prefix = "dinov2.", DINO_GATED, .gate_is_silu = 1};

const s24i_architecture s24i_dinov2 = {.model_type = "dinov2",
                                       .prefix = "dinov2.",
                                       .key_variant = "use_swiglu_ffn",
                                       .variant = &dinov2_gated,
                                       DINO_PLAIN};

static const s24i_architecture registers_gated = {.model_type = "dinov2_with_registers",
                                                  .prefix = "dinov2_with_registers.",
                                                  DINO_GATED,
                                                  REGISTERS,
                                                  .gate_is_silu = 1};

const s24i_architecture s24i_dinov2_with_registers = {.model_type = "dinov2_with_registers",
                                                      .prefix = "dinov2_with_registers.",
                                                      .key_variant = "use_swiglu_ffn",
                                                      .variant = &registers_gated,
                                                      DINO_PLAIN,
                                                      REGISTERS};

/* The head of its class token; one of the token that a teacher taught is not read. */
const s24i_architecture s24i_deit = {.model_type = "deit",
                                     .prefix = "deit.",
                                     VIT_SHAPED,
                                     VIT_BLOCK,
                                     .first_token = "embeddings.cls_token",
                                     .more_tokens = "embeddings.distillation_token",
                                     .class_head = "classifier"};

const s24i_architecture s24i_vit_msn = {.model_type = "vit_msn",
                                        .prefix = "vit.",
                                        VIT_SHAPED,
                                        VIT_BLOCK,
                                        .usual_eps = 1e-6f,
                                        .first_token = "embeddings.cls_token",
                                        .class_head = "classifier"};

const s24i_architecture s24i_ijepa = {
    .model_type = "ijepa", .prefix = "ijepa.", VIT_SHAPED, VIT_BLOCK, .usual_eps = 1e-6f};
