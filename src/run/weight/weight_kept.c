// SPDX-License-Identifier: Apache-2.0
/*
 * A 2:4 weight whose kernel keeps what it would expand the weight to next to it, where the CPU has
 * such a row: the one that is named as the usual row with "_kept" after it. It is for the race of a
 * choice (run/load/choice.h); who asks for 2:4 counts on its bytes and never gets it.
 */
#include <string.h>

#include "run/weight/weight_plan.h"

/* The row for these values and for tokens in floats, or quantised as they come; NULL: none. */
static const char *kept_row(uint32_t cpu, s24_dtype dtype, s24_dtype activations)
{
    static const char end[] = "_kept";
    const char *name;
    uint32_t needs;
    s24_dtype of, takes;
    for (int i = 0; (name = s24_kernel_name(i, &needs, &of)); i++) {
        const size_t length = strlen(name);
        s24_kernel_bits(i, &takes);
        if (of == dtype && takes == activations && !(needs & ~cpu) && length >= sizeof end &&
            !strcmp(name + length + 1 - sizeof end, end))
            return name;
    }
    return NULL;
}

static const char *row_of(const s24_model *model, const s24i_source *source)
{
    const uint32_t cpu = s24_ctx_cpu(model->ctx);
    if (model->dtype == S24_I8 && !source->wide) return kept_row(cpu, S24_I8, S24_I8);
    return kept_row(cpu, s24_matrix_dtype(source->matrix), S24_DTYPE_NONE);
}

static int takes(const s24_model *model, const s24i_source *source)
{
    return !model->device && source->matrix && !source->scheme && row_of(model, source);
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    return s24i_planned_make((s24i_planned_weight *)weight, model, ctx, source,
                             row_of(model, source));
}

const s24i_weight_kind s24i_weight_kept = {S24I_PLANNED_WEIGHT, .name = "2:4 with tiles",
                                           .way = S24I_WAY_KEPT, .takes = takes, .make = make};
