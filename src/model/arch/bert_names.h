// SPDX-License-Identifier: Apache-2.0
/* Keys and layers as BERT and its kin name them, wherever their norms stand. */
#ifndef S24_MODEL_ARCH_BERT_NAMES_H
#define S24_MODEL_ARCH_BERT_NAMES_H

#include "model/model.h"

// clang-format off
#define BERT_NAMES                                                                                 \
    .key_vocabulary = "vocab_size",                                                                \
    .key_positions = "max_position_embeddings",                                                    \
    .key_width = "hidden_size",                                                                    \
    .key_layers = "num_hidden_layers",                                                             \
    .key_heads = "num_attention_heads",                                                            \
    .key_intermediate = "intermediate_size",                                                       \
    .key_activation = "hidden_act",                                                                \
    .key_eps = "layer_norm_eps",                                                                   \
    .key_dropout = "hidden_dropout_prob",                                                          \
    .key_attention_dropout = "attention_probs_dropout_prob",                                       \
    .key_position_type = "position_embedding_type",                                                \
    .words = "embeddings.word_embeddings.weight",                                                  \
    .slots = {[S24I_QUERY] = "encoder.layer.%d.attention.self.query",                              \
              [S24I_KEY] = "encoder.layer.%d.attention.self.key",                                  \
              [S24I_VALUE] = "encoder.layer.%d.attention.self.value",                              \
              [S24I_ATTENTION] = "encoder.layer.%d.attention.output.dense",                        \
              [S24I_INTERMEDIATE] = "encoder.layer.%d.intermediate.dense",                         \
              [S24I_OUTPUT] = "encoder.layer.%d.output.dense"}
// clang-format on

#endif
