// SPDX-License-Identifier: Apache-2.0
/* NCCL's table on a library that is none: sums and broadcasts of ranks that meet at an address,
   sums in another order, ranks that do not come, fail, hang or are gone, strangers, ports in use.
   No rank's device is its thread's current one. */
#include "support.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/try.h"
#include "comm/transport.h"
#include "fake_calls.h"
#include "free_port.h"
#include "sparse24/comm.h"
#include "sparse24/device.h"

enum { MOST = 3, NUMBERS = 100 };

typedef struct rank {
    int rank, world, port, fault; /* fault: of this test, at that rank */
    double patience;
    s24_ctx *ctx;
    s24_device *device;
    s24_comm *comm;
    s24_status status;
    char error[300];
    int right;
    int64_t count; /* of sums in a stream; 0: none */
} rank;

enum { NONE, LEAVES, OTHER_COUNT, STAYS_AWAY };

static s24_status open_rank(rank *r)
{
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    char name[24];
    const s24_device_opts device = {
        .size = sizeof device, .name = name, .library = S24_FAKE_PLUGIN};
    snprintf(name, sizeof name, "cuda:%d", 1 + r->rank);
    s24_status status = s24_ctx_create(&r->ctx, &opts);
    if (status == S24_OK) status = s24_device_create(&r->device, r->ctx, &device);
    const s24_comm_opts comm = {.size = sizeof comm,
                                .kind = "nccl",
                                .library = S24_FAKE_NCCL_LIBRARY,
                                .rank = r->rank,
                                .world = r->world,
                                .port = r->port,
                                .device = r->device,
                                .patience = r->patience};
    return status == S24_OK ? s24_comm_create(&r->comm, r->ctx, &comm) : status;
}

static s24_status talk(rank *r)
{
    double one[NUMBERS], sent = r->rank;
    float *there, few[2] = {1, (float)r->rank};
    void *memory;
    for (int i = 0; i < NUMBERS; i++)
        one[i] = r->rank + i;
    TRY(s24_comm_sum(r->ctx, r->comm, one, NUMBERS, S24_F64));
    TRY(s24_comm_sum(r->ctx, r->comm, few, 2, S24_F32));
    if (r->fault == LEAVES) {
        r->status = s24_ctx_fail(r->ctx, S24_ERROR_FORMAT, "a torn file");
        s24_comm_abort(r->comm, 1);
        return r->status;
    }
    TRY(s24_device_alloc(&memory, r->ctx, r->device, NUMBERS * sizeof *there, NULL));
    there = memory;
    for (int i = 0; i < NUMBERS; i++)
        there[i] = (float)i;
    const int64_t half = r->fault == OTHER_COUNT ? NUMBERS / 4 : NUMBERS / 2;
    s24_status status = s24_comm_sum_begin(r->ctx, r->comm, there + half, half, S24_F32);
    if (status == S24_OK) status = s24_comm_sum_begin(r->ctx, r->comm, there, half, S24_F32);
    if (status == S24_OK) status = s24_comm_wait(r->ctx, r->comm);
    if (status == S24_OK) status = s24_comm_broadcast(r->ctx, r->comm, &sent, sizeof sent, 1);
    if (status == S24_OK) status = s24_comm_barrier(r->ctx, r->comm);
    r->right =
        sent == 1 && few[0] == (float)r->world && few[1] == (float)(r->world * (r->world - 1) / 2);
    for (int i = 0; i < NUMBERS; i++)
        r->right &= there[i] == (float)(i * r->world) &&
                    one[i] == i * r->world + r->world * (r->world - 1) / 2;
    (void)s24_device_free(r->ctx, r->device, memory, NULL);
    return status;
}

/* Sums of bf16 in a stream, three times over: more than a window has places. */
static s24_status sum_in_stream(rank *r)
{
    uint16_t one = 0x3f80, *there;
    void *memory, *stream;
    TRY(s24_device_stream_create(&stream, r->ctx, r->device));
    TRY(s24_device_alloc(&memory, r->ctx, r->device, (size_t)r->count * sizeof one, stream));
    there = memory;
    for (int64_t i = 0; i < r->count; i++)
        there[i] = i % 3 ? one : 0;
    s24_status status = S24_OK;
    for (int turn = 0; turn < 3 && status == S24_OK; turn++)
        status = s24i_comm_enqueue(r->ctx, r->comm, memory,
                                   r->fault == LEAVES && turn ? 0 : r->count, S24_BF16, stream);
    if (status == S24_OK) status = s24i_comm_alive(r->ctx, r->comm);
    const int sum = r->world * r->world * r->world; /* a power of two in a world of two */
    const float expected = (float)sum;
    uint32_t bits;
    memcpy(&bits, &expected, sizeof bits);
    r->right = 1;
    for (int64_t i = 0; i < r->count; i++)
        r->right &= there[i] == (i % 3 ? bits >> 16 : 0);
    (void)s24_device_free(r->ctx, r->device, memory, stream);
    s24_device_stream_destroy(r->device, stream);
    return status;
}

static void *run_rank(void *opaque)
{
    rank *r = opaque;
    if (r->fault == STAYS_AWAY) return NULL;
    r->status = open_rank(r);
    if (r->status == S24_OK) r->status = r->count ? sum_in_stream(r) : talk(r);
    snprintf(r->error, sizeof r->error, "%s", r->ctx ? s24_ctx_error(r->ctx) : "");
    if (r->status != S24_OK) s24_comm_abort(r->comm, 1);
    s24_comm_destroy(r->comm);
    s24_device_destroy(r->device);
    s24_ctx_destroy(r->ctx);
    return NULL;
}

static void run_counted(rank *all, int world, int odd, int fault, double patience, int64_t count)
{
    pthread_t thread[MOST];
    int held;
    const int port = free_port(&held);
    close(held);
    for (int r = 0; r < world; r++) {
        all[r] = (rank){.rank = r,
                        .world = world,
                        .port = port,
                        .fault = r == odd ? fault : NONE,
                        .patience = patience,
                        .count = count};
        assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &all[r]), 0);
    }
    for (int r = 0; r < world; r++)
        assert_int_equal(pthread_join(thread[r], NULL), 0);
    if (is_taken(all[0].error)) run_counted(all, world, odd, fault, patience, count);
}

static void run(rank *all, int world, int odd, int fault, double patience)
{
    run_counted(all, world, odd, fault, patience, 0);
}

/* Seconds. What is said when patience is over is asked with little of it first: a busy machine does
   not bring ranks together in so short a time, and then there is more, up to what is enough. */
static const double LITTLE = 0.4, ENOUGH = 60, MORE = 5;

static int says(const rank *r, const char *sentence)
{
    return strstr(r->error, sentence) != NULL;
}

static void sums_and_broadcasts(void **state)
{
    rank all[MOST];
    (void)state;
    for (int world = 2; world <= MOST; world++) {
        run(all, world, -1, NONE, ENOUGH);
        for (int r = 0; r < world; r++) {
            if (all[r].status != S24_OK) fail_msg("rank %d: %s", r, all[r].error);
            assert_true(all[r].right);
        }
    }
}

/* Whoever leaves without a word, or whose call fails, is named by the others. */
static void a_rank_is_gone(void **state)
{
    rank all[MOST];
    (void)state;
    for (int odd = 0; odd < MOST; odd++) {
        char sentence[60];
        snprintf(sentence, sizeof sentence, "rank %d is gone", odd);
        run(all, MOST, odd, LEAVES, ENOUGH);
        for (int r = 0; r < MOST; r++) {
            assert_int_equal(all[r].status, r == odd ? S24_ERROR_FORMAT : S24_ERROR_IO);
            if (!strstr(all[r].error, r == odd ? "a torn file" : sentence))
                fail_msg("rank %d: %s", r, all[r].error);
        }
    }
    for (int after = 0; after < 4; after++) {
        char fault[20];
        snprintf(fault, sizeof fault, "2 %d", after);
        setenv("S24_FAKE_NCCL", fault, 1);
        run(all, MOST, -1, NONE, ENOUGH);
        unsetenv("S24_FAKE_NCCL");
        assert_non_null(strstr(all[2].error, "NCCL failed while it began a sum: unhandled system"));
        for (int r = 0; r < 2; r++)
            assert_non_null(strstr(all[r].error, "rank 2 is gone"));
    }
}

static void sums_in_another_order(void **state)
{
    rank all[MOST];
    (void)state;
    run(all, MOST, 1, OTHER_COUNT, 10);
    for (int r = 0; r < MOST; r++)
        assert_int_equal(all[r].status, S24_ERROR_IO);
}

/* While NCCL connects ranks it waits for all of them. */
static void a_rank_is_gone_while_ranks_connect(void **state)
{
    rank all[MOST];
    (void)state;
    for (int odd = 0; odd < MOST; odd++) {
        char fault[2] = {(char)('0' + odd)}, sentence[60];
        snprintf(sentence, sizeof sentence, "nccl: rank %d is gone", odd);
        setenv("S24_FAKE_NCCL_INIT", fault, 1);
        run(all, MOST, -1, NONE, ENOUGH);
        unsetenv("S24_FAKE_NCCL_INIT");
        for (int r = 0; r < MOST; r++) {
            const char *expected =
                r == odd ? "NCCL failed while connecting ranks: unhandled system error" : sentence;
            assert_int_equal(all[r].status, S24_ERROR_IO);
            if (!strstr(all[r].error, expected)) fail_msg("rank %d: %s", r, all[r].error);
        }
    }
}

/* One of two at least runs out of patience, and the other is told. */
static void ranks_that_never_connect(void **state)
{
    static const char sentence[] = "another rank did not come within ";
    rank all[2];
    int told = 0;
    (void)state;
    setenv("S24_FAKE_NCCL_INIT", "hangs", 1);
    for (double patience = LITTLE; !told && patience < ENOUGH; patience *= MORE) {
        run(all, 2, -1, NONE, patience);
        told = says(&all[0], sentence) || says(&all[1], sentence);
        for (int r = 0; r < 2; r++)
            assert_int_equal(all[r].status, S24_ERROR_IO);
    }
    unsetenv("S24_FAKE_NCCL_INIT");
    if (!told) fail_msg("rank 0: %s; rank 1: %s", all[0].error, all[1].error);
}

/* One who talks to rank 0 before any rank does; -1: rank 0 has gone. */
static int knock(int port, const void *data, size_t bytes)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(0x7f000001)}};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    int tries = 10000;
    while (connect(fd, (struct sockaddr *)&at, sizeof at) != 0 && --tries)
        usleep(1000);
    if (tries && (!bytes || send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes)) return fd;
    close(fd);
    return -1;
}

/* What fits goes through windows where all ranks have them, the rest through NCCL. */
static void sums_in_windows(void **state)
{
    static const struct {
        const char *devices;
        int64_t count;
        int windows; /* sums that go through them, of two ranks */
    } cases[] = {{"2", 4096, 6},
                 {"2", S24_DEVICE_WINDOW_SUM / 4, 6},
                 {"2", S24_DEVICE_WINDOW_SUM / 4 + 4, 0},
                 {"2", 4098, 0},
                 {"1", 4096, 0},
                 {"0", 4096, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rank all[2];
        char path[PATH_BYTES], calls[MOST_CALLS];
        setenv("S24_FAKE_WINDOWS", cases[i].devices, 1);
        record(path);
        run_counted(all, 2, -1, NONE, ENOUGH, cases[i].count);
        take_record(calls, path);
        unsetenv("S24_FAKE_WINDOWS");
        for (int r = 0; r < 2; r++) {
            if (all[r].status != S24_OK) fail_msg("case %zu, rank %d: %s", i, r, all[r].error);
            if (!all[r].right) fail_msg("case %zu, rank %d: other sums", i, r);
        }
        assert_int_equal(count_of(calls, "window_sum"), cases[i].windows);
    }
}

/* A rank that ends before the others' sums does not leave them waiting. */
static void a_rank_is_gone_from_windows(void **state)
{
    rank all[2];
    (void)state;
    for (int odd = 0; odd < 2; odd++) {
        char sentence[60];
        snprintf(sentence, sizeof sentence, "rank %d is gone", odd);
        setenv("S24_FAKE_WINDOWS", "2", 1);
        run_counted(all, 2, odd, LEAVES, ENOUGH, 4096);
        unsetenv("S24_FAKE_WINDOWS");
        assert_int_equal(all[odd].status, S24_ERROR_SHAPE);
        assert_int_equal(all[!odd].status, S24_ERROR_IO);
        if (!strstr(all[!odd].error, sentence)) fail_msg("%s", all[!odd].error);
    }
}

/* Strangers are heard next to ranks: silent ones, which would be waited for, ones that say nothing
   that a rank does, and ranks that are not of this world. */
static void strangers(void **state)
{
    enum { SILENT = 70 };
    const struct {
        char magic[8];
        int32_t world, rank;
    } wrong[] = {{"s24meet", 2, 5}, {"s24meet", 3, 1}, {"s24meat", 2, 1}};
    rank all[2];
    pthread_t thread[2];
    int fds[SILENT], held;
    const int port = free_port(&held);
    (void)state;
    close(held);
    for (int r = 0; r < 2; r++)
        all[r] = (rank){.rank = r, .world = 2, .port = port, .patience = ENOUGH};
    assert_int_equal(pthread_create(&thread[0], NULL, run_rank, &all[0]), 0);
    for (int i = 0; i < SILENT; i++)
        fds[i] = knock(port, "s24meet", i % 2 ? 4 : 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        close(knock(port, &wrong[i], sizeof wrong[i]));
    assert_int_equal(pthread_create(&thread[1], NULL, run_rank, &all[1]), 0);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
        if (all[r].status != S24_OK) fail_msg("rank %d: %s", r, all[r].error);
    }
    for (int i = 0; i < SILENT; i++)
        close(fds[i]);
}

/* What else came is told where a rank did not. */
static void one_of_another_world(void **state)
{
    const struct {
        char magic[8];
        int32_t world, rank;
    } other = {"s24meet", 4, 3};
    rank first;
    int told = 0;
    (void)state;
    for (double patience = LITTLE; !told && patience < ENOUGH; patience *= MORE) {
        pthread_t thread;
        int held;
        first = (rank){.world = 2, .port = free_port(&held), .patience = patience};
        close(held);
        assert_int_equal(pthread_create(&thread, NULL, run_rank, &first), 0);
        const int fd = knock(first.port, &other, sizeof other);
        assert_int_equal(pthread_join(thread, NULL), 0);
        close(fd);
        told = says(&first, "rank 1 of 2 did not come; rank 3 of 4 came and was sent away");
    }
    if (!told) fail_msg("%s", first.error);
}

static void one_that_does_not_come(void **state)
{
    rank all[MOST];
    int told = 0;
    (void)state;
    for (double patience = LITTLE; !told && patience < ENOUGH; patience *= MORE) {
        run(all, MOST, 2, STAYS_AWAY, patience);
        assert_int_equal(all[0].status, S24_ERROR_IO);
        told = says(&all[0], "nccl: rank 2 of 3 did not come") &&
               says(&all[1], "rank 0 of 3 went away while ranks met");
    }
    if (!told) fail_msg("rank 0: %s; rank 1: %s", all[0].error, all[1].error);
    run(all, MOST, 0, STAYS_AWAY, LITTLE);
    assert_true(says(&all[1], "rank 0 is not there, at 127.0.0.1 port"));
}

static void what_is_refused(void **state)
{
    rank r = {.rank = 0, .world = 2, .patience = 0.2};
    s24_comm *comm;
    int held;
    (void)state;
    r.port = free_port(&held);
    assert_int_equal(open_rank(&r), S24_ERROR_IO);
    assert_non_null(strstr(s24_ctx_error(r.ctx), "the port is in use, at 127.0.0.1 port"));
    close(held);
    s24_comm_opts opts = {.size = sizeof opts, .kind = "nccl", .world = 2, .library = "libm.so.6"};
    assert_int_equal(s24_comm_create(&comm, r.ctx, &opts), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(r.ctx), "s24_comm_opts.device is not set"));
    opts.device = r.device;
    assert_int_equal(s24_comm_create(&comm, r.ctx, &opts), S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(r.ctx), "no NCCL here: "));
    opts.library = S24_FAKE_NCCL_LIBRARY;
    opts.address = "nowhere..invalid";
    assert_int_equal(s24_comm_create(&comm, r.ctx, &opts), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(r.ctx), "the address is not known, at nowhere..invalid"));
    opts.world = 0;
    assert_int_equal(s24_comm_create(&comm, r.ctx, &opts), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(r.ctx), "s24_comm_opts.world is not set"));
    s24_device_destroy(r.device);
    s24_ctx_destroy(r.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_broadcasts),
        cmocka_unit_test(a_rank_is_gone),
        cmocka_unit_test(a_rank_is_gone_while_ranks_connect),
        cmocka_unit_test(ranks_that_never_connect),
        cmocka_unit_test(sums_in_another_order),
        cmocka_unit_test(sums_in_windows),
        cmocka_unit_test(a_rank_is_gone_from_windows),
        cmocka_unit_test(strangers),
        cmocka_unit_test(one_of_another_world),
        cmocka_unit_test(one_that_does_not_come),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
