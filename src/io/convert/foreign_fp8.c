// SPDX-License-Identifier: Apache-2.0
/*
 * fp8 in blocks, as DeepSeek's and Qwen's folders have it: e4m3 [n, k] in `weight`, and in
 * `weight_scale_inv` a scale [⌈n/128⌉, ⌈k/128⌉] by which a block's elements are multiplied. Blocks
 * at the end may be smaller. compressed-tensors' strategy "block" has the same as `weight_scale`.
 */
#include "io/convert/convert.h"

enum { VALUES, SCALES, BLOCK = S24I_FP8_BLOCK };

/* Columns that share a scale and divide k: 128, or of another k the most that do both. */
static int64_t columns_of(int64_t k)
{
    int64_t columns = BLOCK;
    while (k % columns)
        columns /= 2;
    return columns;
}

static s24_status measure(s24i_foreign *w)
{
    const s24_tensor *values = w->part[VALUES];
    REQUIRE(w->ctx, values->rank == 2 && values->shape[0] > 0 && values->shape[1] > 0,
            S24_ERROR_FORMAT, "%s: tensor \"%s\" has scales of blocks, but is no matrix", w->path,
            s24i_show(values->name).text);
    w->rows = values->shape[0];
    w->cols = values->shape[1];
    w->group = columns_of(w->cols);
    const int64_t shape[] = {(w->rows + BLOCK - 1) / BLOCK, (w->cols + BLOCK - 1) / BLOCK};
    return s24i_foreign_part(w, SCALES, S24_DTYPE_NONE, 2, shape);
}

/* A row's scales, group by group, out of its blocks'. */
static s24_status read_scales(s24i_numbers *out, const s24i_foreign *w)
{
    const s24_tensor *part = w->part[SCALES];
    const int64_t blocks = part->shape[1], groups = w->cols / w->group;
    float *scales = NULL, *given = NULL;
    TRY(s24i_numbers_own(&scales, out, 1, w->rows * groups, sizeof *scales));
    TRY(s24i_numbers_own(&given, out, 2, part->shape[0] * blocks, sizeof *given));
    TRY(s24_convert(given, S24_F32, part->data, part->dtype, part->shape[0] * blocks));
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t g = 0; g < groups; g++)
            scales[r * groups + g] = given[r / BLOCK * blocks + g * w->group / BLOCK];
    out->scales = scales;
    const s24_quantized of = {.rows = w->rows, .cols = w->cols, .group = w->group};
    return s24i_check_scales(w->ctx, w->path, part->name, scales, &of);
}

static s24_status read(s24i_numbers *out, const s24i_foreign *w)
{
    out->values = w->part[VALUES]->data;
    return read_scales(out, w);
}

static int is_e4m3(const s24i_foreign *w)
{
    return w->part[VALUES]->dtype == S24_E4M3 && !w->part[VALUES]->packed;
}

/* A scale for each block is no scale for each row. */
static int is_by_block(const s24i_foreign *w)
{
    const s24_tensor *values = w->part[VALUES], *scales = w->part[SCALES];
    return is_e4m3(w) && values->rank == 2 && scales->rank == 2 && values->shape[0] > 1 &&
           scales->shape[0] == (values->shape[0] + BLOCK - 1) / BLOCK &&
           scales->shape[1] == (values->shape[1] + BLOCK - 1) / BLOCK;
}

const s24i_foreign_scheme s24i_scheme_fp8_blocks = {
    .name = "fp8 in blocks",
    .whole = ".weight",
    .part = {{.suffix = ".weight"}, {.suffix = ".weight_scale_inv"}},
    .fits = is_e4m3,
    .measure = measure,
    .read = read,
    .scales = SCALES,
};

const s24i_foreign_scheme s24i_scheme_block_quantized = {
    .name = "compressed-tensors float-quantized in blocks",
    .whole = ".weight",
    .part = {{.suffix = ".weight"}, {.suffix = ".weight_scale"}},
    .fits = is_by_block,
    .measure = measure,
    .read = read,
    .scales = SCALES,
};
