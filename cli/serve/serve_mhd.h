// SPDX-License-Identifier: Apache-2.0
/*
 * libmicrohttpd's functions, looked up when a server starts; the calls read mhd->start_daemon(…).
 * Linked, the library and the one for TLS that it brings would begin and end with every command:
 * 2 ms, and a read of an environment that other libraries may have changed and left.
 */
#ifndef SPARSE24_CLI_SERVE_SERVE_MHD_H
#define SPARSE24_CLI_SERVE_SERVE_MHD_H

#include <microhttpd.h>

typedef struct serve_mhd {
#define MHD_FUNCTION(name) __typeof__(MHD_##name) *name;
#include "serve/serve_mhd.def"
#undef MHD_FUNCTION
} serve_mhd;

/* Looks them all up in the library, which then stays. Returns NULL, or why not. */
const char *serve_mhd_load(serve_mhd *mhd);

/* What daemons call (serve_http.c): with a request's parts, and with its end. */
enum MHD_Result serve_http_handle(void *server, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *bytes, void **state);
void serve_http_complete(void *server, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why);

/* ---- serve_ends.c: clients that are gone within a request ------------------------------------ */

struct serve_server;

/* Follows a connection, from its begin to before it is closed; *state is its own. */
void serve_ends_begin(struct serve_server *server, struct MHD_Connection *connection, void **state);
void serve_ends_leave(struct serve_server *server, void **state);
/* A request of it is whole (1), or answered (0). */
void serve_ends_answers(struct serve_server *server, struct MHD_Connection *connection,
                        int answers);

#endif
