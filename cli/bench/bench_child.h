// SPDX-License-Identifier: Apache-2.0
/* Declares processes in which a peer's Python script runs. */
#ifndef SPARSE24_CLI_BENCH_BENCH_CHILD_H
#define SPARSE24_CLI_BENCH_BENCH_CHILD_H

#include "bench/bench.h"

typedef struct bench_child {
    const char *peer, *needs; /* what an error says: "torch", "torch and transformers" */
    const char *python, *script;
    int process; /* 0: none */
    FILE *to, *from;
} bench_child;

/* Starts the interpreter. */
int bench_child_start(cli_app *cli, bench_child *child);
void bench_child_end(bench_child *child);
/* Gets the answer to an order, whose reference is taken. A missing interpreter, or what its script
   calls an error, is one: it was asked for. */
int bench_child_ask(cli_app *cli, bench_child *child, json_t *order, json_t **answer);
/* Says why the peer cannot run, and what would help. */
int bench_child_failed(cli_app *cli, const bench_child *child, const char *why);

#endif
