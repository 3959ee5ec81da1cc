// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps which sparse layers of whole models run dense on this CPU, as loading measured it: the
 * notes of the context, in a file per CPU, ISA, version and dense engine. A file that says
 * otherwise, or that cannot be read, counts as absent.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* Reads dtype, threads, inputs, outputs and form of a note's key (nn.h); 0: it is none. */
static int key_read(cli_choice *choice, const char *key)
{
    char dtype[8], extra;
    long long threads, k, n;
    int end = 0;
    if (sscanf(key, "%7s %lld %lldx%lld%n", dtype, &threads, &k, &n, &end) != 4) return 0;
    *choice = (cli_choice){.dtype = s24_dtype_parse(dtype), .threads = threads, .k = k, .n = n};
    if (key[end] &&
        sscanf(key + end, " %31[a-z0-9:+] %3d%c", choice->form, &choice->kept, &extra) != 2)
        return 0;
    return choice->dtype != S24_DTYPE_NONE && threads > 0 && threads <= CLI_MAX_THREADS && k > 0 &&
           n > 0 && choice->kept >= 0 && choice->kept <= 100;
}

static int is_sound(const json_t *choices)
{
    cli_choice choice;
    const char *key;
    json_t *value;
    if (!json_is_object(choices)) return 0;
    json_object_foreach ((json_t *)(uintptr_t)choices, key, value) {
        const char *text = json_string_value(value);
        if (!key_read(&choice, key) || !text || s24_choice_is_dense(text, 1, 1) < 0) return 0;
    }
    return 1;
}

/* Reads {key: value} of the file, a new reference; NULL: there is none. path "": nowhere. */
static json_t *load(cli_app *cli, char *path)
{
    json_t *file = cli_cache_read(path, "choices", cli_machine_key(cli));
    json_t *choices = json_object_get(file, "choices");
    if (is_sound(choices)) {
        json_incref(choices);
    } else {
        if (*path && access(path, F_OK) == 0)
            cli_note(cli, "%s is of another make or damaged: measured again", path);
        choices = NULL;
    }
    json_decref(file);
    return choices;
}

void cli_choices_load(cli_app *cli)
{
    char path[CLI_CACHE_PATH];
    json_t *choices = load(cli, path);
    const char *key;
    json_t *value;
    json_object_foreach (choices, key, value)
        if (s24_ctx_note(cli->ctx, key, json_string_value(value)) != S24_OK)
            cli_note(cli, "%s: %s", path, s24_ctx_error(cli->ctx));
    json_decref(choices);
}

void cli_choices_keep(cli_app *cli)
{
    char path[CLI_CACHE_PATH];
    const char *key;
    if (!s24_ctx_note_key(cli->ctx, 0)) return;
    json_t *before = load(cli, path), *choices = json_object();
    json_object_update(choices, before);
    for (int64_t i = 0; (key = s24_ctx_note_key(cli->ctx, i)) != NULL; i++)
        json_object_set_new(choices, key, json_string(s24_ctx_noted(cli->ctx, key)));
    if (*path && !(before && json_equal(choices, before)))
        cli_cache_write(cli, path, cli_machine_key(cli), json_pack("{s:O}", "choices", choices));
    json_decref(before);
    json_decref(choices);
}

/* ---- what they say --------------------------------------------------------------------------- */

int cli_choice_at(cli_app *cli, cli_choice *choice, int64_t *index)
{
    const char *key;
    while ((key = s24_ctx_note_key(cli->ctx, *index)) != NULL) {
        (*index)++;
        if (!key_read(choice, key)) continue;
        choice->note = s24_ctx_noted(cli->ctx, key);
        return 1;
    }
    return 0;
}

int cli_choice_dense(cli_app *cli, s24_dtype dtype, int64_t threads, int64_t k, int64_t n,
                     int64_t tokens)
{
    char key[96];
    snprintf(key, sizeof key, "%s %lld %lldx%lld", s24_dtype_name(dtype), (long long)threads,
             (long long)k, (long long)n);
    const char *note = s24_ctx_noted(cli->ctx, key);
    return note ? s24_choice_is_dense(note, (int)threads, tokens) : -1;
}

int cli_choice_range(const cli_choice *choice, int64_t *at, int64_t *from, int64_t *to)
{
    const int64_t most = 256 * choice->threads + 1; /* beyond, as there */
    *from = 0;
    for (; *at <= most; (*at)++) {
        if (s24_choice_is_dense(choice->note, (int)choice->threads, *at) == 1) {
            if (!*from) *from = *at;
            *to = *at == most ? 0 : *at;
        } else if (*from) {
            return 1;
        }
    }
    return *from != 0;
}
