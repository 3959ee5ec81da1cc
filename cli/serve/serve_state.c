// SPDX-License-Identifier: Apache-2.0
/* The routes that tell how the server does, and the page. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "serve/serve.h"

static const int codes[SERVE_CODES] = {200, 204, 400, 401, 404, 405, 413,
                                       422, 429, 499, 500, 501, 503, 0};
static const double limits[SERVE_BUCKETS] = {.001, .0025, .005, .01, .025, .05, .1,
                                             .25,  .5,    1,    2.5, 5,    10};

void serve_tally_add(serve_tally *t, int status, double seconds)
{
    int code = 0, bucket = 0;
    while (code < SERVE_CODES - 1 && codes[code] != status)
        code++;
    while (bucket < SERVE_BUCKETS && seconds > limits[bucket])
        bucket++;
    t->codes[code]++;
    t->buckets[bucket]++;
    t->count++;
    t->seconds += seconds;
}

void serve_page(serve_request *r)
{
    serve_puts(&r->answer, serve_page_html);
    r->type = "text/html; charset=utf-8";
    r->code = 200;
}

void serve_health(serve_request *r)
{
    serve_puts(&r->answer, "{}");
    r->code = 200;
}

/* A model in the words of OpenAI's API. */
static json_t *listed_json(const serve_model *m)
{
    json_t *model = json_object();
    json_object_set_new(model, "id", json_string(m->name));
    json_object_set_new(model, "object", json_string("model"));
    json_object_set_new(model, "created", json_integer(0));
    json_object_set_new(model, "owned_by", json_string("sparse24"));
    return model;
}

void serve_one_model(serve_request *r)
{
    const serve_model *model = serve_find_model(r, strrchr(r->path, '/') + 1);
    if (!model) return;
    serve_put_json(&r->answer, listed_json(model));
    r->code = 200;
}

void serve_models(serve_request *r)
{
    json_t *list = json_array(), *object = json_object();
    for (int64_t i = 0; i < r->set->model_count; i++)
        json_array_append_new(list, listed_json(&r->set->models[i]));
    json_object_set_new(object, "object", json_string("list"));
    json_object_set_new(object, "data", list);
    serve_put_json(&r->answer, object);
    r->code = 200;
}

static json_t *model_json(serve_model *m)
{
    serve_counts c;
    json_t *object = json_object();
    serve_queue_counts(m, &c);
    json_object_set_new(object, "id", json_string(m->name));
    json_object_set_new(object, "model_type", json_string(m->info.model_type));
    json_object_set_new(object, "dtype", json_string(s24_dtype_name(m->info.dtype)));
    json_object_set_new(object, "width", json_integer(m->width));
    json_object_set_new(object, "layers", json_integer(m->info.linear_layers));
    json_object_set_new(object, "sparse_layers", json_integer(m->info.sparse_layers));
    json_object_set_new(object, "max_tokens", json_integer(m->max_tokens));
    json_object_set_new(object, "max_batch_tokens", json_integer(m->batch_tokens));
    json_object_set_new(object, "queue", json_integer(m->most_waiting));
    json_object_set_new(object, "waiting_texts", json_integer(c.waiting_texts));
    json_object_set_new(object, "running_texts", json_integer(c.running_texts));
    json_object_set_new(object, "cache_bytes", json_integer(s24_cache_bytes(m->language.cache)));
    json_object_set_new(object, "texts", json_integer(c.texts));
    json_object_set_new(object, "tokens", json_integer(c.tokens));
    json_object_set_new(object, "busy_seconds", cli_real(c.busy));
    json_object_set_new(object, "documents", json_integer(m->documents.count));
    return object;
}

void serve_info(serve_request *r)
{
    const serve_server *s = r->server;
    const serve_set *set = r->set;
    json_t *list = json_array(), *object = cli_json();
    for (int64_t i = 0; i < set->model_count; i++)
        json_array_append_new(list, model_json(&set->models[i]));
    json_object_set_new(object, "sparse24", json_string(s24_version()));
    json_object_set_new(object, "device", json_string(s->o->common.device));
    json_object_set_new(object, "threads", json_integer(s24_ctx_threads(set->models[0].cli.ctx)));
    json_object_set_new(object, "uptime_seconds", cli_real(cli_seconds() - s->started));
    json_object_set_new(object, "models", list);
    serve_put_json(&r->answer, object);
    r->code = 200;
}

/* ---- Prometheus ----------------------------------------------------------------------------- */

/* Reads the resident memory, 0 where the system does not tell. */
static long long resident_bytes(void)
{
    long long all, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%lld %lld", &all, &resident) != 2) resident = 0;
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static void put_requests(serve_text *to, const serve_server *s)
{
    serve_puts(to, "# TYPE sparse24_requests_total counter\n");
    for (int64_t i = 0; i <= SERVE_ROUTES; i++)
        for (int c = 0; c < SERVE_CODES; c++)
            if (s->tally[i].codes[c])
                serve_printf(to, "sparse24_requests_total{route=\"%s\",code=\"%d\"} %lld\n",
                             i < SERVE_ROUTES ? s->routes[i].path : "other", codes[c],
                             (long long)s->tally[i].codes[c]);
}

static void put_seconds(serve_text *to, const serve_server *s)
{
    serve_puts(to, "# TYPE sparse24_request_seconds histogram\n");
    for (int64_t i = 0; i < SERVE_ROUTES; i++) {
        const serve_tally *t = &s->tally[i];
        const char *path = s->routes[i].path;
        int64_t below = 0;
        for (int b = 0; b < SERVE_BUCKETS && t->count; b++) {
            below += t->buckets[b];
            serve_printf(to, "sparse24_request_seconds_bucket{route=\"%s\",le=\"%g\"} %lld\n", path,
                         limits[b], (long long)below);
        }
        if (t->count)
            serve_printf(to,
                         "sparse24_request_seconds_bucket{route=\"%s\",le=\"+Inf\"} %lld\n"
                         "sparse24_request_seconds_sum{route=\"%s\"} %.6f\n"
                         "sparse24_request_seconds_count{route=\"%s\"} %lld\n",
                         path, (long long)t->count, path, t->seconds, path, (long long)t->count);
    }
}

/* Writes a label's value by Prometheus's rules. */
static void put_label(serve_text *to, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"') serve_puts(to, "\\");
        serve_put(to, *value == '\n' ? "\\n" : value, *value == '\n' ? 2 : 1);
    }
}

static void put_name(serve_text *to, const char *name, const serve_model *model)
{
    serve_printf(to, "sparse24_%s{model=\"", name);
    put_label(to, model->name);
    serve_puts(to, "\"} ");
}

#define COUNT(name) #name "_total", "counter", offsetof(serve_counts, name)
#define GAUGE(name) #name, "gauge", offsetof(serve_counts, name)
static void put_counts(serve_text *to, const serve_set *set)
{
    static const struct {
        const char *name, *type;
        size_t place; /* of an int64_t of serve_counts */
    } rows[] = {{COUNT(texts)},         {COUNT(tokens)},        {COUNT(batches)},
                {COUNT(truncated)},     {GAUGE(waiting_texts)}, {GAUGE(waiting_tokens)},
                {GAUGE(running_texts)}, {COUNT(prefix_texts)},  {COUNT(prefix_tokens)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        serve_printf(to, "# TYPE sparse24_%s %s\n", rows[i].name, rows[i].type);
        for (int64_t m = 0; m < set->model_count; m++) {
            serve_counts c;
            serve_queue_counts(&set->models[m], &c);
            put_name(to, rows[i].name, &set->models[m]);
            int64_t value;
            memcpy(&value, (const char *)&c + rows[i].place, sizeof value);
            serve_printf(to, "%lld\n", (long long)value);
        }
    }
}

static void put_busy(serve_text *to, const serve_set *set)
{
    serve_puts(to, "# TYPE sparse24_busy_seconds_total counter\n");
    for (int64_t m = 0; m < set->model_count; m++) {
        serve_counts c;
        serve_queue_counts(&set->models[m], &c);
        put_name(to, "busy_seconds_total", &set->models[m]);
        serve_printf(to, "%.15g\n", c.busy);
    }
}

void serve_metrics(serve_request *r)
{
    pthread_mutex_lock(&r->server->lock);
    put_requests(&r->answer, r->server);
    put_seconds(&r->answer, r->server);
    const long long reloads = (long long)r->server->reloads;
    pthread_mutex_unlock(&r->server->lock);
    put_counts(&r->answer, r->set);
    put_busy(&r->answer, r->set);
    serve_printf(&r->answer, "# TYPE sparse24_reloads_total counter\nsparse24_reloads_total %lld\n",
                 reloads);
    serve_printf(&r->answer,
                 "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes %lld\n",
                 resident_bytes());
    r->type = "text/plain; version=0.0.4";
    r->code = 200;
}
