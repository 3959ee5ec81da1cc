// SPDX-License-Identifier: Apache-2.0
/* What the kinds share whose products are plans of libsparse24. */
#ifndef S24_RUN_WEIGHT_WEIGHT_PLAN_H
#define S24_RUN_WEIGHT_WEIGHT_PLAN_H

#include "run/weight/weight.h"

typedef struct s24i_planned_weight {
    s24i_weight base;
    s24_plan *plan;
    s24i_map map;               /* where the weight lies in the checkpoint's file; else empty */
    const s24_checkpoint *held; /* in whose map it is, or NULL */
    int in_f32;   /* of a model in 8 bits, which it is left out of: it reads and gives f32 */
    int is_eight; /* its plan is one of integers throughout */
} s24i_planned_weight;

void s24i_planned_clear(s24i_weight *weight, s24_ctx *ctx);
int64_t s24i_planned_bytes(const s24i_weight *weight);
size_t s24i_planned_work_bytes(const s24i_weight *weight, const s24_ctx *ctx, int64_t rows);
int s24i_planned_takes_bf16(const s24i_weight *weight);
int s24i_planned_is_eight(const s24i_weight *weight);
s24_status s24i_planned_run(const s24i_weight *weight, s24_ctx *ctx,
                            const s24i_product_job *product);
/* Fills w with a plan by the row of that name, or by the best one for NULL. */
s24_status s24i_planned_make(s24i_planned_weight *w, const s24_model *model, s24_ctx *ctx,
                             const s24i_source *source, const char *kernel);
/* What all of their kinds are filled with; a row adds its name, way, takes and make. */
#define S24I_PLANNED_WEIGHT                                                                        \
    .size = sizeof(s24i_planned_weight), .clear = s24i_planned_clear, .bytes = s24i_planned_bytes, \
    .work_bytes = s24i_planned_work_bytes, .takes_bf16 = s24i_planned_takes_bf16,                  \
    .is_eight = s24i_planned_is_eight, .run = s24i_planned_run

#endif
