// SPDX-License-Identifier: Apache-2.0
/* What packed tensors are as matrices: 2:4, or dense. */
#include <string.h>

#include "io/checkpoint/packed.h"

s24_quantized s24i_tensor_quantized(const s24_tensor *tensor)
{
    return (s24_quantized){.rows = tensor->shape[0],
                           .cols = s24i_stored_cols(tensor),
                           .bits = tensor->bits,
                           .group = tensor->group,
                           .values = tensor->values,
                           .indices = tensor->indices,
                           .scales = tensor->scales};
}

s24_status s24_tensor_matrix(s24_matrix **out, s24_ctx *ctx, const s24_tensor *tensor)
{
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, tensor && tensor->packed, S24_ERROR_ARGUMENT, "the tensor is not packed");
    REQUIRE(ctx, tensor->packed != S24_PACKED_DENSE, S24_ERROR_ARGUMENT,
            "the tensor is dense, of integers; s24_tensor_to_dense makes floats of it");
    REQUIRE(ctx, tensor->packed != S24_PACKED_SPARSE, S24_ERROR_ARGUMENT,
            "the tensor is stored as %s; s24_sparse_from_parts makes a matrix of it",
            s24_format_name(tensor->sparse->format));
    REQUIRE(ctx, tensor->packed != S24_PACKED_FACTORS, S24_ERROR_ARGUMENT,
            "the tensor is stored as factors alone; s24_tensor_to_dense makes floats of them");
    if (tensor->layout) {
        const s24_laid_out weight = {tensor->layout, tensor->shape[0], tensor->shape[1],
                                     tensor->stream};
        return s24_matrix_from_layout(out, ctx, &weight);
    }
    if (!tensor->bits)
        return s24_matrix_from_packed(out, ctx, tensor->values, tensor->indices, tensor->dtype,
                                      tensor->shape[0], s24i_stored_cols(tensor));
    const s24_quantized from = s24i_tensor_quantized(tensor);
    return s24_matrix_from_quantized(out, ctx, &from);
}

/* Of integers by way of all of them. */
static s24_status sparse_to_dense(s24_ctx *ctx, const s24_dense *dst, const s24_tensor *tensor)
{
    const int64_t rows = tensor->shape[0], cols = tensor->shape[1];
    s24_sparse *sparse;
    void *all = NULL;
    TRY(s24_sparse_from_parts(&sparse, ctx, tensor->sparse));
    s24_status status = S24_OK;
    if (!tensor->bits) {
        status = s24_sparse_to_dense(ctx, dst, sparse);
    } else {
        status = s24i_alloc_elems(&all, ctx, rows * cols, 1, "integers");
        const s24_dense integers = {all, S24_I8, rows, cols, 0};
        const s24_quantized from = {.rows = rows,
                                    .cols = cols,
                                    .bits = 8,
                                    .group = cols,
                                    .values = all,
                                    .scales = tensor->scales};
        if (status == S24_OK) status = s24_sparse_to_dense(ctx, &integers, sparse);
        if (status == S24_OK) status = s24_dense_from_quantized(ctx, dst, &from);
    }
    s24_sparse_destroy(sparse);
    s24_ctx_free(ctx, all);
    return status;
}

/* The numbers of one without factors. */
static s24_status spread(s24_ctx *ctx, const s24_dense *dst, const s24_tensor *tensor)
{
    s24_matrix *matrix;
    if (tensor && tensor->packed == S24_PACKED_DENSE) {
        const s24_quantized from = s24i_tensor_quantized(tensor);
        return s24_dense_from_quantized(ctx, dst, &from);
    }
    if (tensor && tensor->packed == S24_PACKED_SPARSE) return sparse_to_dense(ctx, dst, tensor);
    TRY(s24_tensor_matrix(&matrix, ctx, tensor));
    const s24_status status = tensor->lift ? s24_lifted_to_dense(ctx, dst, matrix, tensor->lift)
                                           : s24_matrix_to_dense(ctx, dst, matrix);
    s24_matrix_destroy(matrix);
    return status;
}

/* wide [n, k] f32, contiguous = the tensor. */
static s24_status add_up(s24_ctx *ctx, const s24_dense *wide, const s24_tensor *tensor)
{
    s24_tensor pruned = *tensor;
    pruned.factors = (s24_factors){0};
    pruned.packed = tensor->lift ? S24_PACKED_LIFTED : 1;
    if (tensor->packed == S24_PACKED_FACTORS)
        memset(wide->data, 0, (size_t)(wide->rows * wide->cols) * sizeof(float));
    else
        TRY(spread(ctx, wide, &pruned));
    return s24_factors_add(ctx, wide, &tensor->factors);
}

static s24_status add_to_dense(s24_ctx *ctx, const s24_dense *dst, const s24_tensor *tensor)
{
    s24_dense wide = {NULL, S24_F32, tensor->shape[0], tensor->shape[1], 0};
    REQUIRE(ctx, dst && dst->data, S24_ERROR_ARGUMENT, "s24_tensor_to_dense: dst is required");
    REQUIRE(ctx, dst->rows == wide.rows && dst->cols == wide.cols, S24_ERROR_SHAPE,
            "dst is [%lld, %lld]; expected [%lld, %lld]", (long long)dst->rows,
            (long long)dst->cols, (long long)wide.rows, (long long)wide.cols);
    TRY(s24i_alloc_elems(&wide.data, ctx, wide.rows * wide.cols, sizeof(float), "a weight"));
    s24_status status = add_up(ctx, &wide, tensor);
    const size_t bytes = (size_t)s24i_ld(dst) * s24_dtype_bytes(dst->dtype);
    for (int64_t r = 0; r < wide.rows && status == S24_OK; r++)
        status = s24_convert((char *)dst->data + (size_t)r * bytes, dst->dtype,
                             (const float *)wide.data + r * wide.cols, S24_F32, wide.cols);
    s24_ctx_free(ctx, wide.data);
    return status;
}

s24_status s24_tensor_to_dense(s24_ctx *ctx, const s24_dense *dst, const s24_tensor *tensor)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    return (tensor && tensor->factors.rank ? add_to_dense : spread)(ctx, dst, tensor);
}
