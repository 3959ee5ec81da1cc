// SPDX-License-Identifier: Apache-2.0
/* Declares rows of texts that go on, measured in bench_generate.c and told in
   bench_generate_report.c. */
#ifndef SPARSE24_CLI_BENCH_BENCH_GENERATE_H
#define SPARSE24_CLI_BENCH_BENCH_GENERATE_H

#include "bench/bench_decoder.h"
#include "bench/bench_pair.h"

typedef struct generate_side {
    double step, prefill;   /* seconds, medians: of a step of all texts, of all prompts */
    int64_t step_bytes;     /* of weights, and of keys and values, on average; 0: unknown */
    int64_t resident_bytes; /* private ones of model, session and cache; -1: unknown */
    double limit_share;     /* of what memory gave in the same run */
} generate_side;

typedef struct generate_row {
    int64_t batch, threads;
    s24_dtype dtype;
    const char *form; /* the dtype's name, or that of the integers' scheme */
    generate_side dense, sparse;
    int64_t sparse_layers, layers;
    double read; /* bytes per second that memory gave between their turns */
    int has_peer;
    generate_side peer;
    char peer_type[16]; /* of its matrices */
    int alone;          /* there is no dense side */
    int64_t *ids;       /* that 2:4 has after the first prompt */
    int64_t id_count;
} generate_row;

void generate_print_head(const bench_generate_plan *plan, const bench_decoder *peer);
void generate_print_row(const generate_row *row, const bench_decoder *peer);
int generate_write_chart(cli_app *cli, const bench_generate_plan *plan, const generate_row *rows,
                         int count);
int generate_print_json(cli_app *cli, const bench_generate_plan *plan, const bench_decoder *peer,
                        const generate_row *rows, int count);

#endif
