// SPDX-License-Identifier: Apache-2.0
/* Ranks with a device each that is none (tests/support/fake_device.c): gradients are summed there
   by NCCL, or through the host, in the same order by all, and how many sums a step has; its kernels
   do nothing, but a token's loss is 1, whose sum over the ranks is told. NCCL on the CPU is
   refused. */
#include "support.h"

#include "nn_method_rows.h"
#include "nn_ranks.h"

enum { WORLD = 3 };

static s24_train_source examples;

typedef struct how {
    int on_the_cpu, parts;
    int64_t steps, sum_bytes;
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
    opts.steps = h->steps;
    opts.sum_bytes = h->sum_bytes;
    opts.comm = w->comm;
    opts.shard_optimizer = h->parts;
    w->status = s24_train(NULL, t, w->ctx, &examples, &opts);
    w->count = seen.last.step == h->steps && seen.last.tokens == h->steps * 6 * LENGTH &&
               seen.last.loss > 0;
    s24_transformer_destroy(t);
}

static void all_train_so(const rank_work *common, const how *h)
{
    rank_work all[MOST_RANKS], as = *common;
    as.job = h;
    run_ranks_as(all, WORLD, &as);
    for (int r = 0; r < WORLD; r++) {
        if (all[r].status != S24_OK) fail_msg("rank %d: %s", r, all[r].error);
        assert_true(all[r].count);
    }
}

/* Moments on each rank, or in parts. */
static void all_train(const rank_work *common)
{
    for (int parts = 0; parts < 2; parts++)
        all_train_so(common, &(how){0, parts, 4, 1});
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

/* What rank 0 has asked of NCCL since it was asked last. */
static int64_t calls(void)
{
    int64_t (*count)(int rank);
    void *library = dlopen(S24_FAKE_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    void *symbol = dlsym(library, "fake_nccl_calls");
    assert_non_null(symbol);
    memcpy(&count, &symbol, sizeof count);
    const int64_t made = count(0);
    dlclose(library);
    return made;
}

/* Of a step: the gradients' pieces, the loss, and all that ranks tell one another; the weights'
   parts where moments are in parts. */
static void a_step_has_few_sums(void **state)
{
    enum { SHORT = 2, LONG = 4, BLOCKS = 2 };
    static const struct {
        how how;
        int64_t calls;
    } cases[] = {{{0, 0, SHORT, 1}, BLOCKS + 2}, {{0, 1, SHORT, 4 << 20}, 1 + 2 + WORLD}};
    const rank_work common = {.kind = "nccl",
                              .library = S24_FAKE_NCCL_LIBRARY,
                              .plugin = S24_FAKE_PLUGIN,
                              .work = train_rank};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        how h = cases[i].how;
        (void)calls();
        all_train_so(&common, &h);
        const int64_t made = calls();
        h.steps = LONG;
        all_train_so(&common, &h);
        assert_int_equal(calls() - made, (LONG - SHORT) * cases[i].calls);
    }
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
    const how on_the_cpu = {.on_the_cpu = 1, .steps = 1};
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
        cmocka_unit_test(between_devices),     cmocka_unit_test(a_step_has_few_sums),
        cmocka_unit_test(through_the_host),    cmocka_unit_test(ranks_have_one_plan),
        cmocka_unit_test(nccl_is_for_devices),
    };
    return cmocka_run_group_tests(tests, setup, io_folder_teardown);
}
