// SPDX-License-Identifier: Apache-2.0
/* Stability's StableLM: norms take the mean, and positions turn a quarter of each head. */
#include "model/arch/llama_names.h"

static const char *const off[] = {"use_parallel_residual", "qk_layernorm", NULL};

const s24i_architecture s24i_stablelm = {.model_type = "stablelm",
                                         LLAMA_NAMES,
                                         LLAMA_NORMS,
                                         CONTINUES_TEXT,
                                         GATED,
                                         .key_activation = "hidden_act",
                                         .pre_norm = 1,
                                         .key_eps = "layer_norm_eps",
                                         .usual_eps = 1e-5f,
                                         .key_dropout = "hidden_dropout",
                                         .usual_turned = 0.25f,
                                         .off = off};
