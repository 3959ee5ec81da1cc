// SPDX-License-Identifier: Apache-2.0
/* Declares vectors of texts' tokens, which an encoder of late interaction (ColBERT) gives in place
   of one for each text: made, written, printed and scored. */
#ifndef SPARSE24_CLI_SPREAD_H
#define SPARSE24_CLI_SPREAD_H

#include "classes.h"
#include "encode.h"
#include "sparse24/late.h"

typedef struct spread {
    s24_lines *lines; /* where they come from a file */
    float *vectors;   /* [offsets[count], width] */
    int64_t *offsets; /* [count + 1]; NULL: nothing was added */
    int64_t count, width, tokens;
    int64_t room, text_room;
} spread;

/* Adds the vectors of texts. */
int spread_texts(cli_app *cli, s24_encoder *encoder, const s24_text *texts, int64_t count,
                 spread *out);
/* The same for the lines of a file. */
int spread_file(cli_app *cli, s24_encoder *encoder, const char *path, spread *out);
void spread_free(spread *s);
s24_late_texts spread_view(const spread *s);
/* Ranks texts by how well they answer a query of one text, the best first, without keeping their
   vectors: fills all [count]. */
int spread_rank(cli_app *cli, s24_encoder *encoder, const spread *query, const s24_text *texts,
                ranked *all, int64_t count);
/* Refuses a path that is no .safetensors, which holds 'embeddings' and 'offsets'. */
int spread_may_save(cli_app *cli, const char *path);
int spread_save(cli_app *cli, const char *path, const spread *s);
/* Prints a text's vectors as a line of JSON. */
int spread_print(cli_app *cli, const spread *s, int64_t row);

#endif
