// SPDX-License-Identifier: Apache-2.0
/* Every method of sparse training as a run of a tiny model, on the CPU or, where `there` is one, on
   a device: what the tests of both share. Include after support.h. */
#ifndef S24_TEST_NN_METHOD_ROWS_H
#define S24_TEST_NN_METHOD_ROWS_H

#include "nn_train_support.h"

enum { EXAMPLES = 12, LENGTH = 10, STEPS = 12, WORDS = 16 };

static char model[512];
static _Thread_local s24_device *there; /* NULL: the CPU */

static inline void write_config(char folder[512], const char *name, const char *activation,
                                int width)
{
    char config[500], path[600];
    snprintf(folder, 512, "%s", io_path(name));
    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(config, sizeof config,
             "{\"model_type\":\"gpt2\",\"n_embd\":%d,\"n_head\":2,\"n_layer\":2,"
             "\"n_positions\":12,\"vocab_size\":%d,\"activation_function\":\"%s\","
             "\"layer_norm_epsilon\":1e-5,\"initializer_range\":0.2}",
             width, WORDS, activation);
    io_write_text(path, config);
}

static inline s24_transformer *draw(s24_ctx *ctx, const char *folder, uint64_t seed)
{
    s24_checkpoint *config;
    s24_transformer *t;
    const s24_transformer_opts opts = {.size = sizeof opts,
                                       .max_tokens = MOST_TOKENS,
                                       .max_texts = 8,
                                       .train = 1,
                                       .seed = seed,
                                       .draw = 1,
                                       .device = there,
                                       .dtype = there ? S24_BF16 : 0};
    OK(ctx, s24_checkpoint_open_config(&config, ctx, folder));
    OK(ctx, s24_transformer_load(&t, ctx, config, &opts));
    s24_checkpoint_close(config);
    return t;
}

static _Atomic int64_t examples_asked; // ranks are threads

static inline s24_status write_example(void *user, s24_ctx *ctx, const s24_example *example,
                                       int64_t index)
{
    (void)user;
    (void)ctx;
    examples_asked++;
    for (int i = 0; i < LENGTH; i++) {
        example->ids[i] = (int32_t)((index + i * 3) % WORDS);
        example->targets[i] = (int32_t)((index + (i + 1) * 3) % WORDS);
    }
    return S24_OK;
}

static int32_t lengths[EXAMPLES];

static inline s24_train_source source(void)
{
    for (int i = 0; i < EXAMPLES; i++)
        lengths[i] = LENGTH;
    return (s24_train_source){.count = EXAMPLES, .lengths = lengths, .write = write_example};
}

/* ---- every row ------------------------------------------------------------------------------- */

/* What a row's run is told next to its name, and how it ends. */
static const struct {
    const char *name, *numbers;
    int ends; /* 2:4: 0 no, 1 along k, 2 along n too */
} rows[] = {{"dense", "watch=3", 0},
            {"fixed", NULL, 1},
            {"ste", "refresh=2", 1},
            {"sr-ste", "start=0.3", 1},
            {"s-ste", "start=0.2,mvue=2", 1},
            {"s-ste", "start=0.2,fp8=1", 1},
            {"fst", "refresh=4,tail=0", 2},
            {"fst", "refresh=4", 0}, /* dense at the end, as in its paper */
            {"fst", "refresh=4,tail=0,fp8=1", 2},
            {"step", "least=0.1,most=0.4,statistic=2,corrected=0", 1},
            {"cast", "refresh=4,masked-decay=0.1", 1},
            {"semi-sparse", "tail=0", 2},
            {"semi-sparse-activation", "start=0.2", 0},
            {"squared-relu", "start=0.2", 0},
            {"maskllm", "scale=1,scale-end=5,temperature=1", 1},
            {"multimask", "masks=2", 1}};
enum { ROWS = sizeof rows / sizeof *rows };

typedef struct watch {
    int64_t stop_at, chosen;
    int64_t keep_at; /* the step whose report finds a checkpoint, of which `kept` becomes a copy */
    const char *checkpoint, *kept;
    s24_train_report last;
} watch;

static inline int on_step(void *user, const s24_train_report *report)
{
    watch *w = user;
    w->chosen += report->flips > 0;
    w->last = *report;
    if (w->keep_at && report->step == w->keep_at)
        assert_int_equal(link(w->checkpoint, w->kept), 0); /* a later one is a file of its own */
    return report->step == w->stop_at;
}

/* Zeros for "fixed": the files' rows are k here. */
static inline void make_two_four(s24_transformer *t, s24_ctx *ctx)
{
    s24_parameter p;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        if (p.rank != 2 || !strstr(p.name, "c_")) continue;
        float *w = malloc((size_t)p.count * sizeof *w);
        OK(ctx, s24_transformer_read(w, t, ctx, i, 0));
        for (int64_t e = 0; e < p.count; e++)
            if ((e / p.shape[1] + e) % 4 < 2) w[e] = 0;
        OK(ctx, s24_transformer_write(t, ctx, i, w));
        free(w);
    }
}

static inline float *weights_of(const s24_transformer *t, s24_ctx *ctx, int64_t *count)
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

static inline s24_train_opts options(int row, watch *w)
{
    return (s24_train_opts){.size = sizeof(s24_train_opts),
                            .objective = {.labels = 1, .dropout = 0.1},
                            .steps = STEPS,
                            .batch = 6,
                            .seed = 2,
                            .rate = 1e-2,
                            .decay = 0.01,
                            .clip = 1,
                            .checkpoint_steps = 100,
                            .report = on_step,
                            .user = w,
                            .method = rows[row].name,
                            .numbers = rows[row].numbers};
}

static inline s24_transformer *start(s24_ctx *ctx, int row, s24_train_opts *opts)
{
    s24_transformer *t = draw(ctx, model, 5);
    if (!strcmp(rows[row].name, "fixed")) make_two_four(t, ctx);
    if (strcmp(rows[row].name, "cast") != 0) return t;
    opts->objective.teacher = draw(ctx, model, 6);
    opts->objective.logits = 0.5;
    return t;
}

/* Runs to the end or to where it stops; the weights then. */
static inline float *run(int row, s24_train_opts *opts, s24_status expected, int64_t *count)
{
    s24_ctx *ctx = new_ctx();
    const s24_train_source examples = source();
    s24_transformer *t = start(ctx, row, opts);
    const s24_status status = s24_train(NULL, t, ctx, &examples, opts);
    if (status != expected)
        fail_msg("%s: status %d: %s", rows[row].name, (int)status, s24_ctx_error(ctx));
    float *weights = weights_of(t, ctx, count);
    s24_transformer_destroy(t);
    s24_transformer_destroy(opts->objective.teacher);
    opts->objective.teacher = NULL;
    s24_ctx_destroy(ctx);
    return weights;
}

/* A run leaves its checkpoint of step `at` and goes on to its end; from there another one, that
   stops once more, must end with its bits. The first is not begun anew for that: on a GPU it chose
   by measuring which products run 2:4, which is part of its checkpoints. */
static inline void row_resumes(int row, int at)
{
    char path[600], kept[600];
    const s24_train_source held = source();
    int64_t count, other;
    snprintf(path, sizeof path, "%s", io_path("run.safetensors"));
    snprintf(kept, sizeof kept, "%s", io_path("kept.safetensors"));
    remove(path);
    remove(kept);
    watch w = {.keep_at = at + 1, .checkpoint = path, .kept = kept};
    s24_train_opts opts = options(row, &w);
    opts.held_out = &held; /* its measuring must leave no trace */
    opts.held_out_steps = 5;
    opts.checkpoint = path;
    opts.checkpoint_steps = at;
    float *whole = run(row, &opts, S24_OK, &count);
    w = (watch){.stop_at = at + 2};
    opts.checkpoint = kept;
    opts.checkpoint_steps = 100;
    opts.resume = 1;
    free(run(row, &opts, S24_ERROR_INTERRUPTED, &other));
    w.stop_at = 0;
    float *again = run(row, &opts, S24_OK, &other);
    assert_int_equal(count, other);
    if (memcmp(whole, again, (size_t)count * sizeof *whole))
        fail_msg("%s: stopped after %d steps it ends otherwise", rows[row].name, at);
    free(again);
    free(whole);
}

static inline void rows_resume(void **state)
{
    (void)state;
    threads = 2;
    for (int row = 0; row < ROWS; row++)
        for (int at = 2; at < STEPS; at += 6)
            row_resumes(row, at);
    threads = 1;
}

/* The mean loss of the examples in one pass of the weights as they are. */
static inline double score(s24_transformer *t, s24_ctx *ctx)
{
    double sum = 0;
    for (int64_t i = 0; i < EXAMPLES; i += 4) {
        int32_t ids[4 * LENGTH], targets[4 * LENGTH];
        const int64_t offsets[5] = {0, LENGTH, 2 * LENGTH, 3 * LENGTH, 4 * LENGTH};
        const s24_examples examples = {.texts = {.texts = 4, .offsets = offsets, .ids = ids},
                                       .targets = targets};
        double loss;
        const s24_pass_outputs outputs = {.loss = &loss};
        for (int k = 0; k < 4; k++)
            write_example(NULL, ctx,
                          &(s24_example){.ids = ids + k * LENGTH, .targets = targets + k * LENGTH},
                          i + k);
        OK(ctx, s24_transformer_forward(t, ctx, &examples, &outputs));
        sum += 4 * loss;
    }
    return sum / EXAMPLES;
}

/* Every layer of the blocks: its file has k as rows. */
static inline void expect_two_four(s24_transformer *t, s24_ctx *ctx, int row)
{
    s24_parameter p;
    int layers = 0;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        int along_k = 0, along_n = 0;
        if (p.rank != 2 || !strstr(p.name, "c_")) continue;
        float *w = malloc((size_t)p.count * sizeof *w);
        OK(ctx, s24_transformer_read(w, t, ctx, i, 0));
        const s24_dense dense = {w, S24_F32, p.shape[0], p.shape[1], 0};
        OK(ctx, s24_check_along_n(&along_k, NULL, ctx, &dense));
        OK(ctx, s24_check(&along_n, NULL, ctx, &dense));
        if (along_k != (rows[row].ends > 0) || (rows[row].ends == 2 && !along_n))
            fail_msg("%s: %s is %d %d", rows[row].name, p.name, along_k, along_n);
        layers++;
        free(w);
    }
    assert_int_equal(layers, 8);
}

static inline void rows_end_as_said(void **state)
{
    (void)state;
    for (int row = 0; row < ROWS; row++) {
        s24_ctx *ctx = new_ctx();
        const s24_train_source examples = source();
        s24_train_report report = {.size = sizeof report};
        watch w = {0};
        s24_train_opts opts = options(row, &w);
        s24_transformer *t = start(ctx, row, &opts);
        opts.held_out = &examples;
        opts.objective.dropout = 0;
        opts.steps = 40;
        const double before = score(t, ctx);
        OK(ctx, s24_train(&report, t, ctx, &examples, &opts));
        expect_two_four(t, ctx, row);
        const double after = score(t, ctx);
        /* A teacher's term is in CAST's; activations that are 2:4 are a matter of training. */
        if (!opts.objective.teacher && !strstr(rows[row].name, "activation") &&
            !strstr(rows[row].name, "relu"))
            assert_true(fabs(after - report.held_out) < (there ? 1e-2 : 1e-5));
        if (after > before) fail_msg("%s: from %g to %g", rows[row].name, before, after);
        s24_transformer_destroy(t);
        s24_transformer_destroy(opts.objective.teacher);
        s24_ctx_destroy(ctx);
    }
}

#endif
