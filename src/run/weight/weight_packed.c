// SPDX-License-Identifier: Apache-2.0
/* A 2:4 weight, or a lifted one, in the order of its kernel, made from the canonical form. */
#include "run/weight/weight_plan.h"

static int takes(const s24_model *model, const s24i_source *source)
{
    return !model->device && source->matrix;
}

/* Of integers, as stored or made here by a scheme. */
static s24_status plan_integers(s24_plan **plan, s24_ctx *ctx, const s24i_source *source,
                                const char *scheme, const s24_plan_opts *opts)
{
    const s24_matrix *from = source->matrix;
    s24_matrix *matrix;
    if (s24_matrix_bits(from)) return s24_plan_create(plan, ctx, from, opts);
    TRY(s24_matrix_quantize(&matrix, ctx, from, scheme));
    const s24_status status = s24_plan_create(plan, ctx, matrix, opts);
    s24_matrix_destroy(matrix);
    return status;
}

s24_status s24i_planned_make(s24i_planned_weight *w, const s24_model *model, s24_ctx *ctx,
                             const s24i_source *source, const char *kernel)
{
    s24_plan **plan = &w->plan;
    w->in_f32 = source->wide && s24_matrix_dtype(source->matrix) == S24_F32;
    /* A language model's prompts have many tokens, whose products limit them. */
    s24_plan_opts opts = {.size = sizeof opts,
                          .kernel = kernel,
                          .lift = source->lift,
                          .rounds = model->architecture->causal};
    if (source->scheme && (model->dtype != S24_I8 || source->wide))
        return plan_integers(plan, ctx, source, source->scheme, &opts);
    if (model->dtype != S24_I8 || source->wide)
        return s24_plan_create(plan, ctx, source->matrix, &opts);
    /* A scale a row, and each token quantised as it comes. */
    opts.activations = S24_I8;
    w->is_eight = 1;
    return plan_integers(plan, ctx, source, "int8", &opts);
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    return s24i_planned_make((s24i_planned_weight *)weight, model, ctx, source, NULL);
}

const s24i_weight_kind s24i_weight_packed = {S24I_PLANNED_WEIGHT, .name = "2:4",
                                             .way = S24I_WAY_SPARSE, .takes = takes, .make = make};
