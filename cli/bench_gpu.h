// SPDX-License-Identifier: Apache-2.0
/*
 * Products on a GPU, beside the vendor's libraries: the driver, by which streams and events are had
 * without linking CUDA, and what a peer there is.
 */
#ifndef SPARSE24_CLI_BENCH_GPU_H
#define SPARSE24_CLI_BENCH_GPU_H

#include "bench.h"
#include "sparse24/device.h"

/* CUDA's driver: NULL functions where it is not. Results: 0 is success. */
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
} gpu_driver;

/* 0: done. */
int gpu_driver_open(gpu_driver *driver, int device);
void gpu_driver_close(gpu_driver *driver);
/* Seconds of one of `runs` runs over rotating buffers, negative when one failed. */
double gpu_time(gpu_driver *driver, int runs, int (*run)(void *state, int set), void *state);

typedef struct gpu_problem {
    gpu_driver *driver;
    bench_shape shape;
    s24_dtype dtype;    /* bf16 or f16, of x, w and y */
    int sets;           /* of operands, so that none stays in a cache */
    void **x, **w, **y; /* device memory: [m, k], [n, k] 2:4 with its zeros, [m, n] */
    void *work;
    size_t work_bytes;
    /* More of it; NULL: none is left. Freed with the problem. */
    void *(*more)(void *user, size_t bytes);
    void *user;
} gpu_problem;

/* The best algorithm is searched for when the product is prepared. */
typedef struct gpu_peer {
    const char *name;
    void *(*open)(char *version, size_t bytes);
    void (*close)(void *library);
    void *(*prepare)(void *library, const gpu_problem *problem);
    int (*run)(void *product, int set);
    void (*release)(void *product);
} gpu_peer;

/* The rows of bench_gpu_peers.def; NULL past the end. */
const gpu_peer *gpu_peer_at(int index);

int bench_gpu_products(cli_app *cli, bench_table *table, const bench_plan *plan, const char *peers);

#endif
