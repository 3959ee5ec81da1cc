// SPDX-License-Identifier: Apache-2.0
/* The routes that embed: what they ask of a model, and how they answer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/serve.h"

/* ---- reading -------------------------------------------------------------------------------- */

/* Texts, or images where the model reads images. */
static int read_either(serve_request *r, const char *key, const json_t *value)
{
    const json_t *first = json_is_array(value) ? json_array_get(value, 0) : value;
    if (r->model->images && (serve_is_image(first) || !r->model->tokenizer))
        return serve_read_images(r, key, value);
    return serve_read_texts(r, key, value);
}

static void read_vectors(serve_request *r, const char *key)
{
    if (serve_read_json(r) && serve_read_model(r, SERVE_ENCODER) && serve_read_vectors(r))
        read_either(r, key, json_object_get(r->json, key));
}

void serve_embeddings(serve_request *r)
{
    read_vectors(r, "input");
}

void serve_embed(serve_request *r)
{
    read_vectors(r, "inputs");
}

void serve_embed_sparse(serve_request *r)
{
    if (serve_read_json(r) && serve_read_model(r, SERVE_WORDS))
        serve_read_texts(r, "inputs", json_object_get(r->json, "inputs"));
}

void serve_similarity(serve_request *r)
{
    if (!serve_read_json(r) || !serve_read_model(r, SERVE_ENCODER)) return;
    const json_t *inputs = json_object_get(r->json, "inputs");
    json_t *source = json_object_get(inputs, "source_sentence");
    json_t *sentences = json_object_get(inputs, "sentences");
    if (!json_is_string(source) || !json_is_array(sentences)) {
        serve_refuse(r, 422, "inputs",
                     "inputs has a text source_sentence and a list of texts sentences");
        return;
    }
    json_t *all = json_array();
    json_array_append(all, source);
    json_array_extend(all, sentences);
    read_either(r, "inputs", all);
    json_decref(all);
}

void serve_search(serve_request *r)
{
    int64_t count = 5;
    if (!serve_read_json(r)) return;
    r->model = r->set->searched;
    if (!r->model) {
        serve_refuse(r, 404, NULL, "the server was started without --documents");
        return;
    }
    if (!serve_read_count(r, "k", &count, 1000)) return;
    serve_job *job = &r->job;
    const int64_t lines = r->model->documents.count;
    if (!read_either(r, "inputs", json_object_get(r->json, "inputs"))) return;
    job->nearest = count < lines ? count : lines;
    job->lines = calloc((size_t)(job->texts * job->nearest) + 1, sizeof *job->lines);
    job->scores = calloc((size_t)(job->texts * job->nearest) + 1, sizeof *job->scores);
    if (!job->lines || !job->scores) serve_refuse(r, 503, NULL, "the server is out of memory");
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Brings the first of a vector's elements to length one. */
static void normalise(float *vector, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)vector[i] * (double)vector[i];
    for (int64_t i = 0; i < count && sum > 0; i++)
        vector[i] = (float)((double)vector[i] / sqrt(sum));
}

static void put_vector(serve_request *r, int64_t text)
{
    float *vector = r->job.vectors + text * r->model->width;
    serve_text *to = &r->answer;
    if (r->normalise) normalise(vector, r->dimensions);
    if (r->base64) {
        serve_puts(to, "\"");
        serve_put_base64(to, vector, (size_t)r->dimensions * sizeof *vector);
        serve_puts(to, "\"");
        return;
    }
    for (int64_t i = 0; i < r->dimensions; i++) {
        serve_put(to, i ? "," : "[", 1);
        serve_put_number(to, vector[i]);
    }
    serve_puts(to, "]");
}

void serve_write_openai(serve_request *r)
{
    serve_text *to = &r->answer;
    serve_puts(to, "{\"object\":\"list\",\"data\":[");
    for (int64_t i = 0; i < r->job.texts; i++) {
        serve_printf(to, "%s{\"object\":\"embedding\",\"index\":%lld,\"embedding\":", i ? "," : "",
                     (long long)i);
        put_vector(r, i);
        serve_puts(to, "}");
    }
    serve_puts(to, "],\"model\":");
    serve_put_json(to, json_string(r->model->name));
    serve_printf(to, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}}",
                 (long long)r->tokens, (long long)r->tokens);
}

void serve_write_embed(serve_request *r)
{
    for (int64_t i = 0; i < r->job.texts; i++) {
        serve_puts(&r->answer, i ? "," : "[");
        put_vector(r, i);
    }
    serve_puts(&r->answer, "]");
}

typedef struct word {
    int32_t id;
    float weight;
} word;

static int by_id(const void *a, const void *b)
{
    const word *one = a, *other = b;
    return (one->id > other->id) - (one->id < other->id);
}

/* Writes a list of words by their ids for each text. */
void serve_write_sparse(serve_request *r)
{
    const weighed *all = &r->job.words;
    serve_text *to = &r->answer;
    word *words = calloc((size_t)r->model->width, sizeof *words);
    to->failed |= !words;
    for (int64_t i = 0; i < all->count && words; i++) {
        const int64_t first = all->offsets[i], count = all->offsets[i + 1] - first;
        for (int64_t w = 0; w < count; w++)
            words[w] = (word){all->ids[first + w], all->weights[first + w]};
        qsort(words, (size_t)count, sizeof *words, by_id);
        serve_puts(to, i ? ",[" : "[[");
        for (int64_t w = 0; w < count; w++) {
            serve_printf(to, "%s{\"index\":%d,\"value\":", w ? "," : "", (int)words[w].id);
            serve_put_number(to, words[w].weight);
            serve_puts(to, "}");
        }
        serve_puts(to, "]");
    }
    serve_puts(to, "]");
    free(words);
}

/* Writes the cosines of the first text with each of the others. */
void serve_write_similarity(serve_request *r)
{
    const int64_t width = r->model->width;
    for (int64_t i = 0; i < r->job.texts; i++)
        normalise(r->job.vectors + i * width, width);
    serve_puts(&r->answer, "[");
    for (int64_t i = 1; i < r->job.texts; i++) {
        double sum = 0;
        for (int64_t c = 0; c < width; c++)
            sum += (double)r->job.vectors[c] * (double)r->job.vectors[i * width + c];
        if (i > 1) serve_puts(&r->answer, ",");
        serve_put_number(&r->answer, (float)sum);
    }
    serve_puts(&r->answer, "]");
}

static json_t *hits_json(const serve_request *r, int64_t text)
{
    const serve_job *job = &r->job;
    json_t *hits = json_array();
    for (int64_t i = text * job->nearest; i < (text + 1) * job->nearest; i++) {
        const s24_text *line = &s24_lines_texts(r->model->documents.lines)[job->lines[i]];
        json_t *hit = json_object();
        json_object_set_new(hit, "line", json_integer(job->lines[i]));
        json_object_set_new(hit, "score", cli_real((double)job->scores[i]));
        json_object_set_new(hit, "text", json_stringn(line->data, line->bytes));
        json_array_append_new(hits, hit);
    }
    return hits;
}

/* Writes the hits of a text, or a list of these. */
void serve_write_search(serve_request *r)
{
    json_t *all = json_array();
    for (int64_t i = 0; i < r->job.texts; i++)
        json_array_append_new(all, hits_json(r, i));
    serve_put_json(&r->answer, r->single ? json_incref(json_array_get(all, 0)) : json_incref(all));
    json_decref(all);
}

/* ---- tokens --------------------------------------------------------------------------------- */

/* Moves to the place of a code point, from one before it. */
static const char *forward(const char *at, const char *end, int32_t points)
{
    for (; points > 0 && at < end; points--)
        for (at++; at < end && ((unsigned char)*at & 0xc0) == 0x80;)
            at++;
    return at;
}

/* added: also those that the tokenizer puts around the text. */
static void put_tokens(serve_request *r, const json_t *text, int64_t count, int added)
{
    int many = 0;
    const char *at = json_string_value(text), *end = at + json_string_length(text);
    int32_t point = 0;
    serve_puts(&r->answer, "[");
    for (int64_t i = 0; i < count; i++) {
        const s24_token *t = &r->reader->tokens[i];
        const int special = t->begin == t->end;
        if (special && !added) continue;
        serve_printf(&r->answer, "%s{\"id\":%d,\"special\":%s,\"start\":", many++ ? "," : "",
                     (int)t->id, special ? "true" : "false");
        if (special) {
            serve_puts(&r->answer, "null,\"stop\":null,\"text\":null}");
            continue;
        }
        if (t->begin < point) { /* pieces of one character share its place */
            at = json_string_value(text);
            point = 0;
        }
        at = forward(at, end, t->begin - point);
        point = t->begin;
        const char *stop = forward(at, end, t->end - t->begin);
        serve_printf(&r->answer, "%d,\"stop\":%d,\"text\":", (int)t->begin, (int)t->end);
        serve_put_json(&r->answer, json_stringn(at, (size_t)(stop - at)));
        serve_puts(&r->answer, "}");
    }
    serve_puts(&r->answer, "]");
}

/* Answers with the tokens of each text, whole, as the model's tokenizer has them; no prompt. */
void serve_tokenize(serve_request *r)
{
    if (!serve_read_json(r) || !serve_read_model(r, SERVE_ANY)) return;
    json_t *inputs = json_object_get(r->json, "inputs");
    const int single = json_is_string(inputs);
    const size_t texts = single ? 1 : json_array_size(inputs);
    int64_t all = 0;
    int added = 1;
    if (!serve_read_flag(r, "add_special_tokens", &added)) return;
    if (!texts) serve_refuse(r, 422, "inputs", "inputs is a text or a list of texts");
    if (!r->model->tokenizer) serve_refuse(r, 422, "model", "%s reads no texts", r->model->name);
    serve_puts(&r->answer, r->code ? "" : "[");
    for (size_t i = 0; i < texts && !r->code; i++) {
        const json_t *text = single ? inputs : json_array_get(inputs, i);
        int64_t count = 0;
        if (!json_is_string(text)) {
            serve_refuse(r, 422, "inputs", "inputs: element %zu is no text", i);
        } else if (s24_tokenizer_encode(r->reader->tokens, &count, r->set->token_room,
                                        r->model->tokenizer, r->reader->ctx,
                                        json_string_value(text), json_string_length(text), NULL,
                                        0) != S24_OK) {
            serve_refuse(r, 503, "inputs", "%s", s24_ctx_error(r->reader->ctx));
        } else if ((all += count) >= r->set->token_room) {
            serve_refuse(r, 413, "inputs", "inputs has more than %lld tokens in all",
                         (long long)r->set->token_room - 1);
        } else {
            serve_puts(&r->answer, i ? "," : "");
            put_tokens(r, text, count, added);
        }
    }
    if (r->code) return;
    serve_puts(&r->answer, "]");
    r->code = 200;
}
