// SPDX-License-Identifier: Apache-2.0
/*
 * compressed-tensors' quantised weights: integers of 4 and 8 bits in words of 32 (pack-quantized),
 * and elements of a byte as they are, e4m3 (float-quantized, naive-quantized) or i8
 * (int-quantized); a scale for a tensor, a row, or a group of a row's columns.
 */
#include <string.h>

#include "io/convert/convert.h"

enum { VALUES, SCALES, SHAPE, ZEROS, GROUPS, BYTE_ZEROS = SHAPE, BYTE_SHAPE };

/* Of so many columns words may be as many for another number of bits. */
enum { FEW = 16 };

/* One zero point of all is an i8, whatever the others are packed in. */
static int is_one_zero(const s24_tensor *zeros)
{
    return zeros->dtype == S24_I8 && zeros->bytes == 1;
}

static s24_status read_one_zero(s24i_numbers *out, int8_t zero)
{
    const int64_t count = out->rows * (out->cols / out->group);
    int8_t *zeros;
    if (!zero) return S24_OK;
    TRY(s24i_numbers_own(&zeros, out, 2, count, 1));
    memset(zeros, zero, (size_t)count);
    out->zeros = zeros;
    return S24_OK;
}

/* The groups of columns, where a part says them. */
static s24_status measure_groups(const s24i_foreign *w)
{
    return w->part[GROUPS] ? s24i_foreign_part(w, GROUPS, S24_I32, 1, &w->cols) : S24_OK;
}

/* ---- words of 32 bits ------------------------------------------------------------------------ */

/* Are the top bits of every word zero, as those of four integers of 7 bits are? */
static int may_be_seven(const s24_tensor *words)
{
    const uint32_t *word = words->data;
    uint32_t any = 0;
    for (size_t i = 0; i < words->bytes / sizeof *word; i++)
        any |= word[i];
    return any >> 28 == 0;
}

/* Words tell how many bits an integer has by their number, but for few columns; integers of 7 bits
   were put four in a word, like those of 8. */
static s24_status check_bits(const s24i_foreign *w)
{
    REQUIRE(w->ctx, w->cols > 4, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" may be of 4 bits or of 8, which its %lld columns do not tell",
            w->path, s24i_show(w->part[VALUES]->name).text, (long long)w->cols);
    if (w->said->is_said) return S24_OK;
    if (w->cols <= FEW) return s24i_foreign_untold(w, VALUES, "of 4 bits, 8 or others");
    if (w->bits == 8 && may_be_seven(w->part[VALUES]))
        return s24i_foreign_untold(w, VALUES, "of 7 bits or of 8");
    return S24_OK;
}

static s24_status measure_words(s24i_foreign *w)
{
    const s24_tensor *words = w->part[VALUES];
    int64_t shape[2];
    TRY(s24i_foreign_shape(shape, w, SHAPE));
    w->rows = shape[0];
    w->cols = shape[1];
    for (w->bits = 4; w->bits < 8; w->bits += 4)
        if (words->rank == 2 && words->shape[1] == (w->cols * w->bits + 31) / 32) break;
    const int64_t packed[] = {w->rows, (w->cols * w->bits + 31) / 32};
    TRY(s24i_foreign_part(w, VALUES, S24_I32, 2, packed));
    TRY(check_bits(w));
    TRY(s24i_foreign_scales(w, SCALES));
    const int64_t per_word = 32 / w->bits;
    const int64_t zeros[] = {(w->rows + per_word - 1) / per_word, w->cols / w->group};
    if (w->part[ZEROS] && !is_one_zero(w->part[ZEROS]))
        TRY(s24i_foreign_part(w, ZEROS, S24_I32, 2, zeros));
    return measure_groups(w);
}

/* Zero points, packed along rows. */
static s24_status read_zeros(s24i_numbers *out, const s24i_foreign *w)
{
    const uint32_t *words = w->part[ZEROS]->data;
    const int64_t groups = out->cols / out->group, per_word = 32 / out->bits;
    const int middle = 1 << (out->bits - 1);
    const uint32_t mask = 2 * (uint32_t)middle - 1;
    int8_t *zeros;
    if (is_one_zero(w->part[ZEROS]))
        return read_one_zero(out, *(const int8_t *)w->part[ZEROS]->data);
    TRY(s24i_numbers_own(&zeros, out, 2, out->rows * groups, 1));
    for (int64_t r = 0; r < w->part[VALUES]->shape[0]; r++)
        for (int64_t g = 0; g < groups; g++) {
            const uint32_t word = words[r / per_word * groups + g];
            const int zero = (int)(word >> r % per_word * out->bits & mask) - middle;
            if (r < out->rows) zeros[r * groups + g] = (int8_t)zero;
            if (zero) out->zeros = zeros;
        }
    return S24_OK;
}

/* The group of each column, where columns were quantised in another order than they stand in. */
static s24_status read_groups(s24i_numbers *out, const s24i_foreign *w)
{
    const int32_t *groups = w->part[GROUPS]->data;
    for (int64_t c = 0; c < out->cols; c++) {
        REQUIRE(w->ctx, groups[c] >= 0 && groups[c] < out->cols / out->group, S24_ERROR_FORMAT,
                "%s: tensor \"%s\": column %lld is in group %d of %lld", w->path,
                s24i_show(w->part[GROUPS]->name).text, (long long)c, groups[c],
                (long long)(out->cols / out->group));
        if (groups[c] != c / out->group) out->groups = groups;
    }
    return S24_OK;
}

/* A word has a row's first integer in its low bits: so its bytes lie in the columns' order. */
static s24_status read_words(s24i_numbers *out, const s24i_foreign *w)
{
    out->dtype = S24_I8;
    out->values = w->part[VALUES]->data;
    out->stride = w->part[VALUES]->shape[1] * (int64_t)sizeof(uint32_t);
    out->flip = out->bits == 4 ? 0x88 : 0x80;
    if (w->part[ZEROS]) TRY(read_zeros(out, w));
    if (w->part[GROUPS]) TRY(read_groups(out, w));
    return s24i_numbers_scales(out, w, w->part[SCALES]);
}

const s24i_foreign_scheme s24i_scheme_pack_quantized = {
    .name = "compressed-tensors pack-quantized",
    .whole = ".weight",
    .part = {{.suffix = ".weight_packed"},
             {.suffix = ".weight_scale"},
             {.suffix = ".weight_shape"},
             {.suffix = ".weight_zero_point", .is_optional = 1},
             {.suffix = ".weight_g_idx", .is_optional = 1}},
    .measure = measure_words,
    .read = read_words,
    .scales = SCALES,
    .rows_apart = 1,
};

/* ---- bytes ----------------------------------------------------------------------------------- */

/* What says the weight's shape next to its elements agrees with theirs. */
static s24_status check_shape(const s24i_foreign *w)
{
    int64_t shape[2];
    TRY(s24i_foreign_shape(shape, w, BYTE_SHAPE));
    REQUIRE(w->ctx, shape[0] == w->rows && shape[1] == w->cols, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" says [%lld, %lld], the elements are [%lld, %lld]", w->path,
            s24i_show(w->part[BYTE_SHAPE]->name).text, (long long)shape[0], (long long)shape[1],
            (long long)w->rows, (long long)w->cols);
    return S24_OK;
}

static s24_status measure_bytes(s24i_foreign *w)
{
    const s24_tensor *values = w->part[VALUES];
    REQUIRE(w->ctx, values->rank == 2 && values->shape[0] > 0 && values->shape[1] > 0,
            S24_ERROR_FORMAT, "%s: tensor \"%s\" has a scale, but is no matrix", w->path,
            s24i_show(values->name).text);
    w->rows = values->shape[0];
    w->cols = values->shape[1];
    w->bits = values->dtype == S24_I8 ? 8 : 0;
    TRY(s24i_foreign_scales(w, SCALES));
    if (w->part[BYTE_SHAPE]) TRY(check_shape(w));
    const int64_t shape[] = {w->rows, w->cols / w->group};
    if (w->part[BYTE_ZEROS] && !is_one_zero(w->part[BYTE_ZEROS]))
        TRY(s24i_foreign_part(w, BYTE_ZEROS, S24_I8, 2, shape));
    return measure_groups(w);
}

static s24_status read_bytes(s24i_numbers *out, const s24i_foreign *w)
{
    const s24_tensor *part = w->part[BYTE_ZEROS];
    const int8_t *zeros = part && !is_one_zero(part) ? part->data : NULL;
    out->values = w->part[VALUES]->data;
    if (part && !zeros) TRY(read_one_zero(out, *(const int8_t *)part->data));
    if (w->part[GROUPS]) TRY(read_groups(out, w));
    for (size_t i = 0; zeros && !out->zeros && i < part->bytes; i++)
        if (zeros[i]) out->zeros = zeros;
    return s24i_numbers_scales(out, w, w->part[SCALES]);
}

static int is_e4m3(const s24i_foreign *w)
{
    return w->part[VALUES]->dtype == S24_E4M3;
}

static int is_i8(const s24i_foreign *w)
{
    return w->part[VALUES]->dtype == S24_I8 && !w->part[VALUES]->packed;
}

/* One scale for all. */
static int is_whole(const s24i_foreign *w)
{
    const s24_tensor *scales = w->part[SCALES];
    return is_e4m3(w) && scales->rank < 2 && scales->bytes == s24_dtype_bytes(scales->dtype);
}

const s24i_foreign_scheme s24i_scheme_float_quantized = {
    .name = "compressed-tensors float-quantized",
    .whole = ".weight",
    .part = {{.suffix = ".weight"}, {.suffix = ".weight_scale"}},
    .fits = is_e4m3,
    .measure = measure_bytes,
    .read = read_bytes,
    .scales = SCALES,
};

/* fp8 as Mistral's folders have it, with a scale of a tensor under the name of those of blocks. */
const s24i_foreign_scheme s24i_scheme_fp8_whole = {
    .name = "fp8",
    .whole = ".weight",
    .part = {{.suffix = ".weight"}, {.suffix = ".weight_scale_inv"}},
    .fits = is_whole,
    .measure = measure_bytes,
    .read = read_bytes,
    .scales = SCALES,
};

/* torchao's tensors of elements of a byte, as io/torch has their parts. */
static int is_byte(const s24i_foreign *w)
{
    return is_e4m3(w) || is_i8(w);
}

const s24i_foreign_scheme s24i_scheme_torchao = {
    .name = "torchao",
    .whole = "",
    .part = {{.suffix = ".qdata"},
             {.suffix = ".scale"},
             {.suffix = ".zero_point", .is_optional = 1},
             {.suffix = ".shape", .is_optional = 1}},
    .fits = is_byte,
    .measure = measure_bytes,
    .read = read_bytes,
    .scales = SCALES,
};

/* As torchao puts them in safetensors itself. */
const s24i_foreign_scheme s24i_scheme_torchao_flat = {
    .name = "torchao",
    .whole = ".weight",
    .part = {{.suffix = "._weight_qdata"},
             {.suffix = "._weight_scale"},
             {.suffix = "._weight_zero_point", .is_optional = 1}},
    .fits = is_byte,
    .measure = measure_bytes,
    .read = read_bytes,
    .scales = SCALES,
};

/* optimum-quanto's qint8 and qfloat8_e4m3fn. */
const s24i_foreign_scheme s24i_scheme_quanto = {
    .name = "optimum-quanto",
    .whole = ".weight",
    .part = {{.suffix = ".weight._data"}, {.suffix = ".weight._scale"}},
    .fits = is_byte,
    .measure = measure_bytes,
    .read = read_bytes,
    .scales = SCALES,
};

const s24i_foreign_scheme s24i_scheme_int_quantized = {
    .name = "compressed-tensors int-quantized",
    .whole = ".weight",
    .part = {{.suffix = ".weight"},
             {.suffix = ".weight_scale"},
             {.suffix = ".weight_zero_point", .is_optional = 1},
             {.suffix = ".weight_shape", .is_optional = 1},
             {.suffix = ".weight_g_idx", .is_optional = 1}},
    .fits = is_i8,
    .measure = measure_bytes,
    .read = read_bytes,
    .scales = SCALES,
};
