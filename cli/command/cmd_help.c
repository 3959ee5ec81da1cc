// SPDX-License-Identifier: Apache-2.0
/* Runs sparse24 help: prints the help text, a manual page or a completion, all from the commands'
   tables. */
#include <string.h>

#include "cli.h"

struct help_options {
    cli_common common;
    int man;
    const char *completion;
};

static const struct {
    const char *name;
    void (*print)(const cli_command *const *commands);
} shells[] = {
#define COMPLETION(shell, file) {#shell, cli_completion_##shell},
#include "completions.def"
#undef COMPLETION
};

enum { SHELLS = sizeof shells / sizeof *shells };

static const char *shell(int index)
{
    return index < SHELLS ? shells[index].name : NULL;
}

static void completion(const cli_app *cli, const char *name)
{
    for (int i = 0; i < SHELLS; i++)
        if (strcmp(shells[i].name, name) == 0) shells[i].print(cli->commands);
}

static const cli_option options[] = {
    {"man", 0, CLI_FLAG, offsetof(struct help_options, man), NULL, NULL,
     "Print the manual page (of the program, or of COMMAND) as roff.", NULL},
    {"completion", 0, CLI_CHOICE, offsetof(struct help_options, completion), NULL, NULL,
     "Print the completion script of this shell.", shell},
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 help prune", "Examples and options of a command."},
    {"sparse24 help --completion bash > ~/.local/share/bash-completion/completions/sparse24",
     "Complete commands, options and values in bash."},
    {"sparse24 help --completion zsh > ~/.zfunc/_sparse24",
     "The same in zsh, where ~/.zfunc is in fpath before compinit runs."},
    {"sparse24 help --completion fish > ~/.config/fish/completions/sparse24.fish",
     "The same in fish."},
    {NULL, NULL}};

static int run(cli_app *cli, const void *opaque)
{
    const struct help_options *o = opaque;
    const cli_command *about = NULL;
    if (cli->operand_count == 1) {
        about = cli_command_find(cli, cli->operands[0]);
        if (!about) return cli_command_unknown(cli, cli->operands[0]);
    }
    if (cli->json) return cli_fail(cli, CLI_USAGE, "help is text; it has no --json");
    if (o->completion)
        completion(cli, o->completion);
    else if (o->man && about)
        cli_man_command(about);
    else if (o->man)
        cli_man_program(cli->commands);
    else if (about)
        cli_help_command(about);
    else
        cli_help_program(cli->commands);
    return CLI_OK;
}

const cli_command cmd_help = {
    .name = "help",
    .summary = "show help, a manual page or a completion script",
    .operands = "[COMMAND]",
    .text = "Prints what the program, or COMMAND, does and takes.",
    .examples = examples,
    .options = options,
    .options_bytes = sizeof(struct help_options),
    .run = run,
};
