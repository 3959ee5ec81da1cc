// SPDX-License-Identifier: Apache-2.0
/*
 * Sends a text as it comes, by server-sent events. The worker adds events, libmicrohttpd's thread
 * takes them; where there are none the connection sleeps, and the worker wakes it with the next.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/serve_language.h"
#include "serve/serve_mhd.h"

enum { BLOCK = 4096 };

/* Adds bytes and wakes the reader, in the lock of the generation. */
static void add(serve_generation *g, const char *bytes, size_t count)
{
    serve_put(&g->events, bytes, count);
    if (!g->asleep) return;
    g->asleep = 0;
    g->mhd->resume_connection(g->connection);
}

static void put_event(serve_generation *generation, json_t *event)
{
    serve_text text = {0};
    serve_puts(&text, "data: ");
    serve_put_json(&text, event);
    serve_puts(&text, "\n\n");
    pthread_mutex_lock(&generation->lock);
    if (text.failed)
        generation->events.failed = 1;
    else
        add(generation, text.data, text.bytes);
    pthread_mutex_unlock(&generation->lock);
    free(text.data);
}

void serve_stream_put(serve_generation *generation, json_t *text, const char *reason)
{
    json_t *event = serve_generation_json(generation, text, reason);
    generation->lost |= !cli_json_is_whole();
    if (generation->lost)
        json_decref(event);
    else
        put_event(generation, event);
}

/* The last events: why the text ended, or what went wrong. */
void serve_stream_end(serve_generation *generation)
{
    static const char done[] = "data: [DONE]\n\n";
    serve_generation *g = generation;
    for (json_t *part; !*g->job.error && (part = serve_part_json(g)) != NULL;)
        serve_stream_put(g, part, NULL);
    if (!*g->job.error) serve_stream_put(g, json_string(""), serve_why(g));
    if (!*g->job.error && g->says_usage) serve_stream_put(g, NULL, NULL);
    if (!*g->job.error && g->lost)
        snprintf(g->job.error, sizeof g->job.error, "the server is out of memory");
    if (*g->job.error)
        put_event(g, json_pack("{s:{s:s,s:s}}", "error", "message", g->job.error, "type",
                               "server_error"));
    pthread_mutex_lock(&g->lock);
    g->ended = 1;
    add(g, done, sizeof done - 1);
    pthread_mutex_unlock(&g->lock);
}

static ssize_t read_events(void *user, uint64_t place, char *to, size_t room)
{
    serve_generation *g = user;
    ssize_t given = 0;
    (void)place;
    pthread_mutex_lock(&g->lock);
    const size_t left = g->events.bytes - g->sent, count = left < room ? left : room;
    if (g->events.failed) {
        given = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (count) {
        memcpy(to, g->events.data + g->sent, count);
        g->sent += count;
        given = (ssize_t)count;
        if (g->sent == g->events.bytes) g->sent = g->events.bytes = 0;
    } else if (g->ended) {
        given = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        g->asleep = 1;
        g->mhd->suspend_connection(g->connection);
    }
    pthread_mutex_unlock(&g->lock);
    return given;
}

struct MHD_Response *serve_stream_response(serve_request *r)
{
    return r->server->mhd->create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_events,
                                                         r->generation, NULL);
}
