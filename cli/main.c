// SPDX-License-Identifier: Apache-2.0
/*
 * Starts sparse24, the command line: finds the command, reads its options, makes the context, runs
 * it. Nothing here knows a command by name; commands.def does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "cli.h"

static void version(void)
{
    char cpu[64];
    printf("sparse24 %s\n", S24_VERSION);
    printf("library %s, dense engine %s, CPU %s\n", s24_version(), s24_dense_engine(),
           cli_cpu_text(cpu, sizeof cpu, s24_cpu_detect()));
}

/* Allows colours and moving lines only where a person looks at a terminal that has them. */
static void look_at_terminal(cli_app *cli)
{
    const char *term = getenv("TERM");
    const char *no_colour = getenv("NO_COLOR");
    int terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    cli->progress.animated = terminal;
    cli->coloured = terminal && !(no_colour && *no_colour);
}

/* Looks for --json and --quiet, which a usage error obeys though the options are not read yet. */
static void look_ahead(cli_app *cli, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        cli->json |= strcmp(argv[i], "--json") == 0;
        cli->quiet |= strcmp(argv[i], "--quiet") == 0 || strcmp(argv[i], "-q") == 0;
    }
}

static int run_with(cli_app *cli, void *options, int argc, char **argv)
{
    int code = cli_options_parse(cli, options, argc, argv);
    if (code != CLI_OK) return code;
    if (cli->common->help) {
        cli_help_command(cli->command);
        return CLI_OK;
    }
    code = cli_context(cli);
    if (code == CLI_OK) code = cli_ranks_open(cli, argc, argv);
    if (code == CLI_OK) code = cli->command->run(cli, options);
    cli_progress_clear(cli);
    cli_ranks_close(cli, code);
    return code;
}

static int run(cli_app *cli, int argc, char **argv)
{
    /* Run bare, a command that needs something says what, and no more. */
    const char *operands = cli->command->operands;
    if (argc == 1 && *operands && *operands != '[') {
        if (cli->json) return cli_fail(cli, CLI_USAGE, "%s needs %s", cli->command->name, operands);
        cli_usage(cli);
        return CLI_USAGE;
    }
    void *options = calloc(1, cli->command->options_bytes);
    if (!options) return cli_fail(cli, CLI_IO, "out of memory");
    cli->common = options;
    int code = run_with(cli, options, argc, argv);
    if (cli->device) cli_notes_keep(cli, cli->device);
    if (cli->ctx) cli_choices_keep(cli);
    s24_device_destroy(cli->device);
    s24_ctx_destroy(cli->ctx);
    free(options);
    return code;
}

static int dispatch(cli_app *cli, int argc, char **argv)
{
    if (argc < 2) {
        cli_usage(cli);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--version") || !strcmp(name, "-V") || !strcmp(name, "version")) {
        version();
        return CLI_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        cli_help_program(cli->commands);
        return CLI_OK;
    }
    look_ahead(cli, argc, argv);
    if (*name == '-')
        return cli_fail(cli, CLI_USAGE, "the first word is a command, not the option '%s'", name);
    cli->command = cli_command_find(cli, name);
    return cli->command ? run(cli, argc - 1, argv + 1) : cli_command_unknown(cli, name);
}

/* Keeps the threads' small allocations in one arena: glibc gives each of up to eight arenas a core
   64 MB of address space, which work then lacks where that is limited. Passes allocate nothing. */
static void share_one_arena(void)
{
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX, 1);
#endif
}

int main(int argc, char **argv)
{
    share_one_arena();
    cli_app cli = {.commands = cli_commands};
    look_at_terminal(&cli);
    cli_signals();
    cli_json_begin();
    int code = dispatch(&cli, argc, argv);
    /* What could not be written was not done; a command's own failure says more. */
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_OK)
        code = cli_output_failed(&cli, errno);
    return code;
}
