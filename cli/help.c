// SPDX-License-Identifier: Apache-2.0
/*
 * Writes --help and the short usage from the commands' tables: examples first, as they are what
 * most readers came for. Texts fill lines of 80 columns.
 */
#include <stdio.h>
#include <string.h>

#include "cli.h"

enum { COLUMNS = 80 };

/* Fills lines that begin after `indent` blanks; a newline in the text starts a paragraph. */
static void fill(const char *text, int indent)
{
    int column = 0;
    while (*text) {
        if (*text == '\n') {
            printf("\n\n");
            column = 0;
            text++;
            continue;
        }
        int length = (int)strcspn(text, " \n");
        if (column && column + 1 + length > COLUMNS) {
            putchar('\n');
            column = 0;
        }
        int blanks = column ? 1 : indent;
        printf("%*s%.*s", blanks, "", length, text);
        column += blanks + length;
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void option_lines(const cli_given *all, const cli_option *option)
{
    char choices[256], rules[512];
    const char *value = option->argument;
    if (!value && option->choice) value = cli_choices(choices, sizeof choices, option->choice);
    printf("  ");
    if (option->letter) printf("-%c, ", option->letter);
    printf("--%s%s%s\n", option->name, value ? " " : "", value ? value : "");
    fill(option->help, 6);
    if (option->choice && option->argument) {
        memcpy(choices, "Of: ", 4);
        cli_choices(choices + 4, sizeof choices - 4, option->choice);
        for (char *bar; (bar = strchr(choices, '|'));)
            *bar = ' ';
        fill(choices, 6);
    }
    if (*cli_rules_text(rules, sizeof rules, all, option)) fill(rules, 6);
    if (option->fallback) printf("      Default: %s\n", option->fallback);
}

static void entry_lines(const cli_command *command)
{
    cli_entry entry;
    printf("\n%s:\n", command->entries_title);
    for (int i = 0; command->entry(&entry, i); i++) {
        printf("  %s\n", entry.name);
        fill(entry.text, 6);
        if (entry.detail) fill(entry.detail, 6);
    }
}

static int own_options(const cli_command *command)
{
    int count = 0;
    while (command->options && command->options[count].name)
        count++;
    return count;
}

static void usage_line(FILE *to, const cli_command *command)
{
    fprintf(to, "sparse24 %s [options]%s%s\n", command->name, *command->operands ? " " : "",
            command->operands);
}

size_t cli_sentence(const char *text)
{
    const char *end = strstr(text, ". ");
    size_t length = end ? (size_t)(end - text) : strlen(text);
    return !end && length && text[length - 1] == '.' ? length - 1 : length;
}

void cli_help_command(const cli_command *command)
{
    const cli_option *list[CLI_MAX_OPTIONS];
    int count = cli_option_collect(list, command);
    const cli_given all = {.command = command, .list = list, .count = count};
    int own = own_options(command);
    printf("sparse24 %s: %s\n\nExamples:\n", command->name, command->summary);
    for (const cli_example *e = command->examples; e->line; e++) {
        printf("  %s\n", e->line);
        fill(e->text, 6);
    }
    printf("\nUsage:\n  ");
    usage_line(stdout, command);
    putchar('\n');
    fill(command->text, 0);
    if (own) printf("\nOptions:\n");
    for (int i = 0; i < own; i++)
        option_lines(&all, list[i]);
    if (command->entry) entry_lines(command);
    printf("\nOptions of every command:\n");
    for (int i = own; i < count; i++)
        option_lines(&all, list[i]);
}

void cli_help_program(const cli_command *const *commands)
{
    printf("sparse24: make the linear layers of a neural network 2:4 and run them faster\n\n"
           "Examples:\n"
           "  sparse24 prune model model-24 --packed\n"
           "      Keep two of every four weights, by magnitude, and store them packed.\n"
           "  sparse24 check model-24\n"
           "      Ask whether they are 2:4.\n"
           "  sparse24 search model-24 --documents notes.txt --query 'how to pack'\n"
           "      Run the model: the nearest lines by meaning.\n"
           "  sparse24 bench --set bert-base\n"
           "      How fast the products are here, compared with whose.\n\n"
           "Usage:\n  sparse24 COMMAND [options] [operands]\n  sparse24 --version\n\nCommands:\n");
    for (; *commands; commands++)
        printf("  %-11s %s\n", (*commands)->name, (*commands)->summary);
    printf("\n'sparse24 help COMMAND' and 'sparse24 COMMAND --help' say more.\n");
}

void cli_usage(const cli_app *cli)
{
    const cli_command *command = cli->command;
    if (command) {
        fprintf(stderr, "usage: ");
        usage_line(stderr, command);
        fprintf(stderr, "'sparse24 %s --help' shows examples and options.\n", command->name);
        return;
    }
    fprintf(stderr, "usage: sparse24 COMMAND [options] [operands]\ncommands:");
    for (const cli_command *const *each = cli->commands; *each; each++)
        fprintf(stderr, " %s", (*each)->name);
    fprintf(stderr, "\n'sparse24 help' says what they do.\n");
}
