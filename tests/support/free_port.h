// SPDX-License-Identifier: Apache-2.0
/* A port of this machine that nobody has. Include after support.h. */
#ifndef S24_TEST_FREE_PORT_H
#define S24_TEST_FREE_PORT_H

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

/* It is *held until that is closed. */
static inline int free_port(int *held)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof at;
    *held = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(*held, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(*held, 1), 0);
    assert_int_equal(getsockname(*held, (struct sockaddr *)&at, &bytes), 0);
    return ntohs(at.sin_port);
}

/* Another program may have taken a port between free_port and the end of *held. */
static inline int is_taken(const char *error)
{
    return strstr(error, "the port is in use") != NULL;
}

#endif
