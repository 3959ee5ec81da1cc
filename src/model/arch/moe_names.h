// SPDX-License-Identifier: Apache-2.0
/* Names of experts as parts of rows, for Qwen's and DeepSeek's mixtures and their kin. */
#ifndef S24_MODEL_ARCH_MOE_NAMES_H
#define S24_MODEL_ARCH_MOE_NAMES_H

#include "model/arch/llama_names.h"

// clang-format off
#define ROUTED_BY(name)                                                                            \
    .router = name,                                                                                \
    .slots = {[S24I_INTERMEDIATE] = "layers.%d.mlp.experts.%d.up_proj",                            \
              [S24I_OUTPUT] = "layers.%d.mlp.experts.%d.down_proj",                                \
              [S24I_GATE] = "layers.%d.mlp.experts.%d.gate_proj"},                                 \
    .stacked = {[S24I_INTERMEDIATE] = "layers.%d.mlp.experts.gate_up_proj",                        \
                [S24I_OUTPUT] = "layers.%d.mlp.experts.down_proj"}

#define EXPERTS ROUTED_BY("layers.%d.mlp.gate")

#define SHARED(name)                                                                               \
    .shared = {[S24I_INTERMEDIATE] = "layers.%d.mlp." name ".up_proj",                             \
               [S24I_OUTPUT] = "layers.%d.mlp." name ".down_proj",                                 \
               [S24I_GATE] = "layers.%d.mlp." name ".gate_proj"}

/* As DeepSeek 3 scores experts. */
#define SCORED                                                                                     \
    EXPERTS, SHARED("shared_experts"),                                                             \
    .key_experts = "n_routed_experts|num_local_experts",                                           \
    .key_used = "num_experts_per_tok",                                                             \
    .key_width = "moe_intermediate_size",                                                          \
    .key_normalised = "norm_topk_prob",                                                            \
    .key_factor = "routed_scaling_factor",                                                         \
    .key_shared_count = "n_shared_experts",                                                        \
    .key_first = "first_k_dense_replace",                                                          \
    .key_groups = "n_group",                                                                       \
    .key_groups_used = "topk_group",                                                               \
    .correction = "layers.%d.mlp.gate.e_score_correction_bias",                                    \
    .sigmoid = 1
// clang-format on

#endif
