// SPDX-License-Identifier: Apache-2.0
/*
 * A weight W = [D S] whose first columns D are dense, pruned by what moves weights. Whatever
 * becomes of S, D can then be put where the outputs change least: with the inputs' Gram matrix H
 * cut likewise and E what S has lost,
 *
 *     D' = D + E·H_SD·H_DD⁻¹,   which leaves the error E·(H_SS − H_SD·H_DD⁻¹·H_DS)·Eᵀ
 *
 * So S is pruned by itself, 2:4, by the Gram matrix in those brackets, by every criterion,
 * refinement and device as any weight is, and D follows. With H_DD⁻¹ = UᵀU and Z = U·H_DS the
 * brackets are H_SS − ZᵀZ.
 */
#include <math.h>
#include <string.h>

#include "prune/prune_patterns.h"

typedef struct beside {
    s24_ctx *ctx;
    const double *h;            /* [k, k], its lower triangle */
    int64_t n, k, dense, rest;  /* k = dense + rest */
    double *first, *u;          /* [dense, dense]: H_DD, and U */
    double *z;                  /* [dense, rest] */
    double *gram;               /* [rest, rest]: of the brackets */
    double *lost;               /* [n, rest]: E */
    double *to, *half, *follow; /* [n, dense]: E·H_SD, that times Uᵀ, and D */
    void *work;
} beside;

static void free_memory(beside *b)
{
    s24_ctx_free(b->ctx, b->work);
    s24_ctx_free(b->ctx, b->to);
    s24_ctx_free(b->ctx, b->lost);
    s24_ctx_free(b->ctx, b->gram);
    s24_ctx_free(b->ctx, b->z);
    s24_ctx_free(b->ctx, b->first);
}

static s24_status new_memory(beside *b)
{
    const size_t number = sizeof(double), dense = (size_t)b->dense, rest = (size_t)b->rest;
    const int64_t most = b->n > b->k ? b->n : b->k;
    b->first = s24_ctx_alloc(b->ctx, 2 * dense * dense * number);
    b->z = s24_ctx_alloc(b->ctx, dense * rest * number);
    b->gram = s24_ctx_alloc(b->ctx, rest * rest * number);
    b->lost = s24_ctx_alloc(b->ctx, (size_t)b->n * rest * number);
    b->to = s24_ctx_alloc(b->ctx, 3 * (size_t)b->n * dense * number);
    b->work = s24_ctx_alloc(b->ctx, s24i_product_work_bytes(most, b->k, b->k));
    REQUIRE(b->ctx, b->first && b->z && b->gram && b->lost && b->to && b->work, S24_ERROR_MEMORY,
            "out of memory to prune a weight of [%lld, %lld] next to dense ones", (long long)b->n,
            (long long)b->k);
    b->u = b->first + b->dense * b->dense;
    b->half = b->to + b->n * b->dense;
    b->follow = b->half + b->n * b->dense;
    return S24_OK;
}

/* U, Z, and the Gram matrix that S is pruned by. */
static s24_status find_gram(beside *b, const s24_stats *stats, double dampening)
{
    const int64_t dense = b->dense, rest = b->rest;
    const s24_stats first = {.k = dense, .tokens = stats->tokens, .gram = b->first};
    for (int64_t i = 0; i < dense; i++)
        for (int64_t j = 0; j < dense; j++)
            b->first[i * dense + j] = j <= i ? b->h[i * b->k + j] : 0.0;
    s24i_gram_dampen(b->ctx, b->u, &first, dampening);
    TRY(s24i_inverse_factor(b->ctx, b->u, dense));
    memset(b->z, 0, (size_t)(dense * rest) * sizeof *b->z);
    const s24i_product z = {.m = dense,
                            .n = rest,
                            .depth = dense,
                            .a = b->u,
                            .a_row = dense,
                            .a_depth = 1,
                            .b = b->h + dense * b->k,
                            .b_row = b->k,
                            .b_depth = 1,
                            .c = b->z,
                            .ldc = rest,
                            .sign = 1};
    s24i_product_run(b->ctx, &z, b->work);
    for (int64_t i = 0; i < rest; i++)
        for (int64_t j = 0; j < rest; j++)
            b->gram[i * rest + j] = j <= i ? b->h[(dense + i) * b->k + dense + j] : 0.0;
    const s24i_product off = {.m = rest,
                              .n = rest,
                              .depth = dense,
                              .a = b->z,
                              .a_row = 1,
                              .a_depth = rest,
                              .b = b->z,
                              .b_row = 1,
                              .b_depth = rest,
                              .c = b->gram,
                              .ldc = rest,
                              .sign = -1,
                              .lower = 1};
    s24i_product_run(b->ctx, &off, b->work);
    for (int64_t i = 0; i < rest; i++) /* what the first columns say all of is not below nothing */
        b->gram[i * (rest + 1)] = fmax(b->gram[i * (rest + 1)], 0.0);
    return S24_OK;
}

/* A matrix of [depth, dense], whose columns and rows are so far apart. */
typedef struct factor {
    const double *at;
    int64_t depth, across, down;
} factor;

/* to [n, dense] += from·by */
static void add_product(const beside *b, double *to, const double *from, const factor *by)
{
    s24i_product_run(b->ctx,
                     &(s24i_product){.m = b->n,
                                     .n = b->dense,
                                     .depth = by->depth,
                                     .a = from,
                                     .a_row = by->depth,
                                     .a_depth = 1,
                                     .b = by->at,
                                     .b_row = by->across,
                                     .b_depth = by->down,
                                     .c = to,
                                     .ldc = b->dense,
                                     .sign = 1},
                     b->work);
}

/* The dense columns of w [n, k], whose others have become 2:4. */
static s24_status move_dense(const beside *b, float *w, const s24_dense *before)
{
    const int64_t ld = before->ld ? before->ld : before->cols;
    for (int64_t i = 0; i < b->n * b->rest; i++) {
        const int64_t row = i / b->rest, col = b->dense + i % b->rest;
        b->lost[i] =
            (double)((const float *)before->data)[row * ld + col] - (double)w[row * b->k + col];
    }
    memset(b->to, 0, 2 * (size_t)(b->n * b->dense) * sizeof *b->to);
    for (int64_t i = 0; i < b->n * b->dense; i++)
        b->follow[i] = (double)w[i / b->dense * b->k + i % b->dense];
    add_product(b, b->to, b->lost, &(factor){b->h + b->dense * b->k, b->rest, 1, b->k});
    add_product(b, b->half, b->to, &(factor){b->u, b->dense, b->dense, 1});
    add_product(b, b->follow, b->half, &(factor){b->u, b->dense, 1, b->dense});
    for (int64_t i = 0; i < b->n * b->dense; i++) {
        const float moved = (float)b->follow[i];
        REQUIRE(b->ctx, isfinite(moved), S24_ERROR_NUMERIC,
                "the dense weight at row %lld, column %lld moves beyond f32; expected a larger "
                "dampening",
                (long long)(i / b->dense), (long long)(i % b->dense));
        w[i / b->dense * b->k + i % b->dense] = moved;
    }
    return S24_OK;
}

static s24_status run(beside *b, const s24_dense *w, const s24i_prune_job *job,
                      const s24_prune_opts *opts)
{
    s24_prune_opts of_rest = *opts;
    const s24_dense rest = {job->w + b->dense, S24_F32, b->n, b->rest, b->k};
    TRY(new_memory(b));
    TRY(find_gram(b, job->stats, job->dampening));
    const s24_stats stats = {.k = b->rest, .tokens = job->stats->tokens, .gram = b->gram};
    of_rest.pattern = NULL;
    TRY(s24_prune(NULL, b->ctx, &rest, &stats, &of_rest));
    return move_dense(b, job->w, w);
}

s24_status s24i_prune_beside_dense(s24_prune_report *report, s24_ctx *ctx, const s24_dense *w,
                                   const s24i_prune_job *job, const s24_prune_opts *opts)
{
    const s24_dense after = {job->w, S24_F32, job->n, job->k, 0};
    const int64_t dense = job->pattern->dense, ld = w->ld ? w->ld : w->cols;
    beside b = {.ctx = ctx, .h = job->stats->gram, .n = job->n, .k = job->k, .dense = dense};
    b.rest = b.k - dense;
    TRY(s24i_prune_copy(ctx, job->w, w));
    s24_prune_report measured;
    s24_status status = run(&b, w, job, opts);
    free_memory(&b);
    if (status == S24_OK && report)
        status = s24_prune_measure(&measured, ctx, w, &after, job->stats);
    if (status != S24_OK) return status;
    if (report) *report = measured;
    for (int64_t r = 0; r < job->n; r++)
        memcpy((float *)w->data + r * ld, job->w + r * job->k, (size_t)job->k * sizeof *job->w);
    return S24_OK;
}
