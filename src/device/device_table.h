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
#ifndef S24_DEVICE_DEVICE_TABLE_H
#define S24_DEVICE_DEVICE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "sparse24/sparse24.h"

#define S24I_DEVICE_ABI    10
#define S24I_DEVICE_SYMBOL "s24_device_table_cuda"

typedef struct s24i_device s24i_device;
typedef struct s24i_device_train_table s24i_device_train_table; /* device/device_train_table.h */

typedef struct s24i_device_error {
    char text[256];
} s24i_device_error;

/*
 * Layer norms around a product (device.h): with x_moments x is gamma·h of one that is not done yet,
 * and there is no bias, residual or scale, and at most a GELU; with y_moments y is what the next one
 * is of, and there is a residual, no scale and no activation. Never both.
 */
typedef struct s24i_device_linear_norm {
    float eps;
    const float *x_moments, *x_terms;
    const float *residual_moments;
    const void *residual_gamma, *residual_beta, *y_gamma;
    float *y_moments;
} s24i_device_linear_norm;

/*
 * y[m,n] = activation(x[m,k]·w[n,k]ᵀ·x_scale[m]·w_scale[n] + bias[n]) + residual[m,n]: x and w of
 * `dtype`, w in the device's order, y and residual of y_dtype, the bias too where that is a
 * floating point dtype, else f32. The tile is the plugin's choice where negative.
 */
typedef struct s24i_device_linear {
    s24_dtype dtype, y_dtype;
    int64_t m, n, k;
    const void *w, *x, *bias, *residual;
    const float *x_scale, *w_scale; /* or NULL */
    void *y;
    int64_t ldx, ldy, ld_residual;
    s24_activation activation;
    void *work; /* NULL, or work_bytes bytes whose first use found zeros */
    size_t work_bytes;
    int tile;    /* one of the plugin's tiles */
    int columns; /* x is [k, m], y and residual [n, m]; 16-bit dtypes */
    /* The weight's, NULL at first: what another backend makes of it; freed by linear_release. */
    void **vendor;
    s24i_device_linear_norm norm; /* of 16-bit dtypes and an n that 8 divides */
} s24i_device_linear;

/* What a job found in dense memory, as row·k + column; −1 where there is none. */
typedef struct s24i_device_report {
    int64_t bad_group;   /* the first element of the first group along k that is not 2:4 */
    int64_t nonfinite;   /* the first NaN or Inf */
    int64_t beyond;      /* the first element that is beyond its dtype when scaled (MVUE24) */
    int64_t bad_along_n; /* the first of four rows of a column that are not 2:4 (a pair) */
} s24i_device_report;

/* dense [n, k] of `dtype` to or from the device's order. */
typedef struct s24i_device_weight {
    s24_dtype dtype;
    int64_t n, k, ld;
    void *packed, *dense;
    void *packed_t; /* the transpose's or NULL; 16 bits, selected by tiles, a mask or strictly */
    /* Strict and magnitude for every dtype, the other ones for f16 and bf16. */
    s24_select select;
    const uint8_t *mask; /* [n, k] device memory */
    uint64_t seed;
    s24i_device_report *report; /* device memory, written */
} s24i_device_weight;

/* y[m,n] = activation(x[m,k]·w[n,k]ᵀ + bias[n]) + residual[m,n], dense, all of `dtype`; no residual
   behind an activation. */
typedef struct s24i_device_dense {
    s24_dtype dtype;
    int64_t m, n, k;
    const void *w, *x, *bias, *residual;
    void *y;
    int64_t ldx, ldy, ld_residual;
    s24_activation activation;
    void *work;
    size_t work_bytes;
} s24i_device_dense;

/* y = norm(s)·gamma + beta by rows of `width`, without stride; y NULL: not computed. s = x + residual, with ids words[id] in
   place of x, + position_rows[position] + type_rows[type] (types NULL: 0), where there are such
   rows. */
typedef struct s24i_device_norm {
    s24_dtype dtype;
    int64_t rows, width;
    const void *x, *residual; /* NULL: none */
    void *y, *sum;            /* sum: s, may be x or residual; or NULL */
    const void *gamma, *beta;
    float eps;
    const int32_t *ids, *positions, *types;
    const void *words, *position_rows, *type_rows;
    void
        *narrow; /* [rows, width] of narrow_dtype: y before it is rounded, as quantise's; or NULL */
    float *scales;
    s24_dtype narrow_dtype; /* i8 or e4m3 */
} s24i_device_norm;

/* y [rows, width] of i8 or e4m3 = x / scales[row], scales[row] = the largest |x| of the row over the
   dtype's largest number. */
typedef struct s24i_device_quantise {
    s24_dtype dtype, to;
    int64_t rows, width, ldx; /* width up to 8192 */
    const void *x;
    void *y;
    float *scales;
} s24i_device_quantise;

/* context = softmax(q·kᵀ/√d + mask)·v by text and head; q, k and v side by side in rows of qkv. A
   tile is a text and the first of `queries` of its tokens. */
typedef struct s24i_device_attention {
    s24_dtype dtype;
    int64_t tokens, width, heads;
    const void *qkv;
    int64_t ld_qkv;
    void *context;
    int64_t ld_context;
    const int32_t *offsets; /* [texts + 1] */
    const int32_t *tiles;   /* [tile_count, 2] */
    int64_t tile_count;
    int queries;
    const uint8_t *mask; /* [tokens] or NULL */
} s24i_device_attention;

/* context = softmax(q·kᵀ/√d + q·rel_h[y − v + side − 1] + q·rel_w[x − u + side − 1])·v of query (y, x)
   and key (v, u), by head, over each image's grid² tokens or each window of it, which are `side` wide;
   a window's places beyond the grid have the biases for keys and values. */
typedef struct s24i_device_attention_grid {
    s24_dtype dtype;
    int64_t images, grid, window, width, heads; /* window 0: the whole grid */
    const void *qkv;                            /* [images·grid², 3·width] */
    const void *bias;                           /* [3·width] */
    const void *rel_h, *rel_w;                  /* [2·side − 1, d] */
    void *context;
    int64_t ld_qkv, ld_context;
} s24i_device_attention_grid;

typedef enum s24i_device_pooling {
    S24I_DEVICE_POOL_MEAN = 0,
    S24I_DEVICE_POOL_FIRST,
    S24I_DEVICE_POOL_MAX
} s24i_device_pooling;

/* y [texts, width] f32 */
typedef struct s24i_device_pool {
    s24_dtype dtype;
    int64_t texts, width;
    const void *x;
    const int32_t *offsets;
    const uint8_t *mask;
    int pooling, normalise;
    float *y;
} s24i_device_pool;

/* y[o, row] = x[row]·w[o] + bias[o] in f32, or y[row, o]; outputs 0: y[row, width] = x. */
typedef struct s24i_device_head {
    s24_dtype dtype;
    int64_t rows, width, outputs, ldx;
    const void *x, *w;
    const float *bias;
    float *y;
    int rows_first;
} s24i_device_head;

/* y [images · positions, row] = the patches of images [images, channels, image, image], rounded:
   of each image `first` rows of zeros, then a row a patch, and zeros behind channels · patch². */
typedef struct s24i_device_unfold {
    s24_dtype dtype;
    int64_t images, channels, image, patch, first, row;
    const float *pixels;
    void *y;
} s24i_device_unfold;

/* dense [n, k] of any dtype that can be 2:4 to a mask or to canonical memory, all on the device. */
typedef struct s24i_device_select {
    s24_dtype dtype;
    int64_t n, k, ld;
    const void *dense;
    s24_select select;          /* of a mask: magnitude or tiles; else anything but tiles */
    const uint8_t *mask;        /* [n, k] */
    uint64_t seed;              /* MVUE24 of f32, f16 and bf16 */
    uint8_t *chosen;            /* [n, k], or NULL and */
    void *values;               /* [n, k/2] */
    uint8_t *indices;           /* [n, ceil(k/8)] */
    s24i_device_report *report; /* written */
} s24i_device_select;

/* dst[r, c] = mask[r, c] ? src[r, c] : 0, elements of `bytes`. */
typedef struct s24i_device_masking {
    size_t bytes;
    int64_t rows, cols, ld_dst, ld_src;
    void *dst;
    const void *src;
    const uint8_t *mask;
} s24i_device_masking;

typedef struct s24i_device_table {
    int abi;
    /* vendor: products by the vendor's library instead of the plugin's own. */
    s24_status (*open)(s24i_device **out, int index, int vendor, s24i_device_error *error);
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
    /* Tiles by index: "256x192", or one that is shared by steps along k, "256x192/k", or in clusters
       of blocks, "64x8/2"; NULL past the end. */
    const char *(*tile_name)(int index);
    /* Which tile a product would get, −1: none. */
    int (*linear_choose)(const s24i_device *device, const s24i_device_linear *job);
    size_t (*linear_work_bytes)(const s24i_device *device, s24_dtype dtype);
    s24_status (*linear)(s24i_device *device, const s24i_device_linear *job, void *stream,
                         s24i_device_error *error);
    void (*linear_release)(s24i_device *device, void *vendor);
    s24_status (*weight_pack)(s24i_device *device, const s24i_device_weight *job, void *stream,
                              s24i_device_error *error);
    s24_status (*weight_unpack)(s24i_device *device, const s24i_device_weight *job, void *stream,
                                s24i_device_error *error);
    /* dense_search measures the proposed algorithms and keeps the fastest for products of this
       shape and about as many tokens; y is overwritten. It waits, and gives the seconds. */
    s24_status (*dense)(s24i_device *device, const s24i_device_dense *job, void *stream,
                        s24i_device_error *error);
    s24_status (*dense_search)(s24i_device *device, const s24i_device_dense *job, double *seconds,
                               void *stream, s24i_device_error *error);
    s24_status (*norm)(s24i_device *device, const s24i_device_norm *job, void *stream,
                       s24i_device_error *error);
    /* Queries of a tile for that many tokens and heads of d; 0: there is no such attention. */
    int (*attention_queries)(int64_t d, int64_t tokens, int64_t heads);
    s24_status (*attention)(s24i_device *device, const s24i_device_attention *job, void *stream,
                            s24i_device_error *error);
    s24_status (*pool)(s24i_device *device, const s24i_device_pool *job, void *stream,
                       s24i_device_error *error);
    s24_status (*head)(s24i_device *device, const s24i_device_head *job, void *stream,
                       s24i_device_error *error);
    s24_status (*stream_create)(s24i_device *device, void **out, s24i_device_error *error);
    void (*stream_destroy)(s24i_device *device, void *stream);
    /* What is enqueued between begin and end becomes a graph instead of being run. end ends the
       capture in any case; out is NULL when it failed. */
    s24_status (*graph_begin)(s24i_device *device, void *stream, s24i_device_error *error);
    s24_status (*graph_end)(s24i_device *device, void **out, void *stream,
                            s24i_device_error *error);
    s24_status (*graph_launch)(s24i_device *device, void *graph, void *stream,
                               s24i_device_error *error);
    void (*graph_destroy)(s24i_device *device, void *graph);
    s24_status (*pinned_alloc)(s24i_device *device, void **out, size_t bytes,
                               s24i_device_error *error);
    void (*pinned_free)(s24i_device *device, void *memory);
    /* The time between the two in a stream, on the device's clock. The second waits. */
    s24_status (*timer_start)(s24i_device *device, void *stream, s24i_device_error *error);
    s24_status (*timer_stop)(s24i_device *device, double *seconds, void *stream,
                             s24i_device_error *error);
    s24_status (*select)(s24i_device *device, const s24i_device_select *job, void *stream,
                         s24i_device_error *error);
    s24_status (*mask_apply)(s24i_device *device, const s24i_device_masking *job, void *stream,
                             s24i_device_error *error);
    s24_status (*unfold)(s24i_device *device, const s24i_device_unfold *job, void *stream,
                         s24i_device_error *error);
    /* Is there attention of heads of d over squares of side²? */
    int (*attention_grid_takes)(int64_t d, int64_t side);
    s24_status (*attention_grid)(s24i_device *device, const s24i_device_attention_grid *job,
                                 void *stream, s24i_device_error *error);
    s24_status (*quantise)(s24i_device *device, const s24i_device_quantise *job, void *stream,
                           s24i_device_error *error);
    const s24i_device_train_table *train;
} s24i_device_table;

#endif
