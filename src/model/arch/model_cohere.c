// SPDX-License-Identifier: Apache-2.0
/* Cohere's Command: both halves of a block read one norm of its input, which takes the mean and has
   no bias, positions turn neighbours, and logits have a factor. Of Command R7B blocks with a window
   stand between those that see all, whose queries and keys positions do not turn. */
#include "model/arch/llama_names.h"

// clang-format off
#define COHERE                                                                                     \
    LLAMA_NAMES,                                                                                   \
    CONTINUES_TEXT,                                                                                \
    GATED,                                                                                         \
    .key_activation = "hidden_act",                                                                \
    .key_eps = "layer_norm_eps",                                                                   \
    .usual_eps = 1e-5f,                                                                            \
    .attention_norm = "layers.%d.input_layernorm",                                                 \
    .output_norm = "layers.%d.input_layernorm",                                                    \
    .final_norm = "norm",                                                                          \
    .pre_norm = 1,                                                                                 \
    .bare_norms = 1,                                                                               \
    .side_by_side = 1,                                                                             \
    .adjacent = 1,                                                                                 \
    .key_logits_factor = "logit_scale",                                                            \
    .usual_logits_factor = 0.0625f
// clang-format on

static const char *const off[] = {"use_qk_norm", NULL};

const s24i_architecture s24i_cohere = {
    .model_type = "cohere", COHERE, .usual_theta = 500000.0f, .off = off};

const s24i_architecture s24i_cohere2 = {.model_type = "cohere2",
                                        COHERE,
                                        .key_sliding = "sliding_window",
                                        .usual_sliding = 4096,
                                        .key_pattern =
                                            "sliding_window_pattern|_sliding_window_pattern",
                                        .usual_pattern = 4,
                                        .windows_turned = 1};
