// SPDX-License-Identifier: Apache-2.0
/* Declares PyTorch's passes next to our models': bench/peers/torch_model.py in a process of its
   own. */
#ifndef SPARSE24_CLI_BENCH_BENCH_TORCH_H
#define SPARSE24_CLI_BENCH_BENCH_TORCH_H

#include "bench/bench_child.h"

enum { BENCH_TORCH_WAYS = 8 };

/* Is a way that PyTorch runs the model: a turn's state. */
typedef struct bench_torch_way {
    struct bench_torch *torch;
    char name[32]; /* "torch-eager" */
} bench_torch_way;

typedef struct bench_torch {
    bench_child child;
    char version[48];
    bench_torch_way ways[BENCH_TORCH_WAYS]; /* that were asked for */
    int way_count;
} bench_torch;

/* Says what they are to run. */
typedef struct bench_torch_shape {
    const s24_model_info *info;
    int64_t kv_heads;
    s24_dtype dtype;
    int64_t batch, seq, threads;
    const char *include, *exclude; /* or NULL */
} bench_torch_shape;

/* Names the ways of PyTorch by index; NULL past the end. */
const char *bench_torch_way_name(int index);
/* Starts the interpreter. A missing one, or one without torch, is an error: it was asked for. ways:
   a list of names. */
int bench_torch_open(cli_app *cli, bench_torch *torch, const char *python, const char *ways);
/* Adds a turn for each way that can run the shape; of the others a note. */
int bench_torch_turns(cli_app *cli, bench_torch *torch, const bench_torch_shape *shape,
                      bench_turn turns[BENCH_TORCH_WAYS], int *count);
void bench_torch_close(bench_torch *torch);

#endif
