// SPDX-License-Identifier: Apache-2.0
/*
 * A command line, a word a line, of a command that is made up: it has options of every type and
 * rules of every kind. Whatever the words are, they are refused with one sentence, or every value
 * is one that its option may have and as many operands are left as the command takes.
 */
#include "fuzz.h"

#include <float.h>
#include <string.h>

#include "cli.h"
#include "program_errors.h"

struct fuzz_options {
    cli_common common;
    const char *text, *words, *choice, *list, *counts;
    int64_t count;
    double real, positive;
    int flag;
};

#define OPTION(name, letter, type, field, argument, fallback, choice)                              \
    {                                                                                              \
        name, letter, type, offsetof(struct fuzz_options, field), argument, fallback, "", choice   \
    }
static const cli_option options[] = {
    OPTION("text", 't', CLI_TEXT, text, "X", NULL, NULL),
    OPTION("words", 0, CLI_WORDS, words, "X", NULL, NULL),
    OPTION("word", 0, CLI_WORDS, words, "X", NULL, NULL),
    OPTION("choice", 'c', CLI_CHOICE, choice, NULL, "int8", cli_scheme_name),
    OPTION("list", 'l', CLI_LIST, list, NULL, NULL, cli_scheme_name),
    OPTION("layers", 0, CLI_CHOICE, choice, "NAME|GLOB=NAME,...", NULL, cli_weight_dtype),
    OPTION("counts", 0, CLI_COUNTS, counts, "LIST", "1,2", NULL),
    OPTION("count", 'k', CLI_COUNT, count, "N", "1", NULL),
    OPTION("real", 'r', CLI_REAL, real, "X", "0", NULL),
    OPTION("positive", 0, CLI_POSITIVE, positive, "X", "1", NULL),
    OPTION("flag", 'x', CLI_FLAG, flag, NULL, NULL, NULL),
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};
static const cli_rule rules[] = {{CLI_NEEDED, "text", NULL, NULL},
                                 {CLI_NOT_WITH, "flag", "count real", "has no flag"},
                                 {CLI_ONLY_WITH, "positive", "choice=int4 list=int8", NULL},
                                 {CLI_ONE_OF, "words word", NULL, NULL},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};
static const cli_command commands[] = {{.name = "one",
                                        .operands = "IN [OUT]",
                                        .options = options,
                                        .rules = rules,
                                        .options_bytes = sizeof(struct fuzz_options),
                                        .spare = "text",
                                        .writes = 1},
                                       {.name = "many",
                                        .operands = "FILE...",
                                        .options = options,
                                        .options_bytes = sizeof(struct fuzz_options),
                                        .gpu = 1}};

int cli_distance(const char *a, const char *b)
{
    return strcmp(a, b) ? 1 + (int)(strlen(a) % 3) : 0;
}

static void check_values(const cli_app *cli, const struct fuzz_options *o, int which)
{
    int64_t counts[4];
    CHECK(cli->operand_count >= 1 && (which || cli->operand_count <= 2));
    CHECK(o->count >= 1 && o->real >= 0 && o->real <= DBL_MAX && o->positive > 0);
    CHECK(!o->text || *o->text);
    const int count = cli_counts(counts, 4, o->counts);
    CHECK(count > 0);
    for (int i = 0; i < count; i++)
        CHECK(counts[i] >= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { WORDS = 32 };
    char *argv[WORDS + 2], *text = malloc(bytes + 1);
    int argc = 1;
    struct fuzz_options values = {0};
    const int which = (int)(bytes % 2);
    cli_app cli = {.command = &commands[which], .common = &values.common};
    CHECK(text);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    argv[0] = (char *)(uintptr_t)commands[which].name;
    for (char *word = strtok(text, "\n"); word && argc <= WORDS; word = strtok(NULL, "\n"))
        argv[argc++] = word;
    argv[argc] = NULL;
    fuzz_said = 0;
    const int code = cli_options_parse(&cli, &values, argc, argv);
    CHECK(fuzz_said == (code != CLI_OK));
    if (code == CLI_OK && !values.common.help) check_values(&cli, &values, which);
    free(text);
    return 0;
}
