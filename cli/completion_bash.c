// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the bash completion from the commands' tables: commands, options, the choices of a value;
 * everything else completes as a file name.
 */
#include <stdio.h>

#include "cli.h"

static void command_words(const cli_command *const *commands)
{
    for (int i = 0; commands[i]; i++)
        printf("%s%s", i ? " " : "", commands[i]->name);
}

static void option_words(const cli_command *command)
{
    const cli_option *list[CLI_MAX_OPTIONS];
    int count = cli_option_collect(list, command);
    printf("    %s) options='", command->name);
    for (int i = 0; i < count; i++)
        printf("%s--%s", i ? " " : "", list[i]->name);
    printf("' ;;\n");
}

static void value_words(const cli_command *command)
{
    const cli_option *list[CLI_MAX_OPTIONS];
    int count = cli_option_collect(list, command);
    for (int i = 0; i < count; i++) {
        if (!list[i]->choice) continue;
        printf("    '%s --%s') values='", command->name, list[i]->name);
        for (int c = 0; list[i]->choice(c); c++)
            printf("%s%s", c ? " " : "", list[i]->choice(c));
        printf("' ;;\n");
    }
}

void cli_completion_bash(const cli_command *const *commands)
{
    printf("# bash completion for sparse24, written by 'sparse24 help --completion bash'\n"
           "_sparse24()\n{\n"
           "    local current=\"${COMP_WORDS[COMP_CWORD]}\" options= values=\n"
           "    local command=\"${COMP_WORDS[1]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        COMPREPLY=($(compgen -W '");
    command_words(commands);
    printf(" --help --version' -- \"$current\"))\n        return\n    fi\n"
           "    case \"$command $previous\" in\n");
    for (int i = 0; commands[i]; i++)
        value_words(commands[i]);
    printf("    'help help') values='");
    command_words(commands);
    printf("' ;;\n    esac\n"
           "    if [ -n \"$values\" ] && [ \"${current#-}\" = \"$current\" ]; then\n"
           "        COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))\n        return\n    fi\n"
           "    case \"$command\" in\n");
    for (int i = 0; commands[i]; i++)
        option_words(commands[i]);
    printf("    esac\n"
           "    case \"$current\" in\n"
           "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
           "    esac\n}\n"
           "complete -o default -o bashdefault -F _sparse24 sparse24\n");
}
