// SPDX-License-Identifier: Apache-2.0
/*
 * Declares products on a GPU, and the vendor's libraries that they are compared with: the driver,
 * by which streams and events are had without linking CUDA, and what a peer there is.
 */
#ifndef SPARSE24_CLI_BENCH_GPU_BENCH_GPU_H
#define SPARSE24_CLI_BENCH_GPU_BENCH_GPU_H

#include "bench/bench.h"
#include "sparse24/device.h"

/* Holds CUDA's driver: NULL functions where it is not. Results: 0 is success. */
typedef struct gpu_driver {
    void *handle, *context, *stream, *events[2];
    int device;
    int (*stream_synchronize)(void *stream);
    int (*event_record)(void *event, void *stream);
    int (*event_synchronize)(void *event);
    int (*event_elapsed)(float *ms, void *from, void *to);
    int (*stream_destroy)(void *stream);
    int (*event_destroy)(void *event);
    int (*context_release)(int device);
    int (*capture_begin)(void *stream, int mode);
    int (*capture_end)(void *stream, void **captured);
    int (*graph_make)(void **graph, void *captured, unsigned long long flags);
    int (*graph_launch)(void *graph, void *stream);
    int (*graph_destroy)(void *graph);
    int (*captured_destroy)(void *captured);
} gpu_driver;

/* Opens it; 0: done. */
int gpu_driver_open(gpu_driver *driver, int device);
void gpu_driver_close(gpu_driver *driver);
/* Times one of `runs` runs over rotating buffers, in seconds; negative when one failed. */
double gpu_time(gpu_driver *driver, int runs, int (*run)(void *state, int set), void *state);
/* Records the same runs as a graph, so that they cost the host one launch; NULL when they cannot be
   one. */
void *gpu_record(gpu_driver *driver, int runs, int (*run)(void *state, int set), void *state);
/* Times one of the graph's runs, in seconds. */
double gpu_play(gpu_driver *driver, void *graph, int runs);

typedef struct gpu_problem {
    gpu_driver *driver;
    bench_shape shape;
    s24_dtype dtype; /* of x and w */
    s24_dtype y_dtype;
    int sets;           /* of operands, so that none stays in a cache */
    void **x, **w, **y; /* device memory: [m, k], [n, k] 2:4 with its zeros, [m, n] */
    void *work;
    size_t work_bytes;
    /* More of it; NULL: none is left. Freed with the problem. */
    void *(*more)(void *user, size_t bytes);
    void *user;
} gpu_problem;

/* Gives the number that library_types.h has for a dtype. */
int gpu_type(s24_dtype dtype);

/* Is a library: its best algorithm is searched for when the product is prepared. */
struct gpu_bench;
typedef struct gpu_peer {
    const char *name;
    void *(*open)(const struct gpu_bench *bench, char *version, size_t bytes);
    void (*close)(void *library);
    void *(*prepare)(void *library, const gpu_problem *problem);
    int (*run)(void *product, int set);
    void (*release)(void *product);
} gpu_peer;

/* Gives the rows of bench_gpu_peers.def; NULL past the end. */
const gpu_peer *gpu_peer_at(int index);

/* ---- a run of bench: bench_gpu.c ------------------------------------------------------------- */

enum { GPU_MAX_PEERS = 4, GPU_MAX_SETS = 40, GPU_MAX_BLOCKS = 320 };

typedef struct gpu_library {
    const gpu_peer *peer;
    void *library;
    char version[48];
} gpu_library;

typedef struct gpu_bench {
    cli_app *cli;
    const bench_plan *plan;
    s24_device *device;
    gpu_driver driver;
    gpu_library libraries[GPU_MAX_PEERS];
    int library_count;
    void *blocks[GPU_MAX_BLOCKS]; /* device memory of the cell */
    int block_count;
} gpu_bench;

typedef struct gpu_cell {
    gpu_bench *bench;
    gpu_problem problem;
    void *x[GPU_MAX_SETS], *w[GPU_MAX_SETS], *y[GPU_MAX_SETS];
    const char *scheme; /* of weights in integers, or NULL; w is then what they stand for */
    s24_device_weight *weights[GPU_MAX_SETS];
    s24_device_integers *integers[GPU_MAX_SETS];
    void *share; /* s24_device_linear's work memory */
    size_t share_bytes;
    const char *tile; /* NULL: the library's choice */
} gpu_cell;

typedef struct gpu_contestant {
    int (*run)(void *state, int set);
    void *state;
    int runs;    /* per window */
    void *graph; /* of it; NULL: they are enqueued one by one */
    double samples[BENCH_MAX_ROUNDS];
    double joules; /* of a run, as in bench_times */
} gpu_contestant;

/* Times everybody in turns: a window after a pause, in rounds; the samples end up sorted. */
int gpu_interleave(gpu_bench *b, gpu_contestant *all, int count, int64_t rounds);
double gpu_median(const gpu_contestant *who, int64_t rounds);

/* Opens the device, and the driver that times it; the latter is the caller's to close where it has
   a handle. */
int gpu_open(gpu_bench *b);
/* Closes the driver and takes the rows: prints them for --json where `code` is CLI_OK. Returns
   `code`, or why they cannot be printed. */
int gpu_close(gpu_bench *b, json_t *rows, int code);

/* ---- device memory of what is timed: bench_gpu_cell.c ---------------------------------------- */

/* Allocates for the bench, until gpu_release; NULL: none is left. */
void *gpu_more(void *bench, size_t bytes);
void gpu_release(gpu_bench *b);
/* Fills device memory with random values, the sum of two uniform ones, of i8 times 64: a piece
   again and again. */
s24_status gpu_fill(gpu_bench *b, void *to, int64_t count, s24_dtype dtype, uint64_t seed);

/* ---- a shape's operands and the check of its outputs: bench_gpu_cell.c ----------------------- */

/* Rounds a set's 2:4 W to the cell's scheme: bench_gpu_integers.c. */
s24_status gpu_cell_round(gpu_cell *c, int set);

s24_status gpu_cell_fill(gpu_cell *c, bench_shape shape, s24_dtype dtype);
void gpu_cell_free(gpu_cell *c);
/* Runs our product; with the cell's `tile` if it names one. */
int gpu_run_ours(void *cell, int set);
/* Checks the outputs of one run, all bits set before, against sums in double: 256 of them, the last
   row's and column's among them. CLI_NO with a sentence in wrong, not yet said, if they differ. */
int gpu_check(gpu_cell *c, const gpu_contestant *who, const char *name, char *wrong, size_t bytes);

/* ---- tiles, measured: bench_gpu_tune.c ------------------------------------------------------- */

/* Times every tile for the cell, and keeps the best one for it in the cache on disk. */
int gpu_tune(gpu_cell *c, bench_row *row);

int bench_gpu_products(cli_app *cli, bench_table *table, const bench_plan *plan, const char *peers);

#endif
