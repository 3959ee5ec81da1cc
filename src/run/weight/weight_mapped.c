// SPDX-License-Identifier: Apache-2.0
/* A 2:4 weight that the file has in the order of its kernel: it is used in the file's pages. */
#include "run/weight/weight_plan.h"

#include "io/checkpoint/checkpoint.h"

static int takes(const s24_model *model, const s24i_source *source)
{
    return !model->device && source->laid_out.data;
}

/* A map of its own, because the checkpoint is closed when the model is made. */
static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    s24i_planned_weight *w = (s24i_planned_weight *)weight;
    s24_laid_out at = source->laid_out;
    (void)model;
    TRY(s24i_checkpoint_map(&w->map, &at.data, ctx, source->checkpoint, at.data,
                            s24_layout_bytes(at.layout, at.rows, at.cols), 1));
    return s24_plan_create_in_place(&w->plan, ctx, &at);
}

const s24i_weight_kind s24i_weight_mapped = {S24I_PLANNED_WEIGHT, .name = "2:4 in the file's pages",
                                             .way = S24I_WAY_SPARSE, .takes = takes, .make = make};
