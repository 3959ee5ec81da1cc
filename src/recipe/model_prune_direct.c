// SPDX-License-Identifier: Apache-2.0
/*
 * A tensor that becomes 2:4 by magnitude and stays in its dtype, dense or packed: of large models
 * nothing is done more often, and it should cost about what a copy does. Weights are compared as
 * they lie, pieces of rows at a time, which threads share and which are still in the caches when
 * they are packed and written.
 */
#include "io/checkpoint/checkpoint.h"
#include "recipe/model_prune.h"
#include "vec/vec.h"

#include <math.h>
#include <string.h>

enum {
    STEP = 1 << 14, /* weights of a step, where rows are not longer: a thread has one at a time */
    STEPS = 64      /* of a piece, which is written at once */
};

typedef struct direct {
    s24_ctx *ctx;
    const s24i_vec *vec;
    const s24_tensor *tensor;
    char *out;             /* the piece, pruned */
    uint8_t *masks;        /* of each thread's step */
    int64_t step;          /* its rows */
    int64_t first;         /* row of the piece, */
    int64_t rows;          /* and how many it has */
    double sums[STEPS][2]; /* of each step: Σ|w|, and of what stays */
} direct;

int s24i_pruner_goes_direct(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    const s24_model_prune_opts *o = &pruner->opts;
    const s24_prune_opts *p = &o->prune;
    const int floats =
        tensor->dtype == S24_F32 || tensor->dtype == S24_F16 || tensor->dtype == S24_BF16;
    return floats && !tensor->packed && !tensor->transposed &&
           s24i_pruner_dtype(pruner, tensor) == tensor->dtype && !o->quantize && !o->low_rank &&
           !o->masks && !o->masks_only && !o->gradients && !pruner->scope && !p->device &&
           !p->refine && !p->score && (!p->pattern || !strcmp(p->pattern, "2:4")) && p->criterion &&
           !strcmp(p->criterion, "magnitude");
}

static void prune_steps(void *arg, int64_t begin, int64_t end, int thread)
{
    direct *d = arg;
    const s24_tensor *tensor = d->tensor;
    const int64_t cols = tensor->shape[1];
    const size_t row = (size_t)cols * s24_dtype_bytes(tensor->dtype);
    uint8_t *mask = d->masks + thread * d->step * cols;
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i * d->step, left = d->rows - at;
        const int64_t rows = left < d->step ? left : d->step;
        const char *from = (const char *)tensor->data + (size_t)(d->first + at) * row;
        const s24_dense w = {(void *)(uintptr_t)from, tensor->dtype, rows, cols, 0};
        /* Nothing that it could refuse: what is not finite is seen by the sums. */
        (void)s24_magnitude_mask(mask, d->ctx, &w, 1);
        d->vec->keep(d->sums[i], d->out + (size_t)at * row, from, mask, tensor->dtype, rows * cols);
    }
}

static s24_status write_piece(const s24i_pruner *pruner, const direct *d)
{
    const s24_tensor *tensor = d->tensor;
    const s24_dense piece = {d->out, tensor->dtype, d->rows, tensor->shape[1], 0};
    s24i_writer_set_rows(pruner->writer, d->rows);
    const s24_status status = pruner->opts.packed
                                  ? s24i_pruner_pack(pruner, &piece, tensor->name)
                                  : s24_writer_write(pruner->writer, tensor->name, d->out);
    s24i_writer_set_rows(pruner->writer, 0);
    return s24i_name_tensor(pruner->ctx, status, tensor);
}

static s24_status prune_pieces(double sums[2], const s24i_pruner *pruner, direct *d)
{
    const int64_t n = d->tensor->shape[0], most = d->step * STEPS;
    for (; d->first < n; d->first += d->rows) {
        d->rows = n - d->first < most ? n - d->first : most;
        const int64_t steps = (d->rows + d->step - 1) / d->step;
        s24_ctx_parallel_for(pruner->ctx, steps, prune_steps, d);
        for (int64_t i = 0; i < steps; i++) {
            sums[0] += d->sums[i][0];
            sums[1] += d->sums[i][1];
        }
        if (!isfinite(sums[0])) TRY(s24i_tensor_check_finite(pruner->ctx, d->tensor));
        TRY(write_piece(pruner, d));
    }
    return S24_OK;
}

s24_status s24i_pruner_direct(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    const s24_layer_report how = {
        .seconds = s24i_seconds(), .pattern = "2:4", .input = -1, .model_error = -1};
    s24_ctx *ctx = pruner->ctx;
    const int64_t n = tensor->shape[0], cols = tensor->shape[1];
    const int64_t step = cols < STEP ? STEP / cols : 1;
    const int64_t most = n < step * STEPS ? n : step * STEPS;
    const int64_t threads = s24_ctx_threads(ctx), steps = (most + step - 1) / step;
    direct d = {.ctx = ctx, .vec = s24i_vec_find(s24_ctx_cpu(ctx)), .tensor = tensor, .step = step};
    double sums[2] = {0.0, 0.0};
    s24_status status = s24i_alloc_elems(&d.out, ctx, most * cols, s24_dtype_bytes(tensor->dtype),
                                         "rows of a weight");
    if (status == S24_OK)
        status = s24i_alloc_elems(&d.masks, ctx, (threads < steps ? threads : steps) * step * cols,
                                  1, "masks of rows of a weight");
    if (status == S24_OK) status = prune_pieces(sums, pruner, &d);
    s24_ctx_free(ctx, d.masks);
    s24_ctx_free(ctx, d.out);
    TRY(status);
    const s24_prune_report report = {sums[0] > 0.0 ? sums[1] / sums[0] : 1.0, -1.0};
    s24i_pruner_report(pruner, tensor, &report, &how);
    return S24_OK;
}
