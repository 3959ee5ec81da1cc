// SPDX-License-Identifier: Apache-2.0
/*
 * One tensor of a checkpoint that is pruned: is it one to prune, read as it is stored, pruned,
 * rounded to the dtype it is written in, written and reported.
 */
#include "io/checkpoint/checkpoint.h"
#include "recipe/model_gradients.h"
#include "recipe/model_prune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int s24i_pruner_takes(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    return s24_tensor_is_selected(tensor, pruner->opts.include, pruner->opts.exclude) &&
           tensor->shape[0] > 0 && tensor->shape[1] > 0 &&
           s24_pattern_fits(pruner->opts.prune.pattern, s24i_pruner_matrix(NULL, tensor).cols);
}

static s24_status new_floats(float **out, const s24i_pruner *pruner, const s24_tensor *tensor)
{
    return s24i_alloc_elems(out, pruner->ctx, tensor->shape[0] * tensor->shape[1], sizeof **out,
                            "a weight");
}

s24_status s24i_pruner_load(const s24i_pruner *pruner, float *w, const s24_tensor *tensor)
{
    float *stored;
    if (!s24i_lies_turned(tensor)) return s24i_tensor_widen(pruner->ctx, w, tensor);
    TRY(new_floats(&stored, pruner, tensor));
    const s24_status status = s24i_tensor_widen(pruner->ctx, stored, tensor);
    if (status == S24_OK) s24i_transpose(w, stored, tensor->shape[0], tensor->shape[1]);
    s24_ctx_free(pruner->ctx, stored);
    return status;
}

s24_status s24i_pruner_pack(const s24i_pruner *pruner, const s24_dense *pruned, const char *name)
{
    const s24_matrix_opts finite = {.size = sizeof finite, .allow_nonfinite = 1};
    s24_matrix *matrix;
    if (!pruner->writer) return S24_OK;
    TRY(pruner->lift ? s24_matrix_lift(&matrix, pruner->ctx, pruned, pruner->lift)
                     : s24_matrix_create(&matrix, pruner->ctx, pruned, &finite));
    const s24_status status = s24_writer_write_packed(
        pruner->writer, name, s24_matrix_values(matrix), s24_matrix_indices(matrix));
    s24_matrix_destroy(matrix);
    return status;
}

/* The finite f32 weight rounded to the dtype it is written in must be finite still. */
static s24_status check_rounded(const s24i_pruner *pruner, const s24_dense *w,
                                const s24_tensor *tensor)
{
    const float *values = w->data;
    for (int64_t i = 0; i < w->rows * w->cols; i++) {
        const long long place[2] = {pruner->first_row + i / w->cols, i % w->cols};
        REQUIRE(pruner->ctx, isfinite(values[i]), S24_ERROR_NOT_FINITE,
                "the pruned weight at row %lld, column %lld is beyond %s; expected a wider dtype",
                place[tensor->transposed], place[!tensor->transposed],
                s24_dtype_name(s24i_pruner_dtype(pruner, tensor)));
    }
    return S24_OK;
}

/* Writes rounded weights as they are stored; w has the same numbers. */
static s24_status write_dense(const s24i_pruner *pruner, const s24_dense *w,
                              const s24_tensor *tensor, void *rounded)
{
    float *stored;
    if (!pruner->writer) return S24_OK;
    if (!tensor->transposed) return s24_writer_write(pruner->writer, tensor->name, rounded);
    TRY(new_floats(&stored, pruner, tensor));
    s24i_transpose(stored, w->data, w->rows, w->cols);
    s24_status status =
        s24_convert(rounded, s24i_pruner_dtype(pruner, tensor), stored, S24_F32, w->rows * w->cols);
    s24_ctx_free(pruner->ctx, stored);
    if (status == S24_OK) status = s24_writer_write(pruner->writer, tensor->name, rounded);
    return status;
}

static s24_status write_rounded(const s24i_pruner *pruner, const s24_dense *w,
                                const s24_tensor *tensor, void *rounded)
{
    const int64_t count = w->rows * w->cols;
    s24_dense out = *w;
    out.data = rounded;
    out.dtype = s24i_pruner_dtype(pruner, tensor);
    TRY(s24_convert(rounded, out.dtype, w->data, S24_F32, count));
    TRY(s24_convert(w->data, S24_F32, rounded, out.dtype, count));
    TRY(check_rounded(pruner, w, tensor));
    return s24i_pruner_packs(pruner, tensor) ? s24i_pruner_pack(pruner, &out, tensor->name)
                                             : write_dense(pruner, w, tensor, rounded);
}

static s24_status write_quantized(const s24i_pruner *pruner, const s24_matrix *matrix,
                                  const char *name)
{
    s24_ctx *ctx = pruner->ctx;
    const int64_t cells = s24_matrix_rows(matrix) * s24_matrix_cols(matrix);
    void *values;
    if (!pruner->writer) return S24_OK;
    TRY(s24i_alloc_elems(&values, ctx, cells / (pruner->bits == 4 ? 4 : 2), 1, "integers"));
    s24_status status = s24_matrix_to_quantized(values, ctx, matrix);
    if (status == S24_OK)
        status = s24_writer_write_quantized(pruner->writer, name, values,
                                            s24_matrix_indices(matrix), s24_matrix_scales(matrix));
    s24_ctx_free(ctx, values);
    return status;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* A tensor's gradients as rows of [n, k], in *turned where the model has them the other way. */
static s24_status find_gradients(s24_weight_gradients *found, float **turned,
                                 const s24i_pruner *pruner, const s24_tensor *tensor)
{
    const s24_model_gradients *all = pruner->opts.gradients;
    const int64_t rows = s24i_stored_side(tensor, 0), cols = s24i_stored_side(tensor, 1);
    REQUIRE(pruner->ctx, s24i_model_gradients_find(found, all, tensor->name), S24_ERROR_ARGUMENT,
            "no gradients were taken of this tensor");
    if (!tensor->transposed) return S24_OK;
    const float *planes[] = {found->mean, found->size, found->square};
    TRY(s24i_alloc_elems(turned, pruner->ctx, 3 * rows * cols, sizeof **turned, "gradients"));
    for (int i = 0; i < 3; i++)
        s24i_transpose(*turned + i * rows * cols, planes[i], rows, cols);
    *found = (s24_weight_gradients){*turned, *turned + rows * cols, *turned + 2 * rows * cols};
    return S24_OK;
}

/* ---- global scope ---------------------------------------------------------------------------- */

static const char *own_share(char *pattern, size_t bytes, const s24i_pruner *pruner,
                             const s24_tensor *tensor)
{
    const char *common = pruner->opts.prune.pattern;
    snprintf(pattern, bytes, "%.*s:%.17g", (int)(strrchr(common, ':') - common), common,
             s24i_scope_share(pruner->scope, tensor));
    return pattern;
}

/* means [n / rows, k / cols] of the scores [n, k] of blocks, which are whole. */
static void find_means(double *means, const double *scores, const s24_dense *w,
                       const int64_t sides[2])
{
    const int64_t across = w->cols / sides[1];
    memset(means, 0, (size_t)(w->rows / sides[0] * across) * sizeof *means);
    for (int64_t i = 0; i < w->rows * w->cols; i++)
        means[i / w->cols / sides[0] * across + i % w->cols / sides[1]] +=
            scores[i] / (double)(sides[0] * sides[1]);
}

static s24_status gather(const s24i_pruner *pruner, const s24_dense *w, const s24_tensor *tensor,
                         const s24_stats *stats, const s24_prune_opts *opts)
{
    int64_t sides[2];
    double *scores, *means;
    s24_pattern_block(sides, opts->pattern, w->rows, w->cols);
    const int64_t count = w->rows / sides[0] * (w->cols / sides[1]);
    REQUIRE(pruner->ctx, w->rows % sides[0] == 0 && w->cols % sides[1] == 0, S24_ERROR_SHAPE,
            "the weight is [%lld, %lld]; expected whole blocks of %lldx%lld", (long long)w->rows,
            (long long)w->cols, (long long)sides[0], (long long)sides[1]);
    TRY(s24i_alloc_elems(&scores, pruner->ctx, w->rows * w->cols + count, sizeof *scores,
                         "scores"));
    means = scores + w->rows * w->cols;
    const s24_status status = s24_prune_scores(scores, pruner->ctx, w, stats, opts);
    if (status == S24_OK) {
        find_means(means, scores, w, sides);
        s24i_scope_add(pruner->scope, tensor, means, count, pruner->opts.normalize);
    }
    s24_ctx_free(pruner->ctx, scores);
    return status;
}

/* s24_prune by the criterion, or by the tensor's mask. */
static s24_status prune_weight(s24_prune_report *report, const s24i_pruner *pruner,
                               const s24_dense *w, const s24_tensor *tensor, const s24_stats *stats)
{
    s24_prune_opts opts = pruner->opts.prune;
    s24_weight_gradients gradients;
    float *turned = NULL;
    char pattern[48];
    s24i_masked masked;
    if (pruner->chosen) {
        memcpy(w->data, pruner->chosen->w, (size_t)(w->rows * w->cols) * sizeof(float));
        *report = pruner->chosen->report;
        return S24_OK;
    }
    if (pruner->opts.masks) TRY(s24i_pruner_use_mask(&masked, &opts, pruner, tensor));
    if (stats && !opts.device && !pruner->opts.masks) opts.device = pruner->opts.device;
    if (pruner->opts.gradients) {
        TRY(find_gradients(&gradients, &turned, pruner, tensor));
        opts.gradients = &gradients;
    }
    if (pruner->scope && !pruner->scope->gathering)
        opts.pattern = own_share(pattern, sizeof pattern, pruner, tensor);
    const s24_status status = pruner->scope && pruner->scope->gathering
                                  ? gather(pruner, w, tensor, stats, &opts)
                                  : s24_prune(report, pruner->ctx, w, stats, &opts);
    s24_ctx_free(pruner->ctx, turned);
    return status;
}

s24_status s24i_pruner_choose(s24_prune_report *report, const s24i_pruner *pruner, float *w,
                              const s24_tensor *tensor, const s24_stats *stats)
{
    const s24_dense dense = s24i_pruner_matrix(w, tensor);
    return s24i_name_tensor(pruner->ctx, prune_weight(report, pruner, &dense, tensor, stats),
                            tensor);
}

/* ---- one tensor ------------------------------------------------------------------------------ */

s24_status s24i_pruner_round(s24_matrix **out, const s24i_pruner *pruner, const s24_dense *w,
                             int lift, const s24_round_opts *opts)
{
    s24_ctx *ctx = pruner->ctx;
    s24_matrix *matrix;
    TRY(lift ? s24_matrix_lift(&matrix, ctx, w, lift) : s24_matrix_create(&matrix, ctx, w, NULL));
    s24_status status = opts->stats && !lift ? s24_matrix_round(out, NULL, ctx, matrix, opts)
                                             : s24_matrix_quantize(out, ctx, matrix, opts->scheme);
    s24_matrix_destroy(matrix);
    if (status == S24_OK)
        status = lift ? s24_lifted_to_dense(ctx, w, *out, lift) : s24_matrix_to_dense(ctx, w, *out);
    return status;
}

/* The pruned w becomes integers that are near opts->target, and then their numbers. */
static s24_status write_integers(const s24i_pruner *pruner, const s24_dense *w, const char *name,
                                 s24_prune_report *report, const s24_round_opts *opts)
{
    s24_matrix *integers = NULL;
    s24_status status = s24i_pruner_round(&integers, pruner, w, pruner->lift, opts);
    if (status == S24_OK) status = write_quantized(pruner, integers, name);
    if (status == S24_OK && opts->stats)
        status = s24_prune_measure(report, pruner->ctx, opts->target, w, opts->stats);
    s24_matrix_destroy(integers);
    return status;
}

/* Prunes w and writes it in integers. */
static s24_status prune_to_integers(s24_prune_report *report, const s24i_pruner *pruner,
                                    const s24_dense *w, const s24_tensor *tensor,
                                    const s24_stats *stats)
{
    const size_t bytes = (size_t)(w->rows * w->cols) * sizeof(float);
    s24_dense before = *w;
    float *copy;
    TRY(s24i_alloc_elems(&copy, pruner->ctx, w->rows * w->cols, sizeof *copy, "a weight"));
    memcpy(copy, w->data, bytes);
    before.data = copy;
    const s24_round_opts opts = {.size = sizeof opts,
                                 .scheme = pruner->opts.quantize,
                                 .stats = stats,
                                 .target = &before,
                                 .dampening = pruner->opts.prune.dampening};
    s24_status status = prune_weight(report, pruner, w, tensor, stats);
    if (status == S24_OK) status = write_integers(pruner, w, tensor->name, report, &opts);
    if (status == S24_OK && s24i_pruner_rank(pruner, w->rows, w->cols))
        status = s24i_pruner_correct(report, pruner, copy, w, tensor, stats);
    s24_ctx_free(pruner->ctx, copy);
    return status;
}

static s24_status write_floats(const s24i_pruner *pruner, const s24_dense *w,
                               const s24_tensor *tensor)
{
    void *rounded;
    TRY(s24i_alloc_elems(&rounded, pruner->ctx, w->rows * w->cols,
                         s24_dtype_bytes(s24i_pruner_dtype(pruner, tensor)), "a rounded weight"));
    const s24_status status = write_rounded(pruner, w, tensor, rounded);
    s24_ctx_free(pruner->ctx, rounded);
    return status;
}

s24_status s24i_pruner_write(const s24i_pruner *pruner, float *w, const s24_tensor *tensor)
{
    const s24_dense dense = s24i_pruner_matrix(w, tensor);
    return s24i_name_tensor(pruner->ctx, write_floats(pruner, &dense, tensor), tensor);
}

/* Prunes w, or takes all of it, writes it, and factors that make up for what went. */
static s24_status prune_and_correct(s24_prune_report *report, const s24i_pruner *pruner,
                                    const s24_dense *w, const s24_tensor *tensor,
                                    const s24_stats *stats)
{
    const size_t bytes = (size_t)(w->rows * w->cols) * sizeof(float);
    float *before;
    s24_status status = S24_OK;
    TRY(s24i_alloc_elems(&before, pruner->ctx, w->rows * w->cols, sizeof *before, "a weight"));
    memcpy(before, w->data, bytes);
    if (pruner->only_factors)
        memset(w->data, 0, bytes);
    else
        status = prune_weight(report, pruner, w, tensor, stats);
    if (status == S24_OK && !pruner->only_factors) status = write_floats(pruner, w, tensor);
    if (status == S24_OK) status = s24i_pruner_correct(report, pruner, before, w, tensor, stats);
    s24_ctx_free(pruner->ctx, before);
    return status;
}

/* Prunes w and, if it is final, writes it in floats. */
static s24_status prune_to_floats(s24_prune_report *report, const s24i_pruner *pruner,
                                  const s24_dense *w, const s24_tensor *tensor,
                                  const s24_stats *stats)
{
    if (s24i_pruner_packs(pruner, tensor) && s24i_pruner_rank(pruner, w->rows, w->cols))
        return prune_and_correct(report, pruner, w, tensor, stats);
    TRY(prune_weight(report, pruner, w, tensor, stats));
    if (pruner->scope && pruner->scope->gathering) return S24_OK;
    if (pruner->opts.masks_only) return s24i_pruner_write_mask(pruner, w, tensor);
    return stats && pruner->opts.reconstruct ? S24_OK : write_floats(pruner, w, tensor);
}

void s24i_pruner_report(const s24i_pruner *pruner, const s24_tensor *tensor,
                        const s24_prune_report *report, const s24_layer_report *how)
{
    s24_layer_report layer = *how;
    layer.name = tensor->name;
    layer.rows = s24i_stored_side(tensor, 0);
    layer.cols = s24i_stored_side(tensor, 1);
    layer.kept_l1 = report->kept_l1;
    layer.output_error = report->output_error;
    layer.seconds = s24i_seconds() - how->seconds;
    if (pruner->opts.report) pruner->opts.report(pruner->opts.user, &layer);
}

s24_status s24i_pruner_rows(s24_prune_report *report, const s24i_pruner *pruner, float *w,
                            const s24_tensor *tensor, const s24_stats *stats)
{
    const s24_dense dense = s24i_pruner_matrix(w, tensor);
    const int integers = pruner->bits && s24i_pruner_packs(pruner, tensor);
    return (integers ? prune_to_integers : prune_to_floats)(report, pruner, &dense, tensor, stats);
}

static s24_status prune_layer(const s24i_pruner *pruner, float *w, const s24_tensor *tensor,
                              const s24_stats *stats)
{
    const char *pattern = pruner->only_factors ? "low-rank" : pruner->opts.prune.pattern;
    const s24_layer_report how = {.seconds = s24i_seconds(),
                                  .pattern = pattern ? pattern : "2:4",
                                  .input = -1,
                                  .model_error = -1};
    s24_prune_report report;
    const s24_status status = s24i_pruner_rows(&report, pruner, w, tensor, stats);
    if (status == S24_OK && !(pruner->scope && pruner->scope->gathering))
        s24i_pruner_report(pruner, tensor, &report, &how);
    return status;
}

s24_status s24i_pruner_layer(const s24i_pruner *pruner, float *w, const s24_tensor *tensor,
                             const s24_stats *stats)
{
    return s24i_name_tensor(pruner->ctx, prune_layer(pruner, w, tensor, stats), tensor);
}

void s24i_pruner_declare(const s24i_pruner *pruner, s24_tensor *tensor)
{
    const s24_dense matrix = s24i_pruner_matrix(NULL, tensor);
    const int packs = s24i_pruner_packs(pruner, tensor);
    const int64_t rank = packs ? s24i_pruner_rank(pruner, matrix.rows, matrix.cols) : 0;
    tensor->dtype = s24i_pruner_dtype(pruner, tensor);
    tensor->packed = !packs ? 0 : pruner->lift ? S24_PACKED_LIFTED : 1;
    tensor->factors = (s24_factors){rank, tensor->dtype, NULL, NULL};
    if (rank) tensor->packed = pruner->only_factors ? S24_PACKED_FACTORS : S24_PACKED_LOW_RANK;
    tensor->lift = pruner->lift;
    tensor->shape[s24i_lies_turned(tensor)] = matrix.rows;
    tensor->shape[!s24i_lies_turned(tensor)] = matrix.cols;
    tensor->bits = packs ? pruner->bits : 0;
    if (tensor->bits) tensor->dtype = S24_I8;
    tensor->group = pruner->group  ? pruner->group
                    : pruner->lift ? s24_lifted_cols(matrix.cols, pruner->lift)
                                   : matrix.cols;
    tensor->layout = NULL;
}
