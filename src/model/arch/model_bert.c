// SPDX-License-Identifier: Apache-2.0
/*
 * BERT's names, as transformers' BertModel writes them: a bare encoder without the prefix, a model
 * with a head with it. Pooler, cls.* and the position_ids buffer of old files are not read.
 */
#include "model/model.h"

const s24i_architecture s24i_bert = {
    .model_type = "bert",
    .prefix = "bert.",
    .key_vocabulary = "vocab_size",
    .key_positions = "max_position_embeddings",
    .key_types = "type_vocab_size",
    .key_width = "hidden_size",
    .key_layers = "num_hidden_layers",
    .key_heads = "num_attention_heads",
    .key_intermediate = "intermediate_size",
    .key_activation = "hidden_act",
    .key_eps = "layer_norm_eps",
    .key_dropout = "hidden_dropout_prob",
    .key_attention_dropout = "attention_probs_dropout_prob",
    .key_position_type = "position_embedding_type",
    .words = "embeddings.word_embeddings.weight",
    .positions = "embeddings.position_embeddings.weight",
    .types = "embeddings.token_type_embeddings.weight",
    .embedding_norm = "embeddings.LayerNorm",
    .slots = {[S24I_QUERY] = "encoder.layer.%d.attention.self.query",
              [S24I_KEY] = "encoder.layer.%d.attention.self.key",
              [S24I_VALUE] = "encoder.layer.%d.attention.self.value",
              [S24I_ATTENTION] = "encoder.layer.%d.attention.output.dense",
              [S24I_INTERMEDIATE] = "encoder.layer.%d.intermediate.dense",
              [S24I_OUTPUT] = "encoder.layer.%d.output.dense"},
    .attention_norm = "encoder.layer.%d.attention.output.LayerNorm",
    .output_norm = "encoder.layer.%d.output.LayerNorm",
    .qa_head = "qa_outputs",
    .biases = 1,
};
