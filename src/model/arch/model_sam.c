// SPDX-License-Identifier: Apache-2.0
/*
 * The image encoder of "Segment Anything" (Kirillov et al., 2023) in the names of transformers'
 * SamVisionModel, from pixels to the last block's output; the neck after it, two convolutions to
 * 256 channels, is not read.
 */
#include "model/model.h"

const s24i_architecture s24i_sam = {
    .model_type = "sam_vision_model",
    .prefix = "vision_encoder.",
    .key_width = "hidden_size",
    .key_layers = "num_hidden_layers",
    .key_heads = "num_attention_heads",
    .key_intermediate = "mlp_dim",
    .key_activation = "hidden_act",
    .key_eps = "layer_norm_eps",
    .key_image = "image_size",
    .key_patch = "patch_size",
    .key_channels = "num_channels",
    .key_window = "window_size",
    .key_globals = "global_attn_indexes",
    .positions = "pos_embed",
    .patches = "patch_embed.projection",
    .slots = {[S24I_QUERY] = "layers.%d.attn.qkv",
              [S24I_ATTENTION] = "layers.%d.attn.proj",
              [S24I_INTERMEDIATE] = "layers.%d.mlp.lin1",
              [S24I_OUTPUT] = "layers.%d.mlp.lin2"},
    .attention_norm = "layers.%d.layer_norm1",
    .output_norm = "layers.%d.layer_norm2",
    .rel_h = "layers.%d.attn.rel_pos_h",
    .rel_w = "layers.%d.attn.rel_pos_w",
    .pre_norm = 1,
    .joint = 1,
    .biases = 1,
};
