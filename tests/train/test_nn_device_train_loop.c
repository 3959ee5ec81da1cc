// SPDX-License-Identifier: Apache-2.0
/* The training loop on a device: it learns as the CPU does, goes on to the same bits, scales the
   gradients of f16, stops and refuses. Says in a line where there is no GPU. */
#include "support.h"

#include "nn_device_train.h"

/* ---- the loop -------------------------------------------------------------------------------- */

enum { EXAMPLES = 24, STEPS = 12 };
static int32_t lengths[EXAMPLES];

static s24_status write_example(void *user, s24_ctx *unused, const s24_example *e, int64_t index)
{
    (void)user, (void)unused;
    for (int32_t i = 0; i < lengths[index]; i++)
        e->ids[i] = (int32_t)((index * 37 + i * 11) % 512);
    *e->start = 2;
    *e->end = 4;
    return S24_OK;
}

typedef struct watch {
    int64_t stop_at;
    double losses[STEPS + 1], norms[STEPS + 1];
} watch;

static int on_step(void *user, const s24_train_report *report)
{
    watch *w = user;
    w->losses[report->step] = report->loss;
    w->norms[report->step] = report->norm;
    return report->step == w->stop_at;
}

static s24_train_opts options(watch *w)
{
    return (s24_train_opts){.size = sizeof(s24_train_opts),
                            .objective = {.labels = 1, .dropout = 0.1, .attention_dropout = 0.1},
                            .steps = STEPS,
                            .batch = 12, /* more tokens than a batch takes: cut into parts */
                            .seed = 3,
                            .rate = 3e-3,
                            .decay = 0.01,
                            .warmup = 0.1,
                            .clip = 1,
                            .report = on_step,
                            .user = w};
}

/* Trains the golden model; its weights then. */
static float *run(const char *folder, const how *h, const s24_train_opts *opts, s24_status expected,
                  int64_t *count)
{
    s24_transformer *t = make(folder, h);
    if (h->pruned) prune(t, 1);
    for (int i = 0; i < EXAMPLES; i++)
        lengths[i] = 8 + (i * 7) % 23;
    const s24_train_source source = {.count = EXAMPLES, .lengths = lengths, .write = write_example};
    const s24_status status = s24_train(NULL, t, ctx, &source, opts);
    if (status != expected)
        fail_msg("status %d, %d was expected: %s", (int)status, (int)expected, s24_ctx_error(ctx));
    float *weights = all_of(t, 0, count);
    s24_transformer_destroy(t);
    return weights;
}

/* The same course as on the CPU. */
static void learns(void **state)
{
    golden g;
    int64_t count;
    watch cpu = {0}, gpu = {0};
    (void)state;
    SKIP_HERE(g, open_bert(&g));
    s24_train_opts opts = options(&cpu);
    free(run(g.folder, &(how){.train = 1, .max_tokens = 100}, &opts, S24_OK, &count));
    for (s24_dtype dtype = S24_F16; dtype <= S24_BF16; dtype++) {
        opts.user = &gpu;
        free(run(g.folder, &(how){.dtype = dtype, .train = 1, .max_tokens = 100}, &opts, S24_OK,
                 &count));
        for (int i = 1; i <= STEPS; i++)
            if (!(fabs(gpu.losses[i] - cpu.losses[i]) <= 0.1 * cpu.losses[1]))
                fail_msg("%s: the loss at step %d is %g, on the CPU %g", s24_dtype_name(dtype), i,
                         gpu.losses[i], cpu.losses[i]);
        print_message("%s: loss %.4f to %.4f, on the CPU %.4f to %.4f\n", s24_dtype_name(dtype),
                      gpu.losses[1], gpu.losses[STEPS], cpu.losses[1], cpu.losses[STEPS]);
        assert_true(gpu.losses[STEPS] < 0.8 * gpu.losses[1]);
    }
    mini_close(&g.io);
}

static void copy_file(const char *to, const char *from)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_true(in && out);
    for (int c; (c = getc(in)) != EOF;)
        putc(c, out);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* Stopped after any step, a run ends with the bits of one that was not; with 2:4 layers, and
   with masks that are chosen anew, from its first checkpoint on, which says which layers are
   multiplied as such. */
static void resumes(void **state)
{
    golden g;
    int64_t count, other;
    watch w = {.stop_at = 1};
    char path[600], first[600];
    (void)state;
    SKIP_HERE(g, open_bert(&g));
    snprintf(path, sizeof path, "%s", io_path("run.safetensors"));
    snprintf(first, sizeof first, "%s", io_path("first.safetensors"));
    for (int turn = 0; turn < 3; turn++) {
        const int pruned = turn > 0;
        const how h = {
            .dtype = pruned ? S24_BF16 : S24_F16, .train = 1, .max_tokens = 100, .pruned = pruned};
        s24_train_opts opts = options(&w);
        opts.fixed = pruned;
        opts.refresh = turn == 2 ? 2 : 0;
        opts.refresh_until = 0.8;
        opts.resume = 1;
        opts.checkpoint = first;
        w.stop_at = 1;
        free(run(g.folder, &h, &opts, S24_ERROR_INTERRUPTED, &count));
        opts.checkpoint = path;
        w.stop_at = 0;
        if (pruned) copy_file(path, first);
        float *whole = run(g.folder, &h, &opts, S24_OK, &count);
        for (int stop = 2; stop < STEPS; stop += 5) {
            copy_file(path, first);
            w.stop_at = stop;
            free(run(g.folder, &h, &opts, S24_ERROR_INTERRUPTED, &other));
            w.stop_at = 0;
            float *again = run(g.folder, &h, &opts, S24_OK, &other);
            assert_int_equal(count, other);
            assert_memory_equal(whole, again, (size_t)count * sizeof *whole);
            free(again);
        }
        free(whole);
        remove(first);
        remove(path);
    }
    mini_close(&g.io);
}

/* Gradients that f16 cannot hold: the scale is halved until it can, and those steps are left
   out. */
static void scales(void **state)
{
    golden g;
    int64_t count;
    watch w = {0};
    (void)state;
    SKIP_HERE(g, open_bert(&g));
    s24_train_opts opts = options(&w);
    opts.objective = (s24_objective){.labels = 1000};
    const how h = {.dtype = S24_F16, .train = 1};
    free(run(g.folder, &h, &opts, S24_OK, &count));
    int left_out = 0;
    for (int i = 1; i <= STEPS; i++)
        left_out += !isfinite(w.norms[i]);
    assert_true(left_out > 0 && left_out < STEPS && isfinite(w.norms[STEPS]));
    assert_true(w.losses[STEPS] < w.losses[1]);
    /* bf16 holds them all. */
    free(run(g.folder, &(how){.dtype = S24_BF16, .train = 1}, &opts, S24_OK, &count));
    for (int i = 1; i <= STEPS; i++)
        assert_true(isfinite(w.norms[i]));
    mini_close(&g.io);
}

/* A loss that is no number ends the run, and nothing of the step is applied. */
static void stops(void **state)
{
    golden g;
    int64_t count, other;
    watch w = {0};
    s24_parameter p;
    (void)state;
    SKIP_HERE(g, open_bert(&g));
    s24_transformer *t = make(g.folder, &(how){.dtype = S24_BF16, .train = 1});
    float *before;
    assert_true(s24_transformer_parameter(&p, t, 0));
    float *words = malloc((size_t)p.count * sizeof *words);
    OK(ctx, s24_transformer_read(words, t, ctx, 0, 0));
    words[3 * 64] = NAN; /* no example has word 3 but the one that is 3 */
    OK(ctx, s24_transformer_write(t, ctx, 0, words));
    before = all_of(t, 0, &count);
    for (int i = 0; i < EXAMPLES; i++)
        lengths[i] = 30;
    const s24_train_source source = {.count = EXAMPLES, .lengths = lengths, .write = write_example};
    s24_train_opts opts = options(&w);
    assert_int_equal(s24_train(NULL, t, ctx, &source, &opts), S24_ERROR_NUMERIC);
    assert_non_null(strstr(s24_ctx_error(ctx), "the loss is NaN at step"));
    float *after = all_of(t, 0, &other);
    if (strstr(s24_ctx_error(ctx), "at step 0 "))
        assert_memory_equal(before, after, (size_t)count * sizeof *before);
    free(before);
    free(after);
    free(words);
    s24_transformer_destroy(t);
    mini_close(&g.io);
}

/* A device that has no more than a MiB at a time. */
static void *poor_alloc(void *user, size_t bytes, void *stream)
{
    void *memory = NULL;
    (void)user;
    if (bytes <= 1 << 20) (void)s24_device_alloc(&memory, ctx, device, bytes, stream);
    return memory;
}
static void poor_free(void *user, void *memory, void *stream)
{
    (void)user;
    (void)s24_device_free(ctx, device, memory, stream);
}

static void refuses(void **state)
{
    golden g;
    s24_device *poor;
    const s24_device_opts poor_opts = {
        .size = sizeof poor_opts, .library = plugin(), .allocator = {poor_alloc, poor_free, NULL}};
    s24_checkpoint *checkpoint;
    s24_transformer *t;
    (void)state;
    SKIP_HERE(g, open_bert(&g));
    OK(ctx, s24_device_create(&poor, ctx, &poor_opts));
    const struct {
        s24_transformer_opts opts;
        s24_status status;
        const char *sentence;
    } cases[] = {
        {{.device = device, .dtype = S24_F32}, S24_ERROR_DTYPE, "dtype is f32; f16 or bf16"},
        {{.dtype = S24_BF16}, S24_ERROR_DTYPE, "dtype is bf16; f32 on the CPU"},
        {{.device = poor, .train = 1}, S24_ERROR_MEMORY, "the allocator has no "},
    };
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, g.folder));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_transformer_opts opts = cases[i].opts;
        opts.size = sizeof opts;
        if (!opts.max_tokens) opts.max_tokens = MOST;
        assert_int_equal(s24_transformer_load(&t, ctx, checkpoint, &opts), cases[i].status);
        assert_null(t);
        if (!strstr(s24_ctx_error(ctx), cases[i].sentence))
            fail_msg("'%s' does not say '%s'", s24_ctx_error(ctx), cases[i].sentence);
    }
    s24_checkpoint_close(checkpoint);
    s24_device_destroy(poor);
    t = make(g.folder, &(how){.dtype = S24_BF16, .train = 1});
    s24_transformer *teacher = make(g.folder, &(how){.dtype = S24_F16});
    const s24_objective o = {.size = sizeof o, .logits = 1, .teacher = teacher};
    double loss;
    assert_int_equal(s24_transformer_gradients(&loss, t, ctx, &g.examples, &o), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "of two dtypes"));
    s24_transformer_destroy(teacher);
    s24_transformer_destroy(t);
    mini_close(&g.io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns), cmocka_unit_test(resumes), cmocka_unit_test(scales),
        cmocka_unit_test(stops),  cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, device_setup, device_teardown);
}
