// SPDX-License-Identifier: Apache-2.0
/*
 * A tensor that becomes 2:4 by magnitude and stays in its dtype: of large models nothing is done
 * more often, and it should cost about what a copy does. Weights are compared as they lie, pieces
 * of rows at a time, which threads share and which are still in the caches when they are written:
 * one thread writes a piece while the others prune the next.
 */
#include "io/checkpoint/checkpoint.h"
#include "recipe/model_prune.h"
#include "vec/vec.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    STEP = 1 << 14, /* weights of a step, where rows are not longer: a thread has one at a time */
    STEPS = 64      /* of a piece, which is written at once */
};

typedef struct direct {
    s24_ctx *ctx;
    s24_writer *writer;
    const s24i_vec *vec;
    const s24_tensor *tensor;
    char *out, *before;   /* the piece, pruned; and the one that is to be written */
    uint8_t *masks;       /* of each thread's step */
    int64_t step;         /* its rows */
    int64_t first;        /* row of the piece, */
    int64_t rows;         /* and how many it has, */
    int64_t rows_before;  /* as the one to be written; 0: there is none */
    int64_t steps;        /* of the piece */
    _Atomic int64_t next; /* to be done: 0 is writing, then steps */
    s24_status written;
    double sums[STEPS][2]; /* of each step: Σ|w|, and of what stays */
} direct;

int s24i_pruner_goes_direct(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    const s24_model_prune_opts *o = &pruner->opts;
    const s24_prune_opts *p = &o->prune;
    const int floats =
        tensor->dtype == S24_F32 || tensor->dtype == S24_F16 || tensor->dtype == S24_BF16;
    return floats && !tensor->packed && !tensor->transposed &&
           s24i_pruner_dtype(pruner, tensor) == tensor->dtype && !o->packed && !o->quantize &&
           !o->masks && !o->masks_only && !o->gradients && !pruner->scope && !p->device &&
           !p->refine && !p->score && (!p->pattern || !strcmp(p->pattern, "2:4")) && p->criterion &&
           !strcmp(p->criterion, "magnitude");
}

static void write_before(direct *d)
{
    if (!d->rows_before) return;
    s24i_writer_set_rows(d->writer, d->rows_before);
    d->written = s24_writer_write(d->writer, d->tensor->name, d->before);
    s24i_writer_set_rows(d->writer, 0);
}

static void prune_step(direct *d, int64_t number, uint8_t *mask)
{
    const s24_tensor *tensor = d->tensor;
    const int64_t cols = tensor->shape[1];
    const size_t row = (size_t)cols * s24_dtype_bytes(tensor->dtype);
    const int64_t at = number * d->step, left = d->rows - at;
    const int64_t rows = left < d->step ? left : d->step;
    const char *from = (const char *)tensor->data + (size_t)(d->first + at) * row;
    const s24_dense w = {(void *)(uintptr_t)from, tensor->dtype, rows, cols, 0};
    /* Nothing that it could refuse: what is not finite is seen by the sums. */
    (void)s24_magnitude_mask(mask, d->ctx, &w, 1);
    d->vec->keep(d->sums[number], d->out + (size_t)at * row, from, mask, tensor->dtype,
                 rows * cols);
}

/* A thread's part of both, one after the other until nothing is left. */
static void do_next(void *arg, int64_t begin, int64_t end, int thread)
{
    direct *d = arg;
    uint8_t *mask = d->masks + thread * d->step * d->tensor->shape[1];
    (void)begin;
    (void)end;
    for (int64_t i; (i = atomic_fetch_add(&d->next, 1)) <= d->steps;) {
        if (!i)
            write_before(d);
        else
            prune_step(d, i - 1, mask);
    }
}

/* Prunes a piece, which may have no rows, while the one before is written. */
static s24_status prune_piece(double sums[2], direct *d, int64_t threads)
{
    d->steps = (d->rows + d->step - 1) / d->step;
    atomic_store(&d->next, 0);
    s24_ctx_parallel_for(d->ctx, threads, do_next, d);
    TRY(s24i_name_tensor(d->ctx, d->written, d->tensor));
    for (int64_t i = 0; i < d->steps; i++) {
        sums[0] += d->sums[i][0];
        sums[1] += d->sums[i][1];
    }
    if (!isfinite(sums[0])) TRY(s24i_tensor_check_finite(d->ctx, d->tensor));
    char *written = d->before;
    d->before = d->out;
    d->out = written;
    d->rows_before = d->rows;
    d->first += d->rows;
    return S24_OK;
}

static s24_status prune_pieces(double sums[2], direct *d, int64_t threads)
{
    const int64_t n = d->tensor->shape[0], most = d->step * STEPS;
    do {
        d->rows = s24i_min(n - d->first, most);
        TRY(prune_piece(sums, d, threads));
    } while (d->rows_before);
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
    const int64_t steps = (most + step - 1) / step;
    const int64_t threads = s24i_min(s24_ctx_threads(ctx), steps + 1);
    const int64_t bytes = most * cols * (int64_t)s24_dtype_bytes(tensor->dtype);
    direct d = {.ctx = ctx,
                .writer = pruner->writer,
                .vec = s24i_vec_find(s24_ctx_cpu(ctx)),
                .tensor = tensor,
                .step = step};
    char *pieces = NULL;
    double sums[2] = {0.0, 0.0};
    s24_status status = s24i_alloc_elems(&pieces, ctx, 2 * bytes, 1, "rows of a weight");
    if (status == S24_OK)
        status =
            s24i_alloc_elems(&d.masks, ctx, threads * step * cols, 1, "masks of rows of a weight");
    if (status == S24_OK) status = s24i_writer_lay_out(d.writer);
    if (status == S24_OK) {
        d.out = pieces;
        d.before = pieces + bytes;
        status = prune_pieces(sums, &d, threads);
    }
    s24_ctx_free(ctx, d.masks);
    s24_ctx_free(ctx, pieces);
    TRY(status);
    const s24_prune_report report = {sums[0] > 0.0 ? sums[1] / sums[0] : 1.0, -1.0};
    s24i_pruner_report(pruner, tensor, &report, &how);
    return S24_OK;
}
