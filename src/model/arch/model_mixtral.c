// SPDX-License-Identifier: Apache-2.0
/* Mixtures of experts as Mistral's Mixtral names them, and IBM's Granite, whose experts are one
   tensor of three dimensions, gate and intermediate joined, and may stand next to a shared one.
   MiniMax M2 has Mixtral's names, scores by a sigmoid that is corrected, and norms of all heads
   together; Phi 3.5 MoE has them, too, norms that take the mean, and two experts that are each
   weighed among those near it. */
#include "model/arch/llama_names.h"

// clang-format off
#define MIXTRAL_EXPERTS                                                                            \
    .key_experts = "num_local_experts",                                                            \
    .key_used = "num_experts_per_tok",                                                             \
    .usual_normalised = 1,                                                                         \
    .router = "layers.%d.block_sparse_moe.gate",                                                   \
    .slots = {[S24I_INTERMEDIATE] = "layers.%d.block_sparse_moe.experts.%d.w3",                    \
              [S24I_OUTPUT] = "layers.%d.block_sparse_moe.experts.%d.w2",                          \
              [S24I_GATE] = "layers.%d.block_sparse_moe.experts.%d.w1"},                           \
    .stacked = {[S24I_INTERMEDIATE] = "layers.%d.block_sparse_moe.experts.gate_up_proj",           \
                [S24I_OUTPUT] = "layers.%d.block_sparse_moe.experts.down_proj"}
// clang-format on

static const s24i_mixture_row mixtral = {MIXTRAL_EXPERTS};

const s24i_architecture s24i_mixtral = {.model_type = "mixtral",
                                        LLAMA_SHAPED_BY(1e-5f),
                                        .usual_theta = 1e6f,
                                        .key_sliding = "sliding_window",
                                        .mixture = &mixtral};

static const s24i_mixture_row phi = {MIXTRAL_EXPERTS, .key_jitter = "router_jitter_noise",
                                     .usual_jitter = 0.01f};

const s24i_architecture s24i_phimoe = {.model_type = "phimoe",
                                       ATTENDS_AS_LLAMA,
                                       CONTINUES_TEXT,
                                       GATED,
                                       .key_eps = "rms_norm_eps",
                                       .usual_eps = 1e-5f,
                                       .usual_theta = 1e6f,
                                       .key_sliding = "sliding_window",
                                       .mixture = &phi};

static const s24i_mixture_row minimax = {
    MIXTRAL_EXPERTS, .correction = "layers.%d.block_sparse_moe.e_score_correction_bias",
    .sigmoid = 1};

const s24i_architecture s24i_minimax_m2 = {.model_type = "minimax_m2",
                                           LLAMA_SHAPED,
                                           HEAD_NORMS,
                                           .usual_theta = 5e6f,
                                           .usual_turned = 1.0f,
                                           .wide_norms = 1,
                                           .mixture = &minimax};

// clang-format off
#define GRANITE_MIXTURE                                                                            \
    .key_experts = "num_local_experts",                                                            \
    .key_used = "num_experts_per_tok",                                                             \
    .usual_normalised = 1,                                                                         \
    .router = "layers.%d.block_sparse_moe.router.layer",                                           \
    .slots = {[S24I_INTERMEDIATE] = "layers.%d.block_sparse_moe.input_linear.%d",                  \
              [S24I_OUTPUT] = "layers.%d.block_sparse_moe.output_linear.%d"},                      \
    .stacked = {[S24I_INTERMEDIATE] = "layers.%d.block_sparse_moe.input_linear.weight",            \
                [S24I_OUTPUT] = "layers.%d.block_sparse_moe.output_linear.weight"}

#define GRANITE                                                                                    \
    LLAMA_NAMED, CONTINUES_TEXT, JOINED_GATE,                                                      \
    .key_embedding_factor = "embedding_multiplier",                                                \
    .key_residual = "residual_multiplier",                                                         \
    .key_score_factor = "attention_multiplier",                                                    \
    .usual_score_factor = 1.0f,                                                                    \
    .key_logits_divisor = "logits_scaling"
// clang-format on

static const s24i_mixture_row granite = {GRANITE_MIXTURE};

static const s24i_mixture_row granite_shared = {
    GRANITE_MIXTURE, .key_shared_width = "shared_intermediate_size",
    .shared = {[S24I_INTERMEDIATE] = "layers.%d.shared_mlp.input_linear",
               [S24I_OUTPUT] = "layers.%d.shared_mlp.output_linear"}};

const s24i_architecture s24i_granitemoe = {
    .model_type = "granitemoe", GRANITE, .mixture = &granite};

const s24i_architecture s24i_granitemoeshared = {
    .model_type = "granitemoeshared", GRANITE, .mixture = &granite_shared};
