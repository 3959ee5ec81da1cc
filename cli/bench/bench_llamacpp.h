// SPDX-License-Identifier: Apache-2.0
/* Declares llama.cpp's decoding next to ours: bench/peers/llamacpp.py in a process of its own. */
#ifndef SPARSE24_CLI_BENCH_BENCH_LLAMACPP_H
#define SPARSE24_CLI_BENCH_BENCH_LLAMACPP_H

#include "bench/bench_child.h"

typedef struct bench_llamacpp {
    bench_child child;
    char version[48];
} bench_llamacpp;

/* Says what it is to run. */
typedef struct bench_llamacpp_shape {
    const s24_model_info *info;
    int64_t kv_heads;
    const char *form; /* a dtype, or a scheme of integers */
    int64_t batch, threads, prompt, new_tokens;
} bench_llamacpp_shape;

/* Starts the interpreter. A missing one, or one without llama_cpp, is an error: it was asked
   for. */
int bench_llamacpp_open(cli_app *cli, bench_llamacpp *peer, const char *python);
/* Makes it ready; *type is what its matrices are then, empty where it has nothing of the kind, of
   which there is a note. */
int bench_llamacpp_prepare(cli_app *cli, bench_llamacpp *peer, const bench_llamacpp_shape *shape,
                           char type[16], int64_t *resident_bytes);
/* Runs prompts and steps once: seconds of all prompts, and of one step. */
int bench_llamacpp_turn(cli_app *cli, bench_llamacpp *peer, const bench_llamacpp_shape *shape,
                        double *prefill, double *step);
void bench_llamacpp_close(bench_llamacpp *peer);

#endif
