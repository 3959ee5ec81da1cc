// SPDX-License-Identifier: Apache-2.0
/* A rank's part of a layer's weight, from the whole weight: of floats where they lie, of 2:4
   matrices and integers in memory of its own. */
#include "run/load/cut.h"

#include <string.h>

static void add_part(s24i_cut *cut, const s24i_ranks *ranks, int64_t before, int64_t count)
{
    cut->begin[cut->count] = before + count * ranks->rank / ranks->world;
    cut->end[cut->count++] = before + count * (ranks->rank + 1) / ranks->world;
}

s24i_cut s24i_cut_of(const s24i_ranks *ranks, const s24i_shape *s, s24i_slot slot)
{
    s24i_cut cut = {.ranks = ranks->world};
    const int64_t queries = s24i_slot_outputs(s, S24I_QUERY), keys = s24i_slot_outputs(s, S24I_KEY);
    cut.along_k = slot == S24I_ATTENTION || slot == S24I_OUTPUT;
    if (slot == S24I_ATTENTION) {
        add_part(&cut, ranks, 0, queries);
    } else if (slot == S24I_QUERY && s->joint) {
        add_part(&cut, ranks, 0, queries);
        add_part(&cut, ranks, queries, keys);
        add_part(&cut, ranks, queries + keys, keys);
    } else if (slot <= S24I_VALUE) {
        add_part(&cut, ranks, 0, s24i_slot_outputs(s, slot));
    } else {
        add_part(&cut, ranks, 0, s->intermediate);
        if (slot == S24I_INTERMEDIATE && s->joint_gate)
            add_part(&cut, ranks, s->intermediate, s->intermediate);
    }
    return cut;
}

int s24i_cut_has_bias(const s24i_ranks *ranks, const s24i_cut *cut)
{
    return !cut->along_k || !ranks->rank;
}

static int64_t length_of(const s24i_cut *cut)
{
    int64_t length = 0;
    for (int i = 0; i < cut->count; i++)
        length += cut->end[i] - cut->begin[i];
    return length;
}

/* Rows of bytes, of which a cut takes some, or some of the bytes of each. */
typedef struct row_cut {
    const s24i_cut *cut;
    int64_t rows;        /* there are */
    size_t row;          /* bytes */
    size_t begin, bytes; /* of a cut along k */
} row_cut;

static void copy_rows(void *to, const void *from, const row_cut *r)
{
    char *at = to;
    if (r->cut->along_k) {
        for (int64_t i = 0; i < r->rows; i++, at += r->bytes)
            memcpy(at, (const char *)from + (size_t)i * r->row + r->begin, r->bytes);
        return;
    }
    for (int i = 0; i < r->cut->count; i++) {
        const size_t bytes = (size_t)(r->cut->end[i] - r->cut->begin[i]) * r->row;
        memcpy(at, (const char *)from + (size_t)r->cut->begin[i] * r->row, bytes);
        at += bytes;
    }
}

/* ---- dense floats ---------------------------------------------------------------------------- */

static s24_status cut_dense(s24i_source *source, void **buffer, s24_ctx *ctx, const s24i_cut *cut)
{
    s24_dense *w = &source->dense;
    const int64_t ld = s24i_ld(w);
    const size_t part = s24_dtype_bytes(w->dtype);
    if (cut->count == 1) {
        const int64_t before = cut->along_k ? cut->begin[0] : cut->begin[0] * ld;
        w->data = (char *)w->data + (size_t)before * part;
        *(cut->along_k ? &w->cols : &w->rows) = length_of(cut);
        w->ld = ld;
        return S24_OK;
    }
    void *own;
    const row_cut rows = {.cut = cut, .row = (size_t)ld * part};
    TRY(s24i_alloc_elems(&own, ctx, length_of(cut) * ld, part, "a rank's part of a weight"));
    copy_rows(own, w->data, &rows);
    s24_ctx_free(ctx, *buffer);
    *buffer = w->data = own;
    w->rows = length_of(cut);
    return S24_OK;
}

/* ---- integers and 2:4 matrices --------------------------------------------------------------- */

/* A matrix as files have it, and the bytes of its rows. */
typedef struct stored {
    int64_t rows, cols, group; /* group 0: floats */
    int bits;
    size_t values, scales, indices; /* bytes of a row */
} stored;

static stored measure(int64_t rows, int64_t cols, int bits, int64_t group, size_t value_bits)
{
    const int64_t groups = group ? (cols + group - 1) / group : 0;
    return (stored){rows,
                    cols,
                    group,
                    bits,
                    (size_t)cols * value_bits / 8,
                    (size_t)groups * sizeof(float),
                    (size_t)(cols + 7) / 8};
}

s24_status s24i_cut_check(s24_ctx *ctx, const s24i_cut *cut, int64_t cols)
{
    const int whole = !cut->along_k || (cut->begin[0] % 4 == 0 && cut->end[0] % 4 == 0);
    REQUIRE(ctx, whole, S24_ERROR_UNSUPPORTED,
            "its %lld columns cannot be shared out among %d ranks in whole groups of four",
            (long long)cols, cut->ranks);
    return S24_OK;
}

/* Columns where a weight is cut: whole groups of four, and of its scales. */
static s24_status check_columns(s24_ctx *ctx, const stored *of, const s24i_cut *cut)
{
    TRY(s24i_cut_check(ctx, cut, of->cols));
    if (!cut->along_k) return S24_OK;
    REQUIRE(ctx,
            !of->group || of->group >= of->cols ||
                (cut->begin[0] % of->group == 0 && cut->end[0] % of->group == 0),
            S24_ERROR_UNSUPPORTED,
            "its %lld columns cannot be shared out among %d ranks: a scale is for %lld of them",
            (long long)of->cols, cut->ranks, (long long)of->group);
    return S24_OK;
}

/* The stored form of what a cut leaves. */
static stored left_of(const stored *of, const s24i_cut *cut, size_t value_bits)
{
    const int64_t length = length_of(cut);
    if (!cut->along_k) return measure(length, of->cols, of->bits, of->group, value_bits);
    const int64_t group = of->group >= of->cols ? length : of->group;
    return measure(of->rows, length, of->bits, of->group ? group : 0, value_bits);
}

static void copy_values(void *to, const void *from, const stored *of, const stored *left,
                        const s24i_cut *cut)
{
    const size_t begin = cut->along_k ? of->values * (size_t)cut->begin[0] / (size_t)of->cols : 0;
    const row_cut rows = {cut, of->rows, of->values, begin, left->values};
    copy_rows(to, from, &rows);
}

static void copy_scales(void *to, const void *from, const stored *of, const stored *left,
                        const s24i_cut *cut)
{
    const int one = of->group >= of->cols; /* a row has one */
    const size_t begin =
        cut->along_k && !one ? (size_t)(cut->begin[0] / of->group) * sizeof(float) : 0;
    const row_cut rows = {cut, of->rows, of->scales, begin, left->scales};
    copy_rows(to, from, &rows);
}

/* A group's code is half a byte, so that a cut may begin within one. */
static void copy_codes(uint8_t *to, const uint8_t *from, const stored *of, const stored *left,
                       const s24i_cut *cut)
{
    const row_cut rows = {.cut = cut, .rows = of->rows, .row = of->indices};
    if (!cut->along_k) {
        copy_rows(to, from, &rows);
        return;
    }
    memset(to, 0, (size_t)left->rows * left->indices);
    for (int64_t r = 0; r < left->rows; r++)
        for (int64_t g = 0; g < left->cols / 4; g++) {
            const int64_t at = cut->begin[0] / 4 + g;
            const int code = from[(size_t)r * of->indices + (size_t)at / 2] >> 4 * (at % 2) & 15;
            to[(size_t)r * left->indices + (size_t)g / 2] |= (uint8_t)(code << 4 * (g % 2));
        }
}

/* Memory for scales, values and indices one after the other. */
typedef struct parts {
    uint8_t *scales, *values, *indices;
} parts;

static s24_status make_parts(parts *p, s24_ctx *ctx, const stored *of)
{
    const size_t rows = (size_t)of->rows;
    TRY(s24i_alloc_elems(&p->scales, ctx, of->rows, of->scales + of->values + of->indices,
                         "a rank's part of a weight"));
    p->values = p->scales + rows * of->scales;
    p->indices = p->values + rows * of->values;
    return S24_OK;
}

static s24_status matrix_of(s24_matrix **out, s24_ctx *ctx, const parts *p, const stored *of,
                            s24_dtype dtype)
{
    const s24_quantized from = {.rows = of->rows,
                                .cols = of->cols,
                                .bits = of->bits,
                                .group = of->group,
                                .values = p->values,
                                .indices = p->indices,
                                .scales = (const float *)(const void *)p->scales};
    if (of->group) return s24_matrix_from_quantized(out, ctx, &from);
    return s24_matrix_from_packed(out, ctx, p->values, p->indices, dtype, of->rows, of->cols);
}

/* Values in the form of files; of integers in memory of their own. */
static s24_status stored_values(const void **values, void **own, s24_ctx *ctx, const s24_matrix *m,
                                const stored *of)
{
    *values = s24_matrix_values(m);
    if (!of->bits) return S24_OK;
    TRY(s24i_alloc_elems(own, ctx, of->rows, of->values, "a weight's integers"));
    *values = *own;
    return s24_matrix_to_quantized(*own, ctx, m);
}

static s24_status cut_matrix(s24i_source *source, s24_ctx *ctx, const s24i_cut *cut)
{
    const s24_matrix *m = source->matrix;
    const s24_dtype dtype = s24_matrix_dtype(m);
    const int bits = s24_matrix_bits(m);
    const size_t value_bits = bits ? (size_t)bits / 2 : 4 * s24_dtype_bytes(dtype);
    const stored of =
        measure(s24_matrix_rows(m), s24_matrix_cols(m), bits, s24_matrix_group(m), value_bits);
    TRY(check_columns(ctx, &of, cut));
    const stored left = left_of(&of, cut, value_bits);
    s24_matrix *made = NULL;
    const void *values;
    void *own = NULL;
    parts to = {0};
    s24_status status;
    TRY_DONE(make_parts(&to, ctx, &left));
    TRY_DONE(stored_values(&values, &own, ctx, m, &of));
    if (of.group) copy_scales(to.scales, s24_matrix_scales(m), &of, &left, cut);
    copy_values(to.values, values, &of, &left, cut);
    copy_codes(to.indices, s24_matrix_indices(m), &of, &left, cut);
    TRY_DONE(matrix_of(&made, ctx, &to, &left, dtype));
    s24_matrix_destroy(source->matrix);
    source->matrix = made;
done:
    s24_ctx_free(ctx, own);
    s24_ctx_free(ctx, to.scales);
    return status;
}

static s24_status cut_integers(s24i_source *source, void **buffer, s24_ctx *ctx,
                               const s24i_cut *cut)
{
    s24_quantized *w = &source->integers;
    const size_t value_bits = (size_t)w->bits;
    const stored of = measure(w->rows, w->cols, w->bits, w->group, value_bits);
    TRY(check_columns(ctx, &of, cut));
    const stored left = left_of(&of, cut, value_bits);
    parts to;
    TRY(make_parts(&to, ctx, &left));
    copy_scales(to.scales, w->scales, &of, &left, cut);
    copy_values(to.values, w->values, &of, &left, cut);
    s24_ctx_free(ctx, *buffer);
    *buffer = to.scales;
    w->rows = left.rows;
    w->cols = left.cols;
    w->group = left.group;
    w->values = to.values;
    w->scales = (const float *)(const void *)to.scales;
    return S24_OK;
}

s24_status s24i_source_cut(s24i_source *source, void **buffer, s24_ctx *ctx, const s24i_cut *cut)
{
    const char *what = source->factors.rank ? "has low-rank factors"
                       : source->lift       ? "is lifted"
                       : source->sparse     ? "is in a sparse format"
                                            : NULL;
    REQUIRE(ctx, !what, S24_ERROR_UNSUPPORTED,
            "it %s, which a model that %d ranks hold together cannot have", what, cut->ranks);
    if (source->matrix) return cut_matrix(source, ctx, cut);
    if (source->integers.values) return cut_integers(source, buffer, ctx, cut);
    return cut_dense(source, buffer, ctx, cut);
}
