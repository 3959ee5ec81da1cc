// SPDX-License-Identifier: Apache-2.0
/*
 * Threads of HTTP: libmicrohttpd's daemons, one for each. One alone listens itself. Of several none
 * does: a thread of ours takes connections and gives each to the daemon that has the fewest, for
 * connections that stay are shared out once, and threads that woke up first would have most of
 * them. What must stay true: no more connections are taken than --connections says, and those who
 * come then wait where the system has them.
 */
#define _GNU_SOURCE /* accept4 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/serve.h"
#include "serve/serve_mhd.h"

enum {
    CONNECTION_BYTES = 16384, /* of a request's head, and read at a time */
    WAIT_MS = 100             /* where the process has no file left for a connection */
};

typedef struct serve_daemon {
    struct serve_daemons *all;
    struct MHD_Daemon *daemon;
    _Atomic int64_t connections;
} serve_daemon;

struct serve_daemons {
    serve_server *server;
    serve_daemon *each;
    int64_t count;
    pthread_t taker; /* of connections, where there are several */
    int takes;
    int changed; /* an eventfd: a connection ended where as many were as may be, or all ends */
    _Atomic int64_t connections;
    atomic_int ends;
};

/* What a client did wrong is no news of the server's. */
static void say_nothing(void *user, const char *format, va_list arguments)
{
    (void)user;
    (void)format;
    (void)arguments;
}

/* ---- sharing out ---------------------------------------------------------------------------- */

static void say_changed(struct serve_daemons *d)
{
    const uint64_t one = 1;
    while (write(d->changed, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* Counts and follows a daemon's connections; who waits for one to end is told. */
static void count(void *daemon, struct MHD_Connection *connection, void **state,
                  enum MHD_ConnectionNotificationCode what)
{
    serve_daemon *one = daemon;
    if (what != MHD_CONNECTION_NOTIFY_CLOSED) {
        serve_ends_begin(one->all->server, connection, state);
        return;
    }
    serve_ends_leave(one->all->server, state);
    atomic_fetch_sub(&one->connections, 1);
    if (atomic_fetch_sub(&one->all->connections, 1) == one->all->server->o->connections)
        say_changed(one->all);
}

static serve_daemon *least_busy(struct serve_daemons *d)
{
    serve_daemon *least = d->each;
    for (int64_t i = 1; i < d->count; i++)
        if (atomic_load(&d->each[i].connections) < atomic_load(&least->connections))
            least = &d->each[i];
    return least;
}

/* Takes a connection that waits; 0: the process can have no more files now. */
static int take(struct serve_daemons *d)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    const int fd = accept4(d->server->listener, (struct sockaddr *)&address, &bytes,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    serve_daemon *one = least_busy(d);
    atomic_fetch_add(&one->connections, 1);
    atomic_fetch_add(&d->connections, 1);
    if (d->server->mhd->add_connection(one->daemon, fd, (struct sockaddr *)&address, bytes) ==
        MHD_YES)
        return 1;
    /* It closed the connection, and did not say so: it never began. */
    atomic_fetch_sub(&one->connections, 1);
    atomic_fetch_sub(&d->connections, 1);
    return 1;
}

static void *take_connections(void *daemons)
{
    struct serve_daemons *d = daemons;
    while (!atomic_load(&d->ends)) {
        uint64_t told;
        const int full = atomic_load(&d->connections) >= d->server->o->connections;
        struct pollfd fds[] = {{.fd = d->changed, .events = POLLIN},
                               {.fd = d->server->listener, .events = POLLIN}};
        if (poll(fds, full ? 1 : 2, -1) < 0) continue;
        if (fds[0].revents && read(d->changed, &told, sizeof told) < 0) continue;
        if (!full && fds[1].revents && !take(d)) (void)poll(fds, 1, WAIT_MS);
    }
    return NULL;
}

/* ---- starting and stopping ------------------------------------------------------------------ */

static struct MHD_Daemon *start_one(serve_server *s, serve_daemon *one, int listens)
{
    const struct serve_options *o = s->o;
    const unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                           MHD_USE_ERROR_LOG | (listens ? 0 : MHD_USE_NO_LISTEN_SOCKET);
    return s->mhd->start_daemon(
        flags, 0, NULL, NULL, serve_http_handle, s, MHD_OPTION_EXTERNAL_LOGGER, say_nothing, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, serve_http_complete, s, MHD_OPTION_NOTIFY_CONNECTION, count,
        one, MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)o->timeout, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        listens ? MHD_OPTION_LISTEN_SOCKET : MHD_OPTION_END, s->listener, MHD_OPTION_END);
}

/* 0: one did not start. */
static int start_all(struct serve_daemons *d)
{
    const int several = d->count > 1;
    for (int64_t i = 0; i < d->count; i++) {
        d->each[i].all = d;
        d->each[i].daemon = start_one(d->server, &d->each[i], !several);
        if (!d->each[i].daemon) return 0;
    }
    if (!several) return 1;
    d->changed = eventfd(0, EFD_CLOEXEC);
    d->takes = d->changed >= 0 && !pthread_create(&d->taker, NULL, take_connections, d);
    return d->takes;
}

int serve_http_start(serve_server *server)
{
    serve_mhd *mhd = calloc(1, sizeof *mhd);
    const char *why = mhd ? serve_mhd_load(mhd) : "out of memory";
    server->mhd = mhd;
    if (why)
        return cli_fail(server->cli, CLI_UNSUPPORTED, "no server without libmicrohttpd: %s", why);
    server->routes = serve_routes;
    server->tally = calloc(SERVE_ROUTES + 1, sizeof *server->tally);
    struct serve_daemons *d = server->daemons = calloc(1, sizeof *d);
    if (d) {
        *d = (struct serve_daemons){
            .server = server, .count = server->o->http_threads, .changed = -1};
        d->each = calloc((size_t)d->count, sizeof *d->each);
    }
    if (server->tally && d && d->each && start_all(d)) return CLI_OK;
    return cli_fail(server->cli, CLI_IO, "%s: no server can be started there", server->url);
}

/* From here on connections wait where the system has them. */
static void stop_taking(struct serve_daemons *d)
{
    atomic_store(&d->ends, 1);
    if (d->takes) {
        say_changed(d);
        pthread_join(d->taker, NULL);
    } else if (d->count == 1 && d->each && d->each->daemon) {
        d->server->mhd->quiesce_daemon(d->each->daemon);
    }
}

void serve_http_stop(serve_server *server)
{
    struct serve_daemons *d = server->daemons;
    if (d) {
        pthread_mutex_lock(&server->lock);
        atomic_store(&server->draining, 1);
        pthread_mutex_unlock(&server->lock);
        stop_taking(d);
        pthread_mutex_lock(&server->lock);
        while (server->running > 0)
            pthread_cond_wait(&server->change, &server->lock);
        pthread_mutex_unlock(&server->lock);
        for (int64_t i = 0; d->each && i < d->count; i++)
            if (d->each[i].daemon) server->mhd->stop_daemon(d->each[i].daemon);
        if (d->changed >= 0) close(d->changed);
        free(d->each);
        free(d);
    }
    free(server->tally);
    free(server->mhd);
}
