// SPDX-License-Identifier: Apache-2.0
/* Holds the table of commands, in the order of commands.def. Whoever reads it gets it from main.c
   in cli_app, since its rows read it too: help is a command. */
#include "cli.h"

#define COMMAND(name) extern const cli_command cmd_##name;
#include "commands.def"
#undef COMMAND

const cli_command *const cli_commands[] = {
#define COMMAND(name) &cmd_##name,
#include "commands.def"
#undef COMMAND
    NULL};
