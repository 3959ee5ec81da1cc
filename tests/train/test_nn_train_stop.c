// SPDX-License-Identifier: Apache-2.0
/* A run that is asked to stop writes its checkpoint whole, though its files take several pieces and
   whoever asks goes on asking. */
#include "nn_io.h"

#include "sparse24/train.h"

enum { VOCABULARY = 140000, WIDTH = 64, LENGTH = 3 };

static int wants_stop; /* from the first step on */

static int on_progress(void *user, const char *stage, int64_t done, int64_t total)
{
    (void)user;
    (void)total;
    if (!strcmp(stage, "training") && done >= 1) wants_stop = 1;
    return wants_stop;
}

static void add(s24_tensor *list, int *count, const char *name, int64_t rows, int64_t cols)
{
    list[*count] =
        (s24_tensor){.name = name, .dtype = S24_F32, .rank = cols ? 2 : 1, .shape = {rows, cols}};
    ++*count;
}

/* GPT-2 with one small block and so many words that its weights take more than 32 MiB. */
static void write_model(s24_ctx *ctx)
{
    s24_tensor list[16];
    s24_writer *writer;
    int count = 0;
    char config[400];
    mkdir(io_path("big"), 0700);
    snprintf(config, sizeof config,
             "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_embd\":%d,"
             "\"n_head\":1,\"n_layer\":1,\"n_positions\":8,\"vocab_size\":%d,"
             "\"activation_function\":\"gelu_new\",\"layer_norm_epsilon\":1e-5}",
             WIDTH, VOCABULARY);
    io_write_text(io_path("big/config.json"), config);
    add(list, &count, "transformer.wte.weight", VOCABULARY, WIDTH);
    add(list, &count, "transformer.wpe.weight", 8, WIDTH);
    add(list, &count, "transformer.h.0.ln_1.weight", WIDTH, 0);
    add(list, &count, "transformer.h.0.ln_1.bias", WIDTH, 0);
    add(list, &count, "transformer.h.0.attn.c_attn.weight", WIDTH, 3 * WIDTH);
    add(list, &count, "transformer.h.0.attn.c_attn.bias", 3 * WIDTH, 0);
    add(list, &count, "transformer.h.0.attn.c_proj.weight", WIDTH, WIDTH);
    add(list, &count, "transformer.h.0.attn.c_proj.bias", WIDTH, 0);
    add(list, &count, "transformer.h.0.ln_2.weight", WIDTH, 0);
    add(list, &count, "transformer.h.0.ln_2.bias", WIDTH, 0);
    add(list, &count, "transformer.h.0.mlp.c_fc.weight", WIDTH, 4 * WIDTH);
    add(list, &count, "transformer.h.0.mlp.c_fc.bias", 4 * WIDTH, 0);
    add(list, &count, "transformer.h.0.mlp.c_proj.weight", 4 * WIDTH, WIDTH);
    add(list, &count, "transformer.h.0.mlp.c_proj.bias", WIDTH, 0);
    add(list, &count, "transformer.ln_f.weight", WIDTH, 0);
    add(list, &count, "transformer.ln_f.bias", WIDTH, 0);
    float *values = malloc((size_t)VOCABULARY * WIDTH * sizeof *values);
    for (int64_t i = 0; i < (int64_t)VOCABULARY * WIDTH; i++)
        values[i] = 0.01f * (float)(i % 7 - 3);
    assert_int_equal(s24_writer_create(&writer, ctx, io_path("big/model.safetensors"), NULL),
                     S24_OK);
    for (int i = 0; i < count; i++)
        assert_int_equal(s24_writer_declare(writer, &list[i]), S24_OK);
    for (int i = 0; i < count; i++)
        assert_int_equal(s24_writer_write(writer, list[i].name, values), S24_OK);
    assert_int_equal(s24_writer_commit(writer), S24_OK);
    s24_writer_destroy(writer);
    free(values);
}

static s24_status write_example(void *user, s24_ctx *ctx, const s24_example *example, int64_t index)
{
    (void)user;
    (void)ctx;
    for (int i = 0; i < LENGTH; i++) {
        example->ids[i] = (int32_t)(index + i);
        example->targets[i] = (int32_t)(index + i + 1);
    }
    return S24_OK;
}

static s24_status train(s24_ctx *ctx, int resume, s24_train_report *report)
{
    static const int32_t lengths[] = {LENGTH, LENGTH, LENGTH, LENGTH};
    const s24_train_source source = {4, lengths, write_example, NULL};
    const s24_transformer_opts opts = {.size = sizeof opts, .max_tokens = 16, .train = 1};
    s24_train_opts how = {.size = sizeof how, .steps = 2, .batch = 2, .resume = resume};
    s24_checkpoint *checkpoint;
    s24_transformer *t = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s", io_path("run.safetensors"));
    how.checkpoint = path;
    how.objective.labels = 1;
    assert_int_equal(s24_checkpoint_open(&checkpoint, ctx, io_path("big")), S24_OK);
    assert_int_equal(s24_transformer_load(&t, ctx, checkpoint, &opts), S24_OK);
    const s24_status status = s24_train(report, t, ctx, &source, &how);
    s24_transformer_destroy(t);
    s24_checkpoint_close(checkpoint);
    return status;
}

static void test_checkpoint_of_a_stopped_run(void **state)
{
    const s24_ctx_opts opts = {.size = sizeof opts, .progress = on_progress};
    s24_train_report report = {.size = sizeof report};
    s24_ctx *ctx;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    write_model(ctx);
    assert_int_equal(train(ctx, 0, &report), S24_ERROR_INTERRUPTED);
    assert_int_equal(access(io_path("run.safetensors"), F_OK), 0);
    wants_stop = 0;
    s24_ctx_destroy(ctx);
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_int_equal(train(ctx, 1, &report), S24_OK);
    assert_int_equal(report.step, 2);
    assert_int_equal(report.tokens, 4 * LENGTH);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint_of_a_stopped_run),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
