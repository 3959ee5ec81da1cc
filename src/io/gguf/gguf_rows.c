// SPDX-License-Identifier: Apache-2.0
/*
 * Models as GGUF spells them, a row each: how their keys stand in config.json and their tensors in
 * a folder. What GGUF leaves to its readers (a base of angles, how often a window is missing) is a
 * constant of the row.
 */
#include "io/gguf/gguf.h"

/* Of a row, with its end: of one that is longer the compiler says so. */
enum { MOST = S24I_GGUF_FIELDS + 1 };

// clang-format off
#define END {NULL, NULL, 0, 0, 0}
#define WHOLE(json, key, needed) {json, key, S24I_GGUF_WHOLE, needed, -1}
#define REAL(json, key, needed) {json, key, S24I_GGUF_REAL, needed, -1}

#define SIZES                                                                                      \
    WHOLE("hidden_size", ".embedding_length", 1),                                                  \
    WHOLE("intermediate_size", ".feed_forward_length", 1),                                         \
    WHOLE("num_hidden_layers", ".block_count", 1),                                                 \
    WHOLE("num_attention_heads", ".attention.head_count", 1),                                      \
    WHOLE("max_position_embeddings", ".context_length", 1)
#define GROUPS                                                                                     \
    WHOLE("num_key_value_heads", ".attention.head_count_kv", 0),                                   \
    WHOLE("head_dim", ".attention.key_length", 0)
#define THETA(json) {json, ".rope.freq_base", S24I_GGUF_REAL, 0, 10000}
#define ROOT_EPS REAL("rms_norm_eps", ".attention.layer_norm_rms_epsilon", 1)
#define MEAN_EPS(json) REAL(json, ".attention.layer_norm_epsilon", 1)
#define WINDOW WHOLE("sliding_window", ".attention.sliding_window", 0)
#define ROOT_SHAPE SIZES, GROUPS, ROOT_EPS, THETA("rope_theta")
#define MEAN_SHAPE(eps) SIZES, GROUPS, MEAN_EPS(eps), THETA("rope_theta")
#define SIDE_BY_SIDE {"use_parallel_residual", ".use_parallel_residual", S24I_GGUF_SWITCH, 0, -1}
#define EXPERTS(json)                                                                              \
    WHOLE(json, ".expert_count", 1), WHOLE("num_experts_per_tok", ".expert_used_count", 1)
#define EXPERT_WIDTH WHOLE("moe_intermediate_size", ".expert_feed_forward_length", 1)
#define SCORED                                                                                     \
    EXPERTS("n_routed_experts"), EXPERT_WIDTH,                                                     \
    WHOLE("first_k_dense_replace", ".leading_dense_block_count", 1),                               \
    WHOLE("n_shared_experts", ".expert_shared_count", 1),                                          \
    REAL("routed_scaling_factor", ".expert_weights_scale", 0),                                     \
    {"n_group", ".expert_group_count", S24I_GGUF_WHOLE, 0, 1},                                     \
    {"topk_group", ".expert_group_used_count", S24I_GGUF_WHOLE, 0, 1}
#define LATENTS                                                                                    \
    {"q_lora_rank", ".attention.q_lora_rank", S24I_GGUF_WHOLE_OR_NULL, 0, 0},                      \
    WHOLE("kv_lora_rank", ".attention.kv_lora_rank", 1)
#define LOGITS_CAP REAL("final_logit_softcapping", ".final_logit_softcapping", 0)

#define FACTORS                                                                                    \
    REAL("attention_multiplier", ".attention.scale", 0),                                           \
    REAL("embedding_multiplier", ".embedding_scale", 0),                                           \
    REAL("residual_multiplier", ".residual_scale", 0),                                             \
    REAL("logits_scaling", ".logit_scale", 1)

static const s24i_gguf_field
    root_fields[MOST] = {ROOT_SHAPE, END},
    windowed_fields[MOST] = {ROOT_SHAPE, WINDOW, END},
    gpt2_fields[MOST] = {WHOLE("n_embd", ".embedding_length", 1),
                     WHOLE("n_inner", ".feed_forward_length", 1),
                     WHOLE("n_layer", ".block_count", 1),
                     WHOLE("n_head", ".attention.head_count", 1),
                     WHOLE("n_positions", ".context_length", 1),
                     MEAN_EPS("layer_norm_epsilon"),
                     END},
    starcoder2_fields[MOST] = {MEAN_SHAPE("norm_epsilon"), WINDOW, END},
    gemma2_fields[MOST] = {ROOT_SHAPE, WINDOW, LOGITS_CAP,
                       REAL("attn_logit_softcapping", ".attn_logit_softcapping", 0), END},
    gemma3_fields[MOST] = {ROOT_SHAPE, WINDOW, LOGITS_CAP,
                       {"rope_local_base_freq", ".rope.freq_base_swa", S24I_GGUF_REAL, 0, 10000},
                       END},
    granite_fields[MOST] = {ROOT_SHAPE, FACTORS, END},
    phi_fields[MOST] = {MEAN_SHAPE("layer_norm_eps"), END},
    neox_fields[MOST] = {SIZES, MEAN_EPS("layer_norm_eps"), THETA("rotary_emb_base"), SIDE_BY_SIDE,
                     END},
    stablelm_fields[MOST] = {MEAN_SHAPE("layer_norm_eps"), SIDE_BY_SIDE, END},
    cohere_fields[MOST] = {MEAN_SHAPE("layer_norm_eps"), REAL("logit_scale", ".logit_scale",
                        1), END},
    nemotron_fields[MOST] = {MEAN_SHAPE("norm_eps"), END},
    mixtral_fields[MOST] = {ROOT_SHAPE, EXPERTS("num_local_experts"), WINDOW, END},
    olmoe_fields[MOST] = {ROOT_SHAPE, EXPERTS("num_experts"), END},
    qwen2moe_fields[MOST] = {ROOT_SHAPE, EXPERTS("num_experts"), EXPERT_WIDTH,
                         WHOLE("shared_expert_intermediate_size",
                               ".expert_shared_feed_forward_length", 1), END},
    qwen3moe_fields[MOST] = {ROOT_SHAPE, EXPERTS("num_experts"), EXPERT_WIDTH, END},
    scored_fields[MOST] = {ROOT_SHAPE, SCORED,
                       {"norm_topk_prob", ".expert_weights_norm", S24I_GGUF_SWITCH, 0, -1}, END},
    granite_moe_fields[MOST] = {ROOT_SHAPE, FACTORS, EXPERTS("num_local_experts"),
                            {"shared_intermediate_size", ".expert_shared_feed_forward_length",
                             S24I_GGUF_WHOLE, 0, 0}, END},
    gpt_oss_fields[MOST] = {ROOT_SHAPE, EXPERTS("num_local_experts"), WINDOW, END},
    latent_fields[MOST] = {SIZES, ROOT_EPS, THETA("rope_theta"), LATENTS, END},
    scored_latent_fields[MOST] = {SIZES, ROOT_EPS, THETA("rope_theta"), LATENTS, SCORED,
                       {"norm_topk_prob", ".expert_weights_norm", S24I_GGUF_SWITCH, 0, 0}, END},
    ernie_moe_fields[MOST] = {ROOT_SHAPE, WHOLE("moe_num_experts", ".expert_count", 1),
                          WHOLE("moe_k", ".expert_used_count", 1), EXPERT_WIDTH,
                          WHOLE("moe_layer_start_index", ".leading_dense_block_count", 0),
                          WHOLE("moe_layer_interval", ".interleave_moe_layer_step", 0),
                          WHOLE("moe_num_shared_experts", ".expert_shared_count", 0), END},
    cohere2_fields[MOST] = {MEAN_SHAPE("layer_norm_eps"), REAL("logit_scale", ".logit_scale", 1),
                        WINDOW, END};

/* ---- tensors --------------------------------------------------------------------------------- */

#define LAST {NULL, NULL, 0}
static const s24i_gguf_spelling
    llama_outside[] = {{"token_embd", "model.embed_tokens", 0},
                       {"output_norm", "model.norm", 0},
                       {"output", "lm_head", 0},
                       {"rope_freqs", "", 0},
                       LAST},
    phi3_outside[] = {{"token_embd", "model.embed_tokens", 0},
                      {"output_norm", "model.norm", 0},
                      {"output", "lm_head", 0},
                      {"rope_factors_short", "", 0},
                      {"rope_factors_long", "", 0},
                      LAST},
    phi_outside[] = {{"token_embd", "model.embed_tokens", 0},
                     {"output_norm", "model.final_layernorm", 0},
                     {"output", "lm_head", 0},
                     LAST},
    neox_outside[] = {{"token_embd", "gpt_neox.embed_in", 0},
                      {"output_norm", "gpt_neox.final_layer_norm", 0},
                      {"output", "embed_out", 0},
                      LAST},
    gpt2_outside[] = {{"token_embd", "transformer.wte", 0},
                      {"position_embd", "transformer.wpe", 0},
                      {"output_norm", "transformer.ln_f", 0},
                      {"output", "lm_head", 0},
                      LAST};

#define FIRST_NORM {"attn_norm", "input_layernorm", 0}
#define NORMS FIRST_NORM, {"ffn_norm", "post_attention_layernorm", 0}
#define SUM_NORMS                                                                                  \
    {"post_attention_norm", "post_attention_layernorm", 0},                                        \
    {"post_ffw_norm", "post_feedforward_layernorm", 0}
#define QUERY_KEY(how_q, how_k)                                                                    \
    {"attn_q", "self_attn.q_proj", how_q}, {"attn_k", "self_attn.k_proj", how_k}
#define VALUE {"attn_v", "self_attn.v_proj", 0}
#define ATTENTION VALUE, {"attn_output", "self_attn.o_proj", 0}
#define PAIRED QUERY_KEY(S24I_GGUF_PAIRED_Q, S24I_GGUF_PAIRED_K), ATTENTION
#define HALVED QUERY_KEY(0, 0), ATTENTION
#define HEAD_NORMS {"attn_q_norm", "self_attn.q_norm", 0}, {"attn_k_norm", "self_attn.k_norm", 0}
#define UP_DOWN {"ffn_up", "mlp.up_proj", 0}, {"ffn_down", "mlp.down_proj", 0}
#define GATED {"ffn_gate", "mlp.gate_proj", 0}, UP_DOWN
#define MIXED                                                                                      \
    {"ffn_gate_inp", "mlp.gate", 0},                                                               \
    {"ffn_gate_exps", "mlp.experts.%d.gate_proj", S24I_GGUF_EXPERTS},                              \
    {"ffn_up_exps", "mlp.experts.%d.up_proj", S24I_GGUF_EXPERTS},                                  \
    {"ffn_down_exps", "mlp.experts.%d.down_proj", S24I_GGUF_EXPERTS}
#define MIXTRAL                                                                                    \
    {"ffn_gate_inp", "block_sparse_moe.gate", 0},                                                  \
    {"ffn_gate_exps", "block_sparse_moe.experts.%d.w1", S24I_GGUF_EXPERTS},                        \
    {"ffn_up_exps", "block_sparse_moe.experts.%d.w3", S24I_GGUF_EXPERTS},                          \
    {"ffn_down_exps", "block_sparse_moe.experts.%d.w2", S24I_GGUF_EXPERTS}
#define SHARED_EXPERT                                                                              \
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", S24I_GGUF_ONE_ROW},                           \
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj", 0},                                          \
    {"ffn_up_shexp", "mlp.shared_expert.up_proj", 0},                                              \
    {"ffn_down_shexp", "mlp.shared_expert.down_proj", 0}
#define SHARED_EXPERTS                                                                             \
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj", 0},                                         \
    {"ffn_up_shexp", "mlp.shared_experts.up_proj", 0},                                             \
    {"ffn_down_shexp", "mlp.shared_experts.down_proj", 0}
#define BY_TURNS (S24I_GGUF_WITH_UP | S24I_GGUF_IN_TURNS)
#define GATE_IN_UP {"ffn_up", "mlp.gate_up_proj", 0}, {"ffn_down", "mlp.down_proj", 0}

static const s24i_gguf_spelling
    llama_inside[] = {NORMS, PAIRED, GATED, LAST},
    arcee_inside[] = {NORMS, PAIRED, UP_DOWN, LAST},
    halved_inside[] = {NORMS, HALVED, GATED, LAST},
    qwen3_inside[] = {NORMS, HALVED, GATED, HEAD_NORMS, LAST},
    mixtral_inside[] = {NORMS, PAIRED, MIXTRAL, LAST},
    olmoe_inside[] = {NORMS, HALVED, MIXED, HEAD_NORMS, LAST},
    qwen2moe_inside[] = {NORMS, HALVED, MIXED, SHARED_EXPERT, LAST},
    dots1_inside[] = {NORMS, HALVED, GATED, MIXED, SHARED_EXPERTS, HEAD_NORMS,
                      {"exp_probs_b", "mlp.gate.e_score_correction_bias", S24I_GGUF_NAMED}, LAST},
    glm4_moe_inside[] = {FIRST_NORM, {"post_attention_norm", "post_attention_layernorm", 0},
                         HALVED, GATED, MIXED, SHARED_EXPERTS, HEAD_NORMS,
                         {"exp_probs_b", "mlp.gate.e_score_correction_bias", S24I_GGUF_NAMED},
                         LAST},
    granite_moe_inside[] = {
        NORMS, PAIRED, {"ffn_gate_inp", "block_sparse_moe.router.layer", 0},
        {"ffn_gate_exps", "block_sparse_moe.input_linear.%d",
         S24I_GGUF_EXPERTS | S24I_GGUF_WITH_UP},
        {"ffn_up_exps", "", 0},
        {"ffn_down_exps", "block_sparse_moe.output_linear.%d", S24I_GGUF_EXPERTS},
        {"ffn_gate_shexp", "shared_mlp.input_linear", S24I_GGUF_WITH_UP},
        {"ffn_up_shexp", "", 0}, {"ffn_down_shexp", "shared_mlp.output_linear", 0}, LAST},
    gpt_oss_inside[] = {
        FIRST_NORM, {"post_attention_norm", "post_attention_layernorm", 0}, HALVED,
        {"attn_sinks", "self_attn.sinks", S24I_GGUF_NAMED}, {"ffn_gate_inp", "mlp.router", 0},
        {"ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias", S24I_GGUF_NAMED | BY_TURNS},
        {"ffn_down_exps.bias", "mlp.experts.down_proj_bias", S24I_GGUF_NAMED},
        {"ffn_gate_exps", "mlp.experts.%d.gate_up_proj", S24I_GGUF_EXPERTS | BY_TURNS},
        {"ffn_up_exps", "", 0},
        {"ffn_down_exps", "mlp.experts.%d.down_proj", S24I_GGUF_EXPERTS}, LAST},
    latent_inside[] = {
        NORMS, GATED, MIXED, SHARED_EXPERTS,
        {"exp_probs_b", "mlp.gate.e_score_correction_bias", S24I_GGUF_NAMED},
        {"attn_q", "self_attn.q_proj", 0}, {"attn_q_a", "self_attn.q_a_proj", 0},
        {"attn_q_a_norm", "self_attn.q_a_layernorm", 0}, {"attn_q_b", "self_attn.q_b_proj", 0},
        {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", 0},
        {"attn_kv_a_norm", "self_attn.kv_a_layernorm", 0},
        {"attn_kv_b", "self_attn.kv_b_proj", 0},
        {"attn_k_b", "self_attn.kv_b_proj", S24I_GGUF_KEYS}, {"attn_v_b", "", 0},
        {"attn_output", "self_attn.o_proj", 0}, LAST},
    ernie_moe_inside[] = {NORMS, HALVED, GATED, MIXED, SHARED_EXPERTS,
                          {"exp_probs_b", "mlp.moe_statics.e_score_correction_bias",
                           S24I_GGUF_NAMED}, LAST},
    nemotron_inside[] = {NORMS, HALVED, UP_DOWN, LAST},
    seed_oss_inside[] = {FIRST_NORM, {"post_attention_norm", "post_attention_layernorm", 0},
                         HALVED, GATED, LAST},
    phi3_inside[] = {NORMS, {"attn_qkv", "self_attn.qkv_proj", 0},
                     {"attn_output", "self_attn.o_proj", 0}, GATE_IN_UP, LAST},
    starcoder2_inside[] = {NORMS, HALVED, {"ffn_up", "mlp.c_fc", 0}, {"ffn_down", "mlp.c_proj", 0},
                           LAST},
    gemma2_inside[] = {FIRST_NORM, {"ffn_norm", "pre_feedforward_layernorm", 0}, SUM_NORMS, HALVED,
                       GATED, HEAD_NORMS, LAST},
    olmo2_inside[] = {SUM_NORMS, HALVED, GATED, HEAD_NORMS, LAST},
    phi_inside[] = {FIRST_NORM, QUERY_KEY(0, 0), VALUE, {"attn_output", "self_attn.dense", 0},
                    {"ffn_up", "mlp.fc1", 0}, {"ffn_down", "mlp.fc2", 0}, LAST},
    neox_inside[] = {NORMS, {"attn_qkv", "attention.query_key_value", S24I_GGUF_BY_HEADS},
                     {"attn_output", "attention.dense", 0}, {"ffn_up", "mlp.dense_h_to_4h", 0},
                     {"ffn_down", "mlp.dense_4h_to_h", 0}, LAST},
    glm_inside[] = {NORMS, HALVED, GATE_IN_UP, LAST},
    glm4_inside[] = {NORMS, HALVED, GATE_IN_UP,
                     {"post_attention_norm", "post_self_attn_layernorm", 0},
                     {"post_ffw_norm", "post_mlp_layernorm", 0}, LAST},
    cohere_inside[] = {FIRST_NORM, HALVED, GATED, LAST},
    gpt2_inside[] = {{"attn_norm", "ln_1", 0}, {"attn_qkv", "attn.c_attn", S24I_GGUF_TURNED},
                     {"attn_output", "attn.c_proj", S24I_GGUF_TURNED}, {"ffn_norm", "ln_2", 0},
                     {"ffn_up", "mlp.c_fc", S24I_GGUF_TURNED},
                     {"ffn_down", "mlp.c_proj", S24I_GGUF_TURNED}, LAST};

/* ---- rows ------------------------------------------------------------------------------------ */

#define SILU "\"hidden_act\":\"silu\""
#define GELU "\"hidden_activation\":\"gelu_pytorch_tanh\""
#define BLOCKS .blocks = "model.layers.", .outside = llama_outside
#define AS_LLAMA                                                                                   \
    BLOCKS, .constants = SILU, .fields = windowed_fields, .inside = llama_inside,                  \
    .key_biases = "attention_bias"
#define PART "partial_rotary_factor"
#define LATENT                                                                                     \
    BLOCKS, .constants = SILU ",\"attention_bias\":false,\"rope_interleave\":true",                \
    .inside = latent_inside, .latent = 1

const s24i_gguf_arch s24i_gguf_archs[] = {
    {"llama", "llama", "LlamaForCausalLM", AS_LLAMA, .windowed = "mistral",
     .windowed_class = "MistralForCausalLM"},
    {"mistral3", "mistral", "MistralForCausalLM", AS_LLAMA},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", BLOCKS, .constants = SILU, .fields = root_fields,
     .inside = halved_inside},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", BLOCKS, .constants = SILU, .fields = root_fields,
     .inside = qwen3_inside, .key_biases = "attention_bias"},
    {"phi3", "phi3", "Phi3ForCausalLM", .blocks = "model.layers.", .outside = phi3_outside,
     .constants = SILU, .fields = windowed_fields, .inside = phi3_inside, .key_turned = PART},
    {"seed_oss", "seed_oss", "SeedOssForCausalLM", BLOCKS, .constants = SILU,
     .fields = root_fields, .inside = seed_oss_inside, .key_biases = "attention_bias"},
    {"arcee", "arcee", "ArceeForCausalLM", BLOCKS, .constants = "\"hidden_act\":\"relu2\"",
     .fields = root_fields, .inside = arcee_inside, .key_biases = "attention_bias"},
    {"starcoder2", "starcoder2", "Starcoder2ForCausalLM", BLOCKS,
     .constants = "\"hidden_act\":\"gelu_pytorch_tanh\"", .fields = starcoder2_fields,
     .inside = starcoder2_inside, .key_biases = "use_bias"},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", BLOCKS,
     .constants = SILU ",\"no_rope_layer_interval\":4", .fields = root_fields,
     .inside = llama_inside, .key_biases = "attention_bias"},
    {"gemma", "gemma", "GemmaForCausalLM", BLOCKS,
     .constants = GELU ",\"hidden_act\":\"gelu_pytorch_tanh\"", .fields = root_fields,
     .inside = halved_inside, .grown = 1},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", BLOCKS, .constants = GELU, .fields = gemma2_fields,
     .inside = gemma2_inside, .grown = 1, .blocks_of_narrow_scores = 46},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", BLOCKS,
     .constants = GELU ",\"sliding_window_pattern\":6", .fields = gemma3_fields,
     .inside = gemma2_inside, .grown = 1, .blocks_of_narrow_scores = 62},
    {"granite", "granite", "GraniteForCausalLM", BLOCKS, .constants = SILU,
     .fields = granite_fields, .inside = llama_inside, .key_biases = "attention_bias"},
    {"olmo2", "olmo2", "Olmo2ForCausalLM", BLOCKS, .constants = SILU, .fields = windowed_fields,
     .inside = olmo2_inside, .key_biases = "attention_bias", .windowed = "olmo3",
     .windowed_class = "Olmo3ForCausalLM", .lists_windows = 1},
    {"ernie4_5", "ernie4_5", "Ernie4_5ForCausalLM", BLOCKS, .constants = SILU,
     .fields = root_fields, .inside = halved_inside, .key_biases = "use_bias"},
    {"nemotron", "nemotron", "NemotronForCausalLM", BLOCKS,
     .constants = "\"hidden_act\":\"relu2\"", .fields = nemotron_fields,
     .inside = nemotron_inside, .key_turned = PART, .key_biases = "attention_bias", .grown = 1},
    {"phi2", "phi", "PhiForCausalLM", .blocks = "model.layers.", .outside = phi_outside,
     .constants = "\"hidden_act\":\"gelu_new\"", .fields = phi_fields, .inside = phi_inside,
     .key_turned = PART},
    {"gptneox", "gpt_neox", "GPTNeoXForCausalLM", .blocks = "gpt_neox.layers.",
     .outside = neox_outside, .constants = "\"hidden_act\":\"gelu\"", .fields = neox_fields,
     .inside = neox_inside, .key_turned = "rotary_pct"},
    {"stablelm", "stablelm", "StableLmForCausalLM", BLOCKS, .constants = SILU,
     .fields = stablelm_fields, .inside = halved_inside, .key_turned = PART,
     .key_biases = "use_qkv_bias"},
    {"chatglm", "glm", "GlmForCausalLM", BLOCKS, .constants = SILU, .fields = root_fields,
     .inside = glm_inside, .key_turned = PART, .key_biases = "attention_bias"},
    {"glm4", "glm4", "Glm4ForCausalLM", BLOCKS, .constants = SILU, .fields = root_fields,
     .inside = glm4_inside, .key_turned = PART, .key_biases = "attention_bias"},
    {"command-r", "cohere", "CohereForCausalLM", BLOCKS, .constants = SILU,
     .fields = cohere_fields, .inside = cohere_inside, .key_biases = "attention_bias"},
    {"cohere2", "cohere2", "Cohere2ForCausalLM", BLOCKS,
     .constants = SILU ",\"sliding_window_pattern\":4", .fields = cohere2_fields,
     .inside = cohere_inside, .key_biases = "attention_bias"},
    {"llama", "mixtral", "MixtralForCausalLM", BLOCKS, .constants = SILU,
     .fields = mixtral_fields, .inside = mixtral_inside, .experts = 1, .scores = 1},
    {"olmoe", "olmoe", "OlmoeForCausalLM", BLOCKS, .constants = SILU ",\"norm_topk_prob\":false",
     .fields = olmoe_fields, .inside = olmoe_inside, .experts = 1, .scores = 1},
    {"qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", BLOCKS,
     .constants = SILU ",\"norm_topk_prob\":false", .fields = qwen2moe_fields,
     .inside = qwen2moe_inside, .experts = 1, .scores = 1},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", BLOCKS,
     .constants = SILU ",\"norm_topk_prob\":true", .fields = qwen3moe_fields,
     .inside = olmoe_inside, .experts = 1, .scores = 1},
    {"dots1", "dots1", "Dots1ForCausalLM", BLOCKS, .constants = SILU, .fields = scored_fields,
     .inside = dots1_inside, .experts = 1, .scores = 2},
    {"glm4moe", "glm4_moe", "Glm4MoeForCausalLM", BLOCKS, .constants = SILU,
     .fields = scored_fields, .inside = glm4_moe_inside, .key_turned = PART,
     .key_biases = "attention_bias", .experts = 1, .scores = 2, .key_head_norms = "use_qk_norm"},
    {"granitemoe", "granitemoeshared", "GraniteMoeSharedForCausalLM", BLOCKS, .constants = SILU,
     .fields = granite_moe_fields, .inside = granite_moe_inside, .key_biases = "attention_bias",
     .experts = 1, .scores = 1},
    {"gpt-oss", "gpt_oss", "GptOssForCausalLM", BLOCKS,
     .constants = SILU ",\"attention_bias\":true,\"swiglu_limit\":7.0", .fields = gpt_oss_fields,
     .inside = gpt_oss_inside, .experts = 1, .scores = 3, .scaling = ", \"truncate\": false"},
    {"deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM", LATENT, .fields = scored_latent_fields,
     .experts = 1, .scores = 1, .key_method = "topk_method"},
    {"deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM", LATENT, .fields = scored_latent_fields,
     .experts = 1, .scores = 2},
    {"deepseek2", "youtu", "YoutuForCausalLM", LATENT, .fields = latent_fields},
    {"ernie4_5-moe", "ernie4_5_moe", "Ernie4_5_MoeForCausalLM", BLOCKS, .constants = SILU,
     .fields = ernie_moe_fields, .inside = ernie_moe_inside, .key_biases = "use_bias",
     .experts = 1, .scores = 1},
    {"gpt2", "gpt2", "GPT2LMHeadModel", .blocks = "transformer.h.", .outside = gpt2_outside,
     .constants = "\"activation_function\":\"gelu_new\"", .fields = gpt2_fields,
     .inside = gpt2_inside},
    {NULL, NULL, NULL, .blocks = NULL}};
// clang-format on
