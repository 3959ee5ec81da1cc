// SPDX-License-Identifier: Apache-2.0
/* The loop: what it learns, what stays zero, how it goes on after a stop, what it refuses. */
#include "support.h"

#include <fcntl.h>

#include "nn_failing.h"
#include "nn_train_support.h"

enum { EXAMPLES = 20, LENGTH = 7 };

/* ---- the loop -------------------------------------------------------------------------------- */

static int32_t lengths[EXAMPLES];

static s24_status write_example(void *user, s24_ctx *ctx, const s24_example *example, int64_t index)
{
    (void)user;
    (void)ctx;
    for (int32_t i = 0; i < lengths[index]; i++)
        example->ids[i] = (int32_t)((index * 5 + i * 3) % TINY_VOCABULARY);
    *example->start = 1;
    *example->end = 2;
    return S24_OK;
}

static s24_train_source source(void)
{
    for (int i = 0; i < EXAMPLES; i++)
        lengths[i] = 3 + i % (LENGTH - 2);
    return (s24_train_source){.count = EXAMPLES, .lengths = lengths, .write = write_example};
}

typedef struct watch {
    int64_t stop_at, steps;
    double first, last, held_out;
} watch;

static int on_step(void *user, const s24_train_report *report)
{
    watch *w = user;
    if (report->step == 1) w->first = report->loss;
    w->last = report->loss;
    w->steps = report->step;
    if (isfinite(report->held_out)) w->held_out = report->held_out;
    return report->step == w->stop_at;
}

static s24_train_opts options(watch *w)
{
    return (s24_train_opts){.size = sizeof(s24_train_opts),
                            .objective = {.labels = 1, .dropout = 0.1, .attention_dropout = 0.1},
                            .steps = 24,
                            .batch = 12, /* more tokens than a batch takes: cut into parts */
                            .seed = 3,
                            .rate = 3e-3,
                            .warmup = 0.1,
                            .clip = 1,
                            .report = on_step,
                            .user = w};
}

static float *weights_of(const s24_transformer *t, s24_ctx *ctx, int64_t *count)
{
    s24_parameter p;
    float *all = NULL;
    *count = 0;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        all = realloc(all, (size_t)(*count + p.count) * sizeof *all);
        OK(ctx, s24_transformer_read(all + *count, t, ctx, i, 0));
        *count += p.count;
    }
    return all;
}

/* Runs to the end or to where it stops; the weights then. */
static float *run(const s24_train_opts *opts, const char *folder, s24_status expected,
                  int64_t *count)
{
    s24_ctx *ctx = new_ctx();
    s24_transformer *t;
    const s24_train_source examples = source();
    OK(ctx, load_as(&t, ctx, folder, 1));
    const s24_status status = s24_train(NULL, t, ctx, &examples, opts);
    if (status != expected)
        fail_msg("status %d, %d was expected: %s", (int)status, (int)expected, s24_ctx_error(ctx));
    float *weights = weights_of(t, ctx, count);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
    return weights;
}

static void learns(void **state)
{
    int64_t count;
    (void)state;
    for (int schedule = S24_SCHEDULE_LINEAR; schedule <= S24_SCHEDULE_CONSTANT; schedule++) {
        watch w = {.held_out = NAN};
        s24_train_opts opts = options(&w);
        const s24_train_source held = source();
        opts.schedule = (s24_schedule)schedule;
        opts.objective.dropout = opts.objective.attention_dropout = 0;
        opts.rate = 2e-2;
        opts.held_out = &held;
        free(run(&opts, student_folder, S24_OK, &count));
        assert_int_equal(w.steps, 24);
        assert_true(w.last < 0.6 * w.first);
        assert_true(w.held_out < 0.6 * w.first);
    }
}

/* Stopped after any step, a run ends with the bits of one that was not; refresh: of masks. */
static void check_resuming(int64_t refresh)
{
    char path[600];
    int64_t count, other;
    watch w = {0};
    snprintf(path, sizeof path, "%s", io_path("run.safetensors"));
    s24_train_opts opts = options(&w);
    opts.fixed = refresh > 0;
    opts.refresh = refresh;
    threads = 2;
    float *whole = run(&opts, student_folder, S24_OK, &count);
    for (int stop = 1; stop < 24; stop += 7) {
        remove(path);
        w = (watch){.stop_at = stop};
        opts.checkpoint = path;
        opts.resume = 1; /* nothing to resume from is a start */
        free(run(&opts, student_folder, S24_ERROR_INTERRUPTED, &other));
        w.stop_at = 0;
        float *again = run(&opts, student_folder, S24_OK, &other);
        assert_int_equal(count, other);
        assert_memory_equal(whole, again, (size_t)count * sizeof *whole);
        free(again);
    }
    threads = 1;
    free(whole);
}

static void resumes(void **state)
{
    (void)state;
    check_resuming(0);
    check_resuming(4); /* of the stops one is at a choice, the others between two */
}

static void checkpoint_refused(const s24_train_opts *opts, const char *sentence)
{
    s24_ctx *ctx = new_ctx();
    s24_transformer *t;
    const s24_train_source examples = source();
    OK(ctx, load_as(&t, ctx, student_folder, 1));
    assert_int_equal(s24_train(NULL, t, ctx, &examples, opts), S24_ERROR_FORMAT);
    if (!strstr(s24_ctx_error(ctx), sentence))
        fail_msg("'%s' does not say '%s'", s24_ctx_error(ctx), sentence);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

static void refuses_checkpoints(void **state)
{
    char path[600];
    int64_t count;
    watch w = {.stop_at = 3};
    (void)state;
    snprintf(path, sizeof path, "%s", io_path("other.safetensors"));
    s24_train_opts opts = options(&w);
    opts.checkpoint = path;
    free(run(&opts, student_folder, S24_ERROR_INTERRUPTED, &count));
    opts.resume = 1;
    s24_train_opts other = opts;
    other.rate = 1e-3;
    checkpoint_refused(&other, "of a run with other options");
    other = opts;
    char model[700];
    snprintf(model, sizeof model, "%s/model.safetensors", student_folder);
    other.checkpoint = model;
    checkpoint_refused(&other, "no training checkpoint");
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fputs("nonsense", file);
    fclose(file);
    checkpoint_refused(&opts, path);
}

/* A checkpoint that cannot be written is no end of the run. */
static void goes_on_without_checkpoints(void **state)
{
    int64_t count;
    watch w = {0};
    (void)state;
    s24_train_opts opts = options(&w);
    opts.checkpoint = "/nowhere/at/all.safetensors";
    opts.checkpoint_steps = 5;
    free(run(&opts, student_folder, S24_OK, &count));
    assert_int_equal(w.steps, 24);
}

/* The student with its second block's feed-forward layer 2:4. */
static const char *prune(const char *name, const char *criterion)
{
    s24_ctx *ctx = new_ctx();
    s24_checkpoint *in;
    const char *out = io_path(name);
    const s24_model_prune_opts opts = {.size = sizeof opts,
                                       .prune = {.criterion = criterion},
                                       .include = "*layer.1.*dense.weight"};
    OK(ctx, s24_checkpoint_open(&in, ctx, student_folder));
    OK(ctx, s24_model_prune(ctx, in, out, &opts));
    s24_checkpoint_close(in);
    s24_ctx_destroy(ctx);
    return out;
}

static void zeros_stay(void **state)
{
    int64_t count, kept = 0;
    watch w = {0};
    (void)state;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", prune("pruned", NULL));
    s24_ctx *ctx = new_ctx();
    s24_transformer *t;
    OK(ctx, load_as(&t, ctx, folder, 0));
    float *before = weights_of(t, ctx, &count);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
    s24_train_opts opts = options(&w);
    opts.fixed = 1;
    opts.decay = 0.1;
    float *after = run(&opts, folder, S24_OK, &count);
    for (int64_t i = 0; i < count; i++)
        kept += before[i] == 0.0f && after[i] == 0.0f;
    /* Tiny's weights are 0 here and there; those of dense tensors move. */
    assert_true(kept >= (TINY_WIDTH * TINY_WIDTH + 2 * TINY_WIDTH * TINY_OUTER) / 2);
    free(after);
    opts.fixed = 0;
    after = run(&opts, folder, S24_OK, &count);
    int64_t free_zeros = 0;
    for (int64_t i = 0; i < count; i++)
        free_zeros += before[i] == 0.0f && after[i] == 0.0f;
    assert_true(free_zeros < kept / 4);
    free(after);
    free(before);
    opts.fixed = 1;
    free(run(&opts, student_folder, S24_ERROR_NOT_TWO_FOUR, &count));
}

/* Every layer of the blocks is 2:4, by the magnitude that its weights have where the masks are
   chosen for the last time. */
static void masks_are_chosen_anew(void **state)
{
    int64_t count;
    watch w = {0};
    (void)state;
    s24_train_opts opts = options(&w);
    opts.fixed = 1;
    opts.rate = 2e-2;
    opts.objective.dropout = opts.objective.attention_dropout = 0;
    opts.refresh = 25; /* the first choice stays */
    float *first = run(&opts, student_folder, S24_OK, &count);
    assert_true(w.last < 0.6 * w.first);
    opts.refresh = 4;
    float *changed = run(&opts, student_folder, S24_OK, &count);
    assert_true(w.last < 0.6 * w.first);
    opts.refresh_until = 1;
    float *late = run(&opts, student_folder, S24_OK, &count);
    int64_t at = 0, matrices = 0, moved = 0, moved_late = 0;
    s24_parameter p;
    s24_transformer *t;
    s24_ctx *ctx = new_ctx();
    OK(ctx, load_as(&t, ctx, student_folder, 0));
    float *start = weights_of(t, ctx, &count);
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); at += p.count, i++) {
        const s24_tensor tensor = {
            .name = p.name, .dtype = S24_F32, .rank = p.rank, .shape = {p.shape[0], p.shape[1]}};
        if (!s24_tensor_is_selected(&tensor, NULL, NULL)) continue;
        float *const all[] = {first + at, changed + at, late + at};
        uint8_t *keep = malloc((size_t)p.count);
        s24_dense dense = {start + at, S24_F32, p.shape[0], p.shape[1], 0};
        OK(ctx, s24_magnitude_mask(keep, ctx, &dense, 0));
        for (int64_t e = 0; e < p.count; e++) {
            assert_true(keep[e] || first[at + e] == 0.0f);
            moved += !keep[e] && changed[at + e] != 0.0f;
            moved_late += (late[at + e] != 0.0f) != (changed[at + e] != 0.0f);
        }
        for (int k = 0; k < 3; k++) {
            int yes;
            dense.data = all[k];
            OK(ctx, s24_check(&yes, NULL, ctx, &dense));
            assert_true(yes);
        }
        free(keep);
        matrices++;
    }
    assert_int_equal(matrices, 12);
    assert_true(moved > 0 && moved_late > 0);
    free(start);
    free(first);
    free(changed);
    free(late);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
    opts.fixed = 0;
    free(run(&opts, student_folder, S24_ERROR_ARGUMENT, &count));
    opts.fixed = 1;
    opts.refresh_until = 1.5;
    free(run(&opts, student_folder, S24_ERROR_ARGUMENT, &count));
}

static void masks_along_both_sides_are_chosen_anew(void **state)
{
    int64_t count, at = 0, matrices = 0, moved = 0;
    int sides[2];
    char folder[512];
    watch w = {0};
    s24_parameter p;
    s24_transformer *t;
    (void)state;
    snprintf(folder, sizeof folder, "%s", prune("tiles", "tile-greedy"));
    s24_train_opts opts = options(&w);
    opts.fixed = 1;
    opts.rate = 2e-2;
    opts.refresh = 4;
    float *after = run(&opts, folder, S24_OK, &count);
    s24_ctx *ctx = new_ctx();
    OK(ctx, load_as(&t, ctx, folder, 0));
    float *before = weights_of(t, ctx, &count);
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); at += p.count, i++) {
        const s24_dense dense = {after + at, S24_F32, p.shape[0], p.shape[1], 0};
        if (!strstr(p.name, "layer.1.") || !strstr(p.name, "dense.weight")) continue;
        OK(ctx, s24_check(&sides[0], NULL, ctx, &dense));
        OK(ctx, s24_check_along_n(&sides[1], NULL, ctx, &dense));
        assert_true(sides[0] && sides[1]);
        for (int64_t e = at; e < at + p.count; e++)
            moved += before[e] == 0.0f && after[e] != 0.0f;
        matrices++;
    }
    assert_int_equal(matrices, 3);
    assert_true(moved > 0);
    free(before);
    free(after);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

/* A loss that is no number: nothing of the step is applied and the checkpoint before stays. */
static void stops_at_nan(void **state)
{
    char path[600];
    int64_t count;
    watch w = {0};
    (void)state;
    snprintf(path, sizeof path, "%s", io_path("nan.safetensors"));
    s24_train_opts opts = options(&w);
    opts.checkpoint = path;
    opts.objective.labels = 1;
    opts.rate = 1e30; /* the second step's weights are beyond any logit */
    opts.warmup = 0;
    opts.clip = 0;
    for (int turn = 0; turn < 4; turn++) {
        s24_ctx *ctx = new_ctx();
        s24_transformer *t;
        const s24_train_source examples = source();
        const int written = turn % 2;
        remove(path);
        opts.checkpoint_steps = turn >= 2 ? 0 : written ? 1 : 4;
        opts.checkpoint_seconds = turn < 2 ? 0 : written ? 1e-9 : 1e9; /* alone: no steps at all */
        OK(ctx, load_as(&t, ctx, student_folder, 1));
        assert_int_equal(s24_train(NULL, t, ctx, &examples, &opts), S24_ERROR_NUMERIC);
        assert_non_null(strstr(s24_ctx_error(ctx), "at step"));
        /* A checkpoint is named where there is one. */
        assert_int_equal(access(path, F_OK) == 0, written);
        assert_int_equal(strstr(s24_ctx_error(ctx), path) != NULL, written);
        float *weights = weights_of(t, ctx, &count);
        for (int64_t i = 0; i < count; i++)
            assert_true(isfinite(weights[i]));
        free(weights);
        s24_transformer_destroy(t);
        s24_ctx_destroy(ctx);
    }
}

/* A run that was killed between its last checkpoint and what its caller does with the weights. */
static void resumes_at_the_end(void **state)
{
    char path[600];
    int64_t count, other;
    watch w = {0};
    (void)state;
    snprintf(path, sizeof path, "%s", io_path("ended.safetensors"));
    s24_train_opts opts = options(&w);
    opts.checkpoint = path;
    float *whole = run(&opts, student_folder, S24_OK, &count);
    opts.resume = 1;
    s24_ctx *ctx = new_ctx();
    s24_transformer *t;
    s24_train_report report = {.size = sizeof report};
    const s24_train_source examples = source();
    OK(ctx, load_as(&t, ctx, student_folder, 1));
    OK(ctx, s24_train(&report, t, ctx, &examples, &opts));
    float *again = weights_of(t, ctx, &other);
    assert_memory_equal(whole, again, (size_t)count * sizeof *whole);
    assert_int_equal(report.step, 24);
    assert_int_equal(report.steps, 24);
    assert_true(report.tokens > 0 && report.epoch > 0 && report.seconds > 0);
    assert_true(isnan(report.loss) && isnan(report.held_out));
    free(whole);
    free(again);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

/* No more examples are taken a step than there are, and what no run can last is refused. */
static void bounds_its_options(void **state)
{
    int64_t count;
    watch w = {0};
    (void)state;
    s24_train_opts opts = options(&w);
    opts.steps = 2;
    opts.batch = INT64_MAX;
    free(run(&opts, student_folder, S24_OK, &count));
    assert_int_equal(w.steps, 2);
    opts.steps = 0;
    opts.epochs = 1e300;
    free(run(&opts, student_folder, S24_ERROR_ARGUMENT, &count));
}

static s24_status train_a_little(s24_ctx *ctx)
{
    s24_transformer *t, *teacher = NULL;
    const s24_train_source examples = source();
    s24_train_opts opts = {.size = sizeof opts,
                           .steps = 2,
                           .batch = 4,
                           .objective = {.hidden = 1},
                           .fixed = 1,
                           .refresh = 1,
                           .refresh_until = 1};
    s24_status status = load_as(&t, ctx, student_folder, 1);
    if (status == S24_OK) status = load_as(&teacher, ctx, teacher_folder, 0);
    opts.objective.teacher = teacher;
    if (status == S24_OK) status = s24_train(NULL, t, ctx, &examples, &opts);
    s24_transformer_destroy(t);
    s24_transformer_destroy(teacher);
    return status;
}

static void memory_fails(void **state)
{
    (void)state;
    assert_true(count_failures(train_a_little) > 20);
}

/* ---- saving ---------------------------------------------------------------------------------- */

static void saves(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24_checkpoint *model;
    s24_transformer *t, *again;
    int64_t count, other;
    char folder[512];
    (void)state;
    snprintf(folder, sizeof folder, "%s", io_path("saved"));
    OK(ctx, s24_checkpoint_open(&model, ctx, student_folder));
    t = load_teacher(ctx);
    OK(ctx, s24_transformer_save(t, ctx, model, folder, 0));
    assert_int_equal(s24_transformer_save(t, ctx, model, folder, 0), S24_ERROR_EXISTS);
    OK(ctx, load_as(&again, ctx, folder, 0));
    float *a = weights_of(t, ctx, &count), *b = weights_of(again, ctx, &other);
    assert_int_equal(count, other);
    assert_memory_equal(a, b, (size_t)count * sizeof *a);
    free(a);
    free(b);
    s24_checkpoint_close(model);
    s24_transformer_destroy(again);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns),
        cmocka_unit_test(resumes),
        cmocka_unit_test(resumes_at_the_end),
        cmocka_unit_test(bounds_its_options),
        cmocka_unit_test(refuses_checkpoints),
        cmocka_unit_test(goes_on_without_checkpoints),
        cmocka_unit_test(zeros_stay),
        cmocka_unit_test(masks_are_chosen_anew),
        cmocka_unit_test(masks_along_both_sides_are_chosen_anew),
        cmocka_unit_test(stops_at_nan),
        cmocka_unit_test(memory_fails),
        cmocka_unit_test(saves),
    };
    return cmocka_run_group_tests(tests, train_setup, io_folder_teardown);
}
