// SPDX-License-Identifier: Apache-2.0
/*
 * Pruning a checkpoint into a new one. Every tensor is declared to the writer first, so that an
 * output that may not be written is refused before any work; the writer makes nothing appear
 * until all is done, so an error or an interruption leaves nothing.
 *
 * Without calibration each tensor stands for itself (model_prune_rows.c) and no model is
 * needed. With them the linear layers of the blocks go first, block by block
 * (model_prune_blocks.c).
 */
#include "io/checkpoint/checkpoint.h"
#include "model/tower.h"
#include "recipe/kept_blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static s24_status declare(const s24i_pruner *pruner)
{
    for (int64_t i = 0; i < s24_checkpoint_count(pruner->in); i++) {
        s24_tensor tensor = *s24_checkpoint_tensor(pruner->in, i);
        const int selected =
            s24_tensor_is_selected(&tensor, pruner->opts.include, pruner->opts.exclude);
        if (selected)
            TRY(s24_tensor_check_sides(pruner->ctx, pruner->in, &tensor, pruner->opts.packed));
        const int taken = s24i_pruner_takes(pruner, &tensor);
        const s24_tensor *mask;
        if (taken && pruner->opts.masks)
            TRY(s24i_name_tensor(pruner->ctx, s24i_pruner_find_mask(&mask, pruner, &tensor),
                                 &tensor));
        if (pruner->opts.masks_only) {
            if (!taken) continue;
            tensor = s24i_pruner_mask_tensor(&tensor);
        } else if (taken) {
            s24i_pruner_declare(pruner, &tensor);
        } else if (selected) {
            s24_ctx_log(pruner->ctx, S24_LOG_WARNING,
                        "%s: tensor '%s' [%lld, %lld] is passed through: its %s do not come in "
                        "groups of %lld",
                        tensor.file, s24i_show(tensor.name).text, (long long)tensor.shape[0],
                        (long long)tensor.shape[1], s24i_lies_turned(&tensor) ? "rows" : "columns",
                        (long long)s24_pattern_group(pruner->opts.prune.pattern));
        }
        TRY(s24_writer_declare(pruner->writer, &tensor));
    }
    return S24_OK;
}

/* The tensors that are no layer of the model's blocks (model NULL: all of them). */
static s24_status write_others(const s24i_pruner *pruner, const s24_model *model)
{
    const int64_t count = s24_checkpoint_count(pruner->in);
    for (int64_t i = 0; i < count; i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(pruner->in, i);
        int64_t block;
        s24i_slot slot;
        if (!model) TRY(s24_ctx_progress(pruner->ctx, "pruning", i, count));
        if (!s24i_pruner_takes(pruner, tensor)) {
            if (pruner->writer && !pruner->opts.masks_only)
                TRY(s24_writer_copy(pruner->writer, tensor));
        } else if (!model || !s24i_model_find_linear(&block, &slot, model, tensor->name)) {
            TRY(s24i_pruner_alone(pruner, tensor));
        }
    }
    return model ? S24_OK : s24_ctx_progress(pruner->ctx, "pruning", count, count);
}

/* Every tensor to prune must have statistics when the criterion needs them. */
static s24_status check_layers(const s24i_pruner *pruner, const s24_model *model)
{
    if (s24_criterion_needs_stats(pruner->opts.prune.criterion) != 1) return S24_OK;
    for (int64_t i = 0; i < s24_checkpoint_count(pruner->in); i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(pruner->in, i);
        int64_t block;
        s24i_slot slot;
        REQUIRE(pruner->ctx,
                !s24i_pruner_takes(pruner, tensor) ||
                    s24i_model_find_linear(&block, &slot, model, tensor->name),
                S24_ERROR_ARGUMENT,
                "%s: tensor '%s' is selected, but is no linear layer of the model's blocks, whose "
                "inputs %s needs",
                tensor->file, s24i_show(tensor->name).text, pruner->opts.prune.criterion);
    }
    return S24_OK;
}

static s24_status prune_with_model(const s24i_pruner *pruner)
{
    s24_model *model;
    TRY(s24i_model_load_bare(&model, pruner->ctx, pruner->in));
    s24_status status = S24_OK;
    if (!model->shape.image != !pruner->opts.images)
        status =
            s24_ctx_fail(pruner->ctx, S24_ERROR_UNSUPPORTED,
                         "a model of type '%s' reads %s, which %s cannot calibrate; "
                         "magnitude and tiles need no calibration",
                         model->architecture->model_type, model->shape.image ? "images" : "texts",
                         model->shape.image ? "texts" : "images");
    if (status == S24_OK) status = check_layers(pruner, model);
    if (status == S24_OK) status = s24i_pruner_blocks(pruner, model);
    if (status == S24_OK && !pruner->tried) status = write_others(pruner, model);
    s24_model_destroy(model);
    return status;
}

/* The scheme's bits and group. */
static s24_status read_scheme(s24i_pruner *pruner)
{
    const s24_model_prune_opts *opts = &pruner->opts;
    const char *name;
    if (!opts->quantize) return S24_OK;
    for (int i = 0; (name = s24_scheme_name(i, &pruner->bits, &pruner->group)); i++)
        if (!strcmp(name, opts->quantize)) break;
    REQUIRE(pruner->ctx, name, S24_ERROR_ARGUMENT,
            "there is no quantisation scheme named \"%s\"; s24_scheme_name lists them",
            s24i_show(opts->quantize).text);
    REQUIRE(pruner->ctx, opts->packed && !opts->dtype, S24_ERROR_ARGUMENT,
            "the option quantize of pruning %s",
            opts->packed ? "excludes a dtype" : "needs the option packed");
    return S24_OK;
}

/* A file of masks stands where a criterion would. */
static s24_status read_masks(const s24i_pruner *pruner)
{
    const s24_model_prune_opts *opts = &pruner->opts;
    REQUIRE(pruner->ctx,
            !opts->masks || pruner->by_masks || s24_pattern_group(opts->prune.pattern) > 1,
            S24_ERROR_ARGUMENT,
            "masks from a file say themselves what stays, or are held to a pattern N:M, not of %s",
            opts->prune.pattern);
    REQUIRE(pruner->ctx, !opts->masks || !opts->prune.device, S24_ERROR_UNSUPPORTED,
            "masks from a file are applied on the CPU only");
    REQUIRE(pruner->ctx,
            !opts->masks_only ||
                !(opts->packed || opts->dtype || opts->quantize || opts->reconstruct),
            S24_ERROR_ARGUMENT,
            "the option masks_only of pruning excludes packed, dtype, quantize "
            "and reconstruct");
    return S24_OK;
}

static s24_status check_scope(const s24i_pruner *pruner)
{
    const s24_model_prune_opts *opts = &pruner->opts;
    const char *pattern = opts->prune.pattern ? opts->prune.pattern : "2:4";
    int64_t sides[2];
    REQUIRE(pruner->ctx, opts->global || !opts->normalize, S24_ERROR_ARGUMENT,
            "the option normalize of pruning needs the option global");
    REQUIRE(
        pruner->ctx, !opts->global || s24_pattern_block(sides, pattern, 1, 1), S24_ERROR_ARGUMENT,
        "global scope is of a pattern unstructured:SHARE, or a share of rows, columns or blocks, "
        "not of %s",
        pattern);
    return S24_OK;
}

static s24_status check_passages(const s24i_pruner *pruner)
{
    const s24_model_prune_opts *known = &pruner->opts;
    const s24_batch *ids = known->ids, *images = known->images;
    REQUIRE(pruner->ctx, known->text_count >= 0 && (known->texts || known->text_count == 0),
            S24_ERROR_ARGUMENT, "there are %lld calibration texts at NULL",
            (long long)known->text_count);
    REQUIRE(pruner->ctx, !ids || !known->text_count, S24_ERROR_ARGUMENT,
            "calibration passages were given as texts and as token ids");
    REQUIRE(pruner->ctx, !ids || (ids->texts >= 0 && (!ids->texts || (ids->offsets && ids->ids))),
            S24_ERROR_ARGUMENT, "the calibration passages' offsets or ids are NULL");
    REQUIRE(pruner->ctx, !images || (!known->text_count && !ids), S24_ERROR_ARGUMENT,
            "calibration images were given next to calibration texts");
    REQUIRE(pruner->ctx, !images || (images->texts >= 0 && (!images->texts || images->pixels)),
            S24_ERROR_ARGUMENT, "there are %lld calibration images at NULL",
            (long long)images->texts);
    REQUIRE(pruner->ctx, !images || !known->max_tokens, S24_ERROR_ARGUMENT,
            "max_tokens is of calibration texts, and images were given");
    return S24_OK;
}

/* What is kept of a run must be all that its weights hang on. */
static s24_status check_keep(const s24i_pruner *pruner)
{
    const s24_model_prune_opts *o = &pruner->opts;
    REQUIRE(pruner->ctx, !o->keep || s24i_pruner_passages(pruner) > 0, S24_ERROR_ARGUMENT,
            "the option keep of pruning needs calibration texts or images");
    REQUIRE(pruner->ctx,
            !o->keep || !(o->masks || o->masks_only || o->gradients || o->prune.score ||
                          o->low_rank || pruner->only_factors),
            S24_ERROR_ARGUMENT,
            "the option keep of pruning excludes masks, masks_only, gradients, low_rank and a "
            "score of the caller's");
    return S24_OK;
}

static s24_status read_options(s24i_pruner *pruner, const s24_model_prune_opts *opts)
{
    s24_model_prune_opts *known = &pruner->opts;
    TRY(s24i_opts_read(pruner->ctx, known, sizeof *known, opts, "s24_model_prune_opts"));
    TRY(s24i_pruner_read_factors(pruner));
    if (known->prune.size == 0) known->prune.size = sizeof known->prune;
    if (known->masks) known->prune.criterion = NULL;
    pruner->by_masks = known->masks && !known->prune.pattern && !pruner->only_factors;
    if (pruner->by_masks) known->prune.pattern = "positive";
    if (!known->prune.criterion && !known->prune.score && !known->masks)
        known->prune.criterion = "magnitude";
    const char *criterion = known->prune.criterion;
    const int needs_stats = criterion ? s24_criterion_needs_stats(criterion) : 0;
    REQUIRE(pruner->ctx, needs_stats >= 0, S24_ERROR_ARGUMENT,
            "no criterion is named '%s'; expected one of s24_criterion_name()",
            s24i_show(criterion).text);
    TRY(check_passages(pruner));
    REQUIRE(pruner->ctx, s24_pattern_group(known->prune.pattern), S24_ERROR_ARGUMENT,
            "\"%s\" is no pattern; s24_pattern_syntax lists them",
            s24i_show(known->prune.pattern).text);
    pruner->lift = known->packed ? s24_pattern_lift(known->prune.pattern) : 0;
    REQUIRE(pruner->ctx,
            !known->packed || !known->prune.pattern || !strcmp(known->prune.pattern, "2:4") ||
                pruner->lift || pruner->by_masks,
            S24_ERROR_ARGUMENT,
            "the option packed of pruning is of the pattern 2:4, or 6:8 and its kin, not %s",
            known->prune.pattern);
    TRY(check_scope(pruner));
    TRY(read_masks(pruner));
    TRY(read_scheme(pruner));
    TRY(check_keep(pruner));
    REQUIRE(pruner->ctx, known->reconstruct >= 0 && !(known->reconstruct && known->quantize),
            S24_ERROR_ARGUMENT,
            known->quantize ? "the option reconstruct of pruning excludes quantize"
                            : "the option reconstruct of pruning is negative");
    REQUIRE(pruner->ctx, !known->device || s24i_pruner_passages(pruner) > 0, S24_ERROR_ARGUMENT,
            "the option device of pruning a model needs calibration texts or images");
    REQUIRE(pruner->ctx,
            (!known->reconstruct && !known->prune.refine) || s24i_pruner_passages(pruner) > 0,
            S24_ERROR_ARGUMENT, "to %s needs calibration texts or images",
            known->reconstruct ? "reconstruct a model" : "refine its layers");
    REQUIRE(pruner->ctx, !needs_stats || s24i_pruner_passages(pruner) > 0, S24_ERROR_ARGUMENT,
            "the criterion %s needs calibration texts or images", criterion);
    REQUIRE(pruner->ctx,
            !known->dtype || known->dtype == S24_F32 || known->dtype == S24_F16 ||
                known->dtype == S24_BF16,
            S24_ERROR_DTYPE, "pruned tensors cannot be written as %s; expected f32, f16 or bf16",
            s24_dtype_name(known->dtype));
    return S24_OK;
}

static s24_status walk(const s24i_pruner *pruner)
{
    if (s24i_pruner_passages(pruner) > 0) return prune_with_model(pruner);
    s24i_towers_log(pruner->ctx, pruner->in);
    return write_others(pruner, NULL);
}

/* The first walk of a global scope, which writes and reports nothing. */
static s24_status gather_scores(s24i_pruner *pruner, s24i_scope *scope)
{
    const char *pattern = pruner->opts.prune.pattern;
    int64_t blocks = 0, tensors = 0, sides[2];
    for (int64_t i = 0; i < s24_checkpoint_count(pruner->in); i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(pruner->in, i);
        if (!s24i_pruner_takes(pruner, tensor)) continue;
        const s24_dense matrix = s24i_pruner_matrix(NULL, tensor);
        s24_pattern_block(sides, pattern, matrix.rows, matrix.cols);
        blocks += matrix.rows / sides[0] * (matrix.cols / sides[1]);
        tensors++;
    }
    TRY(s24i_scope_create(scope, pruner->ctx, blocks, tensors));
    s24i_pruner first = *pruner;
    first.writer = NULL;
    first.scope = pruner->scope = scope;
    first.opts.reconstruct = 0;
    first.opts.keep = NULL;
    TRY(walk(&first));
    const double share = strtod(strrchr(pattern, ':') + 1, NULL);
    s24i_scope_divide(scope, (int64_t)nearbyint(share * (double)blocks));
    return S24_OK;
}

s24_status s24_model_prune(s24_ctx *ctx, const s24_checkpoint *in, const char *out_path,
                           const s24_model_prune_opts *opts)
{
    s24i_pruner pruner = {.ctx = ctx, .in = in};
    s24i_scope scope = {.gathering = 0};
    s24_status status;
    REQUIRE(ctx, ctx && in && out_path, S24_ERROR_ARGUMENT,
            "s24_model_prune: ctx, in and out_path are required");
    TRY(read_options(&pruner, opts));
    const s24_writer_opts writer = {.size = sizeof writer,
                                    .force = pruner.opts.force,
                                    .model = pruner.opts.masks_only ? NULL : in};
    TRY(s24_writer_create(&pruner.writer, ctx, out_path, &writer));
    TRY_DONE(declare(&pruner));
    if (pruner.opts.global) TRY_DONE(gather_scores(&pruner, &scope));
    TRY_DONE(walk(&pruner));
    status = s24_writer_commit(pruner.writer);
    if (status == S24_OK && pruner.opts.keep) s24i_kept_end(&pruner);
done:
    s24i_scope_free(&scope, ctx);
    s24_writer_destroy(pruner.writer);
    return status;
}

s24_status s24_model_sensitivity(s24_ctx *ctx, const s24_checkpoint *in,
                                 const s24_model_prune_opts *opts, const char *const *patterns,
                                 int64_t count)
{
    s24i_pruner pruner = {.ctx = ctx, .in = in, .tried = patterns, .tried_count = count};
    REQUIRE(ctx, ctx && in && patterns && count > 0, S24_ERROR_ARGUMENT,
            "s24_model_sensitivity: ctx, in and patterns are required");
    TRY(s24i_pruner_check_forms(&pruner));
    TRY(read_options(&pruner, opts));
    REQUIRE(ctx, s24i_pruner_passages(&pruner) > 0, S24_ERROR_ARGUMENT,
            "what layers lose is measured on calibration texts or images; none were given");
    pruner.opts.reconstruct = 0;
    pruner.opts.keep = NULL;
    return prune_with_model(&pruner);
}
