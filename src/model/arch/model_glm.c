// SPDX-License-Identifier: Apache-2.0
/* Zhipu's GLM 4: positions turn neighbours in the first half of each head; gate and up are joined.
   The later GLM 4 has norms of what layers give, too. */
#include "model/arch/llama_names.h"

#define GLM LLAMA_NAMED, CONTINUES_TEXT, JOINED_GATE, .usual_turned = 0.5f, .adjacent = 1

const s24i_architecture s24i_glm = {.model_type = "glm", GLM};

const s24i_architecture s24i_glm4 = {.model_type = "glm4",
                                     GLM,
                                     .after_attention_norm = "layers.%d.post_self_attn_layernorm",
                                     .after_output_norm = "layers.%d.post_mlp_layernorm"};
