// SPDX-License-Identifier: Apache-2.0
/* OpenAI's gpt-oss: every other block has a window, a head's weights are shares of a sum with one
   number more, experts have biases and a gate that is clamped, whose rows are the even ones. */
#include "model/arch/llama_names.h"

static const s24i_mixture_row experts = {
    .key_experts = "num_local_experts|num_experts",
    .key_used = "num_experts_per_tok|experts_per_token",
    .usual_normalised = 1,
    .router = "layers.%d.mlp.router",
    .router_biased = 1,
    .turned = 1,
    .slots = {[S24I_INTERMEDIATE] = "layers.%d.mlp.experts.%d.gate_up_proj",
              [S24I_OUTPUT] = "layers.%d.mlp.experts.%d.down_proj"},
    .stacked = {[S24I_INTERMEDIATE] = "layers.%d.mlp.experts.gate_up_proj",
                [S24I_OUTPUT] = "layers.%d.mlp.experts.down_proj"},
    .biases = {[S24I_INTERMEDIATE] = "layers.%d.mlp.experts.gate_up_proj_bias",
               [S24I_OUTPUT] = "layers.%d.mlp.experts.down_proj_bias"}};

const s24i_architecture s24i_gpt_oss = {.model_type = "gpt_oss",
                                        LLAMA_NAMED_BY(1e-5f),
                                        CONTINUES_TEXT,
                                        JOINED_GATE,
                                        .usual_theta = 150000.0f,
                                        .key_sliding = "sliding_window",
                                        .usual_sliding = 128,
                                        .usual_pattern = 2,
                                        .sinks = "layers.%d.self_attn.sinks",
                                        .alternates = 1,
                                        .mixture = &experts};
