// SPDX-License-Identifier: Apache-2.0
/*
 * Connections whose client is gone within a request. libmicrohttpd reads by edges of epoll: an end
 * that comes together with a part of a request it does not see, and would keep the connection until
 * --timeout. So the main thread looks at all connections once a second: where nothing is left to
 * read but the end, and no request is whole, none ever will be. Two looks say it, for between them
 * the daemon's thread may have been about to answer. What must stay true: a client that closes its
 * side alone after a request gets its answer.
 */
#include <stdlib.h>
#include <sys/socket.h>

#include "serve/serve.h"
#include "serve/serve_mhd.h"

struct serve_connection {
    int fd;
    atomic_int answers;   /* a request of it is whole, and not answered yet */
    _Atomic int64_t done; /* requests of it */
    int ended;            /* as the last look saw it, when so many were done: */
    int64_t then;
    serve_connection *next, **place; /* in the server's list */
};

void serve_ends_begin(serve_server *server, struct MHD_Connection *connection, void **state)
{
    serve_server *s = server;
    const union MHD_ConnectionInfo *info =
        s->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    serve_connection *c = info ? calloc(1, sizeof *c) : NULL;
    *state = c; /* NULL: --timeout ends it */
    if (!c) return;
    c->fd = (int)info->connect_fd;
    pthread_mutex_lock(&s->ends);
    c->next = s->connections;
    c->place = &s->connections;
    if (c->next) c->next->place = &c->next;
    s->connections = c;
    pthread_mutex_unlock(&s->ends);
}

void serve_ends_leave(serve_server *server, void **state)
{
    serve_connection *c = *state;
    *state = NULL;
    if (!c) return;
    pthread_mutex_lock(&server->ends);
    *c->place = c->next;
    if (c->next) c->next->place = c->place;
    pthread_mutex_unlock(&server->ends);
    free(c);
}

void serve_ends_answers(serve_server *server, struct MHD_Connection *connection, int answers)
{
    const union MHD_ConnectionInfo *info =
        server->mhd->get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    serve_connection *c = info ? info->socket_context : NULL;
    if (!c) return;
    if (!answers) atomic_fetch_add(&c->done, 1);
    atomic_store(&c->answers, answers);
}

/* Is nothing left to read but the end? */
static int is_at_end(const serve_connection *c)
{
    char byte;
    return !atomic_load(&c->answers) && !recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
}

void serve_ends_look(serve_server *server)
{
    pthread_mutex_lock(&server->ends);
    for (serve_connection *c = server->connections; c; c = c->next) {
        const int64_t done = atomic_load(&c->done);
        const int ended = is_at_end(c);
        if (ended && c->ended && c->then == done) (void)shutdown(c->fd, SHUT_RDWR);
        c->ended = ended;
        c->then = done;
    }
    pthread_mutex_unlock(&server->ends);
}
