// SPDX-License-Identifier: Apache-2.0
/* Declares what the files of sparse24 run share: a recipe's stages, and the page of what they
   found. */
#ifndef SPARSE24_CLI_RUN_RECIPE_H
#define SPARSE24_CLI_RUN_RECIPE_H

#include "stage.h"

/* What a command does in a recipe: makes the next model, writes one aside, or measures. */
typedef enum recipe_kind { RECIPE_MODEL, RECIPE_ASIDE, RECIPE_MEASURE } recipe_kind;

typedef struct recipe_stage {
    const cli_command *command;
    recipe_kind kind;
    int gpu;      /* 1: runs where --device says */
    int line;     /* of the recipe, from 1 */
    int iterate;  /* which iterate it is of, from 1; 0: none */
    int compared; /* 1: of `measure`, which measures the dense model, too */
    char name[48];
    stage_words options; /* "--NAME=VALUE" each */
} recipe_stage;

enum { RECIPE_STAGES = 64 };
typedef struct recipe {
    const char *path;
    const char *model, *out, *calibration; /* for $MODEL, $OUT, $CALIBRATION; the last or NULL */
    int count, iterates;
    recipe_stage stages[RECIPE_STAGES];
} recipe;

/* Reads r->path into stages, each of which its command would take. */
int recipe_read(cli_app *cli, recipe *r);
/* Refuses stages that contradict one another on that model. */
int recipe_check(cli_app *cli, const recipe *r, const s24_checkpoint *model);
/* Gives the value of a stage's option, "" of a flag; NULL where it has none. */
const char *recipe_value(const recipe_stage *stage, const char *option);

/* Names a stage of `measure` as it ran on the dense model. Returns text. */
enum { RECIPE_NAME = 64 };
const char *recipe_dense_name(char text[RECIPE_NAME], const recipe_stage *stage);

typedef struct recipe_report {
    cli_app *cli;
    const recipe *recipe;
    const json_t *results; /* of the stages, by name; of info as "size" and "size-dense" */
} recipe_report;
/* Write the table of accuracy, size and speed next to dense on stdout, and in OUT/report.html with
   the loss curves of trainings. */
void recipe_print(const recipe_report *report);
int recipe_page(const recipe_report *report);

#endif
