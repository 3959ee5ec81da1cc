// SPDX-License-Identifier: Apache-2.0
/*
 * The race itself. Numbers of rows rise, so that a slow machine has measured the small ones when
 * its time is over. What a lap takes changes with all that the machine does besides, so ways are
 * compared within a round, which all of them run right after each other: what counts is the median
 * of a product's ratios. Rounds come in pairs, there and back, so that a machine that slows down
 * or recovers favours nobody. Each number of rows is run until its ratios agree; those that could
 * still go either way then share the time that is left.
 */
#include "model/race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/file/io.h"

enum { ROUNDS = 8, MOST_ROUNDS = 12, ENOUGH = 3 };
/* Dense must be faster by more than measuring errs, since its weight costs memory, and 2:4 may lose
   no more than that. A weight that is there for some numbers of rows costs nothing for others. */
static const double MARGIN = 0.97;
/* So has 2:4 with its tiles kept, over the best of the other two: it holds 1.6 times as much. */
static const double KEPT_MARGIN = 0.95;
/* Where times do not agree: so much is no accident. */
static const double FAR = 0.67;
static const double AGREE = 1.2;

/* One number of rows, alone or together. */
typedef struct point {
    int rounds, agreed;
    double lap[S24I_RACE_WAYS]; /* of all products, the least; of who does not race 0 */
    /* Of each round, the logarithm of dense time over a way's: of each product, and of the lap. */
    float ratios[S24I_RACE_WAYS][S24I_RACE_PRODUCTS + 1][MOST_ROUNDS];
} point;

typedef struct track {
    point points[S24I_ROW_OCTAVES];
} track;

static double lap_of(const s24i_race *race, const double *times)
{
    double sum = 0;
    for (int i = 0; i < race->products; i++)
        sum += times[i];
    return sum;
}

static int ways_of(const s24i_race *race)
{
    return race->keeps ? S24I_RACE_WAYS : S24I_RACE_KEPT;
}

/* ---- ratios ---------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* A product's ratios of all rounds (product `products`: the lap's): their median, and the middle
   half of them. */
typedef struct middle {
    double median, low, high;
} middle;

static middle middle_of(const point *p, int way, int product)
{
    float sorted[MOST_ROUNDS];
    const int n = p->rounds, out = n / 4;
    memcpy(sorted, p->ratios[way][product], sizeof sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    return (middle){((double)sorted[(n - 1) / 2] + (double)sorted[n / 2]) / 2, (double)sorted[out],
                    (double)sorted[n - 1 - out]};
}

/* How far a median of so many rounds may be off where two ratios may differ by AGREE. */
static double slack_of(const point *p)
{
    return log(AGREE) / sqrt(p->rounds);
}

static int agrees(const point *p, const s24i_race *race)
{
    for (int way = 0; way < ways_of(race); way++) {
        const middle m = middle_of(p, way, race->products);
        if (m.high - m.low > slack_of(p) * p->rounds / sqrt(2)) return 0;
    }
    return 1;
}

/* Could the choice for these rows go either way? */
static int in_doubt(const point *p, const s24i_race *race)
{
    const double level = log(MARGIN), slack = slack_of(p);
    if (!p->agreed) return 1;
    for (int product = 0; product < race->products; product++) {
        const middle m = middle_of(p, S24I_RACE_SPARSE, product);
        if (m.low - slack < level && level < m.high + slack) return 1;
    }
    return 0;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static s24_status run_round(point *p, const s24i_race *race, int together, int octave)
{
    const int ways = ways_of(race), back = p->rounds % 2, round = p->rounds;
    double times[S24I_RACE_WAYS][S24I_RACE_PRODUCTS + 1];
    /* No more than there is room for, whatever the number of threads. */
    const int64_t rows = s24i_min((int64_t)1 << octave, race->most[together]);
    for (int i = 0; i < ways; i++) {
        const int way = back ? ways - 1 - i : i;
        const s24i_lap lap = {way, together, rows};
        TRY(race->run(race->user, times[way], &lap));
        const double all = times[way][race->products] = lap_of(race, times[way]);
        p->lap[way] = round ? fmin(p->lap[way], all) : all;
    }
    for (int way = 0; way < ways; way++)
        for (int i = 0; i <= race->products; i++)
            p->ratios[way][i][round] = (float)log(times[S24I_RACE_DENSE][i] / times[way][i]);
    p->rounds++;
    return S24_OK;
}

static s24_status run_pair(point *p, const s24i_race *race, int together, int octave)
{
    TRY(run_round(p, race, together, octave));
    TRY(run_round(p, race, together, octave));
    p->agreed = agrees(p, race);
    return S24_OK;
}

static s24_status run_point(point *p, const s24i_race *race, int together, int octave)
{
    while (p->rounds < ROUNDS && !p->agreed) {
        TRY(run_pair(p, race, together, octave));
        if (race->now(race->user) > race->until) break;
    }
    return S24_OK;
}

static int last_before(const track *t, int octave)
{
    do
        octave--;
    while (octave >= 0 && !t->points[octave].rounds);
    return octave;
}

static double laps_of(const point *p)
{
    return p->lap[S24I_RACE_SPARSE] + p->lap[S24I_RACE_DENSE] + p->lap[S24I_RACE_KEPT];
}

/* The seconds that a first and a second round are going to take: laps grow with the rows at
   most, and hardly more than they did last. */
static double price(const track *t, int octave)
{
    const int last = last_before(t, octave), before = last < 0 ? -1 : last_before(t, last);
    if (last < 0) return 0;
    const point *p = &t->points[last];
    double growth = (double)((int64_t)1 << (octave - last)), laps = laps_of(p);
    if (before >= 0) {
        const point *q = &t->points[before];
        growth = fmin(growth, fmax(2, 2 * laps / laps_of(q)));
    }
    return 2 * growth * laps;
}

static s24_status run_octave(track *t, const s24i_race *race, int together, int octave)
{
    point *p = &t->points[octave];
    const int64_t half = (int64_t)1 << octave >> 1;
    if (p->rounds || half >= race->most[together]) return S24_OK;
    if (race->now(race->user) + price(t, octave) > race->until) return S24_OK;
    return run_point(p, race, together, octave);
}

/* Which number of rows is in doubt and has had the fewest rounds, where a pair more ends in time;
   of NULL none is. */
static point *doubtful(track tracks[2], const s24i_race *race, int *together, int *octave)
{
    const double left = race->until - race->now(race->user);
    point *least = NULL;
    for (int i = 0; i < 2 * S24I_ROW_OCTAVES; i++) {
        point *p = &tracks[i % 2].points[i / 2];
        if (!p->rounds || p->rounds == MOST_ROUNDS || 2 * laps_of(p) > left) continue;
        if ((least && p->rounds >= least->rounds) || !in_doubt(p, race)) continue;
        least = p, *together = i % 2, *octave = i / 2;
    }
    return least;
}

static s24_status run_doubtful(track tracks[2], const s24i_race *race)
{
    int together, octave;
    for (point *p; (p = doubtful(tracks, race, &together, &octave));)
        TRY(run_pair(p, race, together, octave));
    return S24_OK;
}

/* The logarithm of dense time over `way`'s at an octave, from the nearest that were timed. */
static double ratio_at(const track *t, int octave, int product, int way)
{
    int low = last_before(t, octave + 1), high = octave;
    while (high < S24I_ROW_OCTAVES && !t->points[high].rounds)
        high++;
    if (low < 0) low = high;
    if (high == S24I_ROW_OCTAVES) high = low;
    const double at_low = middle_of(&t->points[low], way, product).median;
    const double at_high = middle_of(&t->points[high], way, product).median;
    return low == high ? at_low : at_low + (at_high - at_low) * (octave - low) / (high - low);
}

/* 1: it was timed, and its ratios agree; of some numbers of rows at least, and then the others are
   forgotten. */
static int has_agreed(track *t)
{
    int points = 0, agreed = 0;
    for (int i = 0; i < S24I_ROW_OCTAVES; i++) {
        points += t->points[i].rounds > 0;
        agreed += t->points[i].agreed;
    }
    for (int i = 0; i < S24I_ROW_OCTAVES && agreed >= ENOUGH; i++)
        if (!t->points[i].agreed) t->points[i].rounds = 0;
    return points > 0 && (agreed == points || agreed >= ENOUGH);
}

static uint32_t dense_bits(const track *t, int product, int agreed, int way, double margin,
                           const s24i_race *race)
{
    const int streams = race->streams >> product & 1;
    const double least = log(agreed ? margin : race->dense_wins && !streams ? 1 : FAR);
    const uint32_t all = (1u << S24I_ROW_OCTAVES) - 1;
    uint32_t bits = 0;
    if (last_before(t, S24I_ROW_OCTAVES) < 0) return race->dense_untimed && !streams ? all : 0;
    for (int i = 0; i < S24I_ROW_OCTAVES; i++)
        if (ratio_at(t, i, product, way) < least) bits |= 1u << i;
    return bits;
}

/* Is a product faster with its tiles kept, in the mean of what was timed with times that agree? */
static int keeps(const track tracks[2], const int sure[2], int product, const s24i_race *race)
{
    double gain = 0;
    int points = 0;
    if (!(race->keeps >> product & 1)) return 0;
    for (int i = 0; i < 2 * S24I_ROW_OCTAVES; i++) {
        const point *p = &tracks[i % 2].points[i / 2];
        if (!sure[i % 2] || !p->rounds) continue;
        /* Next to dense, which runs where it is faster than either. */
        gain += fmax(0, middle_of(p, S24I_RACE_KEPT, product).median) -
                fmax(0, middle_of(p, S24I_RACE_SPARSE, product).median);
        points++;
    }
    return points && gain / points > -log(KEPT_MARGIN);
}

/* For which numbers of rows a product runs dense, by whose times; firm: they agree. */
static void choose_dense(s24i_choice *choice, const track tracks[2], const int as[2],
                         const int firm[2], int product, const s24i_race *race)
{
    const int way = choice->kept ? S24I_RACE_KEPT : S24I_RACE_SPARSE;
    double margin = MARGIN;
    for (int times = 0; times < 2; times++) {
        for (int i = 0; i < 2; i++)
            choice->dense[i] = dense_bits(&tracks[as[i]], product, firm[i], way, margin, race);
        if (!choice->dense[0] && !choice->dense[1]) return;
        margin = 1;
    }
}

s24_status s24i_race_run(s24i_choice *choices, int *agreed, const s24i_race *race)
{
    /* Every second to the rows of a chunk, then all: those of many threads together. */
    static const int order[] = {0, 2, 4, 6, 8, 9, 10, 11, 12};
    track tracks[2] = {{{{0}}}};
    *agreed = 1;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        for (int together = 0; together < 2; together++)
            TRY(run_octave(&tracks[together], race, together, order[i]));
    TRY(run_doubtful(tracks, race));
    const int sure[2] = {has_agreed(&tracks[0]), has_agreed(&tracks[1])};
    for (int p = 0; p < race->products; p++)
        choices[p].kept = keeps(tracks, sure, p, race);
    int as[2]; /* whose times decide */
    for (int together = 0; together < 2; together++) {
        /* What does not occur now does when a context has other threads. Then, and where other work
           ran beside it, the other track is the best guess. */
        const int occurs = race->most[together] > 0;
        as[together] = !occurs || (!sure[together] && sure[!together]) ? !together : together;
        *agreed &= sure[together] || !occurs;
    }
    const int borrowed[2] = {sure[as[0]], sure[as[1]]}, all[2] = {*agreed, *agreed};
    for (int p = 0; p < race->products; p++)
        choose_dense(&choices[p], tracks, as, race->streams >> p & 1 ? all : borrowed, p, race);
    return S24_OK;
}
