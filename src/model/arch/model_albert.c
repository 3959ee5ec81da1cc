// SPDX-License-Identifier: Apache-2.0
/* ALBERT's names: BERT's blocks, all of which have the tensors of one, and embeddings that are
   narrower. */
#include "model/model.h"

static const char *const one[] = {"num_hidden_groups", "inner_group_num", NULL};

#define LAYER "encoder.albert_layer_groups.0.albert_layers.0."

const s24i_architecture s24i_albert = {
    .model_type = "albert",
    .prefix = "albert.",
    .key_vocabulary = "vocab_size",
    .key_positions = "max_position_embeddings",
    .key_types = "type_vocab_size",
    .key_width = "hidden_size",
    .key_embedding = "embedding_size",
    .key_layers = "num_hidden_layers",
    .key_heads = "num_attention_heads",
    .key_intermediate = "intermediate_size",
    .key_activation = "hidden_act",
    .activation = "gelu_new",
    .key_eps = "layer_norm_eps",
    .key_dropout = "hidden_dropout_prob",
    .key_attention_dropout = "attention_probs_dropout_prob",
    .key_position_type = "position_embedding_type",
    .words = "embeddings.word_embeddings.weight",
    .positions = "embeddings.position_embeddings.weight",
    .types = "embeddings.token_type_embeddings.weight",
    .embedding_norm = "embeddings.LayerNorm",
    .project = "encoder.embedding_hidden_mapping_in",
    .slots = {[S24I_QUERY] = LAYER "attention.query",
              [S24I_KEY] = LAYER "attention.key",
              [S24I_VALUE] = LAYER "attention.value",
              [S24I_ATTENTION] = LAYER "attention.dense",
              [S24I_INTERMEDIATE] = LAYER "ffn",
              [S24I_OUTPUT] = LAYER "ffn_output"},
    .attention_norm = LAYER "attention.LayerNorm",
    .output_norm = LAYER "full_layer_layer_norm",
    .qa_head = "qa_outputs",
    .text_head = {.square = "pooler",
                  .bend = S24I_BEND_TANH,
                  .last = "classifier",
                  .token_last = "classifier"},
    .one = one,
    .always_projects = 1,
    .shared = 1,
    .biases = 1,
};
