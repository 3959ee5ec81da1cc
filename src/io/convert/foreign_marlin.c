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

/* Where in a run of four tiles an element stands that is stored at `at`. */
static int64_t place_in_run(int at, int bits)
{
    static const int of_eight[] = {0, 2, 4, 6, 1, 3, 5, 7}, of_four[] = {0, 2, 1, 3};
    const int place = bits == 4 ? at / 8 * 8 + of_eight[at % 8] : at / 4 * 4 + of_four[at % 4];
    const int lane = place / 32, shift = place / 8 % 4, e = place % 8;
    const int row = 2 * (lane % 4) + e % 2 + 8 * (e / 2 % 2), col = lane / 4;
    return 16 * row + col / 2 * 256 + 8 * (col % 2) + 4 * (e / 4) + shift;
}

/* Words on their way to rows: of a run, where each of its elements goes from its first row on. */
typedef struct turning {
    const s24i_foreign *w;
    int8_t *values;
    uint8_t *indices;
    int64_t places[RUN];
} turning;

/* Runs are of 64 rows and 16 stored columns. */
static void turn_runs(void *arg, int64_t begin, int64_t end, int thread)
{
    const turning *t = arg;
    const s24i_foreign *w = t->w;
    const uint32_t *words = w->part[VALUES]->data;
    const int per_word = 32 / w->bits, middle = 1 << (w->bits - 1);
    const uint32_t mask = 2 * (uint32_t)middle - 1;
    const int64_t half = w->cols / 2, length = w->rows * TILE;
    (void)thread;
    for (int64_t run = begin; run < end; run++)
        for (int64_t tile = 0; tile < half / TILE; tile++) {
            const uint32_t *from = words + (tile * length + run * RUN) / per_word;
            int8_t *to = t->values + run * RUN_ROWS * half + tile * TILE;
            for (int i = 0; i < RUN; i += per_word, from++)
                for (int e = 0; e < per_word; e++)
                    to[t->places[i + e]] = (int8_t)((int)(*from >> e * w->bits & mask) - middle);
        }
}

static void place_runs(turning *t)
{
    const int64_t half = t->w->cols / 2;
    for (int i = 0; i < RUN; i++) {
        const int64_t at = place_in_run(i, t->w->bits);
        const int64_t row = at / (TILE * TILE) * TILE + at % TILE;
        t->places[i] = row * half + at % (TILE * TILE) / TILE;
    }
}

/* The word of 16 columns of a row. */
static uint16_t word_of(const s24i_foreign *w, int64_t row, int64_t word)
{
    int64_t r = row / 64 * 64 + row % 2 * 2 + row % 8 / 4 + row % 4 / 2 * 32 + row % 64 / 8 * 4;
    int64_t c = word;
    const int up = r % 2 == 0 && c % 2 == 1, down = r % 2 == 1 && c % 2 == 0;
    r += up - down;
    c -= up - down;
    return ((const uint16_t *)w->part[META]->data)[c / 2 * 2 * w->rows + 2 * r + c % 2];
}

static void code_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const turning *t = arg;
    const int64_t stride = t->w->cols / 8;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < stride / 2; c++) {
            const uint16_t word = word_of(t->w, r, c);
            t->indices[r * stride + 2 * c] = (uint8_t)word;
            t->indices[r * stride + 2 * c + 1] = (uint8_t)(word >> 8);
        }
}

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
    TRY(s24i_numbers_room(&t.values, out, 0, out->rows * (out->cols / 2), 1));
    TRY(s24i_numbers_room(&t.indices, out, 2, out->rows * (out->cols / 8), 1));
    place_runs(&t);
    s24_ctx_parallel_for(w->ctx, out->rows / RUN_ROWS, turn_runs, &t);
    s24_ctx_parallel_for(w->ctx, out->rows, code_rows, &t);
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
