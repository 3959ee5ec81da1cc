// SPDX-License-Identifier: Apache-2.0
/*
 * Makes a model twice of one set of 2:4 weights, to run dense and to run 2:4. A dense folder is
 * first pruned by magnitude into a temporary copy: its speed is that of any 2:4 weights of its
 * shape.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "bench/bench_pair.h"

static int is_preset(const char *name)
{
    for (int i = 0; s24_model_preset_name(i); i++)
        if (strcmp(s24_model_preset_name(i), name) == 0) return 1;
    return 0;
}

int64_t bench_private_bytes(void)
{
    char line[128];
    long long kilobytes = -1;
#if defined(__GLIBC__)
    malloc_trim(0); /* what earlier models gave back would be taken again unseen */
#endif
    FILE *file = fopen("/proc/self/status", "r");
    if (!file) return -1;
    while (kilobytes < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %lld kB", &kilobytes) != 1) kilobytes = -1;
    fclose(file);
    return kilobytes < 0 ? -1 : 1024 * (int64_t)kilobytes;
}

static s24_status load_folder(s24_model **out, cli_app *cli, const char *folder,
                              const s24_model_opts *opts)
{
    s24_checkpoint *checkpoint = NULL;
    s24_status status = s24_checkpoint_open(&checkpoint, cli->ctx, folder);
    if (status == S24_OK) status = s24_model_load(out, cli->ctx, checkpoint, opts);
    s24_checkpoint_close(checkpoint);
    return status;
}

/* Measures what loading left in this process, or on the device that the model is on. */
static int64_t held_bytes(const s24_model *model, int64_t before)
{
    s24_model_info info;
    if (!model) return -1;
    s24_model_describe(&info, model);
    if (info.device_bytes) return info.device_bytes;
    return before < 0 ? -1 : bench_private_bytes() - before;
}

/* Loads a folder, or with NULL the preset of that name. */
static s24_status load(s24_model **out, model_residence *r, cli_app *cli, const char *name,
                       const char *folder, const s24_model_opts *opts)
{
    const int64_t before = bench_private_bytes();
    const double start = cli_seconds();
    s24_status status =
        folder ? load_folder(out, cli, folder, opts) : s24_model_preset(out, cli->ctx, name, opts);
    r->seconds = cli_seconds() - start;
    r->bytes = held_bytes(status == S24_OK ? *out : NULL, before);
    return status;
}

void bench_pair_free(bench_pair *m)
{
    s24_model_destroy(m->dense);
    s24_model_destroy(m->sparse);
    *m = (bench_pair){0};
}

s24_status bench_pair_load(bench_pair *m, cli_app *cli, const bench_source *source,
                           const char *folder, s24_dtype dtype, const char *scheme)
{
    const char *name = source->model;
    const char *by_layer = source->layer_dtypes;
    s24_model_opts opts = {.size = sizeof opts,
                           .dtype = scheme || by_layer ? S24_DTYPE_NONE : dtype,
                           .layer_dtypes = by_layer,
                           .quantize = scheme,
                           .quantize_head = cli->common->head,
                           .verify = cli->common->verify,
                           .comm = cli->comm,
                           .sparse = 1,
                           .device = cli->device,
                           .include = source->include,
                           .exclude = source->exclude,
                           .all_sparse = cli->common->all_sparse,
                           .format = source->format.name ? &source->format.as : NULL,
                           .zeros = (int)source->format.zeros};
    s24_ctx_set_threads(cli->ctx, (int)source->threads);
    s24_status status = load(&m->sparse, &m->sparse_residence, cli, name, folder, &opts);
    opts.dense = 1;
    opts.all_sparse = 0;
    opts.verify = 0;                     /* it was */
    if (by_layer) opts.dtype = S24_BF16; /* what some layers are faster than */
    opts.layer_dtypes = NULL;
    if (status == S24_OK && !source->alone)
        status = load(&m->dense, &m->dense_residence, cli, name, folder, &opts);
    if (status == S24_OK) s24_model_describe(&m->info, m->sparse);
    return status;
}

static int has_packed_tensors(const s24_checkpoint *checkpoint)
{
    int64_t i = s24_checkpoint_count(checkpoint);
    while (i && !s24_checkpoint_tensor(checkpoint, i - 1)->packed)
        i--;
    return i > 0;
}

/* Asks whether its blocks are 2:4, packed or not; one of integers is taken as it is, too. */
static s24_status has_sparse_layers(int *sparse, cli_app *cli, const s24_checkpoint *checkpoint)
{
    s24_model *model = NULL;
    s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .all_sparse = 1};
    s24_model_info info = {0};
    s24_status status = s24_model_load(&model, cli->ctx, checkpoint, &opts);
    if (status == S24_OK) s24_model_describe(&info, model);
    *sparse = info.sparse_layers > 0 || has_packed_tensors(checkpoint);
    s24_model_destroy(model);
    return status;
}

/* Makes a pruned and packed copy of the checkpoint at a path that is free. */
static int prune_copy(cli_app *cli, const char *path, const s24_checkpoint *checkpoint)
{
    s24_model_prune_opts opts = {.size = sizeof opts, .packed = 1};
    opts.prune.size = sizeof opts.prune;
    cli_note(cli,
             "the weights are dense: pruned by magnitude into a temporary copy for both sides");
    return cli_status(cli, s24_model_prune(cli->ctx, checkpoint, path, &opts));
}

static int run_pruned(cli_app *cli, const s24_checkpoint *checkpoint, bench_source_fn *run,
                      const void *plan)
{
    s24_temporary *folder;
    char path[4096];
    int code = cli_temporary_create(cli, &folder);
    if (code != CLI_OK) return code;
    snprintf(path, sizeof path, "%s/model", s24_temporary_path(folder));
    code = prune_copy(cli, path, checkpoint);
    if (code == CLI_OK) code = run(cli, plan, path);
    s24_temporary_destroy(folder);
    return code;
}

int bench_source_open(cli_app *cli, const bench_source *source, bench_source_fn *run,
                      const void *plan)
{
    if (is_preset(source->model) && access(source->model, F_OK) != 0) return run(cli, plan, NULL);
    if (source->include || source->exclude)
        return cli_fail(cli, CLI_USAGE,
                        "option --%s is for presets; prune --include makes such a folder of %s",
                        source->include ? "include" : "exclude", source->model);
    if (source->format.name)
        return cli_fail(cli, CLI_USAGE,
                        "option --format is for presets; prune --pattern makes such a folder of %s",
                        source->model);
    s24_checkpoint *checkpoint = NULL;
    int sparse = 0;
    int code = cli_status(cli, s24_checkpoint_open(&checkpoint, cli->ctx, source->model));
    if (code == CLI_OK) code = cli_status(cli, has_sparse_layers(&sparse, cli, checkpoint));
    if (code == CLI_OK)
        code = sparse ? run(cli, plan, source->model) : run_pruned(cli, checkpoint, run, plan);
    s24_checkpoint_close(checkpoint);
    return code;
}

const char *bench_sparse_name(const bench_source *source)
{
    return source->format.name ? "sparse" : "2:4";
}

void bench_json_format(json_t *object, const bench_format *format)
{
    if (!format->name) return;
    json_object_set_new(object, "format", json_string(format->name));
    json_object_set_new(object, "zeros", json_integer((json_int_t)format->zeros));
}
