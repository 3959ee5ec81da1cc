// SPDX-License-Identifier: Apache-2.0
/* Declares what the files of sparse24 sensitivity share: its options, and what it found of each
   layer. */
#ifndef SPARSE24_CLI_COMMAND_SENSITIVITY_H
#define SPARSE24_CLI_COMMAND_SENSITIVITY_H

#include "passages.h"

enum { MOST_PATTERNS = 16, PATTERN_BYTES = 64 };

struct sensitivity_options {
    cli_common common;
    const char *method, *patterns, *refine, *include, *exclude, *budget, *recipe, *report;
    const char *task, *data, *queries, *documents, *gold; /* of a score */
    int64_t tokens;
    passages_options passages;
};

/* One layer and what each pattern leaves of it; NaN: the pattern does not fit. */
typedef struct sensitivity_layer {
    const char *name;
    int64_t rows, cols;
    double bytes[2]; /* dense and packed, as are */
    double cost[2];  /* bytes, or seconds of a pass: what the budget is of */
    double error[MOST_PATTERNS], kept[MOST_PATTERNS];
    double price;
    int two_four; /* by the budget */
} sensitivity_layer;

typedef struct sensitivity_job {
    cli_app *cli;
    const struct sensitivity_options *options;
    const s24_checkpoint *in;
    char patterns[MOST_PATTERNS][PATTERN_BYTES];
    const char *list[MOST_PATTERNS];
    int pattern_count, two_four; /* the latter's place among them; −1: none */
    sensitivity_layer *layers;
    int64_t count;
    int by_speed, by_score;
    double share, mean, loss;  /* that the budget allows; the last of a score */
    int64_t most;              /* layers that may be taken */
    double dense_score, score; /* of a budget of a score */
    double bytes, cost, error; /* of the proposal: shares of the dense layers', and the mean */
} sensitivity_job;

/* Refuses a budget that is none. */
int sensitivity_read_budget(sensitivity_job *job);
/* Chooses the layers that are 2:4; of a speed by what plan predicts. */
int sensitivity_propose(sensitivity_job *job);

/* Measures the model with the layers that are 2:4 so far; by --task, larger is better. */
int sensitivity_score(sensitivity_job *job, double *score);
/* The tasks that have one, by index; NULL past the end. */
const char *sensitivity_task(int index);

/* Prints what was found and what is proposed, and writes --recipe and --report. */
int sensitivity_tell(const sensitivity_job *job);
/* The mean output error of a pattern over the layers that it fits; NaN: none. */
double sensitivity_mean(const sensitivity_job *job, int pattern);
int sensitivity_write_recipe(const sensitivity_job *job);
int sensitivity_write_page(const sensitivity_job *job);

#endif
