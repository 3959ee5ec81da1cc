// SPDX-License-Identifier: Apache-2.0
/* eval --task retrieval: how well an encoder finds the document that belongs to a query. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"

enum { TOP = 5 }; /* of top5 */

static int gold_line(cli_app *cli, const char *path, int64_t line, const s24_text *text,
                     int64_t documents, int64_t *value)
{
    char number[24], *end = number;
    long long parsed = -1;
    if (text->bytes > 0 && text->bytes < sizeof number) {
        memcpy(number, text->data, text->bytes);
        number[text->bytes] = '\0';
        errno = 0;
        parsed = strtoll(number, &end, 10);
    }
    if (end == number || *end || errno || parsed < 0 || parsed >= documents)
        return cli_fail(cli, CLI_FORMAT,
                        "%s: line %lld: '%.*s' is not the number of a document, 0 to %lld", path,
                        (long long)line, text->bytes > 40 ? 40 : (int)text->bytes, text->data,
                        (long long)documents - 1);
    *value = parsed;
    return CLI_OK;
}

static int read_gold(cli_app *cli, const char *path, int64_t queries, int64_t documents,
                     int64_t **gold)
{
    s24_lines *lines = NULL;
    int code = cli_status(cli, s24_lines_read(&lines, cli->ctx, path));
    if (code != CLI_OK) return code;
    int64_t count = s24_lines_count(lines);
    if (count != queries || queries == 0)
        code = cli_fail(cli, CLI_FORMAT,
                        "%s has %lld %s; expected one for each query, of which "
                        "there %s %lld",
                        path, (long long)count, cli_plural(count, "line", "lines"),
                        cli_plural(queries, "is", "are"), (long long)queries);
    *gold = calloc((size_t)count + 1, sizeof **gold);
    if (code == CLI_OK && !*gold) code = cli_fail(cli, CLI_IO, "out of memory for %s", path);
    for (int64_t i = 0; i < count && code == CLI_OK; i++)
        code = gold_line(cli, path, i, &s24_lines_texts(lines)[i], documents, &(*gold)[i]);
    s24_lines_destroy(lines);
    return code;
}

static int print_accuracy(cli_app *cli, const embedded *queries, const embedded *documents,
                          const int64_t *gold)
{
    s24_dense q = embedded_view(queries), d = embedded_view(documents);
    double top1 = 0, top5 = 0;
    s24_status status = s24_retrieval_accuracy(&top1, cli->ctx, &q, &d, gold, 1);
    if (status == S24_OK) status = s24_retrieval_accuracy(&top5, cli->ctx, &q, &d, gold, TOP);
    if (status != S24_OK) return cli_status(cli, status);
    if (cli->json) {
        json_t *object = cli_json();
        json_object_set_new(object, "top1", cli_real(100 * top1));
        json_object_set_new(object, "top5", cli_real(100 * top5));
        if (queries->prompt) json_object_set(object, "query_prompt", queries->prompt);
        if (documents->prompt) json_object_set(object, "document_prompt", documents->prompt);
        return cli_json_print(cli, object);
    }
    if (documents->count <= TOP)
        cli_note(cli, "every document is among the %d nearest, as there are no more", TOP);
    cli_print(cli, "top-1 %.2f %%  top-5 %.2f %%  (%lld %s, %lld %s)", 100 * top1, 100 * top5,
              (long long)queries->count, cli_plural(queries->count, "query", "queries"),
              (long long)documents->count, cli_plural(documents->count, "document", "documents"));
    return CLI_OK;
}

/* The documents' prompt is set twice: a wrong name is said before the long work. */
static int encode_both(cli_app *cli, const struct eval_options *o, s24_encoder *encoder,
                       embedded *queries, embedded *documents)
{
    const encode_prompt of_queries = {"queries", encode_query_names, o->query_prompt, NULL};
    const encode_prompt of_documents = {"documents", encode_document_names, o->document_prompt,
                                        NULL};
    int code = encode_use_prompt(cli, encoder, &of_documents, documents);
    if (code == CLI_OK) code = encode_use_prompt(cli, encoder, &of_queries, queries);
    if (code == CLI_OK)
        code = encode_texts(cli, encoder, s24_lines_texts(queries->lines),
                            s24_lines_count(queries->lines), queries);
    if (code == CLI_OK) code = encode_use_prompt(cli, encoder, &of_documents, documents);
    if (code != CLI_OK) return code;
    return encode_texts(cli, encoder, s24_lines_texts(documents->lines),
                        s24_lines_count(documents->lines), documents);
}

static int run(cli_app *cli, const struct eval_options *o)
{
    if (!o->queries || !o->documents || !o->gold)
        return cli_fail(cli, CLI_USAGE, "--task retrieval needs --queries, --documents and --gold");
    s24_encoder *encoder = NULL;
    embedded queries = {0}, documents = {0};
    int64_t *gold = NULL;
    const s24_encoder_opts opts = {.size = sizeof opts,
                                   .max_tokens = o->max_tokens,
                                   .pooling = o->pooling,
                                   .dimensions = o->dimensions};
    int code = encode_open(cli, &encoder, o->dtype, &opts);
    if (code == CLI_OK)
        code = cli_status(cli, s24_lines_read(&queries.lines, cli->ctx, o->queries));
    if (code == CLI_OK)
        code = cli_status(cli, s24_lines_read(&documents.lines, cli->ctx, o->documents));
    /* The small file first: a wrong one is said before the long work. */
    if (code == CLI_OK && !s24_lines_count(documents.lines))
        code = cli_fail(cli, CLI_FORMAT, "--documents %s has no line", o->documents);
    if (code == CLI_OK)
        code = read_gold(cli, o->gold, s24_lines_count(queries.lines),
                         s24_lines_count(documents.lines), &gold);
    if (code == CLI_OK) code = encode_both(cli, o, encoder, &queries, &documents);
    if (code == CLI_OK) code = print_accuracy(cli, &queries, &documents, gold);
    free(gold);
    embedded_free(&queries);
    embedded_free(&documents);
    s24_encoder_close(encoder);
    return code;
}

const eval_task eval_retrieval = {"retrieval", run};
