// SPDX-License-Identifier: Apache-2.0
/* Runs sparse24 rerank: orders the lines of a file by how well they answer a query. */
#include <stdlib.h>

#include "classes.h"
#include "encode.h"

struct rerank_options {
    cli_common common;
    const char *documents, *query, *dtype;
    int64_t k, max_tokens;
    int raw;
};

static const cli_option options[] = {
    {"documents", 0, CLI_TEXT, offsetof(struct rerank_options, documents), "FILE|-", NULL,
     "UTF-8; every line is a document. - is standard input.", NULL},
    {"query", 0, CLI_TEXT, offsetof(struct rerank_options, query), "TEXT", NULL,
     "What documents are to answer.", NULL},
    {"count", 'k', CLI_COUNT, offsetof(struct rerank_options, k), "N", NULL,
     "How many lines to show. By default all.", NULL},
    {"raw", 0, CLI_FLAG, offsetof(struct rerank_options, raw), NULL, NULL,
     "Show what the head gives, without a sigmoid.", NULL},
    ENCODE_DTYPE(struct rerank_options),
    ENCODE_MAX_TOKENS(struct rerank_options),
    CLI_SPARSE,
    CLI_DENSE,
    CLI_VERIFY,
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {{CLI_NEEDED, "documents query", NULL, NULL},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 rerank reranker-24 --query 'wait for a child process' --documents found.txt",
     "All lines of a file, the best first."},
    {"grep tax notes.txt | sparse24 rerank reranker-24 --query 'tax is due' --documents - -k 3",
     "The three best of what another program has found."},
    {NULL, NULL}};

static int print_all(cli_app *cli, const struct rerank_options *o, const s24_encoder *encoder,
                     const s24_text *texts, const ranked *all, int64_t count)
{
    json_t *hits = json_array();
    for (int64_t i = 0; i < count; i++) {
        const s24_text *text = &texts[all[i].index];
        const double logit = (double)all[i].logit,
                     score = o->raw ? logit : score_of(encoder, logit);
        json_t *hit = show_hit(cli, hits, score, all[i].index, text);
        json_object_set_new(hit, "logit", cli_real(logit));
    }
    if (!cli->json) {
        json_decref(hits);
        return CLI_OK;
    }
    json_t *object = cli_json();
    json_object_set_new(object, "hits", hits);
    return cli_json_print(cli, object);
}

static int rerank(cli_app *cli, const struct rerank_options *o, s24_encoder *encoder,
                  const s24_lines *lines)
{
    const int64_t count = s24_lines_count(lines);
    ranked *all = calloc((size_t)count + 1, sizeof *all);
    if (!all) return cli_fail(cli, CLI_IO, "out of memory for %lld documents", (long long)count);
    for (int64_t i = 0; i < count; i++)
        all[i].index = i;
    int code = rank_documents(cli, encoder, o->query, s24_lines_texts(lines), all, count);
    if (code == CLI_OK)
        code = print_all(cli, o, encoder, s24_lines_texts(lines), all,
                         o->k && o->k < count ? o->k : count);
    free(all);
    return code;
}

static int run(cli_app *cli, const void *opaque)
{
    const struct rerank_options *o = opaque;
    s24_encoder *encoder = NULL;
    s24_lines *lines = NULL;
    int code = rank_open(cli, &encoder, cli->operands[0], o->dtype, o->max_tokens);
    if (code == CLI_OK) code = cli_status(cli, s24_lines_read(&lines, cli->ctx, o->documents));
    if (code == CLI_OK) code = rerank(cli, o, encoder, lines);
    if (code == CLI_OK) encode_choice_note(cli, encoder);
    s24_lines_destroy(lines);
    s24_encoder_close(encoder);
    return code;
}

const cli_command cmd_rerank = {
    .name = "rerank",
    .summary = "order the lines of a file by how well they answer a query",
    .operands = "MODEL",
    .text =
        "Reads the query together with every line of the documents by MODEL, a reranker (sequence "
        "classification with one class, or a language model that answers by a token), and prints "
        "rank, score (the sigmoid of what the head "
        "gives), line (from 0) and text, the best first. A model of late interaction (ColBERT) "
        "reads both by themselves, and scores by the nearest of their tokens' vectors. That is "
        "slower than search and sees "
        "more; search --rerank has both in one go.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct rerank_options),
    .spare = "documents",
    .run = run,
};
