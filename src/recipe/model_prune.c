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
#include "io/file/io.h"
#include "model/tower.h"
#include "recipe/kept_blocks.h"
#include "recipe/prune_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A matrix has no more directions than its shorter side. */
static s24_status check_rank(const s24i_pruner *pruner, const s24_tensor *tensor)
{
    const s24_dense matrix = s24i_pruner_matrix(NULL, tensor);
    const int64_t most = s24i_min(matrix.rows, matrix.cols);
    REQUIRE(pruner->ctx, pruner->rank <= most, S24_ERROR_SHAPE,
            "the low rank is %lld; tensor '%s' [%lld, %lld] has at most %lld",
            (long long)pruner->rank, s24i_show(tensor->name).text, (long long)matrix.rows,
            (long long)matrix.cols, (long long)most);
    return S24_OK;
}

/* A model of which nothing is pruned is no result. */
static s24_status refuse_none(const s24i_pruner *pruner, const s24_tensor *passed)
{
    if (!passed) return S24_OK;
    const s24_dense matrix = s24i_pruner_matrix(NULL, passed);
    return s24_ctx_fail(
        pruner->ctx, S24_ERROR_SHAPE, "no selected tensor holds %s: '%s' has %lld rows of %lld",
        pruner->opts.prune.pattern ? pruner->opts.prune.pattern : "2:4",
        s24i_show(passed->name).text, (long long)matrix.rows, (long long)matrix.cols);
}

static s24_status declare(const s24i_pruner *pruner)
{
    const s24_tensor *passed = NULL; /* one that is selected, while none is taken */
    int64_t count = 0;
    for (int64_t i = 0; i < s24_checkpoint_count(pruner->in); i++) {
        s24_tensor tensor = *s24_checkpoint_tensor(pruner->in, i);
        const int selected =
            s24_tensor_is_selected(&tensor, pruner->opts.include, pruner->opts.exclude);
        if (selected)
            TRY(s24_tensor_check_sides(pruner->ctx, pruner->in, &tensor, pruner->opts.packed));
        const int taken = s24i_pruner_takes(pruner, &tensor);
        const s24_tensor *mask;
        count += taken;
        if (taken) TRY(check_rank(pruner, &tensor));
        if (selected && !taken) passed = s24_checkpoint_tensor(pruner->in, i);
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
                        "%s: tensor '%s' [%lld, %lld] is passed through: its %s do not hold "
                        "groups of %s",
                        tensor.file, s24i_show(tensor.name).text, (long long)tensor.shape[0],
                        (long long)tensor.shape[1], s24i_lies_turned(&tensor) ? "rows" : "columns",
                        pruner->opts.prune.pattern ? pruner->opts.prune.pattern : "2:4");
        }
        if (pruner->writer) TRY(s24_writer_declare(pruner->writer, &tensor));
    }
    return refuse_none(pruner, count ? NULL : passed);
}

/* The models of a folder that passages are run through: what reads texts, and what reads images,
   which may be a tower next to that; NULL: there is none, or none is needed. */
enum { OF_TEXTS, OF_IMAGES, KINDS };
typedef struct models {
    s24_model *by[KINDS];
    int given[KINDS]; /* passages of it */
} models;

/* Is the tensor a layer of the blocks of a model that has passages? */
static int is_layer_of(const models *m, const char *name)
{
    int64_t block;
    s24i_slot slot;
    for (int kind = 0; m && kind < KINDS; kind++)
        if (m->given[kind] && s24i_model_find_linear(&block, &slot, m->by[kind], name)) return 1;
    return 0;
}

/* Or of one that has none? */
static int is_without_passages(const models *m, const char *name)
{
    int64_t block;
    s24i_slot slot;
    const s24_model *own = m->by[OF_TEXTS];
    return own && own->architecture->images &&
           (s24i_slot_find(&block, &slot, own->architecture, name) ||
            s24i_slot_find(&block, &slot, own->architecture->images, name));
}

/* The disk may read a tensor while the one before is pruned. */
static void expect(const s24i_pruner *pruner, int64_t index)
{
    if (index >= s24_checkpoint_count(pruner->in)) return;
    const s24_tensor *tensor = s24_checkpoint_tensor(pruner->in, index);
    if (tensor->data) s24i_map_expect(tensor->data, tensor->bytes);
}

/* The tensors that are no layer of the models' blocks (m NULL: all of them). */
static s24_status write_others(const s24i_pruner *pruner, const models *m)
{
    const int64_t count = s24_checkpoint_count(pruner->in);
    if (!m) expect(pruner, 0);
    for (int64_t i = 0; i < count; i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(pruner->in, i);
        if (!m) TRY(s24_ctx_progress(pruner->ctx, "pruning", i, count));
        if (!m) expect(pruner, i + 1);
        if (!s24i_pruner_takes(pruner, tensor)) {
            if (pruner->writer && !pruner->opts.masks_only)
                TRY(s24_writer_copy(pruner->writer, tensor));
        } else if (!is_layer_of(m, tensor->name)) {
            TRY(s24i_pruner_alone(pruner, tensor));
        }
    }
    return m ? S24_OK : s24_ctx_progress(pruner->ctx, "pruning", count, count);
}

/* Every tensor to prune must have statistics when the criterion needs them. */
static s24_status check_layers(const s24i_pruner *pruner, const models *m)
{
    const char *criterion = pruner->opts.prune.criterion;
    if (s24_criterion_needs_stats(criterion) != 1) return S24_OK;
    for (int64_t i = 0; i < s24_checkpoint_count(pruner->in); i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(pruner->in, i);
        if (!s24i_pruner_takes(pruner, tensor) || is_layer_of(m, tensor->name)) continue;
        REQUIRE(pruner->ctx, !is_without_passages(m, tensor->name), S24_ERROR_ARGUMENT,
                "%s: tensor '%s' is selected, whose inputs come of %s, and %s needs them; "
                "calibration %s were expected, too",
                tensor->file, s24i_show(tensor->name).text, m->given[OF_TEXTS] ? "images" : "texts",
                criterion, m->given[OF_TEXTS] ? "images" : "texts");
        return s24_ctx_fail(
            pruner->ctx, S24_ERROR_ARGUMENT,
            "%s: tensor '%s' is selected, but is no linear layer of the model's blocks, whose "
            "inputs %s needs",
            tensor->file, s24i_show(tensor->name).text, criterion);
    }
    return S24_OK;
}

/* What runs another model than the folder's own, or two, can what that one alone can not. */
static s24_status check_towers(const s24i_pruner *pruner, const models *m, const char *type)
{
    const s24_model_prune_opts *o = &pruner->opts;
    const int both = m->given[OF_TEXTS] && m->given[OF_IMAGES];
    REQUIRE(pruner->ctx, !both || (m->by[OF_TEXTS] && m->by[OF_IMAGES]), S24_ERROR_ARGUMENT,
            "calibration images were given next to calibration texts");
    for (int kind = 0; kind < KINDS; kind++)
        REQUIRE(pruner->ctx, !m->given[kind] || m->by[kind], S24_ERROR_UNSUPPORTED,
                "a model of type '%s' reads %s, which %s cannot calibrate; magnitude and tiles "
                "need no calibration",
                type, kind == OF_TEXTS ? "images" : "texts", kind == OF_TEXTS ? "texts" : "images");
    REQUIRE(pruner->ctx, !both || !(o->keep || pruner->tried), S24_ERROR_UNSUPPORTED,
            "a model of type '%s' is %s by texts or by images at a time", type,
            o->keep ? "kept block by block" : "measured");
    REQUIRE(pruner->ctx,
            !(o->device || o->reconstruct || o->aim) || !m->by[OF_TEXTS] || !m->given[OF_IMAGES],
            S24_ERROR_UNSUPPORTED,
            "the images of a model of type '%s' calibrate on the CPU alone, without "
            "reconstruction or an aim",
            type);
    return S24_OK;
}

static s24_status load_models(models *m, const s24i_pruner *pruner)
{
    s24_model *own;
    TRY(s24i_model_load_bare(&own, pruner->ctx, pruner->in, 0));
    const s24i_architecture *row = own->architecture;
    m->by[own->shape.image ? OF_IMAGES : OF_TEXTS] = own;
    m->given[OF_IMAGES] = pruner->opts.images != NULL;
    m->given[OF_TEXTS] = pruner->opts.ids || pruner->opts.text_count > 0;
    if (row->images) TRY(s24i_model_load_bare(&m->by[OF_IMAGES], pruner->ctx, pruner->in, 1));
    TRY(check_towers(pruner, m, row->model_type));
    return check_layers(pruner, m);
}

/* The blocks of a model, as if its passages were all that there are. */
static s24_status prune_kind(const s24i_pruner *pruner, const models *m, int kind)
{
    s24i_pruner own = *pruner;
    s24_batch share;
    if (!m->given[kind]) return S24_OK;
    if (kind == OF_TEXTS) {
        own.opts.images = NULL;
    } else {
        own.opts.ids = NULL;
        own.opts.text_count = own.opts.max_tokens = 0;
    }
    if (own.ranks) TRY(s24i_prune_ranks_meet(&own, &share, &m->by[kind]->shape));
    TRY(s24i_pruner_blocks(&own, m->by[kind]));
    return own.ranks ? s24i_prune_ranks_agree(own.ranks) : S24_OK;
}

static s24_status prune_with_model(const s24i_pruner *pruner)
{
    models m = {.by = {NULL}};
    s24_status status = load_models(&m, pruner);
    for (int kind = 0; kind < KINDS && status == S24_OK; kind++)
        status = prune_kind(pruner, &m, kind);
    const int writes = !pruner->tried && !(pruner->ranks && pruner->ranks->rank);
    if (status == S24_OK && writes) status = write_others(pruner, &m);
    for (int kind = 0; kind < KINDS; kind++)
        s24_model_destroy(m.by[kind]);
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
            "masks from a file say themselves what stays, or are held to a pattern N:M or "
            "dense:COLUMNS, not to %s",
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
    REQUIRE(pruner->ctx, !images || (images->texts >= 0 && (!images->texts || images->pixels)),
            S24_ERROR_ARGUMENT, "there are %lld calibration images at NULL",
            (long long)images->texts);
    REQUIRE(pruner->ctx, !images || !known->max_tokens || known->text_count || ids,
            S24_ERROR_ARGUMENT, "max_tokens is of calibration texts, and images were given");
    return S24_OK;
}

/* aim becomes NULL where nothing moves. */
static s24_status read_aim(s24i_pruner *pruner)
{
    const char **aim = &pruner->opts.aim;
    if (*aim && !strcmp(*aim, "weights")) *aim = NULL;
    if (!*aim) return S24_OK;
    REQUIRE(pruner->ctx, !strcmp(*aim, "outputs") || !strcmp(*aim, "states"), S24_ERROR_ARGUMENT,
            "the option aim of pruning is \"%s\"; expected weights, outputs or states",
            s24i_show(*aim).text);
    REQUIRE(pruner->ctx, s24i_pruner_passages(pruner) > 0, S24_ERROR_ARGUMENT,
            "to aim at the dense model's %s needs calibration texts or images", *aim);
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

/* What ranks do together: choose, by what layers see, one block after another. */
static s24_status check_comm(const s24i_pruner *pruner)
{
    const s24_model_prune_opts *o = &pruner->opts;
    if (s24_comm_world(o->comm) == 1) return S24_OK;
    REQUIRE(pruner->ctx, !pruner->tried, S24_ERROR_ARGUMENT,
            "the option comm is of pruning; what layers lose is measured by each process alone");
    REQUIRE(pruner->ctx, s24i_pruner_passages(pruner) > 0, S24_ERROR_ARGUMENT,
            "ranks prune a model together by calibration texts or images; none were given");
    REQUIRE(pruner->ctx, !(o->reconstruct || o->aim || o->global), S24_ERROR_ARGUMENT,
            "the option comm of pruning excludes reconstruct, aim and global");
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
    TRY(read_aim(pruner));
    TRY(check_comm(pruner));
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
    first.opts.aim = NULL;
    first.opts.keep = NULL;
    TRY(walk(&first));
    const double share = strtod(strrchr(pattern, ':') + 1, NULL);
    s24i_scope_divide(scope, (int64_t)nearbyint(share * (double)blocks));
    return S24_OK;
}

/* The output is this rank's to write, and may be. */
static s24_status open_output(s24i_pruner *pruner, const char *path)
{
    const s24_writer_opts writer = {.size = sizeof writer,
                                    .force = pruner->opts.force,
                                    .model = pruner->opts.masks_only ? NULL : pruner->in};
    if (!s24_comm_rank(pruner->opts.comm))
        TRY(s24_writer_create(&pruner->writer, pruner->ctx, path, &writer));
    return declare(pruner);
}

static s24_status prune_to(s24i_pruner *pruner, const char *path)
{
    s24i_scope scope = {.gathering = 0};
    s24_status status;
    TRY_DONE(open_output(pruner, path));
    if (pruner->opts.global) TRY_DONE(gather_scores(pruner, &scope));
    TRY_DONE(walk(pruner));
    status = pruner->writer ? s24_writer_commit(pruner->writer) : S24_OK;
    if (status == S24_OK && pruner->opts.keep && pruner->writer) s24i_kept_end(pruner);
done:
    s24i_scope_free(&scope, pruner->ctx);
    s24_writer_destroy(pruner->writer);
    return status;
}

s24_status s24_model_prune(s24_ctx *ctx, const s24_checkpoint *in, const char *out_path,
                           const s24_model_prune_opts *opts)
{
    s24i_pruner pruner = {.ctx = ctx, .in = in};
    s24i_prune_ranks ranks;
    REQUIRE(ctx, ctx && in && out_path, S24_ERROR_ARGUMENT,
            "s24_model_prune: ctx, in and out_path are required");
    s24_status status = read_options(&pruner, opts);
    const s24_status met = s24i_prune_ranks_begin(&ranks, ctx, pruner.opts.comm);
    if (status == S24_OK) status = met;
    if (ranks.world > 1) pruner.ranks = &ranks;
    if (status == S24_OK) status = prune_to(&pruner, out_path);
    return s24i_prune_ranks_end(&ranks, status);
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
    const char *price = pruner.opts.price ? pruner.opts.price : "layer";
    pruner.may_follow = !strcmp(price, "model-or-layer");
    pruner.follows = pruner.may_follow || !strcmp(price, "model");
    REQUIRE(ctx, pruner.follows || !strcmp(price, "layer"), S24_ERROR_ARGUMENT,
            "the option price of sensitivity is \"%s\"; expected layer, model or model-or-layer",
            s24i_show(price).text);
    REQUIRE(ctx, pruner.opts.memory >= 0, S24_ERROR_ARGUMENT,
            "the option memory of sensitivity is negative");
    pruner.opts.reconstruct = 0;
    pruner.opts.aim = NULL;
    pruner.opts.keep = NULL;
    return prune_with_model(&pruner);
}
