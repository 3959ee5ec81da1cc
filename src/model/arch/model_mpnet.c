// SPDX-License-Identifier: Apache-2.0
/* MPNet's names. Its positions begin as RoBERTa's, and scores grow by the tokens' distance, in one
   table for all blocks. */
#include "model/model.h"

const s24i_architecture s24i_mpnet = {
    .model_type = "mpnet",
    .prefix = "mpnet.",
    .key_vocabulary = "vocab_size",
    .key_positions = "max_position_embeddings",
    .key_padding = "pad_token_id",
    .key_width = "hidden_size",
    .key_layers = "num_hidden_layers",
    .key_heads = "num_attention_heads",
    .key_intermediate = "intermediate_size",
    .key_activation = "hidden_act",
    .key_eps = "layer_norm_eps",
    .key_dropout = "hidden_dropout_prob",
    .key_attention_dropout = "attention_probs_dropout_prob",
    .key_buckets = "relative_attention_num_buckets",
    .words = "embeddings.word_embeddings.weight",
    .positions = "embeddings.position_embeddings.weight",
    .relative = "encoder.relative_attention_bias.weight",
    .embedding_norm = "embeddings.LayerNorm",
    .slots = {[S24I_QUERY] = "encoder.layer.%d.attention.attn.q",
              [S24I_KEY] = "encoder.layer.%d.attention.attn.k",
              [S24I_VALUE] = "encoder.layer.%d.attention.attn.v",
              [S24I_ATTENTION] = "encoder.layer.%d.attention.attn.o",
              [S24I_INTERMEDIATE] = "encoder.layer.%d.intermediate.dense",
              [S24I_OUTPUT] = "encoder.layer.%d.output.dense"},
    .attention_norm = "encoder.layer.%d.attention.LayerNorm",
    .output_norm = "encoder.layer.%d.output.LayerNorm",
    .qa_head = "qa_outputs",
    .text_head = {.square = "classifier.dense",
                  .bend = S24I_BEND_TANH,
                  .last = "classifier.out_proj",
                  .token_last = "classifier"},
    .biases = 1,
};
