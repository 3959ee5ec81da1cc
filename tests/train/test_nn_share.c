// SPDX-License-Identifier: Apache-2.0
/* One run by several ranks: the losses of one process, the same bits on every rank and every time,
   checkpoints for worlds of other sizes, ranks that differ, fail, stop or are cut off. */
#include "support.h"

#include "nn_method_rows.h"
#include "nn_ranks.h"

enum { STOPPED = 5 }; /* the step of all after one in which a rank asks to stop */

static s24_train_source examples;
static char path[600];

/* What ranks are told, and where one of them differs. */
typedef struct rank_job {
    int row, odd; /* the rank that differs; −1: none */
    s24_train_opts opts;
    const char *differs; /* in what */
} rank_job;

typedef struct losses {
    const rank_job *task;
    int rank;
    int64_t steps, stop_at;
    double loss[STEPS], held_out;
    uint64_t masks;
    int64_t moments; /* bytes */
    float *weights;
} losses;

static int on_loss(void *user, const s24_train_report *report)
{
    losses *l = user;
    l->steps = report->step;
    l->loss[report->step - 1] = report->loss;
    l->held_out = report->held_out;
    l->masks = report->mask_hash;
    l->moments = report->optimizer_bytes;
    return report->step == l->stop_at;
}

static int differs(const rank_work *w, const char *in)
{
    const rank_job *task = w->job;
    return w->rank == task->odd && !strcmp(task->differs, in);
}

static s24_status fail_at(void *user, s24_ctx *ctx, const s24_example *example, int64_t index)
{
    int *left = user;
    if (--*left <= 0) return s24_ctx_fail(ctx, S24_ERROR_FORMAT, "example %d is torn", (int)index);
    return write_example(NULL, ctx, example, index);
}

static s24_status write_other(void *user, s24_ctx *ctx, const s24_example *example, int64_t index)
{
    const s24_status status = write_example(user, ctx, example, index);
    if (index == 7) example->ids[0] ^= 1;
    return status;
}

static void train_rank(rank_work *w)
{
    const rank_job *task = w->job;
    int left = EXAMPLES + 5; /* all are read once for their hash */
    losses *l = calloc(1, sizeof *l);
    s24_train_source source = examples;
    s24_train_opts opts = task->opts;
    s24_transformer *t = start(w->ctx, task->row, &opts);
    *l = (losses){.task = task, .rank = w->rank, .stop_at = differs(w, "stops") ? STOPPED - 1 : 0};
    opts.report = on_loss;
    opts.user = l;
    opts.comm = w->comm;
    if (differs(w, "options")) opts.rate *= 2;
    if (differs(w, "parts")) opts.shard_optimizer = 1;
    if (differs(w, "examples")) source.write = write_other;
    if (differs(w, "fails")) source = (s24_train_source){EXAMPLES, lengths, fail_at, &left};
    if (differs(w, "model")) {
        s24_transformer_destroy(t);
        t = draw(w->ctx, model, 77);
    }
    w->status = s24_train(NULL, t, w->ctx, &source, &opts);
    l->weights = weights_of(t, w->ctx, &w->count);
    w->result = l;
    s24_transformer_destroy(t);
    s24_transformer_destroy(opts.objective.teacher);
}

static losses *of(const rank_work *w)
{
    return w->result;
}

static void drop_results(rank_work *all, int world)
{
    for (int r = 0; r < world; r++) {
        free(of(&all[r])->weights);
        free(all[r].result);
    }
}

static rank_job make_task(int row)
{
    rank_job t = {.row = row, .odd = -1, .differs = "", .opts = options(row, NULL)};
    t.opts.objective.dropout = 0;
    t.opts.sum_bytes = 1; /* every block on its own */
    return t;
}

static void all_are_ok(const rank_work *all, int world)
{
    for (int r = 0; r < world; r++)
        if (all[r].status != S24_OK) fail_msg("rank %d: %s", r, all[r].error);
}

/* The losses of one process, and of all ranks the same weights and masks. */
static void near_one_process(int row)
{
    const rank_job task = make_task(row);
    rank_work one[1], all[MOST_RANKS];
    run_ranks(one, 1, train_rank, &task);
    all_are_ok(one, 1);
    for (int world = 2; world <= MOST_RANKS; world++) {
        run_ranks(all, world, train_rank, &task);
        all_are_ok(all, world);
        for (int i = 0; i < STEPS; i++)
            if (!(fabs(of(all)->loss[i] - of(one)->loss[i]) < 1e-3 * of(one)->loss[i]))
                fail_msg("%s, %d ranks, step %d: loss %.9g, of one process %.9g", rows[row].name,
                         world, i, of(all)->loss[i], of(one)->loss[i]);
        for (int r = 1; r < world; r++) {
            assert_memory_equal(of(&all[r])->loss, of(all)->loss, sizeof of(all)->loss);
            assert_memory_equal(of(&all[r])->weights, of(all)->weights,
                                (size_t)all->count * sizeof(float));
            assert_true(of(&all[r])->masks == of(all)->masks);
        }
        drop_results(all, world);
    }
    drop_results(one, 1);
}

static int row_named(const char *name)
{
    int row = 0;
    while (strcmp(rows[row].name, name) != 0)
        row++;
    return row;
}

static void losses_of_one_process(void **state)
{
    static const char *const exact[] = {"dense", "fixed", "sr-ste", "cast"};
    (void)state;
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        near_one_process(row_named(exact[i]));
}

/* Each rank has a part of the moments, and together they have all. */
/* Ranks that share the moments out have those of zeros that stay, too. */
static void parts_are_whole(const rank_work *parts, const rank_work *all, int halved)
{
    int64_t sum = 0;
    for (int r = 0; r < 3; r++) {
        assert_true(of(&parts[r])->moments < of(all)->moments * 2 / 3);
        sum += of(&parts[r])->moments;
    }
    assert_true(halved ? sum > of(all)->moments : sum == of(all)->moments);
}

/* Every method, some of which take tokens together: each rank ends with the same bits, and a second
   run with those again. Gradients in pieces or in one, moments on each rank or in parts. */
static void every_method_has_its_bits(void **state)
{
    rank_work all[MOST_RANKS], again[MOST_RANKS];
    (void)state;
    for (int row = 0; row < ROWS; row++) {
        rank_job task = make_task(row);
        task.opts.objective.dropout = 0.1;
        task.opts.held_out = &examples;
        run_ranks(all, 3, train_rank, &task);
        all_are_ok(all, 3);
        task.opts.sum_bytes = 0;
        task.opts.shard_optimizer = strcmp(rows[row].name, "step") != 0;
        run_ranks(again, 3, train_rank, &task);
        all_are_ok(again, 3);
        if (task.opts.shard_optimizer)
            parts_are_whole(again, all, !strcmp(rows[row].name, "fixed"));
        for (int r = 0; r < 3; r++) {
            if (memcmp(of(&all[r])->weights, of(again)->weights,
                       (size_t)all->count * sizeof(float)))
                fail_msg("%s: rank %d has other weights", rows[row].name, r);
            assert_true(of(&all[r])->held_out == of(again)->held_out);
            assert_true(isfinite(of(again)->held_out));
        }
        drop_results(all, 3);
        drop_results(again, 3);
    }
}

/* A run of two that stops goes on in worlds of one and of three. */
static void a_checkpoint_is_for_any_world(void **state)
{
    rank_job whole = make_task(row_named("sr-ste"));
    rank_work one[1], all[MOST_RANKS];
    (void)state;
    run_ranks(one, 1, train_rank, &whole);
    for (int world = 1; world <= 3; world += 2) {
        rank_job task = whole;
        remove(path);
        task.opts.checkpoint = path;
        task.opts.resume = 1;
        task.odd = 1;
        task.differs = "stops";
        run_ranks(all, 2, train_rank, &task);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(all[r].status, S24_ERROR_INTERRUPTED);
            assert_int_equal(of(&all[r])->steps, STOPPED);
        }
        drop_results(all, 2);
        task.odd = -1;
        run_ranks(all, world, train_rank, &task);
        all_are_ok(all, world);
        assert_true(of(all)->loss[STOPPED - 1] == 0);
        for (int i = STOPPED; i < STEPS; i++)
            assert_true(fabs(of(all)->loss[i] - of(one)->loss[i]) < 1e-3 * of(one)->loss[i]);
        drop_results(all, world);
    }
    drop_results(one, 1);
}

static void same_weights(const rank_work *a, const rank_work *b, const char *what)
{
    if (memcmp(of(a)->weights, of(b)->weights, (size_t)a->count * sizeof(float)))
        fail_msg("%s: other weights", what);
}

/* A run of two that stops, with moments in parts or not, goes on the other way round with the same
   bits, and in worlds of one and of four. */
static void checkpoints_of_parts(void **state)
{
    rank_job task = make_task(row_named("sr-ste"));
    rank_work whole[MOST_RANKS], all[MOST_RANKS];
    (void)state;
    run_ranks(whole, 2, train_rank, &task);
    task.opts.checkpoint = path;
    task.opts.resume = 1;
    for (int i = 0; i < 4; i++) {
        const int world = i < 2 ? 2 : i < 3 ? 1 : 4;
        task.opts.shard_optimizer = i != 1;
        task.odd = 1;
        task.differs = "stops";
        remove(path);
        run_ranks(all, 2, train_rank, &task);
        assert_int_equal(all->status, S24_ERROR_INTERRUPTED);
        drop_results(all, 2);
        task.odd = -1;
        task.opts.shard_optimizer = i != 0;
        run_ranks(all, world, train_rank, &task);
        all_are_ok(all, world);
        assert_true(of(all)->loss[STOPPED - 1] == 0);
        if (world == 2) same_weights(all, whole, i ? "whole, then parts" : "parts, then whole");
        for (int k = STOPPED; k < STEPS; k++)
            assert_true(fabs(of(all)->loss[k] - of(whole)->loss[k]) < 1e-3 * of(whole)->loss[k]);
        drop_results(all, world);
    }
    drop_results(whole, 2);
}

static void step_keeps_its_moments(void **state)
{
    rank_work all[MOST_RANKS];
    rank_job task = make_task(row_named("step"));
    (void)state;
    task.opts.shard_optimizer = 1;
    run_ranks(all, 2, train_rank, &task);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(all[r].status, S24_ERROR_UNSUPPORTED);
        assert_non_null(strstr(all[r].error, "watches the variance of all weights"));
    }
    drop_results(all, 2);
}

/* More ranks than examples of a step: some have nothing to do and take part. */
static void a_rank_without_examples(void **state)
{
    rank_job task = make_task(row_named("ste"));
    rank_work one[1], all[MOST_RANKS];
    (void)state;
    task.opts.batch = 2;
    run_ranks(one, 1, train_rank, &task);
    run_ranks(all, 3, train_rank, &task);
    all_are_ok(all, 3);
    for (int i = 0; i < STEPS; i++)
        assert_true(fabs(of(all)->loss[i] - of(one)->loss[i]) < 1e-4 * of(one)->loss[i]);
    drop_results(all, 3);
    drop_results(one, 1);
}

static void ranks_that_differ(void **state)
{
    static const char *const in[] = {"options", "parts", "examples", "model"};
    rank_work all[MOST_RANKS];
    (void)state;
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        char sentence[60];
        rank_job task = make_task(row_named("ste"));
        task.odd = 2;
        task.differs = in[i];
        snprintf(sentence, sizeof sentence, "rank 2 has %s %s than rank 0",
                 i < 3 ? "other" : "another", i == 1 ? "options" : in[i]);
        run_ranks(all, 3, train_rank, &task);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(all[r].status, S24_ERROR_ARGUMENT);
            assert_string_equal(all[r].error, sentence);
            assert_int_equal(of(&all[r])->steps, 0);
        }
        drop_results(all, 3);
    }
}

static void a_rank_that_fails(void **state)
{
    rank_work all[MOST_RANKS];
    rank_job task = make_task(row_named("dense"));
    (void)state;
    task.odd = 1;
    task.differs = "fails";
    run_ranks(all, 3, train_rank, &task);
    assert_non_null(strstr(all[1].error, "is torn"));
    for (int r = 0; r < 3; r++) {
        assert_int_equal(all[r].status, S24_ERROR_FORMAT);
        assert_int_equal(of(&all[r])->steps, 2);
        if (r != 1) assert_non_null(strstr(all[r].error, "rank 1 of 3 failed"));
    }
    drop_results(all, 3);
}

/* Wherever the wire is cut, in the midst of a pass too, all end. */
static void a_wire_that_is_cut(void **state)
{
    rank_work all[MOST_RANKS];
    rank_job task = make_task(row_named("ste"));
    (void)state;
    for (int after = 0; after < 40; after++) {
        task.opts.shard_optimizer = after % 2;
        cut_wire(1, after / 2);
        run_ranks(all, 2, train_rank, &task);
        assert_non_null(strstr(all[1].error, "the wire of rank 1 is cut"));
        assert_int_equal(all[0].status, S24_ERROR_IO);
        assert_non_null(strstr(all[0].error, "rank 1 is gone"));
        drop_results(all, 2);
    }
}

static int setup(void **state)
{
    if (train_setup(state)) return 1;
    write_config(model, "model", "relu2", 16);
    examples = source();
    snprintf(path, sizeof path, "%s", io_path("shared.safetensors"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_of_one_process),
        cmocka_unit_test(every_method_has_its_bits),
        cmocka_unit_test(a_checkpoint_is_for_any_world),
        cmocka_unit_test(checkpoints_of_parts),
        cmocka_unit_test(step_keeps_its_moments),
        cmocka_unit_test(a_rank_without_examples),
        cmocka_unit_test(ranks_that_differ),
        cmocka_unit_test(a_rank_that_fails),
        cmocka_unit_test(a_wire_that_is_cut),
    };
    return cmocka_run_group_tests(tests, setup, io_folder_teardown);
}
