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

enum { WORDS, SCALES, ZEROS, GROUPS, BLOCK = 64, WIDE = 128 };

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
    const int64_t per_word = 32 / bits;
    return (int)(words[i / per_word] >> i % per_word * bits & ((1u << bits) - 1));
}

static int awq_element(const uint32_t *words, int64_t i)
{
    static const int place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return (int)(words[i / 8] >> 4 * place[i % 8] & 15);
}

/* Scales and zero points of [groups, n] to [n, groups], of as many rows as there is room for. */
static s24_status read_groups(s24i_numbers *out, const s24i_foreign *w, int is_awq)
{
    const s24_tensor *part = w->part[SCALES], *packed = w->part[ZEROS];
    const int64_t groups = part->shape[0], n = part->shape[1];
    const int middle = 1 << (w->bits - 1), more = is_awq ? 0 : less_by(w);
    float *scales = NULL, *given = NULL;
    int8_t *zeros = NULL;
    TRY(s24i_numbers_own(&scales, out, 1, out->rows * groups, sizeof *scales));
    TRY(s24i_numbers_own(&zeros, out, 2, out->rows * groups, 1));
    TRY(s24i_numbers_own(&given, out, 3, n * groups, sizeof *given));
    TRY(s24_convert(given, S24_F32, part->data, part->dtype, n * groups));
    for (int64_t g = 0; g < groups; g++) {
        const uint32_t *words = (const uint32_t *)packed->data + g * packed->shape[1];
        for (int64_t r = 0; r < n; r++) {
            const int zero =
                (is_awq ? awq_element(words, r) : element(words, r, w->bits) + more) - middle;
            REQUIRE(w->ctx, zero <= INT8_MAX, S24_ERROR_FORMAT,
                    "%s: tensor \"%s\": the zero point of group %lld, column %lld is 256, at most "
                    "255 was expected",
                    w->path, s24i_show(packed->name).text, (long long)g, (long long)r);
            if (zero) out->zeros = zeros;
            if (r >= out->rows) continue;
            scales[r * groups + g] = given[g * n + r];
            zeros[r * groups + g] = (int8_t)zero;
        }
    }
    out->scales = scales;
    const s24_quantized of = {.rows = out->rows, .cols = w->cols, .group = w->group};
    return s24i_check_scales(w->ctx, w->path, part->name, scales, &of);
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

/* Words on their way to rows: of each word's neighbours along k, or of pairs of AWQ's words. */
typedef struct turning {
    const s24i_foreign *w;
    uint8_t *values;
    int64_t rows, stride;
} turning;

/* A block of rows. A word's bytes lie in the order of the columns. */
static void turn_gptq(void *arg, int64_t begin, int64_t end, int thread)
{
    const turning *t = arg;
    const s24_tensor *part = t->w->part[WORDS];
    const int64_t last = s24i_min(t->rows, end * BLOCK);
    (void)thread;
    for (int64_t from = begin * BLOCK; from < last; from += BLOCK)
        for (int64_t i = 0; i < part->shape[0]; i++) {
            const uint32_t *words = (const uint32_t *)part->data + i * part->shape[1];
            for (int64_t r = from; r < s24i_min(from + BLOCK, last); r++)
                memcpy(t->values + r * t->stride + i * (int64_t)sizeof *words, words + r,
                       sizeof *words);
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

/* Up to 128 columns of a word. */
static void turn_eight(const turning *t, int64_t word, int64_t from)
{
    const s24_tensor *part = t->w->part[WORDS];
    const int64_t count = s24i_min(WIDE, part->shape[0] - from);
    uint64_t near[WIDE / 16][8];
    for (int64_t c = 0; c < count; c += 16)
        turn_sixteen(near[c / 16], part, word, from + c);
    for (int64_t i = 0; i < s24i_min(8, t->rows - 8 * word); i++) {
        uint8_t *to = t->values + (8 * word + i) * t->stride + from / 2;
        for (int64_t c = 0; c < count; c += 16)
            memcpy(to + c / 2, &near[c / 16][i], (size_t)(s24i_min(16, count - c) + 1) / 2);
    }
}

/* The same of AWQ's, whose words have neighbours along n. */
static void turn_awq(void *arg, int64_t begin, int64_t end, int thread)
{
    const turning *t = arg;
    const int64_t last = s24i_min(t->rows, end * BLOCK);
    (void)thread;
    for (int64_t from = 0; from < t->w->cols; from += WIDE)
        for (int64_t r = begin * BLOCK; r < last; r += 8)
            turn_eight(t, r / 8, from);
}

static s24_status turn(s24i_numbers *out, const s24i_foreign *w,
                       void (*rows)(void *arg, int64_t begin, int64_t end, int thread))
{
    out->dtype = S24_I8;
    out->flip = w->bits == 4 ? 0x88 : 0x80;
    turning t = {.w = w, .rows = out->rows, .stride = s24i_numbers_row_bytes(out)};
    TRY(s24i_numbers_room(&t.values, out, 0, out->rows * t.stride, 1));
    s24_ctx_parallel_for(w->ctx, (out->rows + BLOCK - 1) / BLOCK, rows, &t);
    out->values = t.values;
    return S24_OK;
}

static s24_status read_gptq(s24i_numbers *out, const s24i_foreign *w)
{
    TRY(turn(out, w, turn_gptq));
    if (w->part[GROUPS]) TRY(read_order(out, w));
    return read_groups(out, w, 0);
}

static s24_status read_awq(s24i_numbers *out, const s24i_foreign *w)
{
    TRY(turn(out, w, turn_awq));
    return read_groups(out, w, 1);
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
