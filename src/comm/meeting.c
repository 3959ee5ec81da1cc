// SPDX-License-Identifier: Apache-2.0
/* The meeting: a star of TCP connections around rank 0. What is sent is of this machine's order of
   bytes: ranks of one run are of one kind. */
#include "comm/meeting.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/try.h"

enum { FAREWELL = -2, NAP_MS = 50, HELLO_SECONDS = 5, LISTENED = 4096, GUESTS = 64 };
static const char MAGIC[8] = "s24meet";

typedef struct greeting {
    char magic[8];
    int32_t world, rank;
} greeting;

static s24_status refuse(s24i_comm_error *error, s24_status status, const char *what,
                         const s24_comm_opts *o)
{
    snprintf(error->text, sizeof error->text, "%s, at %s port %d", what, o->address, o->port);
    return status;
}

/* All bytes to or from a socket within `left` seconds; 0: not so. */
static int move(int socket, void *data, size_t bytes, int out, double until)
{
    for (size_t at = 0; at < bytes;) {
        struct pollfd one = {.fd = socket, .events = out ? POLLOUT : POLLIN};
        if (s24i_seconds() > until) return 0;
        if (poll(&one, 1, NAP_MS) <= 0) continue;
        const ssize_t n = out ? send(socket, (char *)data + at, bytes - at, MSG_NOSIGNAL)
                              : recv(socket, (char *)data + at, bytes - at, 0);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return 0;
        if (n > 0) at += (size_t)n;
    }
    return 1;
}

static struct addrinfo *look_up(const s24_comm_opts *o)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    char port[12];
    snprintf(port, sizeof port, "%d", o->port);
    return getaddrinfo(o->address, port, &hints, &found) == 0 ? found : NULL;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static s24_status listen_there(int *listener, const s24_comm_opts *o, s24i_comm_error *error)
{
    const int yes = 1;
    struct addrinfo *at = look_up(o);
    if (!at) return refuse(error, S24_ERROR_ARGUMENT, "the address is not known", o);
    *listener = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*listener >= 0) setsockopt(*listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const int bound = *listener >= 0 && bind(*listener, at->ai_addr, at->ai_addrlen) == 0 &&
                      listen(*listener, LISTENED) == 0;
    const int reason = errno;
    freeaddrinfo(at);
    if (bound) return S24_OK;
    return refuse(error, S24_ERROR_IO,
                  reason == EADDRINUSE ? "the port is in use" : strerror(reason), o);
}

/* One that has come and has not said all of who it is. Whoever comes is heard next to all others,
   so that a silent one costs them nothing; of too many the oldest is sent away. */
typedef struct guest {
    int socket;
    size_t came; /* bytes of the greeting */
    greeting hello;
    double until;
} guest;

typedef struct door {
    int listener, count;
    guest guests[GUESTS];
    greeting wrong; /* the last one that was sent away for its rank or its world; world 0: none */
} door;

static void dismiss(door *d, int i)
{
    close(d->guests[i].socket);
    memmove(d->guests + i, d->guests + i + 1, (size_t)(--d->count - i) * sizeof *d->guests);
}

static void let_in(door *d)
{
    const int fd = accept(d->listener, NULL, NULL);
    if (fd < 0) return;
    if (d->count == GUESTS) dismiss(d, 0);
    d->guests[d->count++] = (guest){.socket = fd, .until = s24i_seconds() + HELLO_SECONDS};
}

/* What a guest says. 1: it is no guest any more, but a rank or away. */
static int hear(s24i_meeting *m, door *d, int i)
{
    guest *g = &d->guests[i];
    const ssize_t n =
        recv(g->socket, (char *)&g->hello + g->came, sizeof g->hello - g->came, MSG_DONTWAIT);
    if (n > 0) g->came += (size_t)n;
    const int ended = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
    if (!ended && g->came < sizeof g->hello) return 0;
    const greeting hello = g->hello;
    const int known = !ended && memcmp(hello.magic, MAGIC, sizeof MAGIC) == 0;
    if (known && hello.world == m->world && hello.rank > 0 && hello.rank < m->world &&
        m->sockets[hello.rank] < 0) {
        m->sockets[hello.rank] = g->socket;
        memmove(g, g + 1, (size_t)(--d->count - i) * sizeof *g);
        return 1;
    }
    if (known) d->wrong = hello;
    dismiss(d, i);
    return 1;
}

static void hear_all(s24i_meeting *m, door *d)
{
    struct pollfd all[1 + GUESTS];
    const int count = d->count;
    all[0] = (struct pollfd){.fd = d->listener, .events = POLLIN};
    for (int i = 0; i < count; i++)
        all[1 + i] = (struct pollfd){.fd = d->guests[i].socket, .events = POLLIN};
    const int came = poll(all, (nfds_t)(1 + count), NAP_MS);
    for (int i = count - 1; i >= 0; i--) {
        const int over = d->guests[i].until < s24i_seconds();
        const int gone = came > 0 && all[1 + i].revents && hear(m, d, i);
        if (over && !gone) dismiss(d, i);
    }
    if (came > 0 && all[0].revents) let_in(d);
}

static int missing_of(const s24i_meeting *m)
{
    int r = 1;
    while (r < m->world && m->sockets[r] >= 0)
        r++;
    return r;
}

static s24_status gather(s24i_meeting *m, door *d, double until, s24i_comm_error *error)
{
    while (missing_of(m) < m->world) {
        if (s24i_seconds() > until) {
            const int n = snprintf(error->text, sizeof error->text, "rank %d of %d did not come",
                                   missing_of(m), m->world);
            if (d->wrong.world)
                snprintf(error->text + n, sizeof error->text - (size_t)n,
                         "; rank %d of %d came and was sent away", (int)d->wrong.rank,
                         (int)d->wrong.world);
            return S24_ERROR_IO;
        }
        hear_all(m, d);
    }
    return S24_OK;
}

static s24_status receive_all(s24i_meeting *m, const s24_comm_opts *o, double until,
                              s24i_comm_error *error)
{
    door d = {.listener = -1};
    s24_status status = listen_there(&d.listener, o, error);
    if (status == S24_OK) status = gather(m, &d, until, error);
    while (d.count)
        dismiss(&d, d.count - 1);
    if (d.listener >= 0) close(d.listener);
    return status;
}

/* ---- the others ------------------------------------------------------------------------------ */

static int reach(const s24_comm_opts *o, double until)
{
    const struct timespec nap = {0, NAP_MS * 1000000};
    while (s24i_seconds() < until) {
        struct addrinfo *at = look_up(o);
        const int fd = at ? socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
        const int reached = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0;
        if (at) freeaddrinfo(at);
        if (reached) return fd;
        if (fd >= 0) close(fd);
        nanosleep(&nap, NULL);
    }
    return -1;
}

static s24_status join(s24i_meeting *m, const s24_comm_opts *o, double until,
                       s24i_comm_error *error)
{
    greeting hello = {.world = m->world, .rank = m->rank};
    memcpy(hello.magic, MAGIC, sizeof MAGIC);
    m->sockets[0] = reach(o, until);
    if (m->sockets[0] >= 0 && move(m->sockets[0], &hello, sizeof hello, 1, until)) return S24_OK;
    return refuse(error, S24_ERROR_IO, "rank 0 is not there", o);
}

/* ---- both ------------------------------------------------------------------------------------ */

static s24_status share(s24i_meeting *m, void *data, size_t bytes, double until,
                        s24i_comm_error *error)
{
    for (int i = 0; i < m->count; i++) {
        if (m->sockets[i] < 0) continue;
        if (move(m->sockets[i], data, bytes, m->rank == 0, until)) continue;
        snprintf(error->text, sizeof error->text, "rank %d of %d went away while ranks met",
                 m->rank ? 0 : i, m->world);
        return S24_ERROR_IO;
    }
    return S24_OK;
}

s24_status s24i_meeting_open(s24i_meeting *m, const s24_comm_opts *opts, void *data, size_t bytes,
                             s24i_comm_error *error)
{
    const double until = s24i_seconds() + opts->patience;
    *m = (s24i_meeting){
        .rank = opts->rank, .world = opts->world, .count = opts->rank ? 1 : opts->world};
    m->sockets = malloc((size_t)m->count * sizeof *m->sockets);
    if (!m->sockets) {
        snprintf(error->text, sizeof error->text, "out of memory for %d connections", m->count);
        return S24_ERROR_MEMORY;
    }
    for (int i = 0; i < m->count; i++)
        m->sockets[i] = -1;
    if (m->world == 1) return S24_OK;
    TRY(m->rank ? join(m, opts, until, error) : receive_all(m, opts, until, error));
    return share(m, data, bytes, until, error);
}

static void tell(const s24i_meeting *m, int32_t word)
{
    for (int i = 0; i < m->count; i++)
        if (m->sockets[i] >= 0) (void)send(m->sockets[i], &word, sizeof word, MSG_NOSIGNAL);
}

/* What a connection says: a rank that is gone, by the word or by its end; nobody on a farewell. */
static int heard(s24i_meeting *m, int i)
{
    int32_t word;
    const int ended = !move(m->sockets[i], &word, sizeof word, 0, s24i_seconds() + 1);
    if (!ended && word != FAREWELL) return word;
    close(m->sockets[i]);
    m->sockets[i] = -1;
    if (!ended) return S24I_MEETING_NOBODY;
    return m->rank ? 0 : i;
}

int s24i_meeting_watch(s24i_meeting *m, int milliseconds)
{
    struct pollfd *all = calloc((size_t)m->count, sizeof *all);
    int gone = S24I_MEETING_NOBODY;
    for (int i = 0; all && i < m->count; i++)
        all[i] = (struct pollfd){.fd = m->sockets[i], .events = POLLIN};
    if (all && poll(all, (nfds_t)m->count, milliseconds) > 0)
        for (int i = 0; i < m->count && gone == S24I_MEETING_NOBODY; i++)
            if (all[i].revents) gone = heard(m, i);
    free(all);
    if (gone != S24I_MEETING_NOBODY && m->rank == 0) tell(m, gone);
    return gone;
}

void s24i_meeting_close(s24i_meeting *m, int farewell)
{
    if (farewell && m->sockets) tell(m, FAREWELL);
    for (int i = 0; m->sockets && i < m->count; i++)
        if (m->sockets[i] >= 0) close(m->sockets[i]);
    free(m->sockets);
    *m = (s24i_meeting){0};
}
