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
    int64_t first, count; /* queries of the pass */
    float *scores;        /* [count, documents] */
    int64_t k;
    int64_t *indices; /* [queries, k] */
    float *best;      /* [queries, k] */
} block;

static const float *row(const s24_dense *x, int64_t r)
{
    return (const float *)x->data + r * s24i_ld(x);
}

static void score_documents(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    (void)thread;
    for (int64_t d = begin; d < end; d++) {
        const float *document = row(b->documents, d);
        for (int64_t q = 0; q < b->count; q++) {
            float score = b->vec->dot(row(b->queries, b->first + q), document, b->queries->cols);
            b->scores[q * b->documents->rows + d] = isnan(score) ? -INFINITY : score;
        }
    }
}

static s24_status check_view(s24_ctx *ctx, const s24_dense *x, const char *name)
{
    REQUIRE(ctx, x && x->data, S24_ERROR_ARGUMENT, "%s is NULL", name);
    REQUIRE(ctx, x->dtype == S24_F32, S24_ERROR_DTYPE, "%s is %s, f32 is expected", name,
            s24_dtype_name(x->dtype));
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

/* Documents come by rising index and go behind their equals, so ties keep the lower index first. */
static void keep_best(void *arg, int64_t begin, int64_t end, int thread)
{
    const block *b = arg;
    (void)thread;
    for (int64_t q = begin; q < end; q++) {
        const float *scores = b->scores + q * b->documents->rows;
        int64_t *indices = b->indices + (b->first + q) * b->k;
        float *best = b->best + (b->first + q) * b->k;
        for (int64_t d = 0; d < b->documents->rows; d++) {
            int64_t at = s24i_min(d, b->k);
            if (at == b->k && scores[d] <= best[at - 1]) continue;
            at -= at == b->k;
            for (; at > 0 && best[at - 1] < scores[d]; at--) {
                best[at] = best[at - 1];
                indices[at] = indices[at - 1];
            }
            best[at] = scores[d];
            indices[at] = d;
        }
    }
}

s24_status s24_nearest(int64_t *indices, float *scores, s24_ctx *ctx, const s24_dense *queries,
                       const s24_dense *documents, int64_t k)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, indices && scores, S24_ERROR_ARGUMENT, "%s is NULL",
            indices ? "scores" : "indices");
    TRY(check(ctx, queries, documents));
    REQUIRE(ctx, k >= 1 && k <= documents->rows, S24_ERROR_ARGUMENT,
            "k is %lld, 1 to the number of documents, %lld, is expected", (long long)k,
            (long long)documents->rows);
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
