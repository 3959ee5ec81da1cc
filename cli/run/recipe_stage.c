// SPDX-License-Identifier: Apache-2.0
/*
 * Makes stages of a recipe's nodes. A stage's keys are its command's options, so that a recipe
 * knows none by name; what the command would refuse is refused here, with file and line, before
 * anything runs.
 */
#include <stdarg.h>
#include <string.h>

#include "run/recipe_reader.h"

static const struct {
    const char *command;
    recipe_kind kind;
    int gpu;
} kinds[] = {{"prune", RECIPE_MODEL, 0},   {"train", RECIPE_MODEL, 1},
             {"pack", RECIPE_MODEL, 0},    {"unpack", RECIPE_MODEL, 0},
             {"convert", RECIPE_ASIDE, 0}, {"eval", RECIPE_MEASURE, 1},
             {"bench", RECIPE_MEASURE, 1}, {"sensitivity", RECIPE_MEASURE, 0}};
enum { KINDS = (int)(sizeof kinds / sizeof *kinds) };

/* ---- nodes ----------------------------------------------------------------------------------- */

static void set_where(recipe_reader *rd, const yaml_node_t *at)
{
    snprintf(rd->where, sizeof rd->where, "%s:%zu", rd->recipe->path, at->start_mark.line + 1);
    rd->cli->where = rd->where;
}

int recipe_fail(recipe_reader *rd, const yaml_node_t *at, int exit_code, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    set_where(rd, at);
    cli_fail(rd->cli, exit_code, "%s", text);
    rd->cli->where = NULL;
    return exit_code;
}

const yaml_node_t *recipe_node(recipe_reader *rd, int id)
{
    return yaml_document_get_node(&rd->document, id);
}

const char *recipe_text(const yaml_node_t *node)
{
    if (!node || node->type != YAML_SCALAR_NODE) return NULL;
    const char *text = (const char *)node->data.scalar.value;
    return strlen(text) == node->data.scalar.length ? text : NULL;
}

const yaml_node_t *recipe_member(recipe_reader *rd, const yaml_node_t *map, const char *key)
{
    if (!map || map->type != YAML_MAPPING_NODE) return NULL;
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        const char *text = recipe_text(recipe_node(rd, p->key));
        if (text && !strcmp(text, key)) return recipe_node(rd, p->value);
    }
    return NULL;
}

int recipe_check_mapping(recipe_reader *rd, const yaml_node_t *map, const char *what)
{
    if (map->type != YAML_MAPPING_NODE)
        return recipe_fail(rd, map, CLI_FORMAT, "%s is no mapping of keys to values", what);
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *key = recipe_node(rd, p->key);
        const char *text = recipe_text(key);
        if (!text) return recipe_fail(rd, key, CLI_FORMAT, "%s: a key is no text", what);
        if (recipe_member(rd, map, text) != recipe_node(rd, p->value))
            return recipe_fail(rd, key, CLI_FORMAT, "%s has %s twice", what, text);
    }
    return CLI_OK;
}

/* ---- stages ---------------------------------------------------------------------------------- */

static int kind_of(const char *command)
{
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(kinds[i].command, command)) return i;
    return -1;
}

int recipe_begin(recipe_reader *rd, recipe_stage **out, const char *command, const yaml_node_t *at)
{
    recipe *r = rd->recipe;
    const int kind = kind_of(command);
    if (kind < 0 || (rd->compared && kinds[kind].kind != RECIPE_MEASURE)) {
        return recipe_fail(rd, at, CLI_FORMAT, "'%s' is no stage; expected %s", command,
                           rd->compared ? "eval, bench or sensitivity"
                                        : "prune, train, pack, unpack, convert, eval, bench, "
                                          "sensitivity or iterate");
    }
    if (r->count == RECIPE_STAGES)
        return recipe_fail(rd, at, CLI_FORMAT, "there are more than %d stages", RECIPE_STAGES);
    recipe_stage *stage = *out = &r->stages[r->count++];
    stage->command = cli_command_find(rd->cli, command);
    stage->kind = kinds[kind].kind;
    stage->gpu = kinds[kind].gpu;
    stage->line = (int)at->start_mark.line + 1;
    stage->iterate = rd->iterate;
    stage->compared = rd->compared;
    snprintf(stage->name, sizeof stage->name, "%d-%s", r->count, command);
    return CLI_OK;
}

static const cli_option *find_option(const cli_command *command, const char *name)
{
    const cli_option *list[CLI_MAX_OPTIONS];
    const int count = cli_option_collect(list, command);
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i]->name, name)) return list[i];
    return NULL;
}

/* Lets the command refuse words, with the node's file and line. */
static int try_words(recipe_reader *rd, const recipe_stage *stage, char **words, int whole,
                     const yaml_node_t *at)
{
    int count = 0;
    while (words[count])
        count++;
    set_where(rd, at);
    const int code = cli_options_try(rd->cli, stage->command, count, words, whole);
    rd->cli->where = NULL;
    return code;
}

/* Is an option of the program's talk, or of what run itself says? */
static int is_ours(const char *name)
{
    static const char *const ours[] = {"json", "quiet", "force", "help", "resume", "model"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (!strcmp(name, ours[i])) return 1;
    return 0;
}

int recipe_option(recipe_reader *rd, recipe_stage *stage, const char *name, const char *value,
                  const yaml_node_t *at)
{
    const cli_option *option = find_option(stage->command, name);
    stage_words *words = &stage->options;
    if (option && is_ours(name))
        return recipe_fail(rd, at, CLI_USAGE, "%s of %s is run's own to say", name,
                           stage->command->name);
    if (option && option->type == CLI_FLAG) {
        if (!strcmp(value, "false")) return CLI_OK;
        if (strcmp(value, "true") != 0)
            return recipe_fail(rd, at, CLI_USAGE, "%s is '%s'; expected true or false", name,
                               value);
        stage_add(words, "--%s", name);
    } else {
        stage_add(words, "--%s=%s", name, value);
    }
    if (words->overflows)
        return recipe_fail(rd, at, CLI_FORMAT, "the stage's options are too long");
    char *pair[] = {(char *)(uintptr_t)stage->command->name, words->list[words->count - 1], NULL};
    const int code = try_words(rd, stage, pair, 0, at);
    if (code != CLI_OK || option) return code;
    return recipe_fail(rd, at, CLI_USAGE, "%s has no option '%s'", stage->command->name, name);
}

int recipe_end(recipe_reader *rd, recipe_stage *stage, const yaml_node_t *at)
{
    static char model[] = "MODEL", out[] = "OUT", of_bench[] = "--model=MODEL";
    char *list[STAGE_WORDS + 4] = {(char *)(uintptr_t)stage->command->name};
    int count = 1;
    for (int i = 0; i < stage->options.count; i++)
        list[count++] = stage->options.list[i];
    if (!*stage->command->operands)
        list[count++] = of_bench;
    else
        list[count++] = model;
    if (stage->kind != RECIPE_MEASURE) list[count] = out;
    return try_words(rd, stage, list, 1, at);
}
