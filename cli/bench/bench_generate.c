// SPDX-License-Identifier: Apache-2.0
/*
 * Times texts that go on: prompts, then token by token, of one set of 2:4 weights run dense and run
 * 2:4, and of another engine on the same shape, in turns. A turn is whole texts, the first
 * new token of each from its prompt's pass; reads of memory take turns with them, and say what a
 * step could take at least. The logits after the prompts are compared before a figure is kept.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_generate.h"
#include "bench/gpu/bench_gpu_read.h"
#include "sparse24/language.h"

/* Is the memory whose speed limits a step, of the machine or of the device that models are on. */
typedef struct memory {
    bench_table limits;
    bench_gpu_read on_device; /* device NULL: models are on the CPU */
} memory;

/* Is a contestant: what a turn needs, and what turns leave. */
typedef struct player {
    cli_app *cli;
    const bench_generate_plan *plan;
    s24_session *session; /* ours, with its cache and batch */
    s24_cache *cache;
    s24_batch batch;
    bench_decoder *peer; /* or another engine */
    bench_decoder_shape shape;
    double began, filled, ended; /* of a turn; filled: all prompts have their first token */
    double *prefills;            /* [rounds] */
    int64_t turns;
    int64_t *ids; /* [new tokens] of the first text, or NULL */
} player;

/* ---- a turn of ours -------------------------------------------------------------------------- */

static int take(void *user, const s24_new_token *token)
{
    player *p = user;
    p->ended = cli_seconds();
    if (token->index == 0) p->filled = p->ended;
    if (token->prompt == 0 && p->ids) p->ids[token->index] = token->id;
    return 0;
}

static s24_status run_once(player *p, double *step)
{
    const s24_generate_opts opts = {
        .size = sizeof opts, .max_new = p->plan->new_tokens, .token = take, .user = p};
    for (int64_t b = 0; b < p->batch.texts; b++) {
        const s24_status status = s24_cache_truncate(p->cache, p->cli->ctx, b, 0);
        if (status != S24_OK) return status;
    }
    p->began = cli_seconds();
    const s24_status status = s24_generate(p->session, p->cli->ctx, p->cache, &p->batch, &opts);
    *step = (p->ended - p->filled) / (double)(p->plan->new_tokens - 1);
    return status;
}

static void keep_prefill(player *p, double seconds)
{
    if (p->turns < p->plan->effort.rounds) p->prefills[p->turns++] = seconds;
}

static int ours_turn(cli_app *cli, void *state, double min_seconds, double *seconds)
{
    player *p = state;
    double step, sum = 0, start = cli_seconds();
    int64_t runs = 0;
    s24_status status;
    do {
        status = run_once(p, &step);
        if (runs++ == 0) keep_prefill(p, p->filled - p->began);
        sum += step;
    } while (status == S24_OK && cli_ranks_go_on(cli, cli_seconds() - start < min_seconds));
    *seconds = sum / (double)runs;
    return cli_status(cli, status);
}

static int peer_turn(cli_app *cli, void *state, double min_seconds, double *seconds)
{
    player *p = state;
    double step = 0, prefill = 0, sum = 0, start = cli_seconds();
    int64_t runs = 0;
    int code;
    do {
        code = bench_decoder_turn(cli, p->peer, &p->shape, &prefill, &step);
        if (runs++ == 0) keep_prefill(p, prefill);
        sum += step;
    } while (code == CLI_OK && cli_seconds() - start < min_seconds);
    *seconds = sum / (double)runs;
    return code;
}

/* ---- making them ----------------------------------------------------------------------------- */

static int player_make(cli_app *cli, player *p, const s24_model *model)
{
    const int64_t tokens = p->plan->prompt_tokens + p->plan->new_tokens;
    const int64_t pass = p->batch.texts * p->plan->prompt_tokens;
    const s24_cache_opts opts = {.size = sizeof opts,
                                 .texts = p->batch.texts,
                                 .tokens = tokens,
                                 .dtype = cli_cache_dtype(cli)};
    s24_status status = s24_session_create(&p->session, cli->ctx, model, pass < 2048 ? pass : 2048);
    if (status == S24_OK) status = s24_cache_create(&p->cache, cli->ctx, p->session, &opts);
    return cli_status(cli, status);
}

static void player_free(player *p)
{
    s24_cache_destroy(p->cache);
    s24_session_destroy(p->session);
    free(p->prefills);
}

/* The logits of the first text's last token. */
static s24_status first_logits(player *p, float *logits)
{
    const int64_t last = p->plan->prompt_tokens - 1, ends[2] = {0, last + 1};
    const s24_batch one = {.texts = 1, .offsets = ends, .ids = p->batch.ids};
    const s24_outputs outputs = {.logits = logits, .tokens = &last, .token_count = 1};
    return s24_session_extend(p->session, p->cli->ctx, p->cache, &(s24_extension){.batch = &one},
                              &outputs);
}

static int check_agree(cli_app *cli, player *dense, player *sparse, const s24_model_info *info,
                       const generate_row *row)
{
    const s24_dtype dtype = row->dtype;
    const int integers = strcmp(row->form, s24_dtype_name(dtype)) != 0;
    const int narrow = integers && s24_ctx_cpu(cli->ctx) & S24_CPU_AMX;
    const int64_t words = info->vocabulary;
    float *logits = malloc((size_t)(2 * words) * sizeof *logits);
    double most = 0, apart = 0;
    if (!logits) return cli_fail(cli, CLI_IO, "out of memory for the logits");
    s24_status status = first_logits(dense, logits);
    if (status == S24_OK) status = first_logits(sparse, logits + words);
    for (int64_t i = 0; i < words && status == S24_OK; i++) {
        most = fmax(most, fabs((double)logits[i]));
        apart = fmax(apart, fabs((double)logits[i] - (double)logits[words + i]));
    }
    free(logits);
    if (status != S24_OK) return cli_status(cli, status);
    /* Rounding errors of f32, else of activations, which on tiles next to integers are bf16. */
    const double bound = dtype == S24_F32    ? (narrow ? 5e-2 : 1e-3)
                         : dtype == S24_BF16 ? 5e-2
                         : dtype == S24_E4M3 ? 0.25
                                             : 0.15;
    if (apart <= bound * most) return CLI_OK;
    return cli_fail(cli, CLI_NO,
                    "logits are up to %g apart, dense and 2:4, of %g; no figure is given for a "
                    "wrong result",
                    apart, most);
}

/* ---- a row ----------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What a step reads: weights, and the keys and values of half of its new tokens. */
static int64_t step_bytes(const player *p)
{
    const bench_generate_plan *plan = p->plan;
    const int64_t room = plan->prompt_tokens + plan->new_tokens;
    const double used = (double)plan->prompt_tokens + 0.5 * (double)plan->new_tokens;
    return s24_session_read_bytes(p->session, p->batch.texts) +
           (int64_t)((double)s24_cache_bytes(p->cache) * used / (double)room);
}

static void keep(generate_side *side, player *p, const bench_turn *turn, double read)
{
    qsort(p->prefills, (size_t)p->turns, sizeof *p->prefills, compare);
    side->step = turn->times.median;
    side->prefill = p->prefills[p->turns / 2];
    if (!p->session) return;
    side->step_bytes = step_bytes(p);
    side->limit_share = (double)side->step_bytes / read / side->step;
}

enum { DENSE, SPARSE, PEER, PLAYERS };

/* Makes turns that read the memory; how many. */
static int read_turns(bench_turn turns[BENCH_READS], memory *m)
{
    if (!m->on_device.device) {
        bench_limit_turns(turns, &m->limits);
        return BENCH_READS;
    }
    turns[0] = bench_gpu_read_turn(&m->on_device);
    return 1;
}

static int measure(cli_app *cli, player players[PLAYERS], generate_row *row, memory *m)
{
    bench_turn turns[BENCH_READS + PLAYERS];
    generate_side *sides[PLAYERS] = {&row->dense, &row->sparse, &row->peer};
    const int reads = read_turns(turns, m), end = row->has_peer ? PLAYERS : PEER;
    const int first = row->alone ? SPARSE : DENSE;
    bench_turn *ours = turns + reads - first; /* by player */
    for (int i = first; i < PLAYERS; i++)
        ours[i] = (bench_turn){.window = i == PEER ? peer_turn : ours_turn, .state = &players[i]};
    const int code =
        bench_interleave(cli, turns, reads + end - first, &players[DENSE].plan->effort);
    if (code != CLI_OK) return code;
    row->read =
        m->on_device.device ? bench_gpu_read_rate(turns) : bench_limit_read(turns, &m->limits);
    for (int i = first; i < end; i++)
        keep(sides[i], &players[i], &ours[i], row->read);
    row->sparse_layers = s24_session_sparse_layers(players[SPARSE].session, row->batch);
    return CLI_OK;
}

/* Makes the players; what it makes is freed in any case. */
static int make_players(cli_app *cli, player players[PLAYERS], const bench_pair *m,
                        generate_row *row, bench_decoder *peer)
{
    const bench_generate_plan *plan = players[DENSE].plan;
    const s24_model *models[] = {m->dense, m->sparse};
    const model_residence *loaded[] = {&m->dense_residence, &m->sparse_residence};
    generate_side *sides[] = {&row->dense, &row->sparse};
    const int64_t lengths[2] = {plan->prompt_tokens, plan->prompt_tokens};
    int code = bench_batch_make(cli, &players[DENSE].batch, row->batch, lengths, &m->info);
    players[SPARSE].ids = row->ids;
    for (int i = row->alone ? SPARSE : DENSE; i < PEER && code == CLI_OK; i++) {
        const int64_t before = bench_private_bytes();
        double step;
        players[i].batch = players[DENSE].batch;
        code = player_make(cli, &players[i], models[i]);
        if (code == CLI_OK) code = cli_status(cli, run_once(&players[i], &step));
        if (cli->device)
            sides[i]->resident_bytes = loaded[i]->bytes + s24_cache_bytes(players[i].cache);
        else
            sides[i]->resident_bytes =
                before < 0 ? -1 : loaded[i]->bytes + bench_private_bytes() - before;
        for (int64_t b = 0; b < row->batch && code == CLI_OK; b++)
            code = cli_status(cli, s24_cache_truncate(players[i].cache, cli->ctx, b, 0));
    }
    if (code == CLI_OK && !row->alone)
        code = check_agree(cli, &players[DENSE], &players[SPARSE], &m->info, row);
    if (code != CLI_OK || !peer) return code;
    players[PEER].shape = (bench_decoder_shape){.info = &m->info,
                                                .kv_heads = s24_model_kv_heads(m->sparse),
                                                .form = row->form,
                                                .batch = row->batch,
                                                .threads = row->threads,
                                                .prompt = plan->prompt_tokens,
                                                .new_tokens = plan->new_tokens};
    code = bench_decoder_prepare(cli, peer, &players[PEER].shape, row->peer_type,
                                 &row->peer.resident_bytes);
    row->has_peer = row->peer_type[0] != 0;
    return code;
}

static void rows_free(generate_row *rows, int count)
{
    for (int i = 0; rows && i < count; i++)
        free(rows[i].ids);
    free(rows);
}

static int run_row(cli_app *cli, const bench_generate_plan *plan, const bench_pair *m,
                   generate_row *row, memory *of)
{
    player players[PLAYERS] = {{.cli = cli}};
    int code = CLI_OK;
    row->layers = m->info.linear_layers;
    row->alone = !m->dense;
    s24_ctx_set_threads(cli->ctx, (int)row->threads);
    for (int i = 0; i < PLAYERS; i++) {
        players[i] = (player){.cli = cli, .plan = plan, .peer = plan->peer};
        players[i].prefills = calloc((size_t)plan->effort.rounds, sizeof(double));
        if (!players[i].prefills) code = cli_fail(cli, CLI_IO, "out of memory for the times");
    }
    row->ids = calloc((size_t)plan->new_tokens, sizeof *row->ids);
    row->id_count = row->ids ? plan->new_tokens : 0;
    if (!row->ids) code = cli_fail(cli, CLI_IO, "out of memory for the new tokens");
    if (code == CLI_OK) code = make_players(cli, players, m, row, plan->peer);
    if (code == CLI_OK) code = measure(cli, players, row, of);
    bench_batch_free(cli, &players[DENSE].batch);
    for (int i = 0; i < PLAYERS; i++)
        player_free(&players[i]);
    return code;
}

/* ---- all rows -------------------------------------------------------------------------------- */

static int row_count(const bench_generate_plan *plan)
{
    return plan->dtype_count * plan->batch_count * plan->thread_count;
}

/* Dtypes turn slowest, as each needs a load of its own. */
static generate_row row_at(const bench_generate_plan *plan, int i)
{
    generate_row row = {.threads = plan->threads[i % plan->thread_count]};
    i /= plan->thread_count;
    row.batch = plan->batches[i % plan->batch_count];
    i /= plan->batch_count;
    row.dtype = plan->dtypes[i];
    row.form = plan->schemes[i] ? plan->schemes[i] : s24_dtype_name(row.dtype);
    return row;
}

static int check_model(cli_app *cli, const bench_generate_plan *plan, const s24_model_info *info)
{
    const int64_t tokens = plan->prompt_tokens + plan->new_tokens;
    if (tokens > info->positions)
        return cli_fail(cli, CLI_USAGE,
                        "options --prompt-tokens and --new: the model has %lld positions, not %lld",
                        (long long)info->positions, (long long)tokens);
    return CLI_OK;
}

static int run_rows(cli_app *cli, const bench_generate_plan *plan, const char *folder,
                    generate_row *rows, memory *of)
{
    const int count = row_count(plan);
    bench_pair m = {0};
    int code = CLI_OK;
    for (int i = 0; i < count && code == CLI_OK; i++) {
        rows[i] = row_at(plan, i);
        code = cli_status(cli, s24_ctx_progress(cli->ctx, "measuring", i, count));
        if (code == CLI_OK && (i == 0 || strcmp(rows[i].form, rows[i - 1].form) != 0)) {
            const char *scheme = plan->schemes[i / (plan->batch_count * plan->thread_count)];
            bench_pair_free(&m);
            code = cli_status(
                cli, bench_pair_load(&m, cli, &plan->source, folder, rows[i].dtype, scheme));
            if (code == CLI_OK) code = check_model(cli, plan, &m.info);
        }
        if (code == CLI_OK) code = run_row(cli, plan, &m, &rows[i], of);
        cli_progress_clear(cli);
        if (code == CLI_OK && !cli->json && i == 0) generate_print_head(plan, plan->peer);
        if (code == CLI_OK && !cli->json) generate_print_row(&rows[i], plan->peer);
    }
    bench_pair_free(&m);
    return code;
}

static int memory_open(cli_app *cli, memory *m, const bench_generate_plan *plan)
{
    if (cli->device) return bench_gpu_read_open(cli, &m->on_device, cli->device);
    bench_plan *of_limits = calloc(1, sizeof *of_limits);
    if (!of_limits) return cli_fail(cli, CLI_IO, "out of memory for the limits");
    of_limits->dtypes[0] = S24_F32;
    of_limits->threads[0] = plan->source.threads;
    of_limits->dtype_count = of_limits->thread_count = 1;
    const int code = bench_limits_measure(cli, &m->limits, of_limits);
    free(of_limits);
    return code;
}

static void memory_close(memory *m)
{
    bench_gpu_read_close(&m->on_device);
    bench_limits_free(&m->limits);
}

static int bench_folder(cli_app *cli, const void *opaque, const char *folder)
{
    const bench_generate_plan *plan = opaque;
    const int count = row_count(plan);
    generate_row *rows = calloc((size_t)count, sizeof *rows);
    memory of = {.limits = {0}};
    int code = rows ? CLI_OK : cli_fail(cli, CLI_IO, "out of memory for the rows");
    if (code == CLI_OK) code = memory_open(cli, &of, plan);
    if (code == CLI_OK) code = run_rows(cli, plan, folder, rows, &of);
    if (code == CLI_OK && plan->svg) code = generate_write_chart(cli, plan, rows, count);
    if (code == CLI_OK && cli->json) code = generate_print_json(cli, plan, plan->peer, rows, count);
    memory_close(&of);
    rows_free(rows, count);
    return code;
}

int bench_generate(cli_app *cli, const bench_generate_plan *asked)
{
    bench_generate_plan plan = *asked;
    bench_decoder peer = {.version = ""};
    s24_device *device; /* models are loaded to it */
    int code = cli_device(cli, &device);
    if (code == CLI_OK && !device && !cli->common->all_sparse) cli_choices_load(cli);
    if (code == CLI_OK && plan.python) {
        plan.peer = &peer;
        code = bench_decoder_open(cli, &peer, plan.python);
    }
    if (code == CLI_OK) code = bench_source_open(cli, &plan.source, bench_folder, &plan);
    bench_decoder_close(&peer);
    return code;
}
