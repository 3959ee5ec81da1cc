// SPDX-License-Identifier: Apache-2.0
/* Runs sparse24 search: finds the lines of a file nearest to a query by meaning. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "encode.h"

struct search_options {
    cli_common common;
    const char *documents, *query, *dtype, *query_prompt, *document_prompt;
    int64_t k, max_tokens;
};

static const cli_option options[] = {{"documents", 0, CLI_TEXT,
                                      offsetof(struct search_options, documents), "FILE", NULL,
                                      "UTF-8; every line is a document.", NULL},
                                     {"query", 0, CLI_TEXT, offsetof(struct search_options, query),
                                      "TEXT", NULL, "What to look for.", NULL},
                                     {"count", 'k', CLI_COUNT, offsetof(struct search_options, k),
                                      "N", "5", "How many lines to show.", NULL},
                                     ENCODE_QUERY_PROMPT(struct search_options),
                                     ENCODE_DOCUMENT_PROMPT(struct search_options),
                                     ENCODE_DTYPE(struct search_options),
                                     ENCODE_MAX_TOKENS(struct search_options),
                                     CLI_SPARSE,
                                     CLI_DENSE,
                                     {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {{CLI_NEEDED, "documents query", NULL, NULL},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 search model-24 --documents manual.txt --query 'wait for a child process'",
     "The five nearest lines."},
    {"sparse24 search model-24 --documents notes.txt --query 'tax' -k 1 --json",
     "The nearest one, for a program."},
    {NULL, NULL}};

/* Holds documents and query, whose vectors they are. */
typedef struct sides {
    embedded documents, query;
} sides;

/* Prints a line of a file: data where it goes on to a program, talk where it goes to a terminal. */
static void hit_line(cli_app *cli, int64_t rank, double score, int64_t number, const s24_text *text)
{
    cli_progress_clear(cli);
    printf("%lld  %.4f  line %lld  ", (long long)rank, score, (long long)number);
    if (isatty(STDOUT_FILENO))
        cli_escaped(stdout, text->data, text->bytes);
    else
        fwrite(text->data, 1, text->bytes, stdout);
    putchar('\n');
}

static int print_hits(cli_app *cli, const sides *s, const int64_t *lines, const float *scores,
                      int64_t k)
{
    const embedded *documents = &s->documents;
    json_t *hits = json_array();
    for (int64_t i = 0; i < k; i++) {
        const s24_text *text = &s24_lines_texts(documents->lines)[lines[i]];
        if (!cli->json) {
            hit_line(cli, i + 1, (double)scores[i], lines[i], text);
            continue;
        }
        json_t *hit = json_object();
        json_object_set_new(hit, "line", json_integer(lines[i]));
        json_object_set_new(hit, "score", cli_real((double)scores[i]));
        json_object_set_new(hit, "text", json_stringn(text->data, text->bytes));
        json_array_append_new(hits, hit);
    }
    if (!cli->json) {
        json_decref(hits);
        return CLI_OK;
    }
    json_t *object = cli_json();
    json_object_set_new(object, "hits", hits);
    if (s->query.prompt) json_object_set(object, "query_prompt", s->query.prompt);
    if (s->documents.prompt) json_object_set(object, "document_prompt", s->documents.prompt);
    return cli_json_print(cli, object);
}

static int find(cli_app *cli, const sides *s, int64_t k)
{
    if (k > s->documents.count) k = s->documents.count;
    int64_t *lines = calloc((size_t)k + 1, sizeof *lines);
    float *scores = calloc((size_t)k + 1, sizeof *scores);
    int code = CLI_OK;
    if (!lines || !scores)
        code = cli_fail(cli, CLI_IO, "out of memory for %lld hits", (long long)k);
    s24_dense queries = embedded_view(&s->query), all = embedded_view(&s->documents);
    if (code == CLI_OK && k > 0)
        code = cli_status(cli, s24_nearest(lines, scores, cli->ctx, &queries, &all, k));
    if (code == CLI_OK) code = print_hits(cli, s, lines, scores, k);
    free(lines);
    free(scores);
    return code;
}

/* Embeds the query first, so that a wrong name of either prompt is said before the long work. */
static int encode(cli_app *cli, const struct search_options *o, s24_encoder *encoder, sides *s)
{
    const encode_prompt of_query = {"query", encode_query_names, o->query_prompt, NULL};
    const encode_prompt of_documents = {"documents", encode_document_names, o->document_prompt,
                                        NULL};
    const s24_text text = {o->query, strlen(o->query)};
    int code = encode_use_prompt(cli, encoder, &of_query, &s->query);
    if (code == CLI_OK) code = encode_texts(cli, encoder, &text, 1, &s->query);
    if (code == CLI_OK) code = encode_use_prompt(cli, encoder, &of_documents, &s->documents);
    return code == CLI_OK ? encode_file(cli, encoder, o->documents, &s->documents) : code;
}

static int run(cli_app *cli, const void *opaque)
{
    const struct search_options *o = opaque;
    s24_encoder *encoder = NULL;
    sides s = {.query = {0}};
    int code = encode_open(cli, &encoder, o->dtype, o->max_tokens, 0);
    if (code == CLI_OK) code = encode(cli, o, encoder, &s);
    if (code == CLI_OK) code = find(cli, &s, o->k);
    embedded_free(&s.documents);
    embedded_free(&s.query);
    s24_encoder_close(encoder);
    return code;
}

const cli_command cmd_search = {
    .name = "search",
    .summary = "find the lines of a file that are nearest to a query",
    .operands = "MODEL",
    .text =
        "Embeds every line of the documents and the query with the encoder MODEL, and prints "
        "rank, score (dot product of the vectors), line (from 0) and text of the nearest. On a "
        "terminal control characters in a text are shown as escapes; a pipe or file gets the text "
        "as it is.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct search_options),
    .spare = "documents",
    .gpu = 1,
    .run = run,
};
