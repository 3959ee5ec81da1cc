// SPDX-License-Identifier: Apache-2.0
#include "recipe/kept_blocks.h"
#include "io/checkpoint/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/file/io.h"
#include "io/file/output.h"
#include "recipe/prune_ranks.h"
#include "recipe/run_hash.h"

/* The key of the metadata that has the run, and the tensor f64 [numbers, 2] of reports. */
#define KEY     "sparse24.pruning"
#define REPORTS "reports"

/* ---- which run it is ------------------------------------------------------------------------- */

static void add_passages(s24i_xxh3_stream *hash, const s24i_kept_passages *p)
{
    s24i_xxh3_add(hash, p->ends, (size_t)(p->texts + 1) * sizeof *p->ends);
    if (p->types) s24i_xxh3_add(hash, p->types, (size_t)p->ends[p->texts] * sizeof *p->types);
    if (p->ids)
        s24i_xxh3_add(hash, p->ids, (size_t)p->ends[p->texts] * sizeof *p->ids);
    else
        s24i_xxh3_add(hash, p->pixels, (size_t)(p->texts * p->image_elems) * sizeof *p->pixels);
}

s24_status s24i_kept_begin(s24i_kept_blocks *kept, const s24i_pruner *pruner,
                           const s24i_kept_passages *passages, int numbers)
{
    const char *folder = pruner->opts.keep;
    s24i_xxh3_stream *hash = s24i_xxh3_begin();
    *kept = (s24i_kept_blocks){.pruner = pruner, .numbers = numbers};
    REQUIRE(pruner->ctx, hash, S24_ERROR_MEMORY, "out of memory for the hash of a run");
    s24i_run_hash_options(hash, &pruner->opts);
    s24i_run_hash_model(hash, pruner->in);
    add_passages(hash, passages);
    if (pruner->ranks)
        s24i_xxh3_add(hash, &pruner->ranks->passages, sizeof pruner->ranks->passages);
    snprintf(kept->run, sizeof kept->run, "%s", s24i_xxh3_digits(s24i_xxh3_end(hash)).text);
    TRY(s24i_alloc_elems(&kept->reports, pruner->ctx, 2 * numbers, sizeof *kept->reports,
                         "a block's reports"));
    REQUIRE(pruner->ctx, mkdir(folder, 0777) == 0 || errno == EEXIST, S24_ERROR_IO,
            "%s: cannot be made: %s", folder, strerror(errno));
    return S24_OK;
}

void s24i_kept_free(s24i_kept_blocks *kept)
{
    s24_ctx_free(kept->pruner->ctx, kept->reports);
}

void s24i_kept_end(const s24i_pruner *pruner)
{
    int64_t bytes = 0;
    (void)s24i_remove_tree(pruner->opts.keep, &bytes);
}

/* ---- a block's file -------------------------------------------------------------------------- */

static s24_status path_of(char **out, const s24i_kept_blocks *kept, int64_t block)
{
    char name[48];
    snprintf(name, sizeof name, "block-%06lld.safetensors", (long long)block);
    return s24i_join_path(out, kept->pruner->ctx, kept->pruner->opts.keep, name);
}

static s24_status open_file(s24i_kept_blocks *kept, int64_t block)
{
    char *path;
    TRY(path_of(&path, kept, block));
    s24_ctx *ctx = kept->pruner->ctx;
    s24_status status = s24_checkpoint_open(&kept->file, ctx, path);
    const char *run = status == S24_OK ? s24_checkpoint_metadata(kept->file, KEY) : NULL;
    if (status == S24_OK && (!run || strcmp(run, kept->run) != 0))
        status = s24_ctx_fail(ctx, S24_ERROR_EXISTS,
                              "%s: is of another run: its options, model, passages or version are "
                              "not these; expected none, or one of the same",
                              path);
    s24_ctx_free(ctx, path);
    return status;
}

static void report_kept(const s24i_kept_blocks *kept, const s24_tensor *tensor, int slot)
{
    const char *pattern = kept->pruner->opts.prune.pattern;
    const s24_tensor *reports = s24_checkpoint_find(kept->file, REPORTS);
    double of[2];
    if (!reports || reports->bytes != (size_t)kept->numbers * sizeof of) return;
    memcpy(of, (const char *)reports->data + (size_t)slot * sizeof of, sizeof of);
    const s24_prune_report report = {of[0], of[1]};
    const s24_layer_report how = {.seconds = s24i_seconds(),
                                  .pattern = pattern ? pattern : "2:4",
                                  .input = -1,
                                  .model_error = -1};
    s24i_pruner_report(kept->pruner, tensor, &report, &how);
}

/* A tensor of the file, which knows not how its model stores it. */
static s24_status take_tensor(const s24i_kept_blocks *kept, const s24_tensor *tensor, float *w)
{
    const s24i_pruner *pruner = kept->pruner;
    const s24_tensor *found = s24_checkpoint_find(kept->file, tensor->name);
    REQUIRE(pruner->ctx, found, S24_ERROR_FORMAT, "%s: has no tensor '%s'",
            s24_checkpoint_tensor(kept->file, 0)->file, s24i_show(tensor->name).text);
    s24_tensor stored = *found;
    if (!stored.packed) stored.transposed = tensor->transposed;
    if (w) TRY(s24i_pruner_load(pruner, w, &stored));
    return s24_writer_copy(pruner->writer, found);
}

s24_status s24i_kept_take(int *found, s24i_kept_blocks *kept, int64_t block,
                          const s24_tensor *const *tensors, const s24_dense *weights)
{
    const s24i_pruner *pruner = kept->pruner;
    char *path;
    *found = 0;
    TRY(path_of(&path, kept, block));
    struct stat stat_of;
    const int is_there = stat(path, &stat_of) == 0;
    s24_ctx_free(pruner->ctx, path);
    if (!is_there) return S24_OK;
    s24_status status = open_file(kept, block);
    for (int slot = 0; slot < kept->numbers && status == S24_OK; slot++) {
        const s24_tensor *tensor = tensors[slot];
        if (!tensor || !s24i_pruner_takes(pruner, tensor)) continue;
        status =
            s24i_name_tensor(pruner->ctx, take_tensor(kept, tensor, weights[slot].data), tensor);
        if (status == S24_OK) report_kept(kept, tensor, slot);
    }
    s24_checkpoint_close(kept->file);
    kept->file = NULL;
    *found = status == S24_OK;
    return status;
}

/* ---- a block that is pruned ------------------------------------------------------------------ */

static void note_layer(void *user, const s24_layer_report *layer)
{
    s24i_kept_blocks *kept = user;
    const s24_model_prune_opts *o = &kept->pruner->opts;
    for (int slot = 0; slot < kept->numbers; slot++)
        if (kept->tensors[slot] && !strcmp(kept->tensors[slot]->name, layer->name)) {
            kept->reports[2 * slot] = layer->kept_l1;
            kept->reports[2 * slot + 1] = layer->output_error;
        }
    if (o->report) o->report(o->user, layer);
}

static s24_status declare_block(const s24i_kept_blocks *kept)
{
    const s24_tensor reports = {
        .name = REPORTS, .dtype = S24_F64, .rank = 2, .shape = {kept->numbers, 2}};
    TRY(s24_writer_set_metadata(kept->own.writer, KEY, kept->run));
    TRY(s24_writer_declare(kept->own.writer, &reports));
    for (int slot = 0; slot < kept->numbers; slot++) {
        const s24_tensor *at = kept->tensors[slot];
        if (!at || !s24i_pruner_takes(kept->pruner, at)) continue;
        s24_tensor tensor = *at;
        s24i_pruner_declare(kept->pruner, &tensor);
        tensor.file = NULL;
        TRY(s24_writer_declare(kept->own.writer, &tensor));
    }
    return S24_OK;
}

s24_status s24i_kept_open(const s24i_pruner **pruner, s24i_kept_blocks *kept, int64_t block,
                          const s24_tensor *const *tensors)
{
    char *path;
    TRY(path_of(&path, kept, block));
    kept->own = *kept->pruner;
    kept->own.writer = NULL;
    kept->own.opts.report = note_layer;
    kept->own.opts.user = kept;
    kept->tensors = tensors;
    memset(kept->reports, 0, 2 * (size_t)kept->numbers * sizeof *kept->reports);
    s24_status status = s24_writer_create(&kept->own.writer, kept->own.ctx, path, NULL);
    s24_ctx_free(kept->own.ctx, path);
    if (status == S24_OK) status = declare_block(kept);
    *pruner = &kept->own;
    return status;
}

s24_status s24i_kept_close(s24i_kept_blocks *kept, int64_t block)
{
    TRY(s24_writer_write(kept->own.writer, REPORTS, kept->reports));
    TRY(s24_writer_commit(kept->own.writer));
    s24i_kept_drop(kept);
    s24_status status = open_file(kept, block);
    for (int64_t i = 0; status == S24_OK && i < s24_checkpoint_count(kept->file); i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(kept->file, i);
        if (strcmp(tensor->name, REPORTS) != 0)
            status = s24_writer_copy(kept->pruner->writer, tensor);
    }
    s24_checkpoint_close(kept->file);
    kept->file = NULL;
    return status;
}

void s24i_kept_drop(s24i_kept_blocks *kept)
{
    s24_writer_destroy(kept->own.writer);
    kept->own.writer = NULL;
}
