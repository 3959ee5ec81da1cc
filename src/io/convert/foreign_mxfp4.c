// SPDX-License-Identifier: Apache-2.0
/*
 * MXFP4 (Open Compute Project, "Microscaling Formats", 2023) as gpt-oss's folders have it: of
 * experts [experts, n, k] in `…_blocks` [experts, n, k / 32, 16] two e2m1 a byte, the earlier one
 * in its low bits, and in `…_scales` [experts, n, k / 32] powers of two. They become one matrix
 * [experts · n, k], whose numbers e4m3 holds as well.
 */
#include <math.h>

#include "io/convert/convert.h"

enum { VALUES, SCALES, GROUP = 32, BYTES = GROUP / 2, BIAS = 127, NOT_A_NUMBER = 255 };

static s24_status measure(s24i_foreign *w)
{
    const s24_tensor *values = w->part[VALUES];
    REQUIRE(w->ctx, values->rank == 4 && values->bytes > 0 && values->shape[3] == BYTES,
            S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has no blocks of %d bytes, [experts, n, k / %d, %d]", w->path,
            s24i_show(values->name).text, BYTES, GROUP, BYTES);
    w->rows = values->shape[0] * values->shape[1];
    w->cols = values->shape[2] * GROUP;
    w->group = GROUP;
    return s24i_foreign_part(w, SCALES, S24_U8, 3, values->shape);
}

/* The e4m3 of an e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. */
static uint8_t widened(unsigned code)
{
    static const uint8_t all[] = {0x00, 0x30, 0x38, 0x3c, 0x40, 0x44, 0x48, 0x4c};
    return (uint8_t)(all[code & 7] | (code & 8) << 4);
}

static s24_status read_scales(float *to, const s24i_foreign *w, int64_t count)
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

static s24_status read(s24i_numbers *out, const s24i_foreign *w)
{
    const uint8_t *from = w->part[VALUES]->data;
    const int64_t pairs = w->rows * w->cols / 2;
    float *scales = NULL;
    uint8_t *values = NULL;
    out->dtype = S24_E4M3;
    TRY(s24i_numbers_own(&scales, out, 1, w->rows * w->cols / GROUP, sizeof *scales));
    TRY(s24i_numbers_own(&values, out, 2, w->rows * w->cols, 1));
    for (int64_t i = 0; i < pairs; i++) {
        values[2 * i] = widened(from[i] & 15u);
        values[2 * i + 1] = widened(from[i] >> 4);
    }
    out->values = values;
    out->scales = scales;
    return read_scales(scales, w, w->rows * w->cols / GROUP);
}

static int is_bytes(const s24i_foreign *w)
{
    return w->part[0]->dtype == S24_U8 && !w->part[0]->packed;
}

const s24i_foreign_scheme s24i_scheme_mxfp4 = {
    .name = "MXFP4",
    .whole = "",
    .part = {{"_blocks", 0}, {"_scales", 0}},
    .fits = is_bytes,
    .measure = measure,
    .read = read,
    .scales = SCALES,
    .rows_apart = 1,
};
