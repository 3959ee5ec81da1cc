// SPDX-License-Identifier: Apache-2.0
/*
 * Sums over two GPUs through windows: a process for each, since none finds a window of its own. The
 * numbers are whole, so that sums are exact in f16 and bf16 and compared by their bits; graphs run
 * them again and again, for that is what places of a window are used twice by. Says in a line where
 * two GPUs or windows between them are not to be had.
 */
#include "device_here.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "device/device_layers.h"

enum { RANKS = 2, RIGHT = 0, WRONG = 1, ABSENT = 77, LAUNCHES = 5, SUMS = 3 };

typedef struct side {
    int rank, to, from; /* pipes */
    s24_ctx *ctx;
    s24_device *device;
    void *stream, *windows[RANKS], *halt;
} side;

static int64_t number_of(int rank, int64_t i)
{
    return (i * 7 + rank * 5 + 3) % 31 - 15;
}

static uint16_t bits_of(s24_dtype dtype, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return dtype == S24_F16 ? s24i_f32_to_f16(value) : (uint16_t)(bits >> 16);
}

/* Waits for the other. */
static int meet(const side *s)
{
    char byte = 0;
    return write(s->to, &byte, 1) == 1 && read(s->from, &byte, 1) == 1;
}

static int is_named(const char name[S24_DEVICE_WINDOW_NAME])
{
    static const char none[S24_DEVICE_WINDOW_NAME];
    return memcmp(name, none, sizeof none) != 0;
}

static int open_side(side *s)
{
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 1};
    const s24_device_opts device = {
        .size = sizeof device, .library = plugin(), .name = s->rank ? "cuda:1" : "cuda:0"};
    char own[S24_DEVICE_WINDOW_NAME], other[S24_DEVICE_WINDOW_NAME];
    if (s24_ctx_create(&s->ctx, &opts) != S24_OK) return WRONG;
    int can = s24_device_create(&s->device, s->ctx, &device) == S24_OK;
    if (can)
        can = s24_device_window_make(&s->windows[s->rank], s->ctx, s->device, RANKS, own) == S24_OK;
    if (!can) memset(own, 0, sizeof own);
    if (write(s->to, own, sizeof own) != sizeof own) return WRONG;
    if (read(s->from, other, sizeof other) != sizeof other) return WRONG;
    if (!can || !is_named(other)) return ABSENT;
    if (s24_device_window_join(&s->windows[!s->rank], s->ctx, s->device, other) != S24_OK ||
        s24_device_pinned_alloc(&s->halt, s->ctx, s->device, sizeof(int)) != S24_OK ||
        s24_device_stream_create(&s->stream, s->ctx, s->device) != S24_OK)
        return WRONG;
    memset(s->halt, 0, sizeof(int));
    return RIGHT;
}

static s24_status sum(side *s, s24_dtype dtype, void *data, int64_t count)
{
    s24_device_window_sum_args args = {.size = sizeof args,
                                       .dtype = dtype,
                                       .count = count,
                                       .data = data,
                                       .rank = s->rank,
                                       .ranks = RANKS,
                                       .halt = s->halt,
                                       .stream = s->stream};
    memcpy(args.windows, s->windows, sizeof s->windows);
    return s24_device_window_sum(s->ctx, s->device, &args);
}

/* Copies, then sums one after another: as many times the sum as there are ranks for each more. */
static int check_count(side *s, s24_dtype dtype, int64_t count)
{
    const size_t bytes = (size_t)count * 2;
    uint16_t *host = malloc(bytes);
    void *given, *data;
    s24_device_graph *graph = NULL;
    int right = s24_device_alloc(&given, s->ctx, s->device, bytes, s->stream) == S24_OK &&
                s24_device_alloc(&data, s->ctx, s->device, bytes, s->stream) == S24_OK;
    for (int64_t i = 0; i < count; i++)
        host[i] = bits_of(dtype, (float)number_of(s->rank, i));
    right = right && s24_device_copy(s->ctx, s->device, given, host, bytes, s->stream) == S24_OK &&
            s24_device_wait(s->ctx, s->device, s->stream) == S24_OK &&
            s24_device_graph_begin(s->ctx, s->device, s->stream) == S24_OK &&
            s24_device_copy(s->ctx, s->device, data, given, bytes, s->stream) == S24_OK;
    for (int i = 0; i < SUMS; i++)
        right = right && sum(s, dtype, data, count) == S24_OK;
    right = right && s24_device_graph_end(&graph, s->ctx, s->device, s->stream) == S24_OK;
    for (int turn = 0; turn < LAUNCHES && right; turn++) {
        right = s24_device_graph_launch(s->ctx, s->device, graph, s->stream) == S24_OK &&
                s24_device_copy(s->ctx, s->device, host, data, bytes, s->stream) == S24_OK &&
                s24_device_wait(s->ctx, s->device, s->stream) == S24_OK;
        for (int64_t i = 0; i < count && right; i++)
            right = host[i] == bits_of(dtype, (float)(4 * (number_of(0, i) + number_of(1, i))));
    }
    if (!right)
        fprintf(stderr, "rank %d, %s, %lld numbers: %s\n", s->rank, s24_dtype_name(dtype),
                (long long)count, s24_ctx_error(s->ctx));
    free(host); /* the rest ends with the process */
    return right;
}

/* The second rank never comes; the first is told. */
static int check_halt(side *s)
{
    void *data;
    if (s->rank) return 1;
    if (s24_device_alloc(&data, s->ctx, s->device, 8192, s->stream) != S24_OK ||
        sum(s, S24_BF16, data, 4096) != S24_OK)
        return 0;
    usleep(50000);
    __atomic_store_n((int *)s->halt, 1, __ATOMIC_RELEASE);
    return s24_device_wait(s->ctx, s->device, s->stream) == S24_OK;
}

static int run_side(side *s)
{
    static const int64_t counts[] = {4, 1020, 4096, 4100, 20000, S24_DEVICE_WINDOW_SUM / 2 / RANKS};
    const int opened = open_side(s);
    if (opened != RIGHT) return opened;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!check_count(s, i % 2 ? S24_F16 : S24_BF16, counts[i]) ||
            !check_count(s, i % 2 ? S24_BF16 : S24_F16, counts[i]))
            return WRONG;
    if (sum(s, S24_BF16, s->windows[0], 6) != S24_ERROR_SHAPE ||
        sum(s, S24_F32, s->windows[0], 8) != S24_ERROR_DTYPE)
        return WRONG;
    if (!check_halt(s) || !meet(s)) return WRONG;
    s24_device_window_leave(s->device, s->windows[!s->rank]);
    if (!meet(s)) return WRONG;
    s24_device_window_free(s->device, s->windows[s->rank]);
    return RIGHT;
}

static void sums_over_two_gpus(void **state)
{
    int pipes[RANKS][2], ended[RANKS];
    pid_t child[RANKS];
    (void)state;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pipe(pipes[r]), 0);
    for (int r = 0; r < RANKS; r++) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        side s = {.rank = r, .to = pipes[r][1], .from = pipes[!r][0]};
        if (child[r] == 0) _exit(run_side(&s));
    }
    for (int r = 0; r < RANKS; r++) {
        close(pipes[r][1]);
        assert_int_equal(waitpid(child[r], &ended[r], 0), child[r]);
        assert_true(WIFEXITED(ended[r]));
    }
    if (WEXITSTATUS(ended[0]) == ABSENT && WEXITSTATUS(ended[1]) == ABSENT) {
        print_message("skipped: no two GPUs with windows between them\n");
        return;
    }
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(WEXITSTATUS(ended[r]), RIGHT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_over_two_gpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
