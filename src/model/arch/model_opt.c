// SPDX-License-Identifier: Apache-2.0
/* OPT's names, as transformers' OPTForCausalLM writes them. Two rows stand before the positions';
   models whose words are narrower than their blocks (350m), or whose norms follow the sums, are
   others. */
#include "model/model.h"

static const char *const off[] = {"_remove_final_layer_norm", NULL};

const s24i_architecture s24i_opt = {
    .model_type = "opt",
    .prefix = "model.",
    .key_vocabulary = "vocab_size",
    .key_positions = "max_position_embeddings",
    .key_width = "hidden_size",
    .key_embedding = "word_embed_proj_dim",
    .key_layers = "num_hidden_layers",
    .key_heads = "num_attention_heads",
    .key_intermediate = "ffn_dim",
    .key_activation = "activation_function",
    .activation = "relu",
    .usual_eps = 1e-5f,
    .key_dropout = "dropout",
    .key_attention_dropout = "attention_dropout",
    .words = "decoder.embed_tokens.weight",
    .positions = "decoder.embed_positions.weight",
    .position_rows_before = 2,
    .slots = {[S24I_QUERY] = "decoder.layers.%d.self_attn.q_proj",
              [S24I_KEY] = "decoder.layers.%d.self_attn.k_proj",
              [S24I_VALUE] = "decoder.layers.%d.self_attn.v_proj",
              [S24I_ATTENTION] = "decoder.layers.%d.self_attn.out_proj",
              [S24I_INTERMEDIATE] = "decoder.layers.%d.fc1",
              [S24I_OUTPUT] = "decoder.layers.%d.fc2"},
    .attention_norm = "decoder.layers.%d.self_attn_layer_norm",
    .output_norm = "decoder.layers.%d.final_layer_norm",
    .final_norm = "decoder.final_layer_norm",
    .lm_head = "lm_head",
    .text_head = {.last = "score", .token_last = "score", .reads = S24I_READS_LAST},
    .off = off,
    .key_on = "do_layer_norm_before",
    .pre_norm = 1,
    .causal = 1,
    .state_normed = 1,
};
