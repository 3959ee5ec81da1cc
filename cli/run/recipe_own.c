// SPDX-License-Identifier: Apache-2.0
/* Reads our own recipes: lists of stages, their options, and rounds of stages. */
#include <stdlib.h>
#include <string.h>

#include "run/recipe_reader.h"

enum { MOST_ROUNDS = 32, MOST_VALUE = 4096 };

/* ---- values ---------------------------------------------------------------------------------- */

/* Gives what "$NAME" stands for, NULL for nothing, and how long the name is with its sign. */
static const char *variable(const recipe_reader *rd, const char *at, size_t *length, char *room)
{
    const recipe *r = rd->recipe;
    *length = 1 + strspn(at + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    const char *value = NULL;
    snprintf(room, 32, "%.10g", rd->share);
    if (!strncmp(at, "$MODEL", *length)) value = r->model;
    if (!strncmp(at, "$OUT", *length)) value = r->out;
    if (!strncmp(at, "$CALIBRATION", *length)) value = r->calibration;
    if (rd->iterate && !strncmp(at, "$SHARE", *length)) value = room;
    if (rd->iterate && !strncmp(at, "$ROUND", *length)) {
        snprintf(room, 32, "%lld", (long long)rd->round);
        value = room;
    }
    return *length > 1 ? value : "$";
}

/* Adds a scalar to a value, with what stands for its names. */
static int add_value(recipe_reader *rd, char *value, const char *text, const yaml_node_t *at)
{
    char room[32];
    size_t used = strlen(value);
    while (*text) {
        size_t length = strcspn(text, "$");
        const char *piece = text;
        int bytes = (int)length;
        if (!length) {
            piece = variable(rd, text, &length, room);
            if (!piece)
                return recipe_fail(rd, at, CLI_USAGE,
                                   "%.*s stands for nothing here; expected $MODEL, $OUT, "
                                   "$CALIBRATION where run has --calibration, and in an iterate "
                                   "$SHARE and $ROUND",
                                   (int)length, text);
            bytes = (int)strlen(piece);
        }
        if (used + (size_t)bytes >= MOST_VALUE)
            return recipe_fail(rd, at, CLI_FORMAT, "the value is too long");
        memcpy(value + used, piece, (size_t)bytes);
        used += (size_t)bytes;
        value[used] = '\0';
        text += length;
    }
    return CLI_OK;
}

/* A scalar as it is, a list with commas between its scalars. */
static int read_value(recipe_reader *rd, char *value, const char *key, const yaml_node_t *node)
{
    const char *text = recipe_text(node);
    int code = CLI_OK;
    *value = '\0';
    if (text) return add_value(rd, value, text, node);
    if (node->type != YAML_SEQUENCE_NODE)
        return recipe_fail(rd, node, CLI_FORMAT, "%s is neither a text nor a list of texts", key);
    for (const yaml_node_item_t *i = node->data.sequence.items.start;
         i < node->data.sequence.items.top && code == CLI_OK; i++) {
        const yaml_node_t *item = recipe_node(rd, *i);
        text = recipe_text(item);
        if (!text) return recipe_fail(rd, item, CLI_FORMAT, "%s: a part is no text", key);
        if (*value) code = add_value(rd, value, ",", item);
        if (code == CLI_OK) code = add_value(rd, value, text, item);
    }
    return code;
}

/* ---- stages ---------------------------------------------------------------------------------- */

static int read_options(recipe_reader *rd, recipe_stage *stage, const yaml_node_t *options)
{
    char value[MOST_VALUE];
    const char *nothing = recipe_text(options);
    if (nothing && !*nothing) return CLI_OK;
    int code = recipe_check_mapping(rd, options, stage->command->name);
    if (code != CLI_OK) return code;
    for (const yaml_node_pair_t *p = options->data.mapping.pairs.start;
         p < options->data.mapping.pairs.top && code == CLI_OK; p++) {
        const yaml_node_t *key = recipe_node(rd, p->key);
        code = read_value(rd, value, recipe_text(key), recipe_node(rd, p->value));
        if (code == CLI_OK) code = recipe_option(rd, stage, recipe_text(key), value, key);
    }
    return code;
}

static int read_stages(recipe_reader *rd, const yaml_node_t *list);

/* The shares of zeros grow by the cubic schedule: fast while there is much to leave out. */
static int read_rounds(recipe_reader *rd, const yaml_node_t *map, int64_t rounds, double share)
{
    const yaml_node_t *stages = recipe_member(rd, map, "stages");
    int code = CLI_OK;
    rd->iterate = ++rd->recipe->iterates;
    for (rd->round = 1; rd->round <= rounds && code == CLI_OK; rd->round++) {
        const double left = 1 - (double)rd->round / (double)rounds;
        rd->share = share * (1 - left * left * left);
        code = read_stages(rd, stages);
    }
    rd->iterate = 0;
    return code;
}

static int read_iterate(recipe_reader *rd, const yaml_node_t *map)
{
    int code = recipe_check_mapping(rd, map, "iterate");
    if (code != CLI_OK) return code;
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *key = recipe_node(rd, p->key);
        const char *text = recipe_text(key);
        if (strcmp(text, "rounds") != 0 && strcmp(text, "share") != 0 && strcmp(text, "stages"))
            return recipe_fail(rd, key, CLI_FORMAT,
                               "iterate has no key '%s'; expected rounds, share and stages", text);
    }
    const char *rounds = recipe_text(recipe_member(rd, map, "rounds"));
    const char *share = recipe_text(recipe_member(rd, map, "share"));
    char *end = NULL;
    const double last = share ? strtod(share, &end) : 1;
    if (!(last > 0 && last <= 1) || (end && *end))
        return recipe_fail(rd, map, CLI_FORMAT, "iterate: share is over 0 and at most 1");
    const int64_t count = rounds ? strtoll(rounds, &end, 10) : 0;
    if (count < 1 || count > MOST_ROUNDS || *end)
        return recipe_fail(rd, map, CLI_FORMAT, "iterate: rounds is a number from 1 to %d",
                           MOST_ROUNDS);
    if (rd->iterate || rd->compared || !recipe_member(rd, map, "stages"))
        return recipe_fail(rd, map, CLI_FORMAT,
                           "iterate has stages, and stands in no other one and not in measure");
    return read_rounds(rd, map, count, last);
}

static int read_stage(recipe_reader *rd, const yaml_node_t *node)
{
    const char *alone = recipe_text(node);
    const yaml_node_t *key = node, *options = NULL;
    recipe_stage *stage;
    if (!alone) {
        const int code = recipe_check_mapping(rd, node, "a stage");
        if (code != CLI_OK) return code;
        const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
        if (node->data.mapping.pairs.top - pair != 1)
            return recipe_fail(rd, node, CLI_FORMAT,
                               "a stage is one command and its options below it");
        key = recipe_node(rd, pair->key);
        options = recipe_node(rd, pair->value);
        if (!strcmp(recipe_text(key), "iterate")) return read_iterate(rd, options);
    }
    int code = recipe_begin(rd, &stage, recipe_text(key), key);
    if (code == CLI_OK && options) code = read_options(rd, stage, options);
    return code == CLI_OK ? recipe_end(rd, stage, key) : code;
}

static int read_stages(recipe_reader *rd, const yaml_node_t *list)
{
    int code = CLI_OK;
    if (list->type != YAML_SEQUENCE_NODE)
        return recipe_fail(rd, list, CLI_FORMAT, "stages are a list");
    for (const yaml_node_item_t *i = list->data.sequence.items.start;
         i < list->data.sequence.items.top && code == CLI_OK; i++)
        code = read_stage(rd, recipe_node(rd, *i));
    return code;
}

int recipe_read_own(recipe_reader *rd, const yaml_node_t *root)
{
    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start;
         p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = recipe_node(rd, p->key);
        if (strcmp(recipe_text(key), "stages") != 0 && strcmp(recipe_text(key), "measure") != 0)
            return recipe_fail(rd, key, CLI_FORMAT,
                               "a recipe has no key '%s'; expected stages and measure",
                               recipe_text(key));
    }
    int code = read_stages(rd, recipe_member(rd, root, "stages"));
    rd->compared = 1;
    const yaml_node_t *measure = recipe_member(rd, root, "measure");
    return code == CLI_OK && measure ? read_stages(rd, measure) : code;
}
