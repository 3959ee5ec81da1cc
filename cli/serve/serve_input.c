// SPDX-License-Identifier: Apache-2.0
/* Reads what bodies say, on libmicrohttpd's thread: JSON, the model that is meant, texts, which
   become token ids here, so that what waits is counted in tokens. What is wrong is refused by its
   key. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/serve.h"

static const char *kind_of(int code)
{
    return code == 401   ? "authentication_error"
           : code == 429 ? "rate_limit_error"
           : code >= 500 ? "server_error"
                         : "invalid_request_error";
}

void serve_refuse(serve_request *r, int code, const char *param, const char *format, ...)
{
    char words[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    json_t *error = json_object(), *object = json_object();
    /* A sentence that was cut within a character is no text to JSON. */
    json_t *message = json_string(words);
    json_object_set_new(error, "message", message ? message : json_string("bad input"));
    json_object_set_new(error, "type", json_string(kind_of(code)));
    json_object_set_new(error, "param", param ? json_string(param) : json_null());
    json_object_set_new(error, "code",
                        code == 404 && param ? json_string("model_not_found") : json_null());
    json_object_set_new(object, "error", error);
    r->answer.bytes = 0;
    r->answer.failed = 0;
    serve_put_json(&r->answer, object);
    r->type = NULL;
    r->code = code;
}

int serve_read_json(serve_request *r)
{
    char why[JSON_ERROR_TEXT_LENGTH] = "";
    r->json = cli_json_read_bytes(r->body ? r->body : "", r->bytes, why);
    if (json_is_object(r->json)) return 1;
    if (!cli_json_is_whole())
        serve_refuse(r, 503, NULL, "the server is out of memory");
    else if (r->json)
        serve_refuse(r, 422, NULL, "the body is no JSON object");
    else
        serve_refuse(r, 400, NULL, "the body is no JSON: %s", why);
    return 0;
}

static serve_kind kind_of_model(const serve_model *model)
{
    return !model->encoder     ? SERVE_LANGUAGE
           : model->classifies ? SERVE_CLASSIFIER
           : model->weighs     ? SERVE_WORDS
                               : SERVE_ENCODER;
}

static int is_kind(const serve_model *model, serve_kind kind)
{
    return kind == SERVE_ANY || kind_of_model(model) == kind;
}

serve_model *serve_find_model(serve_request *r, const char *name)
{
    for (int64_t i = 0; i < r->set->model_count; i++)
        if (!strcmp(r->set->models[i].name, name)) return &r->set->models[i];
    serve_refuse(r, 404, "model", "there is no model '%s' here; GET /v1/models lists them", name);
    return NULL;
}

static serve_model *first_of_kind(const serve_request *r, serve_kind kind)
{
    for (int64_t i = 0; i < r->set->model_count; i++)
        if (is_kind(&r->set->models[i], kind)) return &r->set->models[i];
    return NULL;
}

int serve_read_model(serve_request *r, serve_kind kind)
{
    static const char *const kinds[] = {"model", "encoder that gives vectors", "language model",
                                        "model with a head that classifies texts",
                                        "model that gives weights of words"};
    const json_t *named = json_object_get(r->json, "model");
    const char *name = json_string_value(named);
    const int any = !named || json_is_null(named);
    r->model = any ? first_of_kind(r, kind) : name ? serve_find_model(r, name) : NULL;
    if (r->model && is_kind(r->model, kind)) return 1;
    if (any)
        serve_refuse(r, 404, "model", "there is no %s here; GET /v1/models lists what is",
                     kinds[kind]);
    else if (!name)
        serve_refuse(r, 422, "model", "model is no text");
    else if (r->model)
        serve_refuse(r, 422, "model", "%s is no %s", name, kinds[kind]);
    return 0;
}

int serve_read_count(serve_request *r, const char *key, int64_t *value, int64_t most)
{
    const json_t *found = json_object_get(r->json, key);
    if (!found || json_is_null(found)) return 1;
    const json_int_t number = json_integer_value(found);
    if (!json_is_integer(found) || number < 1 || number > most) {
        serve_refuse(r, 422, key, "%s is a whole number of 1 to %lld", key, (long long)most);
        return 0;
    }
    *value = number;
    return 1;
}

int serve_read_flag(serve_request *r, const char *key, int *value)
{
    const json_t *found = json_object_get(r->json, key);
    if (!found || json_is_null(found)) return 1;
    if (!json_is_boolean(found)) {
        serve_refuse(r, 422, key, "%s is true or false", key);
        return 0;
    }
    *value = json_is_true(found);
    return 1;
}

int serve_read_direction(serve_request *r)
{
    const json_t *found = json_object_get(r->json, "truncation_direction");
    const char *name = json_string_value(found);
    if (!found || json_is_null(found) || (name && !strcasecmp(name, "right"))) return 1;
    serve_refuse(r, 422, "truncation_direction",
                 "truncation_direction is right; texts are cut at their end alone");
    return 0;
}

/* The prompt of a request: a name of the model's folder, else the server's own. */
static int read_prompt(serve_request *r, const char **prompt)
{
    const json_t *found = json_object_get(r->json, "prompt_name");
    const char *name = json_string_value(found), *own = NULL;
    s24_encoder *encoder = r->model->encoder;
    *prompt = r->model->prompt;
    if (!found || json_is_null(found)) return 1;
    const char *text = s24_encoder_prompt_text(encoder, name);
    if (!text) {
        serve_refuse(r, 422, "prompt_name", "prompt_name names no prompt of %s", r->model->name);
        return 0;
    }
    s24_encoder_prompt(encoder, &own);
    if (!s24_encoder_pools_prompt(encoder) && (!own || strcmp(own, name) != 0)) {
        serve_refuse(r, 422, "prompt_name",
                     "%s leaves a prompt's tokens out of its vectors, so --prompt-name alone "
                     "chooses one",
                     r->model->name);
        return 0;
    }
    *prompt = text;
    return 1;
}

int serve_read_vectors(serve_request *r)
{
    const json_t *format = json_object_get(r->json, "encoding_format");
    const char *name = json_string_value(format);
    int normalise = 1;
    r->dimensions = r->model->width;
    if (!serve_read_count(r, "dimensions", &r->dimensions, r->model->width)) return 0;
    if (!serve_read_flag(r, "normalize", &normalise)) return 0;
    if (!normalise && s24_encoder_normalises(r->model->encoder)) {
        serve_refuse(r, 422, "normalize",
                     "%s: its modules end with Normalize; normalize: false is not carried out",
                     r->model->name);
        return 0;
    }
    const json_t *said = json_object_get(r->json, "normalize");
    r->normalise = normalise && (r->dimensions < r->model->width || json_is_true(said));
    r->base64 = name && !strcmp(name, "base64");
    if (!format || json_is_null(format) || r->base64 || (name && !strcmp(name, "float"))) return 1;
    serve_refuse(r, 422, "encoding_format", "encoding_format is float or base64");
    return 0;
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* Holds the ids of a job as they grow. */
typedef struct gathered {
    serve_request *r;
    const char *key;
    const char *prompt;
    int truncate; /* 0: longer texts are refused */
    int64_t room;
} gathered;

static int add_ids(gathered *g, const s24_token *tokens, const json_t *ids, int64_t count)
{
    serve_job *job = &g->r->job;
    const int64_t used = job->offsets[job->texts];
    if (used + count > g->room) {
        const int64_t room = 2 * (used + count);
        int32_t *grown = realloc(job->ids, (size_t)room * sizeof *grown);
        if (!grown) {
            serve_refuse(g->r, 503, NULL, "the server is out of memory");
            return 0;
        }
        job->ids = grown;
        g->room = room;
    }
    for (int64_t i = 0; i < count; i++)
        job->ids[used + i] =
            tokens ? tokens[i].id : (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    job->offsets[++job->texts] = used + count;
    return 1;
}

/* Counts a text that is longer than the model takes, or refuses it. */
static int too_long(gathered *g, int64_t index)
{
    serve_model *m = g->r->model;
    if (!g->truncate) {
        serve_refuse(g->r, 422, g->key, "text %lld has more than %lld tokens", (long long)index,
                     (long long)m->max_tokens);
        return 0;
    }
    pthread_mutex_lock(&m->lock);
    m->counts.truncated++;
    pthread_mutex_unlock(&m->lock);
    return 1;
}

/* Tokenizes prompt and text, one token more than the limit to see whether it was cut. */
static s24_status encode(gathered *g, const json_t *text, int64_t most, int64_t *count)
{
    const serve_reader *reader = g->r->reader;
    const char *prompt = g->prompt, *words = json_string_value(text);
    const size_t before = strlen(prompt), bytes = json_string_length(text);
    char *both = NULL;
    if (before) {
        both = malloc(before + bytes + 1);
        if (!both) return S24_ERROR_MEMORY;
        memcpy(both, prompt, before);
        memcpy(both + before, words, bytes);
    }
    const s24_status status =
        s24_tokenizer_encode(reader->tokens, count, most, g->r->model->tokenizer, reader->ctx,
                             both ? both : words, before + bytes, NULL, 0);
    free(both);
    return status;
}

static int add_text(gathered *g, const json_t *text, int64_t index)
{
    const int64_t most = g->r->model->max_tokens;
    int64_t count = 0;
    s24_status status = encode(g, text, most + 1, &count);
    if (status == S24_OK && count > most) {
        if (!too_long(g, index)) return 0;
        status = encode(g, text, most, &count);
    }
    if (status == S24_OK) return add_ids(g, g->r->reader->tokens, NULL, count);
    serve_refuse(g->r, 503, g->key, "text %lld: %s", (long long)index,
                 s24_ctx_error(g->r->reader->ctx));
    return 0;
}

static int add_list(gathered *g, const json_t *ids, int64_t index)
{
    const serve_model *m = g->r->model;
    int64_t count = (int64_t)json_array_size(ids);
    for (int64_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(ids, (size_t)i);
        if (json_is_integer(id) && json_integer_value(id) >= 0 &&
            json_integer_value(id) < m->info.vocabulary)
            continue;
        serve_refuse(g->r, 422, g->key,
                     "%s: element %lld of text %lld is no token id; 0 to %lld "
                     "are",
                     g->key, (long long)i, (long long)index, (long long)m->info.vocabulary - 1);
        return 0;
    }
    if (!count) {
        serve_refuse(g->r, 422, g->key, "text %lld has no token id", (long long)index);
        return 0;
    }
    if (count < m->least_ids) {
        serve_refuse(g->r, 422, g->key,
                     "text %lld has %lld token ids; with the prompt, whose tokens are left out of "
                     "the vector, it has %lld at least",
                     (long long)index, (long long)count, (long long)m->least_ids);
        return 0;
    }
    if (count > m->max_tokens) {
        if (!too_long(g, index)) return 0;
        count = m->max_tokens;
    }
    return add_ids(g, NULL, ids, count);
}

static int add_any(gathered *g, const json_t *value, int64_t index)
{
    if (json_is_string(value)) return add_text(g, value, index);
    if (json_is_array(value)) return add_list(g, value, index);
    serve_refuse(g->r, 422, g->key, "%s: text %lld is neither a text nor a list of token ids",
                 g->key, (long long)index);
    return 0;
}

int serve_make_job(serve_request *r, const char *key, int64_t count)
{
    serve_job *job = &r->job;
    const int64_t most = r->model->most_waiting;
    if (count < 1 || count > most) {
        serve_refuse(r, count ? 413 : 422, key, "%s has %lld texts; 1 to %lld are taken at once",
                     key, (long long)count, (long long)most);
        return 0;
    }
    job->offsets = calloc((size_t)count + 1, sizeof *job->offsets);
    if (!r->model->weighs)
        job->vectors = malloc((size_t)(count * r->model->width) * sizeof *job->vectors);
    if (job->offsets && (job->vectors || r->model->weighs)) return 1;
    serve_refuse(r, 503, NULL, "the server is out of memory");
    return 0;
}

int serve_read_texts(serve_request *r, const char *key, const json_t *value)
{
    gathered g = {.r = r, .key = key, .truncate = 1};
    r->single = json_is_string(value) || json_is_integer(json_array_get(value, 0));
    if (!value || (!r->single && !json_is_array(value))) {
        serve_refuse(r, 422, key, value ? "%s is neither a text nor a list" : "%s is missing", key);
        return 0;
    }
    const int64_t count = r->single ? 1 : (int64_t)json_array_size(value);
    if (!serve_read_flag(r, "truncate", &g.truncate) || !serve_read_direction(r) ||
        !read_prompt(r, &g.prompt) || !serve_make_job(r, key, count))
        return 0;
    int good = 1;
    for (int64_t i = 0; i < count && good; i++)
        good = add_any(&g, r->single ? value : json_array_get(value, (size_t)i), i);
    r->tokens = r->job.offsets[r->job.texts];
    return good;
}
