// SPDX-License-Identifier: Apache-2.0
/*
 * A prune that is stopped, at whatever point, goes on after the blocks that it has kept and writes
 * the bytes that it would have written; so does one whose allocations fail.
 */
#include "support.h"

#include "nn_language.h"
#include "nn_load.h"

enum { TEXTS = 6, MOST = 20 };
static const char letters[] = "abcdefghijklmnopqrstuvwxyz ";

/* Stops at the call whose number is `left`. */
typedef struct stopping {
    int left;
} stopping;

static int stop(void *user, const char *stage, int64_t done, int64_t total)
{
    stopping *s = user;
    (void)stage;
    (void)done;
    (void)total;
    return s->left-- == 0;
}

static const s24_text *make_texts(void)
{
    static char words[TEXTS][MOST];
    static s24_text texts[TEXTS];
    uint64_t state = 5;
    for (int t = 0; t < TEXTS; t++) {
        for (int i = 0; i < MOST; i++)
            words[t][i] = letters[test_random(&state) % 27];
        texts[t] = (s24_text){words[t], MOST};
    }
    return texts;
}

static const char *make_model(s24_ctx *ctx)
{
    static const lm_spec spec = {.llama = 1};
    const char *folder = io_path("model");
    const s24_text alphabet = {letters, sizeof letters - 1};
    char path[600];
    io_remove(folder);
    lm_write(&spec, folder);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    OK(ctx, s24_tokenizer_write_characters(ctx, path, &alphabet, 1));
    return folder;
}

static void count_layer(void *user, const s24_layer_report *layer)
{
    assert_true(layer->output_error > 0);
    ++*(int *)user;
}

typedef struct run {
    const char *out, *keep, *aim;
    int reconstruct, layers;
} run;

static s24_status prune(s24_ctx *ctx, const char *in, run *r)
{
    s24_checkpoint *checkpoint;
    const s24_model_prune_opts opts = {.size = sizeof opts,
                                       .prune = {.criterion = "sparsegpt"},
                                       .texts = make_texts(),
                                       .text_count = TEXTS,
                                       .force = 1,
                                       .packed = 1,
                                       .reconstruct = r->reconstruct,
                                       .report = count_layer,
                                       .user = &r->layers,
                                       .keep = r->keep,
                                       .aim = r->aim};
    r->layers = 0;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, in));
    const s24_status status = s24_model_prune(ctx, checkpoint, r->out, &opts);
    s24_checkpoint_close(checkpoint);
    return status;
}

static void stopped_anywhere(int reconstruct, const char *aim)
{
    static const lm_spec spec = {.llama = 1};
    const int layers = LM_LAYERS * lm_block_layers(&spec);
    stopping s = {-1};
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 2, .progress = stop, .user = &s};
    char whole[600], out[600], keep[600];
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    const char *in = make_model(ctx);
    snprintf(whole, sizeof whole, "%s", io_path("whole"));
    snprintf(out, sizeof out, "%s", io_path("out"));
    snprintf(keep, sizeof keep, "%s", io_path("out.pruning"));
    run r = {.out = whole, .reconstruct = reconstruct, .aim = aim};
    OK(ctx, prune(ctx, in, &r));
    assert_int_equal(r.layers, layers);
    r = (run){.out = out, .keep = keep, .reconstruct = reconstruct, .aim = aim};
    int stops = 0;
    for (int at = 1;; at += reconstruct ? 7 : WATCHED ? 3 : 1) {
        s.left = at;
        const s24_status status = prune(ctx, in, &r);
        if (status == S24_OK) break; /* it had no so many calls */
        assert_int_equal(status, S24_ERROR_INTERRUPTED);
        stops++;
        s.left = -1;
        OK(ctx, prune(ctx, in, &r));
        assert_int_equal(r.layers, layers);
        io_same_models(whole, out);
        assert_int_not_equal(access(keep, F_OK), 0);
    }
    assert_true(stops > 3);
    io_same_models(whole, out);
    s24_ctx_destroy(ctx);
}

static void stopped_runs_end_in_the_same_bits(void **state)
{
    (void)state;
    stopped_anywhere(0, NULL);
}

static void and_reconstructed_ones(void **state)
{
    (void)state;
    stopped_anywhere(3, NULL);
}

static void and_those_that_aim(void **state)
{
    (void)state;
    stopped_anywhere(0, "states");
    stopped_anywhere(3, "outputs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stopped_runs_end_in_the_same_bits),
                                       cmocka_unit_test(and_reconstructed_ones),
                                       cmocka_unit_test(and_those_that_aim)};
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
