// SPDX-License-Identifier: Apache-2.0
/* Declares what the files of sparse24 sensitivity share: its options, and what it found of each
   layer. */
#ifndef SPARSE24_CLI_COMMAND_SENSITIVITY_H
#define SPARSE24_CLI_COMMAND_SENSITIVITY_H

#include "passages.h"

/* DENSE stands next to the patterns' places: a layer that stays as it is. */
enum { MOST_PATTERNS = 16, PATTERN_BYTES = 64, DENSE = MOST_PATTERNS, NAMES_BYTES = 12288 };

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
    double bytes[DENSE + 1]; /* packed so, of patterns that are */
    double cost[DENSE + 1];  /* bytes, or seconds of a pass: what the budget is of */
    double error[DENSE + 1], kept[DENSE + 1];
    int chosen; /* a pattern's place, by the budget */
} sensitivity_layer;

typedef struct sensitivity_job {
    cli_app *cli;
    const struct sensitivity_options *options;
    const s24_checkpoint *in;
    char patterns[MOST_PATTERNS][PATTERN_BYTES];
    const char *list[MOST_PATTERNS];
    int lifts[MOST_PATTERNS]; /* M of a pattern M−2:M, which is packed; 0: it is another one */
    int pattern_count;
    sensitivity_layer *layers;
    int64_t count;
    int by_speed, by_score;
    double share, mean, loss;  /* that the budget allows; the last of a score */
    int64_t most;              /* steps that may be taken, see sensitivity_budget.c */
    double rest;               /* of a speed: seconds of a pass outside the layers */
    double dense_score, score; /* of a budget of a score */
    double bytes, cost, error; /* of the proposal: shares of the dense layers', and the mean */
} sensitivity_job;

/* Refuses a budget that is none. */
int sensitivity_read_budget(sensitivity_job *job);
/* Chooses the layers' patterns. */
int sensitivity_propose(sensitivity_job *job);
/* What a layer of that pattern has of k columns once it is packed as 2:4. */
double sensitivity_columns(const sensitivity_job *job, int pattern, int64_t k);
/* Fills in cost: bytes, or seconds as plan predicts them and a pass of the model says. */
int sensitivity_find_costs(sensitivity_job *job);
/* The number of layers that take a pattern, or stay dense. */
int64_t sensitivity_chosen(const sensitivity_job *job, int pattern);
/* The globs with which prune makes them so, separated by commas; an empty text: all layers. */
int sensitivity_names(char names[NAMES_BYTES], const sensitivity_job *job, int pattern);
/* The name of what is proposed for a layer. */
const char *sensitivity_choice(const sensitivity_job *job, const sensitivity_layer *layer);

/* Measures the model with the patterns that are chosen so far; by --task, larger is better. */
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
