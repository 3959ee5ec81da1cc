// SPDX-License-Identifier: Apache-2.0
/*
 * Exact search by dot product. What must stay true: a score is one sum in one order, whatever
 * the number of threads or of queries, so that ranks never depend on either. A score that is not
 * a number ranks last.
 */
#include <math.h>
#include <string.h>

#include "io/file/io.h"
#include "vec/vec.h"

/* Queries that share a pass over the documents, and the scores kept of such a pass. */
enum { BLOCK_QUERIES = 64, BLOCK_SCORES = 1 << 22 };

typedef struct block {
    const s24_dense *queries, *documents;
    const s24i_vec *vec;
    const s24_rounded *rounded; /* NULL: documents are scored as they are */
    int64_t first, count;       /* queries of the pass */
    float *scores;              /* [count, documents] */
    int64_t k;
    int64_t *indices; /* [queries, k] */
    float *best;      /* [queries, k] */
} block;

typedef struct scored {
    int64_t index;
    float score;
} scored;

static const float *row(const s24_dense *x, int64_t r)
{
    return (const float *)x->data + r * s24i_ld(x);
}

static float score_of(const block *b, int64_t query, int64_t document)
{
    const s24_dense *d = b->documents;
    const float *q = row(b->queries, query);
    const float score =
        d->dtype == S24_F32
            ? b->vec->dot(q, row(d, document), d->cols)
            : b->vec->dot_half(q, (const uint16_t *)d->data + document * s24i_ld(d), d->cols);
    return isnan(score) ? -INFINITY : score;
}

/* scores of `count` documents from `first` on with a query. */
static void score_some(const block *b, float *scores, int64_t query, int64_t first, int64_t count)
{
    const s24_dense *d = b->rounded ? &b->rounded->integers : b->documents;
    const float *q = row(b->queries, query);
    const int64_t ld = s24i_ld(d);
    if (b->rounded) { /* off by margin_of at most */
        b->vec->dots_bytes(scores, q, (const int8_t *)d->data + first * ld, ld, count, d->cols);
        b->vec->multiply(scores, scores, b->rounded->scales + first, count);
        return;
    }
    if (d->dtype != S24_F32)
        b->vec->dots_half(scores, q, (const uint16_t *)d->data + first * ld, ld, count, d->cols);
    for (int64_t i = 0; i < count; i++) {
        if (d->dtype == S24_F32) scores[i] = b->vec->dot(q, row(d, first + i), d->cols);
        if (isnan(scores[i])) scores[i] = -INFINITY;
    }
}

/* Some documents at a time, which stay in the cache for all queries. */
static void score_documents(void *arg, int64_t begin, int64_t end, int thread)
{
    enum { SOME = 64 };
    const block *b = arg;
    (void)thread;
    for (int64_t d = begin; d < end; d += SOME)
        for (int64_t q = 0; q < b->count; q++)
            score_some(b, b->scores + q * b->documents->rows + d, b->first + q, d,
                       s24i_min(SOME, end - d));
}

static s24_status check_view(s24_ctx *ctx, const s24_dense *x, const char *name)
{
    REQUIRE(ctx, x && x->data, S24_ERROR_ARGUMENT, "%s is NULL", name);
    REQUIRE(ctx, x->rows > 0 && x->cols > 0 && s24i_ld(x) >= x->cols, S24_ERROR_SHAPE,
            "%s is [%lld, %lld] with ld %lld; rows, columns and an ld of at least the columns are "
            "expected",
            name, (long long)x->rows, (long long)x->cols, (long long)x->ld);
    return S24_OK;
}

static s24_status check(s24_ctx *ctx, const s24_dense *queries, const s24_dense *documents)
{
    TRY(check_view(ctx, queries, "queries"));
    TRY(check_view(ctx, documents, "documents"));
    REQUIRE(ctx, queries->dtype == S24_F32, S24_ERROR_DTYPE, "queries is %s, f32 is expected",
            s24_dtype_name(queries->dtype));
    REQUIRE(ctx, documents->dtype == S24_F32 || documents->dtype == S24_F16, S24_ERROR_DTYPE,
            "documents is %s, f32 or f16 is expected", s24_dtype_name(documents->dtype));
    REQUIRE(ctx, queries->cols == documents->cols, S24_ERROR_SHAPE,
            "queries have %lld columns, documents %lld; the same number is expected",
            (long long)queries->cols, (long long)documents->cols);
    return S24_OK;
}

/* Scores all queries block by block and hands each block to `use`. */
static s24_status for_blocks(block *b, s24_ctx *ctx, void (*use)(void *, int64_t, int64_t, int))
{
    const int64_t documents = b->documents->rows, queries = b->queries->rows;
    int64_t size = s24i_max(1, s24i_min(BLOCK_QUERIES, BLOCK_SCORES / documents));
    size = s24i_min(size, queries);
    b->vec = s24i_vec_find(s24_ctx_cpu(ctx));
    TRY(s24i_alloc_elems(&b->scores, ctx, size * documents, sizeof(float), "scores"));
    for (b->first = 0; b->first < queries; b->first += size) {
        b->count = s24i_min(size, queries - b->first);
        s24_ctx_parallel_for(ctx, documents, score_documents, b);
        s24_ctx_parallel_for(ctx, b->count, use, b);
    }
    s24_ctx_free(ctx, b->scores);
    return S24_OK;
}

/* Puts a document at its place among those found before, *count and at most k. Those that come by
   rising index go after their equals, so ties keep the lower index first. */
static void place(int64_t *indices, float *best, int64_t *count, int64_t k, const scored *document)
{
    int64_t at = *count;
    if (at == k && document->score <= best[at - 1]) return;
    at -= at == k;
    for (; at > 0 && best[at - 1] < document->score; at--) {
        best[at] = best[at - 1];
        indices[at] = indices[at - 1];
    }
    best[at] = document->score;
    indices[at] = document->index;
    *count += *count < k;
}

static void keep_best(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    (void)thread;
    for (int64_t q = begin; q < end; q++) {
        const float *scores = b->scores + q * b->documents->rows;
        const int64_t at = (b->first + q) * b->k;
        int64_t count = 0;
        for (int64_t d = 0; d < b->documents->rows; d++)
            if (count < b->k || scores[d] > b->best[at + b->k - 1])
                place(b->indices + at, b->best + at, &count, b->k, &(scored){d, scores[d]});
    }
}

/* How far integers of scale 1 can put a query's score off, with the rounding of both sums. */
static float margin_of(const block *b, int64_t query)
{
    const float *q = row(b->queries, query);
    const double slack = 127 * 0x1p-23 * (double)b->queries->cols;
    double sum = 0;
    for (int64_t c = 0; c < b->queries->cols; c++)
        sum += fabs((double)q[c]);
    return (float)((0.5 + slack) * 1.000001 * sum);
}

/* Finds the k-th best score that integers are sure of, then scores exactly what may reach it. */
static void keep_rounded(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    (void)thread;
    for (int64_t q = begin; q < end; q++) {
        const float *rough = b->scores + q * b->documents->rows, *scales = b->rounded->scales;
        const float margin = margin_of(b, b->first + q);
        int64_t *indices = b->indices + (b->first + q) * b->k, count = 0;
        float *best = b->best + (b->first + q) * b->k;
        for (int64_t d = 0; d < b->documents->rows; d++) {
            const float low = rough[d] - margin * scales[d];
            if (count < b->k || low > best[b->k - 1])
                place(indices, best, &count, b->k, &(scored){d, isnan(low) ? -INFINITY : low});
        }
        const float least = best[b->k - 1];
        count = 0;
        for (int64_t d = 0; d < b->documents->rows; d++)
            if (!(rough[d] + margin * scales[d] < least))
                place(indices, best, &count, b->k, &(scored){d, score_of(b, b->first + q, d)});
    }
}

static s24_status check_k(s24_ctx *ctx, const s24_dense *documents, int64_t k)
{
    REQUIRE(ctx, k >= 1 && k <= documents->rows, S24_ERROR_ARGUMENT,
            "k is %lld, 1 to the number of documents, %lld, is expected", (long long)k,
            (long long)documents->rows);
    return S24_OK;
}

s24_status s24_nearest_rounded(int64_t *indices, float *scores, s24_ctx *ctx,
                               const s24_dense *queries, const s24_rounded *documents, int64_t k)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, indices && scores && documents && documents->scales, S24_ERROR_ARGUMENT,
            "%s is NULL",
            !indices     ? "indices"
            : !scores    ? "scores"
            : !documents ? "documents"
                         : "scales");
    const s24_dense *exact = &documents->exact, *integers = &documents->integers;
    TRY(check(ctx, queries, exact));
    TRY(check_view(ctx, integers, "integers"));
    REQUIRE(ctx, integers->dtype == S24_I8, S24_ERROR_DTYPE, "integers is %s, i8 is expected",
            s24_dtype_name(integers->dtype));
    REQUIRE(ctx, integers->rows == exact->rows && integers->cols == exact->cols, S24_ERROR_SHAPE,
            "integers is [%lld, %lld], documents are [%lld, %lld]; the same is expected",
            (long long)integers->rows, (long long)integers->cols, (long long)exact->rows,
            (long long)exact->cols);
    TRY(check_k(ctx, exact, k));
    block b = {.queries = queries,
               .documents = exact,
               .rounded = documents,
               .k = k,
               .indices = indices,
               .best = scores};
    return for_blocks(&b, ctx, keep_rounded);
}

s24_status s24_round_rows(int8_t *integers, float *scales, s24_ctx *ctx, const s24_dense *rows)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, integers && scales, S24_ERROR_ARGUMENT, "%s is NULL",
            integers ? "scales" : "integers");
    TRY(check_view(ctx, rows, "rows"));
    REQUIRE(ctx, rows->dtype == S24_F32, S24_ERROR_DTYPE, "rows is %s, f32 is expected",
            s24_dtype_name(rows->dtype));
    for (int64_t r = 0; r < rows->rows; r++) {
        const float *from = row(rows, r);
        float most = 0;
        for (int64_t c = 0; c < rows->cols; c++) {
            REQUIRE(ctx, isfinite(from[c]), S24_ERROR_NOT_FINITE, "row %lld, column %lld: %g",
                    (long long)r, (long long)c, (double)from[c]);
            most = fmaxf(most, fabsf(from[c]));
        }
        scales[r] = most / 127;
        for (int64_t c = 0; c < rows->cols; c++)
            integers[r * rows->cols + c] = (int8_t)(most > 0 ? lrintf(from[c] / most * 127) : 0);
    }
    return S24_OK;
}

s24_status s24_nearest(int64_t *indices, float *scores, s24_ctx *ctx, const s24_dense *queries,
                       const s24_dense *documents, int64_t k)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, indices && scores, S24_ERROR_ARGUMENT, "%s is NULL",
            indices ? "scores" : "indices");
    TRY(check(ctx, queries, documents));
    TRY(check_k(ctx, documents, k));
    block b = {
        .queries = queries, .documents = documents, .k = k, .indices = indices, .best = scores};
    return for_blocks(&b, ctx, keep_best);
}

/* indices holds each query's gold document and is replaced by how many documents beat it. */
static void count_better(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    (void)thread;
    for (int64_t q = begin; q < end; q++) {
        const float *scores = b->scores + q * b->documents->rows;
        int64_t *gold = &b->indices[b->first + q], better = 0;
        const float score = scores[*gold];
        for (int64_t d = 0; d < b->documents->rows; d++)
            better += scores[d] > score;
        *gold = better;
    }
}

s24_status s24_retrieval_accuracy(double *share, s24_ctx *ctx, const s24_dense *queries,
                                  const s24_dense *documents, const int64_t *gold, int64_t k)
{
    int64_t found = 0;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, share && gold, S24_ERROR_ARGUMENT, "%s is NULL", share ? "gold" : "share");
    TRY(check(ctx, queries, documents));
    REQUIRE(ctx, k >= 1, S24_ERROR_ARGUMENT, "k is %lld, at least 1 is expected", (long long)k);
    for (int64_t q = 0; q < queries->rows; q++)
        REQUIRE(ctx, gold[q] >= 0 && gold[q] < documents->rows, S24_ERROR_ARGUMENT,
                "gold[%lld] is %lld, 0 to %lld is expected", (long long)q, (long long)gold[q],
                (long long)documents->rows - 1);
    block b = {.queries = queries, .documents = documents, .k = k};
    TRY(s24i_alloc_elems(&b.indices, ctx, queries->rows, sizeof *b.indices, "ranks"));
    memcpy(b.indices, gold, (size_t)queries->rows * sizeof *gold);
    const s24_status status = for_blocks(&b, ctx, count_better);
    for (int64_t q = 0; status == S24_OK && q < queries->rows; q++)
        found += b.indices[q] < k;
    s24_ctx_free(ctx, b.indices);
    if (status == S24_OK) *share = (double)found / (double)queries->rows;
    return status;
}
