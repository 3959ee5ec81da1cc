// SPDX-License-Identifier: Apache-2.0
/* Makes the model of a proposal by the program's own prune and pack, as its recipe does, or by
   magnitude where its speed alone is asked for. */
#include <string.h>

#include "sensitivity_words.h"

void sensitivity_add(stage_words *words, const char *name, const char *value)
{
    if (value) stage_add(words, "--%s=%s", name, value);
}

void sensitivity_begin(stage_words *words, const sensitivity_job *j, const char *command)
{
    stage_add(words, "sparse24");
    stage_add(words, "%s", command);
    stage_add(words, "--quiet");
    sensitivity_add(words, "isa", j->cli->common->isa);
    stage_add(words, "--threads=%d", s24_ctx_threads(j->cli->ctx));
}

static void add_pruning(stage_words *words, const sensitivity_job *j, const sensitivity_form *f,
                        int quick)
{
    const struct sensitivity_options *o = j->options;
    sensitivity_add(words, "pattern", f->pattern);
    sensitivity_add(words, "method", quick ? "magnitude" : o->method);
    if (f->scheme || quick) stage_add(words, "--packed");
    sensitivity_add(words, "quantize", f->scheme);
    if (quick) return;
    sensitivity_add(words, "refine", o->refine);
    sensitivity_add(words, "calibration", o->passages.path);
    sensitivity_add(words, "images", o->passages.images);
    stage_add(words, "--samples=%lld", (long long)o->passages.samples);
    if (o->passages.max_tokens)
        stage_add(words, "--max-tokens=%lld", (long long)o->passages.max_tokens);
    if (o->passages.ids) stage_add(words, "--ids");
}

/* Makes the layers of a form; those before it are in `from` already. */
static int make_form(sensitivity_job *j, const char *from, const char *to, int form, int quick)
{
    const sensitivity_form *f = &j->forms[form];
    stage_words words = {.count = 0};
    char names[NAMES_BYTES];
    json_t *found;
    int code = sensitivity_names(names, j, form);
    if (code != CLI_OK) return code;
    sensitivity_begin(&words, j, *f->pattern ? "prune" : "pack");
    stage_add(&words, "%s", from);
    stage_add(&words, "%s", to);
    if (*f->pattern) {
        add_pruning(&words, j, f, quick);
    } else {
        stage_add(&words, "--dense");
        sensitivity_add(&words, "quantize", f->scheme);
    }
    if (*names) sensitivity_add(&words, "include", names);
    code = stage_child(j->cli, &found, &words);
    if (code == CLI_OK) json_decref(found);
    return code;
}

int sensitivity_make(sensitivity_job *j, char path[FOLDER_BYTES], s24_temporary *folder, int quick)
{
    char to[FOLDER_BYTES];
    int code = CLI_OK;
    snprintf(path, FOLDER_BYTES, "%s", j->cli->operands[0]);
    for (int i = sensitivity_next(j, -1); i < MOST_FORMS && code == CLI_OK;
         i = sensitivity_next(j, i)) {
        snprintf(to, sizeof to, "%s/%d", s24_temporary_path(folder), i);
        code = make_form(j, path, to, i, quick);
        memcpy(path, to, sizeof to);
    }
    return code;
}
