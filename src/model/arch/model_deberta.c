// SPDX-License-Identifier: Apache-2.0
/* DeBERTa's names from version 2 on: BERT's blocks with scores by content and distance, and no
   positions at the input. Blocks with a convolution (the xlarge ones of version 2) are refused. */
#include "model/model.h"

static const char *const off[] = {"position_biased_input", "conv_kernel_size", NULL};

const s24i_architecture s24i_deberta_v2 = {
    .model_type = "deberta-v2",
    .prefix = "deberta.",
    .key_vocabulary = "vocab_size",
    .key_positions = "max_position_embeddings",
    .key_types = "type_vocab_size",
    .key_width = "hidden_size",
    .key_embedding = "embedding_size",
    .key_layers = "num_hidden_layers",
    .key_heads = "num_attention_heads",
    .key_head_width = "attention_head_size",
    .key_intermediate = "intermediate_size",
    .key_activation = "hidden_act",
    .key_eps = "layer_norm_eps",
    .usual_eps = 1e-7f,
    .key_dropout = "hidden_dropout_prob",
    .key_attention_dropout = "attention_probs_dropout_prob",
    .words = "embeddings.word_embeddings.weight",
    .types = "embeddings.token_type_embeddings.weight",
    .apart = "encoder.rel_embeddings.weight",
    .apart_norm = "encoder.LayerNorm",
    .embedding_norm = "embeddings.LayerNorm",
    .slots = {[S24I_QUERY] = "encoder.layer.%d.attention.self.query_proj",
              [S24I_KEY] = "encoder.layer.%d.attention.self.key_proj",
              [S24I_VALUE] = "encoder.layer.%d.attention.self.value_proj",
              [S24I_ATTENTION] = "encoder.layer.%d.attention.output.dense",
              [S24I_INTERMEDIATE] = "encoder.layer.%d.intermediate.dense",
              [S24I_OUTPUT] = "encoder.layer.%d.output.dense"},
    .attention_norm = "encoder.layer.%d.attention.output.LayerNorm",
    .output_norm = "encoder.layer.%d.output.LayerNorm",
    .qa_head = "qa_outputs",
    .text_head = {.square = "pooler.dense",
                  .bend = S24I_BEND_GELU,
                  .last = "classifier",
                  .token_last = "classifier"},
    .off = off,
    .biases = 1,
};
