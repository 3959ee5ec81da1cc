// SPDX-License-Identifier: Apache-2.0
/* DistilBERT's names: BERT's block under names of its own, without types. */
#include "model/model.h"

const s24i_architecture s24i_distilbert = {
    .model_type = "distilbert",
    .prefix = "distilbert.",
    .key_vocabulary = "vocab_size",
    .key_positions = "max_position_embeddings",
    .key_width = "dim",
    .key_layers = "n_layers",
    .key_heads = "n_heads",
    .key_intermediate = "hidden_dim",
    .key_activation = "activation",
    .key_dropout = "dropout",
    .key_attention_dropout = "attention_dropout",
    .words = "embeddings.word_embeddings.weight",
    .positions = "embeddings.position_embeddings.weight",
    .embedding_norm = "embeddings.LayerNorm",
    .slots = {[S24I_QUERY] = "transformer.layer.%d.attention.q_lin",
              [S24I_KEY] = "transformer.layer.%d.attention.k_lin",
              [S24I_VALUE] = "transformer.layer.%d.attention.v_lin",
              [S24I_ATTENTION] = "transformer.layer.%d.attention.out_lin",
              [S24I_INTERMEDIATE] = "transformer.layer.%d.ffn.lin1",
              [S24I_OUTPUT] = "transformer.layer.%d.ffn.lin2"},
    .attention_norm = "transformer.layer.%d.sa_layer_norm",
    .output_norm = "transformer.layer.%d.output_layer_norm",
    .qa_head = "qa_outputs",
    .text_head = {.square = "pre_classifier",
                  .bend = S24I_BEND_RELU,
                  .last = "classifier",
                  .token_last = "classifier"},
    .biases = 1,
};
