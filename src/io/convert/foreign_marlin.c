// SPDX-License-Identifier: Apache-2.0
/*
 * compressed-tensors' marlin-24: integers of a 2:4 weight in the order in which Sparse-Marlin's
 * kernel reads them, along k first, in tiles of 16x16 whose elements are permuted in runs of four
 * tiles; codes in 16-bit words in an order of their own; scales [k / group, n].
 */
#include <string.h>

#include "io/convert/convert.h"

enum { VALUES, SCALES, META, TILE = 16, RUN_ROWS = 4 * TILE, RUN = RUN_ROWS * TILE };

static s24_status measure(s24i_foreign *w)
{
    const s24_tensor *meta = w->part[META], *scales = w->part[SCALES];
    REQUIRE(w->ctx,
            meta->rank == 2 && meta->shape[0] > 0 && meta->shape[1] > 0 &&
                meta->shape[1] % 128 == 0 && meta->shape[0] < INT32_MAX,
            S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has a shape that no marlin-24 weight gives, expected [k / 32, 2 n] "
            "with n a multiple of 64",
            w->path, s24i_show(meta->name).text);
    w->rows = meta->shape[1] / 2;
    w->cols = meta->shape[0] * 32;
    const s24_tensor *values = w->part[VALUES];
    w->bits = values->rank == 2 && values->shape[1] == 4 * w->rows ? 8 : 4;
    const int64_t packed[] = {w->cols / 32, w->rows * w->bits / 2};
    const int64_t groups = scales->rank == 2 && scales->shape[0] > 0 ? scales->shape[0] : 1;
    const int64_t scale[] = {groups, w->rows};
    w->group = w->cols / groups;
    REQUIRE(w->ctx, w->group > 0 && w->group * groups == w->cols, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %lld groups, which do not divide %lld columns", w->path,
            s24i_show(scales->name).text, (long long)groups, (long long)w->cols);
    TRY(s24i_foreign_part(w, META, S24_I16, 2, meta->shape));
    TRY(s24i_foreign_part(w, VALUES, S24_I32, 2, packed));
    return s24i_foreign_part(w, SCALES, S24_DTYPE_NONE, 2, scale);
}

/* Words on their way to rows. */
typedef struct turning {
    const s24i_foreign *w;
    uint8_t *values, *indices;
} turning;

/* ---- values ---------------------------------------------------------------------------------- */

/*
 * Of a run, the words of 4 bits from `from` on that lie 4 apart have, of the two rows, the columns
 * 0 1 8 9, 2 3 10 11, 4 5 12 13 and 6 7 14 15: the first row's in the nibbles 0 4 1 5, the second
 * one's in 2 6 3 7.
 */
static void turn_fours(uint8_t *first, uint8_t *second, const uint32_t *from)
{
    uint64_t rows[2] = {0, 0};
    for (int q = 0; q < 4; q++) {
        const uint32_t word = from[4 * q] ^ 0x88888888u;
        const uint32_t low = word & 0x0f0f0f0fu, high = word >> 4 & 0x0f0f0f0fu;
        const uint32_t near = low | low >> 12, far = high | high >> 12;
        rows[0] |= (uint64_t)(near & 255) << 8 * q | (uint64_t)(far & 255) << (32 + 8 * q);
        rows[1] |= (uint64_t)(near >> 8 & 255) << 8 * q | (uint64_t)(far >> 8 & 255)
                                                              << (32 + 8 * q);
    }
    memcpy(first, &rows[0], sizeof rows[0]);
    memcpy(second, &rows[1], sizeof rows[1]);
}

/* Those of 8 bits that lie 8 apart have a row's columns 0 8 1 9, 2 10 3 11, … */
static void turn_bytes(uint8_t *row, const uint32_t *from)
{
    for (int q = 0; q < 4; q++) {
        const uint32_t word = from[8 * q] ^ 0x80808080u;
        row[2 * q] = (uint8_t)word;
        row[2 * q + 1] = (uint8_t)(word >> 16);
        row[8 + 2 * q] = (uint8_t)(word >> 8);
        row[8 + 2 * q + 1] = (uint8_t)(word >> 24);
    }
}

/* A run of 64 rows and 16 stored columns, of which rows of values are `stride` bytes apart. */
static void turn_run(uint8_t *to, int64_t stride, const uint32_t *from, int bits)
{
    for (int block = 0; block < RUN_ROWS / 8; block++)
        for (int i = 0; i < 4; i++) {
            uint8_t *row = to + (8 * block + i) * stride;
            if (bits == 4) {
                turn_fours(row, row + 4 * stride, from + 16 * block + i);
            } else {
                turn_bytes(row, from + 32 * block + 2 * i);
                turn_bytes(row + 4 * stride, from + 32 * block + 2 * i + 1);
            }
        }
}

static void turn_runs(void *arg, int64_t begin, int64_t end, int thread)
{
    const turning *t = arg;
    const s24i_foreign *w = t->w;
    const uint32_t *words = w->part[VALUES]->data;
    const int per_word = 32 / w->bits;
    const int64_t stride = w->cols / 2 * w->bits / 8, length = w->rows * TILE;
    (void)thread;
    for (int64_t run = begin; run < end; run++)
        for (int64_t tile = 0; tile < w->cols / 2 / TILE; tile++)
            turn_run(t->values + run * RUN_ROWS * stride + tile * TILE * w->bits / 8, stride,
                     words + (tile * length + run * RUN) / per_word, w->bits);
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Where the words of a row lie among those of its run. */
static int place_of(int row)
{
    return row % 2 * 2 + row % 8 / 4 + row % 4 / 2 * 32 + row / 8 * 4;
}

/* Runs of rows. Words of 16 columns stand in pairs, and in two rows of a run crosswise: the first
   words of both, then the second ones. */
static void code_runs(void *arg, int64_t begin, int64_t end, int thread)
{
    const turning *t = arg;
    const int64_t stride = t->w->cols / 8, rows = t->w->rows;
    int places[RUN_ROWS];
    (void)thread;
    for (int i = 0; i < RUN_ROWS; i++)
        places[i] = place_of(i) / 2 * 4 + place_of(i) % 2;
    for (int64_t run = begin; run < end; run++)
        for (int64_t pair = 0; pair < stride / 4; pair++) {
            const uint16_t *meta =
                (const uint16_t *)t->w->part[META]->data + 2 * (pair * rows + run * RUN_ROWS);
            uint8_t *restrict to = t->indices + run * RUN_ROWS * stride + 4 * pair;
            for (int i = 0; i < RUN_ROWS; i++) {
                const uint32_t words = meta[places[i]] | (uint32_t)meta[places[i] + 2] << 16;
                memcpy(to + i * stride, &words, sizeof words);
            }
        }
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Scales in our order; of more than two groups those of eight rows are interleaved. */
static s24_status read_scales(s24i_numbers *out, const s24i_foreign *w)
{
    static const int order[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const s24_tensor *part = w->part[SCALES];
    const int64_t groups = out->cols / out->group, n = out->rows;
    float *stored, *scales;
    TRY(s24i_numbers_own(&stored, out, 3, groups * n, sizeof *stored));
    TRY(s24i_numbers_own(&scales, out, 1, groups * n, sizeof *scales));
    TRY(s24_convert(stored, S24_F32, part->data, part->dtype, groups * n));
    for (int64_t g = 0; g < groups; g++)
        for (int64_t i = 0; i < n; i++)
            scales[(groups > 2 ? i / 8 * 8 + order[i % 8] : i) * groups + g] = stored[g * n + i];
    out->scales = scales;
    const s24_quantized of = {.rows = n, .cols = out->cols, .group = out->group};
    return s24i_check_scales(w->ctx, w->path, part->name, scales, &of);
}

static s24_status read(s24i_numbers *out, const s24i_foreign *w)
{
    turning t = {.w = w};
    TRY(s24i_numbers_room(&t.values, out, 0, out->rows * (out->cols / 2) * out->bits / 8, 1));
    TRY(s24i_numbers_room(&t.indices, out, 2, out->rows * (out->cols / 8), 1));
    s24_ctx_parallel_for(w->ctx, out->rows / RUN_ROWS, turn_runs, &t);
    s24_ctx_parallel_for(w->ctx, out->rows / RUN_ROWS, code_runs, &t);
    out->dtype = S24_I8;
    out->values = t.values;
    out->indices = t.indices;
    TRY(s24i_check_codes(w->ctx, w->path, w->part[META]->name, t.indices, out->rows, out->cols));
    return read_scales(out, w);
}

const s24i_foreign_scheme s24i_scheme_marlin_24 = {
    .name = "compressed-tensors marlin-24",
    .whole = ".weight",
    .part = {{.suffix = ".weight_packed"}, {.suffix = ".scale_packed"}, {.suffix = ".meta"}},
    .measure = measure,
    .read = read,
    .scales = SCALES,
    .is_two_four = 1,
};
