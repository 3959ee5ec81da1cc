// SPDX-License-Identifier: Apache-2.0
/* Declares files whose lines hold token ids in place of text: --ids of embed, eval and prune. */
#ifndef SPARSE24_CLI_IDS_H
#define SPARSE24_CLI_IDS_H

#include "cli.h"
#include "sparse24/task.h"

typedef struct ids_source {
    const char *path;   /* "-": standard input */
    int64_t vocabulary; /* of the model: ids are less than this */
    int64_t most;       /* lines that are read, from the first; 0: all */
    int allow_empty;    /* 1: a line may be without an id */
} ids_source;

/* Reads a file's lines. */
int ids_read(cli_app *cli, s24_id_lines **out, const ids_source *source);
/* Takes lines of it that are there already, `first` being the number of the first. */
int ids_take(cli_app *cli, s24_id_lines **out, const ids_source *source, const s24_text *lines,
             int64_t first, int64_t count);

#define IDS_HELP                                                                                   \
    " hold token ids (decimal, with blanks between them) in place of text. Nothing is put before " \
    "or after them, and MODEL needs no tokenizer."
#define IDS_OPTION(type, of)                                                                       \
    {                                                                                              \
        "ids", 0, CLI_FLAG, offsetof(type, ids), NULL, NULL, of IDS_HELP, NULL                     \
    }

#endif
