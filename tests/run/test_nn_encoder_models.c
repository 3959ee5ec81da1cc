// SPDX-License-Identifier: Apache-2.0
/*
 * The text encoders of models.def against transformers' golden values, in every dtype of the CPU,
 * alone and side by side, with tokens that are masked, and 2:4 against the same weights dense.
 */
#include "support.h"

#include <math.h>

#include "nn_language_pass.h"
#include "nn_train_golden.h"
#include "run/gpu/gpu_model.h"

enum { TEXTS = 4, ROOM = 512 };

static const char *const levels[] = {"baseline", "avx2", "avx512", NULL};
static const char *const names[] = {"roberta", "xlm-roberta", "distilbert", "electra",
                                    "mpnet",   "modernbert",  "nomic_bert"};
enum { NAMES = sizeof names / sizeof *names, LEVELS = sizeof levels / sizeof *levels };

typedef struct texts {
    char folder[512];
    mini_file io;
    int64_t offsets[TEXTS + 1];
    int32_t ids[ROOM];
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

/* A pass of a batch: hidden [tokens, width], embeddings [texts, width]. */
static void pass(float *hidden, float *embeddings, s24_ctx *ctx, const s24_model *model,
                 const s24_batch *batch)
{
    s24_session *session;
    const s24_outputs outputs = {.hidden = hidden, .embeddings = embeddings};
    OK(ctx, s24_session_create(&session, ctx, model, batch->offsets[batch->texts]));
    OK(ctx, s24_session_forward(session, ctx, batch, &outputs));
    s24_session_destroy(session);
}

static void check_pass(const texts *t, s24_ctx *ctx, const s24_model *model, double bound)
{
    s24_model_info info;
    s24_model_describe(&info, model);
    float *hidden = malloc((size_t)(t->offsets[TEXTS] * info.width) * sizeof *hidden);
    float *mean = malloc((size_t)(TEXTS * info.width) * sizeof *mean);
    pass(hidden, mean, ctx, model, &t->batch);
    for (int b = 0; b < TEXTS; b++) {
        char key[16];
        snprintf(key, sizeof key, "hidden.%d", b);
        const mini_tensor state = mini_get(&t->io, key);
        near(state.data, hidden + t->offsets[b] * info.width, count_of(&state), bound, key);
        snprintf(key, sizeof key, "mean.%d", b);
        const mini_tensor vector = mini_get(&t->io, key);
        near(vector.data, mean + b * info.width, count_of(&vector), bound, key);
    }
    free(hidden);
    free(mean);
}

static void check_golden(const texts *t, s24_dtype dtype, double bound)
{
    for (int level = 0; level < LEVELS; level++)
        for (int threads = 1; threads <= 2; threads++) {
            s24_ctx *ctx = new_ctx(levels[level], threads);
            const s24_model_opts opts = {.size = sizeof opts, .dtype = dtype};
            s24_model *model;
            OK(ctx, load(&model, ctx, t->folder, &opts));
            check_pass(t, ctx, model, bound);
            s24_model_destroy(model);
            s24_ctx_destroy(ctx);
        }
}

static void golden_models(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        texts t;
        if (!open_texts(&t, names[i])) SKIP_WITHOUT(t.folder);
        check_golden(&t, S24_F32, 1e-4);
        check_golden(&t, S24_BF16, 3e-2);
        check_golden(&t, S24_I8, 3e-2);
        mini_close(&t.io);
    }
}

/* A text whose last tokens are masked has the states of the text without them. */
static void masked_tokens(void **state)
{
    enum { SEEN = 70, ALL = 120 };
    static float whole[ALL * 64], cut[SEEN * 64];
    uint8_t mask[ALL] = {0};
    const int64_t all_ends[] = {0, ALL}, seen_ends[] = {0, SEEN};
    (void)state;
    memset(mask, 1, SEEN);
    for (int i = 0; i < NAMES; i++) {
        texts t;
        if (!open_texts(&t, names[i])) SKIP_WITHOUT(t.folder);
        for (int b = 0; b < 2; b++) {
            s24_ctx *ctx = new_ctx(NULL, 1);
            const s24_model_opts opts = {.size = sizeof opts, .dtype = b ? S24_BF16 : S24_F32};
            s24_model *model;
            OK(ctx, load(&model, ctx, t.folder, &opts));
            const int32_t *ids = t.ids + t.offsets[3];
            const s24_batch all = {.texts = 1, .offsets = all_ends, .ids = ids, .mask = mask};
            const s24_batch seen = {.texts = 1, .offsets = seen_ends, .ids = ids};
            float vector[64];
            pass(whole, vector, ctx, model, &all);
            pass(cut, vector, ctx, model, &seen);
            near(cut, whole, SEEN * 64, b ? 2e-2 : 1e-5, names[i]);
            s24_model_destroy(model);
            s24_ctx_destroy(ctx);
        }
        mini_close(&t.io);
    }
}

/* What is pruned and packed runs 2:4 and gives what its weights give dense. */
static void pruned_models(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        texts t;
        if (!open_texts(&t, names[i])) SKIP_WITHOUT(t.folder);
        s24_ctx *ctx = new_ctx(NULL, 1);
        const char *folder = prune(ctx, t.folder, 1, NULL);
        float *states[2], vectors[TEXTS * 64];
        for (int dense = 0; dense < 2; dense++) {
            const s24_model_opts opts = {.size = sizeof opts, .dense = dense, .all_sparse = !dense};
            s24_model *model;
            s24_model_info info;
            OK(ctx, load(&model, ctx, folder, &opts));
            s24_model_describe(&info, model);
            assert_int_equal(info.sparse_layers, dense ? 0 : info.linear_layers);
            states[dense] = malloc((size_t)(t.offsets[TEXTS] * info.width) * sizeof(float));
            pass(states[dense], vectors, ctx, model, &t.batch);
            s24_model_destroy(model);
        }
        near(states[1], states[0], t.offsets[TEXTS] * 64, 1e-4, names[i]);
        free(states[0]);
        free(states[1]);
        s24_ctx_destroy(ctx);
        mini_close(&t.io);
    }
}

/* Training runs the same steps. */
static void trained_models(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        texts t;
        if (!open_texts(&t, names[i])) SKIP_WITHOUT(t.folder);
        s24_ctx *ctx = new_ctx(NULL, 1);
        s24_checkpoint *checkpoint;
        s24_transformer *model;
        static float states[4 * ROOM * 64];
        const float *hidden = states + 3 * t.offsets[TEXTS] * 64;
        const s24_transformer_opts opts = {.size = sizeof opts, .max_tokens = ROOM};
        const s24_examples examples = {.texts = t.batch};
        const s24_pass_outputs outputs = {.states = states};
        OK(ctx, s24_checkpoint_open(&checkpoint, ctx, t.folder));
        OK(ctx, s24_transformer_load(&model, ctx, checkpoint, &opts));
        OK(ctx, s24_transformer_forward(model, ctx, &examples, &outputs));
        for (int b = 0; b < TEXTS; b++) {
            char key[16];
            snprintf(key, sizeof key, "hidden.%d", b);
            const mini_tensor state_of = mini_get(&t.io, key);
            near(state_of.data, hidden + t.offsets[b] * 64, count_of(&state_of), 1e-4, key);
        }
        s24_transformer_destroy(model);
        s24_checkpoint_close(checkpoint);
        s24_ctx_destroy(ctx);
        mini_close(&t.io);
    }
}

/* A device takes what it has the steps for, and says what it lacks; none is asked. */
static void device_models(void **state)
{
    static const struct {
        const char *name, *refused;
    } rows[] = {{"roberta", NULL},    {"xlm-roberta", NULL}, {"distilbert", NULL},
                {"nomic_bert", NULL}, {"modernbert", NULL},  {"electra", NULL},
                {"mpnet", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        texts t;
        s24i_shape shape;
        if (!open_texts(&t, rows[i].name)) SKIP_WITHOUT(t.folder);
        s24_ctx *ctx = new_ctx(NULL, 1);
        const s24i_architecture *arch = s24i_architecture_find(rows[i].name);
        OK(ctx, s24i_shape_read(&shape, ctx, arch, t.folder));
        const s24_model_opts opts = {.size = sizeof opts};
        const s24_status status = s24i_gpu_check(ctx, &opts, arch, &shape);
        assert_int_equal(status, rows[i].refused ? S24_ERROR_UNSUPPORTED : S24_OK);
        if (rows[i].refused) assert_non_null(strstr(s24_ctx_error(ctx), rows[i].refused));
        s24_ctx_destroy(ctx);
        mini_close(&t.io);
    }
}

/* ---- what does not change a text's states ---------------------------------------------------- */

enum { ALIKE = 5, LONGEST = 40, WIDEST = 256 };
static const int64_t alike_tokens[ALIKE] = {1, 7, LONGEST, 16, 3};

/* Texts of random ids, and the states of each alone. */
typedef struct alike {
    int32_t ids[ALIKE][LONGEST];
    float states[ALIKE][LONGEST * WIDEST];
} alike;

/* The texts in that order. */
static void pass_texts(float *states, s24_ctx *ctx, const s24_model *model, const alike *a,
                       const int *order, int count)
{
    static float vectors[ALIKE * WIDEST];
    int32_t together[ALIKE * LONGEST];
    int64_t offsets[ALIKE + 1] = {0};
    for (int i = 0; i < count; i++) {
        const int64_t tokens = alike_tokens[order[i]];
        memcpy(together + offsets[i], a->ids[order[i]], (size_t)tokens * sizeof *together);
        offsets[i + 1] = offsets[i] + tokens;
    }
    const s24_batch batch = {.texts = count, .offsets = offsets, .ids = together};
    pass(states, vectors, ctx, model, &batch);
}

static void make_alone(alike *a, const char *folder, const s24_model_opts *opts)
{
    s24_ctx *ctx = new_ctx(NULL, 1);
    s24_model *model;
    s24_model_info info;
    uint64_t seed = 7;
    OK(ctx, load(&model, ctx, folder, opts));
    s24_model_describe(&info, model);
    assert_true(info.width <= WIDEST);
    for (int i = 0; i < ALIKE; i++) {
        for (int t = 0; t < LONGEST; t++)
            a->ids[i][t] = (int32_t)(4 + test_random(&seed) % (uint64_t)(info.vocabulary - 4));
        pass_texts(a->states[i], ctx, model, a, &i, 1);
    }
    s24_model_destroy(model);
    s24_ctx_destroy(ctx);
}

/* Each text in batches of several orders, on several threads, against the text alone. */
static void check_batches(const alike *a, const char *folder, const s24_model_opts *opts,
                          double bound)
{
    static const int orders[][ALIKE] = {{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}};
    static float states[ALIKE * LONGEST * WIDEST];
    s24_model_info info;
    s24_model *model;
    for (int threads = 1; threads <= 3; threads++) {
        s24_ctx *ctx = new_ctx(NULL, threads);
        OK(ctx, load(&model, ctx, folder, opts));
        s24_model_describe(&info, model);
        for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
            const float *at = states;
            pass_texts(states, ctx, model, a, orders[o], ALIKE);
            for (int i = 0; i < ALIKE; i++) {
                const int64_t count = alike_tokens[orders[o][i]] * info.width;
                near(a->states[orders[o][i]], at, count, bound, info.model_type);
                at += count;
            }
        }
        s24_model_destroy(model);
        s24_ctx_destroy(ctx);
    }
}

/* Dense; 2:4; 2:4 against the same weights dense. */
static void check_folder(const char *folder, s24_dtype dtype, double bound)
{
    static alike a;
    s24_model_opts opts = {.size = sizeof opts, .dtype = dtype};
    make_alone(&a, folder, &opts);
    check_batches(&a, folder, &opts, bound);
    s24_ctx *ctx = new_ctx(NULL, 1);
    const char *packed = prune(ctx, folder, 1, NULL);
    s24_ctx_destroy(ctx);
    opts.all_sparse = 1;
    make_alone(&a, packed, &opts);
    check_batches(&a, packed, &opts, bound);
    opts.all_sparse = 0;
    opts.dense = 1;
    check_batches(&a, packed, &opts, bound);
}

/* Every row that has a model among the golden ones. */
static void a_text_is_the_same_in_every_batch(void **state)
{
    static const char *const more[] = {"models/bert-qa", "models/gpt2", "models/llama"};
    enum { KIN = sizeof lm_golden / sizeof *lm_golden, MORE = sizeof more / sizeof *more };
    (void)state;
    for (int i = 0; i < NAMES + KIN + MORE; i++) {
        char model[64], folder[512];
        snprintf(model, sizeof model, "%s%s", i < NAMES ? "encoders/" : "",
                 i < NAMES         ? names[i]
                 : i < NAMES + KIN ? lm_golden[i - NAMES]
                                   : more[i - NAMES - KIN]);
        if (!golden_path(folder, sizeof folder, model)) SKIP_WITHOUT(folder);
        check_folder(folder, S24_F32, 1e-4);
        check_folder(folder, S24_BF16, 3e-2);
    }
}

/* Heads of sequence classification: BERT's pooler, RoBERTa's layer. */
static void golden_heads(void **state)
{
    static const char *const heads[] = {"bert-reranker", "roberta-reranker", "bert-classes"};
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        texts t;
        int32_t types[ROOM] = {0};
        float logits[TEXTS * 5];
        if (!open_texts(&t, heads[i])) SKIP_WITHOUT(t.folder);
        for (int b = 0; b < TEXTS && i != 1; b++) {
            char key[16];
            snprintf(key, sizeof key, "types.%d", b);
            const mini_tensor of = mini_get(&t.io, key);
            memcpy(types + t.offsets[b], of.data, (size_t)count_of(&of) * sizeof *types);
        }
        t.batch.types = types;
        s24_ctx *ctx = new_ctx(NULL, 2);
        s24_model *model;
        s24_session *session;
        s24_model_info info;
        const s24_outputs outputs = {.logits = logits};
        OK(ctx, load(&model, ctx, t.folder, NULL));
        s24_model_describe(&info, model);
        assert_int_equal(info.classes, i == 2 ? 5 : 1);
        OK(ctx, s24_session_create(&session, ctx, model, t.offsets[TEXTS]));
        OK(ctx, s24_session_forward(session, ctx, &t.batch, &outputs));
        for (int b = 0; b < TEXTS; b++) {
            char key[16];
            snprintf(key, sizeof key, "logits.%d", b);
            near(mini_get(&t.io, key).data, logits + b * info.classes, info.classes, 1e-4, key);
        }
        s24_session_destroy(session);
        s24_model_destroy(model);
        s24_ctx_destroy(ctx);
        mini_close(&t.io);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_models),
        cmocka_unit_test(masked_tokens),
        cmocka_unit_test(pruned_models),
        cmocka_unit_test(trained_models),
        cmocka_unit_test(device_models),
        cmocka_unit_test(golden_heads),
        cmocka_unit_test(a_text_is_the_same_in_every_batch),
    };
    return cmocka_run_group_tests_name("nn_encoder_models", tests, io_folder_setup,
                                       io_folder_teardown);
}
