// SPDX-License-Identifier: Apache-2.0
/*
 * Shows progress on stderr, and is the one way to stop: a signal sets a flag, and the next step
 * that the library reports returns it, so that every owner on the way cleans up after itself. On a
 * terminal one line moves; elsewhere a plain line comes now and then. The layers' own lines are the
 * commands' to write.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

static volatile sig_atomic_t interrupted;

/* Sets the flag. Whoever presses Ctrl-C a second time does not want to wait for the step at work;
   what it leaves in temporary places stays. */
static void on_signal(int number)
{
    if (number == SIGINT && interrupted) _exit(CLI_INTERRUPTED);
    interrupted = 1;
}

/* Gives signals a stack of their own: with a handler's frame on the stack of oneDNN's AVX-512
   products (2.6), one interrupted training in fifteen ended with a broken heap; so none, nor with
   its products for AVX2. */
void cli_signals(void)
{
    static char memory[64 << 10]; /* AVX-512's and AMX's registers take 11 KB of it */
    const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal; /* no SA_RESTART: a read from the keyboard ends too */
    if (!sigaltstack(&stack, NULL)) action.sa_flags = SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    /* A reader that went away, or a file that may grow no further, is an error of writing, met
       where it is written. */
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

int cli_interrupted(void)
{
    return interrupted != 0;
}

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void cli_progress_clear(cli_app *cli)
{
    if (cli->progress.open) fputs("\r\033[K", stderr);
    cli->progress.open = 0;
}

static void show(cli_app *cli, int64_t done, int64_t total, double now)
{
    cli_progress *p = &cli->progress;
    double elapsed = now - p->started;
    double rate = elapsed > 0 ? (double)(done - p->first) / elapsed : 0;
    if (p->animated) fputs("\r\033[K", stderr);
    fprintf(stderr, "%s %lld/%lld", p->stage, (long long)done, (long long)total);
    if (rate > 0) {
        long left = (long)((double)(total - done) / rate + 0.5);
        if (rate < 1)
            fprintf(stderr, "  %.1f s each", 1 / rate);
        else
            fprintf(stderr, "  %.*f/s", rate < 10 ? 1 : 0, rate);
        fprintf(stderr, "  ETA %ld:%02ld", left / 60, left % 60);
    }
    if (p->detail[0]) fprintf(stderr, "  %s", p->detail);
    if (!p->animated) fputc('\n', stderr);
    fflush(stderr);
    p->open = p->animated;
    p->printed = now;
}

int cli_progress_step(void *user, const char *stage, int64_t done, int64_t total)
{
    cli_app *cli = user;
    cli_progress *p = &cli->progress;
    double now = cli_seconds();
    /* A stage that starts over (the next block) has a rate of its own. */
    if (!p->stage || strcmp(p->stage, stage) != 0 || done < p->done) {
        p->stage = stage;
        p->started = now;
        p->first = done; /* what was done before: a run may have been gone on with */
        /* A terminal hears at once what goes on; a log only of what takes long. */
        p->printed = p->animated ? 0 : now;
    }
    p->done = done;
    double pause = p->animated ? 0.1 : 10;
    if (!cli->quiet && now - p->printed >= pause) show(cli, done, total, now);
    return interrupted != 0;
}
