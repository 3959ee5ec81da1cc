// SPDX-License-Identifier: Apache-2.0
/* Refuses recipes whose stages contradict one another on the model that they begin with. */
#include <string.h>

#include "run/recipe.h"

const char *recipe_dense_name(char text[RECIPE_NAME], const recipe_stage *stage)
{
    snprintf(text, RECIPE_NAME, "%s-dense", stage->name);
    return text;
}

const char *recipe_value(const recipe_stage *stage, const char *option)
{
    const size_t length = strlen(option);
    for (int i = 0; i < stage->options.count; i++) {
        const char *word = stage->options.list[i] + 2;
        if (strncmp(word, option, length) != 0) continue;
        if (word[length] == '=') return word + length + 1;
        if (!word[length]) return "";
    }
    return NULL;
}

static int is_of(const recipe_stage *stage, const char *command)
{
    return !strcmp(stage->command->name, command);
}

/* Fails with the line of a stage and why it does not go with an earlier one. */
static int contradicts(cli_app *cli, const recipe *r, const recipe_stage *stage, const char *why)
{
    return cli_fail(cli, CLI_FORMAT, "%s:%d: %s %s", r->path, stage->line, stage->command->name,
                    why);
}

/* Finds a tensor that both stages take; NULL: there is none. */
static const char *taken_twice(const s24_checkpoint *model, const recipe_stage *a,
                               const recipe_stage *b)
{
    for (int64_t i = 0; i < s24_checkpoint_count(model); i++) {
        const s24_tensor *t = s24_checkpoint_tensor(model, i);
        if (s24_tensor_is_selected(t, recipe_value(a, "include"), recipe_value(a, "exclude")) &&
            s24_tensor_is_selected(t, recipe_value(b, "include"), recipe_value(b, "exclude")))
            return t->name;
    }
    return NULL;
}

/* Integers learn no more, and are not chosen from. */
static int check_integers(cli_app *cli, const recipe *r, const recipe_stage *before,
                          const recipe_stage *stage)
{
    char why[160];
    if (!recipe_value(before, "quantize") || (!is_of(stage, "train") && !is_of(stage, "prune")))
        return CLI_OK;
    snprintf(why, sizeof why, "is of floats, and %s of line %d has made integers of them",
             before->command->name, before->line);
    return contradicts(cli, r, stage, why);
}

/* Looks at one layer that two stages of a command write with no training between. */
static int check_writers(cli_app *cli, const recipe *r, const s24_checkpoint *model, int first,
                         int second)
{
    char why[512];
    const recipe_stage *a = &r->stages[first], *b = &r->stages[second];
    const int writes = is_of(a, "prune") || is_of(a, "pack");
    if (!writes || a->command != b->command || (a->iterate && a->iterate == b->iterate))
        return CLI_OK;
    for (int i = first + 1; i < second; i++)
        if (is_of(&r->stages[i], "train") || is_of(&r->stages[i], "unpack")) return CLI_OK;
    const char *name = taken_twice(model, a, b);
    if (!name) return CLI_OK;
    snprintf(why, sizeof why,
             "writes '%.200s', which %s of line %d writes too; --exclude it in one of them, or "
             "train between",
             name, a->command->name, a->line);
    return contradicts(cli, r, b, why);
}

int recipe_check(cli_app *cli, const recipe *r, const s24_checkpoint *model)
{
    int code = CLI_OK;
    for (int b = 0; b < r->count; b++)
        for (int a = 0; a < b && code == CLI_OK; a++) {
            code = check_integers(cli, r, &r->stages[a], &r->stages[b]);
            if (code == CLI_OK) code = check_writers(cli, r, model, a, b);
        }
    return code;
}
