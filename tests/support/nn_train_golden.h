// SPDX-License-Identifier: Apache-2.0
/* The small models of golden/models with their inputs, as transformers ran them. Include after
   support.h. */
#ifndef S24_TEST_NN_TRAIN_GOLDEN_H
#define S24_TEST_NN_TRAIN_GOLDEN_H

#include <math.h>

#include "nn_load.h"
#include "safetensors_mini.h"
#include "sparse24/train.h"

enum { MOST = 256 /* tokens of a batch */ };

typedef struct golden {
    char folder[512];
    mini_file io;
    int64_t offsets[8];
    int32_t ids[MOST], types[MOST], targets[MOST], starts[8], ends[8];
    uint8_t mask[MOST];
    s24_examples examples;
} golden;

static inline int64_t count_of(const mini_tensor *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++)
        count *= t->shape[d];
    return count;
}

static inline void narrow(int32_t *to, const mini_file *io, const char *name)
{
    const mini_tensor t = mini_get(io, name);
    for (int64_t i = 0; i < count_of(&t); i++)
        to[i] = (int32_t)((const int64_t *)t.data)[i];
}

/* texts of `length` tokens each. */
static inline int golden_open(golden *g, const char *model, int texts, int length)
{
    char path[600];
    memset(g, 0, sizeof *g);
    if (!golden_path(g->folder, sizeof g->folder, model)) return 0;
    snprintf(path, sizeof path, "%s/io.safetensors", g->folder);
    g->io = mini_open(path);
    for (int b = 0; b <= texts; b++)
        g->offsets[b] = b * length;
    g->examples.texts = (s24_batch){.texts = texts, .offsets = g->offsets, .ids = g->ids};
    return 1;
}

static inline int open_bert(golden *g)
{
    if (!golden_open(g, "models/bert-qa", 3, 40)) return 0;
    narrow(g->ids, &g->io, "input.input_ids");
    narrow(g->types, &g->io, "input.token_type_ids");
    narrow(g->targets, &g->io, "input.attention_mask");
    narrow(g->starts, &g->io, "input.start_positions");
    narrow(g->ends, &g->io, "input.end_positions");
    for (int t = 0; t < 120; t++)
        g->mask[t] = (uint8_t)g->targets[t];
    g->examples.texts.types = g->types;
    g->examples.texts.mask = g->mask;
    g->examples.starts = g->starts;
    g->examples.ends = g->ends;
    return 1;
}

static inline int open_text(golden *g, const char *model)
{
    if (!golden_open(g, model, 2, 33)) return 0;
    narrow(g->ids, &g->io, "input.input_ids");
    for (int t = 0; t < 66; t++)
        g->targets[t] = t % 33 == 32 ? -1 : g->ids[t + 1];
    g->examples.targets = g->targets;
    return 1;
}

static inline int open_vit(golden *g)
{
    if (!golden_open(g, "models/vit", 2, 65)) return 0;
    g->examples.pixels = mini_get(&g->io, "input.pixel_values").data;
    g->targets[0] = 3;
    g->targets[1] = 7;
    g->examples.targets = g->targets;
    return 1;
}

/* transformers 5 calls ViT's parameters by other names than the folder. */
static inline void gradient_name(char *to, size_t bytes, const char *name)
{
    static const char *const renamed[][2] = {{"vit.encoder.layer.", "vit.layers."},
                                             {"attention.attention.query", "attention.q_proj"},
                                             {"attention.attention.key", "attention.k_proj"},
                                             {"attention.attention.value", "attention.v_proj"},
                                             {"attention.output.dense", "attention.o_proj"},
                                             {".intermediate.dense", ".mlp.fc1"},
                                             {".output.dense", ".mlp.fc2"}};
    snprintf(to, bytes, "grad.%s", name);
    for (size_t i = 0; strncmp(name, "vit.", 4) == 0 && i < sizeof renamed / sizeof *renamed; i++) {
        char *found = strstr(to, renamed[i][0]), rest[160];
        if (!found) continue;
        snprintf(rest, sizeof rest, "%s", found + strlen(renamed[i][0]));
        snprintf(found, bytes - (size_t)(found - to), "%s%s", renamed[i][1], rest);
    }
}

/* train 2: activations are computed again. */
static inline s24_transformer *golden_transformer(s24_ctx *ctx, const char *folder,
                                                  int64_t max_tokens, int train)
{
    s24_transformer *t;
    s24_checkpoint *checkpoint;
    const s24_transformer_opts opts = {
        .size = sizeof opts, .max_tokens = max_tokens, .train = train > 0, .recompute = train > 1};
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    OK(ctx, s24_transformer_load(&t, ctx, checkpoint, &opts));
    s24_checkpoint_close(checkpoint);
    return t;
}

/* Changes all weights a little, as a teacher's. */
static inline void golden_move(s24_transformer *t, s24_ctx *ctx)
{
    s24_parameter p;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        float *w = malloc((size_t)p.count * sizeof *w);
        OK(ctx, s24_transformer_read(w, t, ctx, i, 0));
        for (int64_t k = 0; k < p.count; k++)
            w[k] += (float)(0.1 * sin((double)k));
        OK(ctx, s24_transformer_write(t, ctx, i, w));
        free(w);
    }
}

#endif
