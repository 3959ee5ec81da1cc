// SPDX-License-Identifier: Apache-2.0
/* Gradients against finite differences, and the loop: what it learns, what stays zero, how it goes
   on after it was stopped, and what it refuses. */
#include "support.h"

#include <fcntl.h>
#include <math.h>

#include "nn_failing.h"
#include "nn_load.h"
#include "nn_tiny.h"
#include "sparse24/train.h"

enum { EXAMPLES = 20, LENGTH = 7, MOST_TOKENS = 40, PARAMETERS = 64 };

static char student_folder[512], teacher_folder[512];

static int threads = 1;

static s24_ctx *new_ctx(void)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = threads};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

static s24_status load_as(s24_transformer **out, s24_ctx *ctx, const char *folder, int train)
{
    s24_checkpoint *checkpoint;
    const s24_transformer_opts opts = {
        .size = sizeof opts, .max_tokens = MOST_TOKENS, .max_texts = 8, .train = train};
    *out = NULL;
    s24_status status = s24_checkpoint_open(&checkpoint, ctx, folder);
    if (status != S24_OK) return status;
    status = s24_transformer_load(out, ctx, checkpoint, &opts);
    s24_checkpoint_close(checkpoint);
    return status;
}

/* The teacher is another model of the same shape: the student's weights, changed a little. */
static s24_transformer *load_teacher(s24_ctx *ctx)
{
    s24_transformer *t;
    s24_parameter p;
    OK(ctx, load_as(&t, ctx, teacher_folder, 0));
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        float *w = malloc((size_t)p.count * sizeof *w);
        OK(ctx, s24_transformer_read(w, t, ctx, i, 0));
        for (int64_t k = 0; k < p.count; k++)
            w[k] += 0.3f * sinf((float)(k + 3 * i));
        OK(ctx, s24_transformer_write(t, ctx, i, w));
        free(w);
    }
    return t;
}

/* ---- finite differences -------------------------------------------------------------------------- */

typedef struct batch {
    int64_t offsets[4];
    int32_t ids[18], types[18], starts[3], ends[3];
    uint8_t mask[18];
    s24_examples examples;
} batch;

static void fill_batch(batch *b)
{
    *b = (batch){.offsets = {0, 9, 10, 18}, .starts = {2, 0, -1}, .ends = {5, 0, 3}};
    for (int i = 0; i < 18; i++) {
        b->ids[i] = (i * 7 + 2) % TINY_VOCABULARY;
        b->types[i] = i % 9 > 4;
        b->mask[i] = i != 3 && i != 16;
    }
    b->examples = (s24_examples){
        .texts = {3, b->offsets, b->ids, b->types, b->mask}, .starts = b->starts, .ends = b->ends};
}

static double loss_of(s24_transformer *t, s24_ctx *ctx, const batch *b, const s24_objective *o)
{
    double loss;
    OK(ctx, s24_transformer_gradients(&loss, t, ctx, &b->examples, o));
    return loss;
}

/* Along each tensor's own gradient the loss must rise by the gradient's length. */
static void check_slopes(const s24_objective *objective)
{
    s24_ctx *ctx = new_ctx();
    s24_transformer *t, *teacher = load_teacher(ctx);
    s24_objective o = *objective;
    s24_parameter p;
    batch b;
    fill_batch(&b);
    OK(ctx, load_as(&t, ctx, student_folder, 1));
    o.size = sizeof o;
    if (o.logits + o.hidden + o.cosine > 0) o.teacher = teacher;
    loss_of(t, ctx, &b, &o);
    int moved = 0;
    float *gradients[PARAMETERS] = {NULL};
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        gradients[i] = malloc((size_t)p.count * sizeof(float));
        OK(ctx, s24_transformer_read(gradients[i], t, ctx, i, 1));
    }
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        const float h = 4e-3f;
        float *w = malloc((size_t)p.count * sizeof *w),
              *shifted = malloc((size_t)p.count * sizeof *w);
        double length = 0, side[2];
        for (int64_t k = 0; k < p.count; k++)
            length += (double)gradients[i][k] * (double)gradients[i][k];
        length = sqrt(length);
        OK(ctx, s24_transformer_read(w, t, ctx, i, 0));
        for (int s = 0; s < 2 && length > 1e-3; s++) {
            for (int64_t k = 0; k < p.count; k++)
                shifted[k] = w[k] + (s ? h : -h) * gradients[i][k] / (float)length;
            OK(ctx, s24_transformer_write(t, ctx, i, shifted));
            side[s] = loss_of(t, ctx, &b, &o);
        }
        OK(ctx, s24_transformer_write(t, ctx, i, w));
        const double slope = length > 1e-3 ? (side[1] - side[0]) / (2 * (double)h) : 0;
        if (length > 1e-3 && !(fabs(slope - length) <= 0.02 * length + 2e-3))
            fail_msg("%s: the gradient is %g long, the loss rises by %g", p.name, length, slope);
        moved += length > 1e-3;
        free(w);
        free(shifted);
    }
    for (int i = 0; i < PARAMETERS; i++)
        free(gradients[i]);
    assert_true(moved > 20);
    s24_transformer_destroy(t);
    s24_transformer_destroy(teacher);
    s24_ctx_destroy(ctx);
}

static void slopes(void **state)
{
    (void)state;
    check_slopes(&(s24_objective){.labels = 1});
    check_slopes(&(s24_objective){.logits = 1, .temperature = 2});
    check_slopes(&(s24_objective){.hidden = 1});
    check_slopes(&(s24_objective){.cosine = 5});
    check_slopes(&(s24_objective){.labels = 0.5, .logits = 0.3, .hidden = 0.7, .cosine = 2});
}

static void slopes_with_dropout(void **state)
{
    (void)state;
    check_slopes(&(s24_objective){.labels = 1, .dropout = 0.2, .seed = 4});
    check_slopes(&(s24_objective){.labels = 1, .attention_dropout = 0.3, .seed = 5});
    check_slopes(&(s24_objective){
        .hidden = 1, .cosine = 3, .dropout = 0.1, .attention_dropout = 0.1, .seed = 6});
}

/* Dropout is what its seed says: the same bits, and others with another seed. */
static void dropout_by_seed(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24_transformer *t;
    batch b;
    (void)state;
    fill_batch(&b);
    OK(ctx, load_as(&t, ctx, student_folder, 1));
    s24_objective o = {.size = sizeof o, .labels = 1, .dropout = 0.3, .seed = 1};
    const double first = loss_of(t, ctx, &b, &o);
    assert_true(loss_of(t, ctx, &b, &o) == first);
    o.seed = 2;
    assert_true(loss_of(t, ctx, &b, &o) != first);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

/* ---- the loop ------------------------------------------------------------------------------------ */

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

/* Stopped after any step, a run ends with the bits of one that was not. */
static void resumes(void **state)
{
    char path[600];
    int64_t count, other;
    watch w = {0};
    (void)state;
    snprintf(path, sizeof path, "%s", io_path("run.safetensors"));
    s24_train_opts opts = options(&w);
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
static const char *prune(const char *name)
{
    s24_ctx *ctx = new_ctx();
    s24_checkpoint *in;
    const char *out = io_path(name);
    const s24_model_prune_opts opts = {.size = sizeof opts, .include = "*layer.1.*dense.weight"};
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
    snprintf(folder, sizeof folder, "%s", prune("pruned"));
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
    opts.checkpoint_steps = 4;
    opts.objective.labels = 1;
    opts.rate = 1e30; /* the second step's weights are beyond any logit */
    opts.warmup = 0;
    opts.clip = 0;
    s24_ctx *ctx = new_ctx();
    s24_transformer *t;
    const s24_train_source examples = source();
    OK(ctx, load_as(&t, ctx, student_folder, 1));
    assert_int_equal(s24_train(NULL, t, ctx, &examples, &opts), S24_ERROR_NUMERIC);
    assert_non_null(strstr(s24_ctx_error(ctx), "at step"));
    assert_non_null(strstr(s24_ctx_error(ctx), path));
    float *weights = weights_of(t, ctx, &count);
    for (int64_t i = 0; i < count; i++)
        assert_true(isfinite(weights[i]));
    free(weights);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

static s24_status train_a_little(s24_ctx *ctx)
{
    s24_transformer *t, *teacher = NULL;
    const s24_train_source examples = source();
    s24_train_opts opts = {.size = sizeof opts, .steps = 2, .batch = 4, .objective = {.hidden = 1}};
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

/* ---- saving, refusals ----------------------------------------------------------------------------- */

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

static void refuses(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24_transformer *t;
    batch b;
    double loss;
    float states[600];
    s24_objective o = {.size = sizeof o, .hidden = 1};
    const s24_pass_outputs outputs = {.states = states};
    (void)state;
    fill_batch(&b);
    OK(ctx, load_as(&t, ctx, student_folder, 0));
    assert_int_equal(s24_transformer_gradients(&loss, t, ctx, &b.examples, &o), S24_ERROR_ARGUMENT);
    b.ids[4] = TINY_VOCABULARY;
    assert_int_equal(s24_transformer_forward(t, ctx, &b.examples, &outputs), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "token 4 has id 11"));
    b.ids[4] = 0;
    b.starts[0] = 9;
    assert_int_equal(s24_transformer_forward(t, ctx, &b.examples, &outputs), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "starts[0] is 9"));
    s24_transformer_destroy(t);
    OK(ctx, load_as(&t, ctx, student_folder, 1));
    fill_batch(&b);
    assert_int_equal(s24_transformer_gradients(&loss, t, ctx, &b.examples, &o), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "has no teacher"));
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

static int setup(void **state)
{
    const tiny t = {.qa_head = 1, .activation = "gelu"};
    if (io_folder_setup(state)) return 1;
    snprintf(student_folder, sizeof student_folder, "%s", tiny_write(&t, "student"));
    snprintf(teacher_folder, sizeof teacher_folder, "%s", tiny_write(&t, "teacher"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slopes),
        cmocka_unit_test(slopes_with_dropout),
        cmocka_unit_test(dropout_by_seed),
        cmocka_unit_test(learns),
        cmocka_unit_test(resumes),
        cmocka_unit_test(refuses_checkpoints),
        cmocka_unit_test(goes_on_without_checkpoints),
        cmocka_unit_test(zeros_stay),
        cmocka_unit_test(stops_at_nan),
        cmocka_unit_test(memory_fails),
        cmocka_unit_test(saves),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, setup, io_folder_teardown);
}
