// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the zsh completion from the commands' tables: commands with their summaries, options with
 * the first sentence of their help, the choices of a value; everything else completes as a file
 * name.
 */
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* Writes text inside a word in single quotes, where _arguments and _describe give some signs a
   meaning. */
static void quoted(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\'')
            printf("'\\''");
        else if (strchr("\\:[]", text[i]))
            printf("\\%c", text[i]);
        else
            putchar(text[i]);
    }
}

static void words(const char *(*word)(int index))
{
    for (int i = 0; word(i); i++)
        printf("%s%s", i ? " " : "", word(i));
}

/* Writes ":what the value is:how it completes". */
static void value(const cli_option *option)
{
    const char *name = option->argument ? option->argument : option->name;
    printf(":");
    quoted(name, strlen(name));
    if (option->type == CLI_CHOICE) {
        printf(":(");
        words(option->choice);
        printf(")");
    } else if (option->type == CLI_LIST) {
        printf(":_sequence compadd - ");
        words(option->choice);
    } else {
        printf(option->type == CLI_TEXT ? ":_files" : ": ");
    }
}

static void option_line(const cli_option *option)
{
    const char *name = option->name;
    int has_value = option->type != CLI_FLAG;
    printf(" \\\n            ");
    if (option->letter)
        printf("'(-%c --%s)'{-%c%s,--%s%s}'", option->letter, name, option->letter,
               has_value ? "+" : "", name, has_value ? "=" : "");
    else
        printf("'--%s%s", name, has_value ? "=" : "");
    printf("[");
    quoted(option->help, cli_sentence(option->help));
    printf("]");
    if (has_value) value(option);
    printf("'");
}

static void command_case(const cli_command *command)
{
    const cli_option *list[CLI_MAX_OPTIONS];
    int count = cli_option_collect(list, command);
    printf("    %s)\n        _arguments -s -S", command->name);
    for (int i = 0; i < count; i++)
        option_line(list[i]);
    if (strcmp(command->name, "help") == 0)
        printf(" \\\n            '1:command:(${commands%%%%:*})'");
    else if (*command->operands)
        printf(" \\\n            '*:file:_files'");
    printf(" ;;\n");
}

void cli_completion_zsh(const cli_command *const *commands)
{
    printf("#compdef sparse24\n"
           "# zsh completion for sparse24, written by 'sparse24 help --completion zsh'\n"
           "_sparse24()\n{\n"
           "    local -a commands=(\n");
    for (int i = 0; commands[i]; i++) {
        printf("        '%s:", commands[i]->name);
        quoted(commands[i]->summary, strlen(commands[i]->summary));
        printf("'\n");
    }
    printf("    )\n"
           "    if (( CURRENT == 2 )); then\n"
           "        _describe -t commands command commands\n"
           "        _arguments '--help[show help]' '--version[show the version]'\n"
           "        return\n"
           "    fi\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    case $words[1] in\n");
    for (int i = 0; commands[i]; i++)
        command_case(commands[i]);
    printf("    esac\n}\n_sparse24 \"$@\"\n");
}
