// SPDX-License-Identifier: Apache-2.0
/*
 * compressed-tensors' bitmasks: a bit for each column, the first one lowest, and the numbers whose
 * bits are set, row after row. Of 2:4 weights each group of four has two, which are values and
 * codes of ours.
 */
#include <stdatomic.h>
#include <string.h>

#include "io/convert/convert.h"

enum { VALUES, MASK, SHAPE, LAST };

static s24_status measure(s24i_foreign *w)
{
    int64_t shape[2];
    TRY(s24i_foreign_shape(shape, w, SHAPE));
    w->rows = shape[0];
    w->cols = shape[1];
    const int64_t mask[] = {w->rows, (w->cols + 7) / 8};
    return s24i_foreign_part(w, MASK, S24_U8, 2, mask);
}

static s24_status check_values(const s24i_foreign *w, int rank, const int64_t *shape)
{
    const s24_dtype dtype = w->part[VALUES]->dtype;
    const int is_number = s24_dtype_can_be_two_four(dtype);
    return s24i_foreign_part(w, VALUES, is_number ? dtype : S24_DTYPE_NONE, rank, shape);
}

/* ---- 2:4 ------------------------------------------------------------------------------------- */

static s24_status measure_two_four(s24i_foreign *w)
{
    TRY(measure(w));
    const int64_t values[] = {w->rows, w->cols / 2};
    REQUIRE(w->ctx, w->cols % 4 == 0, S24_ERROR_FORMAT,
            "%s: tensor \"%s\": %lld columns are no multiple of 4, as 2:4 wants them", w->path,
            s24i_show(w->name).text, (long long)w->cols);
    TRY(check_values(w, 2, values));
    if (!w->part[LAST]) return S24_OK;
    w->bits = w->part[VALUES]->dtype == S24_I8 ? 8 : 0;
    return s24i_foreign_scales(w, LAST);
}

/* The code of four bits of a mask, of which two are set; else 0. */
static uint8_t code_of(int bits)
{
    static const uint8_t codes[16] = {0, 0, 0, 0x4, 0, 0x8, 0x9, 0, 0, 0xC, 0xD, 0, 0xE, 0, 0, 0};
    return codes[bits];
}

/* A mask and the codes that become of it; is_bad: some group has none. */
typedef struct coding {
    const uint8_t *mask;
    uint8_t *indices, codes[256];
    int64_t stride, groups;
    atomic_int is_bad;
} coding;

static void code_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    coding *c = arg;
    int is_bad = 0;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const uint8_t *mask = c->mask + r * c->stride;
        uint8_t *indices = c->indices + r * c->stride;
        for (int64_t i = 0; i < c->groups / 2; i++) {
            indices[i] = c->codes[mask[i]];
            is_bad |= !(indices[i] & 15) | !(indices[i] >> 4);
        }
        if (c->groups % 2 == 0) continue;
        indices[c->groups / 2] = c->codes[mask[c->groups / 2]];
        is_bad |= !indices[c->groups / 2] | (mask[c->groups / 2] >> 4 != 0);
    }
    if (is_bad) atomic_store(&c->is_bad, 1);
}

/* The sentence of the first group that has not two bits, or of a bit past the last column. */
static s24_status fail_at_mask(const s24i_foreign *w)
{
    const int64_t stride = (w->cols + 7) / 8, groups = w->cols / 4;
    const uint8_t *mask = w->part[MASK]->data;
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t g = 0; g < 2 * stride; g++) {
            const int bits = mask[r * stride + g / 2] >> 4 * (g % 2) & 15;
            REQUIRE(w->ctx, g < groups ? code_of(bits) != 0 : bits == 0, S24_ERROR_FORMAT,
                    "%s: tensor \"%s\": row %lld, columns %lld to %lld have %d bits, expected %d",
                    w->path, s24i_show(w->part[MASK]->name).text, (long long)r, (long long)(4 * g),
                    (long long)(4 * g + 3), __builtin_popcount((unsigned)bits), g < groups ? 2 : 0);
        }
    return S24_OK;
}

static s24_status read_two_four(s24i_numbers *out, const s24i_foreign *w)
{
    coding c = {
        .mask = w->part[MASK]->data, .stride = (out->cols + 7) / 8, .groups = out->cols / 4};
    uint8_t *indices;
    atomic_init(&c.is_bad, 0);
    for (int bits = 0; bits < 256; bits++)
        c.codes[bits] = (uint8_t)(code_of(bits & 15) | code_of(bits >> 4) << 4);
    TRY(s24i_numbers_room(&indices, out, 0, out->rows * c.stride, 1));
    c.indices = indices;
    s24_ctx_parallel_for(w->ctx, out->rows, code_rows, &c);
    if (atomic_load(&c.is_bad)) TRY(fail_at_mask(w));
    out->indices = indices;
    out->values = w->part[VALUES]->data;
    return w->part[LAST] ? s24i_numbers_scales(out, w, w->part[LAST]) : S24_OK;
}

const s24i_foreign_scheme s24i_scheme_sparse_24_bitmask = {
    .name = "compressed-tensors sparse-24-bitmask",
    .whole = ".weight",
    .part = {{.suffix = ".compressed"},
             {.suffix = ".bitmask"},
             {.suffix = ".shape"},
             {.suffix = ".weight_scale", .is_optional = 1}},
    .measure = measure_two_four,
    .read = read_two_four,
    .scales = LAST,
    .is_two_four = 1,
};

/* ---- any numbers of zeros -------------------------------------------------------------------- */

static s24_status measure_any(s24i_foreign *w)
{
    TRY(measure(w));
    const int64_t offsets[] = {w->rows};
    TRY(s24i_foreign_part(w, LAST, S24_I64, 1, offsets));
    return check_values(w, 1, w->part[VALUES]->shape);
}

/* A row's mask, of `stride` bytes, and what its bits stand for. */
static int bits_of(const uint8_t *mask, int64_t stride)
{
    int bits = 0;
    for (int64_t i = 0; i < stride; i++)
        bits += __builtin_popcount(mask[i]);
    return bits;
}

/* The sentence of the first row that does not begin where the bits before it say, or that has a bit
   past the last column. */
static s24_status fail_at_row(const s24i_foreign *w, int64_t rows)
{
    const s24_tensor *values = w->part[VALUES], *mask = w->part[MASK];
    const int64_t stride = (w->cols + 7) / 8, *offsets = w->part[LAST]->data;
    int64_t at = 0;
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *bits = (const uint8_t *)mask->data + r * stride;
        REQUIRE(w->ctx, offsets[r] == at, S24_ERROR_FORMAT,
                "%s: tensor \"%s\": row %lld begins at number %lld, by the bits before it at %lld",
                w->path, s24i_show(w->part[LAST]->name).text, (long long)r, (long long)offsets[r],
                (long long)at);
        REQUIRE(w->ctx, !(w->cols % 8) || !(bits[stride - 1] >> w->cols % 8), S24_ERROR_FORMAT,
                "%s: tensor \"%s\": row %lld has a bit past the last column", w->path,
                s24i_show(mask->name).text, (long long)r);
        at += bits_of(bits, stride);
    }
    return s24_ctx_fail(w->ctx, S24_ERROR_FORMAT,
                        "%s: tensor \"%s\" has %lld numbers, \"%s\" has bits for %lld", w->path,
                        s24i_show(values->name).text, (long long)values->shape[0],
                        s24i_show(mask->name).text, (long long)at);
}

/* Stored numbers on their way to their places. */
typedef struct spreading {
    const s24i_foreign *w;
    uint8_t *dense;
    int64_t rows; /* of the mask */
    atomic_int is_bad;
} spreading;

#define SPREAD(type)                                                                               \
    do {                                                                                           \
        type *to = (type *)(void *)row;                                                            \
        const type *from = (const type *)numbers;                                                  \
        for (int64_t i = 0; i < stride; i++)                                                       \
            for (unsigned bits = mask[i]; bits; bits &= bits - 1)                                  \
                to[8 * i + __builtin_ctz(bits)] = *from++;                                         \
    } while (0)

static void spread_row(uint8_t *row, const void *numbers, const uint8_t *mask, int64_t stride,
                       size_t size)
{
    if (size == 4)
        SPREAD(uint32_t);
    else if (size == 2)
        SPREAD(uint16_t);
    else
        SPREAD(uint8_t);
}

static void spread_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    spreading *s = arg;
    const s24i_foreign *w = s->w;
    const s24_tensor *values = w->part[VALUES];
    const size_t size = s24_dtype_bytes(values->dtype);
    const int64_t stride = (w->cols + 7) / 8, *offsets = w->part[LAST]->data;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const uint8_t *mask = (const uint8_t *)w->part[MASK]->data + r * stride;
        const int64_t at = offsets[r], next = r + 1 < s->rows ? offsets[r + 1] : values->shape[0];
        const int is_past = w->cols % 8 && mask[stride - 1] >> w->cols % 8;
        const int is_within = at >= 0 && next >= at && next <= values->shape[0] && (r || !at);
        if (is_past || !is_within || next - at != bits_of(mask, stride))
            atomic_store(&s->is_bad, 1);
        else
            spread_row(s->dense + (size_t)(r * w->cols) * size,
                       (const uint8_t *)values->data + (size_t)at * size, mask, stride, size);
    }
}

static s24_status read_any(s24i_numbers *out, const s24i_foreign *w)
{
    spreading s = {.w = w, .rows = w->part[MASK]->shape[0]};
    atomic_init(&s.is_bad, 0);
    TRY(s24i_numbers_own(&s.dense, out, 0, out->rows * out->cols,
                         s24_dtype_bytes(w->part[VALUES]->dtype)));
    s24_ctx_parallel_for(w->ctx, out->rows, spread_rows, &s);
    if (atomic_load(&s.is_bad)) return fail_at_row(w, s.rows);
    out->values = s.dense;
    return S24_OK;
}

const s24i_foreign_scheme s24i_scheme_sparse_bitmask = {
    .name = "compressed-tensors sparse-bitmask",
    .whole = ".weight",
    .part = {{.suffix = ".compressed"},
             {.suffix = ".bitmask"},
             {.suffix = ".shape"},
             {.suffix = ".row_offsets"}},
    .measure = measure_any,
    .read = read_any,
    .rows_apart = 1,
};
