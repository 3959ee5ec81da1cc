// SPDX-License-Identifier: Apache-2.0
/* Declares how sensitivity runs the program's other commands: their words (sensitivity_make.c). */
#ifndef SPARSE24_CLI_COMMAND_SENSITIVITY_WORDS_H
#define SPARSE24_CLI_COMMAND_SENSITIVITY_WORDS_H

#include "sensitivity.h"
#include "stage.h"

/* Begins a command that says nothing and runs on the same threads and instructions. */
void sensitivity_begin(stage_words *words, const sensitivity_job *job, const char *command);
/* Adds an option, unless its value is NULL. */
void sensitivity_add(stage_words *words, const char *name, const char *value);

#endif
