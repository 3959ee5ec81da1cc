// SPDX-License-Identifier: Apache-2.0
/* Declares what the files of sparse24 sensitivity share: its options, and what it found of each
   layer. */
#ifndef SPARSE24_CLI_COMMAND_SENSITIVITY_H
#define SPARSE24_CLI_COMMAND_SENSITIVITY_H

#include "passages.h"

/* DENSE stands next to the forms' places: a layer that stays as it is. */
enum {
    MOST_FORMS = 16,
    FORM_BYTES = 64,
    DENSE = MOST_FORMS,
    TWO_FOUR = 4, /* where a form's lift stands */
    NAMES_BYTES = 12288,
    FOLDER_BYTES = 4200
};

struct sensitivity_options {
    cli_common common;
    const char *method, *patterns, *refine, *include, *exclude, *budget, *recipe, *report;
    const char *price;
    const char *task, *data, *queries, *documents, *gold; /* of a score */
    const char *shard, *output, *from;                    /* of a measurement, or a part of one */
    int64_t tokens;
    double memory; /* GB */
    passages_options passages;
};

/* What a layer may become: a pattern, integers, or both. */
typedef struct sensitivity_form {
    char text[FORM_BYTES];    /* as --patterns has it */
    char pattern[FORM_BYTES]; /* "": nothing goes */
    const char *scheme;       /* of integers; NULL: floats */
    int bits;
    int64_t group; /* columns that share a scale, 0: the row */
    int lift;      /* of s24_pattern_lift, or TWO_FOUR, which are packed; 0: another, or none */
    int stored;    /* such a layer is stored smaller than dense, so that a budget proposes it */
} sensitivity_form;

/* One layer and what each form leaves of it; NaN: the form does not fit. */
typedef struct sensitivity_layer {
    const char *name;
    int64_t rows, cols;
    int64_t input; /* layers with the same one run as one product where they are of one form */
    double bytes[DENSE + 1]; /* stored so, of forms that are */
    double cost[DENSE + 1];  /* bytes, or seconds of a pass: what the budget is of */
    double error[DENSE + 1], kept[DENSE + 1];
    double whole[DENSE + 1]; /* the model's error, by --price model; else, too, NaN */
    int chosen;              /* a form's place, by the budget */
} sensitivity_layer;

typedef struct sensitivity_job {
    cli_app *cli;
    const struct sensitivity_options *options;
    const s24_checkpoint *in;
    sensitivity_form forms[MOST_FORMS];
    int form_count;
    sensitivity_layer *layers;
    int64_t count;
    char *names;   /* of the layers of --shard, separated by commas; NULL: all */
    uint64_t hash; /* of what decides the measurement, where a file says it */
    int by_speed, by_score;
    int follows;               /* steps go by the model's errors, else by the layers' own */
    double share, mean, loss;  /* that the budget allows; the last of a score */
    int64_t most;              /* steps that may be taken, see sensitivity_budget.c */
    double rest;               /* of a speed: seconds of a pass outside the layers */
    double speed;              /* of the proposal, by a pass of the model so; 0: none was run */
    double dense_score, score; /* of a budget of a score */
    double bytes, cost, error; /* of the proposal: shares of the dense layers', and the mean */
} sensitivity_job;

/* Adds a layer that nothing is known of yet. */
sensitivity_layer *sensitivity_new(sensitivity_job *job, const s24_tensor *tensor,
                                   const s24_layer_report *report);
/* Finds the layers of --shard. */
int sensitivity_part(sensitivity_job *job);
/* Hashes model, passages and options. */
uint64_t sensitivity_hash(const sensitivity_job *job, const passages *given);
/* Writes what was measured to --output; reads it of --from. */
int sensitivity_save(const sensitivity_job *job);
int sensitivity_load(sensitivity_job *job);
/* Says whether a file is a part of a measurement, by its first byte; refuses one that cannot be
   read. */
int sensitivity_is_part(cli_app *cli, int *is_part, const char *path);
/* Makes one file of all parts. */
int sensitivity_join(cli_app *cli);

/* Refuses a budget that is none. */
int sensitivity_read_budget(sensitivity_job *job);
/* Chooses the layers' forms. */
int sensitivity_propose(sensitivity_job *job);
/* What a layer of that form has of k columns once it is stored. */
double sensitivity_columns(const sensitivity_form *form, int64_t k);
/* Fills in cost: bytes, or seconds as plan times them and passes of the model say. */
int sensitivity_find_costs(sensitivity_job *job);
/* Seconds of a pass with the forms that are chosen so far, and dense. */
int sensitivity_pass(sensitivity_job *job, double *seconds, double *dense);
/* The number of layers that take a form, or stay dense. */
int64_t sensitivity_chosen(const sensitivity_job *job, int form);
/* The place of the form that is made after `form` of all that are chosen (−1: the first one), and
   MOST_FORMS after the last: integers come last, as what follows is pruned on their inputs. */
int sensitivity_next(const sensitivity_job *job, int form);
/* The globs with which prune makes them so, separated by commas; an empty text: all layers. */
int sensitivity_names(char names[NAMES_BYTES], const sensitivity_job *job, int form);
/* The name of what is proposed for a layer. */
const char *sensitivity_choice(const sensitivity_job *job, const sensitivity_layer *layer);

/* Makes the model with the forms that are chosen so far in folders that go with the run, of which
   `path` is the last; quick: by magnitude, for its speed. */
int sensitivity_make(sensitivity_job *job, char path[FOLDER_BYTES], s24_temporary *folder,
                     int quick);
/* Measures the model with the forms that are chosen so far; by --task, larger is better. */
int sensitivity_score(sensitivity_job *job, double *score);
/* The tasks that have one, by index; NULL past the end. */
const char *sensitivity_task(int index);

/* Prints what was found and what is proposed, and writes --recipe and --report. */
int sensitivity_tell(const sensitivity_job *job);
/* The mean output error of a form over the layers that it fits; NaN: none. */
double sensitivity_mean(const sensitivity_job *job, int form);
int sensitivity_write_recipe(const sensitivity_job *job);
int sensitivity_write_page(const sensitivity_job *job);

#endif
