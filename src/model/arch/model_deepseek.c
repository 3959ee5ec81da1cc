// SPDX-License-Identifier: Apache-2.0
/* DeepSeek 2 and 3 and those that took over their attention over latents (model/latent.h): Kimi K2,
   GLM 4.7 Flash with experts, Youtu and MiniCPM 3 without. A file may say LATENT queries or not. */
#include "model/arch/moe_names.h"

// clang-format off
#define LATENT_SLOTS                                                                               \
    .slots = {[S24I_QUERY] = "layers.%d.self_attn.q_b_proj",                                       \
              [S24I_LATENT] = "layers.%d.self_attn.q_a_proj",                                      \
              [S24I_KEY] = "layers.%d.self_attn.kv_a_proj_with_mqa",                               \
              [S24I_VALUE] = "layers.%d.self_attn.kv_b_proj",                                      \
              [S24I_ATTENTION] = "layers.%d.self_attn.o_proj",                                     \
              [S24I_INTERMEDIATE] = "layers.%d.mlp.up_proj",                                       \
              [S24I_OUTPUT] = "layers.%d.mlp.down_proj",                                           \
              [S24I_GATE] = "layers.%d.mlp.gate_proj"}

#define LATENT_SHAPED_BY(eps)                                                                      \
    LLAMA_SIZES, LLAMA_NORMS, CONTINUES_TEXT, LATENT_SLOTS,                                    \
    .key_head_width = "qk_rope_head_dim",                                                          \
    .key_intermediate = "intermediate_size",                                                       \
    .key_theta = "rope_theta",                                                                     \
    .rotary = 1,                                                                                   \
    .key_activation = "hidden_act",                                                                \
    .activation = "silu",                                                                          \
    .key_eps = "rms_norm_eps",                                                                     \
    .usual_eps = eps,                                                                              \
    .rms = 1,                                                                                      \
    .pre_norm = 1,                                                                                 \
    .query_norm = "layers.%d.self_attn.q_a_layernorm",                                             \
    .key_norm = "layers.%d.self_attn.kv_a_layernorm"

#define DEEPSEEK_SHAPED_BY(eps) LATENT_SHAPED_BY(eps), .latent = &latent

#define DEEPSEEK_SHAPED DEEPSEEK_SHAPED_BY(1e-6f)
// clang-format on

static const s24i_latent_row latent = {.key_queries = "q_lora_rank",
                                       .key_rank = "kv_lora_rank",
                                       .key_turned = "qk_rope_head_dim",
                                       .key_plain = "qk_nope_head_dim",
                                       .key_value = "v_head_dim",
                                       .key_adjacent = "rope_interleave",
                                       .query = "layers.%d.self_attn.q_proj"};

/* Scores are a softmax, and weights are no shares of those that are chosen. */
static const s24i_mixture_row second = {EXPERTS,
                                        SHARED("shared_experts"),
                                        .key_experts = "n_routed_experts|num_experts",
                                        .key_used = "num_experts_per_tok",
                                        .key_width = "moe_intermediate_size",
                                        .key_factor = "routed_scaling_factor",
                                        .key_shared_count = "n_shared_experts",
                                        .key_first = "first_k_dense_replace",
                                        .key_every = "moe_layer_freq",
                                        .key_groups = "n_group",
                                        .key_groups_used = "topk_group",
                                        .key_method = "topk_method"};

static const char *const shares[] = {"norm_topk_prob", NULL};

const s24i_architecture s24i_deepseek_v2 = {
    .model_type = "deepseek_v2", DEEPSEEK_SHAPED, .off = shares, .mixture = &second};

static const s24i_mixture_row third = {SCORED, .usual_normalised = 1};

const s24i_architecture s24i_deepseek_v3 = {
    .model_type = "deepseek_v3", DEEPSEEK_SHAPED, .mixture = &third};

const s24i_architecture s24i_kimi_k2 = {
    .model_type = "kimi_k2", DEEPSEEK_SHAPED, .mixture = &third};

static const s24i_mixture_row lite = {SCORED, .usual_normalised = 1,
                                      .key_kinds = "mlp_layer_types"};

const s24i_architecture s24i_glm4_moe_lite = {
    .model_type = "glm4_moe_lite", DEEPSEEK_SHAPED_BY(1e-5f), .mixture = &lite};

const s24i_architecture s24i_youtu = {.model_type = "youtu", DEEPSEEK_SHAPED};

static const s24i_latent_row halves = {.key_queries = "q_lora_rank",
                                       .key_rank = "kv_lora_rank",
                                       .key_turned = "qk_rope_head_dim",
                                       .key_plain = "qk_nope_head_dim",
                                       .key_value = "v_head_dim",
                                       .halves = 1,
                                       .query = "layers.%d.self_attn.q_proj"};

const s24i_architecture s24i_minicpm3 = {
    .model_type = "minicpm3",
    LATENT_SHAPED_BY(1e-5f),
    .latent = &halves,
    .key_embedding_factor = "scale_emb",
    .key_residual = "scale_depth",
    .by_depth = 1,
    .key_logits_divisor = "dim_model_base",
    .by_base_width = 1,
    .usual_config = "{\"scale_emb\": 12, \"scale_depth\": 1.4, \"dim_model_base\": 256}"};
