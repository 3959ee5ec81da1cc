// SPDX-License-Identifier: Apache-2.0
/* Declares what the parts of the oneDNN engine share: dense_onednn.c has weights,
   dense_onednn_run.c products with them, dense_onednn_eight.c what those in 8 bits have besides,
   dense_onednn_engine.c the table of them. */
#ifndef S24_DENSE_DENSE_ONEDNN_H
#define S24_DENSE_DENSE_ONEDNN_H

#include "dense/dense.h"
#include "onednn/onednn.h"
#include "vec/vec.h"

enum { S24I_ONEDNN_SHARES = 1024 /* threads of a context, at most */ };

struct s24i_dense_weight {
    s24_ctx *ctx;
    onednn dnnl;
    dnnl_engine_t engine;
    dnnl_memory_desc_t md; /* {k, n} in oneDNN's layout */
    void *data;
    int64_t n, k;
    dnnl_data_type_t type;
    /* Of s8, whose tokens are u8: what 128 in all of a token's bytes adds to a row's sum, and the
       rows' scales; else NULL. */
    int32_t *offsets;
    float *scales;
};

/* What makes one primitive differ from another, apart from the weight's layout; compared as bytes,
   so zeroed before it is filled. */
typedef struct s24i_onednn_key {
    int64_t m, n, k;
    int32_t type, y_type, activation, accumulate, bias, unused; /* type: the weight's */
} s24i_onednn_key;

s24_status s24i_onednn_check(s24_ctx *ctx, dnnl_status_t status, const char *what);

/* The functions of the library, which the first of a process's contexts bounds to its CPU bits.
   UNSUPPORTED where it is not here. */
s24_status s24i_onednn_open(onednn *dnnl, s24_ctx *ctx);

/* The product's description; weight_md NULL lets oneDNN choose the weight's layout. */
dnnl_status_t s24i_onednn_describe(dnnl_primitive_desc_t *out, const onednn *dnnl,
                                   dnnl_engine_t engine, const s24i_onednn_key *key,
                                   const dnnl_memory_desc_t *weight_md);

/* How many columns of the product a weight can be cut between: those of a block of its layout. */
int64_t s24i_onednn_column_step(const s24i_dense_weight *weight);
/* `count` columns from `first` on, a multiple of the step: where they lie, *md says how. */
void *s24i_onednn_columns(dnnl_memory_desc_t *md, const s24i_dense_weight *weight, int64_t first,
                          int64_t count);

/* A weight with nothing in it yet. */
s24_status s24i_onednn_weight_begin(s24i_dense_weight **out, s24_ctx *ctx, int64_t n, int64_t k,
                                    dnnl_data_type_t type);
/* Rows of w [n, k], f32 or i8, in the weight's layout, which is chosen here. */
s24_status s24i_onednn_lay_out(s24i_dense_weight *weight, s24_ctx *ctx, const s24_dense *w);

/* Rows of tokens as bytes, without stride, with their scales. */
void s24i_onednn_quantise(s24_ctx *ctx, uint8_t *to, float *scales, const s24_dense *x);
/* Sums of rows of tokens and of columns of the weight from (row, col) on, side by side; scales of
   all tokens. They are scaled where they lie on their way to y. */
typedef struct s24i_onednn_sums {
    void *sums;
    const float *scales;
    int64_t row, rows, col, cols;
} s24i_onednn_sums;
void s24i_onednn_end(const s24i_dense_job *job, const s24i_onednn_sums *part, const s24i_vec *vec);

/* Calls of oneDNN run on one thread between these two, on the thread that calls: it would start
   threads of its own, which spin, outlive a fork and end the process where they cannot be made. */
static inline int s24i_onednn_enter(const onednn *dnnl)
{
    const int before = dnnl->most_threads ? dnnl->most_threads() : 1;
    if (dnnl->set_threads && before != 1) dnnl->set_threads(1);
    return before;
}
static inline void s24i_onednn_leave(const onednn *dnnl, int before)
{
    if (dnnl->set_threads && before != 1) dnnl->set_threads(before);
}

/* The library as the runner keeps it, from its first product on. */
s24_status s24i_onednn_runner_open(const onednn **dnnl, s24i_dense_runner *runner, s24_ctx *ctx);

/* The table's functions. */
s24_status s24i_onednn_weight_create(s24i_dense_weight **out, s24_ctx *ctx, const s24_dense *w,
                                     s24_dtype dtype);
int s24i_onednn_takes_eight(s24_ctx *ctx, int64_t cols);
s24_status s24i_onednn_eight_create(s24i_dense_weight **out, s24_ctx *ctx, const s24_quantized *w);
void s24i_onednn_weight_destroy(s24i_dense_weight *weight);
size_t s24i_onednn_weight_bytes(const s24i_dense_weight *weight);
int s24i_onednn_takes_bf16(const s24i_dense_weight *weight);
s24_status s24i_onednn_runner_create(s24i_dense_runner **out, s24_ctx *ctx, int64_t most_x);
void s24i_onednn_runner_destroy(s24i_dense_runner *runner);
s24_status s24i_onednn_run(s24i_dense_runner *runner, s24_ctx *ctx, const s24i_dense_job *job);

#endif
