// SPDX-License-Identifier: Apache-2.0
/* Memory that ends at any place of pruning by magnitude into packed tensors, by gradients, across
   layers and of permuted channels: the call says so and keeps nothing. */
#include "nn_failing.h"
#include "nn_train_support.h"

static s24_status with_model(s24_ctx *ctx, s24_status (*work)(s24_ctx *, const s24_checkpoint *))
{
    s24_checkpoint *in;
    s24_status status = s24_checkpoint_open(&in, ctx, student_folder);
    if (status != S24_OK) return status;
    status = work(ctx, in);
    s24_checkpoint_close(in);
    return status;
}

static s24_status permute(s24_ctx *ctx, const s24_checkpoint *in)
{
    static const int64_t offsets[] = {0, 4};
    static const int32_t ids[] = {1, 5, 2, 7};
    static const s24_batch batch = {.texts = 1, .offsets = offsets, .ids = ids};
    const s24_model_permute_opts opts = {.size = sizeof opts, .ids = &batch, .force = 1};
    return s24_model_permute(ctx, in, io_path("permuted"), &opts);
}

static s24_status prune_globally(s24_ctx *ctx, const s24_checkpoint *in)
{
    const s24_model_prune_opts opts = {.size = sizeof opts,
                                       .prune = {.pattern = "unstructured:0.7"},
                                       .force = 1,
                                       .global = 1,
                                       .normalize = 1};
    return s24_model_prune(ctx, in, io_path("global"), &opts);
}

static s24_status prune_packed(s24_ctx *ctx, const s24_checkpoint *in)
{
    const s24_model_prune_opts opts = {.size = sizeof opts, .force = 1, .packed = 1};
    return s24_model_prune(ctx, in, io_path("packed"), &opts);
}

static s24_status write_example(void *user, s24_ctx *ctx, const s24_example *example, int64_t index)
{
    (void)user;
    (void)ctx;
    for (int32_t i = 0; i < 4; i++)
        example->ids[i] = (int32_t)(index + i);
    *example->start = 1;
    *example->end = 2;
    return S24_OK;
}

static s24_status prune_by_gradients(s24_ctx *ctx, const s24_checkpoint *in)
{
    static const int32_t lengths[] = {4, 4};
    static const s24_train_source source = {2, lengths, write_example, NULL};
    const s24_model_gradients_opts how = {.size = sizeof how, .objective = {.labels = 1}};
    s24_model_gradients *gradients = NULL;
    s24_transformer *t;
    s24_status status = load_as(&t, ctx, student_folder, 1);
    if (status == S24_OK) status = s24_model_gradients_create(&gradients, ctx, t, &source, &how);
    const s24_model_prune_opts opts = {.size = sizeof opts,
                                       .prune = {.criterion = "taylor-first"},
                                       .force = 1,
                                       .gradients = gradients};
    if (status == S24_OK) status = s24_model_prune(ctx, in, io_path("gradients"), &opts);
    s24_model_gradients_destroy(gradients);
    s24_transformer_destroy(t);
    return status;
}

static s24_status permute_work(s24_ctx *ctx)
{
    return with_model(ctx, permute);
}

static s24_status packed_work(s24_ctx *ctx)
{
    return with_model(ctx, prune_packed);
}

static s24_status global_work(s24_ctx *ctx)
{
    return with_model(ctx, prune_globally);
}

static s24_status gradients_work(s24_ctx *ctx)
{
    return with_model(ctx, prune_by_gradients);
}

static void memory_may_end_anywhere(void **state)
{
    (void)state;
    assert_true(count_failures(permute_work) > 50);
    assert_true(count_failures(packed_work) > 20);
    assert_true(count_failures(global_work) > 20);
    assert_true(count_failures(gradients_work) > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_may_end_anywhere)};
    return cmocka_run_group_tests(tests, train_setup, io_folder_teardown);
}
