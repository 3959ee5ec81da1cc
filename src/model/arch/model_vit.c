// SPDX-License-Identifier: Apache-2.0
/* ViT's names, as transformers' ViTForImageClassification wrote them until release 4. */
#include "model/model.h"

const s24i_architecture s24i_vit = {
    .model_type = "vit",
    .prefix = "vit.",
    .key_width = "hidden_size",
    .key_layers = "num_hidden_layers",
    .key_heads = "num_attention_heads",
    .key_intermediate = "intermediate_size",
    .key_activation = "hidden_act",
    .key_eps = "layer_norm_eps",
    .key_image = "image_size",
    .key_patch = "patch_size",
    .key_channels = "num_channels",
    .key_dropout = "hidden_dropout_prob",
    .key_attention_dropout = "attention_probs_dropout_prob",
    .positions = "embeddings.position_embeddings",
    .first_token = "embeddings.cls_token",
    .patches = "embeddings.patch_embeddings.projection",
    .slots = {[S24I_QUERY] = "encoder.layer.%d.attention.attention.query",
              [S24I_KEY] = "encoder.layer.%d.attention.attention.key",
              [S24I_VALUE] = "encoder.layer.%d.attention.attention.value",
              [S24I_ATTENTION] = "encoder.layer.%d.attention.output.dense",
              [S24I_INTERMEDIATE] = "encoder.layer.%d.intermediate.dense",
              [S24I_OUTPUT] = "encoder.layer.%d.output.dense"},
    .attention_norm = "encoder.layer.%d.layernorm_before",
    .output_norm = "encoder.layer.%d.layernorm_after",
    .final_norm = "layernorm",
    .class_head = "classifier",
    .pre_norm = 1,
    .biases = 1,
};
