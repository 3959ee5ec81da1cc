// SPDX-License-Identifier: Apache-2.0
/* Mixtures of experts as Qwen names them: Qwen 2 with a shared expert that has a gate, Qwen 3,
   OLMoE and FlexOlmo without one; ERNIE 4.5 chooses by scores that are corrected; GLM 4.5 and
   dots.llm1 score by a sigmoid, too. Some blocks may have plain layers. All of Solar Open's, which
   scores as these do, and of Hunyuan's have experts. */
#include "model/arch/moe_names.h"

// clang-format off
#define CHOSEN                                                                                     \
    EXPERTS,                                                                                       \
    .key_experts = "num_experts|num_local_experts",                                                \
    .key_used = "num_experts_per_tok",                                                             \
    .key_normalised = "norm_topk_prob"

/* As DeepSeek 3 scores experts, of one group. */
#define SOME_BLOCKS                                                                                \
    .key_width = "moe_intermediate_size",                                                          \
    .key_every = "decoder_sparse_step",                                                            \
    .key_dense = "mlp_only_layers"
// clang-format on

static const s24i_mixture_row qwen2 = {CHOSEN, SOME_BLOCKS, SHARED("shared_expert"),
                                       .key_shared_width = "shared_expert_intermediate_size",
                                       .shared_gate = "layers.%d.mlp.shared_expert_gate"};

const s24i_architecture s24i_qwen2_moe = {
    .model_type = "qwen2_moe", LLAMA_SHAPED, QWEN_WINDOW, .mixture = &qwen2};

static const s24i_mixture_row qwen3 = {CHOSEN, SOME_BLOCKS};

const s24i_architecture s24i_qwen3_moe = {
    .model_type = "qwen3_moe", LLAMA_SHAPED, QWEN_WINDOW, HEAD_NORMS, .mixture = &qwen3};

static const s24i_mixture_row qwen3_vl = {
    SOME_BLOCKS,
    .key_experts = "num_experts|num_local_experts",
    .key_used = "num_experts_per_tok",
    .usual_normalised = 1,
    .router = "layers.%d.mlp.gate",
    .slots = {[S24I_INTERMEDIATE] = "layers.%d.mlp.experts.%d.gate_up_proj",
              [S24I_OUTPUT] = "layers.%d.mlp.experts.%d.down_proj"},
    .stacked = {[S24I_INTERMEDIATE] = "layers.%d.mlp.experts.gate_up_proj",
                [S24I_OUTPUT] = "layers.%d.mlp.experts.down_proj"},
    .turned = 1};

const s24i_architecture s24i_qwen3_vl_moe_text = {.model_type = "qwen3_vl_moe_text",
                                                  LLAMA_NAMED_BY(1e-6f),
                                                  CONTINUES_TEXT,
                                                  JOINED_GATE,
                                                  HEAD_NORMS,
                                                  .usual_theta = 500000.0f,
                                                  .mixture = &qwen3_vl};

static const s24i_mixture_row olmo = {CHOSEN};

static const char *const olmoe_off[] = {"clip_qkv", NULL};

const s24i_architecture s24i_olmoe = {.model_type = "olmoe",
                                      LLAMA_SHAPED_BY(1e-5f),
                                      HEAD_NORMS,
                                      .wide_norms = 1,
                                      .off = olmoe_off,
                                      .mixture = &olmo};

const s24i_architecture s24i_flex_olmo = {
    .model_type = "flex_olmo",
    LLAMA_NAMES,
    CONTINUES_TEXT,
    GATED,
    HEAD_NORMS,
    .key_eps = "rms_norm_eps",
    .usual_eps = 1e-6f,
    .rms = 1,
    .after_attention_norm = "layers.%d.post_attention_layernorm",
    .after_output_norm = "layers.%d.post_feedforward_layernorm",
    .key_activation = "hidden_act",
    .final_norm = "norm",
    .usual_theta = 500000.0f,
    .wide_norms = 1,
    .mixture = &olmo};

static const s24i_mixture_row ernie = {
    EXPERTS,
    SHARED("shared_experts"),
    .key_experts = "moe_num_experts|num_experts|num_local_experts",
    .key_used = "moe_k|num_experts_per_tok",
    .key_width = "moe_intermediate_size",
    .usual_normalised = 1,
    .key_shared_count = "moe_num_shared_experts",
    .key_first = "moe_layer_start_index",
    .key_last = "moe_layer_end_index",
    .key_every = "moe_layer_interval",
    .correction = "layers.%d.mlp.moe_statics.e_score_correction_bias"};

static const char *const ernie_off[] = {"use_bias", NULL};

const s24i_architecture s24i_ernie4_5_moe = {.model_type = "ernie4_5_moe",
                                             LLAMA_SHAPED_BY(1e-5f),
                                             .usual_theta = 500000.0f,
                                             .adjacent = 1,
                                             .off = ernie_off,
                                             .mixture = &ernie};

static const s24i_mixture_row glm = {SCORED, .usual_normalised = 1};

static const s24i_architecture glm_normed = {.model_type = "glm4_moe",
                                             LLAMA_SHAPED_BY(1e-5f),
                                             HEAD_NORMS,
                                             .usual_turned = 0.5f,
                                             .mixture = &glm};

const s24i_architecture s24i_glm4_moe = {.model_type = "glm4_moe",
                                         LLAMA_SHAPED_BY(1e-5f),
                                         .key_variant = "use_qk_norm",
                                         .variant = &glm_normed,
                                         .usual_turned = 0.5f,
                                         .mixture = &glm};

static const s24i_mixture_row dots = {SCORED};

const s24i_architecture s24i_dots1 = {.model_type = "dots1",
                                      LLAMA_SHAPED,
                                      HEAD_NORMS,
                                      .key_sliding = "sliding_window",
                                      .key_sliding_first = "max_window_layers",
                                      .mixture = &dots};

static const s24i_mixture_row solar = {SCORED, .usual_normalised = 1};

const s24i_architecture s24i_solar_open = {.model_type = "solar_open",
                                           LLAMA_PLACELESS,
                                           LLAMA_NORMS,
                                           CONTINUES_TEXT,
                                           GATED,
                                           .key_intermediate = "moe_intermediate_size",
                                           .key_theta = "rope_theta",
                                           .key_activation = "hidden_act",
                                           .rotary = 1,
                                           .pre_norm = 1,
                                           .key_eps = "rms_norm_eps",
                                           .usual_eps = 1e-5f,
                                           .rms = 1,
                                           .usual_theta = 1e6f,
                                           .mixture = &solar};

static const s24i_mixture_row hunyuan = {ROUTED_BY("layers.%d.mlp.gate.wg"),
                                         SHARED("shared_mlp"),
                                         .key_experts = "num_experts",
                                         .key_used = "moe_topk",
                                         .usual_normalised = 1,
                                         .key_shared_width = "intermediate_size"};

const s24i_architecture s24i_hunyuan_moe = {.model_type = "hunyuan_v1_moe",
                                            LLAMA_SHAPED_BY(1e-5f),
                                            .query_norm = "layers.%d.self_attn.query_layernorm",
                                            .key_norm = "layers.%d.self_attn.key_layernorm",
                                            .norms_turned = 1,
                                            .mixture = &hunyuan};
