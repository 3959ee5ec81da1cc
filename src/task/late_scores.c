// SPDX-License-Identifier: Apache-2.0
/* Scores of late interaction over vectors that are there: each document goes by once, for all
   queries. */
#include <float.h>

#include "base/try.h"
#include "sparse24/late.h"
#include "vec/vec.h"

typedef struct job {
    float *scores;
    const s24i_vec *vec;
    const s24_late_texts *queries, *documents;
    int by_mean;
} job;

static float dot(const job *j, const float *query, int64_t row)
{
    const s24_dense *d = &j->documents->vectors;
    const int64_t at = row * s24i_ld(d);
    return d->dtype == S24_F32 ? j->vec->dot(query, (const float *)d->data + at, d->cols)
                               : j->vec->dot_half(query, (const uint16_t *)d->data + at, d->cols);
}

static float score(const job *j, int64_t query, int64_t document)
{
    const int64_t *rows = j->queries->offsets + query, *all = j->documents->offsets + document;
    const s24_dense *q = &j->queries->vectors;
    float sum = 0.0f;
    if (rows[0] == rows[1] || all[0] == all[1]) return 0.0f;
    for (int64_t r = rows[0]; r < rows[1]; r++) {
        float best = -FLT_MAX;
        for (int64_t t = all[0]; t < all[1]; t++) {
            const float one = dot(j, (const float *)q->data + r * s24i_ld(q), t);
            if (one > best) best = one;
        }
        sum += best;
    }
    return j->by_mean ? sum / (float)(rows[1] - rows[0]) : sum;
}

static void run(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    for (int64_t d = begin; d < end; d++)
        for (int64_t q = 0; q < j->queries->texts; q++)
            j->scores[q * j->documents->texts + d] = score(j, q, d);
}

static s24_status check_texts(s24_ctx *ctx, const char *name, const s24_late_texts *texts)
{
    REQUIRE(ctx, texts && texts->offsets && texts->texts >= 0, S24_ERROR_ARGUMENT,
            "%s is NULL or has no offsets", name);
    const int64_t count = texts->offsets[texts->texts];
    REQUIRE(ctx, texts->vectors.data || !count, S24_ERROR_ARGUMENT, "%s.vectors.data is NULL",
            name);
    REQUIRE(ctx, texts->offsets[0] == 0, S24_ERROR_SHAPE, "%s.offsets begins with %lld, not 0",
            name, (long long)texts->offsets[0]);
    for (int64_t i = 0; i < texts->texts; i++)
        REQUIRE(ctx, texts->offsets[i] <= texts->offsets[i + 1], S24_ERROR_SHAPE,
                "%s.offsets falls after text %lld", name, (long long)i);
    REQUIRE(ctx, count <= texts->vectors.rows, S24_ERROR_SHAPE,
            "%s.offsets ends with %lld, but there are %lld vectors", name, (long long)count,
            (long long)texts->vectors.rows);
    return S24_OK;
}

s24_status s24_late_scores(float *scores, s24_ctx *ctx, const s24_late_texts *queries,
                           const s24_late_texts *documents, int by_mean)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    TRY(check_texts(ctx, "queries", queries));
    TRY(check_texts(ctx, "documents", documents));
    REQUIRE(ctx, scores || !queries->texts || !documents->texts, S24_ERROR_ARGUMENT,
            "scores is NULL");
    REQUIRE(ctx, queries->vectors.dtype == S24_F32, S24_ERROR_DTYPE,
            "queries is %s, f32 is expected", s24_dtype_name(queries->vectors.dtype));
    const s24_dtype dtype = documents->vectors.dtype;
    REQUIRE(ctx, dtype == S24_F32 || dtype == S24_F16, S24_ERROR_DTYPE,
            "documents is %s, f32 or f16 is expected", s24_dtype_name(dtype));
    REQUIRE(ctx, queries->vectors.cols == documents->vectors.cols, S24_ERROR_SHAPE,
            "queries have %lld numbers, documents %lld", (long long)queries->vectors.cols,
            (long long)documents->vectors.cols);
    job j = {scores, s24i_vec_find(s24_ctx_cpu(ctx)), queries, documents, by_mean};
    s24_ctx_parallel_for(ctx, documents->texts, run, &j);
    return S24_OK;
}
