// SPDX-License-Identifier: Apache-2.0
/*
 * Calibration of language models: what is written is checked against the core library run by hand
 * on statistics that the pruned model gives, weights that are stored [in, out] along their rows.
 */
#include "support.h"

#include <math.h>

#include "device_here.h"
#include "nn_language.h"
#include "nn_load.h"
#include "run/session.h"

enum { TEXTS = 24, MOST = 20, TOKENS = TEXTS * MOST };
static const char letters[] = "abcdefghijklmnopqrstuvwxyz ";

/* Random words, the same every time. */
static const s24_text *make_texts(void)
{
    static char words[TEXTS][MOST];
    static s24_text texts[TEXTS];
    uint64_t state = 5;
    for (int t = 0; t < TEXTS; t++) {
        const size_t count = 4 + test_random(&state) % (MOST - 3);
        for (size_t i = 0; i < count; i++)
            words[t][i] = letters[test_random(&state) % 27];
        texts[t] = (s24_text){words[t], count};
    }
    return texts;
}

static const char *folder_of(s24_ctx *ctx, const lm_spec *spec)
{
    const char *folder = io_path("model");
    const s24_text alphabet = {letters, sizeof letters - 1};
    char path[600];
    io_remove(folder);
    lm_write(spec, folder);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    OK(ctx, s24_tokenizer_write_characters(ctx, path, &alphabet, 1));
    return folder;
}

/* The tokens of a batch are the places of letters in the order of their code points. */
static s24_batch tokenize(s24_ctx *ctx, const char *folder, int64_t *offsets, int32_t *ids)
{
    const s24_text *texts = make_texts();
    s24_tokenizer *tokenizer;
    OK(ctx, s24_tokenizer_load(&tokenizer, ctx, folder));
    offsets[0] = 0;
    for (int t = 0; t < TEXTS; t++) {
        s24_token tokens[MOST];
        int64_t count;
        OK(ctx, s24_tokenizer_encode(tokens, &count, MOST, tokenizer, ctx, texts[t].data,
                                     texts[t].bytes, NULL, 0));
        for (int64_t i = 0; i < count; i++)
            ids[offsets[t] + i] = tokens[i].id;
        offsets[t + 1] = offsets[t] + count;
    }
    s24_tokenizer_destroy(tokenizer);
    return (s24_batch){.texts = TEXTS, .offsets = offsets, .ids = ids};
}

typedef struct gathering {
    s24_ctx *ctx;
    s24_stats *stats[S24I_SLOTS];
} gathering;

static s24_status gather(void *user, s24i_slot slot, const s24_dense *x)
{
    gathering *g = user;
    if (!g->stats[slot]) OK(g->ctx, s24_stats_create(&g->stats[slot], g->ctx, x->cols));
    return s24_stats_add(g->stats[slot], g->ctx, x);
}

/* A tensor as [n, k]. */
static float *rows_of(const s24_tensor *t, int64_t *n, int64_t *k)
{
    const int turned = t->transposed == 1;
    *n = t->shape[turned];
    *k = t->shape[!turned];
    float *w = malloc((size_t)(*n * *k) * sizeof *w);
    if (turned)
        s24i_transpose(w, t->data, *k, *n);
    else
        memcpy(w, t->data, (size_t)(*n * *k) * sizeof *w);
    return w;
}

static void compare_layer(s24_ctx *ctx, const s24_tensor *before, const s24_tensor *after,
                          const s24_stats *stats, const s24_prune_opts *opts)
{
    int64_t n, k;
    int two_four;
    float *w = rows_of(before, &n, &k), *written = rows_of(after, &n, &k);
    const s24_dense dense = {w, S24_F32, n, k, 0}, pruned = {written, S24_F32, n, k, 0};
    OK(ctx, s24_prune(NULL, ctx, &dense, stats, opts));
    OK(ctx, s24_check(&two_four, NULL, ctx, &pruned));
    assert_true(two_four);
    for (int64_t i = 0; i < n * k; i++)
        if (!(fabsf(w[i] - written[i]) <= 1e-3f))
            fail_msg("%s: element %lld is %g, by hand %g", after->name, (long long)i,
                     (double)written[i], (double)w[i]);
    free(w);
    free(written);
}

/* Slots whose input is another's. */
static int input_of(int slot)
{
    if (slot == S24I_KEY || slot == S24I_VALUE) return S24I_QUERY;
    return slot == S24I_GATE ? S24I_INTERMEDIATE : slot;
}

static void compare_model(s24_ctx *ctx, const char *in_path, const char *out_path,
                          const s24_prune_opts *opts)
{
    s24_checkpoint *in, *out;
    s24_model *model;
    s24_session *session;
    int64_t offsets[TEXTS + 1];
    int32_t ids[TOKENS];
    float *hidden = malloc(sizeof(float) * TOKENS * LM_WIDTH);
    OK(ctx, s24_checkpoint_open(&in, ctx, in_path));
    OK(ctx, s24_checkpoint_open(&out, ctx, out_path));
    OK(ctx, s24_model_load(&model, ctx, out, NULL));
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    const s24_batch batch = tokenize(ctx, in_path, offsets, ids);
    OK(ctx, s24i_session_embed(session, ctx, &batch, hidden));
    for (int block = 0; block < LM_LAYERS; block++) {
        gathering g = {.ctx = ctx};
        const s24i_observer observer = {.input = gather, .user = &g};
        OK(ctx, s24i_session_block(session, ctx, &batch, block, hidden, &observer));
        for (int slot = 0; slot < S24I_ALL_SLOTS; slot++) {
            char name[S24I_NAME_BYTES];
            const s24i_architecture *arch = model->architecture;
            if (!arch->slots[slot]) continue;
            const s24_tensor *before =
                s24i_tensor_find(name, in, arch, arch->slots[slot], block, ".weight");
            compare_layer(ctx, before, s24_checkpoint_find(out, name), g.stats[input_of(slot)],
                          opts);
        }
        for (int slot = 0; slot < S24I_SLOTS; slot++)
            s24_stats_destroy(g.stats[slot]);
    }
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_checkpoint_close(out);
    s24_checkpoint_close(in);
    free(hidden);
}

static void count_layer(void *user, const s24_layer_report *layer)
{
    assert_true(layer->output_error > 0 && layer->output_error < 1);
    ++*(int *)user;
}

static void every_criterion(void **state)
{
    static const lm_spec specs[] = {{.llama = 0}, {.llama = 1, .biased = 1}, LM_KIN, LM_OTHERS};
    static const char *const criteria[] = {"wanda", "sparsegpt"};
    enum { SPECS = sizeof specs / sizeof *specs };
    s24_ctx *ctx;
    const s24_ctx_opts two = {.size = sizeof two, .threads = 2};
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &two), S24_OK);
    for (int i = 0; i < 2 * SPECS; i += WATCHED ? 3 : 1) {
        const lm_spec *spec = &specs[i % SPECS];
        const char *in = folder_of(ctx, spec), *out = io_path("pruned");
        int layers = 0;
        s24_checkpoint *checkpoint;
        s24_model_prune_opts opts = {.size = sizeof opts,
                                     .texts = make_texts(),
                                     .text_count = TEXTS,
                                     .force = 1,
                                     .report = count_layer,
                                     .user = &layers};
        opts.prune.criterion = criteria[i / SPECS];
        OK(ctx, s24_checkpoint_open(&checkpoint, ctx, in));
        OK(ctx, s24_model_prune(ctx, checkpoint, out, &opts));
        s24_checkpoint_close(checkpoint);
        assert_int_equal(layers, LM_LAYERS * lm_block_layers(spec));
        const s24_prune_opts prune = {.size = sizeof prune, .criterion = criteria[i / SPECS]};
        compare_model(ctx, in, out, &prune);
    }
    s24_ctx_destroy(ctx);
}

/* The last states of a model over the texts. */
static void run_blocks(s24_ctx *ctx, float *hidden, const char *path)
{
    s24_checkpoint *checkpoint;
    s24_model *model;
    s24_session *session;
    int64_t offsets[TEXTS + 1];
    int32_t ids[TOKENS];
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, path));
    OK(ctx, s24_model_load(&model, ctx, checkpoint, NULL));
    OK(ctx, s24_session_create(&session, ctx, model, TOKENS));
    const s24_batch batch = tokenize(ctx, path, offsets, ids);
    OK(ctx, s24i_session_embed(session, ctx, &batch, hidden));
    for (int block = 0; block < LM_LAYERS; block++)
        OK(ctx, s24i_session_block(session, ctx, &batch, block, hidden, NULL));
    s24i_session_norm(session, ctx, hidden, offsets[TEXTS]);
    s24_session_destroy(session);
    s24_model_destroy(model);
    s24_checkpoint_close(checkpoint);
}

static double distance(const float *x, const float *y)
{
    double sum = 0.0;
    for (int64_t i = 0; i < TOKENS * LM_WIDTH; i++)
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

/* How far the pruned model's states are from the dense one's: without reconstruction, with it here,
   and on a device where there is one. */
static void distances(double *out, s24_ctx *ctx, const lm_spec *spec, s24_device *device)
{
    const char *in = folder_of(ctx, spec), *pruned = io_path("pruned");
    float *dense = calloc(TOKENS * LM_WIDTH, sizeof *dense);
    float *states = calloc(TOKENS * LM_WIDTH, sizeof *states);
    s24_checkpoint *checkpoint;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, in));
    run_blocks(ctx, dense, in);
    for (int way = 0; way < (device ? 3 : 2); way++) {
        const s24_model_prune_opts opts = {.size = sizeof opts,
                                           .texts = make_texts(),
                                           .text_count = TEXTS,
                                           .packed = 1,
                                           .force = 1,
                                           .reconstruct = way ? 60 : 0,
                                           .device = way == 2 ? device : NULL};
        OK(ctx, s24_model_prune(ctx, checkpoint, pruned, &opts));
        run_blocks(ctx, states, pruned);
        out[way] = distance(states, dense);
    }
    s24_checkpoint_close(checkpoint);
    free(states);
    free(dense);
}

/* The share of weights that two pruned models keep or drop alike. */
static double agreement(s24_ctx *ctx, const char *const paths[2])
{
    s24_checkpoint *both[2];
    int64_t alike = 0, all = 0;
    for (int i = 0; i < 2; i++)
        OK(ctx, s24_checkpoint_open(&both[i], ctx, paths[i]));
    for (int64_t t = 0; t < s24_checkpoint_count(both[0]); t++) {
        const s24_tensor *x = s24_checkpoint_tensor(both[0], t);
        const s24_tensor *y = s24_checkpoint_find(both[1], x->name);
        const float *a = x->data, *b = y->data;
        if (!s24_tensor_is_selected(x, NULL, NULL)) continue;
        all += x->shape[0] * x->shape[1];
        for (int64_t i = 0; i < x->shape[0] * x->shape[1]; i++)
            alike += (a[i] == 0.0f) == (b[i] == 0.0f);
    }
    for (int i = 0; i < 2; i++)
        s24_checkpoint_close(both[i]);
    return (double)alike / (double)all;
}

static void add_error(void *user, const s24_layer_report *layer)
{
    *(double *)user += layer->output_error;
}

/* As good a choice, and mostly the same: bf16 turns those that are near each other about, and each
   block sees what the one before it has become. */
static void a_device_keeps_what_the_cpu_keeps(void **state)
{
    static const lm_spec specs[] = {
        {.llama = 0, .heads = 6}, {.llama = 1, .biased = 1}, LM_KIN, LM_OTHERS};
    static const char *const criteria[] = {"wanda", "sparsegpt", "alps"};
    const s24_ctx_opts two = {.size = sizeof two, .threads = 2};
    char here[600], there[600];
    s24_ctx *ctx;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &two), S24_OK);
    s24_device *device = device_here(ctx);
    snprintf(here, sizeof here, "%s", io_path("here"));
    snprintf(there, sizeof there, "%s", io_path("there"));
    for (size_t i = 0; device && i < 3 * (sizeof specs / sizeof *specs); i++) {
        const lm_spec *spec = &specs[i / 3];
        double errors[2] = {0, 0};
        s24_checkpoint *checkpoint;
        s24_model_prune_opts opts = {.size = sizeof opts,
                                     .prune = {.criterion = criteria[i % 3]},
                                     .texts = make_texts(),
                                     .text_count = TEXTS,
                                     .force = 1,
                                     .report = add_error,
                                     .user = &errors[0]};
        OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder_of(ctx, spec)));
        OK(ctx, s24_model_prune(ctx, checkpoint, here, &opts));
        opts.device = device;
        opts.user = &errors[1];
        OK(ctx, s24_model_prune(ctx, checkpoint, there, &opts));
        s24_checkpoint_close(checkpoint);
        const double alike = agreement(ctx, (const char *const[]){here, there});
        if (!(alike > 0.8) || !(fabs(errors[1] - errors[0]) < 0.1 * errors[0]))
            fail_msg("model %d, %s: %.4f of the weights alike, errors %g and %g there",
                     (int)(i / 3), criteria[i % 3], alike, errors[0], errors[1]);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

static void reconstruction_comes_nearer_to_the_dense_model(void **state)
{
    static const lm_spec specs[] = {
        {.llama = 0, .heads = 6}, {.llama = 1, .biased = 1}, LM_KIN, LM_OTHERS};
    const s24_ctx_opts two = {.size = sizeof two, .threads = 2};
    s24_ctx *ctx;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &two), S24_OK);
    s24_device *device = device_here(ctx);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i += WATCHED ? 3 : 1) {
        double far[3];
        distances(far, ctx, &specs[i], device);
        if (!(far[1] < 0.7 * far[0]))
            fail_msg("model %d: reconstructed at %g, at %g without", (int)i, far[1], far[0]);
        if (device && !(far[2] < 1.1 * far[1]))
            fail_msg("model %d: reconstructed at %g, there at %g", (int)i, far[1], far[2]);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

static void masks_lie_as_their_weights_do(void **state)
{
    static const lm_spec spec = {.llama = 0};
    s24_ctx *ctx;
    s24_checkpoint *checkpoint, *masks, *made[2];
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder_of(ctx, &spec)));
    s24_model_prune_opts opts = {.size = sizeof opts, .force = 1};
    OK(ctx, s24_model_prune(ctx, checkpoint, io_path("by-size"), &opts));
    opts.masks_only = 1;
    OK(ctx, s24_model_prune(ctx, checkpoint, io_path("masks.safetensors"), &opts));
    OK(ctx, s24_checkpoint_open(&masks, ctx, io_path("masks.safetensors")));
    assert_int_equal(s24_checkpoint_count(masks), LM_LAYERS * 4);
    opts.masks_only = 0;
    opts.masks = masks;
    opts.prune.criterion = "random"; /* is not asked */
    OK(ctx, s24_model_prune(ctx, checkpoint, io_path("by-masks"), &opts));
    OK(ctx, s24_checkpoint_open(&made[0], ctx, io_path("by-size")));
    OK(ctx, s24_checkpoint_open(&made[1], ctx, io_path("by-masks")));
    for (int64_t i = 0; i < s24_checkpoint_count(made[0]); i++) {
        const s24_tensor *t = s24_checkpoint_tensor(made[0], i);
        const s24_tensor *u = s24_checkpoint_find(made[1], t->name);
        assert_int_equal(t->bytes, u->bytes);
        assert_memory_equal(t->data, u->data, t->bytes);
    }
    for (int i = 0; i < 2; i++)
        s24_checkpoint_close(made[i]);
    s24_checkpoint_close(masks);
    s24_checkpoint_close(checkpoint);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_criterion), cmocka_unit_test(masks_lie_as_their_weights_do),
        cmocka_unit_test(a_device_keeps_what_the_cpu_keeps),
        cmocka_unit_test(reconstruction_comes_nearer_to_the_dense_model)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
