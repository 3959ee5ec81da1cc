// SPDX-License-Identifier: Apache-2.0
/*
 * A model of a GGUF file by its row of gguf_rows.c: what its keys say. A key of the model that no
 * row names is refused, since it may change what is computed.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/gguf/gguf.h"

/* ---- keys ------------------------------------------------------------------------------------ */

static const char windows_key[] = ".attention.sliding_window_pattern";

/* Keys of a model that are read next to its row's fields, or say nothing that is computed. */
static int is_known(const s24i_gguf_arch *r, const char *key)
{
    static const char *const others[] = {".vocab_size",
                                         ".attention.value_length",
                                         ".rope.dimension_count",
                                         ".rope.scaling.type",
                                         ".rope.scaling.factor",
                                         ".rope.scaling.original_context_length",
                                         ".rope.scaling.finetuned",
                                         ".rope.scaling.yarn_beta_fast",
                                         ".rope.scaling.yarn_beta_slow",
                                         ".rope.scaling.yarn_attn_factor",
                                         ".rope.scaling.attn_factor",
                                         ".tensor_data_layout",
                                         ".expert_count",
                                         ".expert_used_count",
                                         ".expert_gating_func",
                                         ".expert_feed_forward_length",
                                         ".nextn_predict_layers",
                                         NULL};
    static const char *const of_latents[] = {".attention.head_count_kv",
                                             ".attention.key_length",
                                             ".attention.key_length_mla",
                                             ".attention.value_length_mla",
                                             ".rope.scaling.yarn_log_multiplier",
                                             ".leading_dense_block_count",
                                             ".expert_shared_count",
                                             NULL};
    for (const s24i_gguf_field *f = r->fields; f->json; f++)
        if (!strcmp(f->key, key)) return 1;
    for (int i = 0; r->latent && of_latents[i]; i++)
        if (!strcmp(of_latents[i], key)) return 1;
    if (r->lists_windows && !strcmp(key, windows_key)) return 1;
    for (int i = 0; others[i]; i++)
        if (!strcmp(others[i], key)) return 1;
    return 0;
}

static s24_status check_keys(const s24i_gguf *g, const s24i_gguf_arch *r)
{
    const size_t bytes = strlen(r->architecture);
    for (int64_t i = 0; i < g->keys.count; i++) {
        const char *key = g->keys.names[i];
        if (strncmp(key, r->architecture, bytes) != 0 || key[bytes] != '.') continue;
        REQUIRE(g->ctx, is_known(r, key + bytes), S24_ERROR_UNSUPPORTED,
                "%s: key \"%s\" of a %s model is not supported", g->path, s24i_show(key).text,
                r->architecture);
    }
    return S24_OK;
}

static s24_status read_field(double *out, const s24i_gguf *g, const s24i_gguf_field *f)
{
    const s24i_need need = f->is_needed ? S24I_REQUIRED : S24I_OPTIONAL;
    int64_t whole = -1;
    int is_on = -1;
    *out = f->fallback;
    switch (f->kind) {
    case S24I_GGUF_REAL:
        TRY(s24i_gguf_real(out, g, f->key, need));
        REQUIRE(g->ctx, *out >= 0 || *out == f->fallback, S24_ERROR_FORMAT,
                "%s: key \"%s%s\" is %g, 0 or more is expected", g->path, g->architecture, f->key,
                *out);
        return S24_OK;
    case S24I_GGUF_WHOLE:
    case S24I_GGUF_WHOLE_OR_NULL:
        TRY(s24i_gguf_int(&whole, g, f->key, need, 1 << 28));
        if (whole >= 0) *out = (double)whole;
        return S24_OK;
    default:
        TRY(s24i_gguf_bool(&is_on, g, f->key));
        if (is_on >= 0) *out = is_on;
        return S24_OK;
    }
}

static s24_status read_fields(s24i_gguf_model *m, const s24i_gguf *g)
{
    for (int i = 0; m->row->fields[i].json; i++)
        TRY(read_field(&m->numbers[i], g, &m->row->fields[i]));
    return S24_OK;
}

/* How experts are scored, where a file says it. */
static s24_status check_scores(const s24i_gguf_model *m, const s24i_gguf *g)
{
    int64_t way = m->row->scores;
    TRY(s24i_gguf_int(&way, g, ".expert_gating_func", S24I_OPTIONAL, 1 << 8));
    REQUIRE(g->ctx, way == m->row->scores, S24_ERROR_UNSUPPORTED,
            "%s: key \"%s.expert_gating_func\" is %lld; only %d is supported of such models",
            g->path, g->architecture, (long long)way, m->row->scores);
    return S24_OK;
}

/* Blocks that draft tokens to come are counted with the others, and stand after them. */
static s24_status read_layers(s24i_gguf_model *m, const s24i_gguf *g)
{
    m->layers = (int64_t)s24i_gguf_number(m, ".block_count");
    TRY(s24i_gguf_int(&m->drafting, g, ".nextn_predict_layers", S24I_OPTIONAL, m->layers));
    m->layers -= m->drafting;
    for (int i = 0; m->row->fields[i].json; i++)
        if (!strcmp(m->row->fields[i].key, ".block_count")) m->numbers[i] = (double)m->layers;
    return S24_OK;
}

double s24i_gguf_number(const s24i_gguf_model *m, const char *key)
{
    for (int i = 0; m->row->fields[i].json; i++)
        if (!strcmp(m->row->fields[i].key, key)) return m->numbers[i];
    return -1;
}

/* Widths of a head's keys and values, which files from before 2025 have under the keys of any
   model. */
static s24_status read_latents(s24i_gguf_model *m, const s24i_gguf *g)
{
    const int is_old = !s24i_gguf_find(g, ".attention.key_length_mla");
    const char *const key = is_old ? ".attention.key_length" : ".attention.key_length_mla",
                      *const value =
                          is_old ? ".attention.value_length" : ".attention.value_length_mla";
    m->heads = m->kv_heads = (int64_t)s24i_gguf_number(m, ".attention.head_count");
    TRY(s24i_gguf_int(&m->head, g, key, S24I_REQUIRED, 1 << 20));
    TRY(s24i_gguf_int(&m->value, g, value, S24I_REQUIRED, 1 << 20));
    TRY(s24i_gguf_int(&m->turned, g, ".rope.dimension_count", S24I_REQUIRED, 1 << 20));
    REQUIRE(g->ctx, m->heads > 0 && m->turned > 0 && m->turned < m->head && m->value > 0,
            S24_ERROR_FORMAT,
            "%s: %lld heads whose keys have %lld elements, of which %lld turn, and values %lld; "
            "expected more than 0, and keys of more than what turns",
            g->path, (long long)m->heads, (long long)m->head, (long long)m->turned,
            (long long)m->value);
    return S24_OK;
}

static s24_status read_heads(s24i_gguf_model *m, const s24i_gguf *g)
{
    const int64_t width = (int64_t)s24i_gguf_number(m, ".embedding_length");
    const int64_t kv = (int64_t)s24i_gguf_number(m, ".attention.head_count_kv");
    const int64_t said = (int64_t)s24i_gguf_number(m, ".attention.key_length");
    m->heads = (int64_t)s24i_gguf_number(m, ".attention.head_count");
    m->kv_heads = kv < 0 ? m->heads : kv;
    REQUIRE(g->ctx, m->heads > 0 && m->kv_heads > 0, S24_ERROR_FORMAT,
            "%s: key \"%s.attention.head_count\" or …_kv is 0", g->path, g->architecture);
    m->head = m->turned = said < 0 ? width / m->heads : said;
    int64_t value = m->head;
    TRY(s24i_gguf_int(&value, g, ".attention.value_length", S24I_OPTIONAL, 1 << 28));
    TRY(s24i_gguf_int(&m->turned, g, ".rope.dimension_count", S24I_OPTIONAL, 1 << 28));
    const int turns = m->row->key_turned ? m->turned <= m->head : m->turned == m->head;
    REQUIRE(g->ctx, value == m->head && turns && m->head > 0, S24_ERROR_UNSUPPORTED,
            "%s: key \"%s.%s\" is %lld; only that of all %lld of a head is supported", g->path,
            g->architecture, value == m->head ? "rope.dimension_count" : "attention.value_length",
            (long long)(value == m->head ? m->turned : value), (long long)m->head);
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
    const double theta = s24i_gguf_number(m, ".rope.freq_base");
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

/* LongRoPE's divisors of frequencies, which two tensors have; is_said: a key says that they do. */
static s24_status read_divisors(s24i_gguf_model *m, const s24i_gguf *g, int is_said)
{
    static const char *const names[2] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    int64_t original = 0;
    const s24i_gguf_tensor *given[2];
    for (int i = 0; i < 2; i++)
        given[i] = s24i_gguf_tensor_of(g, names[i]);
    if (!is_said && !given[0] && !given[1]) return S24_OK;
    for (int i = 0; i < 2; i++) {
        const s24i_gguf_tensor *t = given[i];
        REQUIRE(g->ctx,
                t && t->rank == 1 && t->shape[0] == m->turned / 2 && t->shape[0] <= S24I_GGUF_PAIRS,
                S24_ERROR_FORMAT,
                "%s: tensor \"%s\" is missing, or has not one number for each of "
                "%lld pairs, at most %d",
                g->path, names[i], (long long)m->turned / 2, S24I_GGUF_PAIRS);
        TRY(s24i_gguf_row(m->divisors[i], t->type, t->data, t->shape[0]));
    }
    TRY(s24i_gguf_int(&original, g, ".rope.scaling.original_context_length", S24I_REQUIRED,
                      1 << 28));
    TRY(s24i_gguf_real(&m->louder, g, ".rope.scaling.attn_factor", S24I_OPTIONAL));
    m->pairs = m->turned / 2;
    m->scaling = (s24_text){"longrope", 8};
    m->factor = -1;
    m->original = (double)original;
    return S24_OK;
}

static s24_status read_scaling(s24i_gguf_model *m, const s24i_gguf *g)
{
    s24_text kind = {"none", 4};
    int64_t original = -1;
    m->fast = m->slow = m->louder = -1;
    TRY(s24i_gguf_text(&kind, g, ".rope.scaling.type", S24I_OPTIONAL));
    const int is_yarn = s24i_text_is(&kind, "yarn");
    const int is_long = s24i_text_is(&kind, "longrope");
    REQUIRE(
        g->ctx, is_yarn || is_long || s24i_text_is(&kind, "linear") || s24i_text_is(&kind, "none"),
        S24_ERROR_UNSUPPORTED,
        "%s: key \"%s.rope.scaling.type\" is not supported, only none, linear, yarn and longrope",
        g->path, g->architecture);
    TRY(read_divisors(m, g, is_long));
    if (m->pairs || s24i_text_is(&kind, "none")) return S24_OK;
    m->scaling = kind;
    TRY(s24i_gguf_real(&m->factor, g, ".rope.scaling.factor", S24I_REQUIRED));
    TRY(s24i_gguf_int(&original, g, ".rope.scaling.original_context_length",
                      is_yarn ? S24I_REQUIRED : S24I_OPTIONAL, 1 << 28));
    m->original = (double)original;
    TRY(s24i_gguf_real(&m->fast, g, ".rope.scaling.yarn_beta_fast", S24I_OPTIONAL));
    TRY(s24i_gguf_real(&m->slow, g, ".rope.scaling.yarn_beta_slow", S24I_OPTIONAL));
    TRY(s24i_gguf_real(&m->louder, g, ".rope.scaling.yarn_attn_factor", S24I_OPTIONAL));
    if (!m->row->latent || !is_yarn) return S24_OK;
    m->louder = 1; /* of angles, where scores are louder or nothing is */
    double tenth = 0;
    TRY(s24i_gguf_real(&tenth, g, ".rope.scaling.yarn_log_multiplier", S24I_OPTIONAL));
    m->loud = round(tenth * 1e7) / 1e6; /* as it was before it was narrowed */
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

static s24_status read_windows(s24i_gguf_model *m, const s24i_gguf *g)
{
    if (!m->row->lists_windows || !m->window) return S24_OK;
    TRY(s24i_gguf_array(&m->windows, g, windows_key, S24I_GGUF_BOOL, S24I_OPTIONAL));
    REQUIRE(g->ctx, !m->windows || m->windows->count == (uint64_t)m->layers, S24_ERROR_FORMAT,
            "%s: key \"%s%s\" has %llu elements, for %lld blocks", g->path, g->architecture,
            windows_key, (unsigned long long)m->windows->count, (long long)m->layers);
    return S24_OK;
}

/* The architecture's row of models with experts or of those without, of several that whose experts
   are scored so, or the first; *is_known: it has any. */
static s24_status pick_row(s24i_gguf_model *m, const s24i_gguf *g, int *is_known)
{
    int64_t experts = 0, way = 0;
    for (const s24i_gguf_arch *r = s24i_gguf_archs; r->architecture; r++)
        *is_known |= !strcmp(r->architecture, g->architecture);
    if (*is_known) TRY(s24i_gguf_int(&experts, g, ".expert_count", S24I_OPTIONAL, 1 << 16));
    TRY(s24i_gguf_int(&way, g, ".expert_gating_func", S24I_OPTIONAL, 1 << 8));
    for (const s24i_gguf_arch *r = s24i_gguf_archs; r->architecture; r++)
        if (!strcmp(r->architecture, g->architecture) && r->experts == (experts > 0) &&
            (!m->row || r->scores == way))
            m->row = r;
    REQUIRE(g->ctx, m->row || !*is_known, S24_ERROR_UNSUPPORTED,
            "%s: key \"%s.expert_count\" is %lld; a model %s experts is not supported", g->path,
            g->architecture, (long long)experts, experts ? "of" : "without");
    return S24_OK;
}

static s24_status find_row(s24i_gguf_model *m, const s24i_gguf *g)
{
    char known[320] = "";
    size_t used = 0;
    int is_known = 0;
    TRY(pick_row(m, g, &is_known));
    for (const s24i_gguf_arch *r = s24i_gguf_archs; r->architecture; r++) {
        int is_second = 0;
        for (const s24i_gguf_arch *before = s24i_gguf_archs; before < r; before++)
            is_second |= !strcmp(before->architecture, r->architecture);
        if (is_second) continue;
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                 r->architecture);
        if (used >= sizeof known) used = sizeof known - 1;
    }
    REQUIRE(g->ctx, m->row, S24_ERROR_UNSUPPORTED,
            "%s: key \"general.architecture\" is '%s', which is not supported, only %s", g->path,
            s24i_show(g->architecture).text, known);
    return S24_OK;
}

s24_status s24i_gguf_model_read(s24i_gguf_model *out, const s24i_gguf *g)
{
    *out = (s24i_gguf_model){.row = NULL};
    TRY(find_row(out, g));
    TRY(check_keys(g, out->row));
    TRY(read_fields(out, g));
    TRY(check_scores(out, g));
    TRY(read_layers(out, g));
    TRY((out->row->latent ? read_latents : read_heads)(out, g));
    TRY(read_scaling(out, g));
    TRY(read_frequencies(out, g));
    const s24i_gguf_tensor *words = s24i_gguf_tensor_of(g, "token_embd.weight");
    REQUIRE(g->ctx, words && words->rank == 2, S24_ERROR_FORMAT,
            "%s: tensor \"token_embd.weight\" is missing or no matrix", g->path);
    out->vocabulary = words->shape[0];
    out->has_head = s24i_gguf_tensor_of(g, "output.weight") != NULL;
    out->has_bias = s24i_gguf_tensor_of(g, "blk.0.attn_q.bias") != NULL;
    out->has_outer_bias = s24i_gguf_tensor_of(g, "blk.0.ffn_down.bias") != NULL;
    out->has_context_bias = s24i_gguf_tensor_of(g, "blk.0.attn_output.bias") != NULL;
    out->has_head_norms = s24i_gguf_tensor_of(g, "blk.0.attn_q_norm.weight") != NULL;
    const double window = s24i_gguf_number(out, ".attention.sliding_window");
    out->window = window > 0 ? (int64_t)window : 0;
    TRY(read_windows(out, g));
    return read_ids(out, g);
}
