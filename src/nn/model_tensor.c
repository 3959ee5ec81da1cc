// SPDX-License-Identifier: Apache-2.0
/* Finding a model's tensors in a checkpoint and holding them against what was expected. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nn/model.h"

void s24i_tensor_name(char name[S24I_NAME_BYTES], const char *pattern, int64_t block,
                      const char *suffix)
{
    const char *number = strchr(pattern, '%');
    if (number)
        snprintf(name, S24I_NAME_BYTES, "%.*s%lld%s%s", (int)(number - pattern), pattern,
                 (long long)block, number + 2, suffix);
    else
        snprintf(name, S24I_NAME_BYTES, "%s%s", pattern, suffix);
}

/* The tensor's full name for block b, as it stands in the checkpoint or would. */
const s24_tensor *s24i_tensor_find(char name[S24I_NAME_BYTES], const s24_checkpoint *checkpoint,
                                   const s24i_architecture *arch, const char *pattern,
                                   int64_t block, const char *suffix)
{
    char bare[S24I_NAME_BYTES];
    s24i_tensor_name(bare, pattern, block, suffix);
    snprintf(name, S24I_NAME_BYTES, "%s", bare);
    const s24_tensor *tensor = s24_checkpoint_find(checkpoint, name);
    if (tensor) return tensor;
    snprintf(name, S24I_NAME_BYTES, "%.32s%.120s", arch->prefix, bare);
    return s24_checkpoint_find(checkpoint, name);
}

/* [rows, cols], or [rows] when cols is 0. */
s24_status s24i_tensor_check_shape(s24_ctx *ctx, const s24_tensor *tensor, int64_t rows,
                                   int64_t cols)
{
    const int rank = cols ? 2 : 1;
    if (tensor->rank == rank && tensor->shape[0] == rows && (!cols || tensor->shape[1] == cols))
        return S24_OK;
    char shape[128];
    size_t used = 0;
    for (int d = 0; d < tensor->rank && used < sizeof shape; d++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld", d ? ", " : "",
                                 (long long)tensor->shape[d]);
    if (!tensor->rank) shape[0] = 0;
    if (cols)
        return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                            "%s: tensor '%s' is [%s]; [%lld, %lld] was expected by config.json",
                            tensor->file, tensor->name, shape, (long long)rows, (long long)cols);
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "%s: tensor '%s' is [%s]; [%lld] was expected by config.json", tensor->file,
                        tensor->name, shape, (long long)rows);
}

s24_status s24i_tensor_check_count(s24_ctx *ctx, const s24_tensor *tensor, int64_t expected)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->rank; d++)
        count *= tensor->shape[d];
    REQUIRE(ctx, count == expected, S24_ERROR_FORMAT,
            "%s: tensor '%s' has %lld numbers; %lld were expected by config.json", tensor->file,
            tensor->name, (long long)count, (long long)expected);
    return S24_OK;
}

static int is_float(s24_dtype dtype)
{
    return dtype == S24_F32 || dtype == S24_F16 || dtype == S24_BF16;
}

s24_status s24i_tensor_check_float(s24_ctx *ctx, const s24_tensor *tensor)
{
    if (is_float(tensor->dtype)) return S24_OK;
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "%s: tensor '%s' is %s; f32, f16 or bf16 was expected", tensor->file,
                        tensor->name, s24_dtype_name(tensor->dtype));
}

/* NaN and Inf would go through every product and come out as vectors. Of a packed tensor the stored
   values are looked at; two of them are a group. */
s24_status s24i_tensor_check_finite(s24_ctx *ctx, const s24_tensor *tensor)
{
    enum { CHUNK = 256 };
    const char *from = tensor->packed ? tensor->values : tensor->data;
    const size_t bytes = s24_dtype_bytes(tensor->dtype);
    const int64_t row = tensor->shape[tensor->rank - 1] / (tensor->packed ? 2 : 1);
    int64_t count = row;
    float wide[CHUNK];
    if (tensor->bits) return S24_OK; /* integers, whose scales the reader has checked */
    for (int d = 0; d < tensor->rank - 1; d++)
        count *= tensor->shape[d];
    for (int64_t i = 0; i < count; i += CHUNK) {
        const int64_t n = s24i_min(CHUNK, count - i);
        TRY(s24_convert(wide, S24_F32, from + (size_t)i * bytes, tensor->dtype, n));
        for (int64_t j = 0; j < n; j++)
            REQUIRE(ctx, isfinite(wide[j]), S24_ERROR_NOT_FINITE,
                    "%s: tensor '%s' has %s at row %lld, %s %lld; finite weights were expected",
                    tensor->file, tensor->name, isnan(wide[j]) ? "NaN" : "Inf",
                    (long long)((i + j) / row), tensor->packed ? "group" : "column",
                    (long long)((i + j) % row / (tensor->packed ? 2 : 1)));
    }
    return S24_OK;
}

s24_status s24i_tensor_missing(s24_ctx *ctx, const s24_checkpoint *checkpoint, const char *name)
{
    const char *folder = s24_checkpoint_folder(checkpoint);
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "%s: tensor '%s' is missing (with or without the prefix)", folder, name);
}

s24_status s24i_tensor_widen(s24_ctx *ctx, float *to, const s24_tensor *tensor)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->rank; d++)
        count *= tensor->shape[d];
    if (!tensor->packed) return s24_convert(to, S24_F32, tensor->data, tensor->dtype, count);
    s24_matrix *matrix;
    const s24_dense dense = {to, S24_F32, tensor->shape[0], tensor->shape[1], 0};
    TRY(s24_tensor_matrix(&matrix, ctx, tensor));
    const s24_status status = s24_matrix_to_dense(ctx, &dense, matrix);
    s24_matrix_destroy(matrix);
    return status;
}
