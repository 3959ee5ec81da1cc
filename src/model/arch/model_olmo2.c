// SPDX-License-Identifier: Apache-2.0
/* Ai2's OLMo 2: norms of what layers give, before it is added, and none before the layers; queries
   and keys are normalised over all heads together. */
#include "model/arch/llama_names.h"

const s24i_architecture s24i_olmo2 = {.model_type = "olmo2",
                                      LLAMA_NAMES,
                                      .key_eps = "rms_norm_eps",
                                      .usual_eps = 1e-5f,
                                      .rms = 1,
                                      CONTINUES_TEXT,
                                      GATED,
                                      HEAD_NORMS,
                                      .after_attention_norm = "layers.%d.post_attention_layernorm",
                                      .after_output_norm = "layers.%d.post_feedforward_layernorm",
                                      .key_activation = "hidden_act",
                                      .final_norm = "norm",
                                      .wide_norms = 1};
