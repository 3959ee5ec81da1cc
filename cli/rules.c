// SPDX-License-Identifier: Apache-2.0
/*
 * Checks which options go together, and tells it in help and man pages, both from the rules of a
 * command and from those of every command. A rule names options; NAME=WORD in it is the option
 * where its value, given or not, has that word.
 */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const cli_rule common_rules[] = {{CLI_ONE_OF, "sparse dense", NULL, NULL},
                                        {CLI_ONE_OF, NULL, NULL, NULL}};

/* Holds an option as a rule names it. */
typedef struct item {
    char name[32], word[32]; /* the latter "" where any value counts */
} item;

/* Takes the next item of a rule's names; 0 at their end. */
static int next_item(item *out, const char **names)
{
    const char *start = *names;
    if (!start || !*start) return 0;
    const size_t length = strcspn(start, " "), name = strcspn(start, "= ");
    snprintf(out->name, sizeof out->name, "%.*s", (int)name, start);
    snprintf(out->word, sizeof out->word, "%.*s", name < length ? (int)(length - name - 1) : 0,
             start + name + 1);
    *names = start + length + strspn(start + length, " ");
    return 1;
}

/* Asks whether a value has the word: as one of a list, or before a colon ("cuda" of "cuda:1"). */
static int has_word(const char *value, const char *word)
{
    const size_t length = strlen(word);
    while (value && *value) {
        if (strncmp(value, word, length) == 0 && strchr(",:", value[length])) return 1;
        value += strcspn(value, ",");
        value += *value == ',';
    }
    return 0;
}

static int holds(const cli_given *given, const item *wanted)
{
    for (int i = 0; i < given->count; i++) {
        const cli_option *option = given->list[i];
        if (strcmp(option->name, wanted->name) != 0) continue;
        if (!*wanted->word) return given->typed[i];
        return has_word(*(const char *const *)(given->values + option->offset), wanted->word);
    }
    return 0;
}

/* Finds the first item of the names that holds; 0: none does. */
static int first_that_holds(item *found, const cli_given *given, const char *names)
{
    while (next_item(found, &names))
        if (holds(given, found)) return 1;
    return 0;
}

static const cli_option *find(const cli_given *given, const char *name)
{
    for (int i = 0; i < given->count; i++)
        if (strcmp(given->list[i]->name, name) == 0) return given->list[i];
    return NULL;
}

/* Says how names are listed. */
typedef struct style {
    const char *last;   /* stands between the last two */
    const char *except; /* the name that is left out; "": none */
    int values;         /* 1: with what help shows for their values */
} style;

/* Lists "--a, --b and --c" of the names that the command has. Returns text. */
static const char *listed(char *text, size_t bytes, const cli_given *given, const char *names,
                          const style *how)
{
    enum { MOST = 16 };
    item all[MOST];
    int count = 0;
    size_t used = 0;
    while (count < MOST && next_item(&all[count], &names))
        count += find(given, all[count].name) && strcmp(all[count].name, how->except) != 0;
    text[0] = '\0';
    for (int i = 0; i < count && used < bytes; i++) {
        const char *between = i == 0 ? "" : i + 1 < count ? ", " : how->last;
        const char *argument = find(given, all[i].name)->argument;
        const char *value = how->values && argument ? argument : all[i].word;
        used += (size_t)snprintf(text + used, bytes - used, "%s--%s%s%s", between, all[i].name,
                                 *value ? " " : "", value);
    }
    return text;
}

/* Counts the names and, in *held, those that hold. */
static int counted(int *held, const cli_given *given, const char *names)
{
    item each;
    int count = 0;
    for (*held = 0; next_item(&each, &names); count++)
        *held += holds(given, &each);
    return count;
}

/* Says that the option may not stand without others, or not with this one. */
static int refuse(cli_app *cli, const cli_given *given, const cli_rule *rule, const item *option,
                  const item *other)
{
    char names[256];
    const style how = {.last = " or ", .except = ""};
    const int without = rule->kind == CLI_ONLY_WITH;
    if (!without && rule->why)
        return cli_fail(cli, CLI_USAGE, "option --%s: --%s%s%s %s", option->name, other->name,
                        *other->word ? " " : "", other->word, rule->why);
    listed(names, sizeof names, given, without ? rule->others : other->name, &how);
    return cli_fail(cli, CLI_USAGE, "option --%s%s%s is %s %s", option->name,
                    *option->word ? ": " : "", option->word, without ? "for" : "not for", names);
}

static int check_one(cli_app *cli, const cli_given *given, const cli_rule *rule)
{
    char names[256];
    int held;
    item option, other;
    const style how = {.last = " and ", .except = "", .values = rule->kind == CLI_NEEDED};
    listed(names, sizeof names, given, rule->options, &how);
    const int named = counted(&held, given, rule->options);
    if (rule->kind == CLI_NEEDED && held < named)
        return cli_fail(cli, CLI_USAGE, "%s needs %s", given->command->name, names);
    if (rule->kind == CLI_ONE_OF && held > 1)
        return cli_fail(cli, CLI_USAGE, "%s exclude each other", names);
    if (rule->kind != CLI_ONLY_WITH && rule->kind != CLI_NOT_WITH) return CLI_OK;
    const int found = first_that_holds(&other, given, rule->others);
    if (found == (rule->kind == CLI_NOT_WITH) && first_that_holds(&option, given, rule->options))
        return refuse(cli, given, rule, &option, &other);
    return CLI_OK;
}

int cli_rules_check(cli_app *cli, const cli_given *given)
{
    int code = CLI_OK;
    for (const cli_rule *r = given->command->rules; r && r->options && code == CLI_OK; r++)
        code = check_one(cli, given, r);
    for (const cli_rule *r = common_rules; r->options && code == CLI_OK; r++)
        code = check_one(cli, given, r);
    return code;
}

/* ---- what they say in help and man pages ----------------------------------------------------- */

/* Writes what the rule says of the option, "" where it says nothing. Returns text. */
static const char *sentence(char *text, size_t bytes, const cli_given *given, const cli_rule *rule,
                            const char *name)
{
    char others[256];
    const char *names = rule->options;
    const style how = {.last = " or ", .except = name};
    item each;
    text[0] = '\0';
    while (next_item(&each, &names) && strcmp(each.name, name) != 0)
        each.name[0] = '\0';
    if (strcmp(each.name, name) != 0) return text;
    if (rule->kind == CLI_NEEDED) return strcpy(text, "Needed.");
    listed(others, sizeof others, given, rule->kind == CLI_ONE_OF ? rule->options : rule->others,
           &how);
    const int with = rule->kind == CLI_ONLY_WITH;
    if (*others && *each.word)
        snprintf(text, bytes, "%s %s with %s.", each.word, with ? "only" : "not", others);
    else if (*others)
        snprintf(text, bytes, "%s with %s.", with ? "Only" : "Not", others);
    return text;
}

const char *cli_rules_text(char *text, size_t bytes, const cli_given *all, const cli_option *option)
{
    char one[320];
    size_t used = 0;
    const cli_rule *const tables[] = {all->command->rules, common_rules};
    text[0] = '\0';
    for (int t = 0; t < 2; t++)
        for (const cli_rule *r = tables[t]; r && r->options && used < bytes; r++)
            if (*sentence(one, sizeof one, all, r, option->name))
                used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? " " : "", one);
    return text;
}
