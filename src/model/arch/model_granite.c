// SPDX-License-Identifier: Apache-2.0
/* IBM's Granite: a Llama whose embeddings, scores, sums and logits have factors, as MiniCPM's
   and, with norms of what is added, HyperCLOVA X's have by other keys. Granite 4 may be a
   hybrid whose blocks all attend and have no experts but the one that every token takes, whose gate
   is joined; positions turn its queries and keys, or nothing says where tokens stand. */
#include "model/arch/llama_names.h"

// clang-format off
#define FACTORS                                                                                    \
    .key_embedding_factor = "embedding_multiplier",                                                \
    .key_residual = "residual_multiplier",                                                         \
    .key_score_factor = "attention_multiplier",                                                    \
    .usual_score_factor = 1.0f,                                                                    \
    .key_logits_divisor = "logits_scaling"

#define LLAMA_UNTURNED                                                                             \
    LLAMA_PLACELESS, LLAMA_NORMS,                                                                  \
    .key_activation = "hidden_act",                                                                \
    .key_intermediate = "shared_intermediate_size",                                                \
    .pre_norm = 1,                                                                                 \
    .key_eps = "rms_norm_eps",                                                                     \
    .usual_eps = 1e-6f,                                                                            \
    .rms = 1,                                                                                      \
    CONTINUES_TEXT,                                                                                \
    FACTORS,                                                                                       \
    .activation = "silu",                                                                          \
    .slots = {ATTENTION_SLOTS,                                                                     \
              [S24I_INTERMEDIATE] = "layers.%d.shared_mlp.input_linear",                           \
              [S24I_OUTPUT] = "layers.%d.shared_mlp.output_linear"},                               \
    .joint_gate = 1,                                                                               \
    .off = no_experts
// clang-format on

const s24i_architecture s24i_granite = {.model_type = "granite", LLAMA_SHAPED, FACTORS};

static const char *const no_experts[] = {"num_local_experts", NULL};

static const s24i_architecture turned = {
    .model_type = "granitemoehybrid", LLAMA_UNTURNED, .key_theta = "rope_theta", .rotary = 1};

const s24i_architecture s24i_granitemoehybrid = {.model_type = "granitemoehybrid",
                                                 LLAMA_UNTURNED,
                                                 .key_variant = "position_embedding_type=rope",
                                                 .variant = &turned};

static const char *const minicpm_off[] = {"num_experts", NULL};

const s24i_architecture s24i_minicpm = {
    .model_type = "minicpm",
    LLAMA_SHAPED_BY(1e-5f),
    .off = minicpm_off,
    .key_embedding_factor = "scale_emb",
    .key_residual = "scale_depth",
    .by_depth = 1,
    .key_logits_divisor = "dim_model_base",
    .by_base_width = 1,
    .usual_config = "{\"scale_emb\": 1, \"scale_depth\": 1, \"dim_model_base\": 1}"};

// clang-format off
#define HYPERCLOVAX                                                                                \
    .model_type = "hyperclovax",                                                                   \
    LLAMA_SHAPED,                                                                                  \
    .key_embedding_factor = "embedding_multiplier",                                                \
    .key_residual = "residual_multiplier",                                                         \
    .key_score_factor = "attention_multiplier",                                                    \
    .key_logits_factor = "logits_scaling"
// clang-format on

static const s24i_architecture normed = {HYPERCLOVAX,
                                         .after_attention_norm = "layers.%d.post_norm1",
                                         .after_output_norm = "layers.%d.post_norm2"};

const s24i_architecture s24i_hyperclovax = {HYPERCLOVAX, .key_variant = "use_post_norm",
                                            .variant = &normed,
                                            .usual_config = "{\"use_post_norm\": true}"};
