// SPDX-License-Identifier: Apache-2.0
/* Runs sparse24 search: finds the lines of a file nearest to a query by meaning. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "classes.h"
#include "index/index.h"
#include "spread.h"
#include "weighed.h"

struct search_options {
    cli_common common;
    const char *documents, *query, *index, *index_dtype, *dtype, *query_prompt, *document_prompt;
    const char *reranker, *pooling, *images;
    int64_t k, max_tokens, candidates, dimensions;
};

static const char *stored_dtype(int index)
{
    static const s24_dtype list[] = {S24_F16, S24_I8, S24_DTYPE_NONE};
    return cli_dtype_at(list, index);
}

static const cli_option options[] = {
    {"documents", 0, CLI_TEXT, offsetof(struct search_options, documents), "FILE", NULL,
     "UTF-8; every line is a document.", NULL},
    {"images", 0, CLI_TEXT, offsetof(struct search_options, images), "FOLDER", NULL,
     "Find the JPEG and PNG files of a folder, as of sparse24 embed --images, in place of lines.",
     NULL},
    {"query", 0, CLI_TEXT, offsetof(struct search_options, query), "TEXT", NULL,
     "What to look for.", NULL},
    {"count", 'k', CLI_COUNT, offsetof(struct search_options, k), "N", "5",
     "How many lines to show.", NULL},
    {"rerank", 0, CLI_TEXT, offsetof(struct search_options, reranker), "MODEL2", NULL,
     "Let this reranker order the nearest lines; scores are its "
     "own, as of sparse24 rerank.",
     NULL},
    {"candidates", 0, CLI_COUNT, offsetof(struct search_options, candidates), "N", "50",
     "How many of the nearest lines --rerank reads.", NULL},
    {"index", 0, CLI_TEXT, offsetof(struct search_options, index), "FOLDER", NULL,
     "Keep the documents' vectors here, and embed only lines that "
     "are new.",
     NULL},
    {"index-dtype", 0, CLI_CHOICE, offsetof(struct search_options, index_dtype), NULL, NULL,
     "Of a new index: f16, the default, or i8 next to it, which "
     "finds the same in less time.",
     stored_dtype},
    ENCODE_QUERY_PROMPT(struct search_options),
    ENCODE_DOCUMENT_PROMPT(struct search_options),
    ENCODE_DTYPE(struct search_options),
    ENCODE_MAX_TOKENS(struct search_options),
    ENCODE_POOLING(struct search_options),
    ENCODE_DIMENSIONS(struct search_options),
    CLI_SPARSE,
    CLI_DENSE,
    CLI_VERIFY,
    {NULL, 0, CLI_FLAG, 0, NULL, NULL, NULL, NULL}};

static const cli_rule rules[] = {{CLI_NEEDED, "query", NULL, NULL},
                                 {CLI_ONE_OF, "documents images", NULL, NULL},
                                 {CLI_NOT_WITH, "images", "rerank", NULL},
                                 {CLI_NOT_WITH, "images", "index", NULL},
                                 {CLI_ONLY_WITH, "index-dtype", "index", NULL},
                                 {CLI_ONE_OF, NULL, NULL, NULL}};

static const cli_example examples[] = {
    {"sparse24 search model-24 --documents manual.txt --query 'wait for a child process'",
     "The five nearest lines."},
    {"sparse24 search model-24 --documents manual.txt --query 'fork' --rerank reranker-24",
     "The five best of the fifty nearest lines."},
    {"sparse24 search model-24 --documents notes.txt --query 'tax' -k 1 --json",
     "The nearest one, for a program."},
    {"sparse24 search model-24 --documents notes.txt --index notes.index --query 'tax'",
     "Embeds the lines that are new since the last time."},
    {"sparse24 search clip --images photos --query 'a dog on a beach'",
     "The five nearest images, by their files."},
    {NULL, NULL}};

/* Holds documents and query, whose vectors they are. */
typedef struct sides {
    embedded documents, query;
    s24_images *images;         /* in place of documents' lines */
    weighed words, query_words; /* in place of vectors, of a model that gives them */
    ranked *ranks;              /* or what a model of late interaction makes of the lines */
    stored_index index; /* that holds the documents' vectors, where its folder is not NULL */
} sides;

static json_t *index_json(const stored_index *index)
{
    json_t *object = json_object();
    json_object_set_new(object, "count", json_integer(index->count));
    json_object_set_new(object, "embedded", json_integer(index->embedded));
    json_object_set_new(object, "dtype", json_string(index_dtype(index)));
    return object;
}

static int print_hits(cli_app *cli, const sides *s, const int64_t *lines, const float *scores,
                      int64_t k)
{
    const embedded *documents = &s->documents;
    json_t *hits = json_array();
    for (int64_t i = 0; i < k; i++) {
        const char *file = s24_images_file(s->images, lines[i]);
        const s24_text name = {file, file ? strlen(file) : 0};
        const s24_text *text = file ? &name : &s24_lines_texts(documents->lines)[lines[i]];
        show_hit(cli, hits, (double)scores[i], lines[i], text);
    }
    if (!cli->json) {
        json_decref(hits);
        return CLI_OK;
    }
    json_t *object = cli_json();
    json_object_set_new(object, "hits", hits);
    if (s->query.prompt) json_object_set(object, "query_prompt", s->query.prompt);
    if (s->documents.prompt) json_object_set(object, "document_prompt", s->documents.prompt);
    if (s->index.folder) json_object_set_new(object, "index", index_json(&s->index));
    return cli_json_print(cli, object);
}

/* The nearest lines in the reranker's order, with its scores. */
static int rerank(cli_app *cli, const struct search_options *o, const sides *s, int64_t *lines,
                  float *scores, int64_t count)
{
    s24_encoder *encoder = NULL;
    ranked *all = calloc((size_t)count + 1, sizeof *all);
    if (!all) return cli_fail(cli, CLI_IO, "out of memory for %lld lines", (long long)count);
    for (int64_t i = 0; i < count; i++)
        all[i].index = lines[i];
    int code = rank_open(cli, &encoder, o->reranker, o->dtype, 0);
    if (code == CLI_OK)
        code =
            rank_documents(cli, encoder, o->query, s24_lines_texts(s->documents.lines), all, count);
    for (int64_t i = 0; code == CLI_OK && i < count; i++) {
        lines[i] = all[i].index;
        scores[i] = (float)score_of(encoder, (double)all[i].logit);
    }
    s24_encoder_close(encoder);
    free(all);
    return code;
}

/* By weights of words, of the lines or of the index. */
static int find_by_words(cli_app *cli, const sides *s, int64_t *lines, float *scores, int64_t k)
{
    const int stored = s->index.folder != NULL;
    postings p = {0};
    int code = CLI_OK;
    if (stored) {
        p = index_postings(&s->index);
        p.room = malloc((size_t)p.texts * sizeof *p.room);
        if (!p.room)
            code = cli_fail(cli, CLI_IO, "out of memory for %lld scores", (long long)p.texts);
    } else {
        code = postings_make(cli, &p, &s->words);
    }
    if (code == CLI_OK && postings_nearest(lines, scores, &p, &s->query_words, 0, k) >= 0)
        code = cli_fail(cli, CLI_FORMAT,
                        "%s/lines.npy: 0 to %lld are expected; remove the folder to make it anew",
                        s->index.folder, (long long)p.texts - 1);
    if (stored)
        free(p.room);
    else
        postings_free(&p);
    return code;
}

static int find_nearest(cli_app *cli, const sides *s, int64_t *lines, float *scores, int64_t k)
{
    const s24_dense queries = embedded_view(&s->query), all = embedded_view(&s->documents);
    if (k < 1) return CLI_OK;
    for (int64_t i = 0; s->ranks && i < k; i++) {
        lines[i] = s->ranks[i].index;
        scores[i] = s->ranks[i].logit;
    }
    if (s->ranks) return CLI_OK;
    if (s->query_words.count) return find_by_words(cli, s, lines, scores, k);
    return cli_status(cli, s->index.folder
                               ? index_nearest(lines, scores, cli->ctx, &s->index, &queries, k)
                               : s24_nearest(lines, scores, cli->ctx, &queries, &all, k));
}

static int find(cli_app *cli, const struct search_options *o, const sides *s)
{
    const int64_t all_lines = s->documents.count;
    const int64_t wanted = o->reranker && o->candidates > o->k ? o->candidates : o->k;
    const int64_t near = wanted < all_lines ? wanted : all_lines, k = o->k < near ? o->k : near;
    int64_t *lines = calloc((size_t)near + 1, sizeof *lines);
    float *scores = calloc((size_t)near + 1, sizeof *scores);
    int code = CLI_OK;
    if (!lines || !scores)
        code = cli_fail(cli, CLI_IO, "out of memory for %lld hits", (long long)near);
    if (code == CLI_OK) code = find_nearest(cli, s, lines, scores, near);
    if (code == CLI_OK && o->reranker) code = rerank(cli, o, s, lines, scores, near);
    if (code == CLI_OK) code = print_hits(cli, s, lines, scores, k);
    free(lines);
    free(scores);
    return code;
}

/* Reads the documents, whose vectors the index has or gets. */
static int open_index(cli_app *cli, const struct search_options *o, s24_encoder *encoder, sides *s)
{
    embedded *d = &s->documents;
    int code = cli_status(cli, s24_lines_read(&d->lines, cli->ctx, o->documents));
    if (code != CLI_OK) return code;
    d->count = s24_lines_count(d->lines);
    const index_source source = {.encoder = encoder,
                                 .prompt = s24_encoder_prompt(encoder, NULL),
                                 .max_tokens = s24_encoder_max_tokens(encoder),
                                 .texts = s24_lines_texts(d->lines),
                                 .count = d->count,
                                 .dtype = o->index_dtype};
    code = index_open(cli, &s->index, o->index, &source);
    if (code == CLI_OK)
        cli_note(cli, "%lld of %lld lines were new to %s", (long long)s->index.embedded,
                 (long long)d->count, o->index);
    return code;
}

static int weigh_documents(cli_app *cli, const struct search_options *o, s24_encoder *encoder,
                           sides *s)
{
    const int code = weigh_file(cli, encoder, o->documents, 0, &s->words);
    s->documents.lines = s->words.lines;
    s->documents.count = s->words.count;
    s->words.lines = NULL;
    return code;
}

/* Ranks the lines by the vectors of tokens that the index has. */
static int rank_stored(cli_app *cli, const stored_index *index, const spread *query, ranked *all)
{
    const s24_late_texts of = spread_view(query), documents = index_tokens(index);
    float *scores = calloc((size_t)index->count + 1, sizeof *scores);
    if (!scores)
        return cli_fail(cli, CLI_IO, "out of memory for %lld scores", (long long)index->count);
    const int code =
        cli_status(cli, s24_late_scores(scores, cli->ctx, &of, &documents, index->by_mean));
    for (int64_t i = 0; i < index->count; i++)
        all[i] = (ranked){i, scores[i]};
    rank_sort(all, index->count);
    free(scores);
    return code;
}

/* By late interaction, of vectors that the index has, or that are not kept. */
static int rank_by_tokens(cli_app *cli, const struct search_options *o, s24_encoder *encoder,
                          sides *s, const s24_text *query, const encode_prompt *of_documents)
{
    spread of_query = {.lines = NULL};
    embedded *d = &s->documents;
    int code = spread_texts(cli, encoder, query, 1, &of_query);
    if (code == CLI_OK) code = encode_use_prompt(cli, encoder, of_documents, d);
    if (code == CLI_OK)
        code = o->index ? open_index(cli, o, encoder, s)
                        : cli_status(cli, s24_lines_read(&d->lines, cli->ctx, o->documents));
    d->count = s24_lines_count(d->lines);
    s->ranks = calloc((size_t)d->count + 1, sizeof *s->ranks);
    if (code == CLI_OK && !s->ranks)
        code = cli_fail(cli, CLI_IO, "out of memory for %lld lines", (long long)d->count);
    if (code == CLI_OK)
        code = o->index ? rank_stored(cli, &s->index, &of_query, s->ranks)
                        : spread_rank(cli, encoder, &of_query, s24_lines_texts(d->lines), s->ranks,
                                      d->count);
    spread_free(&of_query);
    return code;
}

/* Embeds the query first, so that a wrong name of either prompt is said before the long work. */
static int encode(cli_app *cli, const struct search_options *o, s24_encoder *encoder, sides *s)
{
    const encode_prompt of_query = {"query", encode_query_names, o->query_prompt, NULL};
    const encode_prompt of_documents = {"documents", encode_document_names, o->document_prompt,
                                        NULL};
    const s24_text text = {o->query, strlen(o->query)};
    const int weighs = s24_encoder_weighs(encoder);
    if (weighs && (o->index_dtype || o->images))
        return cli_fail(cli, CLI_UNSUPPORTED, "--%s is of vectors, and %s gives weights of words",
                        o->images ? "images" : "index-dtype", cli->operands[0]);
    if (s24_encoder_is_late(encoder) && (o->index_dtype || o->images))
        return cli_fail(cli, CLI_UNSUPPORTED,
                        "--%s is of one vector for each line, and %s gives one for each token",
                        o->images ? "images" : "index-dtype", cli->operands[0]);
    int code = encode_use_prompt(cli, encoder, &of_query, &s->query);
    if (code == CLI_OK && s24_encoder_is_late(encoder))
        return rank_by_tokens(cli, o, encoder, s, &text, &of_documents);
    if (code == CLI_OK)
        code = weighs ? weigh_texts(cli, encoder, &text, 1, 0, &s->query_words)
                      : encode_texts(cli, encoder, &text, 1, &s->query);
    if (code != CLI_OK || o->images) return code;
    code = encode_use_prompt(cli, encoder, &of_documents, &s->documents);
    if (code != CLI_OK) return code;
    if (o->index) return open_index(cli, o, encoder, s);
    return weighs ? weigh_documents(cli, o, encoder, s)
                  : encode_file(cli, encoder, o->documents, &s->documents);
}

/* Images go through the folder's other model. */
static int encode_all_images(cli_app *cli, const struct search_options *o, sides *s)
{
    s24_encoder *encoder = NULL;
    const s24_encoder_opts opts = {.size = sizeof opts, .dimensions = o->dimensions, .images = 1};
    int code = encode_open(cli, &encoder, o->dtype, &opts);
    if (code == CLI_OK) code = encode_images(cli, encoder, o->images, &s->images, &s->documents);
    s24_encoder_close(encoder);
    return code;
}

static int run(cli_app *cli, const void *opaque)
{
    const struct search_options *o = opaque;
    s24_encoder *encoder = NULL;
    sides s = {.query = {0}};
    const s24_encoder_opts opts = {.size = sizeof opts,
                                   .max_tokens = o->max_tokens,
                                   .pooling = o->pooling,
                                   .dimensions = o->dimensions};
    if (!o->documents && !o->images)
        return cli_fail(cli, CLI_USAGE, "search needs --documents FILE or --images FOLDER");
    int code = encode_open(cli, &encoder, o->dtype, &opts);
    if (code == CLI_OK) code = encode(cli, o, encoder, &s);
    if (code == CLI_OK && o->images) code = encode_all_images(cli, o, &s);
    if (code == CLI_OK) code = find(cli, o, &s);
    index_close(&s.index);
    s24_images_destroy(s.images);
    embedded_free(&s.documents);
    embedded_free(&s.query);
    weighed_free(&s.words);
    weighed_free(&s.query_words);
    free(s.ranks);
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
        "as it is. With --index the vectors are kept in a folder, and a line that is there already "
        "is not embedded again. With --images, of a model that has both, files of images are "
        "found. A model that gives weights of words (SPLADE) scores by the products of those that "
        "both texts have, and one of late interaction (ColBERT) by the sum, over the query's "
        "tokens, of the "
        "largest product with a token of the line.",
    .examples = examples,
    .options = options,
    .rules = rules,
    .options_bytes = sizeof(struct search_options),
    .spare = "documents",
    .gpu = 1,
    .run = run,
};
