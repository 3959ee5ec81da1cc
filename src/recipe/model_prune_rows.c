// SPDX-License-Identifier: Apache-2.0
/*
 * A tensor that is pruned by itself, without statistics. Where each row's choice is its own it goes
 * some rows at a time: a piece is read, pruned, rounded, packed and written before the next, which
 * takes room for a piece, however large the tensor, and the piece stays in the cache.
 */
#include "io/checkpoint/checkpoint.h"
#include "recipe/model_prune.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1 << 18 /* weights of a piece, where rows are not longer */ };

/* Does the choice in a row ask nothing of other rows, nor of where it lies? */
static int chooses_by_row(const s24i_pruner *pruner)
{
    static const char *const criteria[] = {"magnitude", "block-norm"};
    const s24_prune_opts *opts = &pruner->opts.prune;
    if (pruner->rank || pruner->share > 0.0) return 0;
    if (pruner->opts.masks) return 1;
    for (size_t i = 0; i < sizeof criteria / sizeof *criteria; i++)
        if (opts->criterion && !strcmp(opts->criterion, criteria[i])) return !opts->device;
    return 0;
}

static int goes_by_rows(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    return !tensor->packed && !tensor->transposed && !pruner->scope && !pruner->opts.gradients &&
           (pruner->by_masks || s24_pattern_group(pruner->opts.prune.pattern) > 1) &&
           chooses_by_row(pruner);
}

/* The tensor's rows from `first` on. */
static s24_tensor rows_of(const s24_tensor *tensor, int64_t first, int64_t rows)
{
    s24_tensor piece = *tensor;
    const size_t row = (size_t)tensor->shape[1] * s24_dtype_bytes(tensor->dtype);
    piece.data = (const char *)tensor->data + (size_t)first * row;
    piece.shape[0] = rows;
    piece.bytes = (size_t)rows * row;
    return piece;
}

typedef struct sums {
    double whole, kept; /* of |w| */
} sums;

static s24_status prune_piece(sums *total, const s24i_pruner *pruner, float *w,
                              const s24_tensor *piece)
{
    s24_prune_report report;
    double whole = 0.0;
    TRY(s24i_pruner_load(pruner, w, piece));
    for (int64_t i = 0; i < piece->shape[0] * piece->shape[1]; i++)
        whole += fabs((double)w[i]);
    TRY(s24i_pruner_rows(&report, pruner, w, piece, NULL));
    total->whole += whole;
    total->kept += whole * report.kept_l1;
    return S24_OK;
}

static s24_status prune_pieces(sums *total, const s24i_pruner *pruner, float *w, int64_t most,
                               const s24_tensor *tensor)
{
    s24i_pruner at = *pruner;
    for (; at.first_row < tensor->shape[0]; at.first_row += most) {
        const int64_t left = tensor->shape[0] - at.first_row, rows = left < most ? left : most;
        const s24_tensor piece = rows_of(tensor, at.first_row, rows);
        s24i_writer_set_rows(pruner->writer, rows);
        const s24_status status = prune_piece(total, &at, w, &piece);
        s24i_writer_set_rows(pruner->writer, 0);
        /* s24_prune says a place in the piece. */
        if (status == S24_ERROR_NOT_FINITE) TRY(s24i_tensor_check_finite(pruner->ctx, tensor));
        if (status != S24_OK) return s24i_name_tensor(pruner->ctx, status, tensor);
    }
    return S24_OK;
}

static s24_status prune_by_rows(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    const char *pattern = pruner->opts.prune.pattern;
    const s24_layer_report how = {.seconds = s24i_seconds(),
                                  .pattern = pattern ? pattern : "2:4",
                                  .input = -1,
                                  .model_error = -1};
    const int64_t cols = tensor->shape[1], most = cols < PIECE ? PIECE / cols : 1;
    const int64_t rows = most < tensor->shape[0] ? most : tensor->shape[0];
    sums total = {0.0, 0.0};
    float *w;
    TRY(s24i_alloc_elems(&w, pruner->ctx, rows * cols, sizeof *w, "rows of a weight"));
    const s24_status status = prune_pieces(&total, pruner, w, rows, tensor);
    s24_ctx_free(pruner->ctx, w);
    TRY(status);
    s24_checkpoint_forget(pruner->in, tensor); /* a writer of masks knows of no model */
    const double kept = total.whole > 0.0 ? total.kept / total.whole : 1.0;
    const s24_prune_report report = {kept, -1.0};
    s24i_pruner_report(pruner, tensor, &report, &how);
    return S24_OK;
}

static s24_status prune_whole(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    float *w;
    /* s24_prune would say a place in the transpose. */
    if (tensor->transposed) TRY(s24i_tensor_check_finite(pruner->ctx, tensor));
    TRY(s24i_alloc_elems(&w, pruner->ctx, tensor->shape[0] * tensor->shape[1], sizeof *w,
                         "a weight"));
    s24_status status = s24i_name_tensor(pruner->ctx, s24i_pruner_load(pruner, w, tensor), tensor);
    if (status == S24_OK) status = s24i_pruner_layer(pruner, w, tensor, NULL);
    s24_ctx_free(pruner->ctx, w);
    return status;
}

s24_status s24i_pruner_alone(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    s24i_pruner own = *pruner;
    if (pruner->by_masks) own.two_four = s24i_pruner_packs(pruner, tensor) ? 1 : -1;
    if (s24i_pruner_goes_direct(pruner, tensor)) return s24i_pruner_direct(pruner, tensor);
    return (goes_by_rows(pruner, tensor) ? prune_by_rows : prune_whole)(&own, tensor);
}
