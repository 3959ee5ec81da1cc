// SPDX-License-Identifier: Apache-2.0
/*
 * Matrices that are not 2:4, in coordinates, rows, columns and blocks, dense integers with scales,
 * and weights in layouts, of any content: refused with a sentence, or they go to dense, to every
 * other format and back as the same numbers, and a product reads nothing else.
 *
 * Input: kind, dtype, rows, columns, stored, then bytes that are repeated as often as is needed.
 */
#include "fuzz.h"

#include <string.h>

enum { HEAD = 8, LAYOUTS = 16 };
static const s24_dtype dtypes[] = {S24_F32, S24_F16, S24_BF16, S24_I8, S24_E4M3, S24_E5M2};

typedef struct source {
    const uint8_t *data;
    size_t bytes, at;
} source;

/* Memory of exactly that size, so that an over-read is seen. */
static void *take(source *from, size_t bytes)
{
    uint8_t *out = malloc(bytes ? bytes : 1);
    CHECK(out);
    for (size_t i = 0; i < bytes; i++)
        out[i] = from->bytes ? from->data[from->at++ % from->bytes] : 0;
    return out;
}

static void *take_dense(s24_dense *to, int64_t rows, int64_t cols)
{
    *to = (s24_dense){.dtype = S24_F32, .rows = rows, .cols = cols};
    to->data = malloc((size_t)(rows * cols) * sizeof(float) + 1);
    CHECK(to->data);
    return to->data;
}

/* y = x · Wᵀ of three tokens. */
static void multiply(const s24_sparse *w)
{
    enum { TOKENS = 3 };
    s24_ctx *ctx = fuzz_ctx();
    const s24_sparse_parts parts = s24_sparse_get(w);
    s24_plan *plan;
    if (s24_sparse_plan(&plan, ctx, w, NULL) != S24_OK) {
        CHECK(*s24_ctx_error(ctx));
        return;
    }
    s24_dense x, y;
    memset(take_dense(&x, TOKENS, parts.cols), 0, (size_t)(TOKENS * parts.cols) * sizeof(float));
    take_dense(&y, TOKENS, parts.rows);
    const size_t bytes = s24_plan_work_bytes(plan, ctx, TOKENS);
    void *work = aligned_alloc(64, (bytes + 127) / 64 * 64);
    const s24_linear_args args = {.y = &y, .x = &x, .work = work, .work_bytes = bytes};
    CHECK(work);
    CHECK(s24_plan_run(ctx, plan, &args) == S24_OK || *s24_ctx_error(ctx));
    free(work);
    free(x.data);
    free(y.data);
    s24_plan_destroy(plan);
}

/* What was made has these numbers, and a product reads nothing else. */
static void check_made(s24_sparse *made, const s24_dense *numbers, const s24_dense *room)
{
    const float *a = numbers->data, *b = room->data;
    CHECK(s24_sparse_to_dense(fuzz_ctx(), room, made) == S24_OK);
    for (int64_t i = 0; i < numbers->rows * numbers->cols; i++)
        CHECK(!memcmp(&a[i], &b[i], sizeof *a) || a[i] == b[i] || (a[i] != a[i] && b[i] != b[i]));
    multiply(made);
    s24_sparse_destroy(made);
}

/* Every format of the same matrix, and of its dense numbers, is the same numbers. */
static void go_round(const s24_sparse *w)
{
    s24_ctx *ctx = fuzz_ctx();
    const s24_sparse_parts parts = s24_sparse_get(w);
    s24_dense one, other;
    take_dense(&one, parts.rows, parts.cols);
    take_dense(&other, parts.rows, parts.cols);
    CHECK(s24_sparse_to_dense(ctx, &one, w) == S24_OK);
    for (int f = S24_FORMAT_COO; f <= S24_FORMAT_BSR; f++) {
        const int is_bsr = f == S24_FORMAT_BSR;
        const s24_sparse_parts as = {
            .format = (s24_format)f, .block_rows = is_bsr, .block_cols = 4 * is_bsr};
        s24_sparse *again, *created;
        const s24_status status = s24_sparse_convert(&again, ctx, w, &as);
        CHECK(status == S24_OK || *s24_ctx_error(ctx));
        CHECK(s24_sparse_create(&created, ctx, &one, &as) == status);
        if (status != S24_OK) continue;
        check_made(again, &one, &other);
        check_made(created, &one, &other);
    }
    free(one.data);
    free(other.data);
}

static void parts_of(const uint8_t *head, source *from)
{
    static const int sides[][2] = {{1, 4}, {4, 1}, {8, 8}, {16, 16}, {0, 0}, {3, 4}};
    s24_ctx *ctx = fuzz_ctx();
    s24_sparse *w;
    s24_sparse_parts p = {.format = (s24_format)(head[0] % 4 + 1),
                          .dtype = dtypes[head[1] % 6],
                          .rows = head[2] % 33,
                          .cols = head[3] % 33,
                          .stored = head[4] % 65};
    const int64_t is_bsr = p.format == S24_FORMAT_BSR;
    p.block_rows = is_bsr ? sides[head[5] % 6][0] : 0;
    p.block_cols = is_bsr ? sides[head[5] % 6][1] : 0;
    const int64_t begins = p.format == S24_FORMAT_CSC ? p.cols
                           : p.block_rows             ? p.rows / p.block_rows
                                                      : p.rows;
    const int64_t cells = is_bsr ? p.block_rows * p.block_cols : 1;
    uint8_t *steps = take(from, (size_t)begins + 1), *index = take(from, (size_t)p.stored),
            *rows = take(from, (size_t)p.stored);
    int64_t *starts = calloc((size_t)begins + 1, sizeof *starts);
    int32_t *wide = calloc((size_t)p.stored + 1, 2 * sizeof *wide);
    CHECK(starts && wide);
    for (int64_t i = 1; i <= begins; i++) /* mostly ascending up to what is stored */
        starts[i] = steps[i] == 255 ? -1 : starts[i - 1] + steps[i] % 4;
    if (head[6] % 2 && begins) starts[begins] = p.stored;
    for (int64_t i = 0; i < p.stored; i++) {
        wide[i] = (int8_t)index[i];
        wide[p.stored + i] = (int8_t)rows[i];
    }
    p.starts = p.format == S24_FORMAT_COO ? NULL : starts;
    p.index = wide;
    p.rows_of = p.format == S24_FORMAT_COO ? wide + p.stored : NULL;
    void *values = take(from, (size_t)(p.stored * cells) * s24_dtype_bytes(p.dtype));
    p.values = values;
    const s24_status check = s24_sparse_check(ctx, &p);
    const s24_status status = s24_sparse_from_parts(&w, ctx, &p);
    CHECK(check == status && (status == S24_OK || (!w && *s24_ctx_error(ctx))));
    if (status == S24_OK) go_round(w);
    s24_sparse_destroy(w);
    free(steps);
    free(index);
    free(rows);
    free(starts);
    free(wide);
    free(values);
}

/* Integers with scales, 2:4 or dense. */
static void integers(const uint8_t *head, source *from)
{
    static const int64_t groups[] = {0, 64, 128, 4, 32};
    s24_ctx *ctx = fuzz_ctx();
    s24_quantized q = {.rows = head[2] % 9, .cols = head[3] % 65 * 4, .bits = head[4] % 2 ? 4 : 8};
    const int is_dense = head[5] % 2;
    q.group = groups[head[6] % 5] ? groups[head[6] % 5] : q.cols;
    const size_t cells = (size_t)(q.rows * q.cols) / (is_dense ? 1 : 2);
    const size_t each = (size_t)(q.group ? (q.cols + q.group - 1) / q.group : 0);
    void *values = take(from, q.bits == 4 ? cells / 2 : cells);
    void *indices = take(from, (size_t)(q.rows * ((q.cols + 7) / 8)));
    void *scales = take(from, (size_t)q.rows * each * sizeof(float));
    s24_dense dense;
    s24_matrix *matrix = NULL;
    s24_status status;
    q.values = values;
    q.indices = is_dense ? NULL : indices;
    q.scales = scales;
    take_dense(&dense, q.rows, q.cols);
    if (is_dense) {
        status = s24_dense_from_quantized(ctx, &dense, &q);
    } else {
        status = s24_matrix_from_quantized(&matrix, ctx, &q);
        if (status == S24_OK) CHECK(s24_matrix_to_dense(ctx, &dense, matrix) == S24_OK);
    }
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    s24_matrix_destroy(matrix);
    free(dense.data);
    free(values);
    free(indices);
    free(scales);
}

/* A weight in a layout is judged alike by the check and by what copies it. */
static void layout(const uint8_t *head, source *from)
{
    s24_ctx *ctx = fuzz_ctx();
    s24_matrix *matrix;
    s24_dtype dtype;
    const char *name = s24_layout_name(head[1] % LAYOUTS, &dtype, NULL);
    if (!name) return;
    s24_laid_out laid = {.layout = name, .rows = head[2] % 65, .cols = head[3] % 33 * 4};
    const size_t bytes = s24_layout_bytes(name, laid.rows, laid.cols);
    void *data = take(from, bytes);
    laid.data = data;
    const s24_status check = s24_layout_check(ctx, &laid);
    const s24_status status = s24_matrix_from_layout(&matrix, ctx, &laid);
    CHECK(check == status && (status == S24_OK || *s24_ctx_error(ctx)));
    if (status == S24_OK) {
        void *again = calloc(bytes + 1, 1);
        CHECK(again && s24_matrix_to_layout(again, ctx, matrix, name) == S24_OK);
        CHECK(!memcmp(again, data, bytes));
        free(again);
    }
    s24_matrix_destroy(matrix);
    free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < HEAD) return 0;
    source from = {.data = data + HEAD, .bytes = bytes - HEAD};
    if (data[7] % 4 == 1)
        integers(data, &from);
    else if (data[7] % 4 == 2)
        layout(data, &from);
    else
        parts_of(data, &from);
    return 0;
}
