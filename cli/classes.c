// SPDX-License-Identifier: Apache-2.0
/* Scores pairs of texts for rerank and search, and opens models with a head. */
#include "classes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int classes_open(cli_app *cli, s24_encoder **encoder, const char *folder, const char *dtype,
                 int64_t max_tokens)
{
    s24_encoder_opts opts = {.size = sizeof opts, .max_tokens = max_tokens, .head = 1};
    const int code = cli_model_opts(cli, &opts.model, dtype);
    if (code != CLI_OK) return code;
    return cli_status(cli, s24_encoder_open(encoder, cli->ctx, folder, &opts));
}

int rank_open(cli_app *cli, s24_encoder **encoder, const char *folder, const char *dtype,
              int64_t max_tokens)
{
    const int code = classes_open(cli, encoder, folder, dtype, max_tokens);
    if (code != CLI_OK) return code;
    const int64_t classes = s24_encoder_classes(*encoder);
    if (classes == 1 && !s24_encoder_classifies_tokens(*encoder)) return CLI_OK;
    return cli_fail(cli, CLI_UNSUPPORTED,
                    "%s: its head has %lld %s of %s; a reranker, which scores pairs of texts, has "
                    "one",
                    folder, (long long)classes, cli_plural(classes, "class", "classes"),
                    s24_encoder_classifies_tokens(*encoder) ? "tokens" : "texts");
}

double sigmoid_of(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

double score_of(const s24_encoder *encoder, double logit)
{
    return s24_encoder_scores_plainly(encoder) ? logit : sigmoid_of(logit);
}

void shares_of(double *shares, const float *logits, int64_t classes, int together)
{
    double most = (double)logits[0], sum = 0;
    for (int64_t i = 1; i < classes; i++)
        most = fmax(most, (double)logits[i]);
    for (int64_t i = 0; i < classes; i++)
        sum += exp((double)logits[i] - most);
    for (int64_t i = 0; i < classes; i++)
        shares[i] = together || classes == 1 ? sigmoid_of((double)logits[i])
                                             : exp((double)logits[i] - most) / sum;
}

/* The best first, equal ones as they came. */
static int by_logit(const void *a, const void *b)
{
    const ranked *left = a, *right = b;
    if (left->logit != right->logit) return left->logit > right->logit ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

void rank_sort(ranked *all, int64_t count)
{
    qsort(all, (size_t)count, sizeof *all, by_logit);
}

int rank_documents(cli_app *cli, s24_encoder *encoder, const char *query, const s24_text *documents,
                   ranked *all, int64_t count)
{
    const s24_text text = {query, strlen(query)};
    s24_text *pairs = calloc((size_t)count + 1, sizeof *pairs);
    float *logits = calloc((size_t)count + 1, sizeof *logits);
    int code = CLI_OK;
    if (!pairs || !logits)
        code = cli_fail(cli, CLI_IO, "out of memory for %lld pairs", (long long)count);
    for (int64_t i = 0; code == CLI_OK && i < count; i++)
        pairs[i] = documents[all[i].index];
    const s24_text_pairs of = {.count = count, .texts = &text, .pairs = pairs, .same_text = 1};
    if (code == CLI_OK)
        code = cli_status(cli, s24_encoder_classify(logits, NULL, encoder, cli->ctx, &of));
    for (int64_t i = 0; code == CLI_OK && i < count; i++)
        all[i].logit = logits[i];
    if (code == CLI_OK) rank_sort(all, count);
    free(pairs);
    free(logits);
    return code;
}

static void print_hit(cli_app *cli, int64_t rank, double score, int64_t number,
                      const s24_text *text)
{
    cli_progress_clear(cli);
    printf("%lld  %.4f  line %lld  ", (long long)rank, score, (long long)number);
    if (isatty(STDOUT_FILENO))
        cli_escaped(stdout, text->data, text->bytes);
    else
        fwrite(text->data, 1, text->bytes, stdout);
    putchar('\n');
}

json_t *show_hit(cli_app *cli, json_t *hits, double score, int64_t number, const s24_text *text)
{
    json_t *hit = json_object();
    if (!cli->json) print_hit(cli, (int64_t)json_array_size(hits) + 1, score, number, text);
    json_object_set_new(hit, "line", json_integer(number));
    json_object_set_new(hit, "score", cli_real(score));
    json_object_set_new(hit, "text", json_stringn(text->data, text->bytes));
    json_array_append_new(hits, hit);
    return hit;
}
