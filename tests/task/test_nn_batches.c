// SPDX-License-Identifier: Apache-2.0
/* The order of examples: every one once an epoch, like lengths together, nothing but seed and step
   decides. */
#include "support.h"

#include "nn_ctx.h"
#include "sparse24/task.h"

static s24_batches *make(const s24_batches_opts *opts)
{
    s24_batches *batches;
    if (s24_batches_create(&batches, ctx, opts) != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    return batches;
}

/* Marks the examples of an epoch; returns how many different ones came. */
static int64_t walk(s24_batches *batches, int64_t epoch, int64_t examples, int64_t *sequence)
{
    const int64_t steps = s24_batches_per_epoch(batches);
    uint8_t *seen = calloc((size_t)examples, 1);
    int64_t total = 0;
    for (int64_t s = 0; s < steps; s++) {
        const int64_t *items;
        const int64_t count = s24_batches_at(&items, batches, epoch * steps + s);
        for (int64_t i = 0; i < count; i++) {
            assert_in_range(items[i], 0, examples - 1);
            assert_false(seen[items[i]]);
            seen[items[i]] = 1;
            if (sequence) sequence[total] = items[i];
            total++;
        }
    }
    free(seen);
    return total;
}

static void test_epochs(void **state)
{
    static const int64_t sizes[] = {1, 7, 32, 33, 1000};
    (void)state;
    for (int i = 0; i < 5; i++) {
        for (int rest = 0; rest < 2; rest++) {
            const s24_batches_opts opts = {.size = sizeof opts,
                                           .examples = sizes[i],
                                           .batch = 7,
                                           .seed = 5,
                                           .keep_rest = rest};
            if (sizes[i] < 7 && !rest) continue;
            s24_batches *batches = make(&opts);
            for (int64_t epoch = 0; epoch < 3; epoch++)
                assert_int_equal(walk(batches, epoch, sizes[i], NULL),
                                 rest ? sizes[i] : sizes[i] / 7 * 7);
            s24_batches_destroy(batches);
        }
    }
}

static void test_seeds(void **state)
{
    int64_t a[200], b[200], other[200], later[200];
    int64_t moved = 0, left_out = 0;
    s24_batches_opts opts = {.size = sizeof opts, .examples = 203, .batch = 10, .seed = 1};
    (void)state;
    s24_batches *batches = make(&opts);
    assert_int_equal(walk(batches, 0, 203, a), 200);
    assert_int_equal(walk(batches, 1, 203, later), 200);
    /* Back to the first epoch, from any step. */
    const int64_t *items;
    assert_int_equal(s24_batches_at(&items, batches, 13), 10);
    assert_memory_equal(items, a + 130, 10 * sizeof *a);
    s24_batches_destroy(batches);
    batches = make(&opts);
    walk(batches, 0, 203, b);
    assert_memory_equal(a, b, sizeof a);
    s24_batches_destroy(batches);
    opts.seed = 2;
    batches = make(&opts);
    walk(batches, 0, 203, other);
    s24_batches_destroy(batches);
    for (int i = 0; i < 200; i++) {
        moved += (a[i] != i) + (a[i] != later[i]) + (a[i] != other[i]);
        left_out += a[i] - later[i];
    }
    assert_true(moved > 550); /* of 600: all but a few */
    assert_true(left_out != 0);
}

/* Any example is as likely at any place. */
static void test_any_place(void **state)
{
    int64_t sequence[5], counts[5][5] = {{0}};
    const s24_batches_opts opts = {.size = sizeof opts, .examples = 5, .batch = 1, .seed = 9};
    (void)state;
    s24_batches *batches = make(&opts);
    for (int64_t epoch = 0; epoch < 5000; epoch++) {
        walk(batches, epoch, 5, sequence);
        for (int i = 0; i < 5; i++)
            counts[i][sequence[i]]++;
    }
    for (int i = 0; i < 25; i++)
        assert_in_range(counts[i / 5][i % 5], 850, 1150); /* 1000, over five deviations */
    s24_batches_destroy(batches);
}

/* Tokens that stand idle when each batch is as long as its longest example. */
static int64_t padding(s24_batches *batches, const int32_t *lengths)
{
    int64_t idle = 0;
    for (int64_t s = 0; s < s24_batches_per_epoch(batches); s++) {
        const int64_t *items;
        const int64_t count = s24_batches_at(&items, batches, s);
        int32_t longest = 0;
        for (int64_t i = 0; i < count; i++)
            longest = lengths[items[i]] > longest ? lengths[items[i]] : longest;
        for (int64_t i = 0; i < count; i++)
            idle += longest - lengths[items[i]];
    }
    return idle;
}

static void test_lengths(void **state)
{
    enum { COUNT = 3000 };
    int32_t lengths[COUNT];
    uint64_t random = 3;
    (void)state;
    for (int i = 0; i < COUNT; i++)
        lengths[i] = (int32_t)(test_random(&random) % 384) + 1;
    s24_batches_opts opts = {
        .size = sizeof opts, .examples = COUNT, .lengths = lengths, .batch = 32, .bucket = 1};
    s24_batches *batches = make(&opts);
    const int64_t mixed = padding(batches, lengths);
    s24_batches_destroy(batches);
    opts.bucket = 0;
    batches = make(&opts);
    assert_int_equal(walk(batches, 2, COUNT, NULL), COUNT / 32 * 32);
    assert_true(padding(batches, lengths) * 20 < mixed);
    /* The longest do not all come first. */
    const int64_t *items;
    int turns = 0;
    int32_t last = 0;
    for (int64_t s = 0; s < s24_batches_per_epoch(batches); s++) {
        s24_batches_at(&items, batches, s);
        turns += lengths[items[0]] > last;
        last = lengths[items[0]];
    }
    assert_true(turns > 20);
    s24_batches_destroy(batches);
    opts.in_order = 1;
    batches = make(&opts);
    int64_t sequence[COUNT];
    assert_int_equal(walk(batches, 1, COUNT, sequence), COUNT);
    for (int i = 1; i < COUNT; i++)
        assert_true(
            lengths[sequence[i]] < lengths[sequence[i - 1]] ||
            (lengths[sequence[i]] == lengths[sequence[i - 1]] && sequence[i] > sequence[i - 1]));
    s24_batches_destroy(batches);
}

static void test_refused(void **state)
{
    static const int32_t lengths[] = {3, 0};
    static const struct {
        s24_batches_opts opts;
        const char *part;
    } cases[] = {
        {{.examples = 0}, "examples is 0"},
        {{.examples = 3, .batch = -1}, "batch is -1"},
        {{.examples = 3, .batch = 1, .bucket = -2}, "bucket is -2"},
        {{.examples = 3}, "3 examples do not fill a batch of 32"},
        {{.examples = 2, .batch = 1, .lengths = lengths}, "lengths[1] is 0, 1 to 1048576"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s24_batches *batches = (void *)&batches;
        s24_batches_opts opts = cases[i].opts;
        opts.size = sizeof opts;
        assert_int_equal(s24_batches_create(&batches, ctx, &opts), S24_ERROR_ARGUMENT);
        assert_null(batches);
        if (!strstr(s24_ctx_error(ctx), cases[i].part)) fail_msg("%s", s24_ctx_error(ctx));
    }
    s24_batches_destroy(NULL);
}

static s24_status work(s24_ctx *failing_ctx)
{
    static const int32_t lengths[] = {3, 5};
    const s24_batches_opts opts = {
        .size = sizeof opts, .examples = 2, .lengths = lengths, .batch = 1};
    s24_batches *batches;
    const s24_status status = s24_batches_create(&batches, failing_ctx, &opts);
    s24_batches_destroy(status == S24_OK ? batches : NULL);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    assert_true(count_failures(work) >= 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),    cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_any_place), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, ctx_setup, ctx_teardown);
}
