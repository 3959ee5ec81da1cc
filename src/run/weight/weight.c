// SPDX-License-Identifier: Apache-2.0
/* The table of kinds of weights, and what a layer does with all of its weights. */
#include "run/weight/weight.h"

#include <math.h>
#include <string.h>

static const s24i_weight_kind *const kinds[] = {
#define WEIGHT(name) &s24i_weight_##name,
#include "run/weight/weights.def"
#undef WEIGHT
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const s24i_weight_kind *find_kind(const s24_model *model, const s24i_source *source,
                                         s24i_way way)
{
    for (int i = 0; i < KINDS; i++)
        if (kinds[i]->way == way && kinds[i]->takes(model, source)) return kinds[i];
    return NULL;
}

s24_status s24i_weight_new(s24i_weight **out, s24_ctx *owner, s24_ctx *ctx,
                           const s24i_weight_kind *kind)
{
    *out = s24_ctx_alloc(owner, kind->size);
    REQUIRE(ctx, *out, S24_ERROR_MEMORY, "out of memory for a layer's weight");
    memset(*out, 0, kind->size);
    (*out)->kind = kind;
    (*out)->ctx = owner;
    return S24_OK;
}

void s24i_weight_destroy(s24i_weight *weight, s24_ctx *ctx)
{
    if (!weight) return;
    weight->kind->clear(weight, ctx);
    s24_ctx_free(weight->ctx, weight);
}

/* The weight lives as long as the model, in its context's memory; errors are the caller's. */
s24_status s24i_weight_make(s24i_weight **out, const s24_model *model, s24_ctx *ctx,
                            const s24i_source *source, s24i_way way)
{
    const s24i_weight_kind *kind = find_kind(model, source, way);
    *out = NULL;
    if (!kind) return S24_OK;
    TRY(s24i_weight_new(out, model->ctx, ctx, kind));
    const s24_status status = kind->make(*out, model, ctx, source);
    if (status != S24_OK) {
        s24i_weight_destroy(*out, ctx);
        *out = NULL;
    }
    return status;
}

/* ---- of a layer ------------------------------------------------------------------------------ */

static s24i_form form_of(const s24i_source *source)
{
    if (!source->sparse) return (s24i_form){0};
    const s24_sparse_parts m = s24_sparse_get(source->sparse);
    const int64_t each = m.format == S24_FORMAT_BSR ? m.block_rows * m.block_cols : 1;
    const double share = (double)(m.stored * each) / ((double)m.rows * (double)m.cols);
    return (s24i_form){.format = m.format,
                       .block_rows = (int)m.block_rows,
                       .block_cols = (int)m.block_cols,
                       .eight = source->scales != NULL,
                       .kept = 5 * (int)lround(20 * share)};
}

void s24i_linear_shape(s24i_linear *linear, const s24i_source *source)
{
    const s24_laid_out *laid_out = &source->laid_out;
    linear->sparse = s24i_source_is_sparse(source);
    linear->form = form_of(source);
    linear->n = laid_out->data            ? laid_out->rows
                : source->matrix          ? s24_matrix_rows(source->matrix)
                : source->sparse          ? s24_sparse_get(source->sparse).rows
                : source->integers.values ? source->integers.rows
                                          : source->dense.rows;
    linear->k = laid_out->data            ? laid_out->cols
                : source->matrix          ? s24_matrix_cols(source->matrix)
                : source->sparse          ? s24_sparse_get(source->sparse).cols
                : source->integers.values ? source->integers.cols
                                          : source->dense.cols;
    linear->lift = source->lift;
    if (source->lift) linear->k = s24_lowered_cols(linear->k, source->lift);
}

s24_status s24i_linear_make(s24i_linear *linear, const s24_model *model, s24_ctx *ctx,
                            const s24i_source *source, unsigned ways)
{
    s24i_linear_shape(linear, source);
    for (int way = 0; way < S24I_WAYS; way++)
        if (ways >> way & 1)
            TRY(s24i_weight_make(&linear->weight[way], model, ctx, source, (s24i_way)way));
    return S24_OK;
}

void s24i_linear_drop(s24i_linear *linear, s24_ctx *ctx, s24i_way way)
{
    s24i_weight_destroy(linear->weight[way], ctx);
    linear->weight[way] = NULL;
}

void s24i_linear_clear(s24i_linear *linear, s24_ctx *ctx)
{
    for (int way = 0; way < S24I_WAYS; way++)
        s24i_linear_drop(linear, ctx, (s24i_way)way);
    *linear = (s24i_linear){0};
}

const s24i_weight *s24i_linear_any(const s24i_linear *linear)
{
    static const s24i_way ways[] = {S24I_WAY_DENSE, S24I_WAY_SPARSE, S24I_WAY_KEPT,
                                    S24I_WAY_INTEGERS};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (linear->weight[ways[i]]) return linear->weight[ways[i]];
    return NULL;
}

int64_t s24i_linear_bytes(const s24i_linear *linear)
{
    int64_t bytes = 0;
    for (int way = 0; way < S24I_WAYS; way++)
        bytes += s24i_weight_bytes(linear->weight[way]);
    return bytes;
}

size_t s24i_linear_work_bytes(const s24i_linear *linear, const s24_ctx *ctx, int64_t rows)
{
    size_t most = 0;
    for (int way = 0; way < S24I_WAYS; way++) {
        const s24i_weight *weight = linear->weight[way];
        if (!weight || !weight->kind->work_bytes) continue;
        const size_t bytes = weight->kind->work_bytes(weight, ctx, rows);
        most = bytes > most ? bytes : most;
    }
    return most;
}

int s24i_linear_takes_bf16(const s24i_linear *linear)
{
    int takes = 1;
    for (int way = 0; way < S24I_WAYS; way++) {
        const s24i_weight *weight = linear->weight[way];
        takes = takes && (!weight || weight->kind->takes_bf16(weight));
    }
    return takes;
}
