// SPDX-License-Identifier: Apache-2.0
/*
 * A team is the threads of a context without the one that calls. It is made when a loop first needs
 * it and sleeps between loops. Private to base.
 */
#ifndef S24_BASE_TEAM_H
#define S24_BASE_TEAM_H

#include "base/base.h"

typedef void s24i_range_fn(void *arg, int64_t begin, int64_t end, int thread);

/* fn over [0, count) in `ranges` ranges. */
typedef struct s24i_loop {
    s24i_range_fn *fn;
    void *arg;
    int64_t count;
    int ranges;
} s24i_loop;

typedef struct s24i_team s24i_team;

/* Runs every range of the loop on the calling thread. */
void s24i_loop_run(const s24i_loop *loop);

/* A team for loops of at most `threads` ranges; NULL when memory is out. Its threads are started as
   loops need them. */
s24i_team *s24i_team_create(const s24_allocator *allocator, int threads);
/* Ends the threads. In a process forked from the one that made the team there are none to end. */
void s24i_team_destroy(s24i_team *team);
/* The most ranges of its loops; 0 in a process forked from the one that made it, where the team
   must be made again. */
int s24i_team_threads(const s24i_team *team);
/* Runs every range once and returns when all are done. Ranges that no thread of the team has begun
   are the caller's, so the loop ends with any number of threads. Returns how many threads could not
   be started, when that is first seen; else 0. */
int s24i_team_run(s24i_team *team, const s24i_loop *loop);

#endif
