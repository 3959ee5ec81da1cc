// SPDX-License-Identifier: Apache-2.0
/* Declares rows of whole models, measured in bench_model.c and told in bench_model_report.c. */
#ifndef SPARSE24_CLI_BENCH_BENCH_MODEL_H
#define SPARSE24_CLI_BENCH_BENCH_MODEL_H

#include "bench/bench_pair.h"
#include "bench/bench_torch.h"

typedef struct model_row {
    int64_t batch, seq, threads;
    int64_t shortest, tokens; /* of a text, 0: seq; of the batch */
    s24_dtype dtype;
    double dense, sparse;               /* seconds, medians */
    double dense_joules, sparse_joules; /* of a text or an image, as in bench_times */
    bench_latency latency;
    model_residence dense_residence, sparse_residence;
    int64_t sparse_layers, narrow_layers, layers, bytes;
    int64_t dense_narrow_layers; /* in 8 bits, of the dense pass */
    int64_t dense_bytes;         /* of dense weights of 2:4 layers */
    struct {
        const char *name;
        bench_times times;
    } peers[BENCH_TORCH_WAYS];
    int peer_count;
} model_row;

/* torch: with whom we take turns, NULL: nobody. */
void model_print_head(cli_app *cli, const bench_model_plan *plan);
void model_print_row(const model_row *row, const bench_torch *torch);
void model_print_residence(const bench_model_plan *plan, const model_row *row);
int model_write_chart(cli_app *cli, const bench_model_plan *plan, const model_row *rows, int count);
int model_print_json(cli_app *cli, const bench_model_plan *plan, const model_row *rows, int count);

#endif
