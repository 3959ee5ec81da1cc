// SPDX-License-Identifier: Apache-2.0
/*
 * Exact search by dot product. What must stay true: a score is one sum in one order, whatever
 * the number of threads or of queries, so that ranks never depend on either. A score that is not
 * a number ranks last.
 */
#include <math.h>
#include <string.h>

#include "io/file/io.h"
#include "task/best.h"
#include "vec/vec.h"

/* Queries that share a pass over the documents, the scores kept of such a pass, and the documents
   that make a part worth its own thread. */
enum { BLOCK_QUERIES = 64, BLOCK_SCORES = 1 << 22, PART_DOCUMENTS = 4096 };

typedef struct block {
    const s24_dense *queries, *documents;
    const s24i_vec *vec;
    const s24_rounded *rounded; /* NULL: documents are scored as they are */
    int64_t first, count;       /* queries of the pass */
    float *scores;              /* [count, documents] */
    int64_t k;
    int64_t *indices; /* [queries, k] */
    float *best;      /* [queries, k] */
    /* Of few queries several threads keep the best of each, all of a part of the documents. */
    int64_t parts, kept;
    int64_t *part_indices; /* [queries of the pass, parts, kept], the end of a part's −1 */
    float *part_scores;
    int exact;    /* what integers are not sure of is scored again */
    float *least; /* [queries of the pass] the k-th best score that integers are sure of */
} block;

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

/* Queries of a block. */
static int64_t size_of(const block *b)
{
    const int64_t most = s24i_max(1, s24i_min(BLOCK_QUERIES, BLOCK_SCORES / b->documents->rows));
    return s24i_min(most, b->queries->rows);
}

/* Scores all queries block by block and hands each block to `use`. */
static s24_status for_blocks(block *b, s24_ctx *ctx, void (*use)(block *, s24_ctx *))
{
    const int64_t documents = b->documents->rows, queries = b->queries->rows, size = size_of(b);
    b->vec = s24i_vec_find(s24_ctx_cpu(ctx));
    TRY(s24i_alloc_elems(&b->scores, ctx, size * documents, sizeof(float), "scores"));
    for (b->first = 0; b->first < queries; b->first += size) {
        b->count = s24i_min(size, queries - b->first);
        s24_ctx_parallel_for(ctx, documents, score_documents, b);
        use(b, ctx);
    }
    s24_ctx_free(ctx, b->scores);
    return S24_OK;
}

/* Where the best of a part of the documents are kept for a query of the block. */
static s24i_best part_of(const block *b, int64_t query, int64_t part)
{
    const int64_t at = (query * b->parts + part) * b->kept;
    return (s24i_best){
        .indices = b->part_indices + at, .scores = b->part_scores + at, .k = b->kept};
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

/* By scores as they are: a document needs more than the least of those before it. */
static void keep_scored(const block *b, s24i_best *best, int64_t query, int64_t begin, int64_t end)
{
    const float *scores = b->scores + query * b->documents->rows;
    for (int64_t d = begin; d < end; d++)
        if (best->count < best->k || scores[d] > best->scores[0]) s24i_best_add(best, d, scores[d]);
}

/* By the least that a score can be, then exactly what may reach the k-th best of these. */
static void keep_rounded(const block *b, s24i_best *best, int64_t query, int64_t begin, int64_t end)
{
    const float *rough = b->scores + query * b->documents->rows, *scales = b->rounded->scales;
    const float margin = margin_of(b, b->first + query);
    if (b->exact) {
        for (int64_t d = begin; d < end; d++)
            if (!(rough[d] + margin * scales[d] < b->least[query]))
                s24i_best_add(best, d, score_of(b, b->first + query, d));
        return;
    }
    for (int64_t d = begin; d < end; d++) {
        const float low = rough[d] - margin * scales[d];
        if (best->count < best->k || low > best->scores[0])
            s24i_best_add(best, d, isnan(low) ? -INFINITY : low);
    }
}

static void keep_parts(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    const int64_t documents = b->documents->rows;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t query = i / b->parts, part = i % b->parts;
        const int64_t from = documents * part / b->parts, to = documents * (part + 1) / b->parts;
        s24i_best best = part_of(b, query, part);
        (b->rounded ? keep_rounded : keep_scored)(b, &best, query, from, to);
        for (int64_t j = best.count; j < best.k; j++)
            best.indices[j] = -1;
    }
}

static void join_parts(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    (void)thread;
    for (int64_t q = begin; q < end; q++) {
        const int64_t at = (b->first + q) * b->k;
        s24i_best best = {.indices = b->indices + at, .scores = b->best + at, .k = b->k};
        for (int64_t i = 0; i < b->parts * b->kept; i++) {
            const s24i_best all = part_of(b, q, 0);
            if (all.indices[i] >= 0) s24i_best_add(&best, all.indices[i], all.scores[i]);
        }
        if (b->rounded && !b->exact)
            b->least[q] = best.scores[0];
        else
            s24i_best_sort(&best);
    }
}

static void keep_best(block *b, s24_ctx *ctx)
{
    for (b->exact = 0; b->exact <= (b->rounded != NULL); b->exact++) {
        s24_ctx_parallel_for(ctx, b->count * b->parts, keep_parts, b);
        s24_ctx_parallel_for(ctx, b->count, join_parts, b);
    }
}

static s24_status find(block *b, s24_ctx *ctx)
{
    const int64_t documents = b->documents->rows, threads = s24_ctx_threads(ctx);
    const int64_t size = size_of(b), wanted = (threads + size - 1) / size;
    b->parts = s24i_max(1, s24i_min(wanted, documents / PART_DOCUMENTS));
    b->kept = s24i_min(b->k, (documents + b->parts - 1) / b->parts);
    const int64_t all = size * b->parts * b->kept;
    s24_status status = s24i_alloc_elems(&b->part_indices, ctx, all, sizeof(int64_t), "places");
    if (status == S24_OK)
        status = s24i_alloc_elems(&b->part_scores, ctx, all, sizeof(float), "best scores");
    if (status == S24_OK)
        status = s24i_alloc_elems(&b->least, ctx, size, sizeof(float), "least scores");
    if (status == S24_OK) status = for_blocks(b, ctx, keep_best);
    s24_ctx_free(ctx, b->part_indices);
    s24_ctx_free(ctx, b->part_scores);
    s24_ctx_free(ctx, b->least);
    return status;
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
    return find(&b, ctx);
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
    return find(&b, ctx);
}

/* indices holds each query's gold document and is replaced by how many documents beat it. */
static void count_some(void *arg, int64_t begin, int64_t end, int thread)
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

static void count_better(block *b, s24_ctx *ctx)
{
    s24_ctx_parallel_for(ctx, b->count, count_some, b);
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
