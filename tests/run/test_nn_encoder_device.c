// SPDX-License-Identifier: Apache-2.0
/*
 * The text encoders of models.def on a device against transformers' golden values: in 16 bits, in
 * integers, with heads of another width, and with tokens that are masked. Says in a line where
 * there is no GPU.
 */
#include "support.h"

#include <unistd.h>

#include "device_here.h"
#include "nn_language_pass.h"
#include "nn_train_golden.h"
#include "run/session.h"

enum { TEXTS = 4, ROOM = 512, WIDTH = 64 };

typedef struct texts {
    char folder[512];
    mini_file io;
    int64_t offsets[TEXTS + 1];
    int32_t ids[ROOM];
    uint8_t mask[ROOM];
    s24_batch batch;
} texts;

static int open_texts(texts *t, const char *name)
{
    char model[64], path[600], key[16];
    snprintf(model, sizeof model, "encoders/%s", name);
    if (!golden_path(t->folder, sizeof t->folder, model)) return 0;
    snprintf(path, sizeof path, "%s/io.safetensors", t->folder);
    t->io = mini_open(path);
    t->offsets[0] = 0;
    for (int b = 0; b < TEXTS; b++) {
        snprintf(key, sizeof key, "ids.%d", b);
        const mini_tensor ids = mini_get(&t->io, key);
        t->offsets[b + 1] = t->offsets[b] + count_of(&ids);
        assert_true(t->offsets[b + 1] <= ROOM);
        memcpy(t->ids + t->offsets[b], ids.data, (size_t)count_of(&ids) * sizeof *t->ids);
    }
    t->batch = (s24_batch){.texts = TEXTS, .offsets = t->offsets, .ids = t->ids};
    return 1;
}

/* States of the batch [tokens, WIDTH], three times, so that the last is a graph's. */
static void states_of(float *states, s24_ctx *ctx, const char *folder, const s24_model_opts *opts,
                      const s24_batch *batch)
{
    s24_model *model;
    s24_session *session;
    const s24_outputs outputs = {.hidden = states};
    OK(ctx, load(&model, ctx, folder, opts));
    OK(ctx, s24_session_create(&session, ctx, model, ROOM));
    for (int turn = 0; turn < 3; turn++)
        OK(ctx, s24_session_forward(session, ctx, batch, &outputs));
    s24_session_destroy(session);
    s24_model_destroy(model);
}

static void check_golden(const texts *t, s24_ctx *ctx, const s24_model_opts *opts, double bound)
{
    static float states[ROOM * WIDTH];
    states_of(states, ctx, t->folder, opts, &t->batch);
    for (int b = 0; b < TEXTS; b++) {
        char key[16];
        snprintf(key, sizeof key, "hidden.%d", b);
        const mini_tensor of = mini_get(&t->io, key);
        near(of.data, states + t->offsets[b] * WIDTH, count_of(&of), bound, key);
    }
}

/* Integers on the device are those of the CPU, whose tokens are f32. */
static void check_here(const texts *t, s24_ctx *ctx, const s24_model_opts *opts, double bound)
{
    static float there[ROOM * WIDTH], here[ROOM * WIDTH];
    s24_model_opts cpu = *opts;
    cpu.device = NULL;
    cpu.dtype = S24_DTYPE_NONE;
    states_of(there, ctx, t->folder, opts, &t->batch);
    states_of(here, ctx, t->folder, &cpu, &t->batch);
    near(here, there, t->offsets[TEXTS] * WIDTH, bound, opts->quantize ? opts->quantize : "mask");
}

/* The golden model with heads of 8 elements instead of 16, which another kernel has, in a folder of
   its own. */
static void narrow_heads(texts *t)
{
    static char folder[] = "/tmp/s24-heads-XXXXXX";
    char path[600], to[600], config[8192] = "";
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", t->folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(config, 1, sizeof config - 1, file) > 0);
    fclose(file);
    char *heads = strstr(config, "\"num_attention_heads\": 4");
    assert_non_null(heads);
    heads[strlen("\"num_attention_heads\": ")] = '8';
    snprintf(to, sizeof to, "%s/config.json", folder);
    file = fopen(to, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(config, 1, strlen(config), file), strlen(config));
    fclose(file);
    snprintf(path, sizeof path, "%s/model.safetensors", t->folder);
    snprintf(to, sizeof to, "%s/model.safetensors", folder);
    assert_int_equal(symlink(path, to), 0);
    snprintf(t->folder, sizeof t->folder, "%s", folder);
}

static void remove_folder(const char *folder)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    char path[600];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void heads_of_another_width(void **state)
{
    static texts t;
    s24_ctx *ctx = new_ctx(NULL, 2);
    s24_device *device = device_here(ctx);
    (void)state;
    if (device && !open_texts(&t, "roberta")) SKIP_WITHOUT(t.folder);
    if (device) {
        const s24_model_opts opts = {.size = sizeof opts, .device = device, .dtype = S24_F16};
        narrow_heads(&t);
        check_here(&t, ctx, &opts, 8e-3);
        remove_folder(t.folder);
        mini_close(&t.io);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

static void golden_models(void **state)
{
    static const char *const names[] = {"roberta",    "xlm-roberta", "distilbert", "modernbert",
                                        "nomic_bert", "mpnet",       "electra"};
    static const char *const schemes[] = {"int8", "int8-g64", "int4-g64"};
    s24_ctx *ctx = new_ctx(NULL, 2);
    s24_device *device = device_here(ctx);
    (void)state;
    for (size_t i = 0; device && i < sizeof names / sizeof *names; i++) {
        static texts t;
        s24_model_opts opts = {.size = sizeof opts, .device = device};
        if (!open_texts(&t, names[i])) SKIP_WITHOUT(t.folder);
        for (int f16 = 0; f16 < 2; f16++) {
            opts.dtype = f16 ? S24_F16 : S24_BF16;
            check_golden(&t, ctx, &opts, f16 ? 8e-3 : 5e-2);
        }
        memset(t.mask, 1, sizeof t.mask);
        for (int64_t k = t.offsets[3] + 70; k < t.offsets[4]; k++)
            t.mask[k] = 0;
        t.batch.mask = t.mask;
        check_here(&t, ctx, &opts, 8e-3);
        t.batch.mask = NULL;
        for (int64_t k = 2; k < t.offsets[4]; k += 5)
            t.ids[k] = 1; /* those of RoBERTa's kin have no position then */
        check_here(&t, ctx, &opts, 8e-3);
        for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++) {
            opts.quantize = schemes[s];
            check_here(&t, ctx, &opts, 1e-2);
        }
        mini_close(&t.io);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Logits of a head of texts, or vectors pooled in a way that the host has alone. */
static void tail_of(float *to, s24_ctx *ctx, const texts *t, const s24_model_opts *opts,
                    const s24i_pooled *pooled)
{
    s24_model *model;
    s24_session *session;
    const s24_outputs outputs = {.logits = pooled ? NULL : to, .embeddings = pooled ? to : NULL};
    OK(ctx, load(&model, ctx, t->folder, opts));
    if (pooled) model->pooled = *pooled;
    OK(ctx, s24_session_create(&session, ctx, model, ROOM));
    session->takes_ways = 1;
    for (int turn = 0; turn < 3; turn++)
        OK(ctx, s24_session_forward(session, ctx, &t->batch, &outputs));
    s24_session_destroy(session);
    s24_model_destroy(model);
}

static void what_the_host_makes(void **state)
{
    static const char *const names[] = {"bert-reranker", "roberta-reranker", "bert-classes",
                                        "roberta"};
    static const s24i_pooled pooled = {.pooling = S24I_POOL_ROOT,
                                       .further = {S24I_POOL_WEIGHTED, S24I_POOL_MAX},
                                       .further_count = 2,
                                       .said = 1,
                                       .normalise = 1};
    s24_ctx *ctx = new_ctx(NULL, 2);
    s24_device *device = device_here(ctx);
    (void)state;
    for (size_t i = 0; device && i < sizeof names / sizeof *names; i++) {
        static texts t;
        float here[TEXTS * 3 * WIDTH] = {0}, there[TEXTS * 3 * WIDTH] = {0};
        const s24i_pooled *ways = i == 3 ? &pooled : NULL;
        const s24_model_opts opts = {.size = sizeof opts, .device = device, .dtype = S24_F16};
        if (!open_texts(&t, names[i])) SKIP_WITHOUT(t.folder);
        tail_of(here, ctx, &t, NULL, ways);
        tail_of(there, ctx, &t, &opts, ways);
        near(here, there, TEXTS * (ways ? 3 * WIDTH : i == 2 ? 5 : 1), 1e-2, names[i]);
        mini_close(&t.io);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_models),
                                       cmocka_unit_test(what_the_host_makes),
                                       cmocka_unit_test(heads_of_another_width)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
