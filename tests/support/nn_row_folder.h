// SPDX-License-Identifier: Apache-2.0
/* A small folder of each row of models.def, made by the row's own keys and names, so that a new row
   is tested without a line here, but for keys that only it needs. */
#ifndef S24_TEST_NN_ROW_FOLDER_H
#define S24_TEST_NN_ROW_FOLDER_H

#include "support.h"

#include "model/walk.h"
#include "nn_language_pass.h"

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
    {"esm", "position_embedding_type", "\"rotary\""},
    {"esm", "token_dropout", "true"},
    {"esm", "mask_token_id", "7"},
};

/* Numbers that vectors divide, and others. */
typedef struct size {
    const char *width, *heads, *kv_heads, *head_width, *intermediate, *embedding, *layers;
} size;
static const size sizes[] = {{"64", "4", "2", "16", "96", "32", "3"},
                             {"40", "5", "1", "8", "52", "24", "2"}};

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
                   {m->key_normalised, "true"}, {m->key_factor, "1.5"}, {m->key_shared_width, "28"},
                   {m->key_shared_count, "2"},  {m->key_first, "1"},    {m->key_dense, "[0]"}};
    if (a->key_tower) fprintf(c->file, ", \"%s\": {\"nothing\": 0", a->key_tower);
    c->count = 0;
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        if (strcmp(extras[i].model_type, a->model_type) == 0)
            add_key(c, extras[i].key, extras[i].value ? extras[i].value : n->width);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        add_key(c, values[i].key, values[i].value);
    for (size_t i = 0; i < sizeof mixture / sizeof *mixture; i++)
        add_key(c, mixture[i].key, mixture[i].value);
    if (a->key_tower) fputs("}", c->file);
}

static inline void write_config(const s24i_architecture *a, const size *n, const char *used,
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

typedef struct taker {
    lm_writer *writer;
    const s24i_architecture *arch;
    int64_t head_width;
} taker;

/* Scores that no root of a head's width divides come of queries that are so much narrower, as T5
   draws them: else they blow up whatever is rounded. */
static inline void narrow_queries(const taker *t, const char *pattern)
{
    const mini_tensor *last = &t->writer->tensors[t->writer->count - 1];
    const char *queries = t->arch->slots[S24I_QUERY];
    float *w = (float *)(uintptr_t)last->data;
    if (t->arch->usual_score_factor != 1.0f || !queries || strcmp(pattern, queries) != 0) return;
    for (int64_t i = 0; i < (int64_t)(last->bytes / sizeof *w); i++)
        w[i] /= sqrtf((float)t->head_width);
}

static inline s24_status take_tensor(void *user, const s24i_wanted *w, const s24_tensor *tensor)
{
    const taker *t = user;
    char bare[S24I_NAME_BYTES], name[S24I_NAME_BYTES];
    assert_null(tensor);
    if (w->optional) return S24_OK;
    s24i_tensor_name(bare, w->pattern, w->block, w->suffix);
    const int wrote =
        snprintf(name, sizeof name, "%s%s", w->role == S24I_ROLE_HEAD ? "" : t->arch->prefix, bare);
    assert_true(wrote < (int)sizeof name);
    for (int i = 0; i < t->writer->count; i++)
        if (strcmp(t->writer->names[i], name) == 0) return S24_OK; /* one norm of two halves */
    lm_add(t->writer, name, w->transposed ? w->cols : w->rows, w->transposed ? w->rows : w->cols);
    narrow_queries(t, w->pattern);
    return S24_OK;
}

/* All tensors of a model of the folder. */
static inline void add_tensors(lm_writer *w, s24_ctx *ctx, const s24i_architecture *a,
                               const char *folder)
{
    s24i_shape shape;
    s24_checkpoint *checkpoint;
    taker t = {.writer = w, .arch = a};
    OK(ctx, s24i_shape_read(&shape, ctx, a, folder));
    t.head_width = shape.head_width;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    const s24i_walk walk = {.ctx = ctx,
                            .checkpoint = checkpoint,
                            .arch = a,
                            .shape = &shape,
                            .heads = {{a->lm_head, a->lm_head ? shape.vocabulary : 0, 1}},
                            .draws = 1,
                            .take = take_tensor,
                            .user = &t};
    OK(ctx, s24i_walk_tensors(&walk));
    s24_checkpoint_close(checkpoint);
}

static inline void write_tensors(s24_ctx *ctx, const s24i_architecture *a, const char *folder)
{
    static const char nothing[] = "{\"nothing\":{\"dtype\":\"U8\",\"shape\":[0],"
                                  "\"data_offsets\":[0,0]}}";
    char path[600];
    lm_writer *w = calloc(1, sizeof *w);
    w->state = 11;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    io_write_tensors(path, nothing, NULL, 0);
    add_tensors(w, ctx, a, folder);
    if (a->images) add_tensors(w, ctx, a->images, folder);
    mini_write(path, w->tensors, w->count, NULL);
    for (int i = 0; i < w->count; i++)
        free((void *)(uintptr_t)w->tensors[i].data);
    free(w);
}

static inline const char *row_folder(const s24i_architecture *a, const size *n)
{
    const char *folder = io_path("model");
    char path[600];
    s24_ctx *ctx = new_ctx(NULL, 1);
    io_remove(folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/config.json", folder);
    write_config(a, n, "2", path);
    write_tensors(ctx, a, folder);
    s24_ctx_destroy(ctx);
    return folder;
}

#endif
