// SPDX-License-Identifier: Apache-2.0
/* Measures the score of a model some of whose layers are pruned, by the program's own prune and
   eval. */
#include <string.h>

#include "sensitivity.h"
#include "stage.h"

/* Which number of eval's is a task's score; sign −1: less is better. */
static const struct {
    const char *task, *key;
    int sign;
} scores[] = {
    {"retrieval", "top1", 1}, {"qa", "f1", 1}, {"lm", "perplexity", -1}, {"image", "top1", 1}};
enum { SCORES = (int)(sizeof scores / sizeof *scores) };

const char *sensitivity_task(int index)
{
    return index < SCORES ? scores[index].task : NULL;
}

static void add(stage_words *words, const char *name, const char *value)
{
    if (value) stage_add(words, "--%s=%s", name, value);
}

static void begin(stage_words *words, const sensitivity_job *j, const char *command)
{
    stage_add(words, "sparse24");
    stage_add(words, "%s", command);
    stage_add(words, "--quiet");
    add(words, "isa", j->cli->common->isa);
    stage_add(words, "--threads=%d", s24_ctx_threads(j->cli->ctx));
}

static int evaluate(sensitivity_job *j, const char *model, double *score)
{
    const struct sensitivity_options *o = j->options;
    stage_words words = {.count = 0};
    json_t *found;
    begin(&words, j, "eval");
    stage_add(&words, "%s", model);
    add(&words, "task", o->task);
    add(&words, "data", o->data);
    add(&words, "queries", o->queries);
    add(&words, "documents", o->documents);
    add(&words, "gold", o->gold);
    const int code = stage_child(j->cli, &found, &words);
    if (code != CLI_OK) return code;
    for (int i = 0; i < SCORES; i++)
        if (!strcmp(scores[i].task, o->task))
            *score = scores[i].sign * json_number_value(json_object_get(found, scores[i].key));
    json_decref(found);
    return CLI_OK;
}

/* Prunes the layers of a pattern; those before it are in `from` already. */
static int make(sensitivity_job *j, const char *from, const char *to, int pattern)
{
    const struct sensitivity_options *o = j->options;
    stage_words words = {.count = 0};
    char names[NAMES_BYTES];
    json_t *found;
    int code = sensitivity_names(names, j, pattern);
    if (code != CLI_OK) return code;
    begin(&words, j, "prune");
    stage_add(&words, "%s", from);
    stage_add(&words, "%s", to);
    add(&words, "pattern", j->list[pattern]);
    add(&words, "method", o->method);
    add(&words, "refine", o->refine);
    add(&words, "calibration", o->passages.path);
    stage_add(&words, "--samples=%lld", (long long)o->passages.samples);
    if (o->passages.max_tokens)
        stage_add(&words, "--max-tokens=%lld", (long long)o->passages.max_tokens);
    if (o->passages.ids) stage_add(&words, "--ids");
    if (*names) add(&words, "include", names);
    code = stage_child(j->cli, &found, &words);
    if (code == CLI_OK) json_decref(found);
    return code;
}

int sensitivity_score(sensitivity_job *j, double *score)
{
    char from[4200], to[4200];
    s24_temporary *folder = NULL;
    int code = cli_temporary_create(j->cli, &folder);
    if (code != CLI_OK) return code;
    snprintf(from, sizeof from, "%s", j->cli->operands[0]);
    for (int i = 0; i < j->pattern_count && code == CLI_OK; i++) {
        if (!sensitivity_chosen(j, i)) continue;
        snprintf(to, sizeof to, "%s/%d", s24_temporary_path(folder), i);
        code = make(j, from, to, i);
        memcpy(from, to, sizeof from);
    }
    if (code == CLI_OK) code = evaluate(j, from, score);
    s24_temporary_destroy(folder);
    return code;
}
