// SPDX-License-Identifier: Apache-2.0
/*
 * The order in which GPUs multiply 16-bit tokens with integers (docs/format.md, section 4): blocks
 * of 64 rows by 128 columns, each of four strips of 16 rows, a strip's integers, codes and scales
 * side by side, so that a warp copies what it multiplies with next in one piece, and finds it in
 * its registers' order.
 */
#include <string.h>

#include "format/format.h"

enum { SLAB = S24I_STRIPS_SLAB, COLUMNS = S24I_STRIPS_COLUMNS, STRIP = 16, STRIPS = SLAB / STRIP };

s24i_strips s24i_strips_of(const s24_quantized *matrix)
{
    s24i_strips o = {.stored = matrix->indices ? COLUMNS / 2 : COLUMNS};
    o.group = matrix->group == 64 || matrix->group == 128 ? (int)matrix->group : 0;
    o.codes_at = STRIP * o.stored * matrix->bits / 8;
    o.scales_at = o.codes_at + (matrix->indices ? STRIP * COLUMNS / 8 : 0);
    o.scales = o.group ? COLUMNS / o.group : 0;
    o.strip_bytes = o.scales_at + o.scales * STRIP * (int)sizeof(float);
    o.blocks = (matrix->cols + COLUMNS - 1) / COLUMNS;
    o.slabs = (matrix->rows + SLAB - 1) / SLAB;
    o.slab_bytes = (size_t)o.blocks * STRIPS * (size_t)o.strip_bytes;
    o.bytes = (size_t)o.slabs * (o.slab_bytes + (o.group ? 0 : SLAB * sizeof(float)));
    return o;
}

/* ---- places in a strip: rows 0 to 15, stored columns and groups of four from its first on ---- */

/* A value's byte, and the bit there of 4 bits. A warp's lane l = 4g + t has, of each step of 16
   stored columns, those of rows g and g + 8 in registers j: 2t and 2t + 1, and 8 further. */
static size_t value_at(int bits, int row, int column, int *shift)
{
    const int step = column / 16, in = column % 16, j = row / 8 + in / 8 * 2, high = in % 2;
    const int lane = row % 8 * 4 + in % 8 / 2;
    const int word = bits == 4 ? step : 2 * step + j / 2;
    const int byte = high * 2 + (bits == 4 ? j / 2 : j % 2);
    *shift = bits == 4 ? j % 2 * 4 : 0;
    return (size_t)(word / 4 * 512 + lane * 16 + word % 4 * 4 + byte);
}

/* As in Hopper's order for 16 bits: a word has four groups of two rows, lanes 0 and 1 of four those
   of a step, 2 and 3 those of the next one. */
static size_t code_at(int row, int group, int *shift)
{
    const int lane = row % 8 * 4 + group / 8 % 2 * 2 + group % 8 / 4;
    *shift = group % 2 * 4;
    return (size_t)(lane * 8 + group / 16 * 4 + row / 8 * 2 + group % 4 / 2);
}

static size_t scale_at(int row, int scale)
{
    return (size_t)(scale * STRIP + row % 8 * 2 + row / 8) * sizeof(float);
}

/* ---- one row of a block ---------------------------------------------------------------------- */

/* The row of a matrix, its first stored column and group there, and how many are there. */
typedef struct place {
    const s24_quantized *matrix;
    int64_t row, column, group;
    int columns, groups;
} place;

static place place_of(const s24_quantized *m, const s24i_strips *o, int64_t row, int64_t block)
{
    const int64_t left = m->cols - block * COLUMNS;
    const int cols = left < COLUMNS ? (int)left : COLUMNS;
    return (place){.matrix = m,
                   .row = row,
                   .column = block * o->stored,
                   .group = block * (COLUMNS / 4),
                   .columns = m->indices ? cols / 2 : cols,
                   .groups = m->indices ? (cols + 3) / 4 : 0};
}

/* An integer of the row as its bits. */
static unsigned value_of(const place *p, int64_t stride, int column)
{
    const uint8_t *values = p->matrix->values;
    const int64_t at = p->row * stride + p->column + column;
    return p->matrix->bits == 8 ? values[at] : values[at / 2] >> at % 2 * 4 & 15u;
}

static void pack_row(uint8_t *strip, const s24i_strips *o, const place *p, int row)
{
    const s24_quantized *m = p->matrix;
    const int64_t stride = m->indices ? m->cols / 2 : m->cols;
    const int64_t scales = o->group ? (m->cols + o->group - 1) / o->group : 0;
    const uint8_t *codes = m->indices + (m->indices ? p->row * ((m->cols + 7) / 8) : 0);
    int shift;
    for (int c = 0; c < p->columns; c++) {
        uint8_t *to = strip + value_at(m->bits, row, c, &shift);
        *to = (uint8_t)(*to | value_of(p, stride, c) << shift);
    }
    for (int g = 0; g < p->groups; g++) {
        const int64_t group = p->group + g;
        const unsigned code = codes[group / 2] >> group % 2 * 4 & 15u;
        uint8_t *to = strip + o->codes_at + code_at(row, g, &shift);
        *to = (uint8_t)((*to & ~(15u << shift)) | code << shift);
    }
    for (int s = 0; s < o->scales; s++) {
        const int64_t scale = p->group * 4 / o->group + s;
        if (scale < scales)
            memcpy(strip + o->scales_at + scale_at(row, s), m->scales + p->row * scales + scale,
                   sizeof(float));
    }
}

void s24i_strips_pack_slab(void *packed, const s24_quantized *src, int64_t slab)
{
    const s24i_strips o = s24i_strips_of(src);
    const int64_t left = src->rows - slab * SLAB;
    uint8_t *to = (uint8_t *)packed + (size_t)slab * o.slab_bytes;
    for (int64_t b = 0; b < o.blocks; b++)
        for (int s = 0; s < STRIPS; s++, to += o.strip_bytes) {
            memset(to, 0, (size_t)o.strip_bytes);
            memset(to + o.codes_at, 0xee, (size_t)(o.scales_at - o.codes_at));
            for (int r = 0; r < STRIP && s * STRIP + r < left; r++) {
                const place p = place_of(src, &o, slab * SLAB + s * STRIP + r, b);
                pack_row(to, &o, &p, r);
            }
        }
    if (o.group) return;
    float *scales = (float *)((uint8_t *)packed + (size_t)o.slabs * o.slab_bytes) + slab * SLAB;
    memset(scales, 0, SLAB * sizeof *scales);
    memcpy(scales, src->scales + slab * SLAB, (size_t)(left < SLAB ? left : SLAB) * sizeof *scales);
}
