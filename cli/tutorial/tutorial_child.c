// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a stage of the tutorial, which is a command of this program in a process of its own: its
 * memory goes with it, and what a user would type is what runs. Its talk goes to the same stderr; a
 * signal is handed on, and the stage ends as it would alone.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tutorial/tutorial.h"

void tutorial_add(tutorial_words *words, const char *format, ...)
{
    char *place = words->text + words->used;
    const size_t room = sizeof words->text - words->used;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(place, room, format, arguments);
    va_end(arguments);
    if (words->count == TUTORIAL_WORDS || length < 0 || (size_t)length >= room) {
        words->overflows = 1;
        return;
    }
    words->list[words->count++] = place;
    words->list[words->count] = NULL;
    words->used += (size_t)length + 1;
}

static void run_child(int out, tutorial_words *words)
{
    if (dup2(out, STDOUT_FILENO) >= 0) execv("/proc/self/exe", words->list);
    _exit(CLI_IO);
}

/* Reads all that comes through the pipe, ended by a zero; NULL where there is no memory. */
static char *read_all(int in, pid_t child)
{
    size_t bytes = 0, room = 1 << 16;
    char *text = malloc(room + 1);
    while (text) {
        if (bytes == room) {
            char *grown = realloc(text, 2 * room + 1);
            if (!grown) break;
            text = grown;
            room *= 2;
        }
        const ssize_t got = read(in, text + bytes, room - bytes);
        if (got < 0 && errno == EINTR) {
            if (cli_interrupted()) kill(child, SIGTERM);
            continue;
        }
        if (got <= 0) {
            text[bytes] = '\0';
            return text;
        }
        bytes += (size_t)got;
    }
    free(text);
    return NULL;
}

static int wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return CLI_IO;
    return WIFEXITED(status) ? WEXITSTATUS(status) : CLI_IO;
}

static int start(cli_app *cli, pid_t *child, int *in, tutorial_words *words)
{
    int ends[2];
    if (pipe(ends) != 0) return cli_fail(cli, CLI_IO, "cannot make a pipe: %s", strerror(errno));
    fflush(stdout);
    *child = fork();
    if (*child == 0) {
        close(ends[0]);
        run_child(ends[1], words);
    }
    close(ends[1]);
    *in = ends[0];
    if (*child > 0) return CLI_OK;
    close(ends[0]);
    return cli_fail(cli, CLI_IO, "cannot start a process: %s", strerror(errno));
}

int tutorial_child(cli_app *cli, json_t **object, tutorial_words *words)
{
    pid_t child = -1;
    int in = -1;
    *object = NULL;
    tutorial_add(words, "--json");
    if (cli->quiet) tutorial_add(words, "--quiet");
    if (words->overflows)
        return cli_fail(cli, CLI_USAGE, "the names of files together are too long");
    int code = start(cli, &child, &in, words);
    if (code != CLI_OK) return code;
    char *text = read_all(in, child);
    close(in);
    code = wait_for(child);
    if (text) *object = cli_json_read(text);
    free(text);
    if (code == CLI_OK && *object) return CLI_OK;
    const char *reason = json_string_value(json_object_get(*object, "error"));
    const int failed = code != CLI_OK ? code : CLI_IO;
    code = cli_fail(cli, failed, "%s: %s", words->list[1],
                    reason ? reason : "it ended without saying why");
    json_decref(*object);
    *object = NULL;
    return code;
}
