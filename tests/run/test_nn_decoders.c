// SPDX-License-Identifier: Apache-2.0
/*
 * Decoders that are no plain Llama, with random weights, against a model in double for all of them:
 * norms of what is added, factors and caps, windows between other blocks, positions that turn a
 * part of a head, blocks whose halves stand side by side. In pieces with a cache, and 2:4 next to
 * the same weights dense.
 */
#include "support.h"

#include "nn_decoders.h"

static void as_in_double(void **state)
{
    static const struct {
        s24_dtype dtype;
        double bound;
    } dtypes[] = {{S24_F32, 2e-5}, {S24_BF16, 1.5e-1}};
    int32_t ids[TOKENS];
    given_text *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
    (void)state;
    fill_ids(ids);
    for (int i = 0; i < KINDS; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            const char *folder = write_folder(&kinds[i]);
            const s24_model_opts opts = {.size = sizeof opts, .dtype = dtypes[d].dtype};
            s24_ctx *ctx = new_ctx(NULL, 1 + i % 2);
            s24_model *model;
            OK(ctx, load(&model, ctx, folder, &opts));
            assert_int_equal(model->lm_head.n > 0, !kinds[i].near);
            run_plain(want->states, want->logits, &kinds[i], folder, ids, TOKENS);
            pass(got, ctx, model, ids, TOKENS);
            compare(want, got, model, dtypes[d].bound, kinds[i].type);
            for (int step = 1; !kinds[i].near && step <= 10; step *= 10) {
                pass(got, ctx, model, ids, step);
                compare(want, got, model, dtypes[d].bound, kinds[i].type);
            }
            s24_model_destroy(model);
            s24_ctx_destroy(ctx);
        }
    free(want);
    free(got);
}

static void two_four(void **state)
{
    int32_t ids[TOKENS];
    given_text *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
    (void)state;
    fill_ids(ids);
    for (int i = 0; i < KINDS; i++) {
        s24_ctx *ctx = new_ctx(NULL, 2);
        const char *folder = prune(ctx, write_folder(&kinds[i]), 1, NULL);
        const s24_model_opts opts[] = {{.size = sizeof *opts, .dense = 1},
                                       {.size = sizeof *opts, .all_sparse = 1}};
        for (int sparse = 0; sparse < 2; sparse++) {
            s24_model *model;
            s24_model_info info;
            OK(ctx, load(&model, ctx, folder, &opts[sparse]));
            s24_model_describe(&info, model);
            assert_int_equal(info.sparse_layers, sparse ? info.linear_layers : 0);
            pass(sparse ? got : want, ctx, model, ids, TOKENS);
            if (sparse) compare(want, got, model, 1e-5, kinds[i].type);
            s24_model_destroy(model);
        }
        s24_ctx_destroy(ctx);
    }
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_in_double), cmocka_unit_test(two_four)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
