// SPDX-License-Identifier: Apache-2.0
/* Parts of packed matrices among the tensors of a file, found and checked by dtype and shape. */
#include "io/checkpoint/packed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "[3, 64, 64]"; a side below zero is "any". */
typedef struct shape_text {
    char text[24 * S24_MAX_RANK];
} shape_text;

static shape_text show_shape(const int64_t *shape, int rank)
{
    shape_text out = {"["};
    for (int d = 0; d < rank; d++) {
        char side[24] = "any";
        if (shape[d] >= 0) snprintf(side, sizeof side, "%lld", (long long)shape[d]);
        strcat(strcat(out.text, d ? ", " : ""), side);
    }
    strcat(out.text, "]");
    return out;
}

static s24_status check_part_shape(s24_ctx *ctx, const char *path, const s24_tensor *part,
                                   const s24_tensor *expected)
{
    const int rank = expected->rank ? expected->rank : 2;
    int fits = 1;
    REQUIRE(ctx, part->rank == rank, S24_ERROR_FORMAT, "%s: tensor \"%s\" has rank %d, expected %d",
            path, s24i_show(part->name).text, part->rank, rank);
    for (int d = 0; d < rank; d++)
        fits &= part->shape[d] == expected->shape[d] || expected->shape[d] < 0;
    if (rank == 1 && part->dtype == S24_U8)
        REQUIRE(ctx, fits, S24_ERROR_FORMAT, "%s: tensor \"%s\" has %lld bytes, expected %lld",
                path, s24i_show(part->name).text, (long long)part->shape[0],
                (long long)expected->shape[0]);
    REQUIRE(ctx, fits, S24_ERROR_FORMAT, "%s: tensor \"%s\" has shape %s, expected %s", path,
            s24i_show(part->name).text, show_shape(part->shape, rank).text,
            show_shape(expected->shape, rank).text);
    return S24_OK;
}

s24_status s24i_find_part(s24_tensor **out, const s24i_header *header, s24_ctx *ctx,
                          const char *path, const s24_tensor *expected)
{
    s24_tensor *part = s24i_find_name(header->tensors, header->count, expected->name);
    *out = part;
    REQUIRE(ctx, part, S24_ERROR_FORMAT, "%s: a packed tensor lacks its part \"%s\"", path,
            s24i_show(expected->name).text);
    if (expected->dtype != S24_DTYPE_NONE)
        REQUIRE(ctx, part->dtype == expected->dtype, S24_ERROR_FORMAT,
                "%s: tensor \"%s\" is %s, expected %s", path, s24i_show(part->name).text,
                s24i_dtype_label(part->dtype), s24i_dtype_label(expected->dtype));
    else
        REQUIRE(ctx, s24_dtype_can_be_two_four(part->dtype), S24_ERROR_FORMAT,
                "%s: tensor \"%s\" is %s, expected F32, F16, BF16, I8, F8_E4M3 or F8_E5M2", path,
                s24i_show(part->name).text, s24i_dtype_label(part->dtype));
    return check_part_shape(ctx, path, part, expected);
}

s24_status s24i_check_not_plain(const s24i_header *header, s24_ctx *ctx, const char *path,
                                const char *name)
{
    REQUIRE(ctx, !s24i_find_name(header->tensors, header->count, name), S24_ERROR_FORMAT,
            "%s: tensor \"%s\" is there packed and dense", path, s24i_show(name).text);
    return S24_OK;
}

s24_status s24i_check_scales(s24_ctx *ctx, const char *path, const char *name, const void *scales,
                             const s24_quantized *of)
{
    const int64_t group = of->group, stride = (of->cols + group - 1) / group;
    for (int64_t i = 0; i < of->rows * stride; i++) {
        float scale;
        memcpy(&scale, (const char *)scales + (size_t)i * sizeof scale, sizeof scale);
        REQUIRE(ctx, isfinite(scale) && scale >= 0, S24_ERROR_FORMAT,
                "%s: quantised tensor \"%s\": the scale at row %lld, column %lld is %g (expected a "
                "finite number that is not negative)",
                path, s24i_show(name).text, (long long)(i / stride),
                (long long)(i % stride * group), (double)scale);
    }
    return S24_OK;
}

s24_status s24i_join_scales(s24_tensor *values, s24i_header *header, s24_ctx *ctx, const char *path,
                            const s24i_described *matrix, char *name)
{
    s24_tensor *scales;
    const int64_t groups = (matrix->stored_cols + matrix->group - 1) / matrix->group;
    const s24_tensor expected = {.name = name, .shape = {matrix->rows, groups}, .dtype = S24_F32};
    strcpy(name, matrix->name);
    strcat(name, S24I_SCALES_SUFFIX);
    TRY(s24i_find_part(&scales, header, ctx, path, &expected));
    const s24_quantized of = {
        .rows = matrix->rows, .cols = matrix->stored_cols, .group = matrix->group};
    TRY(s24i_check_scales(ctx, path, matrix->name, scales->data, &of));
    values->dtype = S24_I8;
    values->bits = matrix->bits;
    values->group = matrix->group;
    values->scales = scales->data;
    values->bytes += scales->bytes;
    scales->packed = -1;
    return S24_OK;
}
