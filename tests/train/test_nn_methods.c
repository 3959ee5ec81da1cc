// SPDX-License-Identifier: Apache-2.0
/* Every method of sparse training as a run: it learns, goes on after a stop to the same bits, ends
   2:4 where its row says so, and scores what was said; weights that are drawn; what is refused. */
#include "support.h"

#include "nn_failing.h"
#include "nn_method_rows.h"

static char plain[512], torn[512], eights[512];

static int setup(void **state)
{
    if (train_setup(state)) return 1;
    write_config(model, "model", "relu2", 16);
    write_config(plain, "plain", "gelu_new", 16);
    write_config(torn, "torn", "gelu_new", 18);
    write_config(eights, "eights", "gelu_new", 24);
    return 0;
}

static int row_of(const char *name)
{
    int row = 0;
    while (strcmp(rows[row].name, name) != 0)
        row++;
    return row;
}

static void rows_are_watched(void **state)
{
    int64_t count;
    watch w = {0};
    (void)state;
    s24_train_opts opts = options(row_of("sr-ste"), &w);
    free(run(row_of("sr-ste"), &opts, S24_OK, &count));
    assert_true(w.chosen > 0 && w.last.sparse && w.last.mask_age == 0);
    assert_true(w.last.kept > 0.6 && w.last.kept < 1 && isnan(w.last.beta));
    w = (watch){0};
    opts = options(row_of("s-ste"), &w);
    free(run(row_of("s-ste"), &opts, S24_OK, &count));
    assert_true(w.last.beta > 1 && w.last.beta < 4);
    w = (watch){.stop_at = 7};
    opts = options(row_of("fst"), &w);
    free(run(row_of("fst"), &opts, S24_ERROR_INTERRUPTED, &count));
    assert_int_equal(w.last.mask_age, 2); /* chosen at the steps 0 and 4 */
    w = (watch){0};
    opts = options(row_of("fst") + 1, &w);
    free(run(row_of("fst") + 1, &opts, S24_OK, &count));
    assert_true(!w.last.sparse && w.last.mask_age == -1 && isnan(w.last.flips));
    w = (watch){0};
    opts = options(row_of("dense"), &w);
    free(run(row_of("dense"), &opts, S24_OK, &count));
    assert_true(w.last.mask_age >= 0 && !w.last.sparse); /* masks are looked at, not applied */
    opts.numbers = NULL;
    free(run(row_of("dense"), &opts, S24_OK, &count));
    assert_true(w.last.mask_age == -1);
}

/* Without chance, steps' gradients are alike; by other examples in each step they are not. */
static void noise_is_what_steps_do_not_share(void **state)
{
    int64_t count;
    watch w = {0};
    (void)state;
    s24_train_opts opts = options(row_of("dense"), &w);
    opts.numbers = NULL;
    opts.objective.dropout = 0;
    opts.rate = 1e-9;
    opts.batch = EXAMPLES;
    free(run(row_of("dense"), &opts, S24_OK, &count));
    assert_true(w.last.noise >= 0 && w.last.noise < 1e-3);
    opts.clip = 1e-3;
    free(run(row_of("dense"), &opts, S24_OK, &count));
    assert_true(w.last.noise >= 0 && w.last.noise < 1e-3);
    opts.batch = 1;
    free(run(row_of("dense"), &opts, S24_OK, &count));
    assert_true(w.last.noise > 0.05 && w.last.noise <= 1);
    opts.steps = 1;
    free(run(row_of("dense"), &opts, S24_OK, &count));
    assert_true(isnan(w.last.noise));
    opts = options(row_of("cast"), &w);
    free(run(row_of("cast"), &opts, S24_OK, &count));
    assert_true(isnan(w.last.noise));
    opts = options(row_of("maskllm"), &w);
    free(run(row_of("maskllm"), &opts, S24_OK, &count));
    assert_true(w.last.noise > 0 && w.last.noise <= 1);
}

static void overhead_is_of_what_zeros_need(void **state)
{
    static const char *const costly[] = {"ste", "s-ste", "semi-sparse-activation", "squared-relu"};
    int64_t count;
    watch w = {0};
    (void)state;
    s24_train_opts opts = options(row_of("dense"), &w);
    opts.numbers = NULL;
    free(run(row_of("dense"), &opts, S24_OK, &count));
    assert_true(w.last.overhead == 0);
    for (int i = 0; i < 4; i++) {
        opts = options(row_of(costly[i]), &w);
        opts.numbers = NULL;
        free(run(row_of(costly[i]), &opts, S24_OK, &count));
        if (!(w.last.overhead > 0 && w.last.overhead < 1))
            fail_msg("%s: %g", costly[i], w.last.overhead);
    }
}

static void reports_have_their_callers_size(void **state)
{
    const s24_train_source examples = source();
    watch w = {0};
    (void)state;
    s24_ctx *ctx = new_ctx();
    s24_train_opts opts = options(row_of("ste"), &w);
    s24_transformer *t = draw(ctx, model, 5);
    s24_train_report report = {.size = 0};
    assert_int_equal(s24_train(&report, t, ctx, &examples, &opts), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "s24_train_report.size is 0; expected sizeof(s24_train_report)");
    report = (s24_train_report){.size = offsetof(s24_train_report, noise), .noise = 7};
    OK(ctx, s24_train(&report, t, ctx, &examples, &opts));
    assert_true(report.noise == 7 && report.step == opts.steps);
    assert_true(report.size == offsetof(s24_train_report, noise) && w.last.size == sizeof report);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

/* Layers that the method is not for stay dense, and frozen weights where they were. */
static void takes_the_layers_it_is_for(void **state)
{
    int64_t count;
    watch w = {0};
    (void)state;
    s24_ctx *ctx = new_ctx();
    const s24_train_source examples = source();
    s24_train_opts opts = options(row_of("ste"), &w);
    s24_transformer *t = draw(ctx, model, 5);
    opts.include = "*mlp*";
    opts.exclude = "*h.1*";
    OK(ctx, s24_train(NULL, t, ctx, &examples, &opts));
    s24_parameter p;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        int yes;
        if (p.rank != 2) continue;
        float *weights = malloc((size_t)p.count * sizeof *weights);
        OK(ctx, s24_transformer_read(weights, t, ctx, i, 0));
        const s24_dense dense = {weights, S24_F32, p.shape[0], p.shape[1], 0};
        OK(ctx, s24_check_along_n(&yes, NULL, ctx, &dense));
        assert_int_equal(yes, strstr(p.name, "h.0.mlp") != NULL);
        free(weights);
    }
    s24_transformer_destroy(t);
    t = draw(ctx, model, 5);
    float *before = weights_of(t, ctx, &count);
    opts = options(row_of("maskllm"), &w);
    OK(ctx, s24_train(NULL, t, ctx, &examples, &opts));
    float *after = weights_of(t, ctx, &count);
    for (int64_t i = 0; i < count; i++)
        assert_true(after[i] == before[i] || after[i] == 0.0f);
    free(before);
    free(after);
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const struct {
    const char *folder, *method, *numbers, *include, *sentence;
    s24_status status;
} wrong[] = {
    {plain, "fast", NULL, NULL, "there is no method 'fast'", S24_ERROR_ARGUMENT},
    {plain, "ste", "mvue=1", NULL, "method ste has no number 'mvue'; it has refresh=1",
     S24_ERROR_ARGUMENT},
    {plain, "fixed", "x", NULL, "has no number 'x'; it has none", S24_ERROR_ARGUMENT},
    {plain, "ste", "refresh", NULL, "has no number 'refresh'", S24_ERROR_ARGUMENT},
    {plain, "ste", "refresh=1.5", NULL, "refresh=1.5; a whole number of 1 to", S24_ERROR_ARGUMENT},
    {plain, "ste", "refresh=", NULL, "refresh=; a whole number", S24_ERROR_ARGUMENT},
    {plain, "fst", "mvue=3", NULL, "mvue=3; a whole number of 0 to 2", S24_ERROR_ARGUMENT},
    {plain, "ste", "start=nan", NULL, "start=nan; a number of 0 to 1", S24_ERROR_ARGUMENT},
    {plain, "ste", "start=0.6,tail=0.4", NULL, "start=0.6 and tail=0.4 leave nothing",
     S24_ERROR_ARGUMENT},
    {plain, "step", "least=0.6", NULL, "least=0.6 is over most=0.5", S24_ERROR_ARGUMENT},
    {plain, "ste", NULL, "*nowhere*", "no linear layer of the blocks is one of '*nowhere*'",
     S24_ERROR_ARGUMENT},
    {plain, "cast", NULL, NULL, "method cast needs a teacher", S24_ERROR_UNSUPPORTED},
    {plain, "squared-relu", NULL, NULL, "needs a model whose activation is squared ReLU",
     S24_ERROR_UNSUPPORTED},
    {plain, "fixed", NULL, NULL, "an eighth of zeros: there is nothing to keep zero",
     S24_ERROR_NOT_TWO_FOUR},
    {torn, "ste", NULL, NULL, "has 54 outputs and 18 inputs: method ste needs inputs that 4",
     S24_ERROR_SHAPE},
    {eights, "s-ste", "fp8=1", "*mlp.c_fc*",
     "a layer of block 0 has 96 outputs and 24 inputs: method s-ste with fp8=1 needs sides that 16",
     S24_ERROR_SHAPE},
    {plain, "s-ste", "fp8=2", NULL, "fp8=2; a whole number of 0 to 1", S24_ERROR_ARGUMENT},
    {torn, "dense", "watch=2", NULL, "18 inputs: method dense needs inputs that 4 divides",
     S24_ERROR_SHAPE},
    {torn, "fst", NULL, "*mlp.c_proj*", "method fst needs sides that 4 divides; exclude it",
     S24_ERROR_SHAPE},
};

static void refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s24_ctx *ctx = new_ctx();
        const s24_train_source examples = source();
        watch w = {0};
        s24_train_opts opts = options(0, &w);
        s24_transformer *t = draw(ctx, wrong[i].folder, 1);
        opts.method = wrong[i].method;
        opts.numbers = wrong[i].numbers;
        opts.include = wrong[i].include;
        assert_int_equal(s24_train(NULL, t, ctx, &examples, &opts), wrong[i].status);
        if (!strstr(s24_ctx_error(ctx), wrong[i].sentence))
            fail_msg("'%s' does not say '%s'", s24_ctx_error(ctx), wrong[i].sentence);
        assert_int_equal(w.last.step, 0);
        s24_transformer_destroy(t);
        s24_ctx_destroy(ctx);
    }
}

/* A checkpoint is of one method with one list of numbers; two ways to say a method exclude each
   other. */
static void refuses_other_checkpoints(void **state)
{
    char path[600];
    int64_t count;
    watch w = {.stop_at = 2};
    const int row = row_of("sr-ste");
    (void)state;
    snprintf(path, sizeof path, "%s", io_path("of-one.safetensors"));
    s24_train_opts opts = options(row, &w);
    opts.checkpoint = path;
    opts.resume = 1;
    free(run(row, &opts, S24_ERROR_INTERRUPTED, &count));
    opts.numbers = "masked-decay=0.1";
    free(run(row, &opts, S24_ERROR_FORMAT, &count));
    opts.method = "ste";
    opts.numbers = NULL;
    free(run(row, &opts, S24_ERROR_FORMAT, &count));
    opts.fixed = 1;
    free(run(row, &opts, S24_ERROR_ARGUMENT, &count));
}

/* The method of that name for two steps, where any allocation may fail. */
static const char *fragile, *fragile_numbers;
static s24_status train_a_little(s24_ctx *ctx)
{
    s24_checkpoint *config;
    s24_transformer *t = NULL;
    const s24_transformer_opts how = {
        .size = sizeof how, .max_tokens = MOST_TOKENS, .max_texts = 8, .train = 1, .draw = 1};
    const s24_train_source examples = source();
    s24_train_opts opts = {.size = sizeof opts,
                           .objective = {.labels = 1},
                           .steps = 2,
                           .batch = 2,
                           .method = fragile,
                           .numbers = fragile_numbers,
                           .include = "*h.0.mlp*"};
    s24_status status = s24_checkpoint_open_config(&config, ctx, model);
    if (status != S24_OK) return status;
    status = s24_transformer_load(&t, ctx, config, &how);
    if (status == S24_OK) status = s24_train(NULL, t, ctx, &examples, &opts);
    s24_transformer_destroy(t);
    s24_checkpoint_close(config);
    return status;
}

static void memory_fails(void **state)
{
    static const char *const each[][2] = {{"fst", NULL},
                                          {"s-ste", "fp8=1"},
                                          {"step", NULL},
                                          {"squared-relu", NULL},
                                          {"maskllm", NULL}};
    (void)state;
    for (int i = 0; i < 5; i++) {
        fragile = each[i][0];
        fragile_numbers = each[i][1];
        assert_true(count_failures(train_a_little) > 20);
    }
}

static void names_methods(void **state)
{
    s24_train_method_info info;
    int count = 0;
    (void)state;
    for (const char *name; (name = s24_train_method_name(count)); count++) {
        assert_true(s24_train_method_describe(&info, name));
        assert_true(*info.summary && info.numbers);
    }
    assert_int_equal(count, 13);
    assert_false(s24_train_method_describe(&info, "none"));
    assert_false(s24_train_method_describe(&info, NULL));
    for (count = 0; s24_train_number_name(count); count++)
        assert_non_null(s24_train_number_help(count));
    assert_null(s24_train_number_help(count));
    assert_null(s24_train_method_name(-1));
}

/* ---- weights that are drawn ------------------------------------------------------------------ */

static double deviation(s24_transformer *t, s24_ctx *ctx, const char *name)
{
    s24_parameter p;
    double sum = 0, squares = 0;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        if (!strstr(p.name, name)) continue;
        float *w = malloc((size_t)p.count * sizeof *w);
        OK(ctx, s24_transformer_read(w, t, ctx, i, 0));
        for (int64_t e = 0; e < p.count; e++) {
            sum += (double)w[e];
            squares += (double)w[e] * (double)w[e];
        }
        free(w);
        return sqrt(squares / (double)p.count - pow(sum / (double)p.count, 2));
    }
    return -1;
}

/* As GPT-2's paper says, and as its folder is read. */
static void draws_weights(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24_checkpoint *config;
    s24_transformer *again;
    int64_t count, other;
    (void)state;
    s24_transformer *t = draw(ctx, model, 5), *same = draw(ctx, model, 5);
    assert_true(fabs(deviation(t, ctx, "h.0.mlp.c_fc.weight") - 0.2) < 0.015);
    assert_true(fabs(deviation(t, ctx, "h.0.mlp.c_proj.weight") - 0.1) < 0.008);
    assert_true(deviation(t, ctx, "ln_f.weight") == 0.0);
    float *drawn = weights_of(t, ctx, &count), *twice = weights_of(same, ctx, &other);
    assert_memory_equal(drawn, twice, (size_t)count * sizeof *drawn);
    OK(ctx, s24_checkpoint_open_config(&config, ctx, model));
    assert_int_equal(s24_checkpoint_count(config), 0);
    OK(ctx, s24_transformer_save(t, ctx, config, io_path("drawn"), 0));
    OK(ctx, load_as(&again, ctx, io_path("drawn"), 0));
    float *read = weights_of(again, ctx, &other);
    assert_int_equal(count, other);
    assert_memory_equal(drawn, read, (size_t)count * sizeof *drawn);
    s24_checkpoint_close(config);
    assert_int_not_equal(s24_checkpoint_open_config(&config, ctx, io_path("nowhere")), S24_OK);
    assert_non_null(strstr(s24_ctx_error(ctx), "nowhere"));
    free(drawn);
    free(twice);
    free(read);
    s24_transformer_destroy(t);
    s24_transformer_destroy(same);
    s24_transformer_destroy(again);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_resume),
        cmocka_unit_test(rows_end_as_said),
        cmocka_unit_test(rows_are_watched),
        cmocka_unit_test(noise_is_what_steps_do_not_share),
        cmocka_unit_test(overhead_is_of_what_zeros_need),
        cmocka_unit_test(reports_have_their_callers_size),
        cmocka_unit_test(takes_the_layers_it_is_for),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_other_checkpoints),
        cmocka_unit_test(memory_fails),
        cmocka_unit_test(names_methods),
        cmocka_unit_test(draws_weights),
    };
    return cmocka_run_group_tests(tests, setup, io_folder_teardown);
}
