// SPDX-License-Identifier: Apache-2.0
/* Llama's kin and OPT in training: gradients through windows, norms of heads, scaled positions and
   layers that are joined or left out against finite differences, the same where activations are
   computed again, and on any threads. */
#include "support.h"

#include "nn_io_folder.h"
#include "nn_language.h"
#include "nn_train_slopes.h"

enum { TOKENS = 96 };

static const lm_spec specs[] = {LM_KIN, LM_OTHERS};
enum { SPECS = sizeof specs / sizeof *specs };

static s24_ctx *new_ctx(int threads)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = threads};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

static s24_transformer *open_kin(s24_ctx *ctx, const lm_spec *spec, int recompute)
{
    const s24_transformer_opts opts = {.size = sizeof opts,
                                       .max_tokens = TOKENS,
                                       .max_texts = 2,
                                       .train = 1,
                                       .recompute = recompute};
    const char *folder = io_path("kin");
    s24_transformer *t;
    s24_checkpoint *checkpoint;
    io_remove(folder);
    lm_write(spec, folder);
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    OK(ctx, s24_transformer_load(&t, ctx, checkpoint, &opts));
    s24_checkpoint_close(checkpoint);
    return t;
}

/* Texts that are longer than the windows, and than a tile of attention. */
typedef struct batch {
    int64_t offsets[3];
    int32_t ids[TOKENS], targets[TOKENS];
    s24_examples examples;
} batch;

static void fill_batch(batch *b)
{
    *b = (batch){.offsets = {0, 67, TOKENS}};
    for (int i = 0; i < TOKENS; i++) {
        b->ids[i] = (i * i + 3 * i + 2) % LM_VOCABULARY;
        b->targets[i] = i % 3 ? (i * 5 + 1) % LM_VOCABULARY : -1;
    }
    b->examples = (s24_examples){.texts = {.texts = 2, .offsets = b->offsets, .ids = b->ids},
                                 .targets = b->targets};
}

static void slopes(void **state)
{
    static const s24_objective objectives[] = {
        {.size = sizeof *objectives, .labels = 1},
        {.size = sizeof *objectives, .labels = 1, .attention_dropout = 0.2, .seed = 3}};
    batch b;
    (void)state;
    fill_batch(&b);
    for (int i = 0; i < SPECS; i++)
        for (size_t o = 0; o < sizeof objectives / sizeof *objectives; o++) {
            s24_ctx *ctx = new_ctx(2);
            s24_transformer *t = open_kin(ctx, &specs[i], 0);
            const int parameters =
                2 + LM_LAYERS * (2 + lm_block_layers(&specs[i]) + (specs[i].norms ? 2 : 0));
            assert_true(slopes_agree(t, ctx, &b.examples, &objectives[o], 4e-3f) >= parameters);
            s24_transformer_destroy(t);
            s24_ctx_destroy(ctx);
        }
}

/* The gradients of all parameters, one after the other. */
static float *gradients_of(const lm_spec *spec, const s24_examples *examples, int threads,
                           int recompute, int64_t *count)
{
    const s24_objective labels = {.size = sizeof labels, .labels = 1};
    s24_ctx *ctx = new_ctx(threads);
    s24_transformer *t = open_kin(ctx, spec, recompute);
    s24_parameter p;
    int64_t at = 0;
    *count = 0;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++)
        *count += p.count;
    float *all = malloc((size_t)*count * sizeof *all);
    loss_of(t, ctx, examples, &labels);
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); at += p.count, i++)
        OK(ctx, s24_transformer_read(all + at, t, ctx, i, 1));
    s24_transformer_destroy(t);
    s24_ctx_destroy(ctx);
    return all;
}

static void any_way(void **state)
{
    batch b;
    (void)state;
    fill_batch(&b);
    for (int i = 0; i < SPECS; i++) {
        int64_t count, same;
        float *want = gradients_of(&specs[i], &b.examples, 2, 0, &count);
        float *again = gradients_of(&specs[i], &b.examples, 2, 1, &same);
        float *alone = gradients_of(&specs[i], &b.examples, 1, 0, &same);
        assert_int_equal(count, same);
        assert_memory_equal(want, again, (size_t)count * sizeof *want);
        near(want, alone, count, 1e-5, "gradients of one thread");
        free(want), free(again), free(alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slopes), cmocka_unit_test(any_way)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
