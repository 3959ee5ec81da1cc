// SPDX-License-Identifier: Apache-2.0
/* The encoders of T5, mT5 and umT5, which sentence-t5 and gtr are: norms before the layers that
   divide by the root mean square, no biases, scores that no width divides and that grow by the
   tokens' distance, in the first block's table or in each block's. No decoder is read. */
#include "model/model.h"

// clang-format off
#define T5_SHAPED                                                                                  \
    .prefix = "transformer.",                                                                      \
    .key_vocabulary = "vocab_size",                                                                \
    .key_width = "d_model",                                                                        \
    .key_layers = "num_layers",                                                                    \
    .key_heads = "num_heads",                                                                      \
    .key_head_width = "d_kv",                                                                      \
    .key_intermediate = "d_ff",                                                                    \
    .key_activation = "feed_forward_proj",                                                         \
    .key_eps = "layer_norm_epsilon",                                                               \
    .usual_eps = 1e-6f,                                                                            \
    .usual_positions = 8192,                                                                       \
    .usual_score_factor = 1.0f,                                                                    \
    .key_dropout = "dropout_rate",                                                                 \
    .key_attention_dropout = "dropout_rate",                                                       \
    .key_buckets = "relative_attention_num_buckets",                                               \
    .key_farthest = "relative_attention_max_distance",                                             \
    .words = "shared.weight",                                                                      \
    .attention_norm = "encoder.block.%d.layer.0.layer_norm",                                       \
    .output_norm = "encoder.block.%d.layer.1.layer_norm",                                          \
    .final_norm = "encoder.final_layer_norm",                                                      \
    .pre_norm = 1,                                                                                 \
    .rms = 1,                                                                                      \
    .state_normed = 1

#define T5_ATTENTION                                                                               \
    [S24I_QUERY] = "encoder.block.%d.layer.0.SelfAttention.q",                                     \
    [S24I_KEY] = "encoder.block.%d.layer.0.SelfAttention.k",                                       \
    [S24I_VALUE] = "encoder.block.%d.layer.0.SelfAttention.v",                                     \
    [S24I_ATTENTION] = "encoder.block.%d.layer.0.SelfAttention.o",                                 \
    [S24I_OUTPUT] = "encoder.block.%d.layer.1.DenseReluDense.wo"

#define T5_TABLE                                                                                   \
    .relative = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
#define T5_PLAIN T5_SHAPED,                                                                        \
    .activation = "relu",                                                                          \
    .slots = {T5_ATTENTION,                                                                        \
              [S24I_INTERMEDIATE] = "encoder.block.%d.layer.1.DenseReluDense.wi"}
#define T5_GATED T5_SHAPED,                                                                        \
    .activation = "gated-gelu",                                                                    \
    .slots = {T5_ATTENTION,                                                                        \
              [S24I_GATE] = "encoder.block.%d.layer.1.DenseReluDense.wi_0",                        \
              [S24I_INTERMEDIATE] = "encoder.block.%d.layer.1.DenseReluDense.wi_1"}
// clang-format on

static const s24i_architecture t5_gated = {.model_type = "t5", T5_GATED, T5_TABLE};

const s24i_architecture s24i_t5 = {.model_type = "t5",
                                   .key_variant = "feed_forward_proj=gated-gelu",
                                   .variant = &t5_gated,
                                   T5_PLAIN,
                                   T5_TABLE};

/* All that are published have the gate. */
const s24i_architecture s24i_mt5 = {.model_type = "mt5", T5_GATED, T5_TABLE};

/* Each of its blocks has a table. */
const s24i_architecture s24i_umt5 = {
    .model_type = "umt5",
    T5_GATED,
    .relative = "encoder.block.%d.layer.0.SelfAttention.relative_attention_bias.weight"};
