// SPDX-License-Identifier: Apache-2.0
/* A small config.json of any row of models.def, by the row's own keys. Include after support.h. */
#ifndef S24_TEST_NN_ROW_CONFIG_H
#define S24_TEST_NN_ROW_CONFIG_H

#include "model/walk.h"

enum { VOCABULARY = 61 };

typedef struct config {
    FILE *file;
    char keys[48][64];
    int count;
} config;

/* The key, of "key|other name" the first, unless it is there. */
static inline void add_key(config *c, const char *key, const char *value)
{
    char *name = c->keys[c->count];
    if (!key) return;
    snprintf(name, sizeof c->keys[0], "%.*s", (int)strcspn(key, "|"), key);
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->keys[i], name) == 0) return;
    assert_true(++c->count < 48);
    fprintf(c->file, ", \"%s\": %s", name, value);
}

/* What a row needs besides the keys that it names, or in place of them; these come first. */
static const struct {
    const char *model_type, *key, *value;
} extras[] = {
    {"opt", "word_embed_proj_dim", NULL}, /* the blocks' width */
    {"deberta-v2", "embedding_size", NULL},
    {"deberta-v2", "relative_attention", "true"},
    {"deberta-v2", "share_att_key", "true"},
    {"deberta-v2", "position_biased_input", "false"},
    {"deberta-v2", "norm_rel_ebd", "\"layer_norm\""},
    {"deberta-v2", "pos_att_type", "[\"p2c\", \"c2p\"]"},
    {"deberta-v2", "position_buckets", "8"},
    {"gemma3_text", "rope_local_base_freq", "100"},
    {"hyperclovax", "use_post_norm", "false"},
    {"esm", "position_embedding_type", "\"rotary\""},
    {"esm", "token_dropout", "true"},
    {"esm", "mask_token_id", "7"},
};

/* Numbers that vectors divide, and others. */
typedef struct size {
    const char *width, *heads, *kv_heads, *head_width, *intermediate, *embedding, *layers, *queries;
    const char *value; /* elements of a head's of latents; NULL: some that 8 does not divide */
} size;
static const size sizes[] = {{"64", "4", "2", "16", "96", "32", "3", "20", NULL},
                             {"40", "5", "1", "8", "52", "24", "2", "null", NULL}};

/* The keys of a tower stand in an object of their own. */
static inline void write_keys(config *c, const s24i_architecture *a, const size *n,
                              const char *used)
{
    const struct {
        const char *key, *value;
    } values[] = {{a->key_vocabulary, "61"},
                  {a->key_positions, "80"},
                  {a->key_types, "2"},
                  {a->key_width, n->width},
                  {a->key_layers, n->layers},
                  {a->key_heads, n->heads},
                  {a->key_kv_heads, n->kv_heads},
                  {a->key_head_width, n->head_width},
                  {a->key_intermediate, n->intermediate},
                  {a->key_eps, "1e-5"},
                  {a->key_image, "16"},
                  {a->key_patch, "4"},
                  {a->key_channels, "3"},
                  {a->key_window, "2"},
                  {a->key_globals, "[1]"},
                  {a->key_padding, "1"},
                  {a->key_embedding, n->embedding},
                  {a->key_sliding, "5"},
                  {a->key_near, "6"},
                  {a->key_near_every, "2"},
                  {a->key_pattern, "2"},
                  {a->key_slides, "true"},
                  {a->key_sliding_first, "1"},
                  {a->key_buckets, "32"},
                  {"num_labels", "5"}};
    static const s24i_mixture_row none;
    const s24i_mixture_row *m = a->mixture ? a->mixture : &none;
    /* The first block is plain where the row knows such blocks. */
    const struct {
        const char *key, *value;
    } mixture[] = {{m->key_experts, "5"},       {m->key_used, used},    {m->key_width, "24"},
                   {m->key_normalised, "true"}, {m->key_factor, "1.5"}, {m->key_shared_width, "40"},
                   {m->key_shared_count, "2"},  {m->key_first, "1"},    {m->key_dense, "[0]"}};
    static const s24i_latent_row no_latent;
    const s24i_latent_row *l = a->latent ? a->latent : &no_latent;
    const struct {
        const char *key, *value;
    } latents[] = {{l->key_queries, n->queries},
                   {l->key_rank, n->embedding},
                   {l->key_plain, "8"},
                   {l->key_value, n->value ? n->value : "12"}};
    if (a->key_tower) fprintf(c->file, ", \"%s\": {\"nothing\": 0", a->key_tower);
    c->count = 0;
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        if (strcmp(extras[i].model_type, a->model_type) == 0)
            add_key(c, extras[i].key, extras[i].value ? extras[i].value : n->width);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        add_key(c, values[i].key, values[i].value);
    for (size_t i = 0; i < sizeof latents / sizeof *latents; i++)
        add_key(c, latents[i].key, latents[i].value);
    for (size_t i = 0; i < sizeof mixture / sizeof *mixture; i++)
        add_key(c, mixture[i].key, mixture[i].value);
    if (a->key_tower) fputs("}", c->file);
}

static inline void write_row_config(const s24i_architecture *a, const size *n, const char *used,
                                    const char *path)
{
    config c = {.file = fopen(path, "wb")};
    assert_non_null(c.file);
    fprintf(c.file, "{\"model_type\": \"%s\"", a->model_type);
    write_keys(&c, a, n, used);
    if (a->images) write_keys(&c, a->images, n, used);
    fputs("}", c.file);
    assert_int_equal(fclose(c.file), 0);
}

#endif
