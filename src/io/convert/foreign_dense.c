// SPDX-License-Identifier: Apache-2.0
/*
 * All numbers of a foreign weight in floats. An integer counts as scale · (integer − zero), rounded
 * once to f32, whatever it becomes then.
 *
 * A scale has far fewer codes of a byte or less than numbers: what each code becomes is computed
 * once, and a row is looked up in its groups' tables. A thread keeps those from row to row, and
 * makes one anew where the scale or the zero point is another.
 */
#include <string.h>

#include "io/convert/convert.h"

int64_t s24i_numbers_row_bytes(const s24i_numbers *x)
{
    const int64_t count = x->indices || x->is_two_four ? x->cols / 2 : x->cols;
    return x->bits == 4 ? (count + 1) / 2 : count * (int64_t)s24_dtype_bytes(x->dtype);
}

int64_t s24i_numbers_index_bytes(const s24i_numbers *x)
{
    return x->indices || x->is_two_four ? (x->cols + 7) / 8 : 0;
}

const uint8_t *s24i_numbers_row(const s24i_numbers *x, int64_t row)
{
    const int64_t stride = x->stride ? x->stride : s24i_numbers_row_bytes(x);
    return (const uint8_t *)x->values + row * stride;
}

int64_t s24i_numbers_units(const s24i_numbers *x, int64_t rows)
{
    return (rows + x->unit - 1) / x->unit;
}

/* Bits from which on a number of 16 bits is none, but for its sign. */
enum { BF16_INFINITY = 0x7f80, F16_INFINITY = 0x7c00 };

/* What a table was made of: scale −1, no table was. */
typedef struct key {
    float scale;
    int zero;
} key;

/* A thread's bench: a row's codes, and tables by group, or the row in f32 and half of one; and a
   unit of what is turned. */
typedef struct bench {
    key *keys;
    char *tables;
    float *row;
    uint8_t *codes, *values, *indices;
} bench;

static int64_t groups_of(const s24i_numbers *x)
{
    return x->group ? x->cols / x->group : 0;
}

/* Bytes of a thread's keys and tables, or floats. */
static int64_t table_bytes(const s24i_widening *w)
{
    const s24i_numbers *x = w->numbers;
    const int64_t size = (int64_t)s24_dtype_bytes(w->dtype);
    if (!w->has_tables) return (x->cols + x->cols / 2) * (int64_t)sizeof(float);
    return groups_of(x) * ((int64_t)sizeof(key) + w->codes * size);
}

static bench bench_of(const s24i_widening *w, int thread)
{
    const s24i_numbers *x = w->numbers;
    char *at = w->room + w->room_bytes * thread;
    uint8_t *codes = (uint8_t *)at + table_bytes(w);
    return (bench){.keys = (key *)(void *)at,
                   .tables = at + groups_of(x) * (int64_t)sizeof(key),
                   .row = (float *)(void *)at,
                   .codes = codes,
                   .values = codes + x->cols,
                   .indices = codes + x->cols + x->unit * s24i_numbers_row_bytes(x)};
}

static s24_status make_room(s24i_widening *w)
{
    enum { LINE = 64 };
    const s24i_numbers *x = w->numbers;
    const int threads = s24_ctx_threads(x->ctx);
    const int64_t unit =
        x->turn ? x->unit * (s24i_numbers_row_bytes(x) + s24i_numbers_index_bytes(x)) : 0;
    w->room_bytes = s24i_round_up(table_bytes(w) + x->cols + unit, LINE);
    TRY(s24i_alloc_elems(&w->room, x->ctx, w->room_bytes, (size_t)threads, "rows of a weight"));
    for (int t = 0; t < threads && w->has_tables; t++)
        for (int64_t g = 0; g < groups_of(x); g++)
            bench_of(w, t).keys[g].scale = -1.0f;
    return S24_OK;
}

/* What the codes of elements stand for. */
static s24_status widen_codes(s24i_widening *w)
{
    const s24i_numbers *x = w->numbers;
    uint8_t elements[256];
    for (int64_t i = 0; i < w->codes; i++) {
        elements[i] = (uint8_t)(i ^ x->flip);
        if (x->bits == 4) elements[i] = (uint8_t)((elements[i] & 15) - 2 * (elements[i] & 8));
    }
    return s24_convert(w->wide, S24_F32, elements, x->dtype, w->codes);
}

s24_status s24i_widening_begin(s24i_widening *w, const s24i_numbers *x, s24_dtype dtype)
{
    memset(w, 0, sizeof *w);
    w->numbers = x;
    w->dtype = dtype;
    w->vec = s24i_vec_find(s24_ctx_cpu(x->ctx));
    atomic_init(&w->status, S24_OK);
    atomic_init(&w->beyond, INT64_MAX);
    if (s24_dtype_bytes(x->dtype) == 1) w->codes = x->bits == 4 ? 16 : 256;
    w->has_tables = w->codes && x->scales && 2 * x->group >= w->codes;
    TRY(widen_codes(w));
    return make_room(w);
}

void s24i_widening_end(s24i_widening *w)
{
    if (w->numbers) s24_ctx_free(w->numbers->ctx, w->room);
}

/* ---- by tables ------------------------------------------------------------------------------- */

static const uint8_t *values_of(const s24i_numbers *x, int64_t r, const bench *mine)
{
    if (!x->turn) return s24i_numbers_row(x, r);
    return mine->values + r % x->unit * s24i_numbers_row_bytes(x);
}

static const uint8_t *indices_of(const s24i_numbers *x, int64_t r, const bench *mine)
{
    if (x->turn && x->is_two_four) return mine->indices + r % x->unit * s24i_numbers_index_bytes(x);
    return x->indices ? x->indices + r * s24i_numbers_index_bytes(x) : NULL;
}

/* Codes of 4 bits, two in a byte, the first low, to a byte each. */
static void spread(uint8_t *to, const uint8_t *from, int64_t count)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint32_t four;
        memcpy(&four, from + i / 2, sizeof four);
        uint64_t codes = (four | (uint64_t)four << 16) & 0x0000ffff0000ffffu;
        codes = (codes | codes << 8) & 0x00ff00ff00ff00ffu;
        codes = (codes | codes << 4) & 0x0f0f0f0f0f0f0f0fu;
        memcpy(to + i, &codes, sizeof codes);
    }
    for (; i < count; i++)
        to[i] = from[i / 2] >> 4 * (i % 2) & 15;
}

/* A row's codes, of 2:4 ones with zeros' among them. */
static const uint8_t *codes_of_row(const s24i_numbers *x, int64_t r, const bench *mine)
{
    const uint8_t *row = values_of(x, r, mine), *indices = indices_of(x, r, mine);
    uint8_t *to = mine->codes;
    if (!indices && x->bits != 4) return row;
    if (!indices) {
        spread(to, row, x->cols);
        return to;
    }
    memset(to, x->bits == 4 ? x->flip & 15 : x->flip, (size_t)x->cols);
    for (int64_t g = 0; g < x->cols / 4; g++) {
        const int code = indices[g / 2] >> 4 * (g % 2) & 15;
        to[4 * g + (code & 3)] = x->bits == 4 ? row[g] & 15 : row[2 * g];
        to[4 * g + (code >> 2)] = x->bits == 4 ? row[g] >> 4 : row[2 * g + 1];
    }
    return to;
}

static s24_status make_tables(const s24i_widening *w, const bench *mine, int64_t r)
{
    const s24i_numbers *x = w->numbers;
    const int64_t groups = groups_of(x), bytes = w->codes * (int64_t)s24_dtype_bytes(w->dtype);
    float numbers[256];
    for (int64_t g = 0; g < groups; g++) {
        const float scale = x->scales[r * groups + g];
        const int zero = x->zeros ? x->zeros[r * groups + g] : 0;
        const key now = {scale, zero}; /* by its bits: −0 is another scale than 0 */
        if (!memcmp(&mine->keys[g], &now, sizeof now)) continue;
        mine->keys[g] = now;
        for (int64_t i = 0; i < w->codes; i++)
            numbers[i] = (w->wide[i] - (float)zero) * scale;
        TRY(s24_convert(mine->tables + g * bytes, w->dtype, numbers, S24_F32, w->codes));
    }
    return S24_OK;
}

#define LOOK_UP(type)                                                                              \
    do {                                                                                           \
        type *restrict out = (type *)(void *)to;                                                   \
        const type *table = (const type *)(const void *)mine->tables;                              \
        for (int64_t g = 0; g < groups && !x->groups; g++, table += w->codes)                      \
            for (int64_t c = g * x->group; c < (g + 1) * x->group; c++)                            \
                out[c] = table[codes[c]];                                                          \
        for (int64_t c = 0; c < x->cols && x->groups; c++)                                         \
            out[c] = table[x->groups[c] * w->codes + codes[c]];                                    \
    } while (0)

/* Two bytes a number, groups in turn. Is every one of them finite? */
static int look_up_halves(uint16_t *to, const s24i_widening *w, const bench *mine,
                          const uint8_t *codes)
{
    const uint16_t *table = (const uint16_t *)(const void *)mine->tables;
    const int64_t group = w->numbers->group, groups = groups_of(w->numbers);
    uint16_t most = 0;
    for (int64_t g = 0; g < groups; g++, table += w->codes) {
        const uint16_t size =
            w->vec->look_up(to + g * group, table, w->codes, codes + g * group, group);
        most = size > most ? size : most;
    }
    return most < (w->dtype == S24_BF16 ? BF16_INFINITY : F16_INFINITY);
}

static s24_status look_up_row(char *to, int *is_finite, const s24i_widening *w, int64_t r,
                              const bench *mine)
{
    const s24i_numbers *x = w->numbers;
    const int64_t groups = groups_of(x);
    const uint8_t *codes = codes_of_row(x, r, mine);
    TRY(make_tables(w, mine, r));
    if (w->dtype != S24_F32 && !x->groups)
        *is_finite = look_up_halves((uint16_t *)(void *)to, w, mine, codes);
    else if (w->dtype == S24_F32)
        LOOK_UP(uint32_t);
    else
        LOOK_UP(uint16_t);
    return S24_OK;
}

/* ---- one by one ------------------------------------------------------------------------------ */

/* A row's stored elements, f32. */
static s24_status widen_row(float *row, const s24i_widening *w, int64_t r, const bench *mine)
{
    const s24i_numbers *x = w->numbers;
    const uint8_t *values = values_of(x, r, mine);
    const uint8_t *indices = indices_of(x, r, mine);
    float *packed = row + x->cols;
    if (w->codes) {
        const uint8_t *codes = codes_of_row(x, r, mine);
        for (int64_t c = 0; c < x->cols; c++)
            row[c] = w->wide[codes[c]];
        return S24_OK;
    }
    if (!indices) return s24_convert(row, S24_F32, values, x->dtype, x->cols);
    TRY(s24_convert(packed, S24_F32, values, x->dtype, x->cols / 2));
    memset(row, 0, (size_t)x->cols * sizeof *row);
    for (int64_t g = 0; g < x->cols / 4; g++) {
        const int code = indices[g / 2] >> 4 * (g % 2) & 15;
        row[4 * g + (code & 3)] = packed[2 * g];
        row[4 * g + (code >> 2)] = packed[2 * g + 1];
    }
    return S24_OK;
}

static void scale_row(float *row, const s24i_numbers *x, int64_t r)
{
    const int64_t groups = groups_of(x);
    for (int64_t g = 0; g < groups && !x->groups; g++)
        for (int64_t c = g * x->group; c < (g + 1) * x->group; c++)
            row[c] = (row[c] - (float)(x->zeros ? x->zeros[r * groups + g] : 0)) *
                     x->scales[r * groups + g];
    for (int64_t c = 0; c < x->cols && groups && x->groups; c++) {
        const int64_t group = r * groups + x->groups[c];
        row[c] = (row[c] - (float)(x->zeros ? x->zeros[group] : 0)) * x->scales[group];
    }
}

static s24_status compute_row(char *to, const s24i_widening *w, int64_t r, const bench *mine)
{
    TRY(widen_row(mine->row, w, r, mine));
    scale_row(mine->row, w->numbers, r);
    return s24_convert(to, w->dtype, mine->row, S24_F32, w->numbers->cols);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Is an element of so many bits infinite, or no number? So it is from these bits on. */
#define BEYOND(type, magnitude, limit)                                                             \
    do {                                                                                           \
        const type *x = row;                                                                       \
        int any = 0;                                                                               \
        for (int64_t i = 0; i < n; i++)                                                            \
            any |= (x[i] & (magnitude)) >= (limit);                                                \
        for (int64_t i = 0; i < n && any; i++)                                                     \
            if ((x[i] & (magnitude)) >= (limit)) return i;                                         \
    } while (0)

/* The first number of a row that its dtype made infinite; −1: none. */
static int64_t first_beyond(const void *row, s24_dtype dtype, int64_t n)
{
    if (dtype == S24_F32)
        BEYOND(uint32_t, 0x7fffffff, 0x7f800000);
    else if (dtype == S24_BF16)
        BEYOND(uint16_t, 0x7fff, BF16_INFINITY);
    else
        BEYOND(uint16_t, 0x7fff, F16_INFINITY);
    return -1;
}

/* Notes it. */
static void look_beyond(s24i_widening *w, const char *row, int64_t r)
{
    const int64_t cols = w->numbers->cols, c = first_beyond(row, w->dtype, cols);
    int64_t least = atomic_load(&w->beyond);
    while (c >= 0 && r * cols + c < least &&
           !atomic_compare_exchange_weak(&w->beyond, &least, r * cols + c))
        ;
}

static void make_row(s24i_widening *w, int64_t r, const bench *mine)
{
    const s24i_numbers *x = w->numbers;
    char *to = w->to + (r - w->first) * x->cols * (int64_t)s24_dtype_bytes(w->dtype);
    int is_finite = 0; /* where that is known already */
    const s24_status status =
        w->has_tables ? look_up_row(to, &is_finite, w, r, mine) : compute_row(to, w, r, mine);
    if (status != S24_OK) atomic_store(&w->status, (int)status);
    if (x->scales && !is_finite) look_beyond(w, to, r);
}

void s24i_widening_make(void *widening, int64_t begin, int64_t end, int thread)
{
    s24i_widening *w = widening;
    const s24i_numbers *x = w->numbers;
    const int64_t first = w->first / x->unit;
    const bench mine = bench_of(w, thread);
    for (int64_t u = first + begin; u < first + end; u++) {
        if (x->turn) x->turn(mine.values, mine.indices, x, u, u + 1);
        for (int64_t r = u * x->unit; r < s24i_min((u + 1) * x->unit, x->rows); r++)
            make_row(w, r, &mine);
    }
}

void s24i_widening_set(void *widening, char *to, int64_t first)
{
    s24i_widening *w = widening;
    w->to = to;
    w->first = first;
}

s24_status s24i_widening_check(const void *widening)
{
    const s24i_widening *w = widening;
    const s24i_numbers *x = w->numbers;
    TRY((s24_status)atomic_load(&w->status));
    const int64_t at = atomic_load(&w->beyond);
    REQUIRE(x->ctx, at == INT64_MAX, S24_ERROR_NOT_FINITE,
            "row %lld, column %lld, times its scale, is beyond %s; expected %s",
            (long long)(at / x->cols), (long long)(at % x->cols), s24_dtype_name(w->dtype),
            w->dtype == S24_F16 ? "a wider dtype" : "a smaller scale");
    return S24_OK;
}

s24_status s24i_widening_rows(void *to, s24i_widening *w, int64_t first, int64_t rows)
{
    s24i_widening_set(w, to, first);
    s24_ctx_parallel_for(w->numbers->ctx, s24i_numbers_units(w->numbers, rows), s24i_widening_make,
                         w);
    return s24i_widening_check(w);
}

s24_status s24i_numbers_dense(void **out, const s24i_numbers *x, s24_dtype dtype)
{
    s24_status status;
    s24i_widening w;
    char *dense = NULL;
    *out = NULL;
    TRY_DONE(s24i_widening_begin(&w, x, dtype));
    TRY_DONE(s24i_alloc_elems(&dense, x->ctx, x->rows * x->cols, s24_dtype_bytes(dtype),
                              "a weight's numbers"));
    TRY_DONE(s24i_widening_rows(dense, &w, 0, x->rows));
    *out = dense;
    dense = NULL;
done:
    s24i_widening_end(&w);
    s24_ctx_free(x->ctx, dense);
    return status;
}
