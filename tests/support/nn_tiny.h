// SPDX-License-Identifier: Apache-2.0
/*
 * A BERT of a few hundred weights: its folder on disk with whatever spelling or fault a test wants,
 * and the same arithmetic in f64 loops. Weights are functions of their name, so that both sides
 * know them without sharing anything. Include after support.h.
 */
#ifndef S24_TEST_NN_TINY_H
#define S24_TEST_NN_TINY_H

#include <math.h>
#include <sys/stat.h>

#include "activation.h"
#include "nn_io.h"
#include "safetensors_mini.h"

enum {
    TINY_VOCABULARY = 11,
    TINY_POSITIONS = 9,
    TINY_WIDTH = 12,
    TINY_HEADS = 3,
    TINY_LAYERS = 2,
    TINY_OUTER = 20,
    TINY_LATE = 5, /* numbers of a token's vector */
    TINY_TENSORS = 64
};

/* How the folder is spelled. Zero: a bare f32 encoder with two token types, gelu. */
typedef struct tiny {
    const char *prefix; /* "bert." or NULL */
    int types;          /* of token, less 2 */
    int old_norms;      /* gamma and beta */
    int qa_head, words_head, late_head;
    s24_dtype dtype;               /* of all weights */
    const char *activation;        /* NULL: the key is not written */
    const char *drop;              /* leave this tensor out (without prefix) */
    const char *bend;              /* give this tensor one row too many */
    const char *retype;            /* make this tensor i64 */
    const char *config;            /* the whole config.json instead */
    const char *modules, *pooling; /* contents of modules.json and 1_Pooling/config.json */
} tiny;

/* Element i of a tensor: in (−1, 1) and exact in bf16, so that every dtype holds the same value. */
static inline float tiny_value(const char *name, int64_t i)
{
    uint64_t state = 1469598103934665603u;
    for (const char *c = name; *c; c++)
        state = (state ^ (uint64_t)*c) * 1099511628211u;
    state += (uint64_t)i * 0x9e3779b97f4a7c15u;
    const float value = (float)((int64_t)(test_random(&state) % 255) - 127) / 128.0f;
    return strstr(name, "LayerNorm.weight") ? 1.0f + value : value;
}

typedef struct tiny_writer {
    const tiny *t;
    mini_tensor tensors[TINY_TENSORS];
    char names[TINY_TENSORS][96];
    int count;
} tiny_writer;

/* `known` is the name that decides the values; spelling may differ. */
static inline void tiny_add(tiny_writer *w, const char *known, int64_t rows, int64_t cols)
{
    const tiny *t = w->t;
    if (t->drop && !strcmp(t->drop, known)) return;
    char *name = w->names[w->count];
    const char *norm = t->old_norms ? strstr(known, "LayerNorm.") : NULL;
    snprintf(name, sizeof w->names[0], "%s%.*s%s",
             t->prefix && strncmp(known, "qa_", 3) && strncmp(known, "cls.", 4) &&
                     strncmp(known, "linear.", 7)
                 ? t->prefix
                 : "",
             norm ? (int)(norm - known) + 10 : 95, known,
             !norm                          ? ""
             : strstr(known, "Norm.weight") ? "gamma"
                                            : "beta");
    if (t->bend && !strcmp(t->bend, known)) rows++;
    const s24_dtype dtype = t->retype && !strcmp(t->retype, known) ? S24_I64
                            : t->dtype                             ? t->dtype
                                                                   : S24_F32;
    const int64_t count = rows * (cols ? cols : 1);
    const size_t bytes = (size_t)count * s24_dtype_bytes(dtype);
    void *data = calloc(1, bytes);
    float *values = malloc((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        values[i] = tiny_value(known, i);
    if (dtype != S24_I64)
        assert_int_equal(s24_convert(data, dtype, values, S24_F32, count), S24_OK);
    free(values);
    w->tensors[w->count++] = (mini_tensor){.name = name,
                                           .dtype = dtype,
                                           .rank = cols ? 2 : 1,
                                           .shape = {rows, cols},
                                           .data = data,
                                           .bytes = bytes};
}

static inline void tiny_add_layer(tiny_writer *w, int block, const char *layer, int64_t rows,
                                  int64_t cols)
{
    char name[96];
    snprintf(name, sizeof name, "encoder.layer.%d.%s.weight", block, layer);
    tiny_add(w, name, rows, cols);
    snprintf(name, sizeof name, "encoder.layer.%d.%s.bias", block, layer);
    tiny_add(w, name, rows, 0);
}

static inline void tiny_write_text(const char *path, const char *text)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    fputs(text, stream);
    assert_int_equal(fclose(stream), 0);
}

static inline void tiny_write_config(const tiny *t, const char *path)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model_type\": \"bert\", \"vocab_size\": %d, \"hidden_size\": %d, "
             "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"intermediate_size\": %d, "
             "\"max_position_embeddings\": %d, \"type_vocab_size\": %d, "
             "\"layer_norm_eps\": 1e-05%s%s%s}",
             TINY_VOCABULARY, TINY_WIDTH, TINY_LAYERS, TINY_HEADS, TINY_OUTER, TINY_POSITIONS,
             2 + t->types, t->activation ? ", \"hidden_act\": \"" : "",
             t->activation ? t->activation : "", t->activation ? "\"" : "");
    tiny_write_text(path, t->config ? t->config : text);
}

/* Writes the folder and returns its path. */
static inline const char *tiny_write(const tiny *t, const char *name)
{
    const char *folder = io_path(name);
    char path[600];
    tiny_writer *w = calloc(1, sizeof *w);
    w->t = t;
    mkdir(folder, 0700);
    tiny_add(w, "embeddings.word_embeddings.weight", TINY_VOCABULARY, TINY_WIDTH);
    tiny_add(w, "embeddings.position_embeddings.weight", TINY_POSITIONS, TINY_WIDTH);
    if (t->types > -2)
        tiny_add(w, "embeddings.token_type_embeddings.weight", 2 + t->types, TINY_WIDTH);
    tiny_add(w, "embeddings.LayerNorm.weight", TINY_WIDTH, 0);
    tiny_add(w, "embeddings.LayerNorm.bias", TINY_WIDTH, 0);
    for (int b = 0; b < TINY_LAYERS; b++) {
        tiny_add_layer(w, b, "attention.self.query", TINY_WIDTH, TINY_WIDTH);
        tiny_add_layer(w, b, "attention.self.key", TINY_WIDTH, TINY_WIDTH);
        tiny_add_layer(w, b, "attention.self.value", TINY_WIDTH, TINY_WIDTH);
        tiny_add_layer(w, b, "attention.output.dense", TINY_WIDTH, TINY_WIDTH);
        tiny_add_layer(w, b, "attention.output.LayerNorm", TINY_WIDTH, 0);
        tiny_add_layer(w, b, "intermediate.dense", TINY_OUTER, TINY_WIDTH);
        tiny_add_layer(w, b, "output.dense", TINY_WIDTH, TINY_OUTER);
        tiny_add_layer(w, b, "output.LayerNorm", TINY_WIDTH, 0);
    }
    tiny_add(w, "pooler.dense.weight", TINY_WIDTH, TINY_WIDTH);
    if (t->late_head) tiny_add(w, "linear.weight", TINY_LATE, TINY_WIDTH);
    if (t->qa_head) tiny_add(w, "qa_outputs.weight", 2, TINY_WIDTH);
    if (t->qa_head) tiny_add(w, "qa_outputs.bias", 2, 0);
    if (t->words_head) {
        tiny_add(w, "cls.predictions.transform.dense.weight", TINY_WIDTH, TINY_WIDTH);
        tiny_add(w, "cls.predictions.transform.dense.bias", TINY_WIDTH, 0);
        tiny_add(w, "cls.predictions.transform.LayerNorm.weight", TINY_WIDTH, 0);
        tiny_add(w, "cls.predictions.transform.LayerNorm.bias", TINY_WIDTH, 0);
        tiny_add(w, "cls.predictions.bias", TINY_VOCABULARY, 0);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    mini_write(path, w->tensors, w->count, NULL);
    for (int i = 0; i < w->count; i++)
        free((void *)(uintptr_t)w->tensors[i].data);
    free(w);
    snprintf(path, sizeof path, "%s/config.json", folder);
    tiny_write_config(t, path);
    snprintf(path, sizeof path, "%s/modules.json", folder);
    remove(path);
    if (t->modules) tiny_write_text(path, t->modules);
    snprintf(path, sizeof path, "%s/1_Pooling", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/1_Pooling/config.json", folder);
    if (t->pooling) tiny_write_text(path, t->pooling);
    return folder;
}

/* ---- the same in f64 ------------------------------------------------------------------------- */

static inline void tiny_linear(double *y, const double *x, int64_t n, int64_t k, const char *layer)
{
    char weight[128], bias[128];
    snprintf(weight, sizeof weight, "%s.weight", layer);
    snprintf(bias, sizeof bias, "%s.bias", layer);
    for (int64_t i = 0; i < n; i++) {
        y[i] = (double)tiny_value(bias, i);
        for (int64_t l = 0; l < k; l++)
            y[i] += x[l] * (double)tiny_value(weight, i * k + l);
    }
}

static inline void tiny_norm(double *x, const char *norm)
{
    char weight[128], bias[128];
    double mean = 0, variance = 0;
    snprintf(weight, sizeof weight, "%s.weight", norm);
    snprintf(bias, sizeof bias, "%s.bias", norm);
    for (int i = 0; i < TINY_WIDTH; i++)
        mean += x[i] / TINY_WIDTH;
    for (int i = 0; i < TINY_WIDTH; i++)
        variance += (x[i] - mean) * (x[i] - mean) / TINY_WIDTH;
    for (int i = 0; i < TINY_WIDTH; i++)
        x[i] = (x[i] - mean) / sqrt(variance + 1e-5) * (double)tiny_value(weight, i) +
               (double)tiny_value(bias, i);
}

static inline double tiny_activate(double x, const char *name)
{
    const int relu = name && !strcmp(name, "relu"), exact = !name || !strcmp(name, "gelu");
    return activation_of(x, relu    ? S24_ACTIVATION_RELU
                            : exact ? S24_ACTIVATION_GELU
                                    : S24_ACTIVATION_GELU_TANH);
}

typedef double tiny_rows[TINY_POSITIONS][TINY_WIDTH];

static inline void tiny_attend(tiny_rows out, tiny_rows q, tiny_rows k, tiny_rows v, int tokens,
                               const uint8_t *mask)
{
    enum { D = TINY_WIDTH / TINY_HEADS };
    for (int i = 0; i < tokens; i++)
        for (int h = 0; h < TINY_HEADS; h++) {
            double sum = 0, weights[TINY_POSITIONS];
            for (int j = 0; j < tokens; j++) {
                double score = 0;
                for (int c = h * D; c < h * D + D; c++)
                    score += q[i][c] * k[j][c] / sqrt(D);
                sum += weights[j] = mask && !mask[j] ? 0 : exp(score);
            }
            for (int c = h * D; c < h * D + D; c++) {
                out[i][c] = 0;
                for (int j = 0; j < tokens; j++)
                    out[i][c] += weights[j] / sum * v[j][c];
            }
        }
}

static inline void tiny_block(tiny_rows x, int block, int tokens, const uint8_t *mask,
                              const char *activation)
{
    tiny_rows q, k, v, mixed;
    double outer[TINY_OUTER], inner[TINY_WIDTH];
    char layer[96];
#define TINY_LAYER(name)                                                                           \
    (snprintf(layer, sizeof layer, "encoder.layer.%d.%s", block, name), (const char *)layer)
    for (int t = 0; t < tokens; t++) {
        tiny_linear(q[t], x[t], TINY_WIDTH, TINY_WIDTH, TINY_LAYER("attention.self.query"));
        tiny_linear(k[t], x[t], TINY_WIDTH, TINY_WIDTH, TINY_LAYER("attention.self.key"));
        tiny_linear(v[t], x[t], TINY_WIDTH, TINY_WIDTH, TINY_LAYER("attention.self.value"));
    }
    tiny_attend(mixed, q, k, v, tokens, mask);
    for (int t = 0; t < tokens; t++) {
        tiny_linear(inner, mixed[t], TINY_WIDTH, TINY_WIDTH, TINY_LAYER("attention.output.dense"));
        for (int i = 0; i < TINY_WIDTH; i++)
            x[t][i] += inner[i];
        tiny_norm(x[t], TINY_LAYER("attention.output.LayerNorm"));
        tiny_linear(outer, x[t], TINY_OUTER, TINY_WIDTH, TINY_LAYER("intermediate.dense"));
        for (int i = 0; i < TINY_OUTER; i++)
            outer[i] = tiny_activate(outer[i], activation);
        tiny_linear(inner, outer, TINY_WIDTH, TINY_OUTER, TINY_LAYER("output.dense"));
        for (int i = 0; i < TINY_WIDTH; i++)
            x[t][i] += inner[i];
        tiny_norm(x[t], TINY_LAYER("output.LayerNorm"));
    }
#undef TINY_LAYER
}

/* One text through the model; x receives the last block's output. */
static inline void tiny_forward(tiny_rows x, const tiny *t, int tokens, const int32_t *ids,
                                const int32_t *types, const uint8_t *mask)
{
    for (int i = 0; i < tokens; i++) {
        for (int c = 0; c < TINY_WIDTH; c++) {
            x[i][c] =
                (double)tiny_value("embeddings.word_embeddings.weight", ids[i] * TINY_WIDTH + c) +
                (double)tiny_value("embeddings.position_embeddings.weight", i * TINY_WIDTH + c);
            if (t->types > -2)
                x[i][c] += (double)tiny_value("embeddings.token_type_embeddings.weight",
                                              (types ? types[i] : 0) * TINY_WIDTH + c);
        }
        tiny_norm(x[i], "embeddings.LayerNorm");
    }
    for (int b = 0; b < TINY_LAYERS; b++)
        tiny_block(x, b, tokens, mask, t->activation);
}

#endif
