// SPDX-License-Identifier: Apache-2.0
/* Declares another engine's decoding next to ours, in a process of its own: llama.cpp's on the CPU
   (bench/peers/llamacpp.py), PyTorch's on a GPU (bench/peers/torch_static.py). */
#ifndef SPARSE24_CLI_BENCH_BENCH_DECODER_H
#define SPARSE24_CLI_BENCH_BENCH_DECODER_H

#include "bench/bench_child.h"

typedef struct bench_decoder {
    bench_child child;
    char version[48];
} bench_decoder;

/* Says what it is to run. */
typedef struct bench_decoder_shape {
    const s24_model_info *info;
    int64_t kv_heads;
    const char *form; /* a dtype, or a scheme of integers */
    int64_t batch, threads, prompt, new_tokens;
} bench_decoder_shape;

/* "llama.cpp", or of a GPU "torch". */
const char *bench_decoder_name(int on_gpu);
/* Starts the interpreter. A missing one, or one without the engine, is an error: it was asked
   for. */
int bench_decoder_open(cli_app *cli, bench_decoder *peer, const char *python);
/* Makes it ready; *type is what its matrices are then, empty where it has nothing of the kind, of
   which there is a note. */
int bench_decoder_prepare(cli_app *cli, bench_decoder *peer, const bench_decoder_shape *shape,
                          char type[16], int64_t *resident_bytes);
/* Runs prompts and steps once: seconds of all prompts, and of one step. */
int bench_decoder_turn(cli_app *cli, bench_decoder *peer, const bench_decoder_shape *shape,
                       double *prefill, double *step);
void bench_decoder_close(bench_decoder *peer);

#endif
