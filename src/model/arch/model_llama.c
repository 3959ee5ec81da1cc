// SPDX-License-Identifier: Apache-2.0
/* Llama's names, as transformers' LlamaForCausalLM writes them, and those that took them over:
   Mistral attends to a window, Qwen 2 has biases (which are read where a checkpoint has them), Qwen
   3 normalises the queries and keys of each head. */
#include "model/model.h"

// clang-format off
#define LLAMA_SHAPED                                                                               \
    .prefix = "model.",                                                                            \
    .key_vocabulary = "vocab_size",                                                                \
    .key_positions = "max_position_embeddings",                                                    \
    .key_width = "hidden_size",                                                                    \
    .key_layers = "num_hidden_layers",                                                             \
    .key_heads = "num_attention_heads",                                                            \
    .key_kv_heads = "num_key_value_heads",                                                         \
    .key_head_width = "head_dim",                                                                  \
    .key_intermediate = "intermediate_size",                                                       \
    .key_activation = "hidden_act",                                                                \
    .activation = "silu",                                                                          \
    .key_eps = "rms_norm_eps",                                                                     \
    .key_theta = "rope_theta",                                                                     \
    .key_attention_dropout = "attention_dropout",                                                  \
    .words = "embed_tokens.weight",                                                                \
    .slots = {[S24I_QUERY] = "layers.%d.self_attn.q_proj",                                         \
              [S24I_KEY] = "layers.%d.self_attn.k_proj",                                           \
              [S24I_VALUE] = "layers.%d.self_attn.v_proj",                                         \
              [S24I_ATTENTION] = "layers.%d.self_attn.o_proj",                                     \
              [S24I_INTERMEDIATE] = "layers.%d.mlp.up_proj",                                       \
              [S24I_OUTPUT] = "layers.%d.mlp.down_proj",                                           \
              [S24I_GATE] = "layers.%d.mlp.gate_proj"},                                            \
    .attention_norm = "layers.%d.input_layernorm",                                                 \
    .output_norm = "layers.%d.post_attention_layernorm",                                           \
    .final_norm = "norm",                                                                          \
    .lm_head = "lm_head",                                                                          \
    .pre_norm = 1,                                                                                 \
    .rms = 1,                                                                                      \
    .causal = 1,                                                                                   \
    .rotary = 1,                                                                                   \
    .state_normed = 1

#define QWEN_WINDOW                                                                                \
    .key_sliding = "sliding_window",                                                               \
    .key_slides = "use_sliding_window",                                                            \
    .key_sliding_first = "max_window_layers"
// clang-format on

const s24i_architecture s24i_llama = {.model_type = "llama", LLAMA_SHAPED};

const s24i_architecture s24i_mistral = {
    .model_type = "mistral", LLAMA_SHAPED, .key_sliding = "sliding_window"};

const s24i_architecture s24i_qwen2 = {.model_type = "qwen2", LLAMA_SHAPED, QWEN_WINDOW};

const s24i_architecture s24i_qwen3 = {.model_type = "qwen3",
                                      LLAMA_SHAPED,
                                      QWEN_WINDOW,
                                      .query_norm = "layers.%d.self_attn.q_norm",
                                      .key_norm = "layers.%d.self_attn.k_norm"};
