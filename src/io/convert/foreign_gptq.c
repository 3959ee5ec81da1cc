// SPDX-License-Identifier: Apache-2.0
/*
 * Integers in words of 32 bits with a zero point for each scale, stored as the transpose [k, n]:
 *
 *   GPTQ   qweight [k·bits/32, n]: a word has neighbours along k. qzeros [groups, n·bits/32]:
 *          each less one, or in its second form as it is. g_idx [k], the group of each k, which may
 *          be left out where config.json says that they come in turn. 4 or 8 bits.
 *   AWQ    qweight [k, n/8], qzeros [groups, n/8]: a word has eight neighbours along n, the even
 *          ones first. 4 bits.
 *
 * scales are [groups, n] in both.
 */
#include <string.h>

#include "io/convert/convert.h"

enum { WORDS, SCALES, ZEROS, GROUPS, BLOCK = S24I_SQUARE, WIDE = 128 };

/* ---- shapes ---------------------------------------------------------------------------------- */

static s24_status measure_scales(s24i_foreign *w)
{
    const s24_tensor *scales = w->part[SCALES];
    REQUIRE(w->ctx, scales->rank == 2 && scales->shape[0] > 0 && w->cols % scales->shape[0] == 0,
            S24_ERROR_FORMAT, "%s: tensor \"%s\": its groups do not divide %lld columns", w->path,
            s24i_show(scales->name).text, (long long)w->cols);
    const int64_t per_word = 32 / w->bits;
    const int64_t shape[] = {scales->shape[0], w->rows};
    const int64_t zeros[] = {scales->shape[0], w->rows / per_word};
    w->group = w->cols / scales->shape[0];
    REQUIRE(w->ctx, w->rows % per_word == 0, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %lld columns, a multiple of %lld was expected", w->path,
            s24i_show(scales->name).text, (long long)w->rows, (long long)per_word);
    TRY(s24i_foreign_part(w, SCALES, S24_DTYPE_NONE, 2, shape));
    return s24i_foreign_part(w, ZEROS, S24_I32, 2, zeros);
}

static s24_status measure_words(const s24i_foreign *w)
{
    const s24_tensor *words = w->part[WORDS];
    REQUIRE(w->ctx,
            words->rank == 2 && words->shape[0] > 0 && words->shape[1] > 0 &&
                words->dtype == S24_I32,
            S24_ERROR_FORMAT, "%s: tensor \"%s\" is no matrix of I32", w->path,
            s24i_show(words->name).text);
    return S24_OK;
}

/* By how much a stored zero point is less than it is: 1, or 0 in the second form. A file by itself
   tells by symmetric integers' alone, which all are the middle; −1: it does not. */
static int less_by(const s24i_foreign *w)
{
    const s24_tensor *zeros = w->part[ZEROS];
    const uint32_t *words = zeros->data;
    const uint32_t middle = w->bits == 4 ? 0x88888888u : 0x80808080u;
    const uint32_t less = w->bits == 4 ? 0x77777777u : 0x7f7f7f7fu;
    if (w->said->is_said) return !w->said->zeros_as_stored;
    for (size_t i = 0; i < zeros->bytes / sizeof *words; i++)
        if (words[i] != words[0]) return -1;
    return words[0] == less ? 1 : words[0] == middle ? 0 : -1;
}

/* A row of words for each output, not for eight. */
static int is_by_output(const s24i_foreign *w)
{
    const s24_tensor *words = w->part[WORDS], *scales = w->part[SCALES];
    return words->rank == 2 && scales->rank == 2 && words->shape[1] == scales->shape[1];
}

static s24_status measure_gptq(s24i_foreign *w)
{
    const s24_tensor *words = w->part[WORDS], *zeros = w->part[ZEROS];
    TRY(measure_words(w));
    w->rows = words->shape[1];
    w->bits = zeros->rank == 2 && zeros->shape[1] * 4 == w->rows ? 8 : 4;
    w->cols = words->shape[0] * (32 / w->bits);
    TRY(measure_scales(w));
    if (less_by(w) < 0)
        return s24i_foreign_untold(w, ZEROS, "of GPTQ's first form or of its second");
    if (w->part[GROUPS]) return s24i_foreign_part(w, GROUPS, S24_I32, 1, &w->cols);
    REQUIRE(w->ctx, w->said->in_order, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has no g_idx, which says the groups of its columns", w->path,
            s24i_show(words->name).text);
    return S24_OK;
}

static s24_status measure_awq(s24i_foreign *w)
{
    TRY(measure_words(w));
    w->bits = 4;
    w->cols = w->part[WORDS]->shape[0];
    w->rows = w->part[WORDS]->shape[1] * 8;
    return measure_scales(w);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Element i of a row of words. */
static int element(const uint32_t *words, int64_t i, int bits)
{
    return (int)(words[i * bits / 32] >> i * bits % 32 & ((1u << bits) - 1));
}

static int awq_element(const uint32_t *words, int64_t i)
{
    static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return (int)(words[i / 8] >> 4 * place[i % 8] & 15);
}

/* Is every word of them this one? */
static int words_are(const s24_tensor *part, uint32_t word)
{
    const uint32_t *words = part->data;
    uint32_t others = 0;
    for (size_t i = 0; i < part->bytes / sizeof *words; i++)
        others |= words[i] ^ word;
    return !others;
}

/* Zero points of [groups, n] to [n, groups], of as many rows as there is room for, a block of rows
   after another; nothing where all are the middle. */
static s24_status read_zeros(s24i_numbers *out, const s24i_foreign *w, int is_awq)
{
    const s24_tensor *part = w->part[ZEROS];
    const int64_t groups = part->shape[0];
    const int middle = 1 << (w->bits - 1), more = is_awq ? 0 : less_by(w);
    const uint32_t ones = w->bits == 4 ? 0x11111111u : 0x01010101u;
    int8_t *zeros = NULL;
    if (words_are(part, ones * (uint32_t)(middle - more))) return S24_OK;
    TRY(s24i_numbers_room(&zeros, out, 2, out->rows * groups, 1));
    out->zeros = zeros;
    for (int64_t i = 0; i < (out->rows + BLOCK - 1) / BLOCK * groups; i++) {
        const int64_t g = i % groups, from = i / groups * BLOCK;
        const uint32_t *words = (const uint32_t *)part->data + g * part->shape[1];
        for (int64_t r = from; r < s24i_min(from + BLOCK, out->rows); r++) {
            const int zero = is_awq ? awq_element(words, r) : element(words, r, w->bits) + more;
            REQUIRE(w->ctx, zero - middle <= INT8_MAX, S24_ERROR_FORMAT,
                    "%s: tensor \"%s\": the zero point of group %lld, column %lld is 256, at most "
                    "255 was expected",
                    w->path, s24i_show(part->name).text, (long long)g, (long long)r);
            zeros[r * groups + g] = (int8_t)(zero - middle);
        }
    }
    return S24_OK;
}

/* The group of each column, where it is not the one that its place says. */
static s24_status read_order(s24i_numbers *out, const s24i_foreign *w)
{
    const int32_t *groups = w->part[GROUPS]->data;
    for (int64_t c = 0; c < w->cols; c++) {
        REQUIRE(w->ctx, groups[c] >= 0 && groups[c] < w->cols / w->group, S24_ERROR_FORMAT,
                "%s: tensor \"%s\": column %lld is in group %d of %lld", w->path,
                s24i_show(w->part[GROUPS]->name).text, (long long)c, groups[c],
                (long long)(w->cols / w->group));
        if (groups[c] != c / w->group) out->groups = groups;
    }
    return S24_OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Of neighbours along k: a word's bytes lie in the order of the columns, so that words are
   transposed, a line of each row at a time. */
static void turn_gptq(uint8_t *values, uint8_t *indices, const s24i_numbers *x, int64_t begin,
                      int64_t end)
{
    enum { WORDS_OF_LINE = S24I_SQUARE / sizeof(float), NEAR = 4 };
    const s24i_vec *vec = s24i_vec_find(s24_ctx_cpu(x->ctx));
    const s24_tensor *part = x->from->part[WORDS];
    const int64_t stride = s24i_numbers_row_bytes(x), n = part->shape[1];
    s24i_square square;
    (void)indices;
    for (int64_t from = begin; from < end; from += NEAR)
        for (int64_t i = 0; i < part->shape[0]; i += WORDS_OF_LINE)
            for (int64_t unit = from; unit < s24i_min(end, from + NEAR); unit++) {
                const int64_t rows = s24i_min(BLOCK, x->rows - unit * BLOCK);
                const int64_t count = s24i_min(WORDS_OF_LINE, part->shape[0] - i);
                const float *words = (const float *)part->data + i * n + unit * BLOCK;
                vec->transpose((float *)(void *)square.row, WORDS_OF_LINE, words, n, count, rows);
                s24i_square_put(values + (unit - begin) * BLOCK * stride + 4 * i, stride, &square,
                                rows, 4 * count);
            }
}

/* Bytes of eight rows out of two columns' words, the first's 4 bits low: of the rows 0 4 1 5, then
   of 2 6 3 7. */
static uint64_t pair_words(uint32_t low, uint32_t high)
{
    const uint32_t even = (low & 0x0f0f0f0fu) | (high & 0x0f0f0f0fu) << 4;
    const uint32_t odd = (low >> 4 & 0x0f0f0f0fu) | (high & 0xf0f0f0f0u);
    return even | (uint64_t)odd << 32;
}

/* Up to sixteen columns of a word of eight rows: eight bytes of each. */
static void turn_sixteen(uint64_t to[8], const s24_tensor *part, int64_t word, int64_t from)
{
    static const int place[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    const uint32_t *words = (const uint32_t *)part->data + from * part->shape[1] + word;
    const int64_t count = s24i_min(16, part->shape[0] - from), stride = part->shape[1];
    memset(to, 0, 8 * sizeof *to);
    for (int64_t c = 0; c < count; c += 2) {
        const uint64_t bytes =
            pair_words(words[c * stride], words[(c + 1 < count ? c + 1 : c) * stride]);
        for (int i = 0; i < 8; i++)
            to[i] |= (bytes >> 8 * place[i] & 255) << 4 * c;
    }
}

/* Up to 128 columns of a word, whose rows are counted. */
static void turn_eight(uint8_t *values, const s24i_numbers *x, int64_t word, int64_t from)
{
    const int64_t stride = s24i_numbers_row_bytes(x), count = s24i_min(WIDE, x->cols - from);
    uint64_t near[WIDE / 16][8];
    for (int64_t c = 0; c < count; c += 16)
        turn_sixteen(near[c / 16], x->from->part[WORDS], word, from + c);
    for (int64_t i = 0; i < s24i_min(8, x->rows - 8 * word); i++) {
        uint8_t *to = values + i * stride + from / 2;
        for (int64_t c = 0; c < count; c += 16)
            memcpy(to + c / 2, &near[c / 16][i], (size_t)(s24i_min(16, count - c) + 1) / 2);
    }
}

/* The same of AWQ's, whose words have neighbours along n: a unit's are a line of each column. */
static void turn_awq(uint8_t *values, uint8_t *indices, const s24i_numbers *x, int64_t begin,
                     int64_t end)
{
    const int64_t first = begin * WIDE, last = s24i_min(x->rows, end * WIDE);
    (void)indices;
    for (int64_t from = 0; from < x->cols; from += WIDE)
        for (int64_t r = first; r < last; r += 8)
            turn_eight(values + (r - first) * s24i_numbers_row_bytes(x), x, r / 8, from);
}

/* What GPTQ's and AWQ's have in common. */
static s24_status read_words(s24i_numbers *out, const s24i_foreign *w, int is_awq)
{
    out->dtype = S24_I8;
    out->flip = w->bits == 4 ? 0x88 : 0x80;
    out->turn = is_awq ? turn_awq : turn_gptq;
    out->unit = is_awq ? WIDE : BLOCK;
    TRY(read_zeros(out, w, is_awq));
    return s24i_numbers_turned_scales(out, w, w->part[SCALES], NULL);
}

static s24_status read_gptq(s24i_numbers *out, const s24i_foreign *w)
{
    if (w->part[GROUPS]) TRY(read_order(out, w));
    return read_words(out, w, 0);
}

static s24_status read_awq(s24i_numbers *out, const s24i_foreign *w)
{
    return read_words(out, w, 1);
}

const s24i_foreign_scheme s24i_scheme_gptq = {
    .name = "GPTQ",
    .whole = ".weight",
    .part = {{.suffix = ".qweight"},
             {.suffix = ".scales"},
             {.suffix = ".qzeros"},
             {.suffix = ".g_idx", .is_optional = 1}},
    .fits = is_by_output,
    .measure = measure_gptq,
    .read = read_gptq,
    .scales = SCALES,
    .rows_apart = 1,
};

const s24i_foreign_scheme s24i_scheme_awq = {
    .name = "AWQ",
    .whole = ".weight",
    .part = {{.suffix = ".qweight"}, {.suffix = ".scales"}, {.suffix = ".qzeros"}},
    .measure = measure_awq,
    .read = read_awq,
    .scales = SCALES,
    .rows_apart = 1,
};
