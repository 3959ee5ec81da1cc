// SPDX-License-Identifier: Apache-2.0
/*
 * Layers that aim at the dense model: a Llama's are checked against s24_prune_aim of sums by hand
 * over what its blocks read in f32; others come nearer to the dense model, with as many threads as
 * may be, and from few passages not further on others; refusals, and memory that ends anywhere.
 */
#include "support.h"

#include <math.h>

#include "nn_language.h"
#include "nn_load.h"
#include "run/session.h"

enum { TEXTS = 24, MOST = 20, TOKENS = TEXTS * MOST };
static const char *const aims[] = {"weights", "outputs", "states"};
enum { WEIGHTS, OUTPUTS, STATES, AIMS };

/* Passages of random ids, the same every time. */
static const s24_batch *passages(void)
{
    static int64_t offsets[TEXTS + 1];
    static int32_t ids[TOKENS];
    static s24_batch batch;
    uint64_t state = 5;
    for (int t = 0; t < TEXTS; t++) {
        offsets[t + 1] = offsets[t] + 4 + (int64_t)(test_random(&state) % (MOST - 3));
        for (int64_t i = offsets[t]; i < offsets[t + 1]; i++)
            ids[i] = (int32_t)(test_random(&state) % LM_VOCABULARY);
    }
    batch = (s24_batch){.texts = TEXTS, .offsets = offsets, .ids = ids};
    return &batch;
}

static const char *folder_of(const lm_spec *spec)
{
    const char *folder = io_path("model");
    io_remove(folder);
    lm_write(spec, folder);
    return folder;
}

static s24_model_prune_opts options(const char *aim)
{
    return (s24_model_prune_opts){.size = sizeof(s24_model_prune_opts),
                                  .prune = {.criterion = "sparsegpt"},
                                  .ids = passages(),
                                  .force = 1,
                                  .aim = aim};
}

/* ---- a model and its states ------------------------------------------------------------------ */

typedef struct running {
    s24_ctx *ctx;
    s24_checkpoint *checkpoint;
    s24_model *model;
    s24_session *session;
    float *hidden; /* [TOKENS, LM_WIDTH] */
    float *inputs[S24I_SLOTS];
    int64_t cols[S24I_SLOTS];
} running;

static running begin(s24_ctx *ctx, const char *path)
{
    running r = {.ctx = ctx, .hidden = calloc(TOKENS * LM_WIDTH, sizeof(float))};
    OK(ctx, s24_checkpoint_open(&r.checkpoint, ctx, path));
    OK(ctx, s24_model_load(&r.model, ctx, r.checkpoint, NULL));
    OK(ctx, s24_session_create(&r.session, ctx, r.model, TOKENS));
    OK(ctx, s24i_session_embed(r.session, ctx, passages(), r.hidden));
    return r;
}

static void drop_inputs(running *r)
{
    for (int slot = 0; slot < S24I_SLOTS; slot++) {
        free(r->inputs[slot]);
        r->inputs[slot] = NULL;
    }
}

static void end(running *r)
{
    drop_inputs(r);
    s24_session_destroy(r->session);
    s24_model_destroy(r->model);
    s24_checkpoint_close(r->checkpoint);
    free(r->hidden);
}

static s24_status keep_input(void *user, s24i_slot slot, const s24_dense *x)
{
    running *r = user;
    const int64_t ld = x->ld ? x->ld : x->cols;
    r->cols[slot] = x->cols;
    r->inputs[slot] = malloc((size_t)(x->rows * x->cols) * sizeof(float));
    for (int64_t row = 0; row < x->rows; row++)
        memcpy(r->inputs[slot] + row * x->cols, (const float *)x->data + row * ld,
               (size_t)x->cols * sizeof(float));
    return S24_OK;
}

static void run_block(running *r, int64_t block)
{
    const s24i_observer observer = {.input = keep_input, .user = r};
    drop_inputs(r);
    OK(r->ctx, s24i_session_block(r->session, r->ctx, passages(), block, r->hidden, &observer));
}

static const s24_tensor *weight_of(const running *r, int64_t block, int slot)
{
    char name[S24I_NAME_BYTES];
    const s24i_architecture *arch = r->model->architecture;
    return s24i_tensor_find(name, r->checkpoint, arch, arch->slots[slot], block, ".weight");
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* to [rows, k] = Σ a·x over tokens */
static void sum_up(float *to, const float *a, int64_t rows, const float *x, int64_t k,
                   const int64_t tokens[2])
{
    for (int64_t i = 0; i < rows * k; i++) {
        double sum = 0.0;
        for (int64_t t = tokens[0]; t < tokens[1]; t++)
            sum += (double)a[t * rows + i / k] * (double)x[t * k + i % k];
        to[i] = (float)sum;
    }
}

/* What a weight [n, k] aims by, over the tokens between two. */
typedef struct by_hand {
    float *cross, *lack;
    s24_dense sums[2];
    s24_aim aim;
} by_hand;

/* Of inputs x of the pruned model and d of the dense one, and of what states lack, or NULL. */
static by_hand sums_by_hand(s24_ctx *ctx, int64_t n, int64_t k, const float *const rows[3],
                            const int64_t tokens[2])
{
    by_hand b = {.cross = malloc((size_t)(k * k) * sizeof(float)),
                 .lack = malloc((size_t)(n * k) * sizeof(float))};
    s24_stats *stats;
    const s24_dense x = {(float *)(uintptr_t)rows[0] + tokens[0] * k, S24_F32,
                         tokens[1] - tokens[0], k, 0};
    OK(ctx, s24_stats_create(&stats, ctx, k));
    OK(ctx, s24_stats_add(stats, ctx, &x));
    sum_up(b.cross, rows[1], k, rows[0], k, tokens);
    if (rows[2]) sum_up(b.lack, rows[2], n, rows[0], k, tokens);
    b.sums[0] = (s24_dense){b.cross, S24_F32, k, k, 0};
    b.sums[1] = (s24_dense){b.lack, S24_F32, n, k, 0};
    b.aim.stats = stats;
    return b;
}

/* w [n, k] moves; the last of eight passages are held back. */
static void move_by_hand(s24_ctx *ctx, const s24_dense *w, const float *const rows[3])
{
    const int64_t *offsets = passages()->offsets, shown = offsets[TEXTS - TEXTS / 8];
    const int64_t tokens[2][2] = {{0, shown}, {shown, offsets[TEXTS]}};
    by_hand by[2];
    for (int held = 0; held < 2; held++) {
        by[held] = sums_by_hand(ctx, w->rows, w->cols, rows, tokens[held]);
        by[held].aim.cross = &by[held].sums[0];
        by[held].aim.rest = rows[2] ? &by[held].sums[1] : NULL;
    }
    OK(ctx, s24_prune_aim(NULL, ctx, w, &by[0].aim, &by[1].aim, 0.0));
    for (int held = 0; held < 2; held++) {
        s24_stats_destroy((s24_stats *)(uintptr_t)by[held].aim.stats);
        free(by[held].lack);
        free(by[held].cross);
    }
}

/* states [tokens, LM_WIDTH] += what the attention layer adds. */
static void add_attention(float *states, const running *r, int64_t block)
{
    const s24_tensor *t = weight_of(r, block, S24I_ATTENTION);
    const int64_t tokens = passages()->offsets[TEXTS], k = t->shape[1];
    for (int64_t i = 0; i < tokens * LM_WIDTH; i++)
        for (int64_t j = 0; j < k; j++)
            states[i] += ((const float *)t->data)[i % LM_WIDTH * k + j] *
                         r->inputs[S24I_ATTENTION][i / LM_WIDTH * k + j];
}

static int input_of(int slot)
{
    if (slot == S24I_KEY || slot == S24I_VALUE) return S24I_QUERY;
    return slot == S24I_GATE ? S24I_INTERMEDIATE : slot;
}

static void compare_slot(const running *dense, const running *pruned, int64_t block, int slot,
                         const float *lack)
{
    s24_ctx *ctx = dense->ctx;
    const s24_tensor *before = weight_of(dense, block, slot);
    const s24_tensor *after = weight_of(pruned, block, slot);
    const int64_t n = before->shape[0], k = before->shape[1];
    const int input = input_of(slot);
    const float *const rows[] = {pruned->inputs[input], dense->inputs[input], lack};
    const s24_prune_opts opts = {.size = sizeof opts, .criterion = "sparsegpt"};
    float *w = malloc((size_t)(n * k) * sizeof *w);
    const s24_dense weight = {w, S24_F32, n, k, 0};
    const s24_dense x = {pruned->inputs[input], S24_F32, passages()->offsets[TEXTS], k, 0};
    s24_stats *stats;
    memcpy(w, before->data, (size_t)(n * k) * sizeof *w);
    move_by_hand(ctx, &weight, rows);
    OK(ctx, s24_stats_create(&stats, ctx, k));
    OK(ctx, s24_stats_add(stats, ctx, &x));
    OK(ctx, s24_prune(NULL, ctx, &weight, stats, &opts));
    s24_stats_destroy(stats);
    for (int64_t i = 0; i < n * k; i++)
        if (!(fabsf(w[i] - ((const float *)after->data)[i]) <= 1e-3f))
            fail_msg("%s: element %lld is %g, by hand %g", after->name, (long long)i,
                     (double)((const float *)after->data)[i], (double)w[i]);
    free(w);
}

static void compare_block(running *dense, running *pruned, int64_t block, int states)
{
    enum { COUNT = TOKENS * LM_WIDTH };
    float *lack[2], *own = malloc(COUNT * sizeof *own);
    for (int half = 0; half < 2; half++)
        lack[half] = malloc(COUNT * sizeof **lack);
    memcpy(lack[1], dense->hidden, COUNT * sizeof **lack);
    memcpy(own, pruned->hidden, COUNT * sizeof *own);
    for (int64_t i = 0; i < COUNT; i++)
        lack[0][i] = lack[1][i] - own[i];
    run_block(dense, block);
    run_block(pruned, block);
    add_attention(lack[1], dense, block);
    add_attention(own, pruned, block);
    for (int64_t i = 0; i < COUNT; i++)
        lack[1][i] -= own[i];
    for (int slot = 0; slot < S24I_ALL_SLOTS; slot++) {
        const float *missing = slot == S24I_ATTENTION ? lack[0]
                               : slot == S24I_OUTPUT  ? lack[1]
                                                      : NULL;
        if (dense->model->architecture->slots[slot])
            compare_slot(dense, pruned, block, slot, states ? missing : NULL);
    }
    free(own);
    free(lack[1]);
    free(lack[0]);
}

static void layers_are_those_by_hand(void **state)
{
    static const lm_spec spec = {.llama = 1};
    s24_ctx *ctx;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    const char *in = folder_of(&spec), *out = io_path("pruned");
    for (int aim = OUTPUTS; aim < AIMS; aim++) {
        const s24_model_prune_opts opts = options(aims[aim]);
        OK(ctx, prune_path(ctx, in, out, &opts));
        running dense = begin(ctx, in), pruned = begin(ctx, out);
        for (int64_t block = 0; block < LM_LAYERS; block++)
            compare_block(&dense, &pruned, block, aim == STATES);
        end(&pruned);
        end(&dense);
    }
    s24_ctx_destroy(ctx);
}

/* ---- nearer ---------------------------------------------------------------------------------- */

static double distance(s24_ctx *ctx, const char *in, const char *out)
{
    running dense = begin(ctx, in), pruned = begin(ctx, out);
    double sum = 0.0;
    for (int64_t block = 0; block < LM_LAYERS; block++) {
        run_block(&dense, block);
        run_block(&pruned, block);
    }
    for (int64_t i = 0; i < passages()->offsets[TEXTS] * LM_WIDTH; i++)
        sum += pow((double)dense.hidden[i] - (double)pruned.hidden[i], 2);
    end(&pruned);
    end(&dense);
    return sum;
}

static void models_come_nearer_to_the_dense_one(void **state)
{
    static const lm_spec specs[] = {{.llama = 0}, {.llama = 1, .biased = 1}, LM_KIN, LM_OTHERS};
    const s24_ctx_opts two = {.size = sizeof two, .threads = 2};
    s24_ctx *ctx;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &two), S24_OK);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i += WATCHED ? 3 : 1) {
        const char *in = folder_of(&specs[i]), *out = io_path("pruned");
        double far[AIMS];
        for (int aim = 0; aim < AIMS; aim++) {
            const s24_model_prune_opts opts = options(aims[aim]);
            OK(ctx, prune_path(ctx, in, out, &opts));
            far[aim] = distance(ctx, in, out);
        }
        if (!(far[OUTPUTS] < far[WEIGHTS]) || !(far[STATES] < 0.95 * far[WEIGHTS]))
            fail_msg("model %d: at %g, aiming at outputs %g, at states %g", (int)i, far[WEIGHTS],
                     far[OUTPUTS], far[STATES]);
    }
    s24_ctx_destroy(ctx);
}

/* By some 50 tokens, next to layers of up to 48 columns, which would be learned by heart if nothing
   were held back. */
static void few_passages_take_no_model_further(void **state)
{
    static const lm_spec specs[] = {{.llama = 0}, {.llama = 1, .biased = 1}, LM_KIN, LM_OTHERS};
    const s24_batch few = {.texts = 4, .offsets = passages()->offsets, .ids = passages()->ids};
    s24_ctx *ctx;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i += WATCHED ? 5 : 1) {
        const char *in = folder_of(&specs[i]), *out = io_path("pruned");
        double far[AIMS];
        for (int aim = 0; aim < AIMS; aim++) {
            s24_model_prune_opts opts = options(aims[aim]);
            opts.ids = &few;
            OK(ctx, prune_path(ctx, in, out, &opts));
            far[aim] = distance(ctx, in, out);
        }
        if (!(far[OUTPUTS] < 1.05 * far[WEIGHTS]) || !(far[STATES] < 1.05 * far[WEIGHTS]))
            fail_msg("model %d: at %g, aiming at outputs %g, at states %g", (int)i, far[WEIGHTS],
                     far[OUTPUTS], far[STATES]);
    }
    s24_ctx_destroy(ctx);
}

static char *pruned_file(size_t *bytes, const char *in, int threads)
{
    const s24_ctx_opts how = {.size = sizeof how, .threads = threads};
    const s24_model_prune_opts opts = options("states");
    char path[600];
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, &how), S24_OK);
    OK(ctx, prune_path(ctx, in, io_path("pruned"), &opts));
    s24_ctx_destroy(ctx);
    snprintf(path, sizeof path, "%s/model.safetensors", io_path("pruned"));
    return io_read_file(path, bytes);
}

static void threads_give_the_same_bits(void **state)
{
    static const lm_spec spec = {.llama = 1};
    size_t bytes[2];
    (void)state;
    const char *in = folder_of(&spec);
    char *one = pruned_file(&bytes[0], in, 1), *two = pruned_file(&bytes[1], in, 2);
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(one, two, bytes[0]);
    free(two);
    free(one);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refusal(s24_ctx *ctx, const s24_model_prune_opts *opts, s24_status status,
                           const char *part)
{
    assert_int_equal(prune_path(ctx, io_path("model"), io_path("refused"), opts), status);
    assert_sentence(ctx, part);
    assert_int_not_equal(access(io_path("refused"), F_OK), 0);
}

static void what_cannot_aim_is_refused(void **state)
{
    static const lm_spec spec = {.llama = 1};
    static const lm_spec untrained = {.llama = 1, .model_type = "cohere"};
    s24_ctx *ctx;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    folder_of(&spec);
    s24_model_prune_opts opts = options("inputs");
    expect_refusal(ctx, &opts, S24_ERROR_ARGUMENT,
                   "aim of pruning is \"inputs\"; expected weights, outputs or states");
    opts = options("states");
    opts.prune.criterion = "magnitude";
    opts.ids = NULL;
    expect_refusal(ctx, &opts, S24_ERROR_ARGUMENT, "dense model's states needs calibration");
    opts = options("states");
    const s24_batch one = {.texts = 1, .offsets = passages()->offsets, .ids = passages()->ids};
    opts.ids = &one;
    expect_refusal(ctx, &opts, S24_ERROR_ARGUMENT,
                   "to aim at states needs two passages or more, of which one is held back");
    opts = options("outputs");
    opts.prune.dampening = -1;
    expect_refusal(ctx, &opts, S24_ERROR_ARGUMENT, "dampening is -1");
    opts = options("outputs");
    folder_of(&untrained);
    expect_refusal(ctx, &opts, S24_ERROR_UNSUPPORTED, "cohere");
    s24_ctx_destroy(ctx);
}

static void every_allocation_may_fail(void **state)
{
    static const lm_spec spec = {.llama = 1};
    s24_status status = S24_ERROR_MEMORY;
    int64_t failures = 0;
    s24_batch few = *passages();
    (void)state;
    few.texts = 8; /* one is held back */
    const char *in = folder_of(&spec);
    while (status != S24_OK) {
        io_env env;
        io_begin(&env);
        failures += WATCHED ? 10 : 1;
        env.memory.fail_at = env.memory.calls + failures;
        s24_model_prune_opts opts = options("states");
        opts.ids = &few;
        opts.prune.criterion = "magnitude";
        status = prune_path(env.ctx, in, io_path("pruned"), &opts);
        if (status != S24_OK) {
            if (status != S24_ERROR_MEMORY) fail_msg("%s", s24_ctx_error(env.ctx));
            assert_sentence(env.ctx, "memory");
        }
        io_end(&env);
    }
    assert_true(failures > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_are_those_by_hand),
                                       cmocka_unit_test(models_come_nearer_to_the_dense_one),
                                       cmocka_unit_test(few_passages_take_no_model_further),
                                       cmocka_unit_test(threads_give_the_same_bits),
                                       cmocka_unit_test(what_cannot_aim_is_refused),
                                       cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
