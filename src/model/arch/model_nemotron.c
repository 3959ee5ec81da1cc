// SPDX-License-Identifier: Apache-2.0
/* NVIDIA's Nemotron and Minitron: norms take the mean and multiply by 1 + their weight, positions
   turn half of each head, there is no gate, and ReLU is squared. */
#include "model/arch/llama_names.h"

const s24i_architecture s24i_nemotron = {
    .model_type = "nemotron",
    ATTENDS_AS_LLAMA,
    CONTINUES_TEXT,
    .key_eps = "norm_eps",
    .usual_eps = 1e-5f,
    .usual_turned = 0.5f,
    .activation = "relu2",
    .grown_norms = 1,
    .slots = {ATTENTION_SLOTS, [S24I_INTERMEDIATE] = "layers.%d.mlp.up_proj",
              [S24I_OUTPUT] = "layers.%d.mlp.down_proj"}};
