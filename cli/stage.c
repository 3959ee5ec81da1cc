// SPDX-License-Identifier: Apache-2.0
/*
 * Runs stages, which are commands of this program in processes of their own: their memory goes with
 * them, and what a user would type is what runs. Their talk goes to the same stderr; a signal is
 * handed on, and the stage ends as it would alone. What is done stands in a folder.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage.h"

static void run_child(int out, stage_words *words)
{
    if (dup2(out, STDOUT_FILENO) >= 0) execv("/proc/self/exe", words->list);
    _exit(CLI_IO);
}

/* Until something comes through the pipe. A signal that came just before the wait is handed on,
   too: the flag is looked at once a second. */
static void wait_for_words(int in, pid_t child)
{
    struct pollfd one = {.fd = in, .events = POLLIN};
    for (;;) {
        const int ready = poll(&one, 1, 1000);
        if (ready > 0 || (ready < 0 && errno != EINTR)) return;
        if (cli_interrupted()) kill(child, SIGTERM);
    }
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
        wait_for_words(in, child);
        const ssize_t got = read(in, text + bytes, room - bytes);
        if (got < 0 && errno == EINTR) continue;
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

static int start(cli_app *cli, pid_t *child, int *in, stage_words *words)
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

int stage_child(cli_app *cli, json_t **object, stage_words *words)
{
    pid_t child = -1;
    int in = -1;
    *object = NULL;
    stage_add(words, "--json");
    if (cli->quiet) stage_add(words, "--quiet");
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

/* ---- the folder ------------------------------------------------------------------------------ */

static int write_json(cli_app *cli, const char *path, const json_t *object)
{
    cli_output output;
    if (!cli_json_is_whole()) return cli_fail(cli, CLI_IO, "out of memory for %s", path);
    const int code = cli_output_replace(cli, &output, path);
    if (code != CLI_OK) return code;
    json_dumpf(object, output.file, JSON_INDENT(1));
    fputc('\n', output.file);
    return cli_output_commit(cli, &output);
}

static int is_option(const cli_command *command, const char *name)
{
    const cli_option *list[CLI_MAX_OPTIONS];
    const int count = cli_option_collect(list, command);
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i]->name, name)) return 1;
    return 0;
}

static int compare(const stage_folder *f, const char *path, json_t *settings)
{
    json_t *before, *value;
    const char *key, *name = f->cli->command->name;
    int code = cli_json_need(f->cli, &before, path);
    json_object_foreach (settings, key, value) {
        if (code == CLI_OK && !json_equal(value, json_object_get(before, key)))
            code = cli_fail(f->cli, CLI_USAGE,
                            "%s is a %s of another %s%s; choose another OUT, or --force to start "
                            "anew",
                            f->path, name, is_option(f->cli->command, key) ? "--" : "", key);
    }
    json_decref(before);
    return code;
}

/* Removes a folder in which there is nothing but what a run left that was killed at its start. */
static int remove_empty(const stage_folder *f, const char *path)
{
    cli_output swept;
    if (rmdir(f->path) == 0) return 1;
    if (cli_output_name(f->cli, &swept, path) == S24_OK) s24_temporary_destroy(swept.folder);
    return rmdir(f->path) == 0;
}

int stage_folder_open(const stage_folder *f, json_t *settings)
{
    char path[STAGE_PATH];
    const char *name = f->cli->command->name;
    if (strlen(f->path) > STAGE_PATH - 200)
        return cli_fail(f->cli, CLI_IO, "%s: the name is too long", f->path);
    const int is_new = mkdir(f->path, 0777) == 0;
    if (!is_new && errno != EEXIST)
        return cli_fail(f->cli, CLI_IO, "%s: %s", f->path, strerror(errno));
    snprintf(path, sizeof path, "%s/%s.json", f->path, name);
    const int is_ours = access(path, F_OK) == 0;
    if (!is_new && !is_ours && !remove_empty(f, path))
        return cli_fail(f->cli, CLI_IO, "%s exists and is no %s's folder", f->path, name);
    if (!is_ours && !is_new && mkdir(f->path, 0777) != 0)
        return cli_fail(f->cli, CLI_IO, "%s: %s", f->path, strerror(errno));
    if (is_ours && !f->cli->common->force) return compare(f, path, settings);
    return write_json(f->cli, path, settings);
}

void stage_forget(const stage_folder *f, const char *stage)
{
    char path[STAGE_PATH];
    snprintf(path, sizeof path, "%s/%s.json", f->path, stage);
    unlink(path);
    snprintf(path, sizeof path, "%s/%s.training", f->path, stage);
    unlink(path);
}

json_t *stage_done(const stage_folder *f, const stage_place *place)
{
    char path[STAGE_PATH];
    snprintf(path, sizeof path, "%s/%s.json", f->path, place->name);
    json_t *result = access(path, F_OK) == 0 ? cli_json_read_file(path) : NULL;
    cli_note(f->cli, "%d/%d %s%s", place->number, place->count, place->text,
             result ? ": done before" : "");
    return result;
}

int stage_run(const stage_folder *f, json_t **result, const stage_place *place, stage_words *words)
{
    char path[STAGE_PATH];
    snprintf(path, sizeof path, "%s/%s.json", f->path, place->name);
    int code = stage_child(f->cli, result, words);
    if (code == CLI_OK) code = write_json(f->cli, path, *result);
    if (code == CLI_OK) return code;
    json_decref(*result);
    *result = NULL;
    return code;
}
