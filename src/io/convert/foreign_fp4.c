// SPDX-License-Identifier: Apache-2.0
/*
 * Elements of 4 bits, e2m1, two a byte, the earlier one in its low bits, with a scale for each 16
 * or 32 of a row. Their numbers e4m3 holds as well.
 *
 *   MXFP4   (Open Compute Project, "Microscaling Formats", 2023) scales are powers of two.
 *           gpt-oss's folders have experts [experts, n, k] in `…_blocks` [experts, n, k / 32, 16]
 *           and `…_scales` [experts, n, k / 32], which become one matrix [experts · n, k];
 *           compressed-tensors has `weight_packed` [n, k / 2] and `weight_scale` [n, k / 32].
 *   NVFP4   scales of e4m3 [n, k / 16], and one more of the whole weight, by which
 *           compressed-tensors divides (`weight_global_scale`) and ModelOpt multiplies
 *           (`weight_scale_2`).
 *   MXFP8   MXFP4's scales of elements of e4m3.
 */
#include <math.h>

#include "io/convert/convert.h"

enum { VALUES, SCALES, WHOLE, MX = 32, NV = 16, BYTES = MX / 2, BIAS = 127, NOT_A_NUMBER = 255 };

/* ---- scales ---------------------------------------------------------------------------------- */

static s24_status read_powers(float *to, const s24i_foreign *w, int64_t count)
{
    const uint8_t *from = w->part[SCALES]->data;
    for (int64_t i = 0; i < count; i++) {
        REQUIRE(w->ctx, from[i] != NOT_A_NUMBER, S24_ERROR_NOT_FINITE,
                "%s: tensor \"%s\": scale %lld is no number", w->path,
                s24i_show(w->part[SCALES]->name).text, (long long)i);
        to[i] = ldexpf(1.0f, from[i] - BIAS);
    }
    return S24_OK;
}

/* Scales of e4m3 times `by`. */
static s24_status read_narrow(s24i_numbers *out, float *to, const s24i_foreign *w, float by)
{
    const s24_tensor *part = w->part[SCALES];
    const int64_t count = out->rows * (out->cols / out->group);
    const s24_quantized of = {.rows = out->rows, .cols = out->cols, .group = out->group};
    TRY(s24_convert(to, S24_F32, part->data, S24_E4M3, count));
    for (int64_t i = 0; i < count; i++)
        to[i] *= by;
    return s24i_check_scales(w->ctx, w->path, part->name, to, &of);
}

static s24_status read_scales(s24i_numbers *out, const s24i_foreign *w)
{
    const int64_t count = out->rows * (out->cols / out->group);
    const s24_tensor *whole = w->part[WHOLE];
    float by = 1.0f, *scales = NULL;
    TRY(s24i_numbers_own(&scales, out, 1, count, sizeof *scales));
    out->scales = scales;
    if (!whole) return read_powers(scales, w, count);
    TRY(s24_convert(&by, S24_F32, whole->data, whole->dtype, 1));
    if (w->scheme->part[WHOLE].divides) by = 1.0f / by;
    return read_narrow(out, scales, w, by);
}

/* ---- elements -------------------------------------------------------------------------------- */

/* The e4m3 of an e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. */
static uint8_t widened(unsigned code)
{
    static const uint8_t all[] = {0x00, 0x30, 0x38, 0x3c, 0x40, 0x44, 0x48, 0x4c};
    return (uint8_t)(all[code & 7] | (code & 8) << 4);
}

typedef struct widening {
    const uint8_t *from;
    uint8_t *to;
    int64_t stride; /* bytes of a row */
} widening;

static void widen_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const widening *w = arg;
    (void)thread;
    for (int64_t i = begin * w->stride; i < end * w->stride; i++) {
        w->to[2 * i] = widened(w->from[i] & 15u);
        w->to[2 * i + 1] = widened(w->from[i] >> 4);
    }
}

static s24_status read(s24i_numbers *out, const s24i_foreign *w)
{
    uint8_t *values = NULL;
    out->dtype = S24_E4M3;
    TRY(s24i_numbers_room(&values, out, 2, out->rows * out->cols, 1));
    widening to = {w->part[VALUES]->data, values, out->cols / 2};
    s24_ctx_parallel_for(w->ctx, out->rows, widen_rows, &to);
    out->values = values;
    return read_scales(out, w);
}

static s24_status read_bytes(s24i_numbers *out, const s24i_foreign *w)
{
    out->values = w->part[VALUES]->data;
    return read_scales(out, w);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static s24_status measure_blocks(s24i_foreign *w)
{
    const s24_tensor *values = w->part[VALUES];
    REQUIRE(w->ctx, values->rank == 4 && values->bytes > 0 && values->shape[3] == BYTES,
            S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has no blocks of %d bytes, [experts, n, k / %d, %d]", w->path,
            s24i_show(values->name).text, BYTES, MX, BYTES);
    w->rows = values->shape[0] * values->shape[1];
    w->cols = values->shape[2] * MX;
    w->group = MX;
    return s24i_foreign_part(w, SCALES, S24_U8, 3, values->shape);
}

/* A matrix of so many elements a byte, in groups of so many columns. */
static s24_status measure_matrix(s24i_foreign *w, int per_byte, int group, s24_dtype scales)
{
    const s24_tensor *values = w->part[VALUES], *whole = w->part[WHOLE];
    REQUIRE(w->ctx,
            values->rank == 2 && values->bytes > 0 && values->shape[1] * per_byte % group == 0,
            S24_ERROR_FORMAT, "%s: tensor \"%s\" is no matrix whose rows are groups of %d", w->path,
            s24i_show(values->name).text, group);
    w->rows = values->shape[0];
    w->cols = values->shape[1] * per_byte;
    w->group = group;
    const int64_t shape[] = {w->rows, w->cols / group};
    TRY(s24i_foreign_part(w, SCALES, scales, 2, shape));
    REQUIRE(w->ctx, !whole || (whole->dtype == S24_F32 && whole->bytes == sizeof(float)),
            S24_ERROR_FORMAT, "%s: tensor \"%s\" is not one number of F32", w->path,
            s24i_show(whole->name).text);
    return S24_OK;
}

static s24_status measure_nvfp4(s24i_foreign *w)
{
    return measure_matrix(w, 2, NV, S24_E4M3);
}

static s24_status measure_mxfp4(s24i_foreign *w)
{
    return measure_matrix(w, 2, MX, S24_U8);
}

static s24_status measure_mxfp8(s24i_foreign *w)
{
    return measure_matrix(w, 1, MX, S24_U8);
}

static int is_bytes(const s24i_foreign *w)
{
    return w->part[VALUES]->dtype == S24_U8 && !w->part[VALUES]->packed;
}

static int is_e4m3_by_powers(const s24i_foreign *w)
{
    return w->part[VALUES]->dtype == S24_E4M3 && !w->part[VALUES]->packed &&
           w->part[SCALES]->dtype == S24_U8;
}

/* ---- schemes --------------------------------------------------------------------------------- */

const s24i_foreign_scheme s24i_scheme_mxfp4 = {
    .name = "MXFP4",
    .whole = "",
    .part = {{.suffix = "_blocks"}, {.suffix = "_scales"}},
    .fits = is_bytes,
    .measure = measure_blocks,
    .read = read,
    .scales = SCALES,
    .rows_apart = 1,
};

const s24i_foreign_scheme s24i_scheme_mxfp4_packed = {
    .name = "compressed-tensors mxfp4-pack-quantized",
    .whole = ".weight",
    .part = {{.suffix = ".weight_packed"}, {.suffix = ".weight_scale"}},
    .fits = is_bytes,
    .measure = measure_mxfp4,
    .read = read,
    .scales = SCALES,
    .rows_apart = 1,
};

const s24i_foreign_scheme s24i_scheme_nvfp4_packed = {
    .name = "compressed-tensors nvfp4-pack-quantized",
    .whole = ".weight",
    .part = {{.suffix = ".weight_packed"},
             {.suffix = ".weight_scale"},
             {.suffix = ".weight_global_scale", .divides = 1}},
    .fits = is_bytes,
    .measure = measure_nvfp4,
    .read = read,
    .scales = SCALES,
    .rows_apart = 1,
};

const s24i_foreign_scheme s24i_scheme_nvfp4 = {
    .name = "ModelOpt NVFP4",
    .whole = ".weight",
    .part = {{.suffix = ".weight"}, {.suffix = ".weight_scale"}, {.suffix = ".weight_scale_2"}},
    .fits = is_bytes,
    .measure = measure_nvfp4,
    .read = read,
    .scales = SCALES,
    .rows_apart = 1,
};

const s24i_foreign_scheme s24i_scheme_mxfp8 = {
    .name = "MXFP8",
    .whole = ".weight",
    .part = {{.suffix = ".weight"}, {.suffix = ".weight_scale"}},
    .fits = is_e4m3_by_powers,
    .measure = measure_mxfp8,
    .read = read_bytes,
    .scales = SCALES,
    .rows_apart = 1,
};
