// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that prune one model together, as threads of this process: they end with the weights of one
 * process but for rounding, in a world of one size with the same bits; what differs between them is
 * refused by its name, and where one fails all do.
 */
#include "nn_failing.h"
#include "nn_prune_support.h"
#include "nn_ranks.h"

/* What all ranks are asked, and what one of them alone is. */
typedef struct together {
    const char *in, *out;
    s24_model_prune_opts opts;
    int odd;                    /* the rank that has other options, or −1 */
    s24_model_prune_opts other; /* which */
    const char *other_in;
    int allocations; /* that succeed */
} together;

/* Passages enough for some batches of each rank. */
static s24_model_prune_opts few(const char *criterion)
{
    s24_model_prune_opts opts = options(criterion, NULL);
    opts.text_count = 9;
    return opts;
}

static void prune_as(rank_work *w)
{
    const together *job = w->job;
    const int is_odd = w->rank == job->odd;
    s24_checkpoint *in;
    s24_model_prune_opts opts = is_odd ? job->other : job->opts;
    reports *r = calloc(1, sizeof *r);
    w->result = r;
    opts.report = keep_report;
    opts.user = r;
    opts.comm = w->comm;
    w->status = s24_checkpoint_open(&in, w->ctx, is_odd && job->other_in ? job->other_in : job->in);
    if (w->status != S24_OK) return;
    w->status = s24_model_prune(w->ctx, in, job->out, &opts);
    s24_checkpoint_close(in);
}

static void run_together(rank_work *all, int world, const together *job)
{
    run_ranks(all, world, prune_as, job);
}

static void forget(rank_work *all, int world)
{
    for (int r = 0; r < world; r++)
        free(all[r].result);
}

static void prune_alone(const together *job, const char *out, reports *r)
{
    s24_ctx *ctx;
    s24_checkpoint *in;
    const s24_ctx_opts one = {.size = sizeof one, .threads = 1};
    s24_model_prune_opts opts = job->opts;
    opts.report = keep_report;
    opts.user = r;
    r->count = 0;
    assert_int_equal(s24_ctx_create(&ctx, &one), S24_OK);
    OK(ctx, s24_checkpoint_open(&in, ctx, job->in));
    OK(ctx, s24_model_prune(ctx, in, out, &opts));
    s24_checkpoint_close(in);
    s24_ctx_destroy(ctx);
}

/* Do the files hold the same numbers but for rounding, in layers but for a few ties? */
static void assert_near(s24_ctx *ctx, const char *a_path, const char *b_path)
{
    s24_checkpoint *files[2];
    OK(ctx, s24_checkpoint_open(&files[0], ctx, a_path));
    OK(ctx, s24_checkpoint_open(&files[1], ctx, b_path));
    for (int64_t i = 0; i < s24_checkpoint_count(files[0]); i++) {
        const s24_tensor *a = s24_checkpoint_tensor(files[0], i);
        const s24_tensor *b = s24_checkpoint_find(files[1], a->name);
        assert_non_null(b);
        assert_int_equal(a->bytes, b->bytes);
        const float *x = a->data, *y = b->data;
        int64_t far = 0;
        for (size_t j = 0; a->dtype == S24_F32 && j < a->bytes / sizeof *x; j++)
            far += fabsf(x[j] - y[j]) > 1e-3f;
        assert_true((double)far <= 0.02 * (double)(a->bytes / sizeof *x));
    }
    s24_checkpoint_close(files[1]);
    s24_checkpoint_close(files[0]);
}

static void all_went_well(const rank_work *all, int world)
{
    for (int r = 0; r < world; r++)
        if (all[r].status != S24_OK) fail_msg("rank %d: %s", r, all[r].error);
}

/* Ranks next to one process. */
static void compare(together *job, int world)
{
    char alone[600], out[600];
    rank_work all[MOST_RANKS];
    static reports one;
    s24_ctx *ctx = make_ctx();
    snprintf(alone, sizeof alone, "%s", io_path("alone"));
    snprintf(out, sizeof out, "%s", io_path("out"));
    job->opts.force = 1;
    job->odd = -1;
    job->out = out;
    prune_alone(job, alone, &one);
    run_together(all, world, job);
    all_went_well(all, world);
    for (int r = 0; r < world; r++) {
        const reports *told = all[r].result;
        assert_int_equal(told->count, one.count);
        for (int i = 0; i < one.count; i++) {
            const s24_layer_report *layer = report_of(told, one.names[i]);
            assert_float_equal(layer->kept_l1, one.layers[i].kept_l1, 1e-2);
            assert_float_equal(layer->output_error, one.layers[i].output_error, 1e-2);
        }
    }
    forget(all, world);
    if (!job->opts.packed) assert_near(ctx, alone, out);
    s24_ctx_destroy(ctx);
}

static void ranks_end_as_one_process(void **state)
{
    (void)state;
    const char *in = write_folder("model", S24_F32);
    together job = {.in = in, .opts = few("wanda")};
    compare(&job, 3);
    job.opts.prune.criterion = "sparsegpt";
    compare(&job, 2);
}

static void and_write_integers_and_factors(void **state)
{
    (void)state;
    const char *in = write_folder("model", S24_F32);
    for (int factors = 0; factors < 2; factors++) {
        together job = {.in = in, .opts = few("sparsegpt")};
        job.opts.packed = 1;
        if (factors) job.opts.low_rank = "1";
        if (!factors) job.opts.quantize = "int8";
        compare(&job, 2);
    }
}

/* NCCL takes what is in the host's memory through its device's. */
static void through_nccl(void **state)
{
    (void)state;
    rank_work all[MOST_RANKS];
    static reports one;
    const together job = {.in = write_folder("model", S24_F32),
                          .out = io_path("through"),
                          .opts = few("sparsegpt"),
                          .odd = -1};
    const rank_work common = {.kind = "nccl",
                              .library = S24_FAKE_NCCL_LIBRARY,
                              .plugin = S24_FAKE_PLUGIN,
                              .work = prune_as,
                              .job = &job};
    prune_alone(&job, io_path("one"), &one);
    run_ranks_as(all, 2, &common);
    all_went_well(all, 2);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < LAYERS; i++)
            assert_float_equal(report_of(all[r].result, one.names[i])->output_error,
                               one.layers[i].output_error, 1e-2);
    forget(all, 2);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_all(rank_work *all, int world, const together *job, const char *what)
{
    run_together(all, world, job);
    for (int r = 0; r < world; r++) {
        assert_int_not_equal(all[r].status, S24_OK);
        if (!strstr(all[r].error, what)) fail_msg("rank %d: %s", r, all[r].error);
    }
    assert_int_not_equal(access(job->out, F_OK), 0);
    forget(all, world);
}

static void what_differs_is_refused(void **state)
{
    (void)state;
    char in[600], other[600], out[600];
    rank_work all[MOST_RANKS];
    snprintf(in, sizeof in, "%s", write_folder("model", S24_F32));
    snprintf(other, sizeof other, "%s", write_folder("other", S24_BF16));
    snprintf(out, sizeof out, "%s", io_path("refused"));
    together job = {.in = in, .out = out, .opts = few("wanda"), .odd = 1};
    job.other = job.opts;
    job.other_in = other;
    expect_all(all, 2, &job, "rank 1 has another model than rank 0");
    job.other_in = NULL;
    job.other.prune.criterion = "sparsegpt";
    expect_all(all, 3, &job, "rank 1 has other options of pruning");
    job.other = job.opts;
    job.other.text_count--;
    expect_all(all, 2, &job, "rank 1 has other calibration passages than rank 0");
    job.odd = -1;
    job.opts.text_count = 2;
    expect_all(all, 3, &job, "3 ranks share out calibration passages, and there are 2 of them");
    job.opts.text_count = 0;
    job.opts.prune.criterion = "magnitude";
    expect_all(all, 2, &job, "none were given");
}

static void what_ranks_cannot_is_refused(void **state)
{
    (void)state;
    char in[600], out[600];
    rank_work all[MOST_RANKS];
    snprintf(in, sizeof in, "%s", write_folder("model", S24_F32));
    snprintf(out, sizeof out, "%s", io_path("refused"));
    for (int i = 0; i < 3; i++) {
        together job = {.in = in, .out = out, .opts = few("wanda"), .odd = -1};
        if (i == 0) job.opts.reconstruct = 2;
        if (i == 1) job.opts.aim = "outputs";
        if (i == 2) job.opts.global = 1, job.opts.prune.pattern = "unstructured:0.5";
        expect_all(all, 2, &job, "comm of pruning excludes reconstruct, aim and global");
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

/* A criterion of the caller's that fails on one rank. */
static s24_status fail_once(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    int *left = user;
    for (int64_t i = 0; i < in->rows * in->cols; i++)
        scores[i] = fabs((double)in->w[i]);
    return --*left ? S24_OK : s24_ctx_fail(ctx, S24_ERROR_INTERRUPTED, "enough of it");
}

static void a_rank_that_fails_ends_all(void **state)
{
    (void)state;
    char in[600], out[600];
    rank_work all[MOST_RANKS];
    snprintf(in, sizeof in, "%s", write_folder("model", S24_F32));
    snprintf(out, sizeof out, "%s", io_path("failed"));
    for (int at = 1; at <= TINY_LAYERS; at++) { /* of a block's layers one is rank 1's */
        int left = at, never = -1;
        together job = {.in = in, .out = out, .opts = few(NULL), .odd = 1};
        job.opts.prune.score = fail_once;
        job.opts.prune.score_user = &never;
        job.other = job.opts;
        job.other.prune.score_user = &left;
        run_together(all, 2, &job);
        assert_int_equal(all[1].status, S24_ERROR_INTERRUPTED);
        assert_non_null(strstr(all[1].error, "enough of it"));
        assert_int_equal(all[0].status, S24_ERROR_INTERRUPTED);
        assert_non_null(strstr(all[0].error, "rank 1 of 2 failed"));
        assert_int_not_equal(access(out, F_OK), 0);
        forget(all, 2);
    }
}

/* What was kept of runs that were cut is taken by the next, to the same bits. */
static void a_run_goes_on_after_its_blocks(void **state)
{
    (void)state;
    char in[600], whole[600], out[600], keep[600], block[700];
    rank_work all[MOST_RANKS];
    snprintf(in, sizeof in, "%s", write_folder("model", S24_F32));
    snprintf(whole, sizeof whole, "%s", io_path("whole"));
    snprintf(out, sizeof out, "%s", io_path("resumed"));
    snprintf(keep, sizeof keep, "%s", io_path("kept"));
    snprintf(block, sizeof block, "%s/block-000000.safetensors", keep);
    together job = {.in = in, .out = whole, .opts = few("wanda"), .odd = -1};
    run_together(all, 2, &job);
    all_went_well(all, 2);
    forget(all, 2);
    job.opts.keep = keep;
    job.out = out;
    for (int after = 32; access(block, F_OK); after += 24) {
        cut_wire(1, after);
        run_together(all, 2, &job);
        assert_int_equal(all[0].status, S24_ERROR_IO);
        forget(all, 2);
    }
    cut_wire(-1, 0);
    run_together(all, 2, &job);
    all_went_well(all, 2);
    assert_int_equal(((reports *)all[0].result)->count, LAYERS);
    assert_int_equal(((reports *)all[1].result)->count, LAYERS - BLOCK_LAYERS);
    io_same_models(whole, out);
    assert_int_not_equal(access(keep, F_OK), 0);
    forget(all, 2);
}

/* Rank 1's memory ends at the n-th allocation. */
static void prune_until(rank_work *w)
{
    const together *job = w->job;
    failing f = {.left = w->rank == 1 ? job->allocations : INT32_MAX};
    const s24_ctx_opts opts = {
        .size = sizeof opts, .allocator = {failing_alloc, failing_free, &f}, .threads = 1};
    s24_ctx *own = w->ctx, *ctx = NULL;
    w->status = s24_ctx_create(&ctx, &opts);
    w->ctx = ctx;
    if (w->status == S24_OK) prune_as(w);
    w->ctx = own;
    s24_ctx_destroy(ctx);
    w->count = f.bytes;
}

static void memory_that_ends_ends_all(void **state)
{
    (void)state;
    char in[600], out[600];
    rank_work all[MOST_RANKS];
    int ends = 0;
    snprintf(in, sizeof in, "%s", write_folder("model", S24_F32));
    snprintf(out, sizeof out, "%s", io_path("short"));
    together job = {.in = in, .out = out, .opts = few("wanda"), .odd = -1, .allocations = 60};
    for (;; job.allocations += 120, ends++) {
        run_ranks(all, 2, prune_until, &job);
        for (int r = 0; r < 2; r++)
            assert_int_equal(all[r].count, 0);
        forget(all, 2);
        assert_int_equal(all[0].status, all[1].status);
        if (all[0].status == S24_OK) break;
        assert_int_equal(all[0].status, S24_ERROR_MEMORY);
        assert_int_not_equal(access(out, F_OK), 0);
    }
    assert_true(ends > 1);
}

static void a_wire_that_is_cut_ends_all(void **state)
{
    (void)state;
    char in[600], out[600];
    rank_work all[MOST_RANKS];
    snprintf(in, sizeof in, "%s", write_folder("model", S24_F32));
    snprintf(out, sizeof out, "%s", io_path("cut"));
    together job = {.in = in, .out = out, .opts = few("wanda"), .odd = -1};
    for (int after = 0; after < 12; after += 3) {
        cut_wire(1, after);
        run_together(all, 2, &job);
        for (int r = 0; r < 2; r++)
            assert_int_equal(all[r].status, S24_ERROR_IO);
        assert_int_not_equal(access(out, F_OK), 0);
        forget(all, 2);
    }
    cut_wire(-1, 0);
}

static void an_output_that_is_there_ends_all(void **state)
{
    (void)state;
    char in[600];
    rank_work all[MOST_RANKS];
    snprintf(in, sizeof in, "%s", write_folder("model", S24_F32));
    together job = {.in = in, .out = in, .opts = few("wanda"), .odd = -1};
    run_together(all, 2, &job);
    assert_int_not_equal(all[0].status, S24_OK);
    assert_int_equal(all[0].status, all[1].status);
    assert_non_null(strstr(all[1].error, "rank 0 of 2 failed"));
    forget(all, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_end_as_one_process),
        cmocka_unit_test(and_write_integers_and_factors),
        cmocka_unit_test(through_nccl),
        cmocka_unit_test(what_differs_is_refused),
        cmocka_unit_test(what_ranks_cannot_is_refused),
        cmocka_unit_test(a_rank_that_fails_ends_all),
        cmocka_unit_test(a_run_goes_on_after_its_blocks),
        cmocka_unit_test(memory_that_ends_ends_all),
        cmocka_unit_test(a_wire_that_is_cut_ends_all),
        cmocka_unit_test(an_output_that_is_there_ends_all),
    };
    return cmocka_run_group_tests(tests, io_folder_setup, io_folder_teardown);
}
