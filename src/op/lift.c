// SPDX-License-Identifier: Apache-2.0
/*
 * Matrices with at most M−2 non-zeros of every M, lifted into 2:4 ones by overlapping windows of
 * four columns, and back; and their tokens. So are those whose first D columns are dense and the
 * others 2:4 (lift −D): each four of the first have two windows, of their first and of their last
 * two, and each four of the others one.
 *
 * That no non-zero is left over: a window that is not full has taken all that its columns have, so
 * that what remains lies in the windows' other columns, two for each window to come; and if all
 * windows are full, they hold M−2.
 */
#include <stdio.h>
#include <string.h>

#include "op/op.h"

enum {
    WINDOW = 4,
    STEP = 2,
    MOST_LIFT = 32,
    CHUNK = 8, /* groups that are lifted at a time: an even number, so that codes are whole bytes */
    MOST_LIFTED = CHUNK * (MOST_LIFT - 2) * 2
};

/* Columns that are dense. */
static int64_t dense_of(int lift)
{
    return lift < 0 ? -(int64_t)lift : 0;
}

static int windows_of(int lift)
{
    return lift / STEP - 1;
}

static int is_lift(int lift)
{
    return lift < 0 ? lift % WINDOW == 0 : lift >= 6 && lift <= MOST_LIFT && lift % 2 == 0;
}

int s24_pattern_lift(const char *pattern)
{
    int keep, group, end = 0;
    if (!pattern) return 0;
    if (sscanf(pattern, "dense:%d%n", &group, &end) == 1 && !pattern[end])
        return group > 0 && is_lift(-group) ? -group : 0;
    if (sscanf(pattern, "%d:%d%n", &keep, &group, &end) < 2 || pattern[end]) return 0;
    return group > 0 && is_lift(group) && keep == group - 2 ? group : 0;
}

const char *s24_lift_pattern(char text[S24_LIFT_BYTES], int lift)
{
    if (!is_lift(lift)) return NULL;
    if (lift < 0)
        snprintf(text, S24_LIFT_BYTES, "dense:%" PRId64, dense_of(lift));
    else
        snprintf(text, S24_LIFT_BYTES, "%d:%d", lift - 2, lift);
    return text;
}

int64_t s24_lifted_cols(int64_t cols, int lift)
{
    if (!is_lift(lift) || cols < 1 || cols > INT64_MAX / WINDOW) return 0;
    if (lift < 0) return cols % WINDOW || cols <= dense_of(lift) ? 0 : cols + dense_of(lift);
    return cols % lift ? 0 : cols / lift * windows_of(lift) * WINDOW;
}

int64_t s24_lowered_cols(int64_t cols, int lift)
{
    const int64_t lowered = !is_lift(lift) ? 0
                            : lift < 0     ? cols - dense_of(lift)
                                           : cols / (windows_of(lift) * WINDOW) * lift;
    return cols > 0 && s24_lifted_cols(lowered, lift) == cols ? lowered : 0;
}

static s24_status check_lift(s24_ctx *ctx, int lift)
{
    REQUIRE(ctx, is_lift(lift), S24_ERROR_ARGUMENT,
            "lift is %d; expected an even number of 6 to %d, or minus a multiple of %d columns",
            lift, (int)MOST_LIFT, (int)WINDOW);
    return S24_OK;
}

/* ---- up -------------------------------------------------------------------------------------- */

typedef struct lifting {
    const s24_dense *src;
    const s24i_storage *to;
    int lift;
    _Atomic int64_t bad; /* the first row with a group that is too full; their number: none */
} lifting;

/* The non-zeros of two columns, a bit each. */
static unsigned pair_at(const char *from, s24_dtype dtype)
{
    return (unsigned)!s24i_is_zero(from, dtype) |
           (unsigned)!s24i_is_zero(from + s24_dtype_bytes(dtype), dtype) << 1;
}

/* The windows of a group, zeros before; 0 if it has too many non-zeros. */
static int lift_group(char *to, const char *from, int lift, s24_dtype dtype)
{
    const size_t size = s24_dtype_bytes(dtype);
    unsigned left = pair_at(from, dtype);
    for (int w = 0; w < windows_of(lift); w++, to += WINDOW * size) {
        const unsigned next = pair_at(from + STEP * size, dtype);
        const unsigned lowest = next & (0u - next);
        const unsigned takes = left == 3 ? 0 : left ? lowest : next;
        for (unsigned i = 0; i < WINDOW; i++)
            if ((left | takes << STEP) >> i & 1) memcpy(to + i * size, from + i * size, size);
        left = next & ~takes;
        from += STEP * size;
    }
    return !left;
}

/* The first columns, windows twice as many; and of the others those that are 2:4. */
static int lift_dense(const lifting *j, int64_t row)
{
    const s24_dense *src = j->src;
    const size_t size = s24_dtype_bytes(src->dtype);
    const int64_t dense = dense_of(j->lift);
    uint32_t room[2 * WINDOW];
    for (int64_t c = 0; c < dense; c += WINDOW) {
        char *to = (char *)room;
        memset(room, 0, sizeof room);
        memcpy(to, s24i_dense_at(src, row, c), STEP * size);
        memcpy(to + (WINDOW + STEP) * size, s24i_dense_at(src, row, c + STEP), STEP * size);
        s24i_pack_row(s24i_values_at(j->to, row, 2 * c), src->dtype,
                      s24i_indices_at(j->to, row, 2 * c), room, src->dtype, 2 * WINDOW);
    }
    for (int64_t c = dense; c < src->cols; c += WINDOW) {
        int nonzeros = 0;
        for (int i = 0; i < WINDOW; i++)
            nonzeros += !s24i_is_zero(s24i_dense_at(src, row, c + i), src->dtype);
        if (nonzeros > 2) return 0;
    }
    s24i_pack_row(s24i_values_at(j->to, row, 2 * dense), src->dtype,
                  s24i_indices_at(j->to, row, 2 * dense), s24i_dense_at(src, row, dense),
                  src->dtype, src->cols - dense);
    return 1;
}

static int lift_row(const lifting *j, int64_t row)
{
    const s24_dense *src = j->src;
    if (j->lift < 0) return lift_dense(j, row);
    const size_t size = s24_dtype_bytes(src->dtype);
    const int64_t groups = src->cols / j->lift, width = windows_of(j->lift) * WINDOW;
    uint32_t room[MOST_LIFTED];
    for (int64_t g = 0; g < groups; g += CHUNK) {
        const int64_t count = groups - g < CHUNK ? groups - g : CHUNK;
        memset(room, 0, (size_t)(count * width) * size);
        for (int64_t i = 0; i < count; i++)
            if (!lift_group((char *)room + (size_t)(i * width) * size,
                            s24i_dense_at(src, row, (g + i) * j->lift), j->lift, src->dtype))
                return 0;
        s24i_pack_row(s24i_values_at(j->to, row, g * width), src->dtype,
                      s24i_indices_at(j->to, row, g * width), room, src->dtype, count * width);
    }
    return 1;
}

static void lift_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    lifting *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        if (lift_row(j, r)) continue;
        for (int64_t bad = atomic_load(&j->bad);
             r < bad && !atomic_compare_exchange_weak(&j->bad, &bad, r);)
            ;
        return;
    }
}

/* The sentence on the row's first group that is too full. */
static s24_status refuse_row(s24_ctx *ctx, const s24_dense *src, int lift, int64_t row)
{
    const int group = lift < 0 ? WINDOW : lift;
    for (int64_t col = dense_of(lift); col < src->cols; col += group) {
        int nonzeros = 0;
        for (int i = 0; i < group; i++)
            nonzeros += !s24i_is_zero(s24i_dense_at(src, row, col + i), src->dtype);
        if (nonzeros > group - 2)
            return s24_ctx_fail(ctx, S24_ERROR_NOT_TWO_FOUR,
                                "src is not %d:%d: row %" PRId64 ", columns %" PRId64 " to %" PRId64
                                " (group %" PRId64 ") have %d non-zeros; expected at most %d",
                                group - 2, group, row, col, col + group - 1, col / group, nonzeros,
                                group - 2);
    }
    return s24_ctx_fail(ctx, S24_ERROR_NOT_TWO_FOUR, "src changed while it was read");
}

static s24_status fill(s24_ctx *ctx, const s24_dense *src, const s24_matrix *to, int lift)
{
    lifting j = {.src = src, .to = to->storage, .lift = lift};
    atomic_init(&j.bad, src->rows);
    s24_ctx_parallel_for(ctx, src->rows, lift_rows, &j);
    const int64_t bad = atomic_load(&j.bad);
    return bad < src->rows ? refuse_row(ctx, src, lift, bad) : S24_OK;
}

s24_status s24_matrix_lift(s24_matrix **out, s24_ctx *ctx, const s24_dense *src, int lift)
{
    s24_matrix *matrix;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(check_lift(ctx, lift));
    TRY(s24i_dense_check(ctx, "src", src));
    REQUIRE(ctx, s24_dtype_can_be_two_four(src->dtype), S24_ERROR_DTYPE,
            "src is %s; expected f32, f16, bf16, i8, e4m3 or e5m2", s24_dtype_name(src->dtype));
    const int64_t cols = s24_lifted_cols(src->cols, lift);
    REQUIRE(ctx, cols || lift < 0, S24_ERROR_SHAPE,
            "src has %" PRId64 " columns; expected a multiple of %d", src->cols, lift);
    REQUIRE(ctx, cols, S24_ERROR_SHAPE,
            "src has %" PRId64 " columns; expected a multiple of %d, more than the %" PRId64
            " that stay dense",
            src->cols, (int)WINDOW, dense_of(lift));
    TRY(s24i_require_finite(ctx, "src", src));
    TRY(s24i_matrix_new(&matrix, ctx, src->dtype, src->rows, cols));
    GIVE(out, matrix, s24_matrix_destroy, fill(ctx, src, matrix, lift));
}

/* ---- and down -------------------------------------------------------------------------------- */

typedef struct lowering {
    const s24_dense *to, *from; /* of one dtype */
    int lift;
} lowering;

/* The column that a lifted one stands for. */
static int64_t lowered(int64_t col, int lift)
{
    const int64_t window = col / WINDOW, dense = dense_of(lift);
    if (lift < 0) return col < 2 * dense ? window / 2 * WINDOW + col % WINDOW : col - dense;
    return window / windows_of(lift) * lift + window % windows_of(lift) * STEP + col % WINDOW;
}

static void lower_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const lowering *j = arg;
    const size_t size = s24_dtype_bytes(j->to->dtype);
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        memset(s24i_dense_at(j->to, r, 0), 0, (size_t)j->to->cols * size);
        for (int64_t c = 0; c < j->from->cols; c++) {
            const char *value = s24i_dense_at(j->from, r, c);
            if (!s24i_is_zero(value, j->to->dtype))
                memcpy(s24i_dense_at(j->to, r, lowered(c, j->lift)), value, size);
        }
    }
}

/* Has a window columns of the one before it? */
static int joins(int64_t window, int lift)
{
    if (lift < 0) return window < 2 * dense_of(lift) / WINDOW && window % 2;
    return window % windows_of(lift) != 0;
}

/* The first column of a row that two windows have a non-zero for; −1: none. */
static int64_t find_clash(const s24i_storage *s, int64_t row, int lift)
{
    const size_t size = s24_dtype_bytes(s->dtype);
    const uint8_t *indices = s24i_indices_at(s, row, 0);
    const int step = lift < 0 ? 0 : STEP; /* columns from one window to the next */
    unsigned before = 0;
    for (int64_t w = 0; w < s->cols / WINDOW; w++) {
        const char *values = s24i_values_at(s, row, w * WINDOW);
        const unsigned code = s24i_code(indices, w);
        const unsigned has = (unsigned)!s24i_is_zero(values, s->dtype) << (code & 3u) |
                             (unsigned)!s24i_is_zero(values + size, s->dtype) << (code >> 2);
        const unsigned twice = joins(w, lift) ? before >> step & has : 0;
        for (int i = 0; i < WINDOW; i++)
            if (twice >> i & 1) return lowered(w * WINDOW + i, lift);
        before = has;
    }
    return -1;
}

typedef struct checking {
    const s24i_storage *from;
    int lift;
    _Atomic int64_t bad; /* as above */
} checking;

static void check_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    checking *j = arg;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        if (find_clash(j->from, r, j->lift) < 0) continue;
        for (int64_t bad = atomic_load(&j->bad);
             r < bad && !atomic_compare_exchange_weak(&j->bad, &bad, r);)
            ;
        return;
    }
}

s24_status s24_lifted_check(s24_ctx *ctx, const s24_matrix *src, int lift)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    TRY(check_lift(ctx, lift));
    REQUIRE(ctx, src, S24_ERROR_ARGUMENT, "src is NULL; expected a matrix");
    const int64_t width = lift < 0 ? WINDOW : windows_of(lift) * WINDOW;
    REQUIRE(ctx, !src->transposed && s24_lowered_cols(src->storage->cols, lift), S24_ERROR_SHAPE,
            "src is %s[%" PRId64 ", %" PRId64 "]; expected a lifted matrix, of a multiple of "
            "%" PRId64 " columns%s",
            src->transposed ? "a transposed view " : "", s24_matrix_rows(src), s24_matrix_cols(src),
            width, lift < 0 ? ", more than twice those that stay dense" : "");
    checking j = {.from = src->storage, .lift = lift};
    atomic_init(&j.bad, j.from->rows);
    s24_ctx_parallel_for(ctx, j.from->rows, check_rows, &j);
    const int64_t bad = atomic_load(&j.bad);
    REQUIRE(ctx, bad == j.from->rows, S24_ERROR_FORMAT,
            "two windows have a non-zero for row %" PRId64 ", column %" PRId64, bad,
            find_clash(j.from, bad, lift));
    return S24_OK;
}

s24_status s24_lifted_to_dense(s24_ctx *ctx, const s24_dense *dst, const s24_matrix *src, int lift)
{
    void *room;
    TRY(s24_lifted_check(ctx, src, lift));
    TRY(s24i_dense_check(ctx, "dst", dst));
    const int64_t rows = s24_matrix_rows(src), cols = s24_matrix_cols(src);
    REQUIRE(ctx, dst->rows == rows && s24_lifted_cols(dst->cols, lift) == cols, S24_ERROR_SHAPE,
            "dst is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", dst->rows,
            dst->cols, rows, s24_lowered_cols(cols, lift));
    room = s24_ctx_alloc(ctx, (size_t)rows * (size_t)cols * s24_dtype_bytes(dst->dtype));
    REQUIRE(ctx, room, S24_ERROR_MEMORY,
            "out of memory to make a lifted matrix of [%" PRId64 ", %" PRId64 "] dense", rows,
            cols);
    const s24_dense lifted = {room, dst->dtype, rows, cols, 0};
    const s24_status status = s24_matrix_to_dense(ctx, &lifted, src);
    lowering j = {dst, &lifted, lift};
    if (status == S24_OK) s24_ctx_parallel_for(ctx, rows, lower_rows, &j);
    s24_ctx_free(ctx, room);
    return status;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef struct tokens {
    char *to;
    const s24_dense *x;
    int lift;
} tokens;

/* The size is a constant where this is called, so that a window is one move. */
static inline void lift_token(char *to, const char *from, const tokens *t, size_t size)
{
    const int64_t dense = dense_of(t->lift);
    if (dense) {
        for (int64_t col = 0; col < dense; col += WINDOW, from += WINDOW * size) {
            memcpy(to, from, WINDOW * size);
            memcpy(to + WINDOW * size, from, WINDOW * size);
            to += 2 * WINDOW * size;
        }
        memcpy(to, from, (size_t)(t->x->cols - dense) * size);
        return;
    }
    const int windows = windows_of(t->lift);
    for (int64_t col = 0; col < t->x->cols; col += t->lift, from += STEP * size)
        for (int w = 0; w < windows; w++, to += WINDOW * size, from += STEP * size)
            memcpy(to, from, WINDOW * size);
}

static void lift_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
    const tokens *t = arg;
    const size_t size = s24_dtype_bytes(t->x->dtype);
    const size_t row = (size_t)s24_lifted_cols(t->x->cols, t->lift) * size;
    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        char *to = t->to + (size_t)m * row;
        if (size == 4)
            lift_token(to, s24i_dense_at(t->x, m, 0), t, 4);
        else
            lift_token(to, s24i_dense_at(t->x, m, 0), t, 2);
    }
}

void s24i_lift_tokens(void *to, s24_ctx *ctx, const s24_dense *x, int lift)
{
    tokens t = {to, x, lift};
    s24_ctx_parallel_for(ctx, x->rows, lift_tokens, &t);
}
