// SPDX-License-Identifier: Apache-2.0
/*
 * The border between libsparse24 and a device's plugin (libsparse24-cuda): a table of functions
 * that the plugin's one symbol returns. The plugin is opened at run time and links nothing of
 * libsparse24, so both are built from this header and compare its number.
 *
 * Every function that can fail returns a status and then leaves a sentence in `error`. `stream` is
 * the device's own handle (a cudaStream_t), NULL its default stream; work is enqueued there and
 * not waited for, unless said. Sizes have been checked by src/device.
 */
#ifndef S24_DEVICE_DEVICE_TABLE_H
#define S24_DEVICE_DEVICE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "sparse24/sparse24.h"

#define S24I_DEVICE_ABI    11
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

/* The table: a member for each row of device_ops.def. */
typedef struct s24i_device_table {
    int abi;
#define CALL(result, name, parameters) result(*name) parameters;
#define JOB(name, type)                                                                            \
    s24_status (*name)(s24i_device * device, const type *job, void *stream,                        \
                       s24i_device_error *error);
#include "device/device_ops.def"
    const s24i_device_train_table *train;
} s24i_device_table;

#endif
