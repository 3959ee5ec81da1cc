// SPDX-License-Identifier: Apache-2.0
/* eval --task lm: loss and perplexity of a language model on a text. */
#include <math.h>
#include <stdio.h>

#include "eval/eval.h"
#include "sparse24/task.h"

enum { WINDOW = 1024 /* largest default */ };

typedef struct lm_parts {
    s24_transformer *transformer;
    s24_tokenizer *tokenizer;
    s24_stream *stream;
    int64_t window;
    double loss;       /* sum */
    int64_t predicted; /* tokens */
} lm_parts;

/* The windows that fit a batch from token `first` on. Each token but the stream's last is read once
   and predicts the next one. *first goes behind them. */
static s24_status run_batch(lm_parts *p, cli_app *cli, int64_t *first)
{
    int64_t offsets[EVAL_TOKENS + 1] = {0};
    int32_t targets[EVAL_TOKENS];
    const int32_t *tokens = s24_stream_tokens(p->stream) + *first;
    const int64_t left = s24_stream_count(p->stream) - 1 - *first;
    s24_batch texts = {.offsets = offsets, .ids = tokens};
    double loss;
    const s24_pass_outputs outputs = {.loss = &loss};
    int64_t count = 0;
    while (count < left && count + p->window <= EVAL_TOKENS) {
        count = left - count < p->window ? left : count + p->window;
        offsets[++texts.texts] = count;
    }
    for (int64_t i = 0; i < count; i++)
        targets[i] = tokens[i + 1];
    const s24_examples examples = {.texts = texts, .targets = targets};
    const s24_status status =
        s24_transformer_forward(p->transformer, cli->ctx, &examples, &outputs);
    if (status != S24_OK) return status;
    p->loss += loss * (double)count;
    p->predicted += count;
    *first += count;
    return s24_ctx_progress(cli->ctx, "tokens", *first, s24_stream_count(p->stream) - 1);
}

static int load(lm_parts *p, cli_app *cli, const struct eval_options *o)
{
    s24_transformer_info info;
    int code = eval_transformer(cli, &p->transformer, o, S24_HEAD_LM,
                                "a language model, whose head gives the next token");
    if (code == CLI_OK)
        code = cli_status(cli, s24_tokenizer_load(&p->tokenizer, cli->ctx, cli->operands[0]));
    if (code != CLI_OK) return code;
    s24_transformer_describe(&info, p->transformer);
    const int64_t most = info.positions < EVAL_TOKENS ? info.positions : EVAL_TOKENS;
    p->window = o->max_tokens ? o->max_tokens : most < WINDOW ? most : WINDOW;
    if (p->window > most)
        return cli_fail(cli, CLI_USAGE, "--max-tokens %lld: the most here are %lld",
                        (long long)p->window, (long long)most);
    if (s24_tokenizer_vocabulary(p->tokenizer) > info.vocabulary)
        return cli_fail(cli, CLI_FORMAT,
                        "%s: the tokenizer's ids go up to %d, but the model has %lld",
                        cli->operands[0], (int)s24_tokenizer_vocabulary(p->tokenizer) - 1,
                        (long long)info.vocabulary);
    return CLI_OK;
}

static int measure(lm_parts *p, cli_app *cli, const char *path)
{
    int code = cli_status(cli, s24_stream_read(&p->stream, cli->ctx, p->tokenizer, &path, 1));
    if (code == CLI_OK && s24_stream_count(p->stream) < 2)
        code = cli_fail(cli, CLI_FORMAT, "%s has one token; two at least are expected", path);
    for (int64_t at = 0; code == CLI_OK && at < s24_stream_count(p->stream) - 1;)
        code = cli_status(cli, run_batch(p, cli, &at));
    return code;
}

static int print(cli_app *cli, const lm_parts *p, double seconds)
{
    const double loss = p->loss / (double)p->predicted, perplexity = exp(loss);
    const int64_t tokens = s24_stream_count(p->stream), bytes = s24_stream_bytes(p->stream);
    const double bits = p->loss / log(2) / (double)bytes;
    if (cli->json) {
        json_t *object = cli_json();
        json_object_set_new(object, "loss", cli_real(loss));
        json_object_set_new(object, "perplexity", cli_real(perplexity));
        json_object_set_new(object, "bits_per_byte", cli_real(bits));
        json_object_set_new(object, "tokens", json_integer(tokens));
        json_object_set_new(object, "bytes", json_integer(bytes));
        json_object_set_new(object, "seconds", cli_real(seconds));
        return cli_json_print(cli, object);
    }
    cli_print(cli,
              "loss %.4f  perplexity %.3f  %.4f bits a byte  (%lld tokens, %lld bytes, %.1f s)",
              loss, perplexity, bits, (long long)tokens, (long long)bytes, seconds);
    return CLI_OK;
}

static int run(cli_app *cli, const struct eval_options *o)
{
    lm_parts p = {0};
    if (!o->data) return cli_fail(cli, CLI_USAGE, "--task lm needs --data FILE");
    int code = load(&p, cli, o);
    const double start = cli_seconds();
    if (code == CLI_OK) code = measure(&p, cli, o->data);
    if (code == CLI_OK) code = print(cli, &p, cli_seconds() - start);
    s24_stream_destroy(p.stream);
    s24_tokenizer_destroy(p.tokenizer);
    s24_transformer_destroy(p.transformer);
    return code;
}

const eval_task eval_lm = {"lm", run};
