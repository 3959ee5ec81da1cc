// SPDX-License-Identifier: Apache-2.0
/* Microsoft's Phi 1 to 2: both halves of a block read one norm of its input, and positions turn
   half of each head. */
#include "model/arch/llama_names.h"

static const char *const off[] = {"qk_layernorm", NULL};

const s24i_architecture s24i_phi = {.model_type = "phi",
                                    LLAMA_NAMES,
                                    CONTINUES_TEXT,
                                    .key_activation = "hidden_act",
                                    .activation = "gelu_new",
                                    .key_eps = "layer_norm_eps",
                                    .usual_eps = 1e-5f,
                                    .key_dropout = "resid_pdrop",
                                    .usual_turned = 0.5f,
                                    .slots = {[S24I_QUERY] = "layers.%d.self_attn.q_proj",
                                              [S24I_KEY] = "layers.%d.self_attn.k_proj",
                                              [S24I_VALUE] = "layers.%d.self_attn.v_proj",
                                              [S24I_ATTENTION] = "layers.%d.self_attn.dense",
                                              [S24I_INTERMEDIATE] = "layers.%d.mlp.fc1",
                                              [S24I_OUTPUT] = "layers.%d.mlp.fc2"},
                                    .attention_norm = "layers.%d.input_layernorm",
                                    .output_norm = "layers.%d.input_layernorm",
                                    .final_norm = "final_layernorm",
                                    .off = off,
                                    .pre_norm = 1,
                                    .side_by_side = 1};
