// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a command's words by its table of options. A value is checked here against its type and its
 * choices, so that a command sees only values that could be meant.
 */
#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

const char *cli_dtype_at(const s24_dtype *list, int index)
{
    for (int i = 0; i < index; i++)
        if (list[i] == S24_DTYPE_NONE) return NULL;
    return list[index] == S24_DTYPE_NONE ? NULL : s24_dtype_name(list[index]);
}

const char *cli_compute_dtype(int index)
{
    static const s24_dtype list[] = {S24_F32, S24_BF16, S24_DTYPE_NONE};
    return cli_dtype_at(list, index);
}

const char *cli_scheme_name(int index)
{
    return s24_scheme_name(index, NULL, NULL);
}

const char *cli_dtype_or_scheme(const s24_dtype *list, int index)
{
    int count = 0;
    while (list[count] != S24_DTYPE_NONE)
        count++;
    return index < count ? cli_dtype_at(list, index) : cli_scheme_name(index - count);
}

const char *cli_cache_dtype_name(int index)
{
    static const s24_dtype list[] = {S24_I8, S24_E4M3, S24_DTYPE_NONE};
    return cli_dtype_at(list, index);
}

static const s24_dtype model_dtypes[] = {S24_F32, S24_F16,  S24_BF16,
                                         S24_I8,  S24_E4M3, S24_DTYPE_NONE};

const char *cli_model_dtype(int index)
{
    return cli_dtype_at(model_dtypes, index);
}

const char *cli_weight_dtype(int index)
{
    return cli_dtype_or_scheme(model_dtypes, index);
}

static const cli_option common_options[] = {
    {"threads", 0, CLI_COUNT, offsetof(cli_common, threads), "N", NULL,
     "Threads to use. By default every core the process may run on.", NULL},
    {"isa", 0, CLI_CHOICE, offsetof(cli_common, isa), NULL, NULL,
     "Use the CPU's instructions up to this level only. By default all it has.",
     s24_cpu_level_name},
    {"device", 0, CLI_TEXT, offsetof(cli_common, device), "cpu|cuda[:i]", "cpu",
     "Where to compute.", NULL},
    {"json", 0, CLI_FLAG, offsetof(cli_common, json), NULL, NULL,
     "Print one JSON object on standard output and nothing else there.", NULL},
    {"quiet", 'q', CLI_FLAG, offsetof(cli_common, quiet), NULL, NULL,
     "No progress and no notes on standard error, only warnings and errors.", NULL},
    {"force", 'f', CLI_FLAG, offsetof(cli_common, force), NULL, NULL,
     "Replace the output if it exists.", NULL},
    {"help", 'h', CLI_FLAG, offsetof(cli_common, help), NULL, NULL, "Show this help.", NULL},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_option *find_long(const cli_option *const *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(list[i]->name, name) == 0) return list[i];
    return NULL;
}

int cli_option_collect(const cli_option **list, const cli_command *command)
{
    int count = 0;
    for (const cli_option *o = command->options; o && o->name && count < CLI_MAX_OPTIONS; o++)
        list[count++] = o;
    for (const cli_option *o = common_options; o->name && count < CLI_MAX_OPTIONS; o++) {
        int is_force = o->offset == offsetof(cli_common, force);
        /* A command's own row of the same name stands for the common one. */
        if ((is_force && !command->writes) || find_long(list, count, o->name)) continue;
        list[count++] = o;
    }
    return count;
}

const char *cli_choices(char *text, size_t bytes, const char *(*choice)(int index))
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; choice(i) && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? "|" : "", choice(i));
    return text;
}

int cli_list_next(char *item, size_t bytes, const char **list)
{
    const char *start = *list;
    if (!start || !*start) return 0;
    size_t length = strcspn(start, ",");
    if (length >= bytes) return 0;
    memcpy(item, start, length);
    item[length] = '\0';
    *list = start[length] ? start + length + 1 : start + length;
    return 1;
}

/* Reads a whole number of at least 1; 0 if it is none. */
static int64_t parse_count(const char *text)
{
    char *end = NULL;
    if (*text < '0' || *text > '9') return 0;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    return errno || *end ? 0 : (int64_t)value;
}

/* Reads a number of at least 0; −1 if it is none. */
static double parse_real(const char *text)
{
    char *end = NULL;
    if ((*text < '0' || *text > '9') && *text != '.') return -1;
    errno = 0;
    double value = strtod(text, &end);
    return errno || *end || !(value >= 0 && value <= DBL_MAX) ? -1 : value;
}

int cli_counts(int64_t *counts, int max, const char *list)
{
    char item[24];
    int count = 0;
    while (count < max && cli_list_next(item, sizeof item, &list))
        counts[count++] = parse_count(item);
    return count;
}

static int is_choice(const cli_option *option, const char *text)
{
    const char *by_layer = option->argument ? strstr(option->argument, "GLOB=") : NULL;
    if (by_layer && strchr(text, '=')) return 1; /* whoever loads the model reads it */
    for (int i = 0; option->choice(i); i++)
        if (strcmp(option->choice(i), text) == 0) return 1;
    return 0;
}

static int items_valid(const cli_option *option, const char *value)
{
    char item[256];
    size_t length = strlen(value);
    if (length == 0 || value[length - 1] == ',') return 0;
    const char *rest = value;
    while (*rest) {
        if (!cli_list_next(item, sizeof item, &rest)) return 0;
        if (option->type == CLI_COUNTS ? parse_count(item) < 1 : !is_choice(option, item)) return 0;
    }
    return 1;
}

/* Says what a value of the option is, for the sentence that says that one is none. */
static const char *expected(char *text, size_t bytes, const cli_option *option)
{
    char choices[256] = "";
    const char *kind = "";
    if (option->choice) cli_choices(choices, sizeof choices, option->choice);
    if (option->type == CLI_CHOICE) kind = "one of ";
    if (option->type == CLI_LIST) kind = "a list, separated by commas, of ";
    if (option->type == CLI_COUNTS)
        kind = "a list, separated by commas, of whole numbers of at least 1";
    if (option->type == CLI_COUNT) kind = "a whole number of at least 1";
    if (option->type == CLI_REAL) kind = "a number of at least 0";
    if (option->type == CLI_POSITIVE) kind = "a number over 0";
    snprintf(text, bytes, "%s%s", kind, choices);
    return text;
}

/* Is it words that a model reads, not a file, whose name may be any bytes? */
static int is_words(const cli_option *option)
{
    return option->argument && !strcmp(option->argument, "TEXT");
}

/* As lines of files must be. */
static int is_utf8(const char *words)
{
    json_t *string = json_string(words);
    const int is_one = string || !cli_json_is_whole();
    json_decref(string);
    return is_one;
}

/* Refuses a value; typed: the option as the user wrote it, "-k" or "--count". */
static int bad_value(cli_app *cli, const cli_option *option, const char *typed, const char *value)
{
    char text[320];
    if (*value && is_words(option))
        return cli_fail(cli, CLI_USAGE, "option %s: its text is not UTF-8", typed);
    if (option->type == CLI_TEXT)
        return cli_fail(cli, CLI_USAGE, "option %s: expected %s, not an empty word", typed,
                        option->argument ? option->argument : "a value");
    return cli_fail(cli, CLI_USAGE, "option %s: '%s' is not %s", typed, value,
                    expected(text, sizeof text, option));
}

/* Puts the value into its field; 0 if it is none. */
static int option_set(const cli_option *option, void *options, const char *value)
{
    void *field = (char *)options + option->offset;
    switch (option->type) {
    case CLI_FLAG:
        *(int *)field = 1;
        return 1;
    case CLI_COUNT:
        *(int64_t *)field = parse_count(value);
        return *(int64_t *)field >= 1;
    case CLI_REAL:
        *(double *)field = parse_real(value);
        return *(double *)field >= 0;
    case CLI_POSITIVE:
        *(double *)field = parse_real(value);
        return *(double *)field > 0;
    default:
        *(const char **)field = value;
        if (is_words(option) && !is_utf8(value)) return 0;
        if (option->type == CLI_CHOICE) return is_choice(option, value);
        if (option->type == CLI_WORDS) return 1;
        return option->type == CLI_TEXT ? *value != '\0' : items_valid(option, value);
    }
}

/* Lists the options whose names begin with the word. Returns their number. */
static int begin_with(char *names, size_t bytes, const cli_option *const *list, int count,
                      const char *word)
{
    int found = 0;
    size_t used = 0;
    for (int i = 0; i < count && used < bytes; i++) {
        if (strncmp(list[i]->name, word, strlen(word)) != 0) continue;
        used += (size_t)snprintf(names + used, bytes - used, "%s--%s", found++ ? ", " : "",
                                 list[i]->name);
    }
    return found;
}

static int unknown_option(cli_app *cli, const cli_option *const *list, int count, const char *word)
{
    char name[64], names[256];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const char *bare = name + strspn(name, "-");
    const char *nearest = NULL;
    int best = 3;
    if (word[1] == '-' && begin_with(names, sizeof names, list, count, bare) > 1)
        return cli_fail(cli, CLI_USAGE, "option '%s' is short for more than one: %s", name, names);
    for (int i = 0; i < count && strlen(bare) > 1; i++) {
        int distance = cli_distance(bare, list[i]->name);
        if (distance < best) {
            best = distance;
            nearest = list[i]->name;
        }
    }
    if (nearest)
        return cli_fail(cli, CLI_USAGE, "%s has no option '%s'; did you mean '--%s'?",
                        cli->command->name, name, nearest);
    return cli_fail(cli, CLI_USAGE, "%s has no option '%s'; 'sparse24 %s --help' lists them",
                    cli->command->name, name, cli->command->name);
}

/* Counts the least and the most operands of "IN OUT", "[COMMAND]" or "MODEL...". */
static void operands_range(const char *operands, int *least, int *most)
{
    *least = *most = 0;
    for (const char *p = operands; *p; p += strcspn(p, " "), p += strspn(p, " ")) {
        const size_t length = strcspn(p, " ");
        const int many = length > 3 && !strncmp(p + length - 3, "...", 3);
        *most = many ? INT_MAX : *most + 1;
        *least += *p != '[';
    }
}

static int too_many(cli_app *cli, int most)
{
    const cli_command *command = cli->command;
    const char *word = cli->operands[most];
    char takes[64] = "takes no operand";
    if (most) snprintf(takes, sizeof takes, "takes %s and no more", command->operands);
    if (command->spare)
        return cli_fail(cli, CLI_USAGE, "%s %s; did you mean --%s '%s'?", command->name, takes,
                        command->spare, word);
    return cli_fail(cli, CLI_USAGE, "%s %s; '%s' is one too many", command->name, takes, word);
}

static int check_operands(cli_app *cli)
{
    const char *operands = cli->command->operands;
    const int count = cli->operand_count;
    int least, most;
    operands_range(operands, &least, &most);
    if (cli->common->help || (count >= least && count <= most)) return CLI_OK;
    if (count > most) return too_many(cli, most);
    if (!count) return cli_fail(cli, CLI_USAGE, "%s needs %s", cli->command->name, operands);
    return cli_fail(cli, CLI_USAGE, "%s needs %s, got only '%s'%s%s%s", cli->command->name,
                    operands, cli->operands[0], count > 1 ? " and '" : "",
                    count > 1 ? cli->operands[1] : "", count > 1 ? "'" : "");
}

typedef struct parser {
    const cli_option *list[CLI_MAX_OPTIONS];
    unsigned char typed[CLI_MAX_OPTIONS]; /* 1: the words have it */
    int count;
    struct option longs[CLI_MAX_OPTIONS + 1];
    char letters[2 * CLI_MAX_OPTIONS + 2];
} parser;

enum { LONG_BASE = 256 }; /* getopt's values of long options, above every letter */

static void parser_prepare(parser *p, const cli_command *command)
{
    p->count = cli_option_collect(p->list, command);
    char *letters = p->letters;
    *letters++ = ':'; /* a missing value is told apart from an unknown option */
    for (int i = 0; i < p->count; i++) {
        const cli_option *o = p->list[i];
        p->longs[i] = (struct option){o->name, o->type != CLI_FLAG, NULL, LONG_BASE + i};
        if (o->letter) *letters++ = o->letter;
        if (o->letter && o->type != CLI_FLAG) *letters++ = ':';
    }
}

/* Writes the option as it was typed, without a value, after getopt_long has read it: "-k",
   "--count", or an unmistakable beginning of that. */
static const char *typed_of(char *text, size_t bytes, int letter, char **argv)
{
    const char *word = argv[optind - 1];
    if (optarg == word) word = argv[optind - 2];
    if (letter)
        snprintf(text, bytes, "-%c", letter);
    else
        snprintf(text, bytes, "%.*s", (int)strcspn(word, "="), word);
    return text;
}

static int read_words(cli_app *cli, parser *p, void *options, int argc, char **argv)
{
    char typed[64];
    opterr = 0;
    optind = 0; /* also forgets the letters that an earlier call refused amid a word */
    for (;;) {
        const int word = optind ? optind : 1;
        optarg = NULL;
        int got = getopt_long(argc, argv, p->letters, p->longs, NULL);
        if (got == -1) return CLI_OK;
        if (got == ':')
            return cli_fail(cli, CLI_USAGE, "option %s needs a value",
                            typed_of(typed, sizeof typed, optopt < LONG_BASE ? optopt : 0, argv));
        if (got == '?' && optopt >= LONG_BASE)
            return cli_fail(cli, CLI_USAGE, "option %s takes no value",
                            typed_of(typed, sizeof typed, 0, argv));
        if (got == '?')
            return unknown_option(cli, p->list, p->count,
                                  optind > word ? argv[optind - 1] : argv[word]);
        int index = got - LONG_BASE;
        for (int i = 0; got < LONG_BASE && i < p->count; i++)
            if (p->list[i]->letter == got) index = i;
        p->typed[index] = 1;
        if (option_set(p->list[index], options, optarg)) continue;
        typed_of(typed, sizeof typed, got < LONG_BASE ? got : 0, argv);
        return bad_value(cli, p->list[index], typed, optarg);
    }
}

int cli_options_parse(cli_app *cli, void *options, int argc, char **argv)
{
    parser p = {0};
    parser_prepare(&p, cli->command);
    for (int i = 0; i < p.count; i++)
        if (p.list[i]->fallback) option_set(p.list[i], options, p.list[i]->fallback);
    int code = read_words(cli, &p, options, argc, argv);
    if (code != CLI_OK) return code;
    cli->operands = argv + optind;
    cli->operand_count = argc - optind;
    const cli_given given = {cli->command, p.list, p.count, p.typed, options};
    code = check_operands(cli);
    return code == CLI_OK && !cli->common->help ? cli_rules_check(cli, &given) : code;
}

int cli_options_try(cli_app *cli, const cli_command *command, int argc, char **argv, int whole)
{
    parser p = {0};
    cli_app trial = *cli;
    void *options = calloc(1, command->options_bytes);
    if (!options) return cli_fail(cli, CLI_IO, "out of memory");
    trial.command = command;
    trial.common = options;
    parser_prepare(&p, command);
    const int code = whole ? cli_options_parse(&trial, options, argc, argv)
                           : read_words(&trial, &p, options, argc, argv);
    free(options);
    return code;
}
