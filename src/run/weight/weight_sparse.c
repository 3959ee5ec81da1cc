// SPDX-License-Identifier: Apache-2.0
/* A weight in a sparse format that is not 2:4, multiplied as its plan has it: square blocks as
   blocks, everything else in rows, in f32; or integers throughout. */
#include "run/weight/weight_plan.h"

static int takes(const s24_model *model, const s24i_source *source)
{
    return !model->device && source->sparse;
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    s24i_planned_weight *w = (s24i_planned_weight *)weight;
    (void)model;
    w->is_eight = source->scales != NULL;
    return w->is_eight
               ? s24_sparse_plan_integers(&w->plan, ctx, source->sparse, source->scales, NULL)
               : s24_sparse_plan(&w->plan, ctx, source->sparse, NULL);
}

const s24i_weight_kind s24i_weight_sparse = {S24I_PLANNED_WEIGHT, .name = "sparse",
                                             .way = S24I_WAY_SPARSE, .takes = takes, .make = make};
