// SPDX-License-Identifier: Apache-2.0
/* A 2:4 weight that the file has in the order of its kernel: it is used in the file's pages. */
#include "run/weight/weight_plan.h"

#include "io/checkpoint/checkpoint.h"

static int takes(const s24_model *model, const s24i_source *source)
{
    return !model->device && source->laid_out.data;
}

/* The checkpoint is closed when the model is made: of one of the model's context the map stays,
   whose pages are there since they were checked, else the weight gets a map of its own. */
static s24_status hold(s24i_planned_weight *w, s24_laid_out *at, s24_ctx *ctx,
                       const s24_checkpoint *checkpoint)
{
    if (checkpoint->ctx != w->base.ctx)
        return s24i_checkpoint_map(&w->map, &at->data, ctx, checkpoint, at->data,
                                   s24_layout_bytes(at->layout, at->rows, at->cols), 1);
    s24i_checkpoint_hold(checkpoint);
    w->held = checkpoint;
    return S24_OK;
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    s24i_planned_weight *w = (s24i_planned_weight *)weight;
    s24_laid_out at = source->laid_out;
    TRY(hold(w, &at, ctx, source->checkpoint));
    /* A language model's prompts have many tokens, whose products limit them. */
    const s24_plan_opts opts = {.size = sizeof opts, .rounds = model->architecture->causal};
    return s24_plan_create_in_place(&w->plan, ctx, &at, &opts);
}

const s24i_weight_kind s24i_weight_mapped = {S24I_PLANNED_WEIGHT, .name = "2:4 in the file's pages",
                                             .way = S24I_WAY_SPARSE, .takes = takes, .make = make};
