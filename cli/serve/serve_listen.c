// SPDX-License-Identifier: Apache-2.0
/* Where the server listens, a port or a path of this machine, and who may ask: the keys of a
   file. */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve/serve.h"

enum {
    BACKLOG = 1024,
    /* Of each connection, which has it from the listener. The system would take up to 4 MB of an
       answer at once and ask for more when a third is gone: a client who takes longer for that than
       --timeout looked like one who takes nothing. */
    SEND_BYTES = 131072
};

static int fail_errno(cli_app *cli, const char *where)
{
    return cli_fail(cli, CLI_IO, "%s: %s", where, strerror(errno));
}

/* ---- a port --------------------------------------------------------------------------------- */

static int try_address(const struct addrinfo *a)
{
    const int on = 1;
    const int bytes = SEND_BYTES;
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, BACKLOG)) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Asks which port it became, where any was to do. */
static void name_port(serve_server *s)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    char host[256] = "", port[16] = "";
    getsockname(s->listener, (struct sockaddr *)&address, &bytes);
    getnameinfo((struct sockaddr *)&address, bytes, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(s->url, sizeof s->url, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host,
             port);
}

static int listen_port(cli_app *cli, serve_server *s)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char *end;
    const unsigned long port = strtoul(s->o->port, &end, 10);
    /* The C library would take what is left of a larger number in 16 bits. */
    if (strspn(s->o->port, "0123456789") != strlen(s->o->port) || *end || port > 65535)
        return cli_fail(cli, CLI_USAGE, "option --port: '%s' is not a whole number of 0 to 65535",
                        s->o->port);
    snprintf(s->url, sizeof s->url, "%s:%s", s->o->host, s->o->port);
    const int failed = getaddrinfo(s->o->host, s->o->port, &hints, &found);
    if (failed)
        return cli_fail(cli, CLI_USAGE, "--host %s --port %s: %s", s->o->host, s->o->port,
                        gai_strerror(failed));
    for (const struct addrinfo *a = found; a && s->listener < 0; a = a->ai_next)
        s->listener = try_address(a);
    freeaddrinfo(found);
    if (s->listener < 0) return fail_errno(cli, s->url);
    name_port(s);
    return CLI_OK;
}

/* ---- a path --------------------------------------------------------------------------------- */

/* Removes a socket that nobody answers at, as a server that was killed leaves one. */
static void remove_stale(const struct sockaddr_un *address)
{
    struct stat about;
    if (lstat(address->sun_path, &about) != 0 || !S_ISSOCK(about.st_mode)) return;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
        errno == ECONNREFUSED)
        unlink(address->sun_path);
    close(fd);
}

static int listen_path(cli_app *cli, serve_server *s)
{
    const char *path = s->o->socket;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return cli_fail(cli, CLI_USAGE, "--socket %s: a path of at most %zu bytes is expected",
                        path, sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    remove_stale(&address);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        const int code = fail_errno(cli, path);
        if (fd >= 0) close(fd);
        return code;
    }
    s->listener = fd;
    snprintf(s->url, sizeof s->url, "unix:%s", path);
    return listen(fd, BACKLOG) ? fail_errno(cli, path) : CLI_OK;
}

int serve_listen(cli_app *cli, serve_server *server)
{
    return server->o->socket ? listen_path(cli, server) : listen_port(cli, server);
}

void serve_unlisten(serve_server *server)
{
    if (server->listener < 0) return;
    close(server->listener);
    if (server->o->socket) unlink(server->o->socket);
}

/* ---- keys ----------------------------------------------------------------------------------- */

int serve_read_keys(cli_app *cli, serve_server *server)
{
    s24_lines *lines = NULL;
    const char *path = server->o->key_file;
    if (!path) return CLI_OK;
    const int code = cli_status(cli, s24_lines_read(&lines, cli->ctx, path));
    if (code != CLI_OK) return code;
    const int64_t count = s24_lines_count(lines);
    size_t bytes = 1;
    for (int64_t i = 0; i < count; i++)
        bytes += s24_lines_texts(lines)[i].bytes + 1;
    char *at = server->keys = calloc(bytes, 1);
    for (int64_t i = 0; i < count && at; i++) {
        const s24_text *line = &s24_lines_texts(lines)[i];
        if (line->bytes) memcpy(at, line->data, line->bytes);
        at += line->bytes ? line->bytes + 1 : 0;
    }
    s24_lines_destroy(lines);
    if (!server->keys) return cli_fail(cli, CLI_IO, "out of memory for the keys of %s", path);
    if (*server->keys) return CLI_OK;
    return cli_fail(cli, CLI_FORMAT, "%s: there is no key in it; each line is one", path);
}

/* Compares in a time that tells nothing of the key but its length. */
static int is_same(const char *key, const char *given)
{
    const size_t bytes = strlen(key), other = strlen(given);
    unsigned differs = bytes != other;
    for (size_t i = 0; i < bytes; i++)
        differs |= (unsigned)(key[i] ^ given[other ? i % other : 0]);
    return !differs;
}

int serve_key_fits(const serve_server *server, const char *value)
{
    int fits = 0;
    if (!value || strncasecmp(value, "Bearer ", 7) != 0) return 0;
    for (const char *key = server->keys; *key; key += strlen(key) + 1)
        fits |= is_same(key, value + 7);
    return fits;
}
