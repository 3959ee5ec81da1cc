// SPDX-License-Identifier: Apache-2.0
/*
 * Declares stages: commands of this program that another one runs in turn (tutorial, run). What
 * each printed stands in FOLDER/STAGE.json, and one whose file is there is not run again.
 */
#ifndef SPARSE24_CLI_STAGE_H
#define SPARSE24_CLI_STAGE_H

#include "cli.h"

/* Holds the words of a stage's command line. */
enum { STAGE_WORDS = 64, STAGE_PATH = 4200 };
typedef struct stage_words {
    char *list[STAGE_WORDS + 1]; /* ended by NULL */
    int count;
    size_t used;
    char text[16384];
    int overflows; /* 1: they did not fit */
} stage_words;

/* Runs this program with the words and --json; *object is what it printed. Fails with its exit code
   after it has said why. */
int stage_child(cli_app *cli, json_t **object, stage_words *words);
void stage_add(stage_words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct stage_folder {
    cli_app *cli;
    const char *path;
} stage_folder;

/* Makes the folder, or goes on in one of the same command with the same settings, an object; with
   --force in one with others. They stand in COMMAND.json. */
int stage_folder_open(const stage_folder *folder, json_t *settings);
/* Removes what a stage of before left: its JSON, and a training that was broken off. */
void stage_forget(const stage_folder *folder, const char *stage);

typedef struct stage_place {
    const char *name; /* of its file, without .json */
    const char *text; /* said when it begins */
    int number, count;
} stage_place;

/* Says which stage begins; gives what it printed before, a new reference, or NULL. */
json_t *stage_done(const stage_folder *folder, const stage_place *place);
/* Runs the words so and keeps what they printed. */
int stage_run(const stage_folder *folder, json_t **result, const stage_place *place,
              stage_words *words);

#endif
