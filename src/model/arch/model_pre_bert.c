// SPDX-License-Identifier: Apache-2.0
/*
 * BERT's kin whose norms stand before the layers: Megatron's BERT, XLM-RoBERTa's large ones,
 * RoBERTa's, and ESM-2, which reads proteins: positions turn its queries and keys, and a text's
 * embeddings grow with the share of its tokens that are masked.
 */
#include "model/arch/bert_names.h"

static const char *const off[] = {"is_decoder", "add_cross_attention", NULL};
static const char *const esm_off[] = {"is_decoder", "add_cross_attention", "is_folding_model",
                                      "emb_layer_norm_before", NULL};

// clang-format off
#define PRE_BERT                                                                                   \
    BERT_NAMES,                                                                                    \
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
