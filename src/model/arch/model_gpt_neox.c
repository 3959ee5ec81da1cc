// SPDX-License-Identifier: Apache-2.0
/* EleutherAI's GPT-NeoX, as Pythia has it: both halves of a block read its input, each by a norm of
   its own, positions turn a quarter of each head, and the joint layer has a head's query, key and
   value one after the other. */
#include "model/model.h"

const s24i_architecture s24i_gpt_neox = {
    .model_type = "gpt_neox",
    .prefix = "gpt_neox.",
    .key_vocabulary = "vocab_size",
    .key_positions = "max_position_embeddings",
    .key_width = "hidden_size",
    .key_layers = "num_hidden_layers",
    .key_heads = "num_attention_heads",
    .key_intermediate = "intermediate_size",
    .key_activation = "hidden_act",
    .key_eps = "layer_norm_eps",
    .usual_eps = 1e-5f,
    .key_theta = "rotary_emb_base",
    .key_dropout = "hidden_dropout",
    .key_attention_dropout = "attention_dropout",
    .usual_turned = 0.25f,
    .words = "embed_in.weight",
    .slots = {[S24I_QUERY] = "layers.%d.attention.query_key_value",
              [S24I_ATTENTION] = "layers.%d.attention.dense",
              [S24I_INTERMEDIATE] = "layers.%d.mlp.dense_h_to_4h",
              [S24I_OUTPUT] = "layers.%d.mlp.dense_4h_to_h"},
    .attention_norm = "layers.%d.input_layernorm",
    .output_norm = "layers.%d.post_attention_layernorm",
    .final_norm = "final_layer_norm",
    .lm_head = "embed_out",
    .text_head = {.last = "score", .token_last = "classifier", .reads = S24I_READS_LAST},
    .key_on = "use_parallel_residual",
    .pre_norm = 1,
    .causal = 1,
    .rotary = 1,
    .joint = 1,
    .head_by_head = 1,
    .side_by_side = 1,
    .state_normed = 1,
};
