// SPDX-License-Identifier: Apache-2.0
/* Declares what rerank, classify and search share: a model with a head, and pairs by score. */
#ifndef SPARSE24_CLI_CLASSES_H
#define SPARSE24_CLI_CLASSES_H

#include "cli.h"

/* Opens the model of a folder for its head that classifies. */
int classes_open(cli_app *cli, s24_encoder **encoder, const char *folder, const char *dtype,
                 int64_t max_tokens);
/* The same of a reranker, whose head has one class. */
int rank_open(cli_app *cli, s24_encoder **encoder, const char *folder, const char *dtype,
              int64_t max_tokens);

/* A document by its number, with what the reranker gives for it and the query. */
typedef struct ranked {
    int64_t index;
    float logit;
} ranked;
/* Ranks the documents of `all`, the best first: fills logits, and orders. */
int rank_documents(cli_app *cli, s24_encoder *encoder, const char *query, const s24_text *documents,
                   ranked *all, int64_t count);
/* Orders them, the best first, equal ones as they came. */
void rank_sort(ranked *all, int64_t count);
/* 1 / (1 + e^−x). */
double sigmoid_of(double x);
/* A reranker's score of a logit: the sigmoid, or what its folder says. */
double score_of(const s24_encoder *encoder, double logit);
/* From the logits of a text to shares: of one class, or of several that exclude each other. */
void shares_of(double *shares, const float *logits, int64_t classes, int together);

/* Adds a line of a file that was found to the hits of --json, and returns its object there; without
   --json prints it, too: its rank, score, number and text, which is escaped for a terminal. */
json_t *show_hit(cli_app *cli, json_t *hits, double score, int64_t number, const s24_text *text);

#endif
