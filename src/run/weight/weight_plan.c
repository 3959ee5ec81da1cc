// SPDX-License-Identifier: Apache-2.0
#include "run/weight/weight_plan.h"

#include "io/checkpoint/checkpoint.h"

static const s24_plan *plan_of(const s24i_weight *weight)
{
    return ((const s24i_planned_weight *)weight)->plan;
}

void s24i_planned_clear(s24i_weight *weight, s24_ctx *ctx)
{
    s24i_planned_weight *w = (s24i_planned_weight *)weight;
    (void)ctx;
    s24_plan_destroy(w->plan);
    s24i_map_close(&w->map);
    if (w->held) s24i_checkpoint_let_go(w->held);
}

int64_t s24i_planned_bytes(const s24i_weight *weight)
{
    return (int64_t)s24_plan_bytes(plan_of(weight));
}

size_t s24i_planned_work_bytes(const s24i_weight *weight, const s24_ctx *ctx, int64_t rows)
{
    return s24_plan_work_bytes(plan_of(weight), ctx, rows);
}

int s24i_planned_takes_bf16(const s24i_weight *weight)
{
    return !((const s24i_planned_weight *)weight)->in_f32 &&
           s24_plan_takes(plan_of(weight), S24_BF16);
}

int s24i_planned_is_eight(const s24i_weight *weight)
{
    return ((const s24i_planned_weight *)weight)->is_eight;
}

s24_status s24i_planned_run(const s24i_weight *weight, s24_ctx *ctx, const s24i_product_job *p)
{
    const s24_linear_args args = {.y = p->y,
                                  .x = p->x,
                                  .bias = p->bias,
                                  .activation = p->activation,
                                  .residual = p->residual,
                                  .work = p->work,
                                  .work_bytes = p->work_bytes};
    return s24_plan_run(ctx, plan_of(weight), &args);
}
