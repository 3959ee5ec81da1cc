// SPDX-License-Identifier: Apache-2.0
/*
 * The simple products. All of them are one of two sums over the stored matrix: along k, which the
 * linear kernels do for any strides (W·X is X read and Y written by columns), or along n, which
 * along_n.c does.
 */
#include "op/op.h"

typedef struct product {
    const s24_dense *y, *x;
    const s24_matrix *w;
    const float *bias;
    float alpha, beta;
    int w_left;  /* W·X rather than X·W */
    int along_k; /* the sum runs along the stored matrix's k */
} product;

static s24_status check(s24_ctx *ctx, const product *p, int64_t sum, int64_t outputs)
{
    const uint32_t f32 = 1u << S24_F32;
    TRY(s24i_dense_check(ctx, "x", p->x));
    if (p->w_left) {
        TRY(s24i_dense_check_operand(ctx, "x", p->x, sum, p->x->cols, f32));
        TRY(s24i_dense_check_operand(ctx, "y", p->y, outputs, p->x->cols, f32));
    } else {
        TRY(s24i_dense_check_operand(ctx, "x", p->x, p->x->rows, sum, f32));
        TRY(s24i_dense_check_operand(ctx, "y", p->y, p->x->rows, outputs, f32));
    }
    REQUIRE(ctx, !s24i_dense_overlap(p->x, p->y), S24_ERROR_ARGUMENT,
            "y overlaps x; expected memory of its own");
    return S24_OK;
}

static s24_status run_along_k(s24_ctx *ctx, const product *p)
{
    const s24_plan *plan;
    int64_t ldx = s24i_dense_ld(p->x), ldy = s24i_dense_ld(p->y);
    TRY(s24i_storage_plan(&plan, ctx, p->w->storage));
    s24i_linear_job job = {
        .m = p->w_left ? p->x->cols : p->x->rows,
        .n = plan->n,
        .k = plan->k,
        .group = plan->group,
        .x = p->x->data,
        .x_dtype = S24_F32,
        .x_stride_m = p->w_left ? 1 : ldx,
        .x_stride_k = p->w_left ? ldx : 1,
        .w = plan->w,
        .y = p->y->data,
        .y_dtype = S24_F32,
        .y_stride_m = p->w_left ? 1 : ldy,
        .y_stride_n = p->w_left ? ldy : 1,
        .bias = p->bias,
        .alpha = p->alpha,
        .beta = p->beta,
    };
    if (p->beta != 0) {
        job.residual = job.y;
        job.residual_stride_m = job.y_stride_m;
        job.residual_stride_n = job.y_stride_n;
    }
    size_t bytes = s24_plan_work_bytes(plan, ctx, job.m);
    job.work = bytes ? s24i_ctx_scratch(ctx, bytes) : NULL;
    REQUIRE(ctx, job.work || !bytes, S24_ERROR_MEMORY,
            "out of memory: %zu bytes of work for a product", bytes);
    job.parallel = s24i_sharers_of(ctx, plan, job.m, bytes);
    plan->kernel->run(&job);
    return S24_OK;
}

static s24_status run(s24_ctx *ctx, product p)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, p.w, S24_ERROR_ARGUMENT, "w is NULL; expected a matrix");
    const s24i_storage *s = p.w->storage;
    if (p.w->transposed) p.along_k = !p.along_k;
    TRY(check(ctx, &p, p.along_k ? s->cols : s->rows, p.along_k ? s->rows : s->cols));
    if (p.along_k) return run_along_k(ctx, &p);
    int64_t ldx = s24i_dense_ld(p.x), ldy = s24i_dense_ld(p.y);
    s24i_along_n_job job = {
        .w = s,
        .lanes = p.w_left ? p.x->cols : p.x->rows,
        .x = p.x->data,
        .x_stride_lane = p.w_left ? 1 : ldx,
        .x_stride_n = p.w_left ? ldx : 1,
        .y = p.y->data,
        .y_stride_lane = p.w_left ? 1 : ldy,
        .y_stride_k = p.w_left ? ldy : 1,
        .bias = p.bias,
        .alpha = p.alpha,
        .beta = p.beta,
    };
    s24i_along_n(ctx, &job);
    return S24_OK;
}

s24_status s24_linear(s24_ctx *ctx, const s24_dense *y, const s24_dense *x, const s24_matrix *w,
                      const float *bias)
{
    return run(ctx, (product){.y = y, .x = x, .w = w, .bias = bias, .alpha = 1, .along_k = 1});
}

s24_status s24_mm_dense_sparse(s24_ctx *ctx, const s24_dense *y, const s24_dense *x,
                               const s24_matrix *w)
{
    return run(ctx, (product){.y = y, .x = x, .w = w, .alpha = 1});
}

s24_status s24_mm_sparse_dense(s24_ctx *ctx, const s24_dense *y, const s24_matrix *w,
                               const s24_dense *x)
{
    return run(ctx, (product){.y = y, .x = x, .w = w, .alpha = 1, .w_left = 1, .along_k = 1});
}

s24_status s24_addmm_dense_sparse(s24_ctx *ctx, const s24_dense *y, const s24_dense *x,
                                  const s24_matrix *w, float alpha, float beta)
{
    return run(ctx, (product){.y = y, .x = x, .w = w, .alpha = alpha, .beta = beta});
}

s24_status s24_addmm_sparse_dense(s24_ctx *ctx, const s24_dense *y, const s24_matrix *w,
                                  const s24_dense *x, float alpha, float beta)
{
    return run(
        ctx,
        (product){.y = y, .x = x, .w = w, .alpha = alpha, .beta = beta, .w_left = 1, .along_k = 1});
}
