// SPDX-License-Identifier: Apache-2.0
/*
 * bitsandbytes:
 *
 *   LLM.int8()   i8 [n, k], and in `SCB` [n] each row's largest magnitude, which 127 stands for.
 *   nf4, fp4     `weight` of any shape with two codes a byte, the earlier one in its high bits, and
 *                in `quant_map` what the sixteen stand for; `absmax` is a block's largest
 *                magnitude. Those may be codes themselves, of `nested_quant_map`, in blocks of a
 *                `nested_absmax` each, and an offset. `quant_state` is JSON: shape, sides of
 *                blocks, dtype, offset.
 */
#include <stdatomic.h>
#include <string.h>

#include "io/checkpoint/config.h"
#include "io/convert/convert.h"

/* ---- 8 bits ---------------------------------------------------------------------------------- */

enum { VALUES, LARGEST, ORDER, FULL = 127 };

static s24_status measure_int8(s24i_foreign *w)
{
    const s24_tensor *values = w->part[VALUES], *order = w->part[ORDER];
    REQUIRE(w->ctx, values->rank == 2 && values->bytes > 0, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has SCB, but is no matrix", w->path, s24i_show(values->name).text);
    REQUIRE(w->ctx, !order || (order->bytes > 0 && !*(const uint8_t *)order->data),
            S24_ERROR_FORMAT,
            "%s: tensor \"%s\" is not 0, elements row by row, the only order that is known",
            w->path, s24i_show(order->name).text);
    w->rows = values->shape[0];
    w->cols = values->shape[1];
    w->bits = 8;
    w->group = w->cols;
    return s24i_foreign_part(w, LARGEST, S24_F32, 1, &w->rows);
}

static s24_status read_int8(s24i_numbers *out, const s24i_foreign *w)
{
    const float *largest = w->part[LARGEST]->data;
    const s24_quantized of = {.rows = out->rows, .cols = out->cols, .group = out->group};
    float *scales;
    TRY(s24i_numbers_room(&scales, out, 1, out->rows, sizeof *scales));
    for (int64_t r = 0; r < out->rows; r++)
        scales[r] = largest[r] / FULL;
    out->values = w->part[VALUES]->data;
    out->scales = scales;
    return s24i_check_scales(w->ctx, w->path, w->part[LARGEST]->name, scales, &of);
}

static int is_i8(const s24i_foreign *w)
{
    return w->part[VALUES]->dtype == S24_I8 && !w->part[VALUES]->packed;
}

const s24i_foreign_scheme s24i_scheme_bnb_int8 = {
    .name = "bitsandbytes LLM.int8",
    .whole = ".weight",
    .part = {{.suffix = ".weight"},
             {.suffix = ".SCB"},
             {.suffix = ".weight_format", .is_optional = 1}},
    .fits = is_i8,
    .measure = measure_int8,
    .read = read_int8,
    .scales = LARGEST,
    .rows_apart = 1,
};

/* ---- 4 bits ---------------------------------------------------------------------------------- */

enum { ABSMAX = LARGEST, MAP, STATE, NESTED, NESTED_MAP, CODES = 16, NESTED_CODES = 256 };

/* What a weight's quant_state says. */
typedef struct state {
    int64_t rows, cols, block, nested_block;
    double offset;
    s24_dtype dtype;
} state;

static s24_status read_shape(state *out, const s24i_config *config)
{
    s24i_config shape;
    int64_t *sides[] = {&out->rows, &out->cols};
    TRY(s24i_config_child(&shape, config, "shape", S24I_REQUIRED));
    for (int i = 0; i < 2; i++) {
        *sides[i] = s24i_json_integer(s24i_json_at(shape.json, (size_t)i));
        REQUIRE(config->ctx,
                s24i_json_count(shape.json) == 2 && *sides[i] > 0 && *sides[i] <= INT32_MAX,
                S24_ERROR_FORMAT, "%s: shape is not that of a matrix", config->file);
    }
    return S24_OK;
}

static s24_status parse_state(state *out, const s24i_config *config, int is_nested)
{
    const char *dtype = "";
    TRY(read_shape(out, config));
    TRY(s24i_config_int(&out->block, config, "blocksize", S24I_REQUIRED, 1, 1 << 20));
    TRY(s24i_config_string(&dtype, config, "dtype", S24I_REQUIRED));
    out->dtype = !strcmp(dtype, "bfloat16")  ? S24_BF16
                 : !strcmp(dtype, "float16") ? S24_F16
                                             : S24_F32;
    if (!is_nested) return S24_OK;
    TRY(s24i_config_double(&out->offset, config, "nested_offset", S24I_REQUIRED, -1e30, 1e30));
    return s24i_config_int(&out->nested_block, config, "nested_blocksize", S24I_REQUIRED, 1,
                           1 << 20);
}

static s24_status read_state(state *out, const s24i_foreign *w)
{
    const s24_tensor *text = w->part[STATE];
    s24i_config config = {.json = NULL};
    TRY(s24i_foreign_part(w, STATE, S24_U8, 1, text->shape));
    s24_status status = s24i_config_parse(&config, w->ctx, "JSON", text->data, text->bytes);
    if (status == S24_OK) status = parse_state(out, &config, w->part[NESTED] != NULL);
    s24i_config_free(&config);
    return s24i_name_tensor(w->ctx, status, text);
}

static int64_t blocks_of(int64_t count, int64_t block)
{
    return (count + block - 1) / block;
}

static s24_status measure_codes(s24i_foreign *w)
{
    state s = {.rows = 0};
    const s24_tensor *codes = w->part[VALUES];
    const int64_t map = CODES, nested_map = NESTED_CODES;
    TRY(read_state(&s, w));
    w->rows = s.rows;
    w->cols = s.cols;
    w->dtype = s.dtype;
    const int64_t count = s.rows * s.cols, blocks = blocks_of(count, s.block);
    REQUIRE(w->ctx, (int64_t)codes->bytes == blocks_of(count, 2), S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %zu bytes, of [%lld, %lld] %lld are expected", w->path,
            s24i_show(codes->name).text, codes->bytes, (long long)s.rows, (long long)s.cols,
            (long long)blocks_of(count, 2));
    TRY(s24i_foreign_part(w, MAP, S24_F32, 1, &map));
    TRY(s24i_foreign_part(w, ABSMAX, w->part[NESTED] ? S24_U8 : S24_F32, 1, &blocks));
    REQUIRE(w->ctx, !w->part[NESTED] == !w->part[NESTED_MAP], S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has one of nested_absmax and nested_quant_map, both are expected",
            w->path, s24i_show(codes->name).text);
    if (!w->part[NESTED]) return S24_OK;
    const int64_t nested = blocks_of(blocks, s.nested_block);
    TRY(s24i_foreign_part(w, NESTED, S24_F32, 1, &nested));
    return s24i_foreign_part(w, NESTED_MAP, S24_F32, 1, &nested_map);
}

/* Codes on their way to floats. */
typedef struct decoding {
    const s24i_foreign *w;
    state said;
    char *to;
    float *row; /* room for each thread's */
    int64_t cols;
    atomic_int status;
} decoding;

static float absmax_of(const decoding *d, int64_t block)
{
    const s24i_foreign *w = d->w;
    if (!w->part[NESTED]) return ((const float *)w->part[ABSMAX]->data)[block];
    const uint8_t code = ((const uint8_t *)w->part[ABSMAX]->data)[block];
    const float *nested = w->part[NESTED]->data, *map = w->part[NESTED_MAP]->data;
    return map[code] * nested[block / d->said.nested_block] + (float)d->said.offset;
}

static void decode_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    decoding *d = arg;
    const uint8_t *codes = d->w->part[VALUES]->data;
    const float *map = d->w->part[MAP]->data;
    const size_t size = s24_dtype_bytes(d->said.dtype);
    float *row = d->row + d->cols * thread, absmax = 0.0f;
    for (int64_t r = begin; r < end; r++) {
        int64_t block = -1;
        for (int64_t c = 0, at = r * d->cols; c < d->cols; c++, at++) {
            if (at / d->said.block != block) absmax = absmax_of(d, block = at / d->said.block);
            row[c] = map[codes[at / 2] >> (at % 2 ? 0 : 4) & 15] * absmax;
        }
        const s24_status status =
            s24_convert(d->to + (size_t)(r * d->cols) * size, d->said.dtype, row, S24_F32, d->cols);
        if (status != S24_OK) atomic_store(&d->status, (int)status);
    }
}

static s24_status read_codes(s24i_numbers *out, const s24i_foreign *w)
{
    decoding d = {.w = w, .cols = out->cols};
    const int threads = s24_ctx_threads(w->ctx);
    atomic_init(&d.status, S24_OK);
    TRY(read_state(&d.said, w));
    out->dtype = d.said.dtype;
    TRY(s24i_numbers_room(&d.to, out, 0, out->rows * out->cols, s24_dtype_bytes(out->dtype)));
    TRY(s24i_numbers_room(&d.row, out, 1, out->cols * threads, sizeof *d.row));
    s24_ctx_parallel_for(w->ctx, out->rows, decode_rows, &d);
    out->values = d.to;
    return (s24_status)atomic_load(&d.status);
}

static int is_u8(const s24i_foreign *w)
{
    return w->part[VALUES]->dtype == S24_U8 && !w->part[VALUES]->packed;
}

#define CODED(symbol, kind)                                                                        \
    const s24i_foreign_scheme symbol = {                                                           \
        .name = "bitsandbytes " kind,                                                              \
        .whole = ".weight",                                                                        \
        .part = {{.suffix = ".weight"},                                                            \
                 {.suffix = ".weight.absmax"},                                                     \
                 {.suffix = ".weight.quant_map"},                                                  \
                 {.suffix = ".weight.quant_state.bitsandbytes__" kind},                            \
                 {.suffix = ".weight.nested_absmax", .is_optional = 1},                            \
                 {.suffix = ".weight.nested_quant_map", .is_optional = 1}},                        \
        .fits = is_u8,                                                                             \
        .measure = measure_codes,                                                                  \
        .read = read_codes,                                                                        \
        .rows_apart = 1,                                                                           \
    };
CODED(s24i_scheme_bnb_nf4, "nf4")
CODED(s24i_scheme_bnb_fp4, "fp4")
