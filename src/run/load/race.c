// SPDX-License-Identifier: Apache-2.0
/*
 * The race itself. Numbers of rows rise, so that a slow machine has measured the small ones when
 * its time is over; each is run until the two least laps of either way agree, at most ROUNDS times.
 */
#include "model/race.h"

#include <math.h>

#include "io/file/io.h"

enum { ROUNDS = 8, ENOUGH = 3 };
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
    double least[S24I_RACE_WAYS][S24I_RACE_PRODUCTS];
    double lap[S24I_RACE_WAYS]; /* of all products, the least; of who does not race 0 */
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

static void keep(const s24i_race *race, point *p, int way, const double *times)
{
    for (int i = 0; i < race->products; i++)
        if (!p->rounds || times[i] < p->least[way][i]) p->least[way][i] = times[i];
}

static int ways_of(const s24i_race *race)
{
    return race->keeps ? S24I_RACE_WAYS : S24I_RACE_KEPT;
}

static s24_status run_point(point *p, const s24i_race *race, int together, int octave)
{
    const int ways = ways_of(race);
    double second[S24I_RACE_WAYS];
    for (int way = 0; way < ways; way++)
        second[way] = p->lap[way] = INFINITY;
    while (p->rounds < ROUNDS && !p->agreed) {
        for (int way = 0; way < ways; way++) {
            double times[S24I_RACE_PRODUCTS];
            /* No more than there is room for, whatever the number of threads. */
            const int64_t rows = s24i_min((int64_t)1 << octave, race->most[together]);
            const s24i_lap lap = {way, together, rows};
            TRY(race->run(race->user, times, &lap));
            const double all = lap_of(race, times);
            second[way] = fmin(second[way], fmax(all, p->lap[way]));
            p->lap[way] = fmin(p->lap[way], all);
            keep(race, p, way, times);
        }
        p->rounds++;
        p->agreed = 1;
        for (int way = 0; way < ways; way++)
            p->agreed &= second[way] <= AGREE * p->lap[way];
        if (p->rounds > 1 && race->now(race->user) > race->until) break;
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

/* The logarithm of dense time over `way`'s at an octave, from the nearest that were timed. */
static double ratio_at(const track *t, int octave, int product, int way)
{
    int low = last_before(t, octave + 1), high = octave;
    while (high < S24I_ROW_OCTAVES && !t->points[high].rounds)
        high++;
    if (low < 0) low = high;
    if (high == S24I_ROW_OCTAVES) high = low;
    const point *a = &t->points[low], *b = &t->points[high];
    const double at_low = log(a->least[S24I_RACE_DENSE][product] / a->least[way][product]);
    const double at_high = log(b->least[S24I_RACE_DENSE][product] / b->least[way][product]);
    return low == high ? at_low : at_low + (at_high - at_low) * (octave - low) / (high - low);
}

/* 1: it was timed, and its times agree; of some numbers of rows at least, and then the others are
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
        const double dense = p->least[S24I_RACE_DENSE][product];
        gain += log(fmin(dense, p->least[S24I_RACE_SPARSE][product]) /
                    fmin(dense, p->least[S24I_RACE_KEPT][product]));
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
