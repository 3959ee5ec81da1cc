// SPDX-License-Identifier: Apache-2.0
/*
 * A loop's range is a seat that whoever comes first takes: the thread it belongs to, whose caches
 * may hold its data, or another one that has nothing left to do. So a loop never waits for a thread
 * that was not started, has not woken up, or has lost its core to other work, unless that thread is
 * in the middle of a range. Where even that wait was longer than doing its work, and as long as a
 * scheduler keeps a thread from its core, the caller is alone for about as long again, or several
 * times as long where that comes again and again: a machine whose cores are taken is as fast as
 * with one thread, and one where a thread was late once loses little.
 *
 * A thread without work watches for the next loop for SPIN nanoseconds, then sleeps; the one that
 * waits for the end of a loop does the same. They sleep on a futex: a fork could leave a lock
 * taken. Sleepers are woken as in a tree, each by the one above it, so that a loop of many threads
 * does not begin with the caller waking all of them.
 *
 * What must stay true: a seat is opened after the loop is in its place (release) and taken by a
 * compare-and-swap (acquire), and the loop is read after that alone; it stands until `left` is 0.
 */
#define _GNU_SOURCE /* syscall */
#include "base/team.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#endif

#include "base/cores.h"

enum {
    SPIN = 80000,           /* nanoseconds */
    LATE = 1000000,         /* a wait that other work on the cores explains, and less does not */
    LONGEST_ALONE = 1 << 6, /* times as long as such a wait */
    LOOKS = 64,             /* of a spinning thread between two of the clock */
    STACK = 2 << 20,        /* bytes of a thread's; address space, not memory */
    LEFT_FREE = 64 << 20    /* of it that threads leave for what the work allocates afterwards */
};

/* Of a thread that may sleep: 1 while it does, or is about to. */
typedef atomic_int bed;

typedef struct seat {
    _Alignas(64) atomic_uint_fast64_t taken; /* 2·turn: open in that loop; 2·turn + 1: taken */
    s24i_team *team;
    int index;
    pthread_t thread;
    bed bed;
} seat;

struct s24i_team {
    _Alignas(64) atomic_uint_fast64_t turn; /* counts loops */
    atomic_int ranges;                      /* of the last loop */
    atomic_int stop;
    _Alignas(64) atomic_int left; /* ranges of the loop that are not done */
    bed caller;
    const s24i_loop *loop;
    s24_allocator allocator;
    pid_t process;
    int threads;  /* seats; the caller has the first */
    int started;  /* threads that there are, the caller among them */
    int refused;  /* the system gave no more than these */
    int spins;    /* nanoseconds; 0 where threads share cores */
    int patience; /* times as long as it was late the next late thread leaves the caller alone */
    int64_t alone_until; /* nanoseconds of the clock */
    seat seats[];
};

static void run_range(const s24i_loop *loop, int thread)
{
    const int64_t share = loop->count / loop->ranges, rest = loop->count % loop->ranges;
    const int64_t begin = share * thread + (thread < rest ? thread : rest);
    loop->fn(loop->arg, begin, begin + share + (thread < rest), thread);
}

void s24i_loop_run(const s24i_loop *loop)
{
    for (int t = 0; t < loop->ranges; t++)
        run_range(loop, t);
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* ---- sleep ----------------------------------------------------------------------------------- */

/* No lock, so that nothing can be held by a thread that a fork left behind. */
static void sleep_on(bed *b)
{
#ifdef __linux__
    syscall(SYS_futex, b, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
#else
    const struct timespec nap = {0, SPIN};
    (void)b;
    nanosleep(&nap, NULL);
#endif
}

/* Whoever changes what a sleeper waits for calls this afterwards: either the sleeper sees the
   change, or this sees the sleeper. */
static void rouse(bed *b)
{
    if (!atomic_load(b) || !atomic_exchange(b, 0)) return;
#ifdef __linux__
    syscall(SYS_futex, b, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
#endif
}

typedef int is_over_fn(const s24i_team *team, uint64_t than);

/* Until is_over, at first with open eyes. Returns 1 if it slept. */
static int wait_until(bed *b, const s24i_team *team, is_over_fn *is_over, uint64_t than)
{
    for (int64_t end = nanoseconds() + team->spins; nanoseconds() < end;)
        for (int i = 0; i < LOOKS; i++) {
            if (is_over(team, than)) return 0;
            relax();
        }
    if (is_over(team, than)) return 0;
    for (;;) {
        atomic_store(b, 1);
        if (is_over(team, than)) break;
        sleep_on(b); /* unless it has been roused since */
    }
    atomic_store(b, 0);
    return 1;
}

static int has_turned(const s24i_team *team, uint64_t seen)
{
    return atomic_load(&team->turn) != seen;
}

static int is_done(const s24i_team *team, uint64_t unused)
{
    (void)unused;
    return atomic_load(&team->left) == 0;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Runs the range of a seat that is open. */
static void take(s24i_team *team, int index)
{
    atomic_uint_fast64_t *taken = &team->seats[index].taken;
    uint_fast64_t state = atomic_load_explicit(taken, memory_order_relaxed);
    if (state % 2 || !atomic_compare_exchange_strong(taken, &state, state + 1)) return;
    run_range(team->loop, index);
    if (atomic_fetch_sub(&team->left, 1) == 1) rouse(&team->caller);
}

/* The seat's own range first, then those after it in a circle. */
static void take_all(s24i_team *team, int first, int ranges)
{
    for (int i = 0; i < ranges; i++)
        take(team, (first + i) % ranges);
}

static void rouse_below(s24i_team *team, int index, int ranges)
{
    for (int i = 2 * index + 1; i <= 2 * index + 2 && i < ranges && i < team->threads; i++)
        rouse(&team->seats[i].bed);
}

static void *member(void *arg)
{
    seat *own = arg;
    s24i_team *team = own->team;
    uint64_t seen = 0;
    for (;;) {
        wait_until(&own->bed, team, has_turned, seen);
        /* The turn first: it changes after `stop`, so the last one is never taken for a loop. */
        seen = atomic_load(&team->turn);
        if (atomic_load(&team->stop)) return NULL;
        const int ranges = atomic_load(&team->ranges);
        rouse_below(team, own->index, ranges);
        if (own->index < ranges) take_all(team, own->index, ranges);
    }
}

/* ---- create and destroy ---------------------------------------------------------------------- */

s24i_team *s24i_team_create(const s24_allocator *allocator, int threads)
{
    s24i_team *team = s24i_alloc(allocator, sizeof *team + (size_t)threads * sizeof *team->seats);
    if (!team) return NULL;
    memset(team, 0, sizeof *team + (size_t)threads * sizeof *team->seats);
    team->allocator = *allocator;
    team->process = getpid();
    team->threads = threads;
    team->started = 1;
    team->patience = 1;
    /* Watching would keep the one that is watched for from its core. */
    team->spins = threads > s24i_cores() ? 0 : SPIN;
    for (int i = 0; i < threads; i++) {
        team->seats[i].team = team;
        team->seats[i].index = i;
        atomic_init(&team->seats[i].taken, 1);
    }
    return team;
}

/* Signals are for the program's own threads. */
static int start_member(seat *s)
{
    pthread_attr_t attr;
    sigset_t all, before;
    if (pthread_attr_init(&attr)) return 0;
    pthread_attr_setstacksize(&attr, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&s->thread, &attr, member, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return !failed;
}

void s24i_team_destroy(s24i_team *team)
{
    if (!team) return;
    if (s24i_team_threads(team)) {
        atomic_store(&team->stop, 1);
        atomic_fetch_add(&team->turn, 1);
        for (int i = 1; i < team->started; i++)
            rouse(&team->seats[i].bed);
        for (int i = 1; i < team->started; i++)
            pthread_join(team->seats[i].thread, NULL);
    }
    const s24_allocator allocator = team->allocator;
    s24i_free(&allocator, team);
}

int s24i_team_threads(const s24i_team *team)
{
    return team->process == getpid() ? team->threads : 0;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Starts all of them; where the address space is limited, only while there is enough of it left:
   stacks would take all, and the work would be out of memory. */
static void start_some(s24i_team *team, int ranges)
{
#ifdef __linux__
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *held = mmap(NULL, LEFT_FREE, PROT_NONE, flags, -1, 0);
    if (held == MAP_FAILED) return;
#endif
    while (team->started < ranges && start_member(&team->seats[team->started]))
        team->started++;
#ifdef __linux__
    munmap(held, LEFT_FREE);
#endif
}

/* Starts what the loop needs and has not; how many there could not be, the first time. */
static int start_members(s24i_team *team, int ranges)
{
    if (team->refused || team->started >= ranges) return 0;
    start_some(team, ranges);
    if (team->started < ranges) team->refused = ranges - team->started;
    return team->refused;
}

/* Judges a loop by how long its end was waited for, next to the time of the caller's own work. */
static void judge(s24i_team *team, int64_t now, int64_t own, int64_t waited, int ranges)
{
    if (waited < LATE || waited < (ranges - 1) * own) {
        team->patience = 1;
        return;
    }
    team->alone_until = now + team->patience * waited;
    if (team->patience < LONGEST_ALONE) team->patience *= 2;
}

int s24i_team_run(s24i_team *team, const s24i_loop *loop)
{
    const int ranges = loop->ranges, missing = start_members(team, ranges);
    const int64_t begin = nanoseconds();
    if (begin < team->alone_until || team->started == 1) {
        s24i_loop_run(loop);
        return missing;
    }
    const uint64_t turn = atomic_load_explicit(&team->turn, memory_order_relaxed) + 1;
    team->loop = loop;
    atomic_store_explicit(&team->left, ranges, memory_order_relaxed);
    atomic_store_explicit(&team->ranges, ranges, memory_order_relaxed);
    for (int t = 0; t < ranges; t++)
        atomic_store_explicit(&team->seats[t].taken, 2 * turn, memory_order_release);
    atomic_store(&team->turn, turn);
    rouse_below(team, 0, ranges);
    take_all(team, 0, ranges);
    const int64_t waits = nanoseconds();
    if (!wait_until(&team->caller, team, is_done, 0)) return missing;
    const int64_t now = nanoseconds();
    judge(team, now, waits - begin, now - waits, ranges);
    return missing;
}
