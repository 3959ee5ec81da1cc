// SPDX-License-Identifier: Apache-2.0
/*
 * The threads of a context: loops that end whatever becomes of the threads (few of them, late ones,
 * a fork), threads that sleep.
 */
#include "support.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "sparse24/sparse24.h"

static s24_ctx *context(int threads)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = threads};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

static void doze(long milliseconds)
{
    const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* ---- every range once ------------------------------------------------------------------------ */

enum { MOST = 200 };

typedef struct visits {
    atomic_int of[MOST];
    int64_t begin[MOST];
} visits;

static void visit(void *arg, int64_t begin, int64_t end, int thread)
{
    visits *v = arg;
    v->begin[thread] = begin;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&v->of[i], 1);
}

static int visits_all(s24_ctx *ctx, int64_t count)
{
    visits v = {0};
    s24_ctx_parallel_for(ctx, count, visit, &v);
    for (int64_t i = 0; i < MOST; i++)
        if (atomic_load(&v.of[i]) != (i < count)) return 0;
    return 1;
}

/* Loops of changing sizes, right after each other and with pauses in which the threads fall
   asleep. */
static void every_range_once(void **state)
{
    (void)state;
    static const int threads[] = {2, 3, 8, 64, 2};
    s24_ctx *ctx = context(1);
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        s24_ctx_set_threads(ctx, threads[t]);
        for (int i = 0; i < ROUNDS(2000); i++) {
            assert_true(visits_all(ctx, 1 + i % MOST));
            if (i % 100 == 0) doze(1);
        }
    }
    s24_ctx_destroy(ctx);
}

/* A context that ends right after its loop, while threads are still on their way to that loop: the
   end waits for each of them. */
static void short_lives(void **state)
{
    (void)state;
    for (int i = 0; i < 4000; i++) {
        s24_ctx *ctx = context(2 + i % 8);
        assert_true(visits_all(ctx, 1 + i % 9));
        s24_ctx_destroy(ctx);
    }
}

/* ---- fork ------------------------------------------------------------------------------------ */

#ifdef __SANITIZE_ADDRESS__
static void arrive(void *arg, int64_t begin, int64_t end, int thread)
{
    atomic_int *missing = arg;
    (void)begin, (void)end, (void)thread;
    for (atomic_fetch_sub(missing, 1); atomic_load(missing) > 0;)
        sched_yield();
}
#endif

/* The address sanitizer's allocator takes a lock when a thread starts, and a fork at that moment
   leaves the lock taken in the child. So under it all threads of ctx have started after this. */
static void start_threads(s24_ctx *ctx)
{
#ifdef __SANITIZE_ADDRESS__
    atomic_int missing = s24_ctx_threads(ctx);
    s24_ctx_parallel_for(ctx, missing, arrive, &missing);
#else
    (void)ctx;
#endif
}

/* Runs fn in a child that an alarm ends; its exit status. */
static int in_child(int (*fn)(s24_ctx *ctx), s24_ctx *ctx)
{
    int status;
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(fn(ctx));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
}

/* The parent's context, one of its own, and a child's child. */
static int use_after_fork(s24_ctx *ctx)
{
    s24_ctx *own = context(3);
    int ok = visits_all(ctx, 50) && visits_all(own, 50) && visits_all(ctx, 7);
    s24_ctx_destroy(own);
    s24_ctx_destroy(ctx);
    return !ok;
}

static int fork_again(s24_ctx *ctx)
{
    start_threads(ctx);
    return !visits_all(ctx, 50) || in_child(use_after_fork, ctx);
}

static void loops_in_a_child(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("skipped: the thread sanitizer starts no threads after a fork\n");
    skip();
#endif
    s24_ctx *ctx = context(4);
    start_threads(ctx);
    for (int i = 0; i < 20; i++) {
        assert_true(visits_all(ctx, 100));
        if (i % 2) doze(1); /* the threads are asleep, or are not */
        assert_int_equal(in_child(use_after_fork, ctx), 0);
    }
    assert_int_equal(in_child(fork_again, ctx), 0);
    assert_true(visits_all(ctx, 100));
    s24_ctx_destroy(ctx);
}

/* ---- threads that cannot be made ------------------------------------------------------------- */

static void keep_note(void *user, s24_log_level level, const char *text)
{
    char *said = user;
    if (level == S24_LOG_INFO) snprintf(said, 256, "%s", text);
}

/* In a child, whose address space ends a little above what it has. */
static int few_threads(s24_ctx *unused)
{
    s24_ctx *ctx;
    char said[256] = "";
    long pages = 0;
    (void)unused;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 64, .log = keep_note, .user = said};
    if (s24_ctx_create(&ctx, &opts) != S24_OK) return 2;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1) return 3;
    fclose(file);
    const struct rlimit limit = {(rlim_t)(pages * sysconf(_SC_PAGESIZE) + (20 << 20)),
                                 RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 4;
    for (int i = 0; i < 100; i++)
        if (!visits_all(ctx, MOST)) return 5;
    s24_ctx_destroy(ctx);
    return strstr(said, "of 64 threads") ? 0 : 6;
}

static void too_few_threads(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("skipped: a sanitizer needs address space without a limit\n");
    skip();
#endif
    assert_int_equal(in_child(few_threads, NULL), 0);
}

/* ---- sleep ----------------------------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void threads_sleep(void **state)
{
    (void)state;
    s24_ctx *ctx = context(2);
    assert_true(visits_all(ctx, 100));
    const double before = cpu_seconds();
    doze(500);
    assert_true(cpu_seconds() - before < 0.25); /* one that watched would have had 0.5 */
    s24_ctx_destroy(ctx);
}

/* ---- late threads ---------------------------------------------------------------------------- */

typedef struct laggard {
    pthread_t caller;
    int lags; /* whoever is not the caller takes a while */
    atomic_int foreign;
} laggard;

static void lag(void *arg, int64_t begin, int64_t end, int thread)
{
    laggard *l = arg;
    (void)begin, (void)end;
    if (thread == 0) doze(2); /* so that the other thread has time to begin */
    if (pthread_equal(pthread_self(), l->caller)) return;
    atomic_fetch_add(&l->foreign, 1);
    if (l->lags) doze(40);
}

/* Loops until the other thread has had its range of one; whether it ever had. */
static int meet(s24_ctx *ctx, laggard *l, int loops)
{
    atomic_store(&l->foreign, 0);
    while (loops-- > 0 && !atomic_load(&l->foreign))
        s24_ctx_parallel_for(ctx, 2, lag, l);
    return atomic_load(&l->foreign);
}

/* A loop that a thread kept waiting for longer than its work would have taken here is followed by
   loops of the caller alone, and these by ones with the thread again. Where other work kept the
   caller from its core between two loops, that has to be seen once more. */
static void late_threads_are_left_out(void **state)
{
    (void)state;
    int alone = 0;
    for (int tries = 0; tries < 20 && !alone; tries++) {
        s24_ctx *ctx = context(2);
        laggard l = {.caller = pthread_self(), .lags = 1};
        assert_true(meet(ctx, &l, 500));
        alone = !meet(ctx, &l, 1);
        l.lags = 0;
        assert_true(meet(ctx, &l, 30000));
        s24_ctx_destroy(ctx);
    }
    assert_true(alone);
}

/* ---- signals --------------------------------------------------------------------------------- */

typedef struct masks {
    pthread_t caller;
    atomic_int open; /* ranges on other threads that a signal could have interrupted */
    atomic_int foreign;
} masks;

static void look_at_mask(void *arg, int64_t begin, int64_t end, int thread)
{
    masks *m = arg;
    sigset_t mask;
    (void)begin, (void)end;
    if (thread == 0) doze(2);
    if (pthread_equal(pthread_self(), m->caller)) return;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    atomic_fetch_add(&m->foreign, 1);
    if (!sigismember(&mask, SIGINT) || !sigismember(&mask, SIGTERM)) atomic_fetch_add(&m->open, 1);
}

static void signals_are_the_callers(void **state)
{
    (void)state;
    s24_ctx *ctx = context(2);
    masks m = {.caller = pthread_self()};
    for (int i = 0; i < 500 && !atomic_load(&m.foreign); i++)
        s24_ctx_parallel_for(ctx, 2, look_at_mask, &m);
    assert_true(atomic_load(&m.foreign) > 0);
    assert_int_equal(atomic_load(&m.open), 0);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_range_once),        cmocka_unit_test(short_lives),
        cmocka_unit_test(loops_in_a_child),        cmocka_unit_test(too_few_threads),
        cmocka_unit_test(threads_sleep),           cmocka_unit_test(late_threads_are_left_out),
        cmocka_unit_test(signals_are_the_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
