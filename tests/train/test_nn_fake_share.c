// SPDX-License-Identifier: Apache-2.0
/* Ranks with a device each that is none (tests/support/fake_device.c): gradients are summed there
   by NCCL, or through the host, in the same order by all; its kernels do nothing, but a token's
   loss is 1, whose sum over the ranks is told. NCCL on the CPU is refused. */
#include "support.h"

#include "nn_method_rows.h"
#include "nn_ranks.h"

enum { WORLD = 3 };

static s24_train_source examples;

typedef struct how {
    int on_the_cpu, parts;
} how;

static void train_rank(rank_work *w)
{
    const how *h = w->job;
    watch seen = {0};
    s24_train_opts opts = options(0, &seen);
    there = h->on_the_cpu ? NULL : w->device;
    s24_transformer *t = draw(w->ctx, model, 5);
    opts.objective.dropout = 0;
    opts.numbers = NULL;
    opts.steps = 4;
    opts.sum_bytes = 1;
    opts.comm = w->comm;
    opts.shard_optimizer = h->parts;
    w->status = s24_train(NULL, t, w->ctx, &examples, &opts);
    w->count = seen.last.step == 4 && seen.last.tokens == 4 * 6 * LENGTH && seen.last.loss > 0;
    s24_transformer_destroy(t);
}

/* Moments on each rank, or in parts. */
static void all_train(const rank_work *common)
{
    rank_work all[MOST_RANKS], as = *common;
    for (int parts = 0; parts < 2; parts++) {
        const how h = {0, parts};
        as.job = &h;
        run_ranks_as(all, WORLD, &as);
        for (int r = 0; r < WORLD; r++) {
            if (all[r].status != S24_OK) fail_msg("rank %d: %s", r, all[r].error);
            assert_true(all[r].count);
        }
    }
}

static void between_devices(void **state)
{
    const rank_work common = {.kind = "nccl",
                              .library = S24_FAKE_NCCL_LIBRARY,
                              .plugin = S24_FAKE_PLUGIN,
                              .work = train_rank};
    (void)state;
    all_train(&common);
}

static void through_the_host(void **state)
{
    const rank_work common = {
        .kind = "mpi", .library = S24_FAKE_COMM, .plugin = S24_FAKE_PLUGIN, .work = train_rank};
    (void)state;
    all_train(&common);
}

static void train_sparse_rank(rank_work *w)
{
    watch seen = {0};
    s24_train_opts opts = options(2, &seen);
    there = w->device;
    s24_transformer *t = draw(w->ctx, model, 5);
    opts.objective.dropout = 0;
    opts.steps = 2;
    opts.comm = w->comm;
    w->status = s24_train(NULL, t, w->ctx, &examples, &opts);
    w->count = seen.last.sparse_layers;
    s24_transformer_destroy(t);
}

/* One rank alone finds 2:4 products faster, rank 0 or the next: all do what rank 0 found. */
static void ranks_have_one_plan(void **state)
{
    static const char *const slow[] = {"1", "2"}; /* devices, of which rank 0 has the first */
    rank_work all[MOST_RANKS];
    const rank_work common = {.kind = "nccl",
                              .library = S24_FAKE_NCCL_LIBRARY,
                              .plugin = S24_FAKE_PLUGIN,
                              .apart = 1,
                              .work = train_sparse_rank};
    (void)state;
    setenv("S24_FAKE_PRODUCT", "100", 1);
    for (int i = 0; i < 2; i++) {
        setenv("S24_FAKE_SLOW", slow[i], 1);
        run_ranks_as(all, WORLD, &common);
        for (int r = 0; r < WORLD; r++) {
            if (all[r].status != S24_OK) fail_msg("rank %d: %s", r, all[r].error);
            assert_int_equal(all[r].count, i ? 0 : 8);
        }
    }
    unsetenv("S24_FAKE_SLOW");
    unsetenv("S24_FAKE_PRODUCT");
}

static void nccl_is_for_devices(void **state)
{
    rank_work all[MOST_RANKS];
    const how on_the_cpu = {1, 0};
    const rank_work common = {.kind = "nccl",
                              .library = S24_FAKE_NCCL_LIBRARY,
                              .plugin = S24_FAKE_PLUGIN,
                              .work = train_rank,
                              .job = &on_the_cpu};
    (void)state;
    run_ranks_as(all, WORLD, &common);
    for (int r = 0; r < WORLD; r++) {
        assert_int_equal(all[r].status, S24_ERROR_UNSUPPORTED);
        assert_string_equal(all[r].error, "nccl carries sums between GPUs; on the CPU mpi does");
    }
}

static int setup(void **state)
{
    if (train_setup(state)) return 1;
    write_config(model, "model", "relu2", 16);
    examples = source();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_devices),
        cmocka_unit_test(through_the_host),
        cmocka_unit_test(ranks_have_one_plan),
        cmocka_unit_test(nccl_is_for_devices),
    };
    return cmocka_run_group_tests(tests, setup, io_folder_teardown);
}
