// SPDX-License-Identifier: Apache-2.0
/* Communicators: sums that are begun and waited for, broadcasts, a world of one, what is refused,
   and ranks that do not come, are gone or sum something else. */
#include "support.h"

#include "nn_ranks.h"

static s24_ctx *new_ctx(void)
{
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    return ctx;
}

static void alone(void **state)
{
    s24_ctx *ctx = new_ctx();
    s24_comm *comm;
    float x[2] = {1, 2};
    (void)state;
    assert_string_equal(s24_comm_kind_name(0), "none");
    assert_string_equal(s24_comm_kind_name(1), "mpi");
    assert_string_equal(s24_comm_kind_name(2), "nccl");
    assert_null(s24_comm_kind_name(3));
    assert_null(s24_comm_kind_name(-1));
    assert_int_equal(s24_comm_rank(NULL), 0);
    assert_int_equal(s24_comm_world(NULL), 1);
    assert_int_equal(s24_comm_is_on_device(NULL), 0);
    assert_int_equal(s24_comm_create(&comm, ctx, NULL), S24_OK);
    assert_int_equal(s24_comm_rank(comm), 0);
    assert_int_equal(s24_comm_world(comm), 1);
    assert_int_equal(s24_comm_sum_begin(ctx, comm, x, 2, S24_F32), S24_OK);
    assert_int_equal(s24_comm_wait(ctx, comm), S24_OK);
    assert_int_equal(s24_comm_broadcast(ctx, comm, x, sizeof x, 0), S24_OK);
    assert_int_equal(s24_comm_barrier(ctx, comm), S24_OK);
    assert_true(x[0] == 1 && x[1] == 2);
    s24_comm_abort(comm, 1);
    assert_int_equal(s24_comm_barrier(ctx, comm), S24_ERROR_IO);
    s24_comm_destroy(comm);
    s24_comm_destroy(NULL);
    s24_ctx_destroy(ctx);
}

static void refuses(void **state)
{
    static const struct {
        s24_comm_opts opts;
        const char *sentence;
        s24_status status;
    } wrong[] = {
        {{.size = sizeof(s24_comm_opts), .kind = "tcp"},
         "\"tcp\"; none, mpi or nccl",
         S24_ERROR_ARGUMENT},
        {{.size = sizeof(s24_comm_opts), .rank = 2, .world = 2},
         "rank 2 in a world of 2",
         S24_ERROR_ARGUMENT},
        {{.size = sizeof(s24_comm_opts), .rank = 1}, "rank 1 in a world of 0", S24_ERROR_ARGUMENT},
        {{.size = sizeof(s24_comm_opts), .kind = "mpi", .library = "/nowhere/mpi.so"},
         "the plugin cannot be opened (/nowhere/mpi.so",
         S24_ERROR_UNSUPPORTED},
        {{.size = sizeof(s24_comm_opts), .kind = "mpi", .library = "libm.so.6"},
         "libm.so.6 is no plugin of sparse24",
         S24_ERROR_UNSUPPORTED},
        {{.size = sizeof(s24_comm_opts), .world = 2},
         "none has a world of 1, the launcher started 2",
         S24_ERROR_UNSUPPORTED},
    };
    s24_ctx *ctx = new_ctx();
    s24_comm *comm;
    float x = 1;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(s24_comm_create(&comm, ctx, &wrong[i].opts), wrong[i].status);
        assert_null(comm);
        assert_non_null(strstr(s24_ctx_error(ctx), wrong[i].sentence));
    }
    assert_int_equal(s24_comm_sum(ctx, NULL, &x, 1, S24_F32), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_comm_create(&comm, ctx, NULL), S24_OK);
    assert_int_equal(s24_comm_sum(ctx, comm, NULL, 1, S24_F32), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_comm_sum(ctx, comm, &x, 0, S24_F32), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_comm_sum(ctx, comm, &x, 1, S24_F16), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(ctx), "f32 or f64, not f16"));
    assert_int_equal(s24_comm_broadcast(ctx, comm, &x, 4, 1), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_comm_barrier(ctx, comm), S24_OK);
    s24_comm_destroy(comm);
    s24_ctx_destroy(ctx);
}

/* Several sums at once, a broadcast, a barrier. */
static void sum_and_send(rank_work *w)
{
    static const int64_t counts[] = {1, 1000, 7};
    float *x = calloc(1008, sizeof *x);
    double one = w->rank + 1, sent = w->rank;
    for (int64_t i = 0; i < 1008; i++)
        x[i] = (float)(i + w->rank);
    for (int64_t i = 0, at = 0; i < 3 && w->status == S24_OK; at += counts[i++])
        w->status = s24_comm_sum_begin(w->ctx, w->comm, x + at, counts[i], S24_F32);
    if (w->status == S24_OK) w->status = s24_comm_wait(w->ctx, w->comm);
    if (w->status == S24_OK) w->status = s24_comm_sum(w->ctx, w->comm, &one, 1, S24_F64);
    if (w->status == S24_OK)
        w->status = s24_comm_broadcast(w->ctx, w->comm, &sent, sizeof sent, w->world - 1);
    if (w->status == S24_OK) w->status = s24_comm_barrier(w->ctx, w->comm);
    const int all = w->world * (w->world - 1) / 2;
    w->count = one == all + w->world && sent == w->world - 1;
    for (int64_t i = 0; i < 1008; i++)
        w->count &= x[i] == (float)(w->world * i + all);
    free(x);
}

static void sums(void **state)
{
    rank_work all[MOST_RANKS];
    (void)state;
    for (int world = 1; world <= MOST_RANKS; world++) {
        run_ranks(all, world, sum_and_send, NULL);
        for (int r = 0; r < world; r++) {
            assert_string_equal(all[r].error, "");
            assert_int_equal(all[r].status, S24_OK);
            assert_true(all[r].count);
        }
    }
}

static void a_cut_wire(void **state)
{
    rank_work all[MOST_RANKS];
    (void)state;
    for (int after = 0; after < 6; after++) {
        cut_wire(1, after);
        run_ranks(all, 3, sum_and_send, NULL);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(all[r].status, S24_ERROR_IO);
            assert_non_null(strstr(all[r].error, r == 1 ? "rank 1 of 3, a " : "rank 1 is gone"));
        }
        assert_non_null(strstr(all[1].error, "the wire of rank 1 is cut"));
    }
    run_ranks(all, 3, sum_and_send, NULL);
    assert_int_equal(all[0].status, S24_OK);
}

static void sum_another_count(rank_work *w)
{
    double x[3] = {0};
    w->status = s24_comm_sum(w->ctx, w->comm, x, 1 + w->rank, S24_F64);
}

static void sums_of_other_sizes(void **state)
{
    rank_work all[MOST_RANKS];
    (void)state;
    run_ranks(all, 2, sum_another_count, NULL);
    const int late = strstr(all[0].error, "numbers, others") ? 0 : 1;
    assert_non_null(strstr(all[late].error, "numbers, others"));
    assert_int_equal(all[!late].status, S24_ERROR_IO);
}

static void patience_has_an_end(void **state)
{
    const s24_comm_opts opts = {
        .size = sizeof opts, .kind = "mpi", .library = S24_FAKE_COMM, .world = 2, .patience = 0.05};
    s24_ctx *ctx = new_ctx();
    s24_comm *comm;
    (void)state;
    assert_int_equal(s24_comm_create(&comm, ctx, &opts), S24_OK);
    assert_int_equal(s24_comm_barrier(ctx, comm), S24_ERROR_IO);
    assert_non_null(strstr(s24_ctx_error(ctx), "another rank did not come within 0.05 s"));
    assert_int_equal(s24_comm_barrier(ctx, comm), S24_ERROR_IO);
    assert_non_null(strstr(s24_ctx_error(ctx), "since an earlier call failed"));
    s24_comm_destroy(comm);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),
        cmocka_unit_test(refuses),
        cmocka_unit_test(sums),
        cmocka_unit_test(a_cut_wire),
        cmocka_unit_test(sums_of_other_sizes),
        cmocka_unit_test(patience_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
