// SPDX-License-Identifier: Apache-2.0
/* Which of 2:4 and dense is said to be faster, by a clock of the test's own. */
#include "support.h"

#include <math.h>

#include "model/race.h"

/* A machine whose laps take what a test says. */
typedef struct machine {
    double clock;
    double sparse[2], dense[2]; /* seconds of a lap: of one row's work, and beside the work */
    double kept[2];             /* of 2:4 with tiles; zeros: it does not race */
    unsigned keeps;             /* products that have tiles (bits), 0: both have */
    unsigned streams;           /* products that stream (bits) */
    double dense_factor;        /* of the second product */
    int noisy_laps;             /* the first so many laps take 10 times as long; −1: … */
    int busy[2];                /* … alone, or together, each takes longer than the last */
    double unrest; /* > 0: each takes up to so much longer or less, by the logarithm, */
    uint64_t seed; /* and of 8 following each other some twice as long */
    int laps, fails_at;
    int64_t most_rows;
} machine;

static double now(void *user)
{
    return ((machine *)user)->clock;
}

/* What else the machine does, of a host whose cores others use. */
static double disturbance(const machine *m)
{
    uint64_t of_some = m->seed + (uint64_t)m->laps / 8, of_one = ~m->seed - (uint64_t)m->laps;
    const double level = test_random(&of_some) % 3 ? 1 : 2;
    return level * exp(m->unrest * (double)test_uniform(&of_one));
}

static s24_status run(void *user, double times[S24I_RACE_PRODUCTS], const s24i_lap *lap)
{
    machine *m = user;
    const double *of = lap->way == S24I_RACE_DENSE  ? m->dense
                       : lap->way == S24I_RACE_KEPT ? m->kept
                                                    : m->sparse;
    const double factors[2] = {1, lap->way == S24I_RACE_DENSE ? m->dense_factor : 1};
    if (++m->laps == m->fails_at) return S24_ERROR_MEMORY;
    m->noisy_laps -= m->noisy_laps > 0 ? 1 : 0;
    m->most_rows = lap->rows > m->most_rows ? lap->rows : m->most_rows;
    const double longer = m->unrest > 0 ? disturbance(m) : 1;
    for (int i = 0; i < 2; i++) {
        times[i] = (of[0] * (double)lap->rows + of[1]) * factors[i] * longer;
        if (m->noisy_laps > 0) times[i] *= 10;
        if (m->noisy_laps < 0 && m->busy[lap->together]) times[i] *= pow(1.3, m->laps);
        m->clock += times[i];
    }
    return S24_OK;
}

/* A race that cannot agree, with what the caller says of doubt. */
static void race_in_doubt(s24i_choice choices[2], machine *m, double until, int in_doubt)
{
    const s24i_race r = {.products = 2,
                         .streams = m->streams,
                         .most = {256, 64},
                         .until = until,
                         .dense_wins = in_doubt,
                         .dense_untimed = in_doubt,
                         .now = now,
                         .run = run,
                         .user = m};
    int agreed = 1;
    assert_int_equal(s24i_race_run(choices, &agreed, &r), S24_OK);
    assert_false(agreed);
}

/* Runs it on a machine that has one thread or more. */
static void race(s24i_choice choices[2], int *agreed, machine *m, int threads)
{
    const s24i_race r = {.products = 2,
                         .keeps = m->keeps                      ? m->keeps
                                  : m->kept[0] + m->kept[1] > 0 ? 3
                                                                : 0,
                         .streams = m->streams,
                         .most = {256, threads > 1 ? 32 * threads : 0},
                         .until = 0.15,
                         .now = now,
                         .run = run,
                         .user = m};
    assert_int_equal(s24i_race_run(choices, agreed, &r), S24_OK);
}

static const uint32_t ALL = (1u << S24I_ROW_OCTAVES) - 1;

static void octaves(void **state)
{
    (void)state;
    const int64_t rows[] = {1, 2, 3, 4, 5, 16, 17, 256, 257};
    const int octave[] = {0, 1, 2, 2, 3, 4, 5, 8, 9};
    for (int i = 0; i < 9; i++)
        assert_int_equal(s24i_row_octave(rows[i]), octave[i]);
    assert_int_equal(s24i_row_octave((int64_t)1 << 40), S24I_ROW_OCTAVES - 1);
}

static void dense_from_some_rows_on(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        /* Level at 24 rows; the second product is far slower dense. */
        machine m = {.sparse = {1e-6, 0}, .dense = {0, 24e-6}, .dense_factor = 100};
        s24i_choice choices[2];
        int agreed = 0;
        race(choices, &agreed, &m, threads);
        assert_true(agreed);
        for (int together = 0; together < 2; together++) {
            assert_int_equal(choices[0].dense[together], ALL & ~0x1fu); /* 2⁴ rows are 2:4 */
            assert_int_equal(choices[1].dense[together], 0);
        }
        assert_true(m.clock < 0.15);
    }
}

/* The memory of a lap has room for the rows that occur, also where these are no power of two. */
static void no_lap_has_more_rows_than_occur(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 40; threads++) {
        machine m = {.sparse = {1e-9, 0}, .dense = {1e-9, 0}, .dense_factor = 1};
        s24i_choice choices[2];
        int agreed = 0;
        const s24i_race r = {.products = 2,
                             .most = {1, 16 * threads},
                             .until = 1,
                             .now = now,
                             .run = run,
                             .user = &m};
        assert_int_equal(s24i_race_run(choices, &agreed, &r), S24_OK);
        assert_true(agreed);
        assert_true(m.most_rows <= 16 * threads);
    }
}

static void a_little_faster_is_not_enough(void **state)
{
    (void)state;
    const double factors[] = {0.98, 0.96};
    for (int i = 0; i < 2; i++) {
        machine m = {.sparse = {1e-6, 0}, .dense = {factors[i] * 1e-6, 0}, .dense_factor = 1};
        s24i_choice choices[2];
        int agreed = 0;
        race(choices, &agreed, &m, 1);
        assert_true(agreed);
        assert_int_equal(choices[0].dense[0], i ? ALL : 0);
    }
    /* A dense weight that other numbers of rows need is there: 0.98 with one row, 0.94 with two. */
    machine m = {.sparse = {1e-6, 0}, .dense = {0.9e-6, 0.08e-6}, .dense_factor = 1};
    s24i_choice choices[2];
    int agreed = 0;
    race(choices, &agreed, &m, 1);
    assert_true(agreed);
    assert_int_equal(choices[0].dense[0], ALL);
}

/* Tiles are kept where they gain over the better of the other two, and then dense is compared with
   them. */
static void kept_tiles(void **state)
{
    (void)state;
    const double factors[] = {0.97, 0.9};
    for (int threads = 1; threads <= 2; threads++)
        for (int i = 0; i < 2; i++) {
            /* Level with dense at 6 rows; dense is far slower of the second product. */
            machine m = {.sparse = {1e-6, 0},
                         .dense = {0, 6e-6},
                         .kept = {factors[i] * 1e-6, 0},
                         .dense_factor = 100};
            s24i_choice choices[2];
            int agreed = 0;
            race(choices, &agreed, &m, threads);
            assert_true(agreed);
            assert_false(choices[0].kept); /* a gain up to 4 rows alone */
            assert_int_equal(choices[1].kept, i);
            m.clock = 0, m.dense[1] = 200e-6,
            m.kept[0] = 0.5e-6; /* 256 rows: 256, 200 and 128 µs */
            race(choices, &agreed, &m, threads);
            assert_true(choices[0].kept);
            assert_int_equal(choices[0].dense[S24I_ALONE] & 0x1ff, 0);
        }
    /* Where a layer has none, its lap says nothing, however fast it was. */
    machine one = {.sparse = {1e-6, 0},
                   .dense = {1e-6, 0},
                   .kept = {0.5e-6, 0},
                   .dense_factor = 1,
                   .keeps = 2};
    s24i_choice of_one[2];
    int one_agreed = 0;
    race(of_one, &one_agreed, &one, 1);
    assert_true(one_agreed);
    assert_false(of_one[0].kept);
    assert_true(of_one[1].kept);
    /* Times that do not agree say nothing of them. */
    machine busy = {.sparse = {1e-6, 0},
                    .dense = {1e-6, 0},
                    .kept = {0.5e-6, 0},
                    .dense_factor = 1,
                    .noisy_laps = -1,
                    .busy = {1, 1}};
    s24i_choice choices[2];
    int agreed = 1;
    race(choices, &agreed, &busy, 1);
    assert_false(agreed);
    assert_false(choices[0].kept);
}

/* Other work for a while is waited for; other work all the time is seen, and far is far. */
static void a_busy_machine(void **state)
{
    (void)state;
    s24i_choice choices[2];
    int agreed = 0;
    machine once = {.sparse = {1e-6, 0}, .dense = {0, 24e-6}, .dense_factor = 1, .noisy_laps = 6};
    race(choices, &agreed, &once, 1);
    assert_true(agreed);
    assert_int_equal(choices[0].dense[0], ALL & ~0x1fu);
    machine always = {.sparse = {1e-7, 0},
                      .dense = {1e-6, 0},
                      .dense_factor = 1e-3,
                      .noisy_laps = -1,
                      .busy = {1, 1}};
    race(choices, &agreed, &always, 2);
    assert_false(agreed);
    for (int together = 0; together < 2; together++) {
        assert_int_equal(choices[0].dense[together], 0);
        assert_int_equal(choices[1].dense[together], ALL);
    }
    /* Where only all threads together were disturbed, one thread's choice is theirs. */
    machine both = {.sparse = {1e-7, 0},
                    .dense = {0.9e-7, 0},
                    .dense_factor = 1,
                    .noisy_laps = -1,
                    .busy = {0, 1}};
    race(choices, &agreed, &both, 2);
    assert_false(agreed);
    assert_int_equal(choices[0].dense[S24I_ALONE], ALL);
    assert_int_equal(choices[0].dense[S24I_TOGETHER], ALL);
}

/* Races of a machine whose laps differ by more than two ways do choose alike. */
static void a_restless_machine(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++)
        for (int threads = 1; threads <= 2; threads++) {
            machine m = {.sparse = {1e-6, 0},
                         .dense = {0.85e-6, 0},
                         .dense_factor = 1.3,
                         .unrest = 0.1,
                         .seed = seed * 1000};
            s24i_choice choices[2];
            int agreed = 0;
            race(choices, &agreed, &m, threads);
            assert_true(agreed);
            assert_true(m.clock < 0.2);
            assert_int_equal(choices[0].dense[S24I_ALONE] & 0x1ff, 0x1ff);
            assert_int_equal(choices[1].dense[S24I_ALONE] & 0x1ff, 0);
        }
}

/* A machine on which a lap of many rows takes too long is not asked for it. */
static void a_slow_machine(void **state)
{
    (void)state;
    machine m = {.sparse = {5e-3, 0}, .dense = {1e-3, 0}, .dense_factor = 1};
    s24i_choice choices[2];
    int agreed = 0;
    race(choices, &agreed, &m, 1);
    assert_true(agreed);
    assert_true(m.clock < 0.2);
    assert_true(m.most_rows < 16);
    assert_int_equal(choices[0].dense[0], ALL);
}

/* Many threads together have more rows than a chunk of one of them. */
static void many_threads(void **state)
{
    (void)state;
    machine m = {.sparse = {1e-8, 0}, .dense = {0, 600e-8}, .dense_factor = 1};
    s24i_choice choices[2];
    int agreed = 0;
    race(choices, &agreed, &m, 32);
    assert_true(agreed);
    assert_int_equal(m.most_rows, 1024);
    assert_int_equal(choices[0].dense[S24I_TOGETHER], ALL & ~0x3ffu); /* 512 rows are 2:4 */
}

/* Where the time is over before the first lap, the caller has said what runs. */
static void no_time_at_all(void **state)
{
    (void)state;
    for (int in_doubt = 0; in_doubt < 2; in_doubt++) {
        machine m = {.clock = 2, .sparse = {1e-6, 0}, .dense = {1e-6, 0}, .dense_factor = 1};
        s24i_choice choices[2];
        race_in_doubt(choices, &m, 1, in_doubt);
        assert_int_equal(m.laps, 0);
        for (int p = 0; p < 2; p++)
            for (int together = 0; together < 2; together++)
                assert_int_equal(choices[p].dense[together], in_doubt ? ALL : 0);
    }
}

/* Where times do not agree and dense looked faster, but not by far, the caller has said it too. */
static void times_that_do_not_agree(void **state)
{
    (void)state;
    for (int in_doubt = 0; in_doubt < 2; in_doubt++) {
        machine m = {.sparse = {1e-7, 0},
                     .dense = {0.7e-7, 0},
                     .dense_factor = 2,
                     .noisy_laps = -1,
                     .busy = {1, 1}};
        s24i_choice choices[2];
        race_in_doubt(choices, &m, 0.15, in_doubt);
        assert_int_equal(choices[0].dense[S24I_ALONE], in_doubt ? ALL : 0);
        assert_int_equal(choices[1].dense[S24I_ALONE], 0); /* slower dense */
    }
}

/* A weight that streams runs 2:4 unless all times agreed: no doubt, and not one thread's times
   alone, but by far. */
static void weights_that_stream(void **state)
{
    (void)state;
    enum { BOTH_DISAGREE, ALONE_AGREES, NO_TIME, CASES };
    const double factors[] = {0.7, 0.3};
    s24i_choice choices[2];
    for (int i = 0; i < 2 * CASES; i++) {
        const int far = i % 2, times = i / 2;
        machine m = {.clock = times == NO_TIME ? 2 : 0,
                     .sparse = {1e-7, 0},
                     .dense = {factors[far] * 1e-7, 0},
                     .dense_factor = 1,
                     .streams = 1,
                     .noisy_laps = -1,
                     .busy = {times == BOTH_DISAGREE, 1}};
        race_in_doubt(choices, &m, 1, 1);
        for (int together = 0; together < 2; together++) {
            assert_int_equal(choices[0].dense[together], far && times != NO_TIME ? ALL : 0);
            assert_int_equal(choices[1].dense[together], ALL);
        }
    }
    /* Where all times agree, they decide. */
    machine quiet = {.sparse = {1e-7, 0}, .dense = {0.9e-7, 0}, .dense_factor = 1, .streams = 1};
    int agreed = 0;
    race(choices, &agreed, &quiet, 2);
    assert_true(agreed);
    assert_int_equal(choices[0].dense[S24I_TOGETHER], ALL);
}

static void an_error_ends_it(void **state)
{
    (void)state;
    machine m = {.sparse = {1e-6, 0}, .dense = {1e-6, 0}, .dense_factor = 1, .fails_at = 4};
    const s24i_race r = {
        .products = 2, .most = {256, 0}, .until = 1, .now = now, .run = run, .user = &m};
    s24i_choice choices[2];
    int agreed;
    assert_int_equal(s24i_race_run(choices, &agreed, &r), S24_ERROR_MEMORY);
    assert_int_equal(m.laps, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(octaves),
        cmocka_unit_test(dense_from_some_rows_on),
        cmocka_unit_test(no_lap_has_more_rows_than_occur),
        cmocka_unit_test(a_little_faster_is_not_enough),
        cmocka_unit_test(kept_tiles),
        cmocka_unit_test(a_busy_machine),
        cmocka_unit_test(a_restless_machine),
        cmocka_unit_test(a_slow_machine),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(no_time_at_all),
        cmocka_unit_test(times_that_do_not_agree),
        cmocka_unit_test(weights_that_stream),
        cmocka_unit_test(an_error_ends_it),
    };
    return cmocka_run_group_tests_name("nn_race", tests, NULL, NULL);
}
