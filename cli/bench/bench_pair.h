// SPDX-License-Identifier: Apache-2.0
/* Declares the models that are timed against each other: the same 2:4 weights run dense and 2:4. */
#ifndef SPARSE24_CLI_BENCH_BENCH_PAIR_H
#define SPARSE24_CLI_BENCH_BENCH_PAIR_H

#include "bench/bench.h"

/* Holds what it takes to have a model: from its files, in the page cache, to ready for a
   session. */
typedef struct model_residence {
    double seconds;
    int64_t bytes; /* of private memory; -1: unknown */
} model_residence;

typedef struct bench_pair {
    s24_model *dense, *sparse; /* dense NULL: 2:4 is timed alone */
    s24_model_info info;       /* of the sparse one */
    model_residence dense_residence, sparse_residence;
} bench_pair;

/* Reads the private memory of this process that is resident, -1 where nobody tells. */
int64_t bench_private_bytes(void);

typedef int bench_source_fn(cli_app *cli, const void *plan, const char *folder);
/* Runs `run` with the folder of 2:4 weights that the source names or that is made of it; NULL: it
   is a preset. */
int bench_source_open(cli_app *cli, const bench_source *source, bench_source_fn *run,
                      const void *plan);
/* Loads both, or the 2:4 one alone, their layers in the dtype or as integers of the scheme if there
   is one, the head as --quantize-head says; what there is after an error is to be freed too. */
s24_status bench_pair_load(bench_pair *m, cli_app *cli, const bench_source *source,
                           const char *folder, s24_dtype dtype, const char *scheme);
void bench_pair_free(bench_pair *m);

#endif
