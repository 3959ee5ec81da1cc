// SPDX-License-Identifier: Apache-2.0
/*
 * Where ranks meet that know no more than an address: rank 0 listens there, and nowhere else, until
 * all have come, and gives each the same bytes. Connections stay: a rank whose connection ends
 * without a farewell is gone, which rank 0 tells the others.
 */
#ifndef S24_COMM_MEETING_H
#define S24_COMM_MEETING_H

#include "comm/transport.h"

typedef struct s24i_meeting {
    int rank, world;
    int *sockets; /* rank 0: [world], by rank, −1 for its own; else [1], to rank 0 */
    int count;
} s24i_meeting;

enum { S24I_MEETING_NOBODY = -1 };

/* Meets; `bytes` of rank 0's data are then in all ranks'. Waits for at most opts->patience. */
s24_status s24i_meeting_open(s24i_meeting *m, const s24_comm_opts *opts, void *data, size_t bytes,
                             s24i_comm_error *error);
/* The rank that is gone, after at most so many milliseconds; S24I_MEETING_NOBODY. */
int s24i_meeting_watch(s24i_meeting *m, int milliseconds);
/* Says farewell, unless this rank is to be taken for gone. */
void s24i_meeting_close(s24i_meeting *m, int farewell);

#endif
