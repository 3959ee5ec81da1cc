// SPDX-License-Identifier: Apache-2.0
/* Llama's names, as transformers' LlamaForCausalLM writes them, and those that took them over:
   Mistral, Ministral and CWM attend to a window, Qwen 2 and Seed-OSS have biases (which are read
   where a checkpoint has them), Qwen 3 normalises the queries and keys of each head, Phi 3 joins
   layers that read the same, Arcee and Starcoder 2 have no gate, norms of the latter take the
   mean, some blocks of SmolLM 3 are not turned by positions, which turn neighbours in Helium and
   ERNIE 4.5, Hunyuan normalises queries and keys after these have turned them, and EuroBERT's
   tokens attend to later ones too. */
#include "model/arch/llama_names.h"

/* Embedders whose tokens see later ones too, as config.json says; those of NVIDIA call themselves
   so. Windows on either side are not known. */
// clang-format off
#define SEES_ALL LLAMA_NAMED, GATED
#define UNLESS_ALL(row) .key_variant = "is_causal=false", .variant = &row
// clang-format on

static const char *const windows_off[] = {"sliding_window", NULL};
static const char *const slides_off[] = {"use_sliding_window", NULL};
static const s24i_architecture llama_all = {.model_type = "llama", SEES_ALL};
static const s24i_architecture mistral_all = {
    .model_type = "mistral", SEES_ALL, .off = windows_off};
static const s24i_architecture qwen2_all = {.model_type = "qwen2", SEES_ALL, .off = slides_off};
static const s24i_architecture qwen3_all = {
    .model_type = "qwen3", SEES_ALL, HEAD_NORMS, .off = slides_off};

const s24i_architecture s24i_llama_bidirec = {.model_type = "llama_bidirec", SEES_ALL};

const s24i_architecture s24i_llama = {
    .model_type = "llama",
    LLAMA_SHAPED,
    UNLESS_ALL(llama_all),
    .usual_inside = "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 11008, "
                    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
                    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 2048}"};

const s24i_architecture s24i_mistral = {
    .model_type = "mistral",
    LLAMA_SHAPED,
    UNLESS_ALL(mistral_all),
    WINDOW,
    .usual_inside = "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 14336, "
                    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
                    "\"num_key_value_heads\": 8, \"hidden_act\": \"silu\", "
                    "\"max_position_embeddings\": 131072}"};

const s24i_architecture s24i_ministral3 = {
    .model_type = "ministral3", LLAMA_SHAPED_BY(1e-5f), WINDOW};

const s24i_architecture s24i_cwm = {.model_type = "cwm",
                                    LLAMA_SHAPED_BY(1e-5f),
                                    .usual_theta = 1e6f,
                                    .key_sliding = "sliding_window",
                                    .usual_sliding = 8192,
                                    .usual_every = 4};

const s24i_architecture s24i_ministral = {.model_type = "ministral", LLAMA_SHAPED, WINDOW};

const s24i_architecture s24i_qwen2 = {
    .model_type = "qwen2", LLAMA_SHAPED, QWEN_WINDOW, UNLESS_ALL(qwen2_all)};

/* Qwen's models of images and texts: in a folder of old the keys of the texts are config.json's
   own. Of texts the three positions of a token are one. */
#define QWEN_TEXTS LLAMA_SHAPED_BY(1e-5f), QWEN_WINDOW, .usual_theta = 1e6f

const s24i_architecture s24i_qwen2_vl = {.model_type = "qwen2_vl", QWEN_TEXTS, .has_towers = 1};

const s24i_architecture s24i_qwen2_5_vl = {.model_type = "qwen2_5_vl", QWEN_TEXTS, .has_towers = 1};

const s24i_architecture s24i_qwen2_vl_text = {.model_type = "qwen2_vl_text", QWEN_TEXTS};

const s24i_architecture s24i_qwen2_5_vl_text = {.model_type = "qwen2_5_vl_text", QWEN_TEXTS};

const s24i_architecture s24i_qwen3_vl_text = {
    .model_type = "qwen3_vl_text", LLAMA_SHAPED, HEAD_NORMS, .usual_theta = 500000.0f};

const s24i_architecture s24i_qwen3 = {.model_type = "qwen3",
                                      LLAMA_SHAPED,
                                      UNLESS_ALL(qwen3_all),
                                      QWEN_WINDOW,
                                      .query_norm = "layers.%d.self_attn.q_norm",
                                      .key_norm = "layers.%d.self_attn.k_norm"};

const s24i_architecture s24i_seed_oss = {.model_type = "seed_oss", LLAMA_SHAPED};

const s24i_architecture s24i_phi3 = {.model_type = "phi3",
                                     LLAMA_NAMED_BY(1e-5f),
                                     CONTINUES_TEXT,
                                     .activation = "silu",
                                     .usual_turned = 1.0f,
                                     .key_sliding = "sliding_window",
                                     .slots = {[S24I_QUERY] = "layers.%d.self_attn.qkv_proj",
                                               [S24I_ATTENTION] = "layers.%d.self_attn.o_proj",
                                               [S24I_INTERMEDIATE] = "layers.%d.mlp.gate_up_proj",
                                               [S24I_OUTPUT] = "layers.%d.mlp.down_proj"},
                                     .joint = 1,
                                     .joint_gate = 1};

const s24i_architecture s24i_arcee = {
    .model_type = "arcee",
    LLAMA_NAMED_BY(1e-5f),
    CONTINUES_TEXT,
    .activation = "relu2",
    .slots = {ATTENTION_SLOTS, [S24I_INTERMEDIATE] = "layers.%d.mlp.up_proj",
              [S24I_OUTPUT] = "layers.%d.mlp.down_proj"}};

static const char *const smollm3_off[] = {"use_sliding_window", NULL};

const s24i_architecture s24i_smollm3 = {.model_type = "smollm3",
                                        LLAMA_SHAPED,
                                        .key_turns = "no_rope_layers",
                                        .key_turns_every = "no_rope_layer_interval",
                                        .off = smollm3_off};

const s24i_architecture s24i_starcoder2 = {
    .model_type = "starcoder2",
    ATTENDS_AS_LLAMA,
    CONTINUES_TEXT,
    .key_eps = "norm_epsilon",
    .usual_eps = 1e-5f,
    .key_dropout = "residual_dropout",
    .key_sliding = "sliding_window",
    .activation = "gelu_pytorch_tanh",
    .slots = {ATTENTION_SLOTS, [S24I_INTERMEDIATE] = "layers.%d.mlp.c_fc",
              [S24I_OUTPUT] = "layers.%d.mlp.c_proj"}};

const s24i_architecture s24i_helium = {
    .model_type = "helium", LLAMA_SHAPED_BY(1e-8f), .usual_theta = 100000.0f, .adjacent = 1};

const s24i_architecture s24i_hunyuan = {.model_type = "hunyuan_v1_dense",
                                        LLAMA_SHAPED_BY(1e-5f),
                                        .query_norm = "layers.%d.self_attn.query_layernorm",
                                        .key_norm = "layers.%d.self_attn.key_layernorm",
                                        .norms_turned = 1};

const s24i_architecture s24i_ernie4_5 = {
    .model_type = "ernie4_5", LLAMA_SHAPED_BY(1e-5f), .usual_theta = 500000.0f, .adjacent = 1};

const s24i_architecture s24i_eurobert = {.model_type = "eurobert",
                                         LLAMA_NAMED_BY(1e-5f),
                                         GATED,
                                         .text_head = {.square = "dense",
                                                       .bend = S24I_BEND_GELU,
                                                       .last = "classifier",
                                                       .token_last = "classifier",
                                                       .key_pooling = "classifier_pooling",
                                                       .reads = S24I_READS_EACH}};
