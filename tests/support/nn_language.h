// SPDX-License-Identifier: Apache-2.0
/* Small language models with random weights: GPT-2, OPT, Llama and its kin as folders. Include
   after support.h. */
#ifndef S24_TEST_NN_LANGUAGE_H
#define S24_TEST_NN_LANGUAGE_H

#include <math.h>

#include <sys/stat.h>

#include "nn_io.h"
#include "safetensors_mini.h"

enum { LM_VOCABULARY = 53, LM_POSITIONS = 96, LM_WIDTH = 48, LM_LAYERS = 2, LM_TENSORS = 128 };

/* Zero: GPT-2 with four heads of 12 (or that many heads), an intermediate of 4 · 48, gelu_new. */
typedef struct lm_spec {
    int llama;  /* heads of 8: six of queries, three of keys; silu */
    int tied;   /* a llama without lm_head */
    int biased; /* a llama with biases of q, k (all 0) and v; 2: k's is left out */
    const char *activation;
    int heads; /* of GPT-2; 0: four */
    int bf16;  /* all numbers have bf16's bits; 2: and are stored in it */
    /* Of a llama: another model type, heads of that width in place of 8, norms of queries and keys,
       more of config.json (", \"key\": value"). */
    const char *model_type;
    int head, norms;
    const char *more;
    int positions; /* 0: LM_POSITIONS */
    int opt;       /* six heads of 8, relu */
    /* Of a llama: one layer for queries, keys and values and one for gate and up, as Phi 3; no gate
       as Arcee; biases everywhere, norms that take the mean, c_fc and c_proj as Starcoder 2. */
    int joint, plain, star;
    /* Of a tied llama: the architecture that config.json names, rows of its last layer, and whether
       a square layer with a bias stands before it, which then has one too. */
    const char *architecture;
    int classes, square;
} lm_spec;

/* Models of the golden vectors, with prompts and what comes after them. */
static const char *const lm_golden[] = {"language/gpt2",    "language/llama2", "language/llama31",
                                        "language/mistral", "language/qwen2",  "language/qwen3"};

typedef struct lm_writer {
    mini_tensor tensors[LM_TENSORS];
    char names[LM_TENSORS][160];
    int count;
    uint64_t state;
} lm_writer;

static inline void lm_add(lm_writer *w, const char *name, int64_t rows, int64_t cols)
{
    const int64_t count = rows * (cols ? cols : 1);
    float *values = malloc((size_t)count * sizeof *values);
    const int is_norm = !cols && (strstr(name, "norm") || strstr(name, "ln_"));
    for (int64_t i = 0; i < count; i++) {
        const float x = (float)((int64_t)(test_random(&w->state) % 2001) - 1000) / 1000.0f;
        values[i] = (cols ? 0.25f : 0.5f) * x + (is_norm && strstr(name, "weight") ? 1.0f : 0.0f);
    }
    snprintf(w->names[w->count], sizeof w->names[0], "%s", name);
    w->tensors[w->count] = (mini_tensor){.name = w->names[w->count],
                                         .dtype = S24_F32,
                                         .rank = cols ? 2 : 1,
                                         .shape = {rows, cols},
                                         .data = values,
                                         .bytes = (size_t)count * sizeof *values};
    w->count++;
}

/* A linear layer of a block, stored [rows, cols], with `biases` numbers of a bias. */
static inline void lm_layer(lm_writer *w, const char *name, int block, int64_t rows, int64_t cols,
                            int64_t biases)
{
    char full[160];
    snprintf(full, sizeof full, name, block, "weight");
    lm_add(w, full, rows, cols);
    snprintf(full, sizeof full, name, block, "bias");
    if (biases) lm_add(w, full, biases, 0);
}

/* The last tensor is zeros, or is left out. */
static inline void lm_clear_last(lm_writer *w, int leaves_out)
{
    const mini_tensor *last = &w->tensors[w->count - 1];
    memset((void *)(uintptr_t)last->data, 0, last->bytes);
    if (!leaves_out) return;
    free((void *)(uintptr_t)last->data);
    w->count--;
}

static inline void lm_gpt2(lm_writer *w)
{
    enum { W = LM_WIDTH };
    lm_add(w, "transformer.wte.weight", LM_VOCABULARY, W);
    lm_add(w, "transformer.wpe.weight", LM_POSITIONS, W);
    for (int b = 0; b < LM_LAYERS; b++) {
        lm_layer(w, "transformer.h.%d.ln_1.%s", b, W, 0, W);
        lm_layer(w, "transformer.h.%d.ln_2.%s", b, W, 0, W);
        lm_layer(w, "transformer.h.%d.attn.c_attn.%s", b, W, 3 * W, 3 * W);
        lm_layer(w, "transformer.h.%d.attn.c_proj.%s", b, W, W, W);
        lm_layer(w, "transformer.h.%d.mlp.c_fc.%s", b, W, 4 * W, 4 * W);
        lm_layer(w, "transformer.h.%d.mlp.c_proj.%s", b, 4 * W, W, W);
    }
    lm_add(w, "transformer.ln_f.weight", W, 0);
    lm_add(w, "transformer.ln_f.bias", W, 0);
}

static inline void lm_opt(lm_writer *w)
{
    enum { W = LM_WIDTH };
    static const char *const attends[] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    lm_add(w, "model.decoder.embed_tokens.weight", LM_VOCABULARY, W);
    lm_add(w, "model.decoder.embed_positions.weight", LM_POSITIONS + 2, W);
    for (int b = 0; b < LM_LAYERS; b++) {
        lm_layer(w, "model.decoder.layers.%d.self_attn_layer_norm.%s", b, W, 0, W);
        lm_layer(w, "model.decoder.layers.%d.final_layer_norm.%s", b, W, 0, W);
        for (int i = 0; i < 4; i++) {
            char name[80];
            snprintf(name, sizeof name, "model.decoder.layers.%%d.self_attn.%s.%%s", attends[i]);
            lm_layer(w, name, b, W, W, W);
        }
        lm_layer(w, "model.decoder.layers.%d.fc1.%s", b, 2 * W, W, 2 * W);
        lm_layer(w, "model.decoder.layers.%d.fc2.%s", b, W, 2 * W, W);
    }
    lm_add(w, "model.decoder.final_layer_norm.weight", W, 0);
    lm_add(w, "model.decoder.final_layer_norm.bias", W, 0);
}

/* Queries, keys and values, of heads that wide. */
static inline void lm_qkv(lm_writer *w, const lm_spec *spec, int b, int head)
{
    enum { W = LM_WIDTH };
    const int Q = 6 * head, KV = 3 * head;
    if (spec->joint) {
        lm_layer(w, "model.layers.%d.self_attn.qkv_proj.%s", b, Q + 2 * KV, W, 0);
        return;
    }
    const int biased = spec->biased || spec->star;
    lm_layer(w, "model.layers.%d.self_attn.q_proj.%s", b, Q, W, biased ? Q : 0);
    lm_layer(w, "model.layers.%d.self_attn.k_proj.%s", b, KV, W, biased ? KV : 0);
    if (spec->biased) lm_clear_last(w, spec->biased == 2);
    lm_layer(w, "model.layers.%d.self_attn.v_proj.%s", b, KV, W, biased ? KV : 0);
}

static inline void lm_outer(lm_writer *w, const lm_spec *spec, int b)
{
    enum { W = LM_WIDTH, OUTER = 72 };
    if (spec->star) {
        lm_layer(w, "model.layers.%d.mlp.c_fc.%s", b, OUTER, W, OUTER);
        lm_layer(w, "model.layers.%d.mlp.c_proj.%s", b, W, OUTER, W);
        return;
    }
    if (spec->joint)
        lm_layer(w, "model.layers.%d.mlp.gate_up_proj.%s", b, 2 * OUTER, W, 0);
    else if (!spec->plain)
        lm_layer(w, "model.layers.%d.mlp.gate_proj.%s", b, OUTER, W, 0);
    if (!spec->joint) lm_layer(w, "model.layers.%d.mlp.up_proj.%s", b, OUTER, W, 0);
    lm_layer(w, "model.layers.%d.mlp.down_proj.%s", b, W, OUTER, 0);
}

static inline void lm_llama(lm_writer *w, const lm_spec *spec)
{
    enum { W = LM_WIDTH };
    const int head = spec->head ? spec->head : 8, biases = spec->star ? W : 0;
    lm_add(w, "model.embed_tokens.weight", LM_VOCABULARY, W);
    for (int b = 0; b < LM_LAYERS; b++) {
        lm_layer(w, "model.layers.%d.input_layernorm.%s", b, W, 0, biases);
        lm_layer(w, "model.layers.%d.post_attention_layernorm.%s", b, W, 0, biases);
        lm_qkv(w, spec, b, head);
        lm_layer(w, "model.layers.%d.self_attn.o_proj.%s", b, W, 6 * head, biases);
        if (spec->norms) {
            lm_layer(w, "model.layers.%d.self_attn.q_norm.%s", b, head, 0, 0);
            lm_layer(w, "model.layers.%d.self_attn.k_norm.%s", b, head, 0, 0);
        }
        lm_outer(w, spec, b);
    }
    lm_add(w, "model.norm.weight", W, 0);
    if (biases) lm_add(w, "model.norm.bias", W, 0);
    if (!spec->tied) lm_add(w, "lm_head.weight", LM_VOCABULARY, W);
    if (spec->square) {
        lm_add(w, "dense.weight", W, W);
        lm_add(w, "dense.bias", W, 0);
        lm_add(w, "classifier.bias", spec->classes, 0);
    }
    if (spec->classes)
        lm_add(w, spec->square ? "classifier.weight" : "score.weight", spec->classes, W);
}

static inline void lm_config(const lm_spec *spec, const char *path)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    if (spec->llama)
        fprintf(f,
                "{\"model_type\": \"%s\", \"architectures\": [\"%s\"], "
                "\"vocab_size\": %d, \"max_position_embeddings\": %d, \"hidden_size\": %d, "
                "\"num_hidden_layers\": %d, \"num_attention_heads\": 6, "
                "\"num_key_value_heads\": 3, \"intermediate_size\": 72, \"rms_norm_eps\": 1e-5, "
                "\"head_dim\": %d%s",
                spec->model_type ? spec->model_type : "llama",
                spec->architecture ? spec->architecture : "LlamaForCausalLM", LM_VOCABULARY,
                spec->positions ? spec->positions : LM_POSITIONS, LM_WIDTH, LM_LAYERS,
                spec->head ? spec->head : 8, spec->more ? spec->more : "");
    else if (spec->opt)
        fprintf(f,
                "{\"model_type\": \"opt\", \"vocab_size\": %d, \"max_position_embeddings\": %d, "
                "\"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": 6, "
                "\"ffn_dim\": %d",
                LM_VOCABULARY, LM_POSITIONS, LM_WIDTH, LM_LAYERS, 2 * LM_WIDTH);
    else
        fprintf(f,
                "{\"model_type\": \"gpt2\", \"vocab_size\": %d, \"n_positions\": %d, "
                "\"n_embd\": %d, \"n_layer\": %d, \"n_head\": %d%s",
                LM_VOCABULARY, LM_POSITIONS, LM_WIDTH, LM_LAYERS, spec->heads ? spec->heads : 4,
                spec->more ? spec->more : "");
    if (spec->activation)
        fprintf(f, ", \"%s\": \"%s\"", spec->llama ? "hidden_act" : "activation_function",
                spec->activation);
    fputs("}", f);
    assert_int_equal(fclose(f), 0);
}

/* Rounds a tensor to bf16, in place or for good. */
static inline void lm_round(mini_tensor *t, int stored)
{
    float *wide = (float *)(uintptr_t)t->data;
    const int64_t count = (int64_t)(t->bytes / sizeof *wide);
    uint16_t *narrow = malloc((size_t)count * sizeof *narrow);
    assert_int_equal(s24_convert(narrow, S24_BF16, wide, S24_F32, count), S24_OK);
    assert_int_equal(s24_convert(wide, S24_F32, narrow, S24_BF16, count), S24_OK);
    if (!stored) {
        free(narrow);
        return;
    }
    free(wide);
    t->data = narrow;
    t->dtype = S24_BF16;
    t->bytes = (size_t)count * sizeof *narrow;
}
/* The llamas of other rows: a window that is shorter than the texts, in all blocks or in the last;
   biases; norms of wide heads; positions that grow slower. */
#define LM_LLAMA3                                                                                  \
    ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "      \
    "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 32}"
#define LM_KIN                                                                                     \
    {.llama = 1, .model_type = "mistral", .more = ", \"sliding_window\": 11"},                     \
        {.llama = 1,                                                                               \
         .model_type = "qwen2",                                                                    \
         .biased = 1,                                                                              \
         .tied = 1,                                                                                \
         .more =                                                                                   \
             ", \"use_sliding_window\": true, \"sliding_window\": 25, \"max_window_layers\": 1"},  \
        {.llama = 1, .model_type = "qwen3", .head = 16, .norms = 1},                               \
    {                                                                                              \
        .llama = 1, .more = LM_LLAMA3                                                              \
    }

/* Rows whose layers or norms are others than Llama's. */
#define LM_OTHERS                                                                                  \
    {.heads = 6, .more = ", \"scale_attn_by_inverse_layer_idx\": true"}, {.opt = 1},               \
        {.llama = 1, .model_type = "phi3", .joint = 1, .more = ", \"sliding_window\": 13"},        \
        {.llama = 1, .model_type = "smollm3", .more = ", \"no_rope_layers\": [1, 0]"},             \
        {.llama = 1, .model_type = "arcee", .plain = 1},                                           \
    {                                                                                              \
        .llama = 1, .model_type = "starcoder2", .star = 1, .tied = 1,                              \
        .more = ", \"sliding_window\": 17"                                                         \
    }

/* Writes the folder. */
static inline void lm_write(const lm_spec *spec, const char *folder)
{
    char path[600];
    lm_writer *w = calloc(1, sizeof *w);
    w->state = 7;
    mkdir(folder, 0700);
    if (spec->llama)
        lm_llama(w, spec);
    else if (spec->opt)
        lm_opt(w);
    else
        lm_gpt2(w);
    for (int i = 0; spec->bf16 && i < w->count; i++)
        lm_round(&w->tensors[i], spec->bf16 == 2);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    mini_write(path, w->tensors, w->count, NULL);
    for (int i = 0; i < w->count; i++)
        free((void *)(uintptr_t)w->tensors[i].data);
    free(w);
    snprintf(path, sizeof path, "%s/config.json", folder);
    lm_config(spec, path);
}

/* Which linear layers a block has. */
typedef enum lm_kind { LM_GPT2, LM_OPT, LM_LLAMA, LM_JOINT, LM_PLAIN, LM_STAR, LM_KINDS } lm_kind;

static inline lm_kind lm_kind_of(const lm_spec *spec)
{
    if (!spec->llama) return spec->opt ? LM_OPT : LM_GPT2;
    if (spec->joint) return LM_JOINT;
    if (spec->star) return LM_STAR;
    return spec->plain ? LM_PLAIN : LM_LLAMA;
}

static inline int lm_block_layers(const lm_spec *spec)
{
    static const int layers[LM_KINDS] = {
        [LM_GPT2] = 4, [LM_OPT] = 6, [LM_LLAMA] = 7, [LM_JOINT] = 4, [LM_PLAIN] = 6, [LM_STAR] = 6};
    return layers[lm_kind_of(spec)];
}

/* Within bound of the largest magnitude. */
static inline void near(const float *expected, const float *got, int64_t count, double bound,
                        const char *what)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)expected[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)expected[i] - (double)got[i]) <= bound * most))
            fail_msg("%s at %lld: expected %g, got %g, largest %g", what, (long long)i,
                     (double)expected[i], (double)got[i], most);
}

#endif
