// SPDX-License-Identifier: Apache-2.0
/* Declares what the files of sparse24 tutorial share: its options, its stages and what they
   found. */
#ifndef SPARSE24_CLI_TUTORIAL_TUTORIAL_H
#define SPARSE24_CLI_TUTORIAL_TUTORIAL_H

#include "stage.h"

struct tutorial_options {
    cli_common common;
    const char *train, *dev, *method, *calibration, *batch, *seq, *dtype, *train_method, *numbers;
    double epochs, plain_epochs, distil_epochs;
    int64_t steps, max_tokens, seed, rounds;
};

typedef struct tutorial {
    cli_app *cli;
    const struct tutorial_options *o;
    const char *model, *out;
    json_t *results; /* of the stages that are done, by name */
} tutorial;

typedef struct tutorial_stage {
    const char *name; /* of OUT/NAME.json; what it makes is OUT/NAME, if it makes something */
    const char *text; /* said when it begins */
    const char *line; /* its command's words; {NAME} is the option's value, without which a word is
                         left out */
    int gpu;          /* 1: runs where --device says */
    int (*before)(const tutorial *t); /* makes what the stage reads; or NULL */
} tutorial_stage;

/* Writes OUT/passages.txt, where pruning is calibrated and --calibration names nothing. */
int tutorial_passages(const tutorial *t);

/* Write the table on stdout, and the page with table, loss curves and times in OUT/report.html. */
void tutorial_print(const tutorial *t);
int tutorial_report(const tutorial *t);

#endif
