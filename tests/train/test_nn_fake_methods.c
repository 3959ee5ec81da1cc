// SPDX-License-Identifier: Apache-2.0
/* Every method of sparse training on a device that is none (tests/support/fake_device.c): none is
   refused there, and each asks for its own operations, as often as its steps need them. */
#include "support.h"

#include "fake_calls.h"
#include "nn_method_rows.h"

enum { TURNS = 3, PLACES = 8, DOWN = 2 };

/* Of a run of three steps. A mask is made before the first step; where the method makes its weights
   anew, in every step and at the end as well. In 8 bits a layer has inputs and weights forward,
   gradients, inputs and weights back. */
static const struct {
    const char *name, *numbers;
    int masks, mvues, selects, tokens, extras, variances, narrows;
} wanted[] = {{"dense", NULL, 0, 0, 0, 0, 0, 0, 0},
              {"ste", NULL, TURNS, 0, 0, 0, 0, 0, 0},
              {"sr-ste", "refresh=2", 2, 0, 0, 0, 0, 0, 0},
              {"s-ste", NULL, TURNS + 2, TURNS, 0, 0, 0, 0, 0},
              {"s-ste", "mvue=0,fp8=1", TURNS + 2, 0, 0, 0, 0, 0, 5 * TURNS},
              {"fst", "tail=0,mvue=2", 1, TURNS, 0, 0, 0, 0, 0},
              {"step", "least=0.9,most=1", 1, 0, 0, 0, 0, TURNS, 0},
              {"cast", NULL, TURNS + 2, 0, 0, 0, TURNS, 0, 0},
              {"semi-sparse", NULL, TURNS, 0, 0, 0, 0, 0, 0},
              {"semi-sparse-activation", NULL, 0, 0, 2 * TURNS *PLACES, 0, 0, 0, 0},
              {"squared-relu", "start=0", 0, 0, 3 * TURNS *DOWN, TURNS *DOWN, 0, 0, 0},
              {"maskllm", NULL, TURNS + 2, 0, 0, 0, TURNS, 0, 0},
              {"multimask", NULL, TURNS + 2, 0, 0, 0, 0, 0, 0}};
enum { WANTED = sizeof wanted / sizeof *wanted };

static int row_named(const char *name)
{
    int row = 0;
    while (strcmp(rows[row].name, name) != 0)
        row++;
    return row;
}

static void expect_calls(const char *calls, int i)
{
    const struct {
        const char *operation;
        int count;
    } each[] = {{"train_mask ", wanted[i].masks * PLACES},
                {"train_mvue ", wanted[i].mvues * PLACES},
                {"select ", wanted[i].selects},
                {"mask ", wanted[i].masks * PLACES + wanted[i].selects},
                {"train_tokens ", wanted[i].tokens},
                {"train_extra ", wanted[i].extras * PLACES},
                {"train_variance ", wanted[i].variances},
                {"train_fp8 ", wanted[i].narrows * PLACES}};
    for (size_t k = 0; k < sizeof each / sizeof *each; k++)
        if (count_of(calls, each[k].operation) != each[k].count)
            fail_msg("%s asks %d times for %s; %d were expected", wanted[i].name,
                     count_of(calls, each[k].operation), each[k].operation, each[k].count);
}

/* Every weight is 2:4 on that device, as what CAST has settled is for a while, but its passes are
   dense to the end. Matrices in 8 bits and those that no mask is for are not packed, either. */
static void expect_packing(const char *calls, int i)
{
    const int packs =
        wanted[i].masks > 0 && !wanted[i].narrows && strcmp(wanted[i].name, "cast") != 0;
    if ((count_of(calls, "weight ") > 0) != packs)
        fail_msg("%s packs %d times", wanted[i].name, count_of(calls, "weight "));
}

static void rows_ask_for_their_operations(void **state)
{
    (void)state;
    for (int i = 0; i < WANTED; i++) {
        char path[PATH_BYTES], calls[MOST_CALLS];
        int64_t count;
        watch w = {0};
        s24_train_opts opts = options(row_named(wanted[i].name), &w);
        opts.steps = TURNS;
        opts.batch = 4; /* one part */
        opts.numbers = wanted[i].numbers;
        opts.objective.dropout = 0;
        record(path);
        free(run(row_named(wanted[i].name), &opts, S24_OK, &count));
        take_record(calls, path);
        assert_true(strlen(calls) < MOST_CALLS - 1);
        expect_calls(calls, i);
        expect_packing(calls, i);
    }
}

static int setup(void **state)
{
    s24_ctx *ctx = new_ctx();
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    *state = ctx;
    if (train_setup(state) || s24_device_create(&there, ctx, &opts) != S24_OK) return 1;
    *state = ctx;
    write_config(model, "model", "relu2", 16);
    return 0;
}

static int teardown(void **state)
{
    s24_device_destroy(there);
    s24_ctx_destroy(*state);
    return io_folder_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_ask_for_their_operations)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
