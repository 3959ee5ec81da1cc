// SPDX-License-Identifier: Apache-2.0
/* Measures the score of a model some of whose layers are pruned, by the program's own eval. */
#include <string.h>

#include "sensitivity_words.h"

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

static int evaluate(sensitivity_job *j, const char *model, double *score)
{
    const struct sensitivity_options *o = j->options;
    stage_words words = {.count = 0};
    json_t *found;
    sensitivity_begin(&words, j, "eval");
    stage_add(&words, "%s", model);
    sensitivity_add(&words, "task", o->task);
    sensitivity_add(&words, "data", o->data);
    sensitivity_add(&words, "queries", o->queries);
    sensitivity_add(&words, "documents", o->documents);
    sensitivity_add(&words, "gold", o->gold);
    const int code = stage_child(j->cli, &found, &words);
    if (code != CLI_OK) return code;
    for (int i = 0; i < SCORES; i++)
        if (!strcmp(scores[i].task, o->task))
            *score = scores[i].sign * json_number_value(json_object_get(found, scores[i].key));
    json_decref(found);
    return CLI_OK;
}

int sensitivity_score(sensitivity_job *j, double *score)
{
    char path[FOLDER_BYTES];
    s24_temporary *folder = NULL;
    int code = cli_temporary_create(j->cli, &folder);
    if (code == CLI_OK) code = sensitivity_make(j, path, folder, 0);
    if (code == CLI_OK) code = evaluate(j, path, score);
    s24_temporary_destroy(folder);
    return code;
}
