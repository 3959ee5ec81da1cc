// SPDX-License-Identifier: Apache-2.0
#include "run/weight/held_integers.h"

#include <string.h>

#include "io/checkpoint/checkpoint.h"

static int64_t groups_of(const s24_quantized *matrix)
{
    return (matrix->cols + matrix->group - 1) / matrix->group;
}

size_t s24i_integers_value_bytes(const s24_quantized *matrix)
{
    return (size_t)(matrix->rows * matrix->cols) / (matrix->bits == 4 ? 2 : 1);
}

size_t s24i_integers_scale_bytes(const s24_quantized *matrix)
{
    return (size_t)(matrix->rows * groups_of(matrix)) * sizeof(float);
}

static s24_status scheme_of(s24_quantized *matrix, s24_ctx *ctx, const char *scheme)
{
    const char *name;
    for (int i = 0; (name = s24_scheme_name(i, &matrix->bits, &matrix->group)); i++)
        if (!strcmp(name, scheme)) break;
    REQUIRE(ctx, name, S24_ERROR_ARGUMENT,
            "there is no quantisation scheme named \"%s\"; s24_scheme_name lists them", scheme);
    if (!matrix->group) matrix->group = matrix->cols;
    return S24_OK;
}

static s24_status own(s24i_integers *out, s24_ctx *owner, s24_ctx *ctx)
{
    out->own_values = s24_ctx_alloc(owner, s24i_integers_value_bytes(&out->matrix));
    out->own_scales = s24_ctx_alloc(owner, s24i_integers_scale_bytes(&out->matrix));
    REQUIRE(ctx, out->own_values && out->own_scales, S24_ERROR_MEMORY,
            "out of memory for a weight of integers");
    out->matrix.values = out->own_values;
    out->matrix.scales = out->own_scales;
    return S24_OK;
}

s24_status s24i_integers_make(s24i_integers *out, s24_ctx *owner, s24_ctx *ctx,
                              const s24_dense *floats, const char *scheme)
{
    *out = (s24i_integers){.matrix = {.rows = floats->rows, .cols = floats->cols}};
    TRY(scheme_of(&out->matrix, ctx, scheme));
    TRY(own(out, owner, ctx));
    return s24_dense_quantize(out->own_values, out->own_scales, ctx, floats, scheme);
}

s24_status s24i_integers_open(s24i_integers *out, s24_ctx *owner, s24_ctx *ctx,
                              const s24_checkpoint *checkpoint, const s24_quantized *from)
{
    const size_t bytes[2] = {s24i_integers_value_bytes(from), s24i_integers_scale_bytes(from)};
    const void *parts[2] = {from->values, from->scales};
    *out = (s24i_integers){.matrix = *from};
    out->matrix.indices = NULL;
    for (int i = 0; i < 2; i++)
        TRY(s24i_checkpoint_map(&out->map[i], &parts[i], ctx, checkpoint, parts[i], bytes[i], 1));
    out->matrix.values = parts[0];
    out->matrix.scales = parts[1];
    if (parts[0] && parts[1]) return S24_OK;
    /* A file that aligns them otherwise was copied by who opened it. */
    TRY(own(out, owner, ctx));
    memcpy(out->own_values, from->values, bytes[0]);
    memcpy(out->own_scales, from->scales, bytes[1]);
    return S24_OK;
}

void s24i_integers_clear(s24i_integers *integers, s24_ctx *owner)
{
    for (int i = 0; i < 2; i++)
        s24i_map_close(&integers->map[i]);
    s24_ctx_free(owner, integers->own_values);
    s24_ctx_free(owner, integers->own_scales);
    *integers = (s24i_integers){.matrix = {.rows = 0}};
}

void s24i_integers_row(float *to, const s24i_integers *integers, int64_t row)
{
    const s24_quantized *m = &integers->matrix;
    const float *scales = m->scales + row * groups_of(m);
    const uint8_t *nibbles = m->values;
    const int8_t *bytes = m->values;
    for (int64_t c = 0; c < m->cols; c++) {
        const int64_t at = row * m->cols + c;
        const int half = nibbles[at / (m->bits == 4 ? 2 : 1)] >> (at % 2 ? 4 : 0) & 15;
        to[c] = scales[c / m->group] * (float)(m->bits == 4 ? (half ^ 8) - 8 : bytes[at]);
    }
}
