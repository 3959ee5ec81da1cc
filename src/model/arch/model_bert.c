// SPDX-License-Identifier: Apache-2.0
/*
 * BERT's names, as transformers' BertModel writes them, and those that took them over: ERNIE where
 * no task has embeddings of its own, RoBERTa and its kin, whose positions begin after the padding
 * token's, Longformer's windows, LUKE without its entities, ELECTRA and RemBERT, whose embeddings
 * may be narrower than their blocks, RoFormer, whose positions turn queries and keys. A bare
 * encoder has no prefix, a model with a head has it. Poolers of models without a head, cls.* and
 * the position_ids buffer of old files are not read.
 */
#include "model/arch/bert_names.h"

static const char *const off[] = {"is_decoder", "add_cross_attention", "use_task_id", NULL};
static const char *const roformer_off[] = {"is_decoder", "add_cross_attention", "rotary_value",
                                           NULL};

// clang-format off
#define BERT_SHAPED BERT_UNPLACED,                                                                 \
    .positions = "embeddings.position_embeddings.weight",                                          \
    .qa_head = "qa_outputs",                                                                       \
    .off = off

#define BERT_UNPLACED BERT_TYPELESS,                                                               \
    .key_types = "type_vocab_size",                                                                \
    .types = "embeddings.token_type_embeddings.weight"

#define BERT_TYPELESS                                                                              \
    BERT_NAMES,                                                                                    \
    .embedding_norm = "embeddings.LayerNorm",                                                      \
    .attention_norm = "encoder.layer.%d.attention.output.LayerNorm",                               \
    .output_norm = "encoder.layer.%d.output.LayerNorm",                                            \
    .biases = 1

#define BERT_HEAD                                                                                  \
    .text_head = {.square = "pooler.dense",                                                        \
                  .bend = S24I_BEND_TANH,                                                          \
                  .last = "classifier",                                                            \
                  .token_last = "classifier"}

#define BERT_WORDS                                                                                 \
    .words_head = {.square = "cls.predictions.transform.dense",                                    \
                   .norm = "cls.predictions.transform.LayerNorm",                                  \
                   .bias = "cls.predictions",                                                      \
                   .rows = "cls.predictions.decoder"}

#define ROBERTA_SHAPED ROBERTA_UNWORDED,                                                           \
    .words_head = {.square = "lm_head.dense",                                                      \
                   .norm = "lm_head.layer_norm",                                                   \
                   .bias = "lm_head",                                                              \
                   .rows = "lm_head.decoder",                                                      \
                   .gelu = 1}

#define ROBERTA_UNWORDED BERT_SHAPED, .key_padding = "pad_token_id",                               \
    .text_head = {.square = "classifier.dense",                                                    \
                  .bend = S24I_BEND_TANH,                                                          \
                  .last = "classifier.out_proj",                                                   \
                  .token_last = "classifier"}
// clang-format on

extern const s24i_architecture s24i_jina_v2;

const s24i_architecture s24i_bert = {.model_type = "bert",
                                     .prefix = "bert.",
                                     .key_variant = "position_embedding_type=alibi",
                                     .variant = &s24i_jina_v2,
                                     BERT_SHAPED,
                                     BERT_HEAD,
                                     BERT_WORDS};

const s24i_architecture s24i_ernie = {
    .model_type = "ernie", .prefix = "ernie.", BERT_SHAPED, BERT_HEAD, BERT_WORDS};

const s24i_architecture s24i_roberta = {
    .model_type = "roberta", .prefix = "roberta.", ROBERTA_SHAPED};

const s24i_architecture s24i_xlm_roberta = {
    .model_type = "xlm-roberta", .prefix = "roberta.", ROBERTA_SHAPED};

const s24i_architecture s24i_camembert = {
    .model_type = "camembert", .prefix = "roberta.", ROBERTA_SHAPED};

const s24i_architecture s24i_data2vec_text = {
    .model_type = "data2vec-text", .prefix = "data2vec_text.", ROBERTA_SHAPED};

/* Each token sees those near it, as where no token is said to see all. Its heads say so of some,
   and are not read; nor are the layers of those tokens. */
const s24i_architecture s24i_longformer = {.model_type = "longformer",
                                           .prefix = "longformer.",
                                           BERT_UNPLACED,
                                           .positions = "embeddings.position_embeddings.weight",
                                           .key_padding = "pad_token_id",
                                           .key_near = "attention_window",
                                           .off = off};

const s24i_architecture s24i_electra = {.model_type = "electra",
                                        .prefix = "electra.",
                                        BERT_SHAPED,
                                        .project = "embeddings_project",
                                        .key_embedding = "embedding_size",
                                        .text_head = {.square = "classifier.dense",
                                                      .bend = S24I_BEND_GELU,
                                                      .last = "classifier.out_proj",
                                                      .token_last = "classifier"}};

/* What of a text stands for entities is not read. */
const s24i_architecture s24i_luke = {.model_type = "luke", .prefix = "luke.", ROBERTA_UNWORDED};

/* Answers are found by layers of its own, which are not read. */
const s24i_architecture s24i_splinter = {.model_type = "splinter",
                                         .prefix = "splinter.",
                                         BERT_UNPLACED,
                                         .positions = "embeddings.position_embeddings.weight",
                                         .off = off};

const s24i_architecture s24i_rembert = {.model_type = "rembert",
                                        .prefix = "rembert.",
                                        BERT_SHAPED,
                                        .project = "encoder.embedding_hidden_mapping_in",
                                        .key_embedding = "input_embedding_size",
                                        .always_projects = 1,
                                        BERT_HEAD};

const s24i_architecture s24i_roformer = {.model_type = "roformer",
                                         .prefix = "roformer.",
                                         BERT_UNPLACED,
                                         .project = "embeddings_project",
                                         .key_embedding = "embedding_size",
                                         .qa_head = "qa_outputs",
                                         .key_theta = "rope_theta",
                                         .off = roformer_off,
                                         .rotary = 1,
                                         .adjacent = 1};

/* An encoder that was trained for models that write, without types of tokens. */
const s24i_architecture s24i_bert_generation = {.model_type = "bert-generation",
                                                .prefix = "bert.",
                                                BERT_TYPELESS,
                                                .positions =
                                                    "embeddings.position_embeddings.weight",
                                                .off = off};
