// SPDX-License-Identifier: Apache-2.0
/*
 * Times whole models: the forward pass, token ids to embeddings, of one set of 2:4 weights run
 * dense and run 2:4, in turns. Both sides are the same function, and their outputs are compared
 * before a figure is kept.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench_model.h"

enum { MAX_TOKENS = 1 << 24 }; /* of a batch: far beyond any use, far below overflow */

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

/* Gives logits of answers where the model has a head for them, else pooled vectors. */
static int64_t value_count(const bench_pair *m, const model_row *row)
{
    return m->info.has_qa_head ? 2 * row->tokens : row->batch * m->info.width;
}

static s24_status outputs_make(pass *p, const bench_pair *m, const model_row *row)
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
static int add_torch(cli_app *cli, const bench_pair *m, const model_row *row,
                     const bench_model_plan *plan, bench_turn *turns, int *count)
{
    const bench_torch_shape shape = {.info = &m->info,
                                     .kv_heads = s24_model_kv_heads(m->sparse),
                                     .dtype = row->dtype,
                                     .batch = row->batch,
                                     .seq = row->seq,
                                     .threads = row->threads,
                                     .include = plan->source.include,
                                     .exclude = plan->source.exclude};
    return plan->torch ? bench_torch_turns(cli, plan->torch, &shape, turns, count) : CLI_OK;
}

static void keep_times(model_row *row, const bench_turn *turns, int peers)
{
    row->dense = turns[0].times.median;
    row->sparse = turns[1].times.median;
    row->dense_joules = turns[0].times.joules / (double)row->batch;
    row->sparse_joules = turns[1].times.joules / (double)row->batch;
    row->peer_count = peers;
    for (int i = 0; i < peers; i++) {
        const bench_torch_way *way = turns[OURS + i].state;
        row->peers[i].name = way->name;
        row->peers[i].times = turns[OURS + i].times;
    }
}

static int measure(cli_app *cli, const bench_pair *m, const s24_batch *batch, model_row *row,
                   const bench_model_plan *plan)
{
    const bench_effort *effort = &plan->effort;
    const int64_t tokens = row->tokens;
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
        row->dense_narrow_layers = s24_session_narrow_layers(passes[0].session, tokens);
        keep_times(row, turns, peers);
    }
    for (int i = 0; i < OURS; i++) {
        s24_ctx_free(cli->ctx, passes[i].values);
        s24_session_destroy(passes[i].session);
    }
    return code;
}

static int run_row(cli_app *cli, const bench_pair *m, model_row *row, const bench_model_plan *plan)
{
    s24_batch batch = {0};
    row->sparse_layers = m->info.sparse_layers;
    row->layers = m->info.linear_layers;
    row->bytes = m->info.weight_bytes;
    row->dense_bytes = m->info.dense_bytes;
    row->dense_residence = m->dense_residence;
    row->sparse_residence = m->sparse_residence;
    const int64_t lengths[2] = {row->shortest ? row->shortest : row->seq, row->seq};
    int code = bench_batch_make(cli, &batch, row->batch, lengths, &m->info);
    row->tokens =
        code == CLI_OK && batch.offsets ? batch.offsets[row->batch] : row->batch * row->seq;
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
    model_row row = {.threads = plan->threads[i % plan->thread_count], .shortest = plan->shortest};
    i /= plan->thread_count;
    row.seq = plan->lengths[i % plan->length_count];
    i /= plan->length_count;
    row.batch = plan->batches[i % plan->batch_count];
    row.dtype = plan->dtypes[i / plan->batch_count];
    return row;
}

/* Refuses a row that cannot be run, before the first figure. */
static int check_rows(cli_app *cli, const bench_pair *m, const bench_model_plan *plan)
{
    for (int i = 0; i < row_count(plan); i++) {
        model_row row = row_at(plan, i);
        if (row.seq > m->info.positions)
            return cli_fail(cli, CLI_USAGE, "option --seq: the model has %lld positions, not %lld",
                            (long long)m->info.positions, (long long)row.seq);
        if (row.shortest > row.seq)
            return cli_fail(cli, CLI_USAGE, "option --shortest: %lld is more than --seq %lld",
                            (long long)row.shortest, (long long)row.seq);
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
    if (plan->shortest && info->image)
        return cli_fail(cli, CLI_USAGE, "option --shortest: images of this model have %lld tokens",
                        (long long)info->positions);
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
static int run_rows(cli_app *cli, const bench_model_plan *plan, const char *folder, bench_pair *m,
                    model_row *rows)
{
    int count = row_count(plan), per_dtype = count / plan->dtype_count;
    int code = check_rows(cli, m, plan);
    if (code == CLI_OK && !cli->json) model_print_head(cli, plan);
    for (int i = 0; i < count && code == CLI_OK; i++) {
        rows[i] = row_at(plan, i);
        code = cli_status(cli, s24_ctx_progress(cli->ctx, "measuring", i, count));
        if (code == CLI_OK && i > 0 && rows[i].dtype != rows[i - 1].dtype) {
            bench_pair_free(m);
            code = cli_status(cli,
                              bench_pair_load(m, cli, &plan->source, folder, rows[i].dtype, NULL));
        }
        if (code == CLI_OK) code = run_row(cli, m, &rows[i], plan);
        cli_progress_clear(cli);
        if (code == CLI_OK && !cli->json) model_print_row(&rows[i], plan->torch);
        if (code == CLI_OK && !cli->json &&
            (i + 1 == count || i / per_dtype != (i + 1) / per_dtype))
            model_print_residence(plan, &rows[i]);
    }
    return code;
}

static int bench_folder(cli_app *cli, const void *asked, const char *folder)
{
    bench_model_plan plan = *(const bench_model_plan *)asked;
    bench_pair m = {0};
    model_row *rows = NULL;
    int code = cli_status(cli, s24_ctx_progress(cli->ctx, "loading", 0, 1));
    if (code == CLI_OK)
        code =
            cli_status(cli, bench_pair_load(&m, cli, &plan.source, folder, plan.dtypes[0], NULL));
    if (code == CLI_OK) code = choose_lengths(cli, &plan, &m.info);
    const int count = code == CLI_OK ? row_count(&plan) : 0;
    if (code == CLI_OK) rows = calloc((size_t)count, sizeof *rows);
    if (code == CLI_OK && !rows) code = cli_fail(cli, CLI_IO, "out of memory for %d rows", count);
    if (code == CLI_OK) code = run_rows(cli, &plan, folder, &m, rows);
    bench_pair_free(&m);
    if (code == CLI_OK && plan.svg) code = model_write_chart(cli, &plan, rows, count);
    if (code == CLI_OK && cli->json) code = model_print_json(cli, &plan, rows, count);
    free(rows);
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
    if (code == CLI_OK) code = bench_source_open(cli, &plan.source, bench_folder, &plan);
    bench_torch_close(&torch);
    return code;
}
