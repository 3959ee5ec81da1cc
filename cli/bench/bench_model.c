// SPDX-License-Identifier: Apache-2.0
/*
 * Times whole models: the forward pass, token ids to embeddings, of one set of 2:4 weights run
 * dense and run 2:4, in turns. Both sides are the same function, and their outputs are compared
 * before a figure is kept. A dense folder is first pruned by magnitude into a temporary copy: its
 * speed is that of any 2:4 weights of its shape.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "bench/bench_model.h"

enum { MAX_TOKENS = 1 << 24 }; /* of a batch: far beyond any use, far below overflow */

typedef struct models {
    s24_model *dense, *sparse;
    s24_model_info info; /* of the sparse one */
    model_residence dense_residence, sparse_residence;
} models;

typedef struct pass {
    cli_app *cli;
    s24_session *session;
    const s24_batch *batch;
    s24_outputs outputs;
    float *values; /* what they point into */
} pass;

static int run_pass(void *state)
{
    pass *p = state;
    return s24_session_forward(p->session, p->cli->ctx, p->batch, &p->outputs) != S24_OK;
}

static int is_preset(const char *name)
{
    for (int i = 0; s24_model_preset_name(i); i++)
        if (strcmp(s24_model_preset_name(i), name) == 0) return 1;
    return 0;
}

/* Reads the private memory of this process that is resident, -1 where nobody tells. */
static int64_t private_bytes(void)
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
    return before < 0 ? -1 : private_bytes() - before;
}

/* Loads a folder, or with NULL the preset of that name. */
static s24_status load(s24_model **out, model_residence *r, cli_app *cli, const char *name,
                       const char *folder, const s24_model_opts *opts)
{
    const int64_t before = private_bytes();
    const double start = cli_seconds();
    s24_status status =
        folder ? load_folder(out, cli, folder, opts) : s24_model_preset(out, cli->ctx, name, opts);
    r->seconds = cli_seconds() - start;
    r->bytes = held_bytes(status == S24_OK ? *out : NULL, before);
    return status;
}

static void models_free(models *m)
{
    s24_model_destroy(m->dense);
    s24_model_destroy(m->sparse);
    *m = (models){0};
}

static s24_status models_load(models *m, cli_app *cli, const bench_model_plan *plan,
                              const char *folder, s24_dtype dtype)
{
    const char *name = plan->model;
    s24_model_opts opts = {.size = sizeof opts,
                           .dtype = dtype,
                           .sparse = 1,
                           .device = cli->device,
                           .include = plan->include,
                           .exclude = plan->exclude,
                           .all_sparse = cli->common->all_sparse};
    /* What is chosen for all threads together is chosen for the most. */
    int64_t threads = 0;
    for (int i = 0; i < plan->thread_count; i++)
        threads = plan->threads[i] > threads ? plan->threads[i] : threads;
    s24_ctx_set_threads(cli->ctx, (int)threads);
    s24_status status = load(&m->sparse, &m->sparse_residence, cli, name, folder, &opts);
    opts.dense = 1;
    opts.all_sparse = 0;
    if (status == S24_OK) status = load(&m->dense, &m->dense_residence, cli, name, folder, &opts);
    if (status == S24_OK) s24_model_describe(&m->info, m->sparse);
    return status;
}

/* Gives logits of answers where the model has a head for them, else pooled vectors. */
static int64_t value_count(const models *m, const model_row *row)
{
    return m->info.has_qa_head ? 2 * row->batch * row->seq : row->batch * m->info.width;
}

static s24_status outputs_make(pass *p, const models *m, const model_row *row)
{
    const int64_t count = value_count(m, row);
    p->values = s24_ctx_alloc(p->cli->ctx, (size_t)count * sizeof(float));
    if (!p->values) return s24_ctx_fail(p->cli->ctx, S24_ERROR_MEMORY, "no memory for the outputs");
    if (m->info.has_qa_head)
        p->outputs = (s24_outputs){.start_logits = p->values, .end_logits = p->values + count / 2};
    else
        p->outputs = (s24_outputs){.embeddings = p->values};
    return S24_OK;
}

/* Compares the two outputs of the same weights. Entries of vectors are below 1, logits may be
   larger. */
static int outputs_agree(cli_app *cli, const pass *a, const pass *b, const model_row *row,
                         int64_t count)
{
    /* f32: the layers' rounding errors; else roundings of activations, 2^-9 and more, a layer, of
       e4m3 2^-4. */
    double tolerance = row->dtype == S24_F32 ? 1e-3 : row->dtype == S24_E4M3 ? 0.25 : 5e-2;
    double most = 1;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)a->values[i]));
    for (int64_t i = 0; i < count; i++) {
        double x = (double)a->values[i], y = (double)b->values[i];
        if (!(fabs(x - y) <= tolerance * most))
            return cli_fail(cli, CLI_NO,
                            "output %lld: %g dense, %g 2:4; no figure is given for a wrong result",
                            (long long)i, x, y);
    }
    return CLI_OK;
}

enum { OURS = 2 /* turns: dense, 2:4 */ };

/* Adds the turns of PyTorch after ours. */
static int add_torch(cli_app *cli, const models *m, const model_row *row,
                     const bench_model_plan *plan, bench_turn *turns, int *count)
{
    const bench_torch_shape shape = {.info = &m->info,
                                     .kv_heads = s24_model_kv_heads(m->sparse),
                                     .dtype = row->dtype,
                                     .batch = row->batch,
                                     .seq = row->seq,
                                     .threads = row->threads,
                                     .include = plan->include,
                                     .exclude = plan->exclude};
    return plan->torch ? bench_torch_turns(cli, plan->torch, &shape, turns, count) : CLI_OK;
}

static void keep_times(model_row *row, const bench_turn *turns, int peers)
{
    row->dense = turns[0].times.median;
    row->sparse = turns[1].times.median;
    row->peer_count = peers;
    for (int i = 0; i < peers; i++) {
        const bench_torch_way *way = turns[OURS + i].state;
        row->peers[i].name = way->name;
        row->peers[i].times = turns[OURS + i].times;
    }
}

static int measure(cli_app *cli, const models *m, const s24_batch *batch, model_row *row,
                   const bench_model_plan *plan)
{
    const bench_effort *effort = &plan->effort;
    int64_t tokens = row->batch * row->seq;
    pass passes[OURS] = {{.cli = cli, .batch = batch}, {.cli = cli, .batch = batch}};
    bench_turn turns[OURS + BENCH_TORCH_WAYS];
    int peers = 0;
    s24_status status = s24_session_create(&passes[0].session, cli->ctx, m->dense, tokens);
    if (status == S24_OK)
        status = s24_session_create(&passes[1].session, cli->ctx, m->sparse, tokens);
    for (int i = 0; i < OURS && status == S24_OK; i++) {
        status = outputs_make(&passes[i], m, row);
        if (status == S24_OK)
            status = s24_session_forward(passes[i].session, cli->ctx, batch, &passes[i].outputs);
        turns[i] = (bench_turn){.run = run_pass, .state = &passes[i]};
    }
    int code = cli_status(cli, status);
    if (code == CLI_OK) code = outputs_agree(cli, &passes[0], &passes[1], row, value_count(m, row));
    if (code == CLI_OK) code = add_torch(cli, m, row, plan, turns + OURS, &peers);
    if (code == CLI_OK) code = bench_interleave(cli, turns, OURS + peers, effort);
    if (code == CLI_OK) code = bench_latencies(cli, &turns[1], effort, &row->latency);
    if (code == CLI_OK) {
        row->sparse_layers = s24_session_sparse_layers(passes[1].session, tokens);
        row->narrow_layers = s24_session_narrow_layers(passes[1].session, tokens);
        keep_times(row, turns, peers);
    }
    for (int i = 0; i < OURS; i++) {
        s24_ctx_free(cli->ctx, passes[i].values);
        s24_session_destroy(passes[i].session);
    }
    return code;
}

static int run_row(cli_app *cli, const models *m, model_row *row, const bench_model_plan *plan)
{
    s24_batch batch = {0};
    row->sparse_layers = m->info.sparse_layers;
    row->layers = m->info.linear_layers;
    row->bytes = m->info.weight_bytes;
    row->dense_bytes = m->info.dense_bytes;
    row->dense_residence = m->dense_residence;
    row->sparse_residence = m->sparse_residence;
    int code = bench_batch_make(cli, &batch, row->batch, row->seq, &m->info);
    s24_ctx_set_threads(cli->ctx, (int)row->threads);
    if (code == CLI_OK) code = measure(cli, m, &batch, row, plan);
    bench_batch_free(cli, &batch);
    return code;
}

static int row_count(const bench_model_plan *plan)
{
    return plan->dtype_count * plan->batch_count * plan->length_count * plan->thread_count;
}

/* Fills row i of the product of the four lists; dtypes turn slowest, as each needs a load of its
   own. */
static model_row row_at(const bench_model_plan *plan, int i)
{
    model_row row = {.threads = plan->threads[i % plan->thread_count]};
    i /= plan->thread_count;
    row.seq = plan->lengths[i % plan->length_count];
    i /= plan->length_count;
    row.batch = plan->batches[i % plan->batch_count];
    row.dtype = plan->dtypes[i / plan->batch_count];
    return row;
}

/* Refuses a row that cannot be run, before the first figure. */
static int check_rows(cli_app *cli, const models *m, const bench_model_plan *plan)
{
    for (int i = 0; i < row_count(plan); i++) {
        model_row row = row_at(plan, i);
        if (row.seq > m->info.positions)
            return cli_fail(cli, CLI_USAGE, "option --seq: the model has %lld positions, not %lld",
                            (long long)m->info.positions, (long long)row.seq);
        if (row.batch > MAX_TOKENS / row.seq)
            return cli_fail(cli, CLI_USAGE,
                            "option --batch: %lld texts of %lld tokens are more than %d tokens",
                            (long long)row.batch, (long long)row.seq, MAX_TOKENS);
    }
    return CLI_OK;
}

/* Sets the lengths where none were asked for; images have one. */
static int choose_lengths(cli_app *cli, bench_model_plan *plan, const s24_model_info *info)
{
    if (plan->length_count && info->image)
        return cli_fail(cli, CLI_USAGE, "option --seq: images of this model have %lld tokens",
                        (long long)info->positions);
    if (plan->length_count) return CLI_OK;
    plan->length_count = info->image ? 1 : 2;
    plan->lengths[0] = info->image ? info->positions : 16;
    plan->lengths[1] = 128;
    return CLI_OK;
}

/* m holds the models of the first dtype. */
static int run_rows(cli_app *cli, const bench_model_plan *plan, const char *folder, models *m,
                    model_row *rows)
{
    int count = row_count(plan), per_dtype = count / plan->dtype_count;
    int code = check_rows(cli, m, plan);
    if (code == CLI_OK && !cli->json) model_print_head(cli, plan->torch);
    for (int i = 0; i < count && code == CLI_OK; i++) {
        rows[i] = row_at(plan, i);
        code = cli_status(cli, s24_ctx_progress(cli->ctx, "measuring", i, count));
        if (code == CLI_OK && i > 0 && rows[i].dtype != rows[i - 1].dtype) {
            models_free(m);
            code = cli_status(cli, models_load(m, cli, plan, folder, rows[i].dtype));
        }
        if (code == CLI_OK) code = run_row(cli, m, &rows[i], plan);
        cli_progress_clear(cli);
        if (code == CLI_OK && !cli->json) model_print_row(&rows[i], plan->torch);
        if (code == CLI_OK && !cli->json &&
            (i + 1 == count || i / per_dtype != (i + 1) / per_dtype))
            model_print_residence(&rows[i]);
    }
    return code;
}

/* folder NULL: a preset. */
static int bench_folder(cli_app *cli, const bench_model_plan *asked, const char *folder)
{
    bench_model_plan plan = *asked;
    models m = {0};
    model_row *rows = NULL;
    int code = cli_status(cli, s24_ctx_progress(cli->ctx, "loading", 0, 1));
    if (code == CLI_OK) code = cli_status(cli, models_load(&m, cli, &plan, folder, plan.dtypes[0]));
    if (code == CLI_OK) code = choose_lengths(cli, &plan, &m.info);
    const int count = code == CLI_OK ? row_count(&plan) : 0;
    if (code == CLI_OK) rows = calloc((size_t)count, sizeof *rows);
    if (code == CLI_OK && !rows) code = cli_fail(cli, CLI_IO, "out of memory for %d rows", count);
    if (code == CLI_OK) code = run_rows(cli, &plan, folder, &m, rows);
    models_free(&m);
    if (code == CLI_OK && plan.svg) code = model_write_chart(cli, &plan, rows, count);
    if (code == CLI_OK && cli->json)
        code = model_print_json(cli, plan.model, plan.torch, rows, count);
    free(rows);
    return code;
}

/* Asks whether its blocks are 2:4, packed or not. */
static s24_status has_sparse_layers(int *sparse, cli_app *cli, const s24_checkpoint *checkpoint)
{
    s24_model *model = NULL;
    s24_model_opts opts = {.size = sizeof opts, .sparse = 1, .all_sparse = 1};
    s24_model_info info = {0};
    s24_status status = s24_model_load(&model, cli->ctx, checkpoint, &opts);
    if (status == S24_OK) s24_model_describe(&info, model);
    *sparse = info.sparse_layers > 0;
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

static int bench_pruned(cli_app *cli, const bench_model_plan *plan,
                        const s24_checkpoint *checkpoint)
{
    s24_temporary *folder;
    char path[4096];
    int code = cli_temporary_create(cli, &folder);
    if (code != CLI_OK) return code;
    snprintf(path, sizeof path, "%s/model", s24_temporary_path(folder));
    code = prune_copy(cli, path, checkpoint);
    if (code == CLI_OK) code = bench_folder(cli, plan, path);
    s24_temporary_destroy(folder);
    return code;
}

static int bench_any(cli_app *cli, const bench_model_plan *plan)
{
    if (is_preset(plan->model) && access(plan->model, F_OK) != 0)
        return bench_folder(cli, plan, NULL);
    if (plan->include || plan->exclude)
        return cli_fail(cli, CLI_USAGE,
                        "option --%s is for presets; prune --include makes such a folder of %s",
                        plan->include ? "include" : "exclude", plan->model);
    s24_checkpoint *checkpoint = NULL;
    int sparse = 0;
    int code = cli_status(cli, s24_checkpoint_open(&checkpoint, cli->ctx, plan->model));
    if (code == CLI_OK) code = cli_status(cli, has_sparse_layers(&sparse, cli, checkpoint));
    if (code == CLI_OK)
        code = sparse ? bench_folder(cli, plan, plan->model) : bench_pruned(cli, plan, checkpoint);
    s24_checkpoint_close(checkpoint);
    return code;
}

int bench_models(cli_app *cli, const bench_model_plan *asked)
{
    bench_model_plan plan = *asked;
    bench_torch torch = {0};
    s24_device *device; /* models are loaded to it */
    int code = cli_device(cli, &device);
    if (code == CLI_OK && !device && !cli->common->all_sparse) cli_choices_load(cli);
    if (code == CLI_OK && plan.python) {
        plan.torch = &torch;
        code = bench_torch_open(cli, &torch, plan.python, plan.ways);
    }
    if (code == CLI_OK) code = bench_any(cli, &plan);
    bench_torch_close(&torch);
    return code;
}
