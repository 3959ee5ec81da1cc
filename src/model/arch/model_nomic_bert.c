// SPDX-License-Identifier: Apache-2.0
/* Nomic's BERT: BERT's order of norms with rotary positions and a gate. Keys are transformers', or
   those of the folders that came before it had the model. */
#include "model/model.h"

static const char *const off[] = {"prenorm",
                                  "rotary_emb_interleaved",
                                  "rotary_emb_scale_base",
                                  "rotary_scaling_factor",
                                  "moe_every_n_layers",
                                  "qkv_proj_bias",
                                  "mlp_fc1_bias",
                                  "mlp_fc2_bias",
                                  "use_rms_norm",
                                  "parallel_block",
                                  "causal",
                                  NULL};

const s24i_architecture s24i_nomic_bert = {
    .model_type = "nomic_bert",
    .prefix = "nomic_bert.",
    .key_vocabulary = "vocab_size",
    .key_positions = "max_position_embeddings|n_positions",
    .key_types = "type_vocab_size",
    .key_width = "hidden_size|n_embd",
    .key_layers = "num_hidden_layers|n_layer",
    .key_heads = "num_attention_heads|n_head",
    .key_head_width = "head_dim",
    .key_intermediate = "intermediate_size|n_inner",
    .key_activation = "hidden_act|activation_function",
    .activation = "silu",
    .key_eps = "layer_norm_eps|layer_norm_epsilon",
    .key_dropout = "hidden_dropout_prob|resid_pdrop",
    .key_attention_dropout = "attention_probs_dropout_prob|attn_pdrop",
    .key_theta = "rotary_emb_base",
    .words = "embeddings.word_embeddings.weight",
    .types = "embeddings.token_type_embeddings.weight",
    .embedding_norm = "emb_ln",
    .slots = {[S24I_QUERY] = "encoder.layers.%d.attn.Wqkv",
              [S24I_ATTENTION] = "encoder.layers.%d.attn.out_proj",
              [S24I_INTERMEDIATE] = "encoder.layers.%d.mlp.fc11",
              [S24I_OUTPUT] = "encoder.layers.%d.mlp.fc2",
              [S24I_GATE] = "encoder.layers.%d.mlp.fc12"},
    .attention_norm = "encoder.layers.%d.norm1",
    .output_norm = "encoder.layers.%d.norm2",
    .off = off,
    .rotary = 1,
    .joint = 1,
};
