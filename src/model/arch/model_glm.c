// SPDX-License-Identifier: Apache-2.0
/* Zhipu's GLM 4: positions turn neighbours in the first half of each head; gate and up are joined.
   The later GLM 4 has norms of what layers give, too. */
#include "model/arch/llama_names.h"

// clang-format off
#define GLM                                                                                        \
    LLAMA_NAMED_BY(1.5625e-7f), CONTINUES_TEXT, JOINED_GATE, .usual_turned = 0.5f, .adjacent = 1
// clang-format on

const s24i_architecture s24i_glm = {.model_type = "glm", GLM};

const s24i_architecture s24i_glm4 = {.model_type = "glm4",
                                     GLM,
                                     .after_attention_norm = "layers.%d.post_self_attn_layernorm",
                                     .after_output_norm = "layers.%d.post_mlp_layernorm"};
