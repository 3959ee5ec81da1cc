// SPDX-License-Identifier: Apache-2.0
/*
 * Declares the advisor: how long the 2:4 product and the dense engine's take on this machine for a
 * layer, which is timed; or a model of that, measured once on a grid of shapes, kept on disk, and
 * read for any other shape. One model is for one dtype and number of threads.
 */
#ifndef SPARSE24_CLI_PLAN_PLAN_H
#define SPARSE24_CLI_PLAN_PLAN_H

#include "bench/bench.h"

enum { PLAN_SIZES = 4, PLAN_STEPS = 16, PLAN_CHECKS = 16, PLAN_MOST_TOKENS = 16384 };

typedef struct plan_times {
    double sparse, dense; /* seconds */
} plan_times;

typedef struct plan_point {
    bench_shape shape;
    plan_times times;
} plan_point;

/* Holds the measured numbers of tokens of one K and N, in rising order. */
typedef struct plan_column {
    int count;
    double m[PLAN_STEPS];
    plan_times times[PLAN_STEPS];
} plan_column;

typedef struct plan_model {
    char date[32]; /* when it was measured */
    int64_t threads;
    int64_t few; /* tokens of which kernels compute as many as there are */
    int sizes;
    double size[PLAN_SIZES]; /* the Ks and the Ns of the grid, in rising order */
    plan_column columns[PLAN_SIZES][PLAN_SIZES]; /* [k][n] */
    plan_point checks[PLAN_CHECKS];              /* shapes off the grid, to know the error by */
    int check_count;
    double uneven;     /* what dense takes where K or N fill no whole blocks, by the checks */
    int timed;         /* 1: it is of one layer, whose numbers of tokens were timed: */
    plan_column layer; /* with no grid and no checks */
    s24_dtype dense;   /* what its dense product was of, i8 or, next to integers too, bf16 */
    double error_median, error_worst; /* of the checks' times, or of turns' times, relative */
    const char *flaw; /* why its times are none of a machine without other work; NULL: they are */
} plan_model;

/* ---- plan_model.c ---------------------------------------------------------------------------- */

/* Begins a model without points, of the weights' dtype and the CPU that kernels are chosen for. */
void plan_model_begin(plan_model *model, s24_dtype dtype, uint32_t cpu, int64_t threads);
/* Fills the model from the grid's sizes in rising order and its points: 0 if they are not the grid
   that the model can read (a column without a point, a size that is none of the model's, a time
   that is none). */
int plan_model_add(plan_model *model, const plan_point *point);
int plan_model_finish(plan_model *model);
/* Orders doubles for qsort. */
int plan_compare(const void *a, const void *b);
/* Orders the values, and gives the one in the middle. */
double plan_median(double *values, int count);
plan_times plan_model_predict(const plan_model *model, bench_shape shape);

/* ---- plan_check.c ---------------------------------------------------------------------------- */

/* Says why the model's times are none of a machine without other work; NULL: they may be. */
const char *plan_model_flaw(const plan_model *model);
/* Says the same of a model of more threads, compared with one thread's. */
const char *plan_model_loses(const plan_model *more, const plan_model *one);

/* ---- plan_measure.c -------------------------------------------------------------------------- */

enum { PLAN_LEAST_SIZE = 128 };

/* Measures a model for each of the numbers of threads; no K or N is beyond largest. One whose times
   other work disturbed has a flaw. */
int plan_measure(cli_app *cli, plan_model *models, s24_dtype dtype, const int64_t *threads,
                 int count, int64_t largest);

/* Takes the dense engine of this build for a peer of bench. */
extern const bench_peer plan_dense_engine;

/* ---- plan_layer.c ---------------------------------------------------------------------------- */

/* Times the shape's layer at its number of tokens and at others, on the context's threads. */
int plan_layer(cli_app *cli, plan_model *model, bench_shape shape, s24_dtype dtype);

/* ---- plan_rows.c ----------------------------------------------------------------------------- */

enum { PLAN_ROWS = 12 };

typedef struct plan_row {
    const char *kernel;
    double seconds; /* median */
} plan_row;

/* Holds the rows, the one that is taken first, and what dense takes in turns with them; 0: the
   engine has no such product. */
typedef struct plan_contest {
    plan_row rows[PLAN_ROWS];
    int count;
    double dense;
} plan_contest;

/* Times the kernel rows that a weight of this dtype could take, on the context's threads. */
int plan_rows(cli_app *cli, plan_contest *found, bench_shape shape, s24_dtype dtype);

/* ---- plan_formats.c -------------------------------------------------------------------------- */

enum { PLAN_FORMATS = 7, PLAN_SHARES = 6 };

/* Holds least times, of the rivals' those that were taken in turns with the format's. */
typedef struct plan_format {
    char name[32]; /* as pack's --format has it */
    int count;     /* of shares of zeros, in percent */
    const int *shares;
    double dense, two_four, seconds[PLAN_SHARES];
} plan_format;

/* Gives the share of zeros, in percent, of an index below PLAN_SHARES, of all formats but 6:8. */
int plan_share(int index);
/* Times each format that divides the shape, on the context's threads. */
int plan_formats(cli_app *cli, plan_format formats[PLAN_FORMATS], int *count, bench_shape shape,
                 s24_dtype dtype);
/* Gives the share from which on the format takes less time than that; 0: from none on. */
int plan_format_from(const plan_format *f, double rival);

/* ---- plan_cache.c ---------------------------------------------------------------------------- */

/* Reads the model of this machine, build, dtype and number of threads; 0: there is none, or none
   that can be read. path [CLI_CACHE_PATH]: where it is kept, "" for nowhere. */
int plan_cache_load(cli_app *cli, plan_model *model, char *path, s24_dtype dtype, int64_t threads);
/* Keeps it; 0: it could not be kept, and a note has said so. */
int plan_cache_save(cli_app *cli, const plan_model *model, const char *path, s24_dtype dtype,
                    int64_t threads);

/* ---- plan_report.c --------------------------------------------------------------------------- */

enum { PLAN_MAX_THREADS = 2 };

typedef struct plan_advice {
    bench_shape shape;
    s24_dtype dtype;
    int count; /* of numbers of threads */
    int64_t threads[PLAN_MAX_THREADS];
    plan_model models[PLAN_MAX_THREADS];
    plan_times times[PLAN_MAX_THREADS];
    char path[PLAN_MAX_THREADS][CLI_CACHE_PATH]; /* "": not kept */
    int fresh[PLAN_MAX_THREADS];                 /* it was measured by this call */
    int best;
    plan_contest contest;              /* the kernels' rows and dense, where they were asked for */
    plan_format formats[PLAN_FORMATS]; /* likewise */
    int format_count;
} plan_advice;

/* Asks whether other work disturbed a model: a quiet machine is predicted within a few percent, and
   its turns differ by less. */
int plan_is_disturbed(const plan_model *model);
int plan_print_json(cli_app *cli, const plan_advice *a);
void plan_print_text(cli_app *cli, const plan_advice *a);

#endif
