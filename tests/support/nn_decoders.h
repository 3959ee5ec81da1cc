// SPDX-License-Identifier: Apache-2.0
/* Decoders that are no plain Llama, with random weights: their folders, and a model in double for
   all of them. Tensors are named by the rows. Include after support.h. */
#ifndef S24_TEST_NN_DECODERS_H
#define S24_TEST_NN_DECODERS_H

#include "model/model.h"
#include "nn_language_pass.h"
#include "sparse24/language.h"

enum { W = 32, HEADS = 4, KV = 2, D = 8, OUTER = 48, BLOCKS = 3, WORDS = 53, TOKENS = 20 };

typedef struct kind {
    const char *type, *more;
    int before, after, mean, beta, grown, side, wide, head_norms, late; /* norms */
    int turned, adjacent, joint, gate, gelu;                            /* layers */
    int tied;            /* the head is the words' embeddings, and has a bias */
    const char *windows; /* a letter for each block: w with a window, t one that turns alone */
    int window, near;
    double local_theta, embedding, residual, score, cap, logits, logits_cap; /* 0: none */
} kind;

#define WINDOWS                                                                                    \
    ", \"layer_types\": [\"sliding_attention\", \"full_attention\", "                              \
    "\"sliding_attention\"]"
#define GEMMA                                                                                      \
    .before = 1, .grown = 1, .turned = D, .gate = 1, .gelu = 1, .embedding = 5.656854249492381

static const kind kinds[] = {
    {"gemma", "", GEMMA},
    {"gemma2",
     ", \"query_pre_attn_scalar\": 3, \"sliding_window\": 5, \"attn_logit_softcapping\": 2, "
     "\"final_logit_softcapping\": 3",
     GEMMA, .after = 1, .windows = "w-w", .window = 5, .score = 0.5773502691896258, .cap = 2,
     .logits_cap = 3},
    {"gemma3_text",
     ", \"query_pre_attn_scalar\": 8, \"sliding_window\": 4, \"rope_theta\": 10000, "
     "\"rope_local_base_freq\": 100" WINDOWS,
     GEMMA, .after = 1, .head_norms = 1, .windows = "w-w", .window = 4, .local_theta = 100},
    {"gemma3_text",
     ", \"query_pre_attn_scalar\": 8, \"sliding_window\": 6, \"rope_theta\": 10000, "
     "\"use_bidirectional_attention\": true, \"rope_local_base_freq\": 100" WINDOWS,
     GEMMA, .after = 1, .head_norms = 1, .windows = "w-w", .near = 4, .local_theta = 100},
    {"granite",
     ", \"embedding_multiplier\": 3, \"residual_multiplier\": 0.25, \"attention_multiplier\": 0.5, "
     "\"logits_scaling\": 4",
     .before = 1, .turned = D, .gate = 1, .embedding = 3, .residual = 0.25, .score = 0.5,
     .logits = 0.25},
    {"olmo2", "", .after = 1, .turned = D, .gate = 1, .wide = 1, .head_norms = 1},
    {"olmo3", ", \"rope_theta\": 10000, \"sliding_window\": 5" WINDOWS, .after = 1, .turned = D,
     .gate = 1, .wide = 1, .head_norms = 1, .windows = "w-w", .window = 5, .local_theta = 10000},
    {"helium", ", \"rope_theta\": 10000", .before = 1, .turned = D, .adjacent = 1, .gate = 1},
    {"ernie4_5", ", \"rope_theta\": 10000", .before = 1, .turned = D, .adjacent = 1, .gate = 1},
    {"nemotron", "", .before = 1, .mean = 1, .beta = 1, .grown = 1, .turned = 4, .gelu = 1},
    {"phi", ", \"partial_rotary_factor\": 0.75, \"tie_word_embeddings\": true", .before = 1,
     .mean = 1, .beta = 1, .side = 1, .turned = 6, .gelu = 1, .tied = 1},
    {"gpt_neox", ", \"rotary_pct\": 0.5", .before = 1, .mean = 1, .beta = 1, .side = 1, .turned = 4,
     .joint = 1, .gelu = 1},
    {"stablelm", "", .before = 1, .mean = 1, .beta = 1, .turned = 2, .gate = 1},
    {"glm", "", .before = 1, .turned = 4, .adjacent = 1, .gate = 2},
    {"glm4", "", .before = 1, .after = 1, .turned = 4, .adjacent = 1, .gate = 2},
    {"cohere", ", \"rope_theta\": 10000", .before = 1, .mean = 1, .side = 1, .turned = D,
     .adjacent = 1, .gate = 1, .logits = 0.0625},
    {"cohere2", ", \"sliding_window\": 5, \"sliding_window_pattern\": 2", .before = 1, .mean = 1,
     .side = 1, .turned = D, .adjacent = 1, .gate = 1, .windows = "t-t", .window = 5,
     .logits = 0.0625},
    {"exaone4", ", \"sliding_window\": 5" WINDOWS, .after = 1, .turned = D, .gate = 1,
     .head_norms = 1, .windows = "t-t", .window = 5},
    {"hunyuan_v1_dense", "", .before = 1, .turned = D, .gate = 1, .head_norms = 1, .late = 1}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- folders --------------------------------------------------------------------------------- */

static inline int kv_of(const kind *k)
{
    return k->joint ? HEADS : KV;
}

static inline void full_name(char name[S24I_NAME_BYTES], const kind *k, const char *pattern, int b,
                             const char *suffix)
{
    char bare[S24I_NAME_BYTES];
    const s24i_architecture *a = s24i_architecture_find(k->type);
    s24i_tensor_name(bare, pattern, b, suffix);
    snprintf(name, S24I_NAME_BYTES, "%s%s", pattern == a->lm_head ? "" : a->prefix, bare);
}

static inline void add(lm_writer *w, const kind *k, const char *pattern, int b, int64_t rows,
                       int64_t cols)
{
    char name[S24I_NAME_BYTES];
    full_name(name, k, pattern, b, cols || strstr(pattern, "norm") ? ".weight" : "");
    for (int i = 0; i < w->count; i++)
        if (!strcmp(w->names[i], name)) return; /* one norm of two halves */
    lm_add(w, name, rows, cols);
    if (cols || !k->beta) return;
    full_name(name, k, pattern, b, ".bias");
    lm_add(w, name, rows, 0);
}

static inline void write_block(lm_writer *w, const kind *k, const s24i_architecture *a, int b)
{
    const int kv = kv_of(k);
    const char *const norms[] = {a->attention_norm, a->output_norm, a->after_attention_norm,
                                 a->after_output_norm};
    for (int i = 0; i < 4; i++)
        if (norms[i]) add(w, k, norms[i], b, W, 0);
    if (k->head_norms) add(w, k, a->query_norm, b, k->wide ? HEADS * D : D, 0);
    if (k->head_norms) add(w, k, a->key_norm, b, k->wide ? KV * D : D, 0);
    add(w, k, a->slots[S24I_QUERY], b, k->joint ? 3 * HEADS * D : HEADS * D, W);
    if (!k->joint) add(w, k, a->slots[S24I_KEY], b, kv * D, W);
    if (!k->joint) add(w, k, a->slots[S24I_VALUE], b, kv * D, W);
    add(w, k, a->slots[S24I_ATTENTION], b, W, HEADS * D);
    if (k->gate == 1) add(w, k, a->slots[S24I_GATE], b, OUTER, W);
    add(w, k, a->slots[S24I_INTERMEDIATE], b, k->gate == 2 ? 2 * OUTER : OUTER, W);
    add(w, k, a->slots[S24I_OUTPUT], b, W, OUTER);
}

static inline const char *write_folder(const kind *k)
{
    char path[600], name[S24I_NAME_BYTES];
    const char *folder = io_path("model");
    const s24i_architecture *a = s24i_architecture_find(k->type);
    lm_writer *w = calloc(1, sizeof *w);
    w->state = 5;
    io_remove(folder);
    mkdir(folder, 0700);
    full_name(name, k, a->words, 0, "");
    lm_add(w, name, WORDS, W);
    for (int b = 0; b < BLOCKS; b++)
        write_block(w, k, a, b);
    add(w, k, a->final_norm, 0, W, 0);
    full_name(name, k, a->lm_head, 0, ".bias");
    if (k->tied)
        lm_add(w, name, WORDS, 0);
    else
        add(w, k, a->lm_head, 0, WORDS, W);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    mini_write(path, w->tensors, w->count, NULL);
    for (int i = 0; i < w->count; i++)
        free((void *)(uintptr_t)w->tensors[i].data);
    free(w);
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f,
            "{\"model_type\": \"%s\", \"vocab_size\": %d, \"max_position_embeddings\": 64, "
            "\"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
            "\"num_key_value_heads\": %d, \"intermediate_size\": %d, \"%s\": 1e-5, \"%s\": \"%s\"",
            k->type, WORDS, W, BLOCKS, HEADS, kv_of(k), OUTER,
            k->mean ? "layer_norm_eps" : "rms_norm_eps", a->key_activation,
            k->gelu ? "gelu_pytorch_tanh" : "silu");
    if (!k->joint) fprintf(f, ", \"head_dim\": %d", D);
    fprintf(f, "%s}", k->more);
    assert_int_equal(fclose(f), 0);
    return folder;
}

/* ---- the model in double --------------------------------------------------------------------- */

typedef struct plain {
    const kind *k;
    const s24i_architecture *a;
    mini_file file;
} plain;

static inline const float *find(const plain *p, const char *pattern, int b, const char *suffix)
{
    char name[S24I_NAME_BYTES];
    full_name(name, p->k, pattern, b, suffix);
    return mini_get(&p->file, name).data;
}

static inline void multiply(double *y, const float *w, const double *x, int n, int columns)
{
    for (int r = 0; r < n; r++) {
        y[r] = 0;
        for (int i = 0; i < columns; i++)
            y[r] += (double)w[r * columns + i] * x[i];
    }
}

static inline void norm(double *y, const plain *p, const char *pattern, int b, const double *x,
                        int n)
{
    const float *weight = find(p, pattern, b, ".weight");
    const float *beta = p->k->beta ? find(p, pattern, b, ".bias") : NULL;
    double mean = 0, square = 0;
    for (int i = 0; p->k->mean && i < n; i++)
        mean += x[i] / n;
    for (int i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(square + 1e-5) * ((double)weight[i] + p->k->grown) +
               (beta ? (double)beta[i] : 0);
}

static inline void turn(double *x, const plain *p, int b, int position)
{
    const kind *k = p->k;
    const char letter = k->windows ? k->windows[b] : 0;
    const int half = k->turned / 2;
    const double theta = letter == 'w' && k->local_theta > 0 ? k->local_theta : 10000;
    if (k->windows && strchr(k->windows, 't') && letter != 't') return;
    for (int i = 0; i < half; i++) {
        double *u = k->adjacent ? x + 2 * i : x + i, *v = k->adjacent ? u + 1 : u + half;
        const double angle = position * pow(theta, -2.0 * i / k->turned), c = *u, d = *v;
        *u = c * cos(angle) - d * sin(angle);
        *v = d * cos(angle) + c * sin(angle);
    }
}

/* Queries, keys and values of a token, [HEADS or fewer, D] each. */
typedef struct token {
    double q[HEADS * D], k[HEADS * D], v[HEADS * D];
} token;

static inline void project(token *t, const plain *p, int b, const double *x, int position)
{
    const kind *k = p->k;
    const int kv = kv_of(k);
    double all[3 * HEADS * D], raw[HEADS * D];
    if (k->joint) {
        multiply(all, find(p, p->a->slots[S24I_QUERY], b, ".weight"), x, 3 * HEADS * D, W);
        for (int h = 0; h < HEADS; h++) {
            memcpy(t->q + h * D, all + 3 * h * D, sizeof(double) * D);
            memcpy(t->k + h * D, all + (3 * h + 1) * D, sizeof(double) * D);
            memcpy(t->v + h * D, all + (3 * h + 2) * D, sizeof(double) * D);
        }
    } else {
        multiply(t->q, find(p, p->a->slots[S24I_QUERY], b, ".weight"), x, HEADS * D, W);
        multiply(t->k, find(p, p->a->slots[S24I_KEY], b, ".weight"), x, kv * D, W);
        multiply(t->v, find(p, p->a->slots[S24I_VALUE], b, ".weight"), x, kv * D, W);
    }
    for (int h = 0; k->late && h < HEADS; h++)
        turn(t->q + h * D, p, b, position);
    for (int h = 0; k->late && h < kv; h++)
        turn(t->k + h * D, p, b, position);
    for (int of_keys = 0; k->head_norms && of_keys < 2; of_keys++) {
        double *to = of_keys ? t->k : t->q;
        const int heads = of_keys ? kv : HEADS, n = k->wide ? heads * D : D;
        memcpy(raw, to, sizeof raw);
        for (int h = 0; h < (k->wide ? 1 : heads); h++)
            norm(to + h * n, p, of_keys ? p->a->key_norm : p->a->query_norm, b, raw + h * n, n);
    }
    for (int h = 0; !k->late && h < HEADS; h++)
        turn(t->q + h * D, p, b, position);
    for (int h = 0; !k->late && h < kv; h++)
        turn(t->k + h * D, p, b, position);
}

static inline int sees(const kind *k, int b, int t, int s)
{
    const int windowed = k->windows && k->windows[b] != '-';
    if (k->near) return !windowed || abs(t - s) < k->near;
    return s <= t && (!windowed || t - s < k->window);
}

static inline void attend(double *y, const plain *p, int b, const token *tokens, int count, int t)
{
    const kind *k = p->k;
    const double scale = k->score > 0 ? k->score : 1 / sqrt(D);
    double context[HEADS * D] = {0};
    for (int h = 0; h < HEADS; h++) {
        const int from = h / (HEADS / kv_of(k));
        double weights[TOKENS], sum = 0;
        for (int s = 0; s < count; s++) {
            double x = 0;
            for (int i = 0; i < D; i++)
                x += tokens[t].q[h * D + i] * tokens[s].k[from * D + i] * scale;
            if (k->cap > 0) x = k->cap * tanh(x / k->cap);
            weights[s] = sees(k, b, t, s) ? exp(x) : 0;
            sum += weights[s];
        }
        for (int s = 0; s < count; s++)
            for (int i = 0; i < D; i++)
                context[h * D + i] += weights[s] / sum * tokens[s].v[from * D + i];
    }
    multiply(y, find(p, p->a->slots[S24I_ATTENTION], b, ".weight"), context, W, HEADS * D);
}

static inline void outer(double *y, const plain *p, int b, const double *x)
{
    const kind *k = p->k;
    double up[2 * OUTER], gate[OUTER], *const joined = up + (k->gate == 2 ? OUTER : 0);
    multiply(up, find(p, p->a->slots[S24I_INTERMEDIATE], b, ".weight"), x,
             k->gate == 2 ? 2 * OUTER : OUTER, W);
    if (k->gate == 1) multiply(gate, find(p, p->a->slots[S24I_GATE], b, ".weight"), x, OUTER, W);
    for (int i = 0; i < OUTER; i++) {
        const double g = k->gate == 1 ? gate[i] : up[i];
        const double bent =
            k->gelu ? g / 2 * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)))
                    : g / (1 + exp(-g));
        gate[i] = k->gate ? bent * joined[i] : bent;
    }
    multiply(y, find(p, p->a->slots[S24I_OUTPUT], b, ".weight"), gate, W, OUTER);
}

/* x += what a half gives, by way of its norm and factor. */
static inline void join(double *x, const plain *p, const char *after, int b, const double *made)
{
    double normed[W];
    memcpy(normed, made, sizeof normed);
    if (p->k->after) norm(normed, p, after, b, made, W);
    for (int i = 0; i < W; i++)
        x[i] += (p->k->residual > 0 ? p->k->residual : 1) * normed[i];
}

static inline void run_block(double (*x)[W], const plain *p, int b, int count)
{
    const kind *k = p->k;
    token *tokens = calloc((size_t)count, sizeof *tokens);
    double read[W], made[W], inner[W];
    for (int t = 0; t < count; t++) {
        memcpy(read, x[t], sizeof read);
        if (k->before) norm(read, p, p->a->attention_norm, b, x[t], W);
        project(&tokens[t], p, b, read, t);
    }
    for (int t = 0; t < count; t++) {
        attend(made, p, b, tokens, count, t);
        if (!k->side) join(x[t], p, p->a->after_attention_norm, b, made);
        memcpy(read, x[t], sizeof read);
        if (k->before) norm(read, p, p->a->output_norm, b, x[t], W);
        outer(inner, p, b, read);
        if (k->side) join(x[t], p, NULL, b, made);
        join(x[t], p, p->a->after_output_norm, b, inner);
    }
    free(tokens);
}

/* States after the last norm and logits of one text. */
static inline void run_plain(float *states, float *logits, const kind *k, const char *folder,
                             const int32_t *ids, int count)
{
    char path[600];
    double(*x)[W] = calloc((size_t)count, sizeof *x), normed[W], row[WORDS];
    plain p = {.k = k, .a = s24i_architecture_find(k->type)};
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    p.file = mini_open(path);
    const float *words = find(&p, p.a->words, 0, "");
    for (int t = 0; t < count; t++)
        for (int i = 0; i < W; i++)
            x[t][i] = (double)words[ids[t] * W + i] * (k->embedding > 0 ? k->embedding : 1);
    for (int b = 0; b < BLOCKS; b++)
        run_block(x, &p, b, count);
    for (int t = 0; t < count; t++) {
        norm(normed, &p, p.a->final_norm, 0, x[t], W);
        multiply(row, k->tied ? words : find(&p, p.a->lm_head, 0, ".weight"), normed, WORDS, W);
        for (int i = 0; k->tied && i < WORDS; i++)
            row[i] += (double)find(&p, p.a->lm_head, 0, ".bias")[i];
        for (int i = 0; i < W; i++)
            states[t * W + i] = (float)normed[i];
        for (int i = 0; i < WORDS; i++) {
            if (k->logits > 0) row[i] *= k->logits;
            if (k->logits_cap > 0) row[i] = k->logits_cap * tanh(row[i] / k->logits_cap);
            logits[t * WORDS + i] = (float)row[i];
        }
    }
    mini_close(&p.file);
    free(x);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

typedef struct given_text {
    float states[TOKENS * W], logits[TOKENS * WORDS];
} given_text;

static inline void fill_ids(int32_t ids[TOKENS])
{
    uint64_t state = 9;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)(test_random(&state) % WORDS);
}

/* The text in pieces of `step` tokens, which a cache joins where there is more than one. */
static inline void pass(given_text *to, s24_ctx *ctx, const s24_model *model, const int32_t *ids,
                        int step)
{
    s24_session *session;
    s24_cache *cache = NULL;
    const s24_cache_opts opts = {.size = sizeof opts, .tokens = TOKENS};
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    if (step < TOKENS) OK(ctx, s24_cache_create(&cache, ctx, session, &opts));
    for (int t = 0; t < TOKENS; t += step) {
        const int64_t offsets[] = {0, step};
        const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids + t};
        const s24_outputs outputs = {.hidden = to->states + t * W,
                                     .logits = model->lm_head.n ? to->logits + t * WORDS : NULL};
        const s24_extension more = {.batch = &batch};
        OK(ctx, cache ? s24_session_extend(session, ctx, cache, &more, &outputs)
                      : s24_session_forward(session, ctx, &batch, &outputs));
    }
    s24_cache_destroy(cache);
    s24_session_destroy(session);
}

static inline void compare(const given_text *want, const given_text *got, const s24_model *model,
                           double bound, const char *type)
{
    near(want->states, got->states, TOKENS * W, bound, type);
    if (model->lm_head.n) near(want->logits, got->logits, TOKENS * WORDS, bound, type);
}

#endif
