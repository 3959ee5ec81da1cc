// SPDX-License-Identifier: Apache-2.0
/* The best of many that have scores. Of equal scores the lower index is better, so that what is
   kept is the same whatever the order they come in. */
#ifndef S24_TASK_BEST_H
#define S24_TASK_BEST_H

#include <stdint.h>

/* A heap, the worst of those kept first; no score is NaN. */
typedef struct s24i_best {
    int64_t *indices; /* [k] */
    float *scores;    /* [k] */
    int64_t k, count;
} s24i_best;

void s24i_best_add(s24i_best *best, int64_t index, float score);
/* Puts the best first. After it nothing may be added. */
void s24i_best_sort(s24i_best *best);

#endif
