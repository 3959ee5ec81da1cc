// SPDX-License-Identifier: Apache-2.0
/*
 * BERT's kin whose norms stand before the layers: Megatron's BERT, XLM-RoBERTa's large ones,
 * RoBERTa's, and ESM-2, which reads proteins: positions turn its queries and keys, and a text's
 * embeddings grow with the share of its tokens that are masked.
 */
#include "model/model.h"

static const char *const off[] = {"is_decoder", "add_cross_attention", NULL};
static const char *const esm_off[] = {"is_decoder", "add_cross_attention", "is_folding_model",
                                      "emb_layer_norm_before", NULL};

// clang-format off
#define PRE_BERT                                                                                   \
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
              [S24I_OUTPUT] = "encoder.layer.%d.output.dense"},                                    \
    .qa_head = "qa_outputs",                                                                       \
    .pre_norm = 1,                                                                                 \
    .state_normed = 1,                                                                             \
    .biases = 1

#define PLACED PRE_BERT,                                                                           \
    .off = off,                                                                                    \
    .key_types = "type_vocab_size",                                                                \
    .positions = "embeddings.position_embeddings.weight",                                          \
    .types = "embeddings.token_type_embeddings.weight"

#define ROBERTA_HEAD                                                                               \
    .text_head = {.square = "classifier.dense",                                                    \
                  .bend = S24I_BEND_TANH,                                                          \
                  .last = "classifier.out_proj",                                                   \
                  .token_last = "classifier"}
// clang-format on

const s24i_architecture s24i_megatron_bert = {.model_type = "megatron-bert",
                                              .prefix = "bert.",
                                              PLACED,
                                              .attention_norm = "encoder.layer.%d.attention.ln",
                                              .output_norm = "encoder.layer.%d.ln",
                                              .final_norm = "encoder.ln",
                                              .text_head = {.square = "pooler.dense",
                                                            .bend = S24I_BEND_TANH,
                                                            .last = "classifier",
                                                            .token_last = "classifier"}};

const s24i_architecture s24i_xlm_roberta_xl = {
    .model_type = "xlm-roberta-xl",
    .prefix = "roberta.",
    PLACED,
    .key_padding = "pad_token_id",
    .attention_norm = "encoder.layer.%d.attention.self_attn_layer_norm",
    .output_norm = "encoder.layer.%d.LayerNorm",
    .final_norm = "encoder.LayerNorm",
    ROBERTA_HEAD};

const s24i_architecture s24i_roberta_prelayernorm = {
    .model_type = "roberta-prelayernorm",
    .prefix = "roberta_prelayernorm.",
    PLACED,
    .key_padding = "pad_token_id",
    .embedding_norm = "embeddings.LayerNorm",
    .attention_norm = "encoder.layer.%d.attention.LayerNorm",
    .output_norm = "encoder.layer.%d.intermediate.LayerNorm",
    .final_norm = "LayerNorm",
    ROBERTA_HEAD};

const s24i_architecture s24i_esm = {.model_type = "esm",
                                    .prefix = "esm.",
                                    PRE_BERT,
                                    .position_type = "rotary",
                                    .key_theta = "rope_theta",
                                    .key_masked = "mask_token_id",
                                    .key_masked_grows = "token_dropout",
                                    .attention_norm = "encoder.layer.%d.attention.LayerNorm",
                                    .output_norm = "encoder.layer.%d.LayerNorm",
                                    .final_norm = "encoder.emb_layer_norm_after",
                                    ROBERTA_HEAD,
                                    .off = esm_off,
                                    .rotary = 1};
