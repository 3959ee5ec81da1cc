// SPDX-License-Identifier: Apache-2.0
/* A run that is stopped in the midst of a step, or of measuring what is held out, goes on to the
   bits that it would have had; and it is asked often enough to be stopped there. */
#include "support.h"

#include "nn_train_support.h"

enum { EXAMPLES = 20, STEPS = 6 };

typedef struct listener {
    int64_t calls, stop_at; /* of "training"; 0: never */
    int64_t reports;
} listener;

static int on_progress(void *user, const char *stage, int64_t done, int64_t total)
{
    listener *l = user;
    if (strcmp(stage, "training") != 0) return 0;
    assert_true(done <= total);
    return ++l->calls == l->stop_at;
}

static int on_step(void *user, const s24_train_report *report)
{
    listener *l = user;
    assert_int_equal(report->step, ++l->reports); /* each step once, though the run was stopped */
    return 0;
}

static s24_status write_example(void *user, s24_ctx *ctx, const s24_example *example, int64_t index)
{
    const int32_t *lengths = user;
    (void)ctx;
    for (int32_t i = 0; i < lengths[index]; i++)
        example->ids[i] = (int32_t)((index * 5 + i * 3) % TINY_VOCABULARY);
    *example->start = 1;
    *example->end = 2;
    return S24_OK;
}

/* A run in a context of its own, with a teacher; the weights that it leaves. */
static float *run(listener *l, const char *checkpoint, s24_status expected, size_t *bytes)
{
    int32_t lengths[EXAMPLES];
    for (int i = 0; i < EXAMPLES; i++)
        lengths[i] = 3 + i % 5;
    const s24_train_source source = {
        .count = EXAMPLES, .lengths = lengths, .write = write_example, .user = lengths};
    const s24_ctx_opts ctx_opts = {
        .size = sizeof ctx_opts, .threads = 1, .progress = on_progress, .user = l};
    s24_ctx *ctx;
    s24_transformer *t;
    s24_parameter p;
    assert_int_equal(s24_ctx_create(&ctx, &ctx_opts), S24_OK);
    s24_transformer *teacher = load_teacher(ctx);
    OK(ctx, load_as(&t, ctx, student_folder, 1));
    const s24_train_opts opts = {
        .size = sizeof opts,
        .objective = {.teacher = teacher, .labels = 1, .hidden = 1, .logits = 1, .dropout = 0.1},
        .steps = STEPS,
        .batch = 12, /* more tokens than a batch takes: cut into parts */
        .seed = 3,
        .fixed = 1,
        .refresh = 2,
        .refresh_until = 1,
        .checkpoint = checkpoint,
        .resume = 1,
        .held_out = &source,
        .held_out_steps = 3,
        .report = on_step,
        .user = l};
    const s24_status status = s24_train(NULL, t, ctx, &source, &opts);
    if (status != expected) fail_msg("status %d: %s", (int)status, s24_ctx_error(ctx));
    float *weights = NULL;
    size_t count = 0;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        weights = realloc(weights, (count + (size_t)p.count) * sizeof *weights);
        OK(ctx, s24_transformer_read(weights + count, t, ctx, i, 0));
        count += (size_t)p.count;
    }
    *bytes = count * sizeof *weights;
    s24_transformer_destroy(t);
    s24_transformer_destroy(teacher);
    s24_ctx_destroy(ctx);
    return weights;
}

static void stops_anywhere(void **state)
{
    char path[600];
    listener l = {0};
    size_t bytes, other;
    (void)state;
    snprintf(path, sizeof path, "%s", io_path("run.safetensors"));
    float *whole = run(&l, NULL, S24_OK, &bytes);
    const int64_t calls = l.calls;
    assert_int_equal(l.reports, STEPS);
    assert_true(calls > 40 * STEPS); /* not between steps alone */
    for (int64_t stop = 1; stop < calls - 1; stop += calls / 17) {
        remove(path);
        l = (listener){.stop_at = stop};
        free(run(&l, path, S24_ERROR_INTERRUPTED, &other));
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(l.calls, stop); /* nobody is asked again */
        float *again = run(&l, path, S24_OK, &other);
        assert_int_equal(l.reports, STEPS);
        assert_int_equal(bytes, other);
        assert_memory_equal(whole, again, bytes);
        free(again);
    }
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_anywhere),
    };
    return cmocka_run_group_tests(tests, train_setup, io_folder_teardown);
}
