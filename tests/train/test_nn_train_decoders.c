// SPDX-License-Identifier: Apache-2.0
/*
 * Decoders that are no plain Llama in training: a pass is the model in double, gradients are the
 * slopes of the loss, and computed again they have the same bits; a packed model learns, stopped or
 * not, and is worth what was said; halves of blocks are reconstructed.
 */
#include "support.h"

#include "nn_decoders.h"
#include "nn_train_slopes.h"

/* ---- gradients ------------------------------------------------------------------------------- */

enum { ROOM = 2 * OUTER * W }; /* numbers of a tensor */

static s24_ctx *ctx; /* one for all: it asks the CPU what it is */

static s24_transformer *open_trained(const char *folder, int recompute)
{
    const s24_transformer_opts opts = {
        .size = sizeof opts, .max_tokens = TOKENS, .train = 1, .recompute = recompute};
    s24_transformer *t;
    s24_checkpoint *checkpoint;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    OK(ctx, s24_transformer_load(&t, ctx, checkpoint, &opts));
    s24_checkpoint_close(checkpoint);
    return t;
}

/* Labels, and the logits and states of a model whose words are others; of one without a head its
   states alone. */
static s24_transformer *teach(s24_objective *o, const kind *k, const char *folder)
{
    static float words[WORDS * W];
    s24_transformer *teacher = open_trained(folder, 0);
    OK(ctx, s24_transformer_read(words, teacher, ctx, 0, 0));
    for (int i = 0; i < WORDS * W; i++)
        words[i] *= i % 3 ? 0.9f : 1.2f;
    OK(ctx, s24_transformer_write(teacher, ctx, 0, words));
    *o = (s24_objective){.size = sizeof *o,
                         .labels = k->near ? 0 : 1,
                         .logits = k->near ? 0 : 0.5,
                         .hidden = 0.5,
                         .temperature = 2,
                         .teacher = teacher};
    return teacher;
}

/* Is it a tensor of the block in the middle, or of none? */
static int is_looked_at(const char *name)
{
    const char *block = strstr(name, "layers.");
    return !block || block[7] == '1';
}

/* Along such a tensor's own gradient the loss rises by its length. */
static void check_slopes(s24_transformer *t, const s24_examples *examples, const s24_objective *o)
{
    static float gradients[MOST_PARAMETERS][ROOM];
    s24_parameter p;
    int moved = 0;
    loss_of(t, ctx, examples, o);
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        assert_true(i < MOST_PARAMETERS && p.count <= ROOM);
        OK(ctx, s24_transformer_read(gradients[i], t, ctx, i, 1));
    }
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        if (!is_looked_at(p.name)) continue;
        const slope along = {t, ctx, examples, o, i, 1e-3f};
        const double length = length_of(gradients[i], p.count);
        const double rises = slope_along(&along, gradients[i]);
        if (!(fabs(rises - length) <= 0.02 * length + 2e-3))
            fail_msg("%s: the gradient is %g long, the loss rises by %g", p.name, length, rises);
        moved += length > 1e-3;
    }
    assert_true(moved >= 6);
}

/* Computed again, activations and so gradients have the same bits. */
static void check_again(s24_transformer *t, const char *folder, const s24_examples *examples,
                        const s24_objective *o)
{
    static float want[ROOM], got[ROOM];
    s24_transformer *again = open_trained(folder, 1);
    s24_parameter p;
    s24_transformer_clear(t, ctx);
    assert_true(loss_of(t, ctx, examples, o) == loss_of(again, ctx, examples, o));
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        OK(ctx, s24_transformer_read(want, t, ctx, i, 1));
        OK(ctx, s24_transformer_read(got, again, ctx, i, 1));
        assert_memory_equal(want, got, (size_t)p.count * sizeof *want);
    }
    s24_transformer_destroy(again);
}

/* Training's pass is the model in double, and its gradients are the slopes of the loss. */
static void trained(void **state)
{
    int32_t ids[TOKENS], targets[TOKENS];
    const int64_t offsets[] = {0, TOKENS};
    given_text *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
    (void)state;
    fill_ids(ids);
    for (int i = 0; i < TOKENS; i++)
        targets[i] = i % 4 ? (i * 5 + 1) % WORDS : -1;
    for (int i = 0; i < KINDS; i++) {
        const char *folder = write_folder(&kinds[i]);
        const s24_examples examples = {.texts = {.texts = 1, .offsets = offsets, .ids = ids},
                                       .targets = kinds[i].near ? NULL : targets};
        const s24_pass_outputs outputs = {.logits = kinds[i].near ? NULL : got->logits};
        s24_objective o;
        s24_transformer *t = open_trained(folder, 0), *teacher;
        teacher = teach(&o, &kinds[i], folder);
        OK(ctx, s24_transformer_forward(t, ctx, &examples, &outputs));
        run_plain(want->states, want->logits, &kinds[i], folder, ids, TOKENS);
        if (!kinds[i].near) near(want->logits, got->logits, TOKENS * WORDS, 2e-5, kinds[i].type);
        check_slopes(t, &examples, &o);
        check_again(t, folder, &examples, &o);
        s24_transformer_destroy(t);
        s24_transformer_destroy(teacher);
    }
    free(want);
    free(got);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static s24_status write_example(void *user, s24_ctx *of, const s24_example *example, int64_t index)
{
    (void)user, (void)of, (void)index;
    fill_ids(example->ids);
    for (int i = 0; i + 1 < TOKENS; i++)
        example->targets[i] = example->ids[i + 1];
    return S24_OK;
}

static int stop_at(void *user, const s24_train_report *report)
{
    return report->step == *(const int64_t *)user;
}

/* Trains a packed folder until a step, 0: to the end, from the run's checkpoint if it is there, and
   writes what it ends with. Returns the loss that was told. */
static double learn(const char *folder, const char *out, int64_t until)
{
    static const int32_t lengths[] = {TOKENS, TOKENS};
    char run[600];
    snprintf(run, sizeof run, "%s", io_path("run.safetensors"));
    const s24_train_source source = {.count = 2, .lengths = lengths, .write = write_example};
    const s24_train_opts opts = {.size = sizeof opts,
                                 .objective = {.labels = 1, .dropout = 0.1},
                                 .steps = 4,
                                 .batch = 1,
                                 .rate = 1e-3,
                                 .clip = 1,
                                 .checkpoint = run,
                                 .checkpoint_steps = 2,
                                 .resume = 1,
                                 .method = "fixed",
                                 .held_out = &source,
                                 .report = stop_at,
                                 .user = &until};
    s24_train_report report = {.size = sizeof report};
    s24_transformer *t = open_trained(folder, 0);
    s24_checkpoint *checkpoint;
    const s24_status status = s24_train(&report, t, ctx, &source, &opts);
    if (status != (until ? S24_ERROR_INTERRUPTED : S24_OK)) fail_msg("%s", s24_ctx_error(ctx));
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    if (out) OK(ctx, s24_transformer_save(t, ctx, checkpoint, out, 1));
    s24_checkpoint_close(checkpoint);
    s24_transformer_destroy(t);
    if (!until) remove(run);
    return report.held_out;
}

/* The mean loss of the example in the pass of who runs the folder, all of whose layers are 2:4. */
static double score(const char *folder)
{
    static given_text found;
    const s24_model_opts opts = {.size = sizeof opts, .all_sparse = 1};
    int32_t ids[TOKENS];
    double loss = 0;
    s24_model *model;
    s24_model_info info;
    fill_ids(ids);
    OK(ctx, load(&model, ctx, folder, &opts));
    s24_model_describe(&info, model);
    assert_int_equal(info.sparse_layers, info.linear_layers);
    pass(&found, ctx, model, ids, TOKENS);
    for (int t = 0; t + 1 < TOKENS; t++) {
        const float *row = found.logits + t * WORDS;
        double sum = 0;
        for (int i = 0; i < WORDS; i++)
            sum += exp((double)row[i]);
        loss += (log(sum) - (double)row[ids[t + 1]]) / (TOKENS - 1);
    }
    s24_model_destroy(model);
    return loss;
}

static void same_tensors(const char *const folders[2])
{
    s24_checkpoint *both[2];
    for (int i = 0; i < 2; i++)
        OK(ctx, s24_checkpoint_open(&both[i], ctx, folders[i]));
    for (int64_t i = 0; i < s24_checkpoint_count(both[0]); i++) {
        const s24_tensor *x = s24_checkpoint_tensor(both[0], i);
        const s24_tensor *y = s24_checkpoint_find(both[1], x->name);
        const void *const data[] = {x->packed ? x->values : x->data,
                                    y->packed ? y->values : y->data};
        const int64_t count = x->shape[0] * (x->rank > 1 ? x->shape[1] : 1) / (x->packed ? 2 : 1);
        if (memcmp(data[0], data[1], (size_t)count * sizeof(float)))
            fail_msg("%s is another after a stop", x->name);
    }
    for (int i = 0; i < 2; i++)
        s24_checkpoint_close(both[i]);
}

/* A packed model learns, stopped or not to the same bits, stays packed, and is worth what its
   training says. */
static void learns(void **state)
{
    char whole[600], parts[600];
    (void)state;
    snprintf(whole, sizeof whole, "%s", io_path("whole"));
    snprintf(parts, sizeof parts, "%s", io_path("parts"));
    for (int i = 0; i < KINDS; i++) {
        if (kinds[i].near) continue;
        const char *folder = prune(ctx, write_folder(&kinds[i]), 1, NULL);
        const double told = learn(folder, whole, 0);
        learn(folder, NULL, 3);
        learn(folder, parts, 0);
        same_tensors((const char *const[]){whole, parts});
        const double before = score(folder), after = score(whole);
        if (!(fabs(after - told) < 1e-4 && after < before))
            fail_msg("%s: from %g to %g, %g was told", kinds[i].type, before, after, told);
    }
}

/* ---- reconstruction -------------------------------------------------------------------------- */

/* Prunes by the text with so many steps of reconstruction, and says how far states are then. */
static s24_status reconstruct(double *far, const char *folder, const s24_batch *text, int64_t steps)
{
    static given_text want, got;
    const char *pruned = io_path("pruned");
    const s24_model_prune_opts opts = {
        .size = sizeof opts, .ids = text, .force = 1, .reconstruct = steps};
    s24_checkpoint *checkpoint;
    s24_model *models[2];
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    const s24_status status = s24_model_prune(ctx, checkpoint, pruned, &opts);
    s24_checkpoint_close(checkpoint);
    if (status != S24_OK) return status;
    OK(ctx, load(&models[0], ctx, folder, NULL));
    OK(ctx, load(&models[1], ctx, pruned, NULL));
    pass(&want, ctx, models[0], text->ids, TOKENS);
    pass(&got, ctx, models[1], text->ids, TOKENS);
    *far = 0;
    for (int i = 0; i < TOKENS * W; i++)
        *far += pow((double)want.states[i] - (double)got.states[i], 2);
    s24_model_destroy(models[0]);
    s24_model_destroy(models[1]);
    return S24_OK;
}

/* Halves of blocks learn what the dense ones gave, but where these stand side by side. */
static void reconstructed(void **state)
{
    static const char *const types[] = {"gemma2", "granite", "olmo2", "phi"};
    int32_t ids[TOKENS];
    const int64_t offsets[] = {0, TOKENS};
    const s24_batch text = {.texts = 1, .offsets = offsets, .ids = ids};
    (void)state;
    fill_ids(ids);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const kind *k = kinds;
        while (strcmp(k->type, types[i]) != 0)
            k++;
        double before = 0, after = 0;
        const char *folder = write_folder(k);
        OK(ctx, reconstruct(&before, folder, &text, 0));
        const s24_status status = reconstruct(&after, folder, &text, 25);
        if (k->side) {
            assert_int_equal(status, S24_ERROR_UNSUPPORTED);
            assert_non_null(strstr(s24_ctx_error(ctx), "stand side by side"));
        } else {
            OK(ctx, status);
            if (!(after < 0.7 * before))
                fail_msg("%s: reconstructed at %g, at %g without", k->type, after, before);
        }
    }
}

static int setup(void **state)
{
    ctx = new_ctx(NULL, 1);
    return io_folder_setup(state);
}

static int teardown(void **state)
{
    s24_ctx_destroy(ctx);
    return io_folder_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(trained), cmocka_unit_test(learns),
                                       cmocka_unit_test(reconstructed)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
