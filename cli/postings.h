// SPDX-License-Identifier: Apache-2.0
/* Declares postings: of each word the texts that it stands for and its weights there, so that a
   query reads the lists of its own words alone. */
#ifndef SPARSE24_CLI_POSTINGS_H
#define SPARSE24_CLI_POSTINGS_H

#include "weighed.h"

typedef struct postings {
    int64_t words, texts;
    int64_t *starts; /* [words + 1] word w's are starts[w] … starts[w + 1] − 1 */
    int32_t *lines;  /* in any order */
    float *weights;
    float *room; /* [texts] of a search */
} postings;

/* Lists are begun, then each number that they will have is counted, they are laid out, and each is
   put there. 0: no memory. Release with postings_free. */
int postings_begin(postings *p, int64_t words, int64_t texts);
void postings_count(postings *p, int64_t word);
int postings_lay(postings *p);
void postings_put(postings *p, int64_t word, int64_t line, float weight);
/* Turns rows round, with room for a search. */
int postings_make(cli_app *cli, postings *out, const weighed *rows);
void postings_free(postings *p);
/* Finds the k texts with the largest dot product with the query's row, best first; ties: the lower
   line. k is at most p->texts. Returns a word whose list names a line that is none; −1: all is
   well. */
int64_t postings_nearest(int64_t *lines, float *scores, const postings *p, const weighed *query,
                         int64_t row, int64_t k);

#endif
