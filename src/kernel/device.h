// SPDX-License-Identifier: Apache-2.0
/*
 * The border between libsparse24 and a device's plugin (libsparse24-cuda): a table of functions
 * that the plugin's one symbol returns. The plugin is opened at run time and links nothing of
 * libsparse24, so both are built from this header and compare its number.
 *
 * Every function that can fail returns a status and then leaves a sentence in `error`. `stream` is
 * the device's own handle (a cudaStream_t), NULL its default stream; work is enqueued there and
 * not waited for, unless said. Sizes have been checked by src/op.
 */
#ifndef S24_KERNEL_DEVICE_H
#define S24_KERNEL_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "sparse24/sparse24.h"

#define S24I_DEVICE_ABI    1
#define S24I_DEVICE_SYMBOL "s24_device_table_cuda"

typedef struct s24i_device s24i_device;

typedef struct s24i_device_error {
    char text[256];
} s24i_device_error;

/* y[m,n] = activation(x[m,k]·w[n,k]ᵀ + bias[n]) + residual[m,n], all of `dtype`, w in the device's
   order. The tile and the cut are the plugin's choice where they are negative. */
typedef struct s24i_device_linear {
    s24_dtype dtype;
    int64_t m, n, k;
    const void *w, *x, *bias, *residual;
    void *y;
    int64_t ldx, ldy, ld_residual;
    s24_activation activation;
    void *work; /* NULL, or work_bytes bytes whose first use found zeros */
    size_t work_bytes;
    int tile; /* a row of the plugin's tiles */
    int cut;  /* 1: blocks share the tiles of the last wave, by steps along k; 0: they do not */
} s24i_device_linear;

/* dense [n, k] of `dtype` to or from the device's order. */
typedef struct s24i_device_weight {
    s24_dtype dtype;
    int64_t n, k, ld;
    void *packed, *dense;
    int magnitude; /* prunes; else dense must be 2:4 */
    /* Device memory for two int64, written: row·k + column of the first element of the first group
       that is not 2:4, and of the first NaN or Inf; −1 where there is none. */
    int64_t *report;
} s24i_device_weight;

typedef struct s24i_device_table {
    int abi;
    s24_status (*open)(s24i_device **out, int index, s24i_device_error *error);
    void (*close)(s24i_device *device);
    /* "NVIDIA H200, compute capability 9.0, 132 multiprocessors, CUDA 13.0 (driver 13.0)" */
    const char *(*text)(const s24i_device *device);
    s24_status (*alloc)(s24i_device *device, void **out, size_t bytes, void *stream,
                        s24i_device_error *error);
    s24_status (*release)(s24i_device *device, void *memory, void *stream,
                          s24i_device_error *error);
    /* Either side may be host memory; only pinned host memory makes it asynchronous. */
    s24_status (*copy)(s24i_device *device, void *to, const void *from, size_t bytes, void *stream,
                       s24i_device_error *error);
    s24_status (*clear)(s24i_device *device, void *memory, size_t bytes, void *stream,
                        s24i_device_error *error);
    s24_status (*wait)(s24i_device *device, void *stream, s24i_device_error *error);
    /* The rows of tiles, by index: "256x192"; NULL past the end. */
    const char *(*tile_name)(int index);
    /* Which tile and cut a product would get. */
    void (*linear_choose)(const s24i_device *device, const s24i_device_linear *job, int *tile,
                          int *cut);
    size_t (*linear_work_bytes)(const s24i_device *device, s24_dtype dtype);
    s24_status (*linear)(s24i_device *device, const s24i_device_linear *job, void *stream,
                         s24i_device_error *error);
    s24_status (*weight_pack)(s24i_device *device, const s24i_device_weight *job, void *stream,
                              s24i_device_error *error);
    s24_status (*weight_unpack)(s24i_device *device, const s24i_device_weight *job, void *stream,
                                s24i_device_error *error);
} s24i_device_table;

#endif
