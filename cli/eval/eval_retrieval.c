// SPDX-License-Identifier: Apache-2.0
/* eval --task retrieval: how well an encoder finds the document that belongs to a query. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"
#include "postings.h"
#include "spread.h"

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

/* Both sides, by vectors, by weights of words or by vectors of tokens. */
typedef struct sides {
    embedded queries, documents;
    weighed query_words, document_words;
    spread query_tokens, document_tokens;
    int weighs, late, by_mean;
} sides;

static int accuracy_of_words(cli_app *cli, const sides *s, const int64_t *gold, double *top1,
                             double *top5)
{
    const int64_t count = s->document_words.count, k = count < TOP ? count : TOP;
    int64_t lines[TOP], hits[2] = {0};
    float scores[TOP];
    postings p = {0};
    const int code = postings_make(cli, &p, &s->document_words);
    for (int64_t q = 0; code == CLI_OK && q < s->query_words.count; q++) {
        (void)postings_nearest(lines, scores, &p, &s->query_words, q, k);
        hits[0] += lines[0] == gold[q];
        for (int64_t i = 0; i < k; i++)
            hits[1] += lines[i] == gold[q];
    }
    *top1 = (double)hits[0] / (double)s->query_words.count;
    *top5 = (double)hits[1] / (double)s->query_words.count;
    postings_free(&p);
    return code;
}

/* A document's rank is how many have a greater score, or the same and come before it. */
static int accuracy_of_tokens(cli_app *cli, const sides *s, const int64_t *gold, double *top1,
                              double *top5)
{
    const s24_late_texts q = spread_view(&s->query_tokens), d = spread_view(&s->document_tokens);
    float *scores = calloc((size_t)d.texts, sizeof *scores);
    int64_t hits[2] = {0};
    int code = scores ? CLI_OK
                      : cli_fail(cli, CLI_IO, "out of memory for %lld scores", (long long)d.texts);
    for (int64_t i = 0; code == CLI_OK && i < q.texts; i++) {
        s24_late_texts one = q;
        const int64_t offsets[2] = {0, q.offsets[i + 1] - q.offsets[i]};
        int64_t before = 0;
        one.vectors.data = s->query_tokens.vectors + q.offsets[i] * s->query_tokens.width;
        one.vectors.rows = offsets[1];
        one.offsets = offsets;
        one.texts = 1;
        code = cli_status(cli, s24_late_scores(scores, cli->ctx, &one, &d, s->by_mean));
        for (int64_t t = 0; t < d.texts; t++)
            before += scores[t] > scores[gold[i]] || (scores[t] == scores[gold[i]] && t < gold[i]);
        hits[0] += before < 1;
        hits[1] += before < TOP;
    }
    *top1 = (double)hits[0] / (double)q.texts;
    *top5 = (double)hits[1] / (double)q.texts;
    free(scores);
    return code;
}

static int accuracy_of_vectors(cli_app *cli, const sides *s, const int64_t *gold, double *top1,
                               double *top5)
{
    s24_dense q = embedded_view(&s->queries), d = embedded_view(&s->documents);
    s24_status status = s24_retrieval_accuracy(top1, cli->ctx, &q, &d, gold, 1);
    if (status == S24_OK) status = s24_retrieval_accuracy(top5, cli->ctx, &q, &d, gold, TOP);
    return cli_status(cli, status);
}

static int print_accuracy(cli_app *cli, const sides *s, const int64_t *gold)
{
    const json_t *query_prompt = s->queries.prompt, *document_prompt = s->documents.prompt;
    const int64_t queries = s24_lines_count(s->queries.lines);
    const int64_t documents = s24_lines_count(s->documents.lines);
    double top1 = 0, top5 = 0;
    const int code = (s->weighs ? accuracy_of_words
                      : s->late ? accuracy_of_tokens
                                : accuracy_of_vectors)(cli, s, gold, &top1, &top5);
    if (code != CLI_OK) return code;
    if (cli->json) {
        json_t *object = cli_json();
        json_object_set_new(object, "top1", cli_real(100 * top1));
        json_object_set_new(object, "top5", cli_real(100 * top5));
        if (query_prompt) json_object_set(object, "query_prompt", s->queries.prompt);
        if (document_prompt) json_object_set(object, "document_prompt", s->documents.prompt);
        return cli_json_print(cli, object);
    }
    if (documents <= TOP)
        cli_note(cli, "every document is among the %d nearest, as there are no more", TOP);
    cli_print(cli, "top-1 %.2f %%  top-5 %.2f %%  (%lld %s, %lld %s)", 100 * top1, 100 * top5,
              (long long)queries, cli_plural(queries, "query", "queries"), (long long)documents,
              cli_plural(documents, "document", "documents"));
    return CLI_OK;
}

/* Vectors of one side's lines or of their tokens, or weights of words. */
static int encode_side(cli_app *cli, s24_encoder *encoder, embedded *vectors, weighed *words,
                       spread *tokens)
{
    const s24_text *texts = s24_lines_texts(vectors->lines);
    const int64_t count = s24_lines_count(vectors->lines);
    if (s24_encoder_is_late(encoder)) return spread_texts(cli, encoder, texts, count, tokens);
    return s24_encoder_weighs(encoder) ? weigh_texts(cli, encoder, texts, count, 0, words)
                                       : encode_texts(cli, encoder, texts, count, vectors);
}

/* The documents' prompt is set twice: a wrong name is said before the long work. */
static int encode_both(cli_app *cli, const struct eval_options *o, s24_encoder *encoder, sides *s)
{
    const encode_prompt of_queries = {"queries", encode_query_names, o->query_prompt, NULL};
    const encode_prompt of_documents = {"documents", encode_document_names, o->document_prompt,
                                        NULL};
    s->weighs = s24_encoder_weighs(encoder);
    s->late = s24_encoder_is_late(encoder);
    s->by_mean = s24_encoder_scores_by_mean(encoder);
    int code = encode_use_prompt(cli, encoder, &of_documents, &s->documents);
    if (code == CLI_OK) code = encode_use_prompt(cli, encoder, &of_queries, &s->queries);
    if (code == CLI_OK)
        code = encode_side(cli, encoder, &s->queries, &s->query_words, &s->query_tokens);
    if (code == CLI_OK) code = encode_use_prompt(cli, encoder, &of_documents, &s->documents);
    return code == CLI_OK
               ? encode_side(cli, encoder, &s->documents, &s->document_words, &s->document_tokens)
               : code;
}

static int run(cli_app *cli, const struct eval_options *o)
{
    if (!o->queries || !o->documents || !o->gold)
        return cli_fail(cli, CLI_USAGE, "--task retrieval needs --queries, --documents and --gold");
    s24_encoder *encoder = NULL;
    sides s = {.weighs = 0};
    int64_t *gold = NULL;
    const s24_encoder_opts opts = {.size = sizeof opts,
                                   .max_tokens = o->max_tokens,
                                   .pooling = o->pooling,
                                   .dimensions = o->dimensions};
    int code = encode_open(cli, &encoder, o->dtype, &opts);
    if (code == CLI_OK)
        code = cli_status(cli, s24_lines_read(&s.queries.lines, cli->ctx, o->queries));
    if (code == CLI_OK)
        code = cli_status(cli, s24_lines_read(&s.documents.lines, cli->ctx, o->documents));
    /* The small file first: a wrong one is said before the long work. */
    if (code == CLI_OK && !s24_lines_count(s.documents.lines))
        code = cli_fail(cli, CLI_FORMAT, "--documents %s has no line", o->documents);
    if (code == CLI_OK)
        code = read_gold(cli, o->gold, s24_lines_count(s.queries.lines),
                         s24_lines_count(s.documents.lines), &gold);
    if (code == CLI_OK) code = encode_both(cli, o, encoder, &s);
    if (code == CLI_OK) code = print_accuracy(cli, &s, gold);
    free(gold);
    embedded_free(&s.queries);
    embedded_free(&s.documents);
    weighed_free(&s.query_words);
    weighed_free(&s.document_words);
    spread_free(&s.query_tokens);
    spread_free(&s.document_tokens);
    s24_encoder_close(encoder);
    return code;
}

const eval_task eval_retrieval = {"retrieval", run};
