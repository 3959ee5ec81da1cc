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

/* ---- values ---------------------------------------------------------------------------------- */

/* Four words at a time, and the same in twos. */
typedef uint32_t words4 __attribute__((vector_size(16)));
typedef uint64_t twos2 __attribute__((vector_size(16)));

/* Puts a row's bytes 0 to 3 and 4 to 7, which `low` and `high` have of four rows, next to each
   other. */
static void put_rows(uint8_t *to, words4 low, words4 high)
{
    const twos2 a = (twos2)low, b = (twos2)high;
    const twos2 even = (a & 0xffffffffu) | b << 32, odd = a >> 32 | (b & ~(uint64_t)0xffffffffu);
    for (int i = 0; i < 2; i++) {
        const uint64_t rows[2] = {even[i], odd[i]};
        memcpy(to + 2 * i * S24I_SQUARE, &rows[0], sizeof rows[0]);
        memcpy(to + (2 * i + 1) * S24I_SQUARE, &rows[1], sizeof rows[1]);
    }
}

/*
 * Of a run, sixteen words of 4 bits have sixteen columns of eight rows. The words i, i + 4, i + 8
 * and i + 12 have of the rows i and i + 4 the columns 0 1 8 9, 2 3 10 11, 4 5 12 13 and 6 7 14 15:
 * the first row's in the nibbles 0 4 1 5, the second one's in 2 6 3 7.
 */
static void turn_fours(uint8_t *to, const uint32_t *from)
{
    words4 part[4], even[2], odd[2];
    for (int q = 0; q < 4; q++) {
        words4 word;
        memcpy(&word, from + 4 * q, sizeof word);
        word ^= 0x88888888u;
        const words4 low = word & 0x0f0f0f0fu, high = word >> 4 & 0x0f0f0f0fu;
        /* Bytes of columns near and far, each of the first row and of the second. */
        part[q] = ((low | low >> 12) & 0xffffu) | (high | high >> 12) << 16;
    }
    for (int h = 0; h < 2; h++) {
        const words4 a = part[2 * h], b = part[2 * h + 1];
        even[h] = (a & 0x00ff00ffu) | (b & 0x00ff00ffu) << 8;
        odd[h] = (a >> 8 & 0x00ff00ffu) | (b & 0xff00ff00u);
    }
    put_rows(to, (even[0] & 0xffffu) | even[1] << 16, even[0] >> 16 | (even[1] & 0xffff0000u));
    put_rows(to + 4 * S24I_SQUARE, (odd[0] & 0xffffu) | odd[1] << 16,
             odd[0] >> 16 | (odd[1] & 0xffff0000u));
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

/* A tile of a run: 64 rows and 16 stored columns. */
static void turn_tile(uint8_t *to, const uint32_t *from, int bits)
{
    for (int block = 0; block < RUN_ROWS / 8; block++) {
        uint8_t *rows = to + 8 * block * S24I_SQUARE;
        if (bits == 4) turn_fours(rows, from + 16 * block);
        for (int i = 0; i < 4 && bits == 8; i++) {
            turn_bytes(rows + i * S24I_SQUARE, from + 32 * block + 2 * i);
            turn_bytes(rows + (i + 4) * S24I_SQUARE, from + 32 * block + 2 * i + 1);
        }
    }
}

/* As many tiles of a run as make lines, or are left. */
static void turn_values(uint8_t *to, const s24i_numbers *x, int64_t run, int64_t tile)
{
    s24i_square square;
    const int64_t bytes = 2 * x->bits, per_word = 32 / x->bits, length = x->rows * TILE;
    const int64_t count = s24i_min(S24I_SQUARE / bytes, x->cols / 2 / TILE - tile);
    const uint32_t *words = (const uint32_t *)x->from->part[VALUES]->data + run * RUN / per_word;
    for (int64_t i = 0; i < count; i++)
        turn_tile(square.row[0] + i * bytes, words + (tile + i) * (length / per_word), x->bits);
    s24i_square_put(to + tile * bytes, s24i_numbers_row_bytes(x), &square, RUN_ROWS, count * bytes);
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Codes of 32 columns of a run: four words of 16 bits have, crosswise, those of two rows, four
   apart. */
static void turn_pair(uint8_t *to, const uint16_t *from)
{
    for (int block = 0; block < RUN_ROWS / 8; block++)
        for (int i = 0; i < 4; i++) {
            uint8_t *row = to + (8 * block + i) * S24I_SQUARE;
            uint64_t words;
            memcpy(&words, from + 4 * (2 * block + i % 2 + i / 2 * 16), sizeof words);
            const uint32_t first = (words & 0xffffu) | (words >> 16 & 0xffff0000u);
            const uint32_t second = (words >> 16 & 0xffffu) | (words >> 32 & 0xffff0000u);
            memcpy(row, &first, sizeof first);
            memcpy(row + 4 * S24I_SQUARE, &second, sizeof second);
        }
}

static void turn_codes(uint8_t *to, const s24i_numbers *x, int64_t run, int64_t pair)
{
    enum { BYTES = sizeof(uint32_t) };
    s24i_square square;
    const int64_t count = s24i_min(S24I_SQUARE / BYTES, x->cols / 32 - pair);
    const uint16_t *meta = (const uint16_t *)x->from->part[META]->data + 2 * run * RUN_ROWS;
    for (int64_t i = 0; i < count; i++)
        turn_pair(square.row[0] + i * BYTES, meta + 2 * (pair + i) * x->rows);
    s24i_square_put(to + pair * BYTES, x->cols / 8, &square, RUN_ROWS, count * BYTES);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Runs from begin to end, some at a time, whose words are neighbours. */
static void turn(uint8_t *values, uint8_t *indices, const s24i_numbers *x, int64_t begin,
                 int64_t end)
{
    enum { NEAR = 4 };
    const int64_t run_bytes = RUN_ROWS * s24i_numbers_row_bytes(x);
    const int64_t index_bytes = RUN_ROWS * (x->cols / 8);
    for (int64_t from = begin; from < end; from += NEAR) {
        const int64_t last = s24i_min(end, from + NEAR);
        for (int64_t tile = 0; tile < x->cols / 2 / TILE; tile += S24I_SQUARE / (2 * x->bits))
            for (int64_t run = from; run < last; run++)
                turn_values(values + (run - begin) * run_bytes, x, run, tile);
        for (int64_t pair = 0; pair < x->cols / 32; pair += S24I_SQUARE / 4)
            for (int64_t run = from; run < last; run++)
                turn_codes(indices + (run - begin) * index_bytes, x, run, pair);
    }
}

/* Codes are legal or not wherever they stand; the sentence says where they belong. */
static s24_status check_codes(const s24i_numbers *x)
{
    const s24i_foreign *w = x->from;
    const s24_tensor *meta = w->part[META];
    if (s24i_check_codes(w->ctx, w->path, meta->name, meta->data, 1, x->rows * x->cols) == S24_OK)
        return S24_OK;
    s24i_numbers all = *x;
    memset(all.owned, 0, sizeof all.owned);
    s24_status status = s24i_numbers_turn(&all);
    if (status == S24_OK)
        status = s24i_check_codes(w->ctx, w->path, meta->name, all.indices, x->rows, x->cols);
    s24i_numbers_free(&all);
    return status;
}

static s24_status read(s24i_numbers *out, const s24i_foreign *w)
{
    /* Scales of eight rows are interleaved, where there are more than two groups. */
    static const int order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    out->dtype = S24_I8;
    out->turn = turn;
    out->unit = RUN_ROWS;
    out->is_two_four = 1;
    TRY(check_codes(out));
    return s24i_numbers_turned_scales(out, w, w->part[SCALES],
                                      out->cols / out->group > 2 ? order : NULL);
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
