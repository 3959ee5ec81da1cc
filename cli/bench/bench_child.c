// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a peer's Python script in a process of its own. The scripts of bench/peers are part of this
 * program and go to the interpreter as its -c; orders and answers are a line of JSON each, through
 * two pipes.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_child.h"

/* ---- the process ----------------------------------------------------------------------------- */

enum { EXEC_FAILED = 127 };

static void run_child(const bench_child *child, const int *in, const int *out, int quiet)
{
    /* Starts the child, out of reach of the key that interrupts this program, which then ends the
       child. */
    signal(SIGINT, SIG_IGN);
    if (quiet && !freopen("/dev/null", "w", stderr)) _exit(EXEC_FAILED);
    if (dup2(in[0], STDIN_FILENO) < 0 || dup2(out[1], STDOUT_FILENO) < 0) _exit(EXEC_FAILED);
    const int ends[] = {in[0], in[1], out[0], out[1]};
    for (int i = 0; i < 4; i++)
        close(ends[i]);
    setenv("TRANSFORMERS_VERBOSITY", "error", 0);
    setenv("PYTHONWARNINGS", "ignore", 0);
    execlp(child->python, child->python, "-c", child->script, (char *)NULL);
    _exit(EXEC_FAILED);
}

int bench_child_start(cli_app *cli, bench_child *child)
{
    int in[2], out[2];
    if (pipe(in) != 0) return cli_fail(cli, CLI_IO, "cannot make a pipe: %s", strerror(errno));
    if (pipe(out) != 0) {
        const int code = cli_fail(cli, CLI_IO, "cannot make a pipe: %s", strerror(errno));
        close(in[0]);
        close(in[1]);
        return code;
    }
    fflush(stdout);
    child->process = (int)fork();
    if (child->process == 0) run_child(child, in, out, cli->quiet);
    close(in[0]);
    close(out[1]);
    child->to = fdopen(in[1], "w");
    child->from = fdopen(out[0], "r");
    if (child->process > 0 && child->to && child->from) return CLI_OK;
    return cli_fail(cli, CLI_IO, "cannot start a process: %s", strerror(errno));
}

void bench_child_end(bench_child *child)
{
    int status;
    if (child->to) fclose(child->to); /* its input ends, and so does it */
    if (child->from) fclose(child->from);
    if (child->process > 0 && cli_interrupted()) kill(child->process, SIGTERM);
    while (child->process > 0 && waitpid(child->process, &status, 0) < 0 && errno == EINTR)
        if (cli_interrupted()) kill(child->process, SIGTERM);
    *child = (bench_child){0};
}

/* ---- orders and answers ---------------------------------------------------------------------- */

int bench_child_failed(cli_app *cli, const bench_child *child, const char *why)
{
    return cli_fail(cli, CLI_UNSUPPORTED,
                    "--peers %s: %s: %s; --python names an interpreter that has %s", child->peer,
                    child->python, why, child->needs);
}

/* Says that it ended, or could not begin. */
static int gone(cli_app *cli, bench_child *child)
{
    int status = 0;
    if (cli_interrupted()) return cli_status(cli, S24_ERROR_INTERRUPTED);
    while (child->process > 0 && waitpid(child->process, &status, 0) < 0 && errno == EINTR)
        continue;
    child->process = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXEC_FAILED)
        return bench_child_failed(cli, child, "this program cannot be started");
    return bench_child_failed(cli, child, "it ended without an answer");
}

int bench_child_ask(cli_app *cli, bench_child *child, json_t *order, json_t **answer)
{
    char *line = NULL;
    size_t room = 0;
    *answer = NULL;
    const int sent = json_dumpf(order, child->to, JSON_COMPACT) == 0 &&
                     fputc('\n', child->to) != EOF && fflush(child->to) == 0;
    json_decref(order);
    if (sent && getline(&line, &room, child->from) > 0) *answer = cli_json_read(line);
    free(line);
    if (!*answer) return gone(cli, child);
    const char *error = json_string_value(json_object_get(*answer, "error"));
    if (!error) return CLI_OK;
    const int code = bench_child_failed(cli, child, error);
    json_decref(*answer);
    *answer = NULL;
    return code;
}
