// SPDX-License-Identifier: Apache-2.0
/* Names of LlamaForCausalLM as parts of rows, for it and for those that took them over. */
#ifndef S24_MODEL_ARCH_LLAMA_NAMES_H
#define S24_MODEL_ARCH_LLAMA_NAMES_H

#include "model/model.h"

// clang-format off
#define LLAMA_SIZES                                                                                \
    .prefix = "model.",                                                                            \
    .key_vocabulary = "vocab_size",                                                                \
    .key_positions = "max_position_embeddings",                                                    \
    .key_width = "hidden_size",                                                                    \
    .key_layers = "num_hidden_layers",                                                             \
    .key_heads = "num_attention_heads",                                                            \
    .key_attention_dropout = "attention_dropout",                                                  \
    .words = "embed_tokens.weight",                                                                \
    .state_normed = 1

#define LLAMA_PLACELESS                                                                            \
    LLAMA_SIZES,                                                                                   \
    .key_kv_heads = "num_key_value_heads",                                                         \
    .key_head_width = "head_dim"

#define LLAMA_NAMES                                                                                \
    LLAMA_PLACELESS,                                                                               \
    .key_intermediate = "intermediate_size",                                                       \
    .key_theta = "rope_theta",                                                                     \
    .rotary = 1

#define LLAMA_NORMS                                                                                \
    .attention_norm = "layers.%d.input_layernorm",                                                 \
    .output_norm = "layers.%d.post_attention_layernorm",                                           \
    .final_norm = "norm"

#define ATTENDS_AS_LLAMA                                                                           \
    LLAMA_NAMES, LLAMA_NORMS, .key_activation = "hidden_act", .pre_norm = 1

#define LLAMA_NAMED_BY(eps)                                                                        \
    ATTENDS_AS_LLAMA, .key_eps = "rms_norm_eps", .usual_eps = eps, .rms = 1

#define LLAMA_NAMED LLAMA_NAMED_BY(1e-6f)

#define CONTINUES_TEXT                                                                             \
    .lm_head = "lm_head", .causal = 1,                                                             \
    .text_head = {.last = "score", .token_last = "score", .reads = S24I_READS_LAST}

#define ATTENTION_SLOTS                                                                            \
    [S24I_QUERY] = "layers.%d.self_attn.q_proj",                                                   \
    [S24I_KEY] = "layers.%d.self_attn.k_proj",                                                     \
    [S24I_VALUE] = "layers.%d.self_attn.v_proj",                                                   \
    [S24I_ATTENTION] = "layers.%d.self_attn.o_proj"

#define GATE_SLOTS                                                                                 \
    .slots = {ATTENTION_SLOTS,                                                                     \
              [S24I_INTERMEDIATE] = "layers.%d.mlp.up_proj",                                       \
              [S24I_OUTPUT] = "layers.%d.mlp.down_proj",                                           \
              [S24I_GATE] = "layers.%d.mlp.gate_proj"}

#define GATED .activation = "silu", GATE_SLOTS

#define LLAMA_SHAPED_BY(eps) LLAMA_NAMED_BY(eps), CONTINUES_TEXT, GATED

#define LLAMA_SHAPED LLAMA_SHAPED_BY(1e-6f)

#define WINDOW .key_sliding = "sliding_window", .usual_sliding = 4096

#define QWEN_WINDOW                                                                                \
    WINDOW,                                                                                        \
    .key_slides = "use_sliding_window",                                                            \
    .key_sliding_first = "max_window_layers"

#define HEAD_NORMS                                                                                 \
    .query_norm = "layers.%d.self_attn.q_norm", .key_norm = "layers.%d.self_attn.k_norm"

#define JOINED_GATE                                                                                \
    .activation = "silu",                                                                          \
    .slots = {ATTENTION_SLOTS,                                                                     \
              [S24I_INTERMEDIATE] = "layers.%d.mlp.gate_up_proj",                                  \
              [S24I_OUTPUT] = "layers.%d.mlp.down_proj"},                                          \
    .joint_gate = 1
// clang-format on

#endif
