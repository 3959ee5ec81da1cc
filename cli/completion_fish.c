// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the fish completion from the commands' tables: commands with their summaries, options with
 * the first sentence of their help, the choices of a value; everything else completes as a file
 * name.
 */
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* Writes " -x 'text'" with the text quoted. */
static void quoted(const char *option, const char *text, size_t length)
{
    printf(" %s '", option);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\'' || text[i] == '\\') putchar('\\');
        putchar(text[i]);
    }
    printf("'");
}

static void option_line(const cli_command *command, const cli_option *option)
{
    printf("complete -c sparse24 -n '__sparse24_is %s' -l %s", command->name, option->name);
    if (option->letter) printf(" -s %c", option->letter);
    if (option->type == CLI_TEXT) printf(" -r -F");
    if (option->type != CLI_TEXT && option->type != CLI_FLAG) printf(" -x");
    if (option->choice) printf(option->type == CLI_LIST ? " -a '(__fish_append ," : " -a '");
    for (int i = 0; option->choice && option->choice(i); i++)
        printf("%s%s", i || option->type == CLI_LIST ? " " : "", option->choice(i));
    if (option->choice) printf(option->type == CLI_LIST ? ")'" : "'");
    quoted("-d", option->help, cli_sentence(option->help));
    printf("\n");
}

static void command_lines(const cli_command *command, const char *condition, int with_summary)
{
    printf("complete -c sparse24 -n %s -f -a %s", condition, command->name);
    if (with_summary) quoted("-d", command->summary, strlen(command->summary));
    printf("\n");
}

void cli_completion_fish(const cli_command *const *commands)
{
    printf("# fish completion for sparse24, written by 'sparse24 help --completion fish'\n"
           "function __sparse24_is\n"
           "    set -l words (commandline -opc)\n"
           "    set -q words[2]; and test $words[2] = $argv[1]\n"
           "end\n"
           "function __sparse24_bare\n"
           "    test (count (commandline -opc)) -eq 1\n"
           "end\n"
           "complete -c sparse24 -n __sparse24_bare -f -l help -d 'show help'\n"
           "complete -c sparse24 -n __sparse24_bare -f -l version -d 'show the version'\n");
    for (int i = 0; commands[i]; i++) {
        const cli_option *list[CLI_MAX_OPTIONS];
        const cli_command *command = commands[i];
        command_lines(command, "__sparse24_bare", 1);
        command_lines(command, "'__sparse24_is help'", 1);
        int count = cli_option_collect(list, command);
        for (int o = 0; o < count; o++)
            option_line(command, list[o]);
    }
}
