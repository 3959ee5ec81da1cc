// SPDX-License-Identifier: Apache-2.0
/* Declares and writes a foreign weight in each form that the output can have. */
#include "io/convert/foreign_forms.h"

#include <stdio.h>
#include <string.h>

/* What writing a weight needs: its numbers, and their 2:4 matrix where the form is 2:4. */
typedef struct writing {
    s24_writer *writer;
    const s24i_moving *moving;
    const s24i_numbers *numbers;
    const s24_matrix *matrix;
} writing;

/* What is made of a weight is written so many bytes at a time, which caches hold. */
enum { PIECE = 2 << 20 };

/* How many rows of so many bytes that is, in whole units. */
static int64_t rows_of_piece(const s24i_numbers *x, int64_t bytes)
{
    const int64_t units = PIECE / s24i_max(1, bytes) / x->unit;
    return s24i_min(x->rows, s24i_max(1, units) * x->unit);
}

/* Rows that are made piece by piece, in two halves of `room`: one is written while the other is
   made. */
typedef struct pieces {
    void *maker;
    /* Where rows from `first` on go to; makes some units of them on any thread; how that went. */
    void (*set)(void *maker, char *to, int64_t first);
    void (*make)(void *maker, int64_t begin, int64_t end, int thread);
    s24_status (*check)(const void *maker);
    /* Writes a piece whose first row is this. */
    s24_status (*put)(const writing *x, const char *rows, int64_t first);
    char *room;
    int64_t most, bytes; /* rows of a half, and its bytes */
} pieces;

static s24_status put_piece(const writing *x, const pieces *p, const char *rows, int64_t first,
                            int64_t count, const s24i_writer_work *others)
{
    s24i_writer_set_work(x->writer, others);
    s24i_writer_set_rows(x->writer, count);
    const s24_status status = p->put(x, rows, first);
    s24i_writer_set_rows(x->writer, 0);
    return status;
}

static s24_status write_pieces(const writing *x, const pieces *p)
{
    const s24i_numbers *n = x->numbers;
    char *made = p->room, *next = p->room + p->bytes;
    int64_t rows = s24i_min(p->most, n->rows);
    p->set(p->maker, made, 0);
    s24_ctx_parallel_for(n->ctx, s24i_numbers_units(n, rows), p->make, p->maker);
    s24_status status = p->check(p->maker);
    for (int64_t first = 0; rows && status == S24_OK; first += p->most) {
        const int64_t left = s24i_max(0, s24i_min(p->most, n->rows - first - rows));
        const s24i_writer_work others = {s24i_numbers_units(n, left), p->make, p->maker};
        p->set(p->maker, next, first + rows);
        TRY(put_piece(x, p, made, first, rows, &others));
        status = p->check(p->maker);
        char *written = made;
        made = next;
        next = written;
        rows = left;
    }
    return s24i_name_tensor(n->ctx, status, x->moving->weight->part[0]);
}

/* A tensor of the output, whose name is the weight's, or its stem, with a suffix. */
static s24_tensor output(const s24i_moving *m, const char *name, s24_dtype dtype)
{
    const s24i_foreign *w = m->weight;
    return (s24_tensor){.name = name,
                        .dtype = dtype,
                        .rank = 2,
                        .shape = {w->rows, w->cols},
                        .file = w->part[0]->file};
}

/* ---- floats ---------------------------------------------------------------------------------- */

static s24_status declare_as_is(s24_writer *writer, const s24i_moving *m)
{
    return s24_writer_declare(writer, m->weight->part[0]);
}

static s24_status declare_dense(s24_writer *writer, const s24i_moving *m)
{
    const s24_tensor *first = m->weight->part[0];
    s24_tensor tensor = output(m, m->weight->name, m->dtype);
    if (!m->weight->scheme && !first->packed) {
        tensor.rank = first->rank;
        memcpy(tensor.shape, first->shape, sizeof tensor.shape);
    }
    return s24_writer_declare(writer, &tensor);
}

/* A tensor of floats, of any rank, in another dtype. */
static s24_status write_plain(const writing *x)
{
    const s24_tensor *from = x->moving->weight->part[0];
    const int64_t count = (int64_t)(from->bytes / s24_dtype_bytes(from->dtype));
    void *to;
    TRY(s24i_alloc_elems(&to, x->writer->ctx, count + 1, s24_dtype_bytes(x->moving->dtype),
                         "a tensor's numbers"));
    s24_status status = s24_convert(to, x->moving->dtype, from->data, from->dtype, count);
    if (status == S24_OK) status = s24_writer_write(x->writer, from->name, to);
    s24_ctx_free(x->writer->ctx, to);
    return status;
}

static s24_status put_widened(const writing *x, const char *rows, int64_t first)
{
    (void)first;
    return s24_writer_write(x->writer, x->moving->weight->name, rows);
}

static s24_status write_dense(const writing *x)
{
    const s24i_foreign *w = x->moving->weight;
    const s24_dtype dtype = x->moving->dtype;
    const int64_t bytes = w->cols * (int64_t)s24_dtype_bytes(dtype);
    const int64_t most = rows_of_piece(x->numbers, bytes);
    s24i_widening widening = {.numbers = NULL};
    pieces p = {
        &widening, s24i_widening_set, s24i_widening_make, s24i_widening_check, put_widened, NULL,
        most,      most * bytes};
    s24_status status;
    if (!w->scheme && !w->part[0]->packed) return write_plain(x);
    if (!x->numbers->scales && !x->numbers->indices && x->numbers->dtype == dtype)
        return s24_writer_write(x->writer, w->name, x->numbers->values);
    TRY_DONE(s24i_alloc_elems(&p.room, w->ctx, 2 * p.bytes, 1, "rows of a weight"));
    TRY_DONE(s24i_widening_begin(&widening, x->numbers, dtype));
    TRY_DONE(write_pieces(x, &p));
done:
    s24i_widening_end(&widening);
    s24_ctx_free(w->ctx, p.room);
    return status;
}

static s24_status declare_ours(s24_writer *writer, const s24i_moving *m)
{
    s24_tensor tensor = output(m, m->weight->name, m->dtype);
    tensor.packed = 1;
    return s24_writer_declare(writer, &tensor);
}

static s24_status write_ours(const writing *x)
{
    const s24i_numbers *n = x->numbers;
    if (!x->matrix)
        return s24_writer_write_packed(x->writer, x->moving->weight->name, n->values, n->indices);
    return s24_writer_write_packed(x->writer, x->moving->weight->name, s24_matrix_values(x->matrix),
                                   s24_matrix_indices(x->matrix));
}

/* ---- integers -------------------------------------------------------------------------------- */

static s24_status declare_integers(s24_writer *writer, const s24i_moving *m)
{
    s24_tensor tensor = output(m, m->weight->name, S24_I8);
    tensor.packed = m->form == FORM_INTEGERS ? 1 : S24_PACKED_DENSE;
    tensor.bits = m->weight->bits;
    tensor.group = m->weight->group;
    return s24_writer_declare(writer, &tensor);
}

typedef struct pairing {
    const int8_t *values;
    uint8_t *pairs;
} pairing;

static void pair_up(void *arg, int64_t begin, int64_t end, int thread)
{
    const pairing *p = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        p->pairs[i] = (uint8_t)((p->values[2 * i] & 15) | (p->values[2 * i + 1] & 15) << 4);
}

/* The integers of a matrix, of 4 bits two in a byte, the first low. */
static s24_status write_matrix(const writing *x)
{
    const s24i_numbers *n = x->numbers;
    const int8_t *values = s24_matrix_values(x->matrix);
    const int64_t count = n->rows * n->cols / 2;
    uint8_t *pairs = NULL;
    if (n->bits == 4) {
        TRY(s24i_alloc_elems(&pairs, n->ctx, count / 2, 1, "a weight's integers"));
        pairing p = {values, pairs};
        s24_ctx_parallel_for(n->ctx, count / 2, pair_up, &p);
    }
    const s24_status status = s24_writer_write_quantized(x->writer, x->moving->weight->name,
                                                         pairs ? (const void *)pairs : values,
                                                         s24_matrix_indices(x->matrix), n->scales);
    s24_ctx_free(n->ctx, pairs);
    return status;
}

/* Rows of stored integers on their way to two's complement, and indices that are turned, after the
   values of `most` rows. */
typedef struct integers {
    const s24i_numbers *numbers;
    int64_t most;
    uint8_t *to;
    int64_t first;
} integers;

static void set_integers(void *arg, char *to, int64_t first)
{
    integers *i = arg;
    i->to = (uint8_t *)to;
    i->first = first;
}

/* from may be to. */
static void flip_row(uint8_t *to, const uint8_t *from, int64_t bytes, uint8_t flip)
{
    if (from == to)
        for (int64_t i = 0; i < bytes; i++)
            to[i] ^= flip;
    else
        for (int64_t i = 0; i < bytes; i++)
            to[i] = from[i] ^ flip;
}

static void make_integers(void *arg, int64_t begin, int64_t end, int thread)
{
    const integers *i = arg;
    const s24i_numbers *x = i->numbers;
    const int64_t bytes = s24i_numbers_row_bytes(x), before = begin * x->unit;
    const int64_t last = s24i_min(end * x->unit, x->rows - i->first);
    uint8_t *indices = i->to + i->most * bytes + before * s24i_numbers_index_bytes(x);
    (void)thread;
    if (x->turn)
        x->turn(i->to + before * bytes, indices, x, i->first / x->unit + begin,
                i->first / x->unit + end);
    for (int64_t r = before; r < last && (x->flip || !x->turn); r++) {
        uint8_t *to = i->to + r * bytes;
        flip_row(to, x->turn ? to : s24i_numbers_row(x, i->first + r), bytes, x->flip);
    }
}

static s24_status check_integers(const void *arg)
{
    (void)arg;
    return S24_OK;
}

static s24_status put_integers(const writing *x, const char *rows, int64_t first)
{
    const s24i_numbers *n = x->numbers;
    const int64_t stride = s24i_numbers_index_bytes(n);
    const int64_t most = rows_of_piece(n, s24i_numbers_row_bytes(n));
    const uint8_t *indices = n->indices ? n->indices + first * stride : NULL;
    if (n->turn && n->is_two_four)
        indices = (const uint8_t *)rows + most * s24i_numbers_row_bytes(n);
    return s24_writer_write_quantized(x->writer, x->moving->weight->name, rows, indices,
                                      n->scales + first * (n->cols / n->group));
}

/* Integers as a file of ours has them, whose bytes are those of others but for the signs and the
   order. */
static s24_status write_integers(const writing *x)
{
    const s24i_numbers *n = x->numbers;
    const int64_t bytes = s24i_numbers_row_bytes(n), most = rows_of_piece(n, bytes);
    const int64_t half = most * (bytes + (n->turn ? s24i_numbers_index_bytes(n) : 0));
    integers rows = {.numbers = n, .most = most};
    pieces p = {&rows, set_integers, make_integers, check_integers, put_integers, NULL, most, half};
    if (x->matrix) return write_matrix(x);
    if (!n->turn && !n->flip && !n->stride)
        return s24_writer_write_quantized(x->writer, x->moving->weight->name, n->values, n->indices,
                                          n->scales);
    TRY(s24i_alloc_elems(&p.room, n->ctx, 2 * half, 1, "rows of a weight"));
    const s24_status status = write_pieces(x, &p);
    s24_ctx_free(n->ctx, p.room);
    return status;
}

/* ---- others' 2:4 ----------------------------------------------------------------------------- */

/* "X.weight" and ".bitmask" to "X.bitmask", or with PyTorch's parts "X.weight.meta". Freed by the
   caller. */
static s24_status part_name(char **out, const s24i_moving *m, const char *suffix)
{
    const char *name = m->weight->name;
    size_t stem = strlen(name);
    if (m->form == FORM_BITMASK) stem -= sizeof ".weight" - 1;
    TRY(s24i_alloc_elems(out, m->weight->ctx, (int64_t)(stem + strlen(suffix) + 1), 1, "a name"));
    memcpy(*out, name, stem);
    strcpy(*out + stem, suffix);
    return S24_OK;
}

static s24_status declare_part(s24_writer *writer, const s24i_moving *m, const char *suffix,
                               s24_dtype dtype, const int64_t shape[2])
{
    char *name;
    TRY(part_name(&name, m, suffix));
    s24_tensor tensor = output(m, name, dtype);
    tensor.rank = shape[1] ? 2 : 1;
    tensor.shape[0] = shape[0];
    tensor.shape[1] = shape[1];
    const s24_status status = s24_writer_declare(writer, &tensor);
    s24_ctx_free(writer->ctx, name);
    return status;
}

static s24_status write_part(const writing *x, const char *suffix, const void *data)
{
    char *name;
    TRY(part_name(&name, x->moving, suffix));
    const s24_status status = s24_writer_write(x->writer, name, data);
    s24_ctx_free(x->writer->ctx, name);
    return status;
}

static s24_status write_shape(const writing *x)
{
    const int64_t shape[2] = {x->numbers->rows, x->numbers->cols};
    return write_part(x, ".shape", shape);
}

static s24_status declare_bitmask(s24_writer *writer, const s24i_moving *m)
{
    const int64_t n = m->weight->rows, k = m->weight->cols;
    const int64_t values[2] = {n, k / 2}, mask[2] = {n, (k + 7) / 8}, shape[2] = {2, 1};
    TRY(declare_part(writer, m, ".compressed", m->dtype, values));
    TRY(declare_part(writer, m, ".bitmask", S24_U8, mask));
    return declare_part(writer, m, ".shape", S24_I64, shape);
}

static s24_status write_bitmask(const writing *x)
{
    const int64_t n = x->numbers->rows, k = x->numbers->cols, stride = (k + 7) / 8;
    const uint8_t *codes = s24_matrix_indices(x->matrix);
    uint8_t *mask;
    TRY(s24i_zeroed(&mask, x->writer->ctx, (size_t)(n * stride)));
    for (int64_t r = 0; r < n; r++)
        for (int64_t g = 0; g < k / 4; g++) {
            const int64_t at = r * stride + g / 2;
            const int code = codes[at] >> 4 * (g % 2) & 15;
            mask[at] |= (uint8_t)((1 << (code & 3) | 1 << (code >> 2)) << 4 * (g % 2));
        }
    s24_status status = write_part(x, ".bitmask", mask);
    s24_ctx_free(x->writer->ctx, mask);
    if (status == S24_OK) status = write_part(x, ".compressed", s24_matrix_values(x->matrix));
    return status == S24_OK ? write_shape(x) : status;
}

static s24_status declare_torch(s24_writer *writer, const s24i_moving *m)
{
    const int narrow = s24_dtype_bytes(m->dtype) == 1;
    const int64_t n = m->weight->rows, k = m->weight->cols;
    const int64_t values[2] = {n, k / 2}, meta[2] = {n, k / (narrow ? 32 : 16)}, shape[2] = {2, 0};
    TRY(declare_part(writer, m, ".packed", m->dtype, values));
    TRY(declare_part(writer, m, ".meta", narrow ? S24_I32 : S24_I16, meta));
    return declare_part(writer, m, ".shape", S24_I64, shape);
}

static s24_status write_torch(const writing *x)
{
    const int64_t n = x->numbers->rows, k = x->numbers->cols;
    s24_ctx *ctx = x->writer->ctx;
    char *values = NULL, *meta = NULL;
    s24_status status;
    TRY_DONE(s24i_alloc_elems(&values, ctx, n * (k / 2), s24_dtype_bytes(x->moving->dtype),
                              "a weight's values"));
    TRY_DONE(s24i_alloc_elems(&meta, ctx, n * (k / 8), 1, "a weight's metadata"));
    TRY_DONE(s24_matrix_to_cutlass(values, meta, ctx, x->matrix));
    TRY_DONE(write_part(x, ".packed", values));
    TRY_DONE(write_part(x, ".meta", meta));
    TRY_DONE(write_shape(x));
done:
    s24_ctx_free(ctx, values);
    s24_ctx_free(ctx, meta);
    return status;
}

static s24_status write_as_is(const writing *x)
{
    return s24_writer_copy(x->writer, x->moving->weight->part[0]);
}

/* By enum s24i_form. */
static const struct {
    s24_status (*declare)(s24_writer *writer, const s24i_moving *moving);
    s24_status (*write)(const writing *x);
    int wants_matrix, is_scaled;
} forms[] = {
    {declare_as_is, write_as_is, 0, 0},       {declare_dense, write_dense, 0, 0},
    {declare_ours, write_ours, 1, 1},         {declare_integers, write_integers, 1, 0},
    {declare_integers, write_integers, 0, 0}, {declare_bitmask, write_bitmask, 1, 1},
    {declare_torch, write_torch, 1, 1},
};

s24_status s24i_form_declare(s24_writer *writer, const s24i_moving *moving)
{
    return forms[moving->form].declare(writer, moving);
}

s24_status s24i_form_write(s24_writer *writer, const s24i_moving *moving)
{
    const s24i_foreign *w = moving->weight;
    s24i_numbers numbers = {.ctx = w->ctx};
    s24_matrix *matrix = NULL;
    s24_status status = S24_OK;
    if (moving->form != FORM_AS_IS) status = s24i_numbers_read(&numbers, w);
    /* Values and codes that are as ours are need no matrix made of them. */
    const int is_as_stored = !numbers.scales && numbers.dtype == moving->dtype;
    const int has_codes = numbers.indices || numbers.is_two_four;
    const int is_ready =
        has_codes && (moving->form == FORM_INTEGERS || (moving->form == FORM_OURS && is_as_stored));
    const int wants_matrix = forms[moving->form].wants_matrix && !is_ready;
    if (status == S24_OK && wants_matrix) status = s24i_numbers_turn(&numbers);
    if (status == S24_OK && wants_matrix)
        status = s24i_name_tensor(
            w->ctx,
            s24i_numbers_matrix(&matrix, &numbers, moving->dtype, forms[moving->form].is_scaled),
            w->part[0]);
    const writing x = {writer, moving, &numbers, matrix};
    if (status == S24_OK) status = forms[moving->form].write(&x);
    s24_matrix_destroy(matrix);
    s24i_numbers_free(&numbers);
    return status;
}
