// SPDX-License-Identifier: Apache-2.0
/*
 * Models as GGUF spells them, a row each: how their keys stand in config.json and their tensors in
 * a folder. A key of the model that no row names is refused, since it may change what is computed.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/gguf/gguf.h"

enum { TURNED = 1 /* a layer that the folder has [in, out] */, PAIRED_Q, PAIRED_K };

typedef struct field {
    const char *json, *key;
    int is_real, is_needed;
    double fallback; /* below 0: it is left out */
} field;

typedef struct spelling {
    const char *gguf, *folder; /* of a tensor, without ".weight" and ".bias" */
    int how;
} spelling;

typedef struct s24i_gguf_row {
    const char *architecture, *model_type, *class;
    const char *constants; /* of config.json */
    const char *blocks;    /* what stands before a block's number in a folder */
    const field *fields;
    const spelling *outside, *inside; /* tensors of no block, of a block */
} row;

/* ---- rows ------------------------------------------------------------------------------------ */

#define SHAPE                                                                                      \
    {"hidden_size", ".embedding_length", 0, 1, -1},                                                \
        {"intermediate_size", ".feed_forward_length", 0, 1, -1},                                   \
        {"num_hidden_layers", ".block_count", 0, 1, -1},                                           \
        {"num_attention_heads", ".attention.head_count", 0, 1, -1},                                \
        {"num_key_value_heads", ".attention.head_count_kv", 0, 0, -1},                             \
        {"max_position_embeddings", ".context_length", 0, 1, -1},                                  \
        {"head_dim", ".attention.key_length", 0, 0, -1},                                           \
        {"rms_norm_eps", ".attention.layer_norm_rms_epsilon", 1, 1, -1},                           \
    {                                                                                              \
        "rope_theta", ".rope.freq_base", 1, 0, 10000                                               \
    }

static const field rotary_fields[] = {SHAPE, {NULL, NULL, 0, 0, 0}};
static const field windowed_fields[] = {
    SHAPE, {"sliding_window", ".attention.sliding_window", 0, 0, -1}, {NULL, NULL, 0, 0, 0}};
static const field gpt2_fields[] = {
    {"n_embd", ".embedding_length", 0, 1, -1},
    {"n_inner", ".feed_forward_length", 0, 1, -1},
    {"n_layer", ".block_count", 0, 1, -1},
    {"n_head", ".attention.head_count", 0, 1, -1},
    {"n_positions", ".context_length", 0, 1, -1},
    {"layer_norm_epsilon", ".attention.layer_norm_epsilon", 1, 1, -1},
    {NULL, NULL, 0, 0, 0}};

static const spelling rotary_outside[] = {{"token_embd", "model.embed_tokens", 0},
                                          {"output_norm", "model.norm", 0},
                                          {"output", "lm_head", 0},
                                          {"rope_freqs", "", 0},
                                          {NULL, NULL, 0}};
#define BLOCK                                                                                      \
    {"attn_norm", "input_layernorm", 0}, {"attn_v", "self_attn.v_proj", 0},                        \
        {"attn_output", "self_attn.o_proj", 0}, {"ffn_norm", "post_attention_layernorm", 0},       \
        {"ffn_gate", "mlp.gate_proj", 0}, {"ffn_up", "mlp.up_proj", 0},                            \
    {                                                                                              \
        "ffn_down", "mlp.down_proj", 0                                                             \
    }
static const spelling llama_inside[] = {BLOCK,
                                        {"attn_q", "self_attn.q_proj", PAIRED_Q},
                                        {"attn_k", "self_attn.k_proj", PAIRED_K},
                                        {NULL, NULL, 0}};
static const spelling qwen_inside[] = {BLOCK,
                                       {"attn_q", "self_attn.q_proj", 0},
                                       {"attn_k", "self_attn.k_proj", 0},
                                       {"attn_q_norm", "self_attn.q_norm", 0},
                                       {"attn_k_norm", "self_attn.k_norm", 0},
                                       {NULL, NULL, 0}};
static const spelling gpt2_outside[] = {{"token_embd", "transformer.wte", 0},
                                        {"position_embd", "transformer.wpe", 0},
                                        {"output_norm", "transformer.ln_f", 0},
                                        {"output", "lm_head", 0},
                                        {NULL, NULL, 0}};
static const spelling gpt2_inside[] = {{"attn_norm", "ln_1", 0},
                                       {"attn_qkv", "attn.c_attn", TURNED},
                                       {"attn_output", "attn.c_proj", TURNED},
                                       {"ffn_norm", "ln_2", 0},
                                       {"ffn_up", "mlp.c_fc", TURNED},
                                       {"ffn_down", "mlp.c_proj", TURNED},
                                       {NULL, NULL, 0}};

#define SILU "\"hidden_act\":\"silu\""
static const row rows[] = {
    {"llama", "llama", "LlamaForCausalLM", SILU, "model.layers.", windowed_fields, rotary_outside,
     llama_inside},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", SILU, "model.layers.", rotary_fields, rotary_outside,
     qwen_inside},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", SILU ",\"attention_bias\":false", "model.layers.",
     rotary_fields, rotary_outside, qwen_inside},
    {"gpt2", "gpt2", "GPT2LMHeadModel", "\"activation_function\":\"gelu_new\"", "transformer.h.",
     gpt2_fields, gpt2_outside, gpt2_inside},
};
enum { ROWS = (int)(sizeof rows / sizeof *rows) };

/* ---- keys ------------------------------------------------------------------------------------ */

/* Keys of a model that are read next to its row's fields, or say nothing that is computed. */
static int is_known(const row *r, const char *key)
{
    static const char *const others[] = {".vocab_size",
                                         ".attention.value_length",
                                         ".rope.dimension_count",
                                         ".rope.scaling.type",
                                         ".rope.scaling.factor",
                                         ".rope.scaling.original_context_length",
                                         ".rope.scaling.finetuned",
                                         ".tensor_data_layout",
                                         ".expert_count",
                                         ".expert_used_count",
                                         NULL};
    for (const field *f = r->fields; f->json; f++)
        if (!strcmp(f->key, key)) return 1;
    for (int i = 0; others[i]; i++)
        if (!strcmp(others[i], key)) return 1;
    return 0;
}

static s24_status check_keys(const s24i_gguf *g, const row *r)
{
    const size_t bytes = strlen(r->architecture);
    for (int64_t i = 0; i < g->keys.count; i++) {
        const char *key = g->keys.names[i];
        if (strncmp(key, r->architecture, bytes) != 0 || key[bytes] != '.') continue;
        REQUIRE(g->ctx, is_known(r, key + bytes), S24_ERROR_UNSUPPORTED,
                "%s: key \"%s\" of a %s model is not supported", g->path, s24i_show(key).text,
                r->architecture);
    }
    int64_t experts = 0;
    TRY(s24i_gguf_int(&experts, g, ".expert_count", S24I_OPTIONAL, 1 << 16));
    REQUIRE(g->ctx, experts == 0, S24_ERROR_UNSUPPORTED,
            "%s: key \"%s.expert_count\" is %lld; a model of experts is not supported", g->path,
            r->architecture, (long long)experts);
    return S24_OK;
}

static s24_status read_fields(s24i_gguf_model *m, const s24i_gguf *g)
{
    for (int i = 0; m->row->fields[i].json; i++) {
        const field *f = &m->row->fields[i];
        const s24i_need need = f->is_needed ? S24I_REQUIRED : S24I_OPTIONAL;
        int64_t whole = -1;
        m->numbers[i] = f->fallback;
        if (f->is_real) {
            TRY(s24i_gguf_real(&m->numbers[i], g, f->key, need));
            REQUIRE(g->ctx, m->numbers[i] >= 0, S24_ERROR_FORMAT,
                    "%s: key \"%s%s\" is %g, 0 or more is expected", g->path, g->architecture,
                    f->key, m->numbers[i]);
        } else {
            TRY(s24i_gguf_int(&whole, g, f->key, need, 1 << 28));
            if (whole >= 0) m->numbers[i] = (double)whole;
        }
    }
    return S24_OK;
}

static double number_of(const s24i_gguf_model *m, const char *key)
{
    for (int i = 0; m->row->fields[i].json; i++)
        if (!strcmp(m->row->fields[i].key, key)) return m->numbers[i];
    return -1;
}

static s24_status read_heads(s24i_gguf_model *m, const s24i_gguf *g)
{
    const int64_t width = (int64_t)number_of(m, ".embedding_length");
    const int64_t kv = (int64_t)number_of(m, ".attention.head_count_kv");
    const int64_t said = (int64_t)number_of(m, ".attention.key_length");
    m->layers = (int64_t)number_of(m, ".block_count");
    m->heads = (int64_t)number_of(m, ".attention.head_count");
    m->kv_heads = kv < 0 ? m->heads : kv;
    REQUIRE(g->ctx, m->heads > 0 && m->kv_heads > 0, S24_ERROR_FORMAT,
            "%s: key \"%s.attention.head_count\" or …_kv is 0", g->path, g->architecture);
    int64_t head = said < 0 ? width / m->heads : said, value = head, turned = head;
    TRY(s24i_gguf_int(&value, g, ".attention.value_length", S24I_OPTIONAL, 1 << 28));
    TRY(s24i_gguf_int(&turned, g, ".rope.dimension_count", S24I_OPTIONAL, 1 << 28));
    REQUIRE(g->ctx, value == head && turned == head, S24_ERROR_UNSUPPORTED,
            "%s: key \"%s.%s\" is %lld; only that of all %lld of a head is supported", g->path,
            g->architecture, value == head ? "rope.dimension_count" : "attention.value_length",
            (long long)(value == head ? turned : value), (long long)head);
    return S24_OK;
}

/* ---- scaled rotary positions ----------------------------------------------------------------- */

/* What Llama 3.1's rule divides a frequency by, with its factor, for 8192 positions at first. */
static double llama3_divisor(double frequency, double factor)
{
    const double turns = 8192 * frequency / 6.283185307179586, low = 1, high = 4;
    if (turns > high) return 1;
    if (turns < low) return factor;
    const double smooth = (turns - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
}

/* Divisors of frequencies as a tensor: Llama 3.1's, which config.json says by their rule. */
static s24_status read_frequencies(s24i_gguf_model *m, const s24i_gguf *g)
{
    const s24i_gguf_tensor *t = s24i_gguf_tensor_of(g, "rope_freqs.weight");
    const double theta = number_of(m, ".rope.freq_base");
    float divisors[1024];
    if (!t || theta <= 0) return S24_OK;
    int64_t count = t->shape[0];
    int is_known = t->rank == 1 && count <= 1024 && !m->scaling.bytes;
    if (is_known) TRY(s24i_gguf_row(divisors, t->type, t->data, count));
    const double factor = is_known ? (double)divisors[count - 1] : 0;
    for (int64_t i = 0; i < count && is_known; i++) {
        const double frequency = pow(theta, -(double)i / (double)count);
        const double expected = llama3_divisor(frequency, factor);
        is_known = factor >= 1 && fabs((double)divisors[i] - expected) <= 1e-4 * expected;
    }
    REQUIRE(g->ctx, is_known, S24_ERROR_UNSUPPORTED,
            "%s: tensor \"rope_freqs.weight\" is not supported, only as Llama 3.1 has it", g->path);
    if (factor == 1) return S24_OK;
    m->scaling = (s24_text){"llama3", 6};
    m->factor = factor;
    m->original = 8192;
    return S24_OK;
}

static s24_status read_scaling(s24i_gguf_model *m, const s24i_gguf *g)
{
    s24_text kind = {"none", 4};
    int64_t original = -1;
    TRY(s24i_gguf_text(&kind, g, ".rope.scaling.type", S24I_OPTIONAL));
    const int is_yarn = s24i_text_is(&kind, "yarn");
    REQUIRE(g->ctx, is_yarn || s24i_text_is(&kind, "linear") || s24i_text_is(&kind, "none"),
            S24_ERROR_UNSUPPORTED,
            "%s: key \"%s.rope.scaling.type\" is not supported, only none, linear and yarn",
            g->path, g->architecture);
    if (s24i_text_is(&kind, "none")) return S24_OK;
    m->scaling = kind;
    TRY(s24i_gguf_real(&m->factor, g, ".rope.scaling.factor", S24I_REQUIRED));
    TRY(s24i_gguf_int(&original, g, ".rope.scaling.original_context_length",
                      is_yarn ? S24I_REQUIRED : S24I_OPTIONAL, 1 << 28));
    m->original = (double)original;
    return S24_OK;
}

/* ---- the model ------------------------------------------------------------------------------- */

static s24_status read_ids(s24i_gguf_model *m, const s24i_gguf *g)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int count = 0;
    m->first = m->last[0] = m->last[1] = m->last[2] = -1;
    TRY(s24i_gguf_int(&m->first, g, "tokenizer.ggml.bos_token_id", S24I_OPTIONAL,
                      m->vocabulary - 1));
    for (int i = 0; i < 3; i++) {
        int64_t id = -1;
        TRY(s24i_gguf_int(&id, g, ends[i], S24I_OPTIONAL, m->vocabulary - 1));
        for (int k = 0; k < count; k++)
            if (m->last[k] == id) id = -1;
        if (id >= 0) m->last[count++] = id;
    }
    return S24_OK;
}

s24_status s24i_gguf_model_read(s24i_gguf_model *out, const s24i_gguf *g)
{
    *out = (s24i_gguf_model){.row = NULL};
    for (int i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].architecture, g->architecture)) out->row = &rows[i];
    REQUIRE(g->ctx, out->row, S24_ERROR_UNSUPPORTED,
            "%s: key \"general.architecture\" is '%s', which is not supported, only llama, qwen2, "
            "qwen3 and gpt2",
            g->path, s24i_show(g->architecture).text);
    TRY(check_keys(g, out->row));
    TRY(read_fields(out, g));
    TRY(read_heads(out, g));
    TRY(read_scaling(out, g));
    TRY(read_frequencies(out, g));
    const s24i_gguf_tensor *words = s24i_gguf_tensor_of(g, "token_embd.weight");
    REQUIRE(g->ctx, words && words->rank == 2, S24_ERROR_FORMAT,
            "%s: tensor \"token_embd.weight\" is missing or no matrix", g->path);
    out->vocabulary = words->shape[0];
    out->has_head = s24i_gguf_tensor_of(g, "output.weight") != NULL;
    out->has_bias = s24i_gguf_tensor_of(g, "blk.0.attn_q.bias") != NULL;
    const double window = number_of(out, ".attention.sliding_window");
    out->window = window > 0 ? (int64_t)window : 0;
    return read_ids(out, g);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* The number of a block after "blk.", and what follows it; −1: there is none. */
static int64_t block_number(const char **rest, const char *name)
{
    int64_t number = 0;
    if (strncmp(name, "blk.", 4) != 0) return -1;
    const char *at = name + 4;
    for (; *at >= '0' && *at <= '9' && number < 1 << 20; at++)
        number = 10 * number + (*at - '0');
    if (at == name + 4 || *at != '.') return -1;
    *rest = at + 1;
    return number;
}

s24_status s24i_gguf_place_of(s24i_gguf_place *out, const s24i_gguf *g, const s24i_gguf_model *m,
                              const s24i_gguf_tensor *tensor)
{
    const char *name = tensor->name;
    const int64_t block = block_number(&name, tensor->name);
    const char *end = strrchr(name, '.');
    const size_t bytes = end ? (size_t)(end - name) : 0;
    const spelling *s = block < 0 ? m->row->outside : m->row->inside;
    while (s->gguf && (strlen(s->gguf) != bytes || strncmp(s->gguf, name, bytes) != 0))
        s++;
    REQUIRE(g->ctx,
            end && s->gguf && block < m->layers &&
                (!strcmp(end, ".weight") || !strcmp(end, ".bias")),
            S24_ERROR_UNSUPPORTED, "%s: tensor \"%s\" is none that a %s model of %lld blocks has",
            g->path, s24i_show(tensor->name).text, g->architecture, (long long)m->layers);
    *out = (s24i_gguf_place){.transposed = s->how == TURNED && tensor->rank == 2,
                             .heads = s->how == PAIRED_Q   ? m->heads
                                      : s->how == PAIRED_K ? m->kv_heads
                                                           : 0};
    const int64_t rows_of = tensor->shape[0];
    REQUIRE(g->ctx, !out->heads || (rows_of % out->heads == 0 && rows_of / out->heads % 2 == 0),
            S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %lld rows, an even number for each of %lld "
            "heads is expected",
            g->path, s24i_show(tensor->name).text, (long long)rows_of, (long long)out->heads);
    if (!*s->folder) return S24_OK;
    if (block < 0)
        snprintf(out->name, sizeof out->name, "%s%s", s->folder, end);
    else
        snprintf(out->name, sizeof out->name, "%s%lld.%s%s", m->row->blocks, (long long)block,
                 s->folder, end);
    return S24_OK;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static void put_key(s24i_json_text *text, const char *key)
{
    s24i_json_put(text, ",\n  \"");
    s24i_json_put(text, key);
    s24i_json_put(text, "\": ");
}

static void put_ids(s24i_json_text *text, const s24i_gguf_model *m)
{
    if (m->first >= 0) {
        put_key(text, "bos_token_id");
        s24i_json_put_integer(text, m->first);
    }
    if (m->last[0] < 0) return;
    put_key(text, "eos_token_id");
    if (m->last[1] >= 0) s24i_json_put(text, "[");
    for (int i = 0; i < 3 && m->last[i] >= 0; i++) {
        if (i) s24i_json_put(text, ", ");
        s24i_json_put_integer(text, m->last[i]);
    }
    if (m->last[1] >= 0) s24i_json_put(text, "]");
}

static void put_scaling(s24i_json_text *text, const s24i_gguf_model *m)
{
    if (!m->scaling.bytes) return;
    put_key(text, "rope_scaling");
    s24i_json_put(text, "{\"rope_type\": ");
    s24i_json_put_string(text, m->scaling.data, m->scaling.bytes);
    s24i_json_put(text, ", \"factor\": ");
    s24i_json_put_real(text, m->factor);
    if (m->original > 0) {
        s24i_json_put(text, ", \"original_max_position_embeddings\": ");
        s24i_json_put_real(text, m->original);
    }
    if (s24i_text_is(&m->scaling, "llama3"))
        s24i_json_put(text, ", \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0");
    s24i_json_put(text, "}");
}

static void write_config(s24i_json_text *text, const void *user)
{
    const s24i_gguf_model *m = user;
    const int is_mistral = m->window > 0;
    s24i_json_put(text, "{\n  \"model_type\": \"");
    s24i_json_put(text, is_mistral ? "mistral" : m->row->model_type);
    s24i_json_put(text, "\",\n  \"architectures\": [\"");
    s24i_json_put(text, is_mistral ? "MistralForCausalLM" : m->row->class);
    s24i_json_put(text, "\"],\n  ");
    s24i_json_put(text, m->row->constants);
    put_key(text, "vocab_size");
    s24i_json_put_integer(text, m->vocabulary);
    for (int i = 0; m->row->fields[i].json; i++) {
        if (m->numbers[i] < 0) continue;
        put_key(text, m->row->fields[i].json);
        s24i_json_put_real(text, m->numbers[i]);
    }
    put_scaling(text, m);
    if (m->has_bias && !strcmp(m->row->model_type, "llama"))
        s24i_json_put(text, ",\n  \"attention_bias\": true");
    s24i_json_put(text, ",\n  \"tie_word_embeddings\": ");
    s24i_json_put(text, m->has_head ? "false" : "true");
    s24i_json_put(text, ",\n  \"torch_dtype\": \"");
    s24i_json_put(text, m->dtype == S24_F32   ? "float32"
                        : m->dtype == S24_F16 ? "float16"
                                              : "bfloat16");
    s24i_json_put(text, "\"");
    put_ids(text, m);
    s24i_json_put(text, "\n}\n");
}

static void write_generation(s24i_json_text *text, const void *user)
{
    s24i_json_put(text, "{\n  \"_from_model_config\": false");
    put_ids(text, user);
    s24i_json_put(text, "\n}\n");
}

s24_status s24i_gguf_add_config(s24_writer *writer, const s24i_gguf_model *m)
{
    TRY(s24i_writer_add_text(writer, "config.json", write_config, m));
    return s24i_writer_add_text(writer, "generation_config.json", write_generation, m);
}
