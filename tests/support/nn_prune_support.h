// SPDX-License-Identifier: Apache-2.0
/* A tiny BERT with a vocabulary, calibration texts and reports, for the tests of model pruning. */
#ifndef S24_TEST_NN_PRUNE_SUPPORT_H
#define S24_TEST_NN_PRUNE_SUPPORT_H

#include "support.h"

#include "model/model.h"
#include "nn_io.h"
#include "nn_load.h"
#include "nn_tiny.h"

enum { BLOCK_LAYERS = 6, LAYERS = TINY_LAYERS * BLOCK_LAYERS, TEXTS = 40 };

static const char vocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\ne\nf\ng\n";
static const char *const layer_names[BLOCK_LAYERS] = {
    "attention.self.query",   "attention.self.key", "attention.self.value",
    "attention.output.dense", "intermediate.dense", "output.dense"};
static const s24i_slot layer_slots[BLOCK_LAYERS] = {S24I_QUERY,     S24I_KEY,          S24I_VALUE,
                                                    S24I_ATTENTION, S24I_INTERMEDIATE, S24I_OUTPUT};

/* The tiny folder with a vocabulary; its path, good until the next one is written. */
static inline const char *write_folder(const char *name, s24_dtype dtype)
{
    static char folder[512];
    const tiny t = {.dtype = dtype};
    char path[600];
    snprintf(folder, sizeof folder, "%s", tiny_write(&t, name));
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    tiny_write_text(path, vocabulary);
    return folder;
}

/* Random words; every text is cut by the model's nine positions or shorter. */
static inline const s24_text *make_texts(void)
{
    static char words[TEXTS][32];
    static s24_text texts[TEXTS];
    uint64_t state = 9;
    for (int t = 0; t < TEXTS; t++) {
        int count = 1 + (int)(test_random(&state) % 12);
        for (int i = 0; i < count; i++) {
            words[t][2 * i] = (char)('a' + test_random(&state) % 7);
            words[t][2 * i + 1] = ' ';
        }
        texts[t] = (s24_text){words[t], (size_t)count * 2};
    }
    return texts;
}

/* Their tokens. */
static inline s24_batch tokenize(s24_ctx *ctx, const char *folder, int64_t *offsets, int32_t *ids)
{
    s24_tokenizer *tokenizer;
    const s24_text *texts = make_texts();
    OK(ctx, s24_tokenizer_load(&tokenizer, ctx, folder));
    offsets[0] = 0;
    for (int t = 0; t < TEXTS; t++) {
        s24_token tokens[TINY_POSITIONS];
        int64_t count;
        OK(ctx, s24_tokenizer_encode(tokens, &count, TINY_POSITIONS, tokenizer, ctx, texts[t].data,
                                     texts[t].bytes, NULL, 0));
        for (int64_t i = 0; i < count; i++)
            ids[offsets[t] + i] = tokens[i].id;
        offsets[t + 1] = offsets[t] + count;
    }
    s24_tokenizer_destroy(tokenizer);
    return (s24_batch){.texts = TEXTS, .offsets = offsets, .ids = ids};
}

typedef struct reports {
    int count;
    s24_layer_report layers[LAYERS];
    char names[LAYERS][96];
} reports;

static inline void keep_report(void *user, const s24_layer_report *layer)
{
    reports *r = user;
    assert_true(r->count < LAYERS);
    assert_true(layer->seconds >= 0.0);
    snprintf(r->names[r->count], sizeof r->names[0], "%s", layer->name);
    r->layers[r->count++] = *layer;
}

static inline const s24_layer_report *report_of(const reports *r, const char *name)
{
    for (int i = 0; i < r->count; i++)
        if (!strcmp(r->names[i], name)) return &r->layers[i];
    fail_msg("no report of %s", name);
    return NULL;
}

static inline s24_model_prune_opts options(const char *criterion, reports *r)
{
    s24_model_prune_opts opts = {.size = sizeof opts, .texts = make_texts(), .text_count = TEXTS};
    opts.prune.criterion = criterion;
    opts.report = r ? keep_report : NULL;
    opts.user = r;
    if (r) r->count = 0;
    return opts;
}

static inline s24_ctx *make_ctx(void)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 2};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

static inline const char *layer_name(int block, int layer)
{
    static char name[96];
    snprintf(name, sizeof name, "encoder.layer.%d.%s.weight", block, layer_names[layer]);
    return name;
}

static inline int is_layer(const char *name)
{
    for (int i = 0; i < LAYERS; i++)
        if (!strcmp(name, layer_name(i / BLOCK_LAYERS, i % BLOCK_LAYERS))) return 1;
    return 0;
}

static inline s24_dense dense_of(const s24_tensor *t)
{
    assert_false(t->packed);
    return (s24_dense){(void *)(uintptr_t)t->data, t->dtype, t->shape[0], t->shape[1], 0};
}

/* Every linear layer of the blocks is 2:4, everything else as it was, byte for byte. */
static inline void assert_pruned(s24_ctx *ctx, const char *in_path, const char *out_path)
{
    s24_checkpoint *in, *out;
    OK(ctx, s24_checkpoint_open(&in, ctx, in_path));
    OK(ctx, s24_checkpoint_open(&out, ctx, out_path));
    assert_int_equal(s24_checkpoint_count(in), s24_checkpoint_count(out));
    for (int64_t i = 0; i < s24_checkpoint_count(in); i++) {
        const s24_tensor *a = s24_checkpoint_tensor(in, i), *b = s24_checkpoint_tensor(out, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->dtype, b->dtype);
        assert_int_equal(a->bytes, b->bytes);
        int same = memcmp(a->data, b->data, a->bytes) == 0, two_four = 0;
        assert_int_equal(same, !is_layer(a->name));
        if (same) continue;
        const s24_dense dense = dense_of(b);
        OK(ctx, s24_check(&two_four, NULL, ctx, &dense));
        assert_true(two_four);
    }
    s24_checkpoint_close(out);
    s24_checkpoint_close(in);
}

#endif
