// SPDX-License-Identifier: Apache-2.0
/*
 * Makes other work on the machine while bench measures: processes that do nothing but count, as
 * many as are asked for. They end with this one, however it ends.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"

struct bench_busy {
    int64_t count;
    pid_t processes[];
};

/* Counts, in the child, and never returns. */
static void count_for_ever(pid_t parent)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    for (volatile unsigned count = 0; getppid() == parent; count++)
        for (volatile unsigned i = 0; i < 1u << 20; i++)
            ;
    _exit(0);
}

int bench_busy_start(cli_app *cli, bench_busy **out, int64_t count)
{
    const pid_t parent = getpid();
    bench_busy *busy = calloc(1, sizeof *busy + (size_t)count * sizeof *busy->processes);
    *out = busy;
    if (!busy) return cli_fail(cli, CLI_IO, "out of memory for %lld processes", (long long)count);
    for (; busy->count < count; busy->count++) {
        const pid_t process = fork();
        if (process == 0) count_for_ever(parent);
        if (process < 0)
            return cli_fail(cli, CLI_IO, "option --busy: process %lld of %lld: %s",
                            (long long)busy->count + 1, (long long)count, strerror(errno));
        busy->processes[busy->count] = process;
    }
    cli->busy = count;
    return CLI_OK;
}

void bench_busy_stop(bench_busy *busy)
{
    if (!busy) return;
    for (int64_t i = 0; i < busy->count; i++)
        kill(busy->processes[i], SIGKILL);
    for (int64_t i = 0; i < busy->count; i++)
        waitpid(busy->processes[i], NULL, 0);
    free(busy);
}
