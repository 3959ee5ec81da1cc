// SPDX-License-Identifier: Apache-2.0
/* What the kinds share whose weights lie on a model's device. */
#ifndef S24_RUN_WEIGHT_WEIGHT_DEVICE_H
#define S24_RUN_WEIGHT_WEIGHT_DEVICE_H

#include "run/weight/weight.h"

typedef struct s24i_device_weight {
    s24i_weight base;
    s24_device *device;
    void *stream; /* that its memory was given in */
    s24_dtype dtype;
    int64_t n, k;
    int lift;                  /* of `packed`, whose columns are then more than k; else 0 */
    s24_device_weight *packed; /* 2:4, or */
    void *dense;               /* [n, k] in the model's dtype, or one of these */
    s24_device_integers *integers;
    s24_device_blocks *blocks;
    float *scale;   /* [n] there, of 8 bits: a factor a row */
    float *lengths; /* [n] here, of 2:4 in 8 bits: a row's length, which bounds what it gives */
    int few;        /* of a language model: dense products of few tokens stream the weight */
} s24i_device_weight;

static inline const s24i_device_weight *s24i_weight_on_device(const s24i_weight *weight)
{
    return (const s24i_device_weight *)weight;
}

/* Is a source's weight, of a language model there, one of integers? No other kind takes it. */
int s24i_device_takes_integers(const s24_model *model, const s24i_source *source);
/* count floats, narrowed to dtype, to a device's memory of at least 256-byte alignment. */
s24_status s24i_device_upload(void *to, s24_ctx *ctx, s24_device *device, s24_dtype dtype,
                              const float *floats, int64_t count);
/* Divides a row by the scale that it returns, with which its largest magnitude becomes the largest
   number of i8 or e4m3. */
float s24i_scale_row(float *row, int64_t count, s24_dtype dtype);
/* The rows' scales of a weight in 8 bits to its device; waits until they are there. */
s24_status s24i_device_put_scales(s24i_device_weight *weight, s24_ctx *ctx, const float *scales);
/* The longest token that what makes 8 bits of it takes; and 16 bytes are the least piece. */
static inline int s24i_device_narrows(int64_t k)
{
    enum { MOST_WIDTH = 8192 };
    return k % 16 == 0 && k <= MOST_WIDTH;
}
/* Is it blocks? Those have neither tiles to choose from nor norms to take in. */
static inline int s24i_weight_is_blocks(const s24i_weight *weight)
{
    return s24i_weight_on_device(weight)->blocks != NULL;
}
/* The dense form of a 2:4 weight or one of blocks, in the device's memory. */
s24_status s24i_device_widen(s24i_weight **out, s24_ctx *ctx, const s24i_weight *sparse,
                             void *stream);

void s24i_device_weight_clear(s24i_weight *weight, s24_ctx *ctx);
int64_t s24i_device_weight_bytes(const s24i_weight *weight);
size_t s24i_device_weight_work_bytes(const s24i_weight *weight, const s24_ctx *ctx, int64_t rows);
/* A 2:4 product. */
s24_status s24i_device_weight_run(const s24i_weight *weight, s24_ctx *ctx,
                                  const s24i_product_job *product);
/* One of blocks. */
s24_status s24i_device_blocks_run(const s24i_weight *weight, s24_ctx *ctx,
                                  const s24i_product_job *product);
/* A dense product of a matrix there. */
s24_status s24i_device_dense_run(const s24i_device_weight *weight, s24_ctx *ctx,
                                 const s24_dense *matrix, const s24i_product_job *product);
/* What all of their kinds are filled with; a row adds its name, way, takes, make and run. */
#define S24I_DEVICE_WEIGHT                                                                         \
    .size = sizeof(s24i_device_weight), .clear = s24i_device_weight_clear,                         \
    .bytes = s24i_device_weight_bytes, .work_bytes = s24i_device_weight_work_bytes

#endif
