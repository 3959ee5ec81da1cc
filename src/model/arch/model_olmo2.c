// SPDX-License-Identifier: Apache-2.0
/* Ai2's OLMo 2 and 3: norms of what layers give, before it is added, and none before the layers;
   queries and keys are normalised over all heads together. Of OLMo 3 blocks with a window stand
   between those that see all, whose positions alone may be scaled. EXAONE 4 normalises each head,
   and where blocks with a window are turned by positions the others are not. */
#include "model/arch/llama_names.h"

// clang-format off
#define NORMED_AFTER                                                                               \
    LLAMA_NAMES,                                                                                   \
    .key_eps = "rms_norm_eps",                                                                     \
    .usual_eps = 1e-5f,                                                                            \
    .rms = 1,                                                                                      \
    CONTINUES_TEXT,                                                                                \
    GATED,                                                                                         \
    HEAD_NORMS,                                                                                    \
    .after_attention_norm = "layers.%d.post_attention_layernorm",                                  \
    .after_output_norm = "layers.%d.post_feedforward_layernorm",                                   \
    .key_activation = "hidden_act",                                                                \
    .final_norm = "norm"

#define OLMO NORMED_AFTER, .wide_norms = 1
// clang-format on

const s24i_architecture s24i_olmo2 = {.model_type = "olmo2", OLMO};

const s24i_architecture s24i_olmo3 = {.model_type = "olmo3",
                                      OLMO,
                                      .usual_theta = 500000.0f,
                                      .key_near_theta = "rope_theta",
                                      .usual_near_theta = 500000.0f,
                                      .key_sliding = "sliding_window",
                                      .usual_sliding = 4096,
                                      .usual_pattern = 4};

const s24i_architecture s24i_exaone4 = {.model_type = "exaone4",
                                        NORMED_AFTER,
                                        .key_sliding = "sliding_window",
                                        .usual_sliding = 4096,
                                        .key_pattern = "sliding_window_pattern",
                                        .usual_pattern = 4,
                                        .windows_turned = 1,
                                        .all_turned = 1};
