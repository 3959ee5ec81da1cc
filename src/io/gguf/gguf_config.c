// SPDX-License-Identifier: Apache-2.0
/* config.json and generation_config.json of a model that a GGUF file says, by its row. */
#include <math.h>
#include <string.h>

#include "io/gguf/gguf.h"

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

static void put_real(s24i_json_text *text, const char *key, double value)
{
    if (value < 0) return;
    put_key(text, key);
    s24i_json_put_real(text, value);
}

/* The same with a point, which readers of real numbers ask for. */
static void put_pointed(s24i_json_text *text, const char *key, double value)
{
    put_real(text, key, value);
    if (value >= 0 && value < 1e15 && value == floor(value)) s24i_json_put(text, ".0");
}

static void put_switch(s24i_json_text *text, const char *key, int is_on)
{
    put_key(text, key);
    s24i_json_put(text, is_on ? "true" : "false");
}

static void put_divisors(s24i_json_text *text, const char *key, const float *divisors,
                         int64_t count)
{
    put_key(text, key);
    for (int64_t i = 0; i < count; i++) {
        s24i_json_put(text, i ? ", " : "[");
        s24i_json_put_real(text, (double)divisors[i]);
    }
    s24i_json_put(text, "]");
}

static void put_scaling(s24i_json_text *text, const s24i_gguf_model *m)
{
    if (!m->scaling.bytes) return;
    put_key(text, "rope_scaling");
    s24i_json_put(text, "{\"rope_type\": ");
    s24i_json_put_string(text, m->scaling.data, m->scaling.bytes);
    put_pointed(text, "factor", m->factor);
    put_real(text, "original_max_position_embeddings", m->original > 0 ? m->original : -1);
    put_pointed(text, "beta_fast", m->fast);
    put_pointed(text, "beta_slow", m->slow);
    if (m->loud > 0) {
        put_pointed(text, "mscale", m->loud);
        put_pointed(text, "mscale_all_dim", m->loud);
    } else {
        put_pointed(text, "attention_factor", m->louder);
    }
    if (m->pairs) {
        put_divisors(text, "short_factor", m->divisors[0], m->pairs);
        put_divisors(text, "long_factor", m->divisors[1], m->pairs);
    }
    if (s24i_text_is(&m->scaling, "llama3"))
        s24i_json_put(text, ", \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0");
    if (m->row->scaling && s24i_text_is(&m->scaling, "yarn")) s24i_json_put(text, m->row->scaling);
    s24i_json_put(text, "}");
}

static void put_fields(s24i_json_text *text, const s24i_gguf_model *m)
{
    for (int i = 0; m->row->fields[i].json; i++) {
        const s24i_gguf_field *f = &m->row->fields[i];
        const int is_window = !strcmp(f->key, ".attention.sliding_window");
        const int is_none = f->kind == S24I_GGUF_WHOLE_OR_NULL && !(m->numbers[i] > 0);
        if (is_none || (is_window && m->window == 0 && !m->row->windowed)) {
            put_key(text, f->json);
            s24i_json_put(text, "null");
        } else if (f->kind == S24I_GGUF_SWITCH && m->numbers[i] >= 0) {
            put_switch(text, f->json, m->numbers[i] > 0);
        } else if (!is_window || m->window > 0) {
            (f->kind == S24I_GGUF_REAL ? put_pointed : put_real)(text, f->json, m->numbers[i]);
        }
    }
}

/* The kind of each block. */
static void put_kinds(s24i_json_text *text, const s24i_gguf_value *windows)
{
    if (!windows) return;
    put_key(text, "layer_types");
    for (uint64_t i = 0; i < windows->count; i++) {
        s24i_json_put(text, i ? ", " : "[");
        s24i_json_put(text, windows->data[i] ? "\"sliding_attention\"" : "\"full_attention\"");
    }
    s24i_json_put(text, "]");
}

/* What is said by other means than keys. */
static void put_rest(s24i_json_text *text, const s24i_gguf_model *m)
{
    const s24i_gguf_arch *row = m->row;
    const int64_t narrow = row->blocks_of_narrow_scores;
    const int64_t width = (int64_t)s24i_gguf_number(m, ".embedding_length");
    put_scaling(text, m);
    put_kinds(text, m->windows);
    if (m->pairs) put_real(text, "original_max_position_embeddings", m->original);
    if (narrow)
        put_real(text, "query_pre_attn_scalar",
                 (double)(m->layers == narrow ? width / m->heads : m->head));
    if (row->latent) {
        put_real(text, "num_key_value_heads", (double)m->heads);
        put_real(text, "qk_nope_head_dim", (double)(m->head - m->turned));
        put_real(text, "qk_rope_head_dim", (double)m->turned);
        put_real(text, "v_head_dim", (double)m->value);
    }
    if (row->key_method) {
        put_key(text, row->key_method);
        s24i_json_put(text, s24i_gguf_number(m, ".expert_group_count") > 1
                                ? "\"group_limited_greedy\""
                                : "\"greedy\"");
    }
    if (row->key_turned) put_pointed(text, row->key_turned, (double)m->turned / (double)m->head);
    if (row->key_biases) put_switch(text, row->key_biases, m->has_bias);
    if (row->key_head_norms) put_switch(text, row->key_head_norms, m->has_head_norms);
    if (m->has_outer_bias) put_switch(text, "mlp_bias", 1);
    if (m->has_context_bias) put_switch(text, "attention_out_bias", 1);
    put_switch(text, "tie_word_embeddings", !m->has_head);
}

static void write_config(s24i_json_text *text, const void *user)
{
    const s24i_gguf_model *m = user;
    const int is_other = m->row->windowed && m->window > 0;
    s24i_json_put(text, "{\n  \"model_type\": \"");
    s24i_json_put(text, is_other ? m->row->windowed : m->row->model_type);
    s24i_json_put(text, "\",\n  \"architectures\": [\"");
    s24i_json_put(text, is_other ? m->row->windowed_class : m->row->class);
    s24i_json_put(text, "\"],\n  ");
    s24i_json_put(text, m->row->constants);
    put_key(text, "vocab_size");
    s24i_json_put_integer(text, m->vocabulary);
    put_fields(text, m);
    put_rest(text, m);
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
