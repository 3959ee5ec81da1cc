// SPDX-License-Identifier: Apache-2.0
/*
 * Low-rank factors in a safetensors file, next to a 2:4 or lifted matrix or alone: found and
 * checked as docs/format.md wants it. They are used where they lie, so they must be aligned there.
 */
#include <string.h>

#include "io/checkpoint/packed.h"

int s24i_is_factors_part(const char *name)
{
    return s24i_ends_with(name, S24I_LEFT_SUFFIX) || s24i_ends_with(name, S24I_RIGHT_SUFFIX);
}

size_t s24i_factors_bytes(const s24_tensor *tensor)
{
    const s24_factors *f = &tensor->factors;
    if (!f->rank) return 0;
    return (size_t)((tensor->shape[0] + tensor->shape[1]) * f->rank) * s24_dtype_bytes(f->dtype);
}

size_t s24i_read_factors(s24i_described *matrix, const s24i_json *shape, size_t count)
{
    const s24i_json *rank = count > 3 ? s24i_json_at(shape, count - 1) : NULL;
    const char *word = rank ? s24i_json_string(s24i_json_at(shape, count - 2)) : NULL;
    if (!word || s24i_json_typeof(rank) != S24I_JSON_INTEGER) return count;
    const int alone = !strcmp(word, S24I_FACTORS);
    if (!(alone && count == 4) && strcmp(word, S24I_LOW_RANK) != 0) return count;
    matrix->is_factors = alone;
    matrix->rank = s24i_json_integer(rank);
    if (matrix->rank == 0) matrix->rank = -1; /* which is refused */
    return count - 2;
}

s24_status s24i_check_factors(const s24i_described *matrix, s24_ctx *ctx, const char *path)
{
    const int64_t most = s24i_min(matrix->rows, matrix->cols);
    REQUIRE(ctx, matrix->rank >= 1 && matrix->rank <= most, S24_ERROR_FORMAT,
            "%s: packed tensor \"%s\" has factors of rank %lld, expected 1 to %lld", path,
            s24i_show(matrix->name).text, (long long)(matrix->rank < 0 ? 0 : matrix->rank),
            (long long)most);
    REQUIRE(ctx, !(matrix->format || matrix->layout || matrix->dense), S24_ERROR_FORMAT,
            "%s: packed tensor \"%s\" has factors, but is no 2:4 or lifted matrix that they can be "
            "added to",
            path, s24i_show(matrix->name).text);
    return S24_OK;
}

/* Finds a factor of `expected`'s dtype that begins where its elements may. */
static s24_status find(s24_tensor **out, const s24i_header *header, s24_ctx *ctx, const char *path,
                       const s24_tensor *expected)
{
    TRY(s24i_find_part(out, header, ctx, path, expected));
    const s24_tensor *part = *out;
    REQUIRE(ctx, part->dtype == S24_F32 || part->dtype == S24_F16 || part->dtype == S24_BF16,
            S24_ERROR_FORMAT, "%s: tensor \"%s\" is %s, expected F32, F16 or BF16", path,
            s24i_show(part->name).text, s24i_dtype_label(part->dtype));
    REQUIRE(ctx, (uintptr_t)part->data % s24_dtype_bytes(part->dtype) == 0, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" does not begin at a multiple of its elements' %zu bytes", path,
            s24i_show(part->name).text, s24_dtype_bytes(part->dtype));
    return S24_OK;
}

static s24_status find_left(s24_tensor **out, const s24i_header *header, s24_ctx *ctx,
                            const char *path, const s24i_described *matrix, char *name)
{
    const s24_tensor expected = {.name = name, .shape = {matrix->rows, matrix->rank}};
    strcpy(name, matrix->name);
    strcat(name, S24I_LEFT_SUFFIX);
    return find(out, header, ctx, path, &expected);
}

/* The factors of `left` and what belongs to it become those of a tensor. */
static s24_status join(s24_tensor *tensor, s24_tensor *left, s24i_header *header, s24_ctx *ctx,
                       const char *path, const s24_tensor *expected)
{
    s24_tensor *right;
    TRY(find(&right, header, ctx, path, expected));
    tensor->factors = (s24_factors){expected->shape[0], left->dtype, left->data, right->data};
    tensor->bytes += right->bytes + (tensor == left ? 0 : left->bytes);
    left->packed = right->packed = -1;
    return S24_OK;
}

static s24_tensor expected_right(const s24i_described *matrix, const s24_tensor *left, char *name)
{
    strcpy(name + strlen(matrix->name), S24I_RIGHT_SUFFIX);
    return (s24_tensor){.name = name, .dtype = left->dtype, .shape = {matrix->rank, matrix->cols}};
}

s24_status s24i_add_factors(s24_tensor *values, s24i_header *header, s24_ctx *ctx, const char *path,
                            const s24i_described *matrix, char *name)
{
    s24_tensor *left;
    TRY(find_left(&left, header, ctx, path, matrix, name));
    const s24_tensor expected = expected_right(matrix, left, name);
    TRY(join(values, left, header, ctx, path, &expected));
    values->packed = S24_PACKED_LOW_RANK;
    return S24_OK;
}

s24_status s24i_join_factors(s24i_header *header, s24_ctx *ctx, const char *path,
                             const s24i_described *matrix, char *name)
{
    s24_tensor *left;
    TRY(find_left(&left, header, ctx, path, matrix, name));
    TRY(s24i_check_not_plain(header, ctx, path, matrix->name));
    const s24_tensor expected = expected_right(matrix, left, name);
    TRY(join(left, left, header, ctx, path, &expected));
    left->packed = S24_PACKED_FACTORS;
    left->transposed = matrix->transposed;
    left->data = NULL;
    left->shape[1] = matrix->cols;
    return S24_OK;
}
