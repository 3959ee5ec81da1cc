// SPDX-License-Identifier: Apache-2.0
/* Rounds a 2:4 weight on a GPU to integers with scales, by way of the host. */
#include "bench/gpu/bench_gpu.h"

/* The weight as floats in the host's memory, by way of `raw`. */
static s24_status fetch(gpu_cell *c, float *to, void *raw, int set)
{
    const gpu_problem *p = &c->problem;
    s24_ctx *ctx = c->bench->cli->ctx;
    const int64_t count = p->shape.n * p->shape.k;
    s24_status status =
        s24_device_copy(ctx, c->bench->device, raw, p->w[set],
                        (size_t)count * s24_dtype_bytes(p->dtype), p->driver->stream);
    if (status == S24_OK) status = s24_device_wait(ctx, c->bench->device, p->driver->stream);
    return status == S24_OK ? s24_convert(to, S24_F32, raw, p->dtype, count) : status;
}

static s24_status upload(gpu_cell *c, int set, const s24_matrix *m)
{
    gpu_bench *b = c->bench;
    s24_ctx *ctx = b->cli->ctx;
    const gpu_problem *p = &c->problem;
    s24_quantized q = {.rows = s24_matrix_rows(m),
                       .cols = s24_matrix_cols(m),
                       .bits = s24_matrix_bits(m),
                       .group = s24_matrix_group(m),
                       .indices = s24_matrix_indices(m),
                       .scales = s24_matrix_scales(m)};
    void *values = s24_ctx_alloc(ctx, (size_t)(q.rows * q.cols / 2));
    if (!values) return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory for integers");
    const s24_dense w = {p->w[set], p->dtype, q.rows, q.cols, 0};
    q.values = values;
    s24_status status = s24_matrix_to_quantized(values, ctx, m);
    if (status == S24_OK)
        status =
            s24_device_integers_create(&c->integers[set], ctx, b->device, &q, p->driver->stream);
    if (status == S24_OK)
        status =
            s24_device_integers_to_dense(ctx, b->device, &w, c->integers[set], p->driver->stream);
    s24_ctx_free(ctx, values);
    return status;
}

s24_status gpu_cell_round(gpu_cell *c, int set)
{
    s24_ctx *ctx = c->bench->cli->ctx;
    const int64_t n = c->problem.shape.n, k = c->problem.shape.k;
    const s24_dense floats = {s24_ctx_alloc(ctx, (size_t)(n * k) * sizeof(float)), S24_F32, n, k,
                              0};
    void *raw = s24_ctx_alloc(ctx, (size_t)(n * k) * 2);
    s24_matrix *matrix = NULL, *rounded = NULL;
    s24_status status = floats.data && raw
                            ? fetch(c, floats.data, raw, set)
                            : s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory for a weight");
    if (status == S24_OK) status = s24_matrix_create(&matrix, ctx, &floats, NULL);
    if (status == S24_OK) status = s24_matrix_quantize(&rounded, ctx, matrix, c->scheme);
    if (status == S24_OK) status = upload(c, set, rounded);
    s24_matrix_destroy(rounded);
    s24_matrix_destroy(matrix);
    s24_ctx_free(ctx, raw);
    s24_ctx_free(ctx, floats.data);
    return status;
}
