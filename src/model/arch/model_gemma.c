// SPDX-License-Identifier: Apache-2.0
/* Google's Gemma. Norms multiply by 1 + their weight, words are multiplied by the root of their
   width. From the second on what a layer gives has a norm before it is added, logits may be capped
   (of the second scores, too; transformers leaves those of the third alone), and blocks with a
   window stand between those that see all; of the third these turn by other angles, and its
   embedder's tokens see those on either side. */
#include "model/arch/llama_names.h"

// clang-format off
#define GATED_GELU                                                                                 \
    .activation = "gelu_pytorch_tanh", GATE_SLOTS

#define GEMMA                                                                                      \
    LLAMA_NAMED, GATED_GELU, .embedding_root = 1, .grown_norms = 1, .gelu_is_tanh = 1

#define GEMMA_SINCE_2                                                                              \
    LLAMA_NAMES,                                                                                   \
    .key_activation = "hidden_activation",                                                         \
    .key_eps = "rms_norm_eps",                                                                     \
    .usual_eps = 1e-6f,                                                                            \
    .rms = 1,                                                                                      \
    .pre_norm = 1,                                                                                 \
    .attention_norm = "layers.%d.input_layernorm",                                                 \
    .output_norm = "layers.%d.pre_feedforward_layernorm",                                          \
    .final_norm = "norm",                                                                          \
    .embedding_root = 1,                                                                           \
    .grown_norms = 1,                                                                              \
    GATED_GELU,                                                                                    \
    .key_score_root = "query_pre_attn_scalar",                                                     \
    .usual_score_root = 256.0f,                                                                    \
    .key_logits_cap = "final_logit_softcapping",                                                   \
    .key_pattern = "sliding_window_pattern|_sliding_window_pattern"

#define NORMS_AFTER                                                                                \
    .after_attention_norm = "layers.%d.post_attention_layernorm",                                  \
    .after_output_norm = "layers.%d.post_feedforward_layernorm"

#define GEMMA_3                                                                                    \
    GEMMA_SINCE_2,                                                                                 \
    NORMS_AFTER,                                                                                   \
    HEAD_NORMS,                                                                                    \
    .usual_theta = 1e6f,                                                                           \
    .key_near_theta = "rope_local_base_freq",                                                      \
    .usual_sliding = 4096,                                                                         \
    .usual_pattern = 6

#define GEMMA_2                                                                                    \
    GEMMA_SINCE_2,                                                                                 \
    CONTINUES_TEXT,                                                                                \
    .key_scores_cap = "attn_logit_softcapping",                                                    \
    .usual_scores_cap = 50.0f,                                                                     \
    .usual_logits_cap = 30.0f,                                                                     \
    .key_sliding = "sliding_window",                                                               \
    .usual_sliding = 4096,                                                                         \
    .usual_pattern = 2

#define GEMMA_3_USUAL                                                                              \
    "{\"vocab_size\": 262208, \"hidden_size\": 2304, \"intermediate_size\": 9216, "                \
    "\"num_hidden_layers\": 26, \"num_attention_heads\": 8, "                                      \
    "\"num_key_value_heads\": 4, \"head_dim\": 256, \"max_position_embeddings\": 131072}"
// clang-format on

static const char *const off[] = {"use_bidirectional_attention", NULL};

const s24i_architecture s24i_gemma = {.model_type = "gemma", GEMMA, CONTINUES_TEXT, .off = off};

const s24i_architecture s24i_gemma2 = {.model_type = "gemma2", GEMMA_2, NORMS_AFTER, .off = off};

/* The norms of what a layer gives are those that it has not. */
const s24i_architecture s24i_vaultgemma = {.model_type = "vaultgemma", GEMMA_2};

static const s24i_architecture gemma3_embedder = {
    .model_type = "gemma3_text", GEMMA_3, .key_near = "sliding_window"};

const s24i_architecture s24i_gemma3_text = {.model_type = "gemma3_text",
                                            GEMMA_3,
                                            CONTINUES_TEXT,
                                            .key_sliding = "sliding_window",
                                            .usual_inside = GEMMA_3_USUAL,
                                            .key_variant = "use_bidirectional_attention",
                                            .variant = &gemma3_embedder};
