// SPDX-License-Identifier: Apache-2.0
/* Every method of sparse training on a device that is none (tests/support/fake_device.c): none is
   refused there, and each asks for its own operations, as often as its steps need them. */
#include "support.h"

#include "fake_calls.h"
#include "nn_method_rows.h"

enum { TURNS = 3, PLACES = 8, DOWN = 2, WIDE = 64 };

static char wide[512];

/* Of a run of three steps. All masks are made at once before the first step; where the method
   makes its weights anew, in every step and at the end as well; and once more for the f32 weights
   that a run leaves. In 8 bits a layer has inputs and weights forward, gradients, inputs and
   weights back. */
static const struct {
    const char *name, *numbers;
    int masks, mvues, selects, tokens, extras, variances, narrows;
} wanted[] = {{"dense", NULL, 0, 0, 0, 0, 0, 0, 0},
              {"ste", NULL, TURNS + 1, 0, 0, 0, 0, 0, 0},
              {"sr-ste", "refresh=2", 3, 0, 0, 0, 0, 0, 0},
              {"s-ste", NULL, TURNS + 3, TURNS, 0, 0, 0, 0, 0},
              {"s-ste", "mvue=0,fp8=1", TURNS + 3, 0, 0, 0, 0, 0, 5 * TURNS},
              {"fst", "tail=0,mvue=2", 2, TURNS, 0, 0, 0, 0, 0},
              {"fst", "tail=0,mvue=0,fp8=1", 2, 0, 0, 0, 0, 0, 5 * TURNS},
              {"step", "least=0.9,most=1", 1, 0, 0, 0, 0, TURNS, 0},
              {"cast", NULL, TURNS + 3, 0, 0, 0, TURNS, 0, 0},
              {"semi-sparse", NULL, TURNS + 1, 0, 0, 0, 0, 0, 0},
              {"semi-sparse-activation", NULL, 0, 0, 2 * TURNS *PLACES, 0, 0, 0, 0},
              {"squared-relu", "start=0", 0, 0, 3 * TURNS *DOWN, TURNS *DOWN, 0, 0, 0},
              {"maskllm", NULL, TURNS + 3, 0, 0, 0, TURNS, 0, 0},
              {"multimask", NULL, TURNS + 3, 0, 0, 0, 0, 0, 0}};
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
    } each[] = {
        {"train_mask ", wanted[i].masks},         {"train_mvue ", wanted[i].mvues * PLACES},
        {"select ", wanted[i].selects},           {"mask ", wanted[i].masks + wanted[i].selects},
        {"train_tokens ", wanted[i].tokens},      {"train_extra ", wanted[i].extras * PLACES},
        {"train_variance ", wanted[i].variances}, {"train_fp8 ", wanted[i].narrows * PLACES}};
    for (size_t k = 0; k < sizeof each / sizeof *each; k++)
        if (count_of(calls, each[k].operation) != each[k].count)
            fail_msg("%s asks %d times for %s; %d were expected", wanted[i].name,
                     count_of(calls, each[k].operation), each[k].operation, each[k].count);
}

/* Every weight is 2:4 on that device, as what CAST has settled is for a while, but its passes are
   dense to the end. Matrices that no mask is for are not packed, either. */
static void expect_packing(const char *calls, int i)
{
    const int packs = wanted[i].masks > 0 && strcmp(wanted[i].name, "cast") != 0;
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
        examples_asked = 0;
        record(path);
        free(run(row_named(wanted[i].name), &opts, S24_OK, &count));
        take_record(calls, path);
        assert_int_equal(examples_asked,
                         opts.batch * TURNS); /* those of a next step are read ahead */
        assert_true(strlen(calls) < MOST_CALLS - 1);
        expect_calls(calls, i);
        expect_packing(calls, i);
    }
}

/* The most memory of a device on which a row runs two steps of the wider model. */
static int64_t bytes_of(const char *name, const char *numbers)
{
    char path[PATH_BYTES], text[512], before[512];
    int64_t count;
    watch w = {0};
    s24_device *const usual = there;
    s24_ctx *ctx = new_ctx();
    const s24_device_opts device = {.size = sizeof device, .library = S24_FAKE_PLUGIN};
    s24_train_opts opts = options(row_named(name), &w);
    OK(ctx, s24_device_create(&there, ctx, &device));
    opts.steps = 2;
    opts.numbers = numbers;
    snprintf(before, sizeof before, "%s", model);
    snprintf(model, sizeof model, "%s", wide);
    free(run(row_named(name), &opts, S24_OK, &count));
    snprintf(model, sizeof model, "%s", before);
    snprintf(path, sizeof path, "/tmp/sparse24-fake-XXXXXX");
    close(mkstemp(path));
    setenv("S24_FAKE_REPORT", path, 1);
    s24_device_destroy(there);
    unsetenv("S24_FAKE_REPORT");
    there = usual;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    unlink(path);
    s24_ctx_destroy(ctx);
    const char *bytes = strstr(text, "\"bytes\": ");
    assert_non_null(bytes);
    return strtoll(bytes + strlen("\"bytes\": "), NULL, 10);
}

/* Next to a dense run there are bits, and the weights packed along both sides, but no second copy
   of the weights in f32, which would be four bytes each. */
static void what_learns_lies_once(void **state)
{
    static const char *const each[][2] = {
        {"ste", NULL},         {"sr-ste", NULL},    {"s-ste", "mvue=0"}, {"fst", "tail=0,mvue=0"},
        {"semi-sparse", NULL}, {"multimask", NULL}, {"step", NULL}};
    const int64_t layers = 2 * 12 * WIDE * WIDE, dense = bytes_of("dense", NULL);
    (void)state;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        const int64_t more = bytes_of(each[i][0], each[i][1]) - dense;
        if (more > 3 * layers)
            fail_msg("%s takes %lld bytes more than dense, for %lld weights", each[i][0],
                     (long long)more, (long long)layers);
    }
    /* Where zeros stay, moments are of the other half alone: packed and with bits it is less. */
    assert_true(bytes_of("fixed", NULL) < dense - layers);
}

/* A run on a device of its own, where dense products take so long and so many of the weights that
   it sees first are not 2:4. */
static void run_where(int row, s24_train_opts *opts, s24_status expected, const char *product,
                      const char *unfit)
{
    int64_t count;
    s24_device *const usual = there;
    s24_ctx *ctx = new_ctx();
    const s24_device_opts device = {.size = sizeof device, .library = S24_FAKE_PLUGIN};
    OK(ctx, s24_device_create(&there, ctx, &device));
    setenv("S24_FAKE_PRODUCT", product, 1);
    setenv("S24_FAKE_UNFIT", unfit, 1);
    free(run(row, opts, expected, &count));
    unsetenv("S24_FAKE_PRODUCT");
    unsetenv("S24_FAKE_UNFIT");
    s24_device_destroy(there);
    s24_ctx_destroy(ctx);
    there = usual;
}

/* How many layers are multiplied 2:4 at the end of a run that began where dense products take so
   long, was stopped while it was dense, and went on where they take so long. */
static int64_t layers_after(int row, const char *numbers, const char *began, const char *went_on)
{
    char path[600];
    watch w = {.stop_at = 2};
    s24_train_opts opts = options(row, &w);
    /* All layers', which are looked at along both sides, then along one. */
    const char *dense = strstr(numbers, "fp8=1") ? "8" : "16";
    snprintf(path, sizeof path, "%s", io_path("plan.safetensors"));
    remove(path);
    opts.numbers = numbers;
    opts.checkpoint = path;
    run_where(row, &opts, S24_ERROR_INTERRUPTED, began, dense);
    assert_int_equal(w.last.sparse, 0);
    assert_int_equal(w.last.sparse_layers, 0);
    w.stop_at = 0;
    opts.resume = 1;
    run_where(row, &opts, S24_OK, went_on, dense);
    assert_int_equal(w.last.sparse, 1);
    return w.last.sparse_layers;
}

/* Which layers run 2:4 decides about bits: a run holds to what was faster where it began, though
   it is elsewhere when its first step in 2:4 comes. */
static void a_plan_is_of_the_beginning(void **state)
{
    static const char *const each[][2] = {
        {"step", "least=0.4,most=0.5"},     {"ste", "start=0.5"},
        {"s-ste", "start=0.5,mvue=0"},      {"s-ste", "start=0.5,mvue=0,fp8=1"},
        {"fst", "start=0.5,tail=0,mvue=0"}, {"semi-sparse", "start=0.5"}};
    (void)state;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        const int row = row_named(each[i][0]);
        const int64_t fast = layers_after(row, each[i][1], "100", "0");
        const int64_t slow = layers_after(row, each[i][1], "0", "100");
        if (fast != PLACES || slow != 0)
            fail_msg("%s,%s: %lld and %lld layers are 2:4", each[i][0], each[i][1], (long long)fast,
                     (long long)slow);
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
    write_config(wide, "wide", "relu2", WIDE);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_ask_for_their_operations),
                                       cmocka_unit_test(what_learns_lies_once),
                                       cmocka_unit_test(a_plan_is_of_the_beginning)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
