// SPDX-License-Identifier: Apache-2.0
/*
 * Which of two ways of the same products is faster, 2:4 or dense, and for which numbers of rows:
 * both are timed by turns within a limit of time, and between the numbers that were timed the ratio
 * is interpolated. A third contestant may stand in for the first, for all numbers of rows: 2:4 with
 * the weights' tiles kept next to them. Nothing here knows a model or a clock; who runs the race
 * gives both.
 */
#ifndef S24_MODEL_RACE_H
#define S24_MODEL_RACE_H

#include <stdint.h>

#include "sparse24/sparse24.h"

enum { S24I_RACE_PRODUCTS = 8, S24I_ROW_OCTAVES = 20 };

/* By whom: one thread alone, or all together. */
enum { S24I_ALONE, S24I_TOGETHER };

/* For which numbers of rows a product runs dense, alone and together: bit i is 2^(i − 1) + 1 …
   2^i. */
typedef struct s24i_choice {
    uint32_t dense[2];
    int kept; /* 1: where it runs 2:4 it does so with its tiles kept */
} s24i_choice;

/* The bit of that many rows. */
static inline int s24i_row_octave(int64_t rows)
{
    int octave = 0;
    while (octave + 1 < S24I_ROW_OCTAVES && (int64_t)1 << octave < rows)
        octave++;
    return octave;
}

/* Who races. */
enum { S24I_RACE_SPARSE, S24I_RACE_DENSE, S24I_RACE_KEPT, S24I_RACE_WAYS };

/* All products one after the other, as a pass has them. */
typedef struct s24i_lap {
    int way, together;
    int64_t rows;
} s24i_lap;

typedef struct s24i_race {
    int products;
    unsigned keeps;   /* products that have tiles to keep (bits); the others run 2:4 in their lap */
    unsigned streams; /* products (bits) whose weights come from memory each time; below */
    int64_t most[2];  /* rows that occur alone, and together; 0: none do */
    double until;     /* the time when it must be over */
    int dense_wins; /* in doubt, 1: what looked faster dense runs dense; 0: by far faster; below */
    int dense_untimed; /* 1: what there was no time for runs dense */
    double (*now)(void *user);
    /* times[i]: the seconds of product i in a lap. */
    s24_status (*run)(void *user, double times[S24I_RACE_PRODUCTS], const s24i_lap *lap);
    void *user;
} s24i_race;

/*
 * choices[i] of each product. *agreed 0: times never came twice, because other work ran with
 * them. Then the choice of one thread counts for all together, or the other way round; if there is
 * neither, what looked far faster dense runs dense, or with race->dense_wins what looked faster;
 * if nothing could be timed at all, race->dense_untimed decides. A product that streams borrows no
 * times and heeds neither: unless both tracks agreed, it runs dense only where that looked far
 * faster. Errors: those of race->run.
 */
s24_status s24i_race_run(s24i_choice *choices, int *agreed, const s24i_race *race);

#endif
