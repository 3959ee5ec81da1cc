// SPDX-License-Identifier: Apache-2.0
/* GPT-2's names, as transformers' GPT2LMHeadModel writes them. Its linear weights are stored [k,
   n]; the words' embeddings are the head too. */
#include "model/model.h"

static const char *const off[] = {"add_cross_attention", NULL};

const s24i_architecture s24i_gpt2 = {
    .model_type = "gpt2",
    .prefix = "transformer.",
    .key_vocabulary = "vocab_size",
    .key_positions = "n_positions",
    .key_width = "n_embd",
    .key_layers = "n_layer",
    .key_heads = "n_head",
    .key_intermediate = "n_inner",
    .key_activation = "activation_function",
    .activation = "gelu_new",
    .key_eps = "layer_norm_epsilon",
    .usual_eps = 1e-5f,
    .key_dropout = "resid_pdrop",
    .key_attention_dropout = "attn_pdrop",
    .words = "wte.weight",
    .positions = "wpe.weight",
    .slots = {[S24I_QUERY] = "h.%d.attn.c_attn",
              [S24I_ATTENTION] = "h.%d.attn.c_proj",
              [S24I_INTERMEDIATE] = "h.%d.mlp.c_fc",
              [S24I_OUTPUT] = "h.%d.mlp.c_proj"},
    .attention_norm = "h.%d.ln_1",
    .output_norm = "h.%d.ln_2",
    .final_norm = "ln_f",
    .lm_head = "lm_head",
    .text_head = {.last = "score", .token_last = "classifier", .reads = S24I_READS_LAST},
    .off = off,
    .key_scaled = "scale_attn_weights",
    .key_scaled_by_block = "scale_attn_by_inverse_layer_idx",
    .pre_norm = 1,
    .causal = 1,
    .joint = 1,
    .transposed = 1,
    .narrow_sums = 1,
    .biases = 1,
    .state_normed = 1,
};
