// SPDX-License-Identifier: Apache-2.0
/*
 * A BERT's folder as ONNX, from C: memory that ends anywhere, a call that is stopped, outputs that
 * stand already, arguments that are none. tests/cli/test_cli_onnx.py runs the graph.
 */
#include "support.h"

#include <unistd.h>

#include "nn_failing.h"
#include "nn_tiny.h"

static const char modules[] =
    "[{\"idx\": 0, \"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"},"
    " {\"idx\": 1, \"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}]";
static const tiny pooled = {
    .modules = modules, .pooling = "{\"pooling_mode_lasttoken\": true}", .activation = "gelu_new"};

static s24_status export_as(s24_ctx *ctx, const s24_onnx_opts *opts)
{
    s24_checkpoint *in;
    s24_status status = s24_checkpoint_open(&in, ctx, io_path("tiny"));
    if (status != S24_OK) return status;
    status = s24_onnx_export(NULL, ctx, in, io_path("out"), opts);
    s24_checkpoint_close(in);
    return status;
}

static s24_status export_anew(s24_ctx *ctx)
{
    const s24_onnx_opts opts = {.size = sizeof opts, .force = 1, .external = 1};
    return export_as(ctx, &opts);
}

static void memory_that_ends_leaves_nothing(void **state)
{
    (void)state;
    tiny_write(&pooled, "tiny");
    assert_true(count_failures(export_anew) > 20);
    assert_int_equal(access(io_path("out/model.onnx_data"), F_OK), 0);
    io_remove(io_path("out"));
}

static void a_stopped_export_leaves_nothing(void **state)
{
    io_env env;
    (void)state;
    io_begin(&env);
    tiny_write(&pooled, "tiny");
    for (env.stop_at = 1; export_as(env.ctx, NULL) == S24_ERROR_INTERRUPTED; env.stop_at++) {
        assert_int_not_equal(access(io_path("out"), F_OK), 0);
        env.progress_calls = 0;
    }
    assert_true(env.stop_at > 10);
    env.stop_at = 0;
    assert_int_equal(access(io_path("out/model.onnx"), F_OK), 0);
    assert_int_equal(export_as(env.ctx, NULL), S24_ERROR_EXISTS);
    assert_int_equal(export_anew(env.ctx), S24_OK); /* a folder with model.onnx is a model's */
    io_remove(io_path("out"));
    io_end(&env);
}

static void arguments_are_checked(void **state)
{
    io_env env;
    s24_checkpoint *in;
    const s24_onnx_opts small = {.size = 1};
    (void)state;
    io_begin(&env);
    tiny_write(&pooled, "tiny");
    assert_ok(&env, s24_checkpoint_open(&in, env.ctx, io_path("tiny")));
    assert_int_equal(s24_onnx_export(NULL, NULL, in, "x", NULL), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_onnx_export(NULL, env.ctx, NULL, "x", NULL), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "in is NULL");
    assert_int_equal(s24_onnx_export(NULL, env.ctx, in, "", NULL), S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "out is NULL or empty");
    assert_int_equal(s24_onnx_export(NULL, env.ctx, in, io_path("out"), &small),
                     S24_ERROR_ARGUMENT);
    assert_sentence(env.ctx, "s24_onnx_opts.size is 1");
    assert_int_equal(s24_onnx_export(NULL, env.ctx, in, io_path("tiny"), NULL), S24_ERROR_EXISTS);
    s24_checkpoint_close(in);
    io_end(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_that_ends_leaves_nothing),
                                       cmocka_unit_test(a_stopped_export_leaves_nothing),
                                       cmocka_unit_test(arguments_are_checked)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
