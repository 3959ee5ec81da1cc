// SPDX-License-Identifier: Apache-2.0
/*
 * Reads llm-compressor's recipes: stages of modifiers, of which those that make 2:4 weights and
 * integers become stages of prune and pack. A key that would change what comes out and is not
 * carried out is refused by its name; one that only says how theirs computes is passed over.
 */
#include <stdlib.h>
#include <string.h>

#include "run/recipe_reader.h"

/* What is done with a modifier's key. */
typedef enum key_rule {
    KEY_READ,   /* it is read elsewhere */
    KEY_PASSED, /* it changes nothing here */
    KEY_EMPTY   /* its value must be nothing, false, 0 or null */
} key_rule;

typedef struct foreign_key {
    const char *name;
    key_rule rule;
} foreign_key;

static const foreign_key keys_of_pruning[] = {{"sparsity", KEY_READ},
                                              {"final_sparsity", KEY_READ},
                                              {"mask_structure", KEY_READ},
                                              {"targets", KEY_READ},
                                              {"ignore", KEY_READ},
                                              {"dampening_frac", KEY_READ},
                                              {"percdamp", KEY_READ},
                                              {"block_size", KEY_PASSED},
                                              {"sequential_update", KEY_PASSED},
                                              {"sequential_targets", KEY_PASSED},
                                              {"offload_hessians", KEY_PASSED},
                                              {"quantize", KEY_EMPTY},
                                              {"preserve_sparsity_mask", KEY_EMPTY},
                                              {"sparsity_profile", KEY_EMPTY},
                                              {"owl_m", KEY_EMPTY},
                                              {"owl_lmbda", KEY_EMPTY},
                                              {"init_sparsity", KEY_EMPTY},
                                              {"start", KEY_EMPTY},
                                              {"end", KEY_EMPTY},
                                              {"update", KEY_EMPTY},
                                              {"index", KEY_EMPTY},
                                              {"group", KEY_EMPTY},
                                              {NULL, KEY_READ}};
static const foreign_key keys_of_integers[] = {{"config_groups", KEY_READ},
                                               {"scheme", KEY_READ},
                                               {"targets", KEY_READ},
                                               {"ignore", KEY_READ},
                                               {"dampening_frac", KEY_READ},
                                               {"percdamp", KEY_READ},
                                               {"block_size", KEY_PASSED},
                                               {"sequential_update", KEY_PASSED},
                                               {"sequential_targets", KEY_PASSED},
                                               {"offload_hessians", KEY_PASSED},
                                               {"actorder", KEY_EMPTY},
                                               {"kv_cache_scheme", KEY_EMPTY},
                                               {NULL, KEY_READ}};
static const foreign_key keys_of_constant[] = {{"targets", KEY_PASSED}, {"start", KEY_PASSED},
                                               {"end", KEY_PASSED},     {"update", KEY_PASSED},
                                               {"ignore", KEY_PASSED},  {NULL, KEY_READ}};
static const foreign_key keys_of_weights[] = {
    {"num_bits", KEY_READ},          {"type", KEY_READ},       {"symmetric", KEY_READ},
    {"strategy", KEY_READ},          {"group_size", KEY_READ}, {"observer", KEY_PASSED},
    {"observer_kwargs", KEY_PASSED}, {"dynamic", KEY_EMPTY},   {"actorder", KEY_EMPTY},
    {"block_structure", KEY_EMPTY},  {NULL, KEY_READ}};
static const foreign_key keys_of_group[] = {{"weights", KEY_READ},
                                            {"targets", KEY_READ},
                                            {"input_activations", KEY_EMPTY},
                                            {"output_activations", KEY_EMPTY},
                                            {"format", KEY_PASSED},
                                            {NULL, KEY_READ}};

typedef struct modifier modifier;
typedef int modifier_read(recipe_reader *rd, const modifier *m, const yaml_node_t *key,
                          const yaml_node_t *map);
struct modifier {
    const char *name;
    const foreign_key *keys;
    modifier_read *read; /* NULL: it asks for what is done anyway */
    const char *method;  /* of prune; NULL: of pack, rounded to nearest */
};

/* ---- keys ------------------------------------------------------------------------------------ */

static int is_empty(const yaml_node_t *node)
{
    static const char *const words[] = {"",      "~",     "null", "Null", "NULL",
                                        "false", "False", "0",    "0.0",  "None"};
    const char *text = recipe_text(node);
    if (node->type == YAML_SEQUENCE_NODE)
        return node->data.sequence.items.start == node->data.sequence.items.top;
    if (node->type == YAML_MAPPING_NODE)
        return node->data.mapping.pairs.start == node->data.mapping.pairs.top;
    for (size_t i = 0; text && i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i])) return 1;
    return 0;
}

/* Gives a key's value where it has one that is not empty. */
static const yaml_node_t *value_of(recipe_reader *rd, const yaml_node_t *map, const char *key)
{
    const yaml_node_t *value = recipe_member(rd, map, key);
    return value && !is_empty(value) ? value : NULL;
}

/* Names what theirs keep in files that were written while a recipe ran: "started_". */
static int is_state(const char *key)
{
    return *key && key[strlen(key) - 1] == '_';
}

static int check_keys(recipe_reader *rd, const char *name, const foreign_key *keys,
                      const yaml_node_t *map)
{
    int code = recipe_check_mapping(rd, map, name);
    if (code != CLI_OK) return code;
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *key = recipe_node(rd, p->key), *value = recipe_node(rd, p->value);
        const char *text = recipe_text(key);
        const foreign_key *k = keys;
        while (k->name && strcmp(k->name, text) != 0)
            k++;
        if (is_state(text) || is_empty(value)) continue;
        if (!k->name)
            return recipe_fail(rd, key, CLI_UNSUPPORTED, "%s: %s is not carried out", name, text);
        if (k->rule != KEY_EMPTY) continue;
        return recipe_fail(rd, key, CLI_UNSUPPORTED,
                           "%s: %s is not carried out, but for null, "
                           "false and 0",
                           name, text);
    }
    return CLI_OK;
}

/* ---- which layers ---------------------------------------------------------------------------- */

/* Does the word name all linear layers? */
static int names_all(const char *target)
{
    static const char *const all[] = {"Linear", "Conv1D", "__ALL__", "__ALL_PRUNABLE__"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(target, all[i])) return 1;
    return 0;
}

/* Makes a glob of "re:PATTERN", which matches from the name's beginning, or of a layer's name; 0
   where the pattern says more than a glob can. */
static int make_glob(char *glob, size_t bytes, const char *target)
{
    const int pattern = !strncmp(target, "re:", 3);
    size_t used = 0;
    const char *p = target + (pattern ? 3 : 0);
    if (pattern && *p == '^') p++;
    while (*p && used + 2 < bytes) {
        char c = *p++;
        int many = 0;
        if (pattern && c == '$' && !*p) break;
        if (pattern && (c == '.' || (c == '\\' && *p == 'd'))) {
            p += c == '\\';
            many = *p == '*' || *p == '+';
            p += many;
            if (many || c == '\\') c = '*';
        } else if (pattern && c == '\\' && *p == '.') {
            c = *p++;
        } else if (pattern && strchr("\\[](){}|?*+^$", c)) {
            return 0;
        }
        if (c == ',') return 0;
        if (c != '*' || !used || glob[used - 1] != '*') glob[used++] = c;
    }
    if (!used || glob[used - 1] != '*') glob[used++] = '*'; /* ".weight" */
    glob[used] = '\0';
    return !*p || *p == '$';
}

static int read_globs(recipe_reader *rd, char *globs, size_t bytes, const yaml_node_t *list)
{
    char glob[512];
    *globs = '\0';
    if (!list) return CLI_OK;
    if (list->type != YAML_SEQUENCE_NODE)
        return recipe_fail(rd, list, CLI_FORMAT, "targets and ignore are lists of names");
    for (const yaml_node_item_t *i = list->data.sequence.items.start;
         i < list->data.sequence.items.top; i++) {
        const yaml_node_t *item = recipe_node(rd, *i);
        const char *text = recipe_text(item);
        if (text && names_all(text)) continue;
        if (!text || !make_glob(glob, sizeof glob, text))
            return recipe_fail(rd, item, CLI_UNSUPPORTED,
                               "'%s' is not carried out: a name, or 're:' with .* \\d+ \\. and $ "
                               "alone, is expected",
                               text ? text : "a list");
        const size_t used = strlen(globs);
        if (used + strlen(glob) + 2 > bytes)
            return recipe_fail(rd, item, CLI_FORMAT, "the list of names is too long");
        snprintf(globs + used, bytes - used, "%s%s", used ? "," : "", glob);
    }
    return CLI_OK;
}

/* Gives a stage the layers of targets and ignore as --include and --exclude. */
static int select_layers(recipe_reader *rd, recipe_stage *stage, const yaml_node_t *map)
{
    static const char *const names[][2] = {{"targets", "include"}, {"ignore", "exclude"}};
    char globs[2048];
    int code = CLI_OK;
    for (int i = 0; i < 2 && code == CLI_OK; i++) {
        const yaml_node_t *list = value_of(rd, map, names[i][0]);
        code = read_globs(rd, globs, sizeof globs, list);
        if (code == CLI_OK && *globs) code = recipe_option(rd, stage, names[i][1], globs, list);
    }
    return code;
}

/* ---- modifiers ------------------------------------------------------------------------------- */

/* Ours is 0.01 of the mean diagonal, and no other. */
static int check_dampening(recipe_reader *rd, const char *name, const yaml_node_t *map)
{
    static const char *const keys[] = {"dampening_frac", "percdamp"};
    for (int i = 0; i < 2; i++) {
        const yaml_node_t *value = value_of(rd, map, keys[i]);
        const char *text = value ? recipe_text(value) : "0.01";
        if (!text || atof(text) != 0.01)
            return recipe_fail(rd, value, CLI_UNSUPPORTED,
                               "%s: %s is not carried out, but for "
                               "0.01",
                               name, keys[i]);
    }
    return CLI_OK;
}

/* Calibrates on run's --calibration, which takes the place of their data set. */
static int calibrate(recipe_reader *rd, recipe_stage *stage, const yaml_node_t *at)
{
    const char *path = rd->recipe->calibration;
    if (!path)
        return recipe_fail(rd, at, CLI_USAGE, "%s needs run's --calibration FILE", recipe_text(at));
    return recipe_option(rd, stage, "calibration", path, at);
}

/* Their N:M says how many of M are zero. */
static int read_pattern(recipe_reader *rd, char *pattern, size_t bytes, const modifier *m,
                        const yaml_node_t *map)
{
    const yaml_node_t *structure = value_of(rd, map, "mask_structure"),
                      *share = value_of(rd, map, "sparsity");
    const char *text = structure ? recipe_text(structure) : "0:0";
    int zeros = 0, group = 0, end = 0;
    if (!share) share = value_of(rd, map, "final_sparsity");
    const char *number = share ? recipe_text(share) : NULL;
    const double zero_share = number ? atof(number) : 0;
    if (!text || sscanf(text, "%3d:%3d%n", &zeros, &group, &end) != 2 || text[end] || zeros < 0)
        return recipe_fail(rd, structure, CLI_FORMAT, "%s: mask_structure is no N:M", m->name);
    if (!(zero_share > 0 && zero_share < 1))
        return recipe_fail(rd, map, CLI_FORMAT, "%s: sparsity is over 0 and under 1", m->name);
    if (group && (zeros >= group || (double)zeros / group != zero_share))
        return recipe_fail(rd, map, CLI_FORMAT, "%s: sparsity is not that of mask_structure %s",
                           m->name, text);
    if (group)
        snprintf(pattern, bytes, "%d:%d", group - zeros, group);
    else
        snprintf(pattern, bytes, "unstructured:%g", zero_share);
    return CLI_OK;
}

static int read_pruning(recipe_reader *rd, const modifier *m, const yaml_node_t *key,
                        const yaml_node_t *map)
{
    char pattern[64];
    recipe_stage *stage;
    int code = check_dampening(rd, m->name, map);
    if (code == CLI_OK) code = read_pattern(rd, pattern, sizeof pattern, m, map);
    if (code == CLI_OK && *pattern == 'u' && !strcmp(m->method, "sparsegpt"))
        code = recipe_fail(rd, key, CLI_UNSUPPORTED,
                           "%s without a mask_structure N:M is not carried out", m->name);
    if (code == CLI_OK) code = recipe_begin(rd, &stage, "prune", key);
    if (code == CLI_OK) code = recipe_option(rd, stage, "method", m->method, key);
    if (code == CLI_OK) code = recipe_option(rd, stage, "pattern", pattern, key);
    if (code == CLI_OK && !strcmp(pattern, "2:4"))
        code = recipe_option(rd, stage, "packed", "true", key);
    if (code == CLI_OK && s24_criterion_needs_stats(m->method)) code = calibrate(rd, stage, key);
    if (code == CLI_OK) code = select_layers(rd, stage, map);
    return code == CLI_OK ? recipe_end(rd, stage, key) : code;
}

/* Finds what the weights of the one group of layers become. */
static int find_weights(recipe_reader *rd, const yaml_node_t **weights, const modifier *m,
                        const yaml_node_t *groups)
{
    int code = recipe_check_mapping(rd, groups, "config_groups");
    if (code != CLI_OK) return code;
    const yaml_node_pair_t *pair = groups->data.mapping.pairs.start;
    if (groups->data.mapping.pairs.top - pair != 1)
        return recipe_fail(rd, groups, CLI_UNSUPPORTED,
                           "%s: only one of config_groups is carried out", m->name);
    const yaml_node_t *group = recipe_node(rd, pair->value);
    code = check_keys(rd, "config_groups", keys_of_group, group);
    if (code != CLI_OK) return code;
    *weights = recipe_member(rd, group, "weights");
    if (!*weights) return recipe_fail(rd, group, CLI_FORMAT, "config_groups: there are no weights");
    return check_keys(rd, "weights", keys_of_weights, *weights);
}

static int has_text(recipe_reader *rd, const yaml_node_t *map, const char *key, const char *text)
{
    const yaml_node_t *value = recipe_member(rd, map, key);
    const char *found = value ? recipe_text(value) : NULL;
    return !value || (found && !strcmp(found, text));
}

/* Writes the scheme of ours that the weights ask for. */
static int read_weights(recipe_reader *rd, char *scheme, size_t bytes, const yaml_node_t *weights)
{
    const yaml_node_t *wide = value_of(rd, weights, "num_bits"),
                      *group = value_of(rd, weights, "group_size");
    const char *bits = wide ? recipe_text(wide) : NULL, *columns = group ? recipe_text(group) : "";
    const int by_group = group && columns && strcmp(columns, "-1") != 0;
    snprintf(scheme, bytes, "int%.8s%s%.8s", bits ? bits : "", by_group ? "-g" : "",
             by_group ? columns : "");
    int known = has_text(rd, weights, "type", "int") &&
                (has_text(rd, weights, "symmetric", "true") ||
                 has_text(rd, weights, "symmetric", "True")) &&
                has_text(rd, weights, "strategy", by_group ? "group" : "channel");
    const char *name;
    int found = 0;
    for (int i = 0; known && (name = s24_scheme_name(i, NULL, NULL)); i++)
        found |= !strcmp(name, scheme);
    if (found) return CLI_OK;
    return recipe_fail(rd, weights, CLI_UNSUPPORTED,
                       "weights are not carried out, but for symmetric int of num_bits 4 or 8, "
                       "strategy channel, or group with a group_size of 64 or 128");
}

static int read_scheme(recipe_reader *rd, char *scheme, size_t bytes, const modifier *m,
                       const yaml_node_t *map)
{
    const yaml_node_t *groups = value_of(rd, map, "config_groups"),
                      *preset = value_of(rd, map, "scheme");
    if (groups && !preset) {
        const yaml_node_t *weights = NULL;
        const int code = find_weights(rd, &weights, m, groups);
        return code == CLI_OK ? read_weights(rd, scheme, bytes, weights) : code;
    }
    const char *name = preset ? recipe_text(preset) : NULL;
    snprintf(scheme, bytes, "%s", name && !strcmp(name, "W8A16") ? "int8" : "int4-g128");
    if (!groups && name && (!strcmp(name, "W4A16") || !strcmp(name, "W8A16"))) return CLI_OK;
    return recipe_fail(rd, map, CLI_UNSUPPORTED,
                       "%s: scheme is not carried out, but for W4A16 and W8A16, or one of "
                       "config_groups",
                       m->name);
}

static int read_integers(recipe_reader *rd, const modifier *m, const yaml_node_t *key,
                         const yaml_node_t *map)
{
    char scheme[32];
    recipe_stage *stage;
    int code = check_dampening(rd, m->name, map);
    if (code == CLI_OK) code = read_scheme(rd, scheme, sizeof scheme, m, map);
    if (code == CLI_OK) code = recipe_begin(rd, &stage, "pack", key);
    if (code == CLI_OK) code = recipe_option(rd, stage, "quantize", scheme, key);
    if (code == CLI_OK && m->method) code = calibrate(rd, stage, key);
    if (code == CLI_OK) code = select_layers(rd, stage, map);
    return code == CLI_OK ? recipe_end(rd, stage, key) : code;
}

static const modifier modifiers[] = {
    {"SparseGPTModifier", keys_of_pruning, read_pruning, "sparsegpt"},
    {"WandaPruningModifier", keys_of_pruning, read_pruning, "wanda"},
    {"MagnitudePruningModifier", keys_of_pruning, read_pruning, "magnitude"},
    {"GPTQModifier", keys_of_integers, read_integers, "gptq"},
    {"QuantizationModifier", keys_of_integers, read_integers, NULL},
    {"ConstantPruningModifier", keys_of_constant, NULL, NULL}};
enum { MODIFIERS = (int)(sizeof modifiers / sizeof *modifiers) };

static int read_modifier(recipe_reader *rd, const yaml_node_t *key, const yaml_node_t *map)
{
    const char *name = recipe_text(key);
    for (int i = 0; i < MODIFIERS; i++) {
        const modifier *m = &modifiers[i];
        if (strcmp(m->name, name) != 0) continue;
        const int code = check_keys(rd, name, m->keys, map);
        return code == CLI_OK && m->read ? m->read(rd, m, key, map) : code;
    }
    return recipe_fail(rd, key, CLI_UNSUPPORTED,
                       "%s is not carried out; expected SparseGPTModifier, WandaPruningModifier, "
                       "MagnitudePruningModifier, ConstantPruningModifier, GPTQModifier or "
                       "QuantizationModifier",
                       name);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static int ends_in(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length > tail && !strcmp(text + length - tail, end);
}

static int read_modifiers(recipe_reader *rd, const yaml_node_t *map)
{
    int code = recipe_check_mapping(rd, map, "a list of modifiers");
    if (code != CLI_OK) return code;
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start;
         p < map->data.mapping.pairs.top && code == CLI_OK; p++)
        code = read_modifier(rd, recipe_node(rd, p->key), recipe_node(rd, p->value));
    return code;
}

static int read_foreign_stage(recipe_reader *rd, const yaml_node_t *map)
{
    int code = recipe_check_mapping(rd, map, "a stage");
    if (code != CLI_OK) return code;
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start;
         p < map->data.mapping.pairs.top && code == CLI_OK; p++) {
        const yaml_node_t *key = recipe_node(rd, p->key);
        if (!strcmp(recipe_text(key), "run_type")) continue;
        if (!ends_in(recipe_text(key), "_modifiers"))
            return recipe_fail(rd, key, CLI_UNSUPPORTED, "%s is not carried out", recipe_text(key));
        code = read_modifiers(rd, recipe_node(rd, p->value));
    }
    return code;
}

int recipe_read_foreign(recipe_reader *rd, const yaml_node_t *root)
{
    int code = CLI_OK;
    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start;
         p < root->data.mapping.pairs.top && code == CLI_OK; p++) {
        const yaml_node_t *key = recipe_node(rd, p->key), *value = recipe_node(rd, p->value);
        const char *name = recipe_text(key);
        if (ends_in(name, "_stage"))
            code = read_foreign_stage(rd, value);
        else if (ends_in(name, "_modifiers"))
            code = read_modifiers(rd, value);
        else
            code = recipe_fail(rd, key, CLI_FORMAT,
                               "a recipe has no key '%s'; expected stages and measure, or "
                               "llm-compressor's NAME_stage",
                               name);
    }
    return code;
}
