// SPDX-License-Identifier: Apache-2.0
/* GTE's encoders in the names of their own code, which transformers writes too: BERT's order of
   norms with rotary positions and a gate that stands after the rows that it multiplies. Query, key
   and value are one layer, and feed-forward layers have a bias at their end alone. */
#include "model/model.h"

static const char *const off[] = {"logn_attention_scale", "is_decoder", NULL};

// clang-format off
#define GTE_SHAPED                                                                                 \
    .key_vocabulary = "vocab_size",                                                                \
    .key_positions = "max_position_embeddings",                                                    \
    .key_types = "type_vocab_size",                                                                \
    .key_width = "hidden_size",                                                                    \
    .key_layers = "num_hidden_layers",                                                             \
    .key_heads = "num_attention_heads",                                                            \
    .key_intermediate = "intermediate_size",                                                       \
    .key_activation = "hidden_act",                                                                \
    .key_eps = "layer_norm_eps",                                                                   \
    .key_dropout = "hidden_dropout_prob",                                                          \
    .key_attention_dropout = "attention_probs_dropout_prob",                                       \
    .key_theta = "rope_theta",                                                                     \
    .words = "embeddings.word_embeddings.weight",                                                  \
    .types = "embeddings.token_type_embeddings.weight",                                            \
    .embedding_norm = "embeddings.LayerNorm",                                                      \
    .slots = {[S24I_QUERY] = "encoder.layer.%d.attention.qkv_proj",                                \
              [S24I_ATTENTION] = "encoder.layer.%d.attention.o_proj",                              \
              [S24I_INTERMEDIATE] = "encoder.layer.%d.mlp.up_gate_proj",                           \
              [S24I_OUTPUT] = "encoder.layer.%d.mlp.down_proj"},                                   \
    .attention_norm = "encoder.layer.%d.attn_ln",                                                  \
    .output_norm = "encoder.layer.%d.mlp_ln",                                                      \
    .qa_head = "qa_outputs",                                                                       \
    .text_head = {.square = "pooler.dense",                                                        \
                  .bend = S24I_BEND_TANH,                                                          \
                  .last = "classifier",                                                            \
                  .token_last = "classifier"},                                                     \
    .off = off,                                                                                    \
    .rotary = 1,                                                                                   \
    .joint = 1,                                                                                    \
    .joint_gate = 1,                                                                               \
    .gate_last = 1
// clang-format on

const s24i_architecture s24i_gte = {.model_type = "gte", .prefix = "gte.", GTE_SHAPED};

const s24i_architecture s24i_gte_new = {.model_type = "new", .prefix = "new.", GTE_SHAPED};
