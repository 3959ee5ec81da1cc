// SPDX-License-Identifier: Apache-2.0
/* The routes of models with a head that classifies: rerankers, in the shapes of
   text-embeddings-inference and of Cohere, and classes of texts. Of a request's JSON only the texts
   stay until it is answered: the rest could be many times as large as the body. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "classes.h"
#include "serve/serve.h"

/* ---- reading --------------------------------------------------------------------------------- */

/* A text, which stays for the request. */
static s24_text keep_text(serve_request *r, json_t *value)
{
    const s24_text text = {json_string_value(value), json_string_length(value)};
    if (json_array_append(r->texts, value))
        serve_refuse(r, 503, NULL, "the server is out of memory");
    r->kept += text.bytes;
    return text;
}

static int is_asked(const serve_request *r, const char *key)
{
    return json_is_true(json_object_get(r->json, key));
}

/* Makes room for a job of so many texts, each with a pair where there are any. */
static int make_job(serve_request *r, const char *key, int64_t count)
{
    serve_job *job = &r->job;
    const int64_t most = r->model->most_waiting;
    if (count < 1 || count > most) {
        serve_refuse(r, count ? 413 : 422, key, "%s has %lld texts; 1 to %lld are taken at once",
                     key, (long long)count, (long long)most);
        return 0;
    }
    r->texts = json_array();
    job->texts = count;
    job->offsets = calloc((size_t)count + 1, sizeof *job->offsets);
    job->vectors = calloc((size_t)(count * r->model->width), sizeof *job->vectors);
    job->read = calloc(2 * (size_t)count, sizeof *job->read);
    if (job->offsets && job->vectors && job->read) return 1;
    serve_refuse(r, 503, NULL, "the server is out of memory");
    return 0;
}

/* Refuses what is longer than the model takes, where the request asks so; the worker cuts it. */
static int check_lengths(serve_request *r, const char *key)
{
    const serve_model *m = r->model;
    const s24_text_pairs *p = &r->job.pairs;
    int truncate = 1;
    const int late = m->late; /* it reads each by itself */
    if (!serve_read_flag(r, "truncate", &truncate) || !serve_read_direction(r)) return 0;
    for (int64_t i = 0; i < p->count && !truncate; i++) {
        const s24_text text = late && p->pairs ? p->pairs[i] : p->texts[p->same_text ? 0 : i];
        const s24_text pair = p->pairs && !late ? p->pairs[i] : (s24_text){NULL, 0};
        int64_t count;
        if (s24_tokenizer_encode(r->reader->tokens, &count, m->max_tokens + 1, m->tokenizer,
                                 r->reader->ctx, text.data, text.bytes, pair.data,
                                 pair.bytes) != S24_OK) {
            serve_refuse(r, 422, key, "text %lld: %s", (long long)i, s24_ctx_error(r->reader->ctx));
            return 0;
        }
        if (count <= m->max_tokens) continue;
        serve_refuse(r, 422, key, "text %lld has more than %lld tokens", (long long)i,
                     (long long)m->max_tokens);
        return 0;
    }
    return 1;
}

/* Cohere's documents may be objects that have a text. */
static json_t *document_of(json_t *value)
{
    return json_is_object(value) ? json_object_get(value, "text") : value;
}

void serve_rerank(serve_request *r)
{
    if (!serve_read_json(r) || !serve_read_model(r, SERVE_CLASSIFIER)) return;
    json_t *query = json_object_get(r->json, "query");
    r->cohere = json_object_get(r->json, "documents") != NULL;
    const char *key = r->cohere ? "documents" : "texts";
    const json_t *list = json_object_get(r->json, key);
    if (!json_is_string(query)) {
        serve_refuse(r, 422, "query", "query is a text");
        return;
    }
    if (r->model->width != 1) {
        serve_refuse(r, 422, "model", "%s is no reranker: its head has %lld classes, not one",
                     r->model->name, (long long)r->model->width);
        return;
    }
    if (!json_is_array(list)) {
        serve_refuse(r, 422, key, "%s is a list of texts", key);
        return;
    }
    if (!make_job(r, key, (int64_t)json_array_size(list))) return;
    r->best = r->job.texts;
    r->raw_scores = is_asked(r, "raw_scores");
    r->gives_texts = is_asked(r, r->cohere ? "return_documents" : "return_text");
    if (!serve_read_count(r, "top_n", &r->best, INT64_MAX)) return;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *document = document_of(json_array_get(list, i));
        if (!json_is_string(document)) {
            serve_refuse(r, 422, key, "%s: element %zu is no text", key, i);
            return;
        }
        r->job.read[i + (size_t)r->job.texts] = keep_text(r, document);
    }
    r->job.read[0] = keep_text(r, query);
    r->job.pairs = (s24_text_pairs){.count = r->job.texts,
                                    .texts = r->job.read,
                                    .pairs = r->job.read + r->job.texts,
                                    .same_text = 1};
    check_lengths(r, key);
}

/* A text alone, or two of them. Returns how many there are, 0: it is neither. */
static int read_pair(s24_text pair[2], serve_request *r, json_t *value)
{
    const int one = json_is_string(value);
    const size_t count = one ? 1 : json_array_size(value);
    if (count < 1 || count > 2) return 0;
    for (size_t i = 0; i < count; i++) {
        json_t *text = one ? value : json_array_get(value, i);
        if (!json_is_string(text)) return 0;
        pair[i] = keep_text(r, text);
    }
    return (int)count;
}

void serve_predict(serve_request *r)
{
    if (!serve_read_json(r) || !serve_read_model(r, SERVE_CLASSIFIER)) return;
    json_t *inputs = json_object_get(r->json, "inputs");
    r->raw_scores = is_asked(r, "raw_scores");
    r->single = json_is_string(inputs);
    const int64_t count = r->single ? 1 : (int64_t)json_array_size(inputs);
    if (!make_job(r, "inputs", count)) return;
    int kind = 0;
    for (int64_t i = 0; i < count; i++) {
        s24_text pair[2] = {{0}};
        json_t *value = r->single ? inputs : json_array_get(inputs, (size_t)i);
        const int found = read_pair(pair, r, value);
        if (!found || (kind && found != kind)) {
            serve_refuse(r, 422, "inputs",
                         "inputs: a text, texts, or lists of two texts are "
                         "expected, all alike; element %lld is not",
                         (long long)i);
            return;
        }
        kind = found;
        r->job.read[i] = pair[0];
        r->job.read[count + i] = pair[1];
    }
    r->job.pairs = (s24_text_pairs){
        .count = count, .texts = r->job.read, .pairs = kind == 2 ? r->job.read + count : NULL};
    check_lengths(r, "inputs");
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct scored {
    int64_t index;
    double score;
} scored;

/* The best first, equal ones as they came. */
static int by_score(const void *a, const void *b)
{
    const scored *left = a, *right = b;
    if (left->score != right->score) return left->score > right->score ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

static json_t *result_json(const serve_request *r, const scored *s)
{
    const s24_text *text = &r->job.pairs.pairs[s->index];
    json_t *result = json_object(), *words = json_stringn(text->data, text->bytes);
    json_object_set_new(result, "index", json_integer(s->index));
    json_object_set_new(result, r->cohere ? "relevance_score" : "score", cli_real(s->score));
    if (r->cohere && r->gives_texts)
        json_object_set_new(result, "document", json_pack("{s:O}", "text", words));
    if (!r->cohere && r->gives_texts) json_object_set(result, "text", words);
    json_decref(words);
    return result;
}

void serve_write_rerank(serve_request *r)
{
    const int64_t count = r->job.texts;
    scored *all = calloc((size_t)count, sizeof *all);
    if (!all) {
        serve_refuse(r, 503, NULL, "the server is out of memory");
        return;
    }
    json_t *results = json_array();
    for (int64_t i = 0; i < count; i++) {
        const double logit = (double)r->job.vectors[i];
        all[i] = (scored){i, r->raw_scores ? logit : score_of(r->model->encoder, logit)};
    }
    qsort(all, (size_t)count, sizeof *all, by_score);
    for (int64_t i = 0; i < count && i < r->best; i++)
        json_array_append_new(results, result_json(r, &all[i]));
    free(all);
    if (!r->cohere) {
        serve_put_json(&r->answer, results);
        return;
    }
    json_t *object = json_object();
    json_object_set_new(object, "model", json_string(r->model->name));
    json_object_set_new(object, "results", results);
    serve_put_json(&r->answer, object);
}

static int put_classes(serve_request *r, int64_t text, scored *all)
{
    const int64_t classes = r->model->width;
    const float *logits = r->job.vectors + text * classes;
    double *shares = calloc((size_t)classes, sizeof *shares);
    if (!shares) return 0;
    shares_of(shares, logits, classes, 0);
    for (int64_t c = 0; c < classes; c++)
        all[c] = (scored){c, r->raw_scores ? (double)logits[c] : shares[c]};
    free(shares);
    qsort(all, (size_t)classes, sizeof *all, by_score);
    json_t *list = json_array();
    for (int64_t c = 0; c < classes; c++) {
        json_t *class = json_object();
        json_object_set_new(class, "score", cli_real(all[c].score));
        json_object_set_new(class, "label",
                            json_string(s24_encoder_label(r->model->encoder, all[c].index)));
        json_array_append_new(list, class);
    }
    serve_put_json(&r->answer, list);
    return 1;
}

/* Writes the classes of a text, the likeliest first, or a list of these. */
void serve_write_predict(serve_request *r)
{
    scored *all = calloc((size_t)r->model->width, sizeof *all);
    int good = all != NULL;
    serve_puts(&r->answer, r->single ? "" : "[");
    for (int64_t i = 0; i < r->job.texts && good; i++) {
        serve_puts(&r->answer, i ? "," : "");
        good = put_classes(r, i, all);
    }
    serve_puts(&r->answer, r->single ? "" : "]");
    free(all);
    if (!good) serve_refuse(r, 503, NULL, "the server is out of memory");
}
