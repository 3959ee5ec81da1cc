// SPDX-License-Identifier: Apache-2.0
/*
 * Answers requests that libmicrohttpd reads, on its threads (serve_daemon.c). A body is kept until
 * it is whole, within bounds for one and for all; a request that waits for a model sleeps (its
 * connection is suspended), and who gives its answer wakes it. What is refused is said after its
 * body, of which nothing is kept, so that the client reads the answer; at once where the client
 * waits for leave to send it, or announces far more than is read. One that sends so much
 * unannounced is cut off.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/serve_language.h"
#include "serve/serve_mhd.h"

enum {
    MOST_HELD = 32 << 20, /* bytes of all bodies, what is kept of them, and answers */
    DROPPED_BODIES = 8,   /* so many of the largest are read and dropped */
    NONE = SERVE_ROUTES   /* no route */
};

#define ROUTE(method, path, name, write, open) {method, path, serve_##name, write, open},
const serve_route serve_routes[SERVE_ROUTES] = {
#include "serve/serve_routes.def"
};
#undef ROUTE

/* ---- a request's life ----------------------------------------------------------------------- */

/* Is it the route's path, or one that begins as that does before its star? */
static int is_path(const char *route, const char *path)
{
    const size_t fixed = strcspn(route, "*");
    return route[fixed] ? !strncmp(route, path, fixed) && path[fixed] : !strcmp(route, path);
}

/* Finds the route; of a path that takes another method, *allowed says which. */
static int64_t find_route(const char *method, const char *path, const char **allowed)
{
    *allowed = NULL;
    if (!strcmp(method, "HEAD")) method = "GET";
    for (int64_t i = 0; i < SERVE_ROUTES; i++) {
        if (!is_path(serve_routes[i].path, path)) continue;
        if (!strcmp(serve_routes[i].method, method)) return i;
        *allowed = strcmp(serve_routes[i].method, "GET") ? serve_routes[i].method : "GET, HEAD";
    }
    return NONE;
}

static void refuse_late(serve_request *r)
{
    serve_refuse(r, 503, NULL, "the server is going away");
}

static void refuse_memory(serve_request *r)
{
    serve_refuse(r, 503, NULL, "the server is out of memory");
}

static const char *header(const serve_request *r, const char *name)
{
    return r->server->mhd->lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

static void refuse_long(serve_request *r)
{
    serve_refuse(r, 413, NULL, "the body has more than %lld bytes",
                 (long long)r->server->o->max_body);
}

/* The body's bytes that the head announces; 0: it announces none. */
static unsigned long long announced(const serve_request *r)
{
    const char *length = header(r, "Content-Length");
    return length ? strtoull(length, NULL, 10) : 0;
}

/* What says where the body ends. */
typedef struct body_ends {
    int lengths, chunked, unknown;
} body_ends;

static enum MHD_Result see_end(void *user, enum MHD_ValueKind kind, const char *name,
                               const char *value)
{
    body_ends *e = user;
    (void)kind;
    if (!strcasecmp(name, "Content-Length")) e->lengths++;
    if (strcasecmp(name, "Transfer-Encoding") != 0) return MHD_YES;
    if (value && !strcasecmp(value, "chunked"))
        e->chunked++;
    else
        e->unknown++;
    return MHD_YES;
}

/* Could a proxy before us take another end of the body for the right one? What follows would be a
   request for one of us, and a part of this one for the other. */
static int has_doubtful_end(const serve_request *r)
{
    body_ends e = {0};
    (void)r->server->mhd->get_connection_values(r->connection, MHD_HEADER_KIND, see_end, &e);
    return e.unknown || e.lengths + e.chunked > 1;
}

/* Would no client get to read what is said after the body, or does it ask before it sends that? */
static int answers_at_once(const serve_request *r)
{
    return r->code && (r->is_doubtful || header(r, "Expect") ||
                       announced(r) / DROPPED_BODIES > (unsigned long long)r->server->o->max_body);
}

/* Refuses what need not be read. */
static void look_at_head(serve_request *r, const char *method, const char *path)
{
    const serve_server *s = r->server;
    const char *key = header(r, "Authorization");
    r->route = find_route(method, path, &r->allowed);
    r->asks_leave = s->o->allow_origin && !strcmp(method, "OPTIONS");
    r->is_doubtful = has_doubtful_end(r);
    if (atomic_load(&s->draining))
        refuse_late(r);
    else if (r->is_doubtful)
        serve_refuse(r, 400, NULL,
                     "the body's end is in doubt; expected one Content-Length, or one "
                     "Transfer-Encoding: chunked");
    else if (r->asks_leave)
        r->code = 204;
    else if (s->keys && !(r->route < NONE && serve_routes[r->route].open) &&
             !serve_key_fits(s, key))
        serve_refuse(r, 401, NULL,
                     "Authorization: Bearer with one of the server's keys is missing");
    else if (r->route == NONE && r->allowed)
        serve_refuse(r, 405, NULL, "%s takes %s, not %s", path, r->allowed, method);
    else if (r->route == NONE)
        serve_refuse(r, 404, NULL, "%s %s is no route of this server", method, path);
    else if (announced(r) > (unsigned long long)s->o->max_body)
        refuse_long(r);
}

static enum MHD_Result begin(serve_server *s, serve_request **out,
                             struct MHD_Connection *connection)
{
    serve_request *r = calloc(1, sizeof *r);
    if (!r) return MHD_NO;
    r->server = s;
    r->connection = connection;
    r->began = cli_seconds();
    *out = r;
    return MHD_YES;
}

/* Counts bytes that the request holds now; 0: all requests hold too many. */
static int hold(serve_request *r, size_t bytes)
{
    const int64_t more = (int64_t)bytes;
    if (atomic_fetch_add(&r->server->held, more) + more > MOST_HELD) {
        atomic_fetch_sub(&r->server->held, more);
        return 0;
    }
    r->held += bytes;
    return 1;
}

/* Counts no more than what is kept. */
static void let_go(serve_request *r, size_t kept)
{
    atomic_fetch_sub(&r->server->held, (int64_t)(r->held - kept));
    r->held = kept;
}

static int make_room(serve_request *r, size_t more)
{
    if (r->bytes + more <= r->room) return 1;
    const size_t room = 2 * (r->bytes + more);
    char *grown;
    if (!hold(r, room - r->room)) {
        r->retry = 1;
        serve_refuse(r, 429, NULL, "the bodies of requests on their way fill the server's memory");
        return 0;
    }
    if (!(grown = realloc(r->body, room))) {
        refuse_memory(r);
        return 0;
    }
    r->body = grown;
    r->room = room;
    return 1;
}

/* kept: so many bytes live on in what was read of it. */
static void drop_body(serve_request *r, size_t kept)
{
    free(r->body);
    r->body = NULL;
    r->dropped += r->bytes;
    r->bytes = r->room = 0;
    let_go(r, kept < r->held ? kept : r->held);
}

/* Takes a part of a body; 0: so much came that the connection is cut. */
static int receive(serve_request *r, const char *data, size_t bytes)
{
    const size_t most = (size_t)r->server->o->max_body;
    if (!r->code && r->bytes + bytes > most) refuse_long(r);
    if (!r->code && make_room(r, bytes)) {
        memcpy(r->body + r->bytes, data, bytes);
        r->bytes += bytes;
        return 1;
    }
    drop_body(r, 0);
    r->dropped += bytes;
    return r->dropped <= DROPPED_BODIES * most;
}

static void wake(serve_job *job)
{
    const serve_request *r = job->user;
    r->server->mhd->resume_connection(r->connection);
}

static void end_stream(serve_job *job)
{
    serve_stream_end((serve_generation *)job);
}

static int is_streamed(const serve_request *r)
{
    return r->generation && r->generation->stream && !r->code;
}

/* Gives the reader back, and counts a request that goes on among those that the server's end waits
   for; 0: it ends already. A connection that went to sleep later would be one that nobody wakes. */
static int enter(serve_request *r)
{
    serve_server *s = r->server;
    pthread_mutex_lock(&s->lock);
    serve_set_give(r->set, r->reader);
    r->reader = NULL;
    r->counted = !r->code && !atomic_load(&s->draining);
    s->running += r->counted;
    pthread_mutex_unlock(&s->lock);
    return r->counted;
}

/* Lets the worker see whether the client of a whole text goes away while its connection sleeps. */
static void watch(serve_request *r)
{
    const union MHD_ConnectionInfo *info =
        r->server->mhd->get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (r->generation && info) r->generation->watched = (int)info->connect_fd;
}

/* Hands the job over. The connection sleeps before the worker can wake it, but for a stream, whose
   answer begins at once. */
static void queue(serve_request *r)
{
    serve_server *s = r->server;
    serve_job *job = r->generation ? &r->generation->job : &r->job;
    const int sleeps = !is_streamed(r);
    job->ready = sleeps ? wake : end_stream;
    job->user = r;
    r->queued = sleeps;
    if (sleeps) watch(r);
    if (sleeps) s->mhd->suspend_connection(r->connection);
    if (serve_queue_add(r->model, job)) return;
    if (r->generation) serve_generation_leave(r->generation); /* the worker's part */
    r->retry = serve_queue_seconds(r->model);
    serve_refuse(r, 429, NULL, "%lld texts wait already, as many as may; try again in %lld s",
                 (long long)r->model->most_waiting, (long long)r->retry);
    if (sleeps) s->mhd->resume_connection(r->connection);
}

static void read_whole(serve_request *r)
{
    const serve_route *route = &serve_routes[r->route];
    r->set = serve_set_enter(r->server, &r->reader);
    cli_json_anew();
    route->read(r);
    json_decref(r->json);
    r->json = NULL;
    drop_body(r, r->kept);
    if (!r->code && !cli_json_is_whole()) refuse_memory(r);
    if (!enter(r) && !r->code) refuse_late(r);
    if (!r->code)
        queue(r);
    else if (r->generation)
        serve_generation_leave(r->generation); /* the worker's part, which gets none */
}

static void write_whole(serve_request *r)
{
    const serve_job *job = r->generation ? &r->generation->job : &r->job;
    const int gone = r->generation && atomic_load(&r->generation->gone);
    if (!r->code && *job->error)
        serve_refuse(r, gone ? 499 : job->refused ? 422 : 500, NULL, "%s", job->error);
    if (r->code) return;
    cli_json_anew();
    serve_routes[r->route].write(r);
    if (r->answer.failed || !cli_json_is_whole()) refuse_memory(r);
    if (!r->code) r->code = 200;
}

/* Makes the response of a whole answer, whose memory libmicrohttpd frees. */
static struct MHD_Response *make_response(serve_request *r)
{
    serve_text *text = &r->answer;
    if (text->failed) return NULL;
    /* An answer is given in any case; while answers are too many, bodies are refused. */
    atomic_fetch_add(&r->server->held, (int64_t)text->bytes);
    r->held += text->bytes;
    struct MHD_Response *response =
        r->server->mhd->create_response_from_buffer(text->bytes, text->data, MHD_RESPMEM_MUST_FREE);
    if (response) *text = (serve_text){0};
    return response;
}

/* Tells a browser which pages may read the answer, and what they may send. */
static void allow_origin(const serve_request *r, struct MHD_Response *response)
{
    const serve_mhd *mhd = r->server->mhd;
    const char *origin = r->server->o->allow_origin;
    if (!origin) return;
    mhd->add_response_header(response, "Access-Control-Allow-Origin", origin);
    if (!r->asks_leave) return;
    mhd->add_response_header(response, "Access-Control-Allow-Methods", "GET, POST");
    mhd->add_response_header(response, "Access-Control-Allow-Headers",
                             "Authorization, Content-Type, *");
    mhd->add_response_header(response, "Access-Control-Max-Age", "600");
}

static enum MHD_Result send_response(serve_request *r, struct MHD_Response *response)
{
    const serve_mhd *mhd = r->server->mhd;
    char seconds[24];
    if (!response) return MHD_NO;
    if (r->code != 204)
        mhd->add_response_header(response, "Content-Type", r->type ? r->type : "application/json");
    allow_origin(r, response);
    mhd->add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (r->type && !strncmp(r->type, "text/html", 9))
        mhd->add_response_header(response, "Content-Security-Policy",
                                 "default-src 'none'; style-src 'unsafe-inline'; "
                                 "script-src 'unsafe-inline'; connect-src 'self'");
    if (r->code == 401) mhd->add_response_header(response, "WWW-Authenticate", "Bearer");
    if (r->code == 405) mhd->add_response_header(response, "Allow", r->allowed);
    if (atomic_load(&r->server->draining) || r->is_doubtful)
        mhd->add_response_header(response, "Connection", "close");
    snprintf(seconds, sizeof seconds, "%lld", (long long)r->retry);
    if (r->retry) mhd->add_response_header(response, "Retry-After", seconds);
    const enum MHD_Result done = mhd->queue_response(r->connection, (unsigned)r->code, response);
    mhd->destroy_response(response);
    return done;
}

static enum MHD_Result begin_stream(serve_request *r)
{
    r->code = 200;
    r->type = "text/event-stream";
    return send_response(r, serve_stream_response(r));
}

enum MHD_Result serve_http_handle(void *server, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *bytes, void **state)
{
    serve_request *r = *state;
    (void)version;
    if (!r) {
        const enum MHD_Result begun = begin(server, &r, connection);
        *state = r;
        if (begun != MHD_YES) return begun;
        look_at_head(r, method, url);
        if (!answers_at_once(r)) return MHD_YES;
        serve_ends_answers(r->server, connection, 1);
        return send_response(r, make_response(r));
    }
    if (*bytes) {
        const int goes_on = receive(r, data, *bytes);
        *bytes = 0;
        return goes_on ? MHD_YES : MHD_NO;
    }
    serve_ends_answers(r->server, connection, 1);
    if (!r->code && !r->queued) {
        r->path = url;
        read_whole(r);
        if (r->queued) return MHD_YES;
        if (is_streamed(r)) return begin_stream(r);
    }
    write_whole(r);
    return send_response(r, make_response(r));
}

/* ---- the end of a request ------------------------------------------------------------------- */

void serve_http_complete(void *server, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    serve_server *s = server;
    serve_request *r = *state;
    (void)why;
    if (!r) return;
    serve_ends_answers(s, connection, 0);
    drop_body(r, 0);
    json_decref(r->texts);
    free(r->answer.data);
    if (r->generation) {
        atomic_store(&r->generation->gone, 1);
        serve_generation_leave(r->generation);
    }
    free(r->job.offsets);
    free(r->job.ids);
    free(r->job.images);
    free(r->job.files);
    free(r->job.vectors);
    weighed_free(&r->job.words);
    free(r->job.read);
    free(r->job.lines);
    free(r->job.scores);
    const double took = cli_seconds() - r->began;
    pthread_mutex_lock(&s->lock);
    if (r->set) r->set->users--;
    serve_tally_add(&s->tally[r->route], r->code, took);
    s->running -= r->counted;
    if (r->set || r->counted) pthread_cond_signal(&s->change);
    pthread_mutex_unlock(&s->lock);
    free(r);
    *state = NULL;
}
