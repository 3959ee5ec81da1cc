// SPDX-License-Identifier: Apache-2.0
/* eval --task lm: loss and perplexity of a language model on a text. */
#include <math.h>
#include <stdio.h>

#include "eval/eval.h"
#include "ids.h"
#include "model_checks.h"
#include "sparse24/task.h"
#include "sparse24/train.h"

enum { WINDOW = 1024 /* largest default */ };

typedef struct lm_parts {
    s24_model *model;
    s24_session *session;
    s24_tokenizer *tokenizer;
    s24_stream *stream;    /* of a text, */
    s24_id_lines *lines;   /* or lines of ids, end to end */
    const int32_t *tokens; /* of either */
    int64_t count;
    int64_t window, stride;
    double loss;       /* sum */
    int64_t predicted; /* tokens */
    int64_t longest;   /* tokens of the largest batch */
} lm_parts;

/*
 * Holds windows of a batch, end to end. A window begins `stride` tokens after the one before, and
 * what that one has predicted already is context only: target −1. A window's last token predicts
 * nothing in it, but where windows lie end to end: there it predicts the first of the next, which
 * has no context in its own, so that every token but the stream's first is predicted once, whatever
 * the stride.
 */
typedef struct lm_batch {
    int64_t offsets[EVAL_TOKENS + 1];
    int32_t ids[EVAL_TOKENS], targets[EVAL_TOKENS];
    int64_t windows, scored;
} lm_batch;

/* Where the stream stands: the next window's first token, and the next token to be predicted. */
typedef struct lm_place {
    int64_t begin, next;
} lm_place;

static void fill(lm_batch *batch, lm_place *at, const lm_parts *p)
{
    const int64_t all = p->count;
    const int64_t reach = p->stride < p->window ? p->window : p->window + 1;
    int64_t used = 0;
    batch->windows = batch->scored = batch->offsets[0] = 0;
    while (at->next < all && used + p->window <= EVAL_TOKENS) {
        const int64_t end = all - at->begin < reach ? all : at->begin + reach;
        for (int64_t i = at->begin; i < end - 1; i++, used++) {
            batch->ids[used] = p->tokens[i];
            batch->targets[used] = i + 1 < at->next ? -1 : p->tokens[i + 1];
        }
        batch->scored += end - at->next;
        batch->offsets[++batch->windows] = used;
        at->begin += p->stride;
        at->next = end;
    }
}

/* The mean loss of the batch's targets. */
static s24_status forward(double *loss, const lm_parts *p, cli_app *cli, const lm_batch *batch)
{
    const s24_batch texts = {.texts = batch->windows, .offsets = batch->offsets, .ids = batch->ids};
    const s24_outputs outputs = {.targets = batch->targets, .loss = loss};
    return s24_session_forward(p->session, cli->ctx, &texts, &outputs);
}

static s24_status run_batch(lm_parts *p, cli_app *cli, lm_place *at)
{
    lm_batch batch;
    double loss;
    fill(&batch, at, p);
    const s24_status status = forward(&loss, p, cli, &batch);
    if (status != S24_OK) return status;
    p->loss += loss * (double)batch.scored;
    p->predicted += batch.scored;
    const int64_t tokens = batch.offsets[batch.windows];
    if (tokens > p->longest) p->longest = tokens;
    return s24_ctx_progress(cli->ctx, "tokens", p->predicted, p->count - 1);
}

static int read_window(lm_parts *p, cli_app *cli, const struct eval_options *o, int64_t positions)
{
    const int64_t most = positions < EVAL_TOKENS ? positions : EVAL_TOKENS;
    p->window = o->max_tokens ? o->max_tokens : most < WINDOW ? most : WINDOW;
    p->stride = o->stride ? o->stride : p->window;
    if (p->window > most)
        return cli_fail(cli, CLI_USAGE, "--max-tokens %lld: the most here are %lld",
                        (long long)p->window, (long long)most);
    if (p->stride > p->window)
        return cli_fail(cli, CLI_USAGE,
                        "--stride %lld: windows of %lld tokens would leave some out; 1 to %lld is "
                        "expected",
                        (long long)p->stride, (long long)p->window, (long long)p->window);
    return CLI_OK;
}

static int read_ids(lm_parts *p, cli_app *cli, const char *path, int64_t vocabulary)
{
    const ids_source source = {.path = path, .vocabulary = vocabulary, .allow_empty = 1};
    const int code = ids_read(cli, &p->lines, &source);
    if (code != CLI_OK) return code;
    const s24_batch all = s24_id_lines_batch(p->lines);
    p->tokens = all.ids;
    p->count = all.offsets[all.texts];
    return p->count ? CLI_OK : cli_fail(cli, CLI_FORMAT, "%s: there is no token id in it", path);
}

static int read_text(lm_parts *p, cli_app *cli, const char *path, int64_t vocabulary)
{
    int code = cli_status(cli, s24_tokenizer_load(&p->tokenizer, cli->ctx, cli->operands[0]));
    if (code != CLI_OK) return code;
    code = model_takes_tokenizer(cli, p->tokenizer, vocabulary);
    if (code != CLI_OK) return code;
    const s24_status status = s24_stream_read(&p->stream, cli->ctx, p->tokenizer, &path, 1);
    p->tokens = s24_stream_tokens(p->stream);
    p->count = s24_stream_count(p->stream);
    return cli_status(cli, status);
}

/* What can be known before the weights are read. */
static int prepare(lm_parts *p, cli_app *cli, const struct eval_options *o,
                   const s24_transformer_info *info)
{
    int code = read_window(p, cli, o, info->positions);
    if (code == CLI_OK) code = (o->ids ? read_ids : read_text)(p, cli, o->data, info->vocabulary);
    if (code == CLI_OK && p->count < 2)
        code = cli_fail(cli, CLI_FORMAT, "%s has one token; two at least are expected", o->data);
    return code;
}

static int load(lm_parts *p, cli_app *cli, const struct eval_options *o)
{
    s24_model_opts opts;
    s24_transformer_info info;
    s24_checkpoint *checkpoint = NULL;
    int code = eval_model_opts(cli, &opts, o);
    if (code == CLI_OK) code = model_open_language(cli, &checkpoint, &info);
    if (code == CLI_OK) code = prepare(p, cli, o, &info);
    if (code == CLI_OK)
        code = cli_status(cli, s24_model_load(&p->model, cli->ctx, checkpoint, &opts));
    s24_checkpoint_close(checkpoint);
    if (code != CLI_OK) return code;
    return cli_status(cli, s24_session_create(&p->session, cli->ctx, p->model, EVAL_TOKENS));
}

static int measure(lm_parts *p, cli_app *cli)
{
    lm_place at = {.begin = 0, .next = 1};
    int code = CLI_OK;
    while (code == CLI_OK && at.next < p->count)
        code = cli_status(cli, run_batch(p, cli, &at));
    return code;
}

/* Of ids nobody knows how many bytes they stand for. */
static int print(cli_app *cli, const lm_parts *p, double seconds)
{
    const double loss = p->loss / (double)p->predicted, perplexity = exp(loss);
    const int64_t bytes = s24_stream_bytes(p->stream);
    const double bits = p->stream ? p->loss / log(2) / (double)bytes : NAN;
    if (cli->json) {
        json_t *object = cli_json();
        json_object_set_new(object, "loss", cli_real(loss));
        json_object_set_new(object, "perplexity", cli_real(perplexity));
        json_object_set_new(object, "bits_per_byte", cli_real(bits));
        json_object_set_new(object, "tokens", json_integer(p->count));
        json_object_set_new(object, "bytes", p->stream ? json_integer(bytes) : json_null());
        json_object_set_new(object, "stride", json_integer(p->stride));
        json_object_set_new(object, "seconds", cli_real(seconds));
        return cli_json_print(cli, object);
    }
    char of_bytes[64] = "", bytes_of[32] = "";
    if (p->stream) {
        snprintf(of_bytes, sizeof of_bytes, "  %.4f bits a byte", bits);
        snprintf(bytes_of, sizeof bytes_of, ", %lld bytes", (long long)bytes);
    }
    cli_print(cli, "loss %.4f  perplexity %.3f%s  (%lld tokens%s, %.1f s)", loss, perplexity,
              of_bytes, (long long)p->count, bytes_of, seconds);
    encode_model_note(cli, p->model, p->session, p->longest);
    return CLI_OK;
}

static int run(cli_app *cli, const struct eval_options *o)
{
    lm_parts p = {0};
    if (!o->data) return cli_fail(cli, CLI_USAGE, "--task lm needs --data FILE");
    int code = load(&p, cli, o);
    const double start = cli_seconds();
    if (code == CLI_OK) code = measure(&p, cli);
    if (code == CLI_OK) code = print(cli, &p, cli_seconds() - start);
    s24_stream_destroy(p.stream);
    s24_id_lines_destroy(p.lines);
    s24_tokenizer_destroy(p.tokenizer);
    s24_session_destroy(p.session);
    s24_model_destroy(p.model);
    return code;
}

const eval_task eval_lm = {"lm", run};
