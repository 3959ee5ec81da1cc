// SPDX-License-Identifier: Apache-2.0
/* What pruning a whole checkpoint refuses, and that nothing is left behind when it fails. */
#include <math.h>

#include "nn_prune_support.h"

static void patch_float(const char *path, const char *name, int64_t at, float value)
{
    mini_file file = mini_open(path);
    const mini_tensor t = mini_get(&file, name);
    FILE *stream = fopen(path, "r+b");
    assert_non_null(stream);
    fseek(stream, 0, SEEK_END);
    const long data = ftell(stream) - (long)file.data_bytes;
    fseek(stream, data + (long)((const char *)t.data - file.data) + (long)at * 4, SEEK_SET);
    assert_int_equal(fwrite(&value, sizeof value, 1, stream), 1);
    assert_int_equal(fclose(stream), 0);
    mini_close(&file);
}

/* Refused with a sentence that has both parts; nothing is left in the folder of outputs. */
static void expect_refusal(s24_ctx *ctx, const char *in, const s24_model_prune_opts *opts,
                           s24_status status, const char *part, const char *other)
{
    char out[600];
    mkdir(io_path("refused"), 0700);
    snprintf(out, sizeof out, "%s/out", io_path("refused"));
    const s24_status got = prune_path(ctx, in, out, opts);
    if (got != status)
        fail_msg("%s (\"%s\"), expected %s", s24_status_text(got), s24_ctx_error(ctx),
                 s24_status_text(status));
    assert_sentence(ctx, part);
    assert_sentence(ctx, other);
    assert_int_equal(io_count_entries(io_path("refused")), 0);
}

static void a_bad_weight_is_named(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    char file[600];
    const char *in = write_folder("bad", S24_F32);
    const char *name = "encoder.layer.1.output.dense.weight";
    snprintf(file, sizeof file, "%s/model.safetensors", in);
    patch_float(file, name, 3 * TINY_OUTER + 7, NAN);
    for (int c = 0; s24_criterion_name(c); c++) {
        if (s24_criterion_needs_gradients(s24_criterion_name(c))) continue;
        const s24_model_prune_opts opts = options(s24_criterion_name(c), NULL);
        expect_refusal(ctx, in, &opts, S24_ERROR_NOT_FINITE, name, "NaN at row 3, column 7");
    }
    const s24_model_prune_opts plain = {.size = sizeof plain};
    expect_refusal(ctx, file, &plain, S24_ERROR_NOT_FINITE, name, "NaN at row 3, column 7");
    patch_float(file, name, 3 * TINY_OUTER + 7, 1e5f);
    s24_model_prune_opts narrow = {.size = sizeof narrow, .dtype = S24_F16};
    expect_refusal(ctx, in, &narrow, S24_ERROR_NOT_FINITE, name, "row 3, column 7 is beyond f16");
    s24_ctx_destroy(ctx);
}

static void bad_inputs_name_their_layer(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    char file[600];
    const char *in = write_folder("inputs", S24_F32);
    snprintf(file, sizeof file, "%s/model.safetensors", in);
    patch_float(file, "embeddings.LayerNorm.bias", 2, 1e30f);
    const s24_model_prune_opts opts = options("wanda", NULL);
    expect_refusal(ctx, in, &opts, S24_ERROR_NUMERIC, "encoder.layer.0.attention.self.query",
                   "squares in column 2 add up beyond f32");
    patch_float(file, "embeddings.LayerNorm.bias", 2, NAN);
    expect_refusal(ctx, in, &opts, S24_ERROR_NOT_FINITE, "'embeddings.LayerNorm.bias'",
                   "NaN at row 0, column 2");
    s24_ctx_destroy(ctx);
}

/* The model would read one of the two, and the other be left as it was. */
static void a_layer_under_two_names_is_refused(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    char other[128];
    const char *in = write_folder("double", S24_F32), *name = layer_name(1, BLOCK_LAYERS - 1);
    s24_checkpoint *from;
    s24_writer *to;
    OK(ctx, s24_checkpoint_open(&from, ctx, in));
    const s24_writer_opts writer_opts = {.size = sizeof writer_opts, .force = 1, .model = from};
    OK(ctx, s24_writer_create(&to, ctx, in, &writer_opts));
    for (int64_t i = 0; i < s24_checkpoint_count(from); i++)
        OK(ctx, s24_writer_declare(to, s24_checkpoint_tensor(from, i)));
    s24_tensor twin = *s24_checkpoint_find(from, name);
    snprintf(other, sizeof other, "bert.%s", name);
    twin.name = other;
    OK(ctx, s24_writer_declare(to, &twin));
    for (int64_t i = 0; i < s24_checkpoint_count(from); i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(from, i);
        OK(ctx, s24_writer_write(to, tensor->name, tensor->data));
    }
    OK(ctx, s24_writer_write(to, other, twin.data));
    OK(ctx, s24_writer_commit(to));
    s24_writer_destroy(to);
    s24_checkpoint_close(from);
    const s24_model_prune_opts opts = options("wanda", NULL);
    expect_refusal(ctx, in, &opts, S24_ERROR_FORMAT, other, "are the same layer; one of them");
    s24_ctx_destroy(ctx);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    char file[600];
    const char *in = write_folder("options", S24_F32);
    snprintf(file, sizeof file, "%s/model.safetensors", in);
    s24_model_prune_opts opts = options("obs", NULL);
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "'obs'", "criterion");
    opts = options("wanda", NULL);
    opts.text_count = 0;
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "wanda", "calibration texts");
    opts = options("wanda", NULL);
    opts.texts = NULL;
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "40 calibration texts", "NULL");
    opts = options("wanda", NULL);
    expect_refusal(ctx, file, &opts, S24_ERROR_ARGUMENT, "folder", "single file");
    opts.include = "*pooler*";
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "'pooler.dense.weight' is selected",
                   "wanda needs");
    opts = options("wanda", NULL);
    opts.max_tokens = TINY_POSITIONS + 1;
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "max_tokens is 10", "9 positions");
    opts.max_tokens = 1;
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "max_tokens is 1;", "9 positions");
    opts = options("sparsegpt", NULL);
    opts.dtype = S24_I8;
    expect_refusal(ctx, in, &opts, S24_ERROR_DTYPE, "i8", "expected f32, f16 or bf16");
    opts = options("sparsegpt", NULL);
    opts.prune.block = 6;
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "6 columns", "layer.0.attention.self.query");
    opts = options("magnitude", NULL);
    opts.reconstruct = -1;
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "reconstruct", "is negative");
    opts.reconstruct = 5;
    opts.text_count = 0;
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "to reconstruct a model", "needs cal");
    opts.reconstruct = 0;
    opts.prune.refine = "all";
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "to refine its layers", "needs cal");
    opts = options("magnitude", NULL);
    opts.reconstruct = 5;
    opts.packed = 1;
    opts.quantize = "int8";
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "reconstruct", "excludes quantize");
    opts = options("magnitude", NULL);
    opts.packed = opts.masks_only = 1;
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "masks_only", "excludes packed");
    opts = options("magnitude", NULL);
    opts.prune.pattern = "4:8";
    opts.packed = 1;
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "packed", "not 4:8");
    opts.prune.pattern = "4;8";
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "\"4;8\"", "is no pattern");
    s24_ctx_destroy(ctx);
}

static void bad_ids_are_refused(void **state)
{
    static const int64_t offsets[] = {0, 2, 2, 3}, one[] = {0, 2};
    static const int32_t ids[] = {1, 2, 3}, high[] = {1, 11}, negative[] = {-1, 2};
    const struct {
        s24_batch batch;
        const char *part;
    } cases[] = {
        {{.texts = 3, .offsets = offsets, .ids = ids}, "passage 1 has no token id"},
        {{.texts = 1, .offsets = one, .ids = high}, "passage 0: token 1 has id 11, 0 to 10"},
        {{.texts = 1, .offsets = one, .ids = negative}, "passage 0: token 0 has id -1, 0 to 10"},
        {{.texts = 1, .offsets = one}, "offsets or ids are NULL"},
        {{0}, "the criterion wanda needs"},
    };
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("ids", S24_F32);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_model_prune_opts opts = options("wanda", NULL);
        opts.text_count = 0;
        opts.ids = &cases[i].batch;
        expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, cases[i].part, "calibration");
    }
    s24_model_prune_opts opts = options("wanda", NULL);
    opts.ids = &cases[0].batch;
    expect_refusal(ctx, in, &opts, S24_ERROR_ARGUMENT, "as texts and as token ids", "calibration");
    s24_ctx_destroy(ctx);
}

static void an_output_is_not_replaced_unasked(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx();
    const char *in = write_folder("twice", S24_F32);
    reports r;
    s24_model_prune_opts opts = options("wanda", &r);
    OK(ctx, prune_path(ctx, in, io_path("twice-out"), &opts));
    r.count = 0;
    assert_int_equal(prune_path(ctx, in, io_path("twice-out"), &opts), S24_ERROR_EXISTS);
    assert_int_equal(r.count, 0);
    opts.force = 1;
    OK(ctx, prune_path(ctx, in, io_path("twice-out"), &opts));
    assert_pruned(ctx, in, io_path("twice-out"));
    s24_ctx_destroy(ctx);
}

/* Stopped at its first, second, third … step, until it is not stopped any more. */
static void an_interruption_leaves_nothing(void **state)
{
    (void)state;
    const char *in = write_folder("stop", S24_F32);
    char out[600];
    mkdir(io_path("stopped"), 0700);
    snprintf(out, sizeof out, "%s/out", io_path("stopped"));
    for (int with_texts = 0; with_texts < 2; with_texts++) {
        s24_status status = S24_ERROR_INTERRUPTED;
        int steps = 0;
        while (status != S24_OK) {
            io_env env;
            io_begin(&env);
            env.stop_at = ++steps;
            s24_model_prune_opts opts = options(with_texts ? "sparsegpt" : "magnitude", NULL);
            if (!with_texts) opts.text_count = 0;
            opts.reconstruct = with_texts ? 2 : 0;
            status = prune_path(env.ctx, in, out, &opts);
            if (status != S24_OK) {
                assert_int_equal(status, S24_ERROR_INTERRUPTED);
                assert_int_equal(io_count_entries(io_path("stopped")), 0);
            }
            io_end(&env);
        }
        assert_true(steps > 8);
        io_remove(out);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *in = write_folder("memory", S24_F32);
    char out[600];
    mkdir(io_path("memories"), 0700);
    snprintf(out, sizeof out, "%s/out", io_path("memories"));
    s24_status status = S24_ERROR_MEMORY;
    int64_t failures = 0;
    while (status != S24_OK) {
        io_env env;
        io_begin(&env);
        env.memory.fail_at = env.memory.calls + ++failures;
        s24_model_prune_opts opts = options("sparsegpt", NULL);
        opts.packed = 1;
        opts.reconstruct = 1;
        status = prune_path(env.ctx, in, out, &opts);
        if (status != S24_OK) {
            if (status != S24_ERROR_MEMORY) fail_msg("%s", s24_ctx_error(env.ctx));
            assert_sentence(env.ctx, "memory");
            assert_int_equal(io_count_entries(io_path("memories")), 0);
        }
        io_end(&env);
    }
    assert_true(failures > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_weight_is_named),
        cmocka_unit_test(bad_inputs_name_their_layer),
        cmocka_unit_test(a_layer_under_two_names_is_refused),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(bad_ids_are_refused),
        cmocka_unit_test(an_output_is_not_replaced_unasked),
        cmocka_unit_test(an_interruption_leaves_nothing),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
