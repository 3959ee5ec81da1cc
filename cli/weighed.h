// SPDX-License-Identifier: Apache-2.0
/* Declares weights of words, which an encoder with SpladePooling gives in place of vectors. */
#ifndef SPARSE24_CLI_WEIGHED_H
#define SPARSE24_CLI_WEIGHED_H

#include "encode.h"

/* Rows of a matrix [texts, vocabulary] of which the numbers that are not 0 are held. */
typedef struct weighed {
    s24_lines *lines; /* where they come from a file */
    int64_t *offsets; /* [count + 1], row i's are offsets[i] … offsets[i + 1] − 1; NULL: no rows */
    int32_t *ids;     /* of each row the largest weight first */
    float *weights;
    int64_t count, tokens, vocabulary;
    int64_t text_room, word_room;
} weighed;

/* Adds rows for texts, of the `top` largest weights each; 0: of all. */
int weigh_texts(cli_app *cli, s24_encoder *encoder, const s24_text *texts, int64_t count,
                int64_t top, weighed *out);
/* The same for the lines of a file. */
int weigh_file(cli_app *cli, s24_encoder *encoder, const char *path, int64_t top, weighed *out);
/* Adds rows that were made elsewhere, the `count` from `first` on; 0: no memory. */
int weighed_add(weighed *w, const s24_word_weights *rows, int64_t first, int64_t count);
void weighed_free(weighed *w);
/* Refuses a path that is no .safetensors. */
int weighed_may_save(cli_app *cli, const char *path);
int weighed_save(cli_app *cli, const char *path, const weighed *w);
/* Prints a row as a line of JSON. */
int weighed_print(cli_app *cli, const s24_encoder *encoder, const weighed *w, int64_t row);

#endif
