// SPDX-License-Identifier: Apache-2.0
/*
 * The next token from fixed logits: who is left is what a plain sort leaves, each is drawn in
 * proportion to its probability, and draws are the project's random numbers.
 */
#include "support.h"

#include <math.h>

#include "run/sample.h"

enum { WORDS = 37, DRAWS = 5000 };

static float logits[WORDS];
static s24i_candidate candidates[WORDS];

/* Several equal ones among them. */
static void fill_logits(uint64_t seed)
{
    for (int i = 0; i < WORDS; i++)
        logits[i] = (float)((int64_t)(test_random(&seed) % 33) - 16) / 4.0f;
}

static s24_generate_opts neutral(double temperature)
{
    return (s24_generate_opts){.temperature = temperature, .top_p = 1, .repeat_penalty = 1};
}

static int32_t next_of(const s24_generate_opts *o, const int32_t *seen, int64_t count, double draw)
{
    /* Half of them as a prompt, and one of these once more. */
    const s24i_sample sample = {.logits = logits,
                                .words = WORDS,
                                .prompt = seen,
                                .prompt_tokens = count ? count / 2 + 1 : 0,
                                .text = seen + count / 2,
                                .text_tokens = count - count / 2,
                                .draw = draw,
                                .candidates = candidates};
    return s24i_sample_next(&sample, o);
}

/* ---- the plain way --------------------------------------------------------------------------- */

typedef struct plain {
    double logit, probability;
    int id, kept;
} plain;

static int by_logit(const void *a, const void *b)
{
    const plain *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->id - y->id;
}

static void make_probabilities(plain *p)
{
    double sum = 0;
    for (int i = 0; i < WORDS; i++)
        sum += p[i].probability = p[i].kept ? exp(p[i].logit - p[0].logit) : 0;
    for (int i = 0; i < WORDS; i++)
        p[i].probability /= sum;
}

/* As transformers' processors do one after the other: p sorted, with what is left of each. */
static void plain_choice(plain *p, const s24_generate_opts *o, const int32_t *seen, int64_t count)
{
    for (int i = 0; i < WORDS; i++) {
        p[i] = (plain){.logit = (double)logits[i], .id = i, .kept = 1};
        int is_seen = 0;
        for (int64_t s = 0; s < count; s++)
            is_seen |= seen[s] == i;
        if (is_seen) p[i].logit *= p[i].logit < 0 ? o->repeat_penalty : 1 / o->repeat_penalty;
        p[i].logit /= o->temperature;
    }
    qsort(p, WORDS, sizeof *p, by_logit);
    for (int i = 0; o->top_k && i < WORDS; i++)
        p[i].kept = i < o->top_k || p[i].logit == p[o->top_k - 1].logit;
    make_probabilities(p);
    double from_here = 1; /* a token goes where it and all less likely ones are 1 − top_p or less */
    for (int i = 0; i < WORDS; i++) {
        const double probability = p[i].probability;
        if (i && o->top_p < 1 && from_here <= 1 - o->top_p) p[i].kept = 0;
        from_here -= probability;
    }
    make_probabilities(p);
    for (int i = 0; i < WORDS; i++)
        if (p[i].probability < o->min_p * p[0].probability) p[i].kept = 0;
    make_probabilities(p);
}

/* Draws at even steps meet each token about as often as its probability says, to the step. */
static void check(const s24_generate_opts *o, const int32_t *seen, int64_t count)
{
    plain p[WORDS];
    int drawn[WORDS] = {0};
    plain_choice(p, o, seen, count);
    for (int d = 0; d < DRAWS; d++) {
        const int32_t id = next_of(o, seen, count, ((double)d + 0.5) / DRAWS);
        assert_in_range(id, 0, WORDS - 1);
        drawn[id]++;
    }
    for (int i = 0; i < WORDS; i++) {
        if (!p[i].kept && drawn[p[i].id]) fail_msg("token %d was left out, but was drawn", p[i].id);
        if (fabs(drawn[p[i].id] - p[i].probability * DRAWS) > 2)
            fail_msg("token %d: drawn %d times of %d, its probability is %g", p[i].id,
                     drawn[p[i].id], DRAWS, p[i].probability);
    }
}

/* ---- the cases ------------------------------------------------------------------------------- */

static void one_at_a_time(void **state)
{
    static const double shares[] = {1e-9, 0.1, 0.5, 0.77, 0.999};
    static const int32_t seen[] = {3, 9, 9, 21, 30};
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        fill_logits(seed);
        for (double t = 0.25; t < 5; t *= 2) {
            s24_generate_opts o = neutral(t);
            check(&o, NULL, 0);
            for (o.top_k = 1; o.top_k < 40; o.top_k += 9)
                check(&o, NULL, 0);
            o = neutral(t);
            o.repeat_penalty = 1.5 * t;
            check(&o, seen, 5);
        }
        for (int i = 0; i < 5; i++) {
            s24_generate_opts o = neutral(1.5);
            o.top_p = shares[i];
            check(&o, NULL, 0);
            o = neutral(1.5);
            o.min_p = shares[i];
            check(&o, NULL, 0);
        }
    }
}

static void together(void **state)
{
    static const int32_t seen[] = {0, 1, 2, 5, 5, 7, 30, 36};
    (void)state;
    for (uint64_t seed = 10; seed < 40; seed++) {
        fill_logits(seed);
        const s24_generate_opts o = {.temperature = 0.3 + (double)(seed % 5) / 2,
                                     .top_k = 3 + (int64_t)seed % 20,
                                     .top_p = 0.4 + (double)(seed % 7) / 12,
                                     .min_p = (double)(seed % 4) / 20,
                                     .repeat_penalty = 0.7 + (double)(seed % 3) / 2};
        check(&o, seen, 8);
    }
}

/* ---- a large vocabulary ---------------------------------------------------------------------- */

enum { MANY = 50021 };

static int by_weight(const void *a, const void *b)
{
    const s24i_candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->id - y->id;
}

/* The token that a whole sort gives, with the same whole numbers for weights. */
static int32_t sorted_choice(s24i_candidate *sorted, const float *large, const s24_generate_opts *o,
                             double draw)
{
    float top = large[0];
    uint64_t sum = 0, before = 0;
    int64_t count = MANY, i;
    for (i = 0; i < MANY; i++)
        top = large[i] > top ? large[i] : top;
    for (i = 0; i < MANY; i++) {
        const double below = ((double)large[i] - (double)top) / o->temperature;
        sorted[i] = (s24i_candidate){large[i], (int32_t)i,
                                     (uint64_t)((double)expf((float)below) * 0x1p40 + 0.5)};
    }
    qsort(sorted, MANY, sizeof *sorted, by_weight);
    for (i = 0; o->top_k && i < MANY; i++)
        if (i < o->top_k || sorted[i].logit == sorted[o->top_k - 1].logit) count = i + 1;
    for (i = 0; i < count; i++)
        sum += sorted[i].weight;
    const double most = o->top_p * (double)sum;
    for (i = 0; i < count && (i == 0 || o->top_p == 1 || (double)before < most); i++)
        before += sorted[i].weight;
    count = i;
    while (count > 1 && (double)sorted[count - 1].weight < o->min_p * 0x1p40)
        before -= sorted[--count].weight;
    uint64_t left = (uint64_t)(draw * (double)before);
    for (i = 0; i + 1 < count && left >= sorted[i].weight; i++)
        left -= sorted[i].weight;
    return sorted[i].id;
}

/* Flat ones, ones with many equal logits, rising and falling ones. */
static void fill_large(float *large, int shape, uint64_t seed)
{
    for (int i = 0; i < MANY; i++) {
        const float random = (float)(test_random(&seed) % 10007) / 10007;
        large[i] = shape == 0   ? 1e-3f * random
                   : shape == 1 ? (float)(int)(8 * random)
                   : shape == 2 ? 1e-4f * (float)i
                   : shape == 3 ? -1e-4f * (float)i
                                : 12 * random;
    }
}

static void as_if_sorted(void **state)
{
    float *large = malloc(MANY * sizeof *large);
    s24i_candidate *all = malloc(MANY * sizeof *all), *sorted = malloc(MANY * sizeof *sorted);
    (void)state;
    for (int shape = 0; shape < 5; shape++)
        for (int way = 0; way < 8; way++) {
            const s24_generate_opts o = {.temperature = way % 2 ? 1 : 0.7,
                                         .top_k = way & 2 ? 1234 : 0,
                                         .top_p = way & 4 ? 0.9 : 1,
                                         .min_p = way == 7 ? 0.01 : 0,
                                         .repeat_penalty = 1};
            fill_large(large, shape, (uint64_t)(way + 1));
            for (int d = 0; d < 3; d++) {
                const double draw = d == 0 ? 0 : d == 1 ? 0.61 : 1 - 0x1p-53;
                const s24i_sample sample = {
                    .logits = large, .words = MANY, .draw = draw, .candidates = all};
                assert_int_equal(s24i_sample_next(&sample, &o),
                                 sorted_choice(sorted, large, &o, draw));
            }
        }
    free(large);
    free(all);
    free(sorted);
}

static void likeliest(void **state)
{
    float *large = malloc(MANY * sizeof *large);
    s24i_candidate *all = malloc(MANY * sizeof *all), *sorted = malloc(MANY * sizeof *sorted);
    s24_likely_token likely[40];
    const s24_generate_opts o = neutral(1);
    (void)state;
    for (int shape = 0; shape < 5; shape++)
        for (int64_t count = 1; count <= 40; count += 13) {
            fill_large(large, shape, 3);
            sorted_choice(sorted, large, &o, 0);
            s24i_sample_likeliest(likely, count, large, MANY, all);
            for (int64_t i = 0; i < count; i++) {
                assert_int_equal(likely[i].id, sorted[i].id);
                assert_true(likely[i].log_probability == sorted[i].logit);
            }
        }
    free(large);
    free(all);
    free(sorted);
}

static void greedy(void **state)
{
    const int32_t seen[] = {4};
    s24_generate_opts o = neutral(0);
    (void)state;
    for (int i = 0; i < WORDS; i++)
        logits[i] = i == 4 || i == 8 ? 2.0f : i == 9 ? 1.5f : -1.0f;
    assert_int_equal(next_of(&o, NULL, 0, 0.99), 4); /* of equal ones the first */
    o.repeat_penalty = 1.1;
    assert_int_equal(next_of(&o, seen, 1, 0.99), 8);
    logits[8] = 1.0f;
    assert_int_equal(next_of(&o, seen, 1, 0.99), 4); /* 2 / 1.1 is more than 1.5 still */
    o.repeat_penalty = 1.4;
    assert_int_equal(next_of(&o, seen, 1, 0.99), 9);
    o.top_k = 1;
    assert_int_equal(next_of(&o, seen, 1, 0.99), 9);
}

static void logits_that_are_no_numbers(void **state)
{
    s24_generate_opts o = neutral(0);
    (void)state;
    for (int way = 0; way < 2; way++, o.temperature = 1) {
        fill_logits(5);
        logits[36] = -INFINITY; /* a token that never comes */
        assert_in_range(next_of(&o, NULL, 0, 0.5), 0, 35);
        logits[7] = NAN;
        assert_int_equal(next_of(&o, NULL, 0, 0.5), -1);
        logits[7] = INFINITY;
        assert_int_equal(next_of(&o, NULL, 0, 0.5), -1);
        for (int i = 0; i < WORDS; i++)
            logits[i] = -INFINITY;
        assert_int_equal(next_of(&o, NULL, 0, 0.5), -1);
    }
}

static void draws(void **state)
{
    uint32_t words[4];
    double sum = 0;
    (void)state;
    s24_random(words, 42, (uint64_t)3 << 32 | 5);
    assert_true(s24i_sample_draw(42, 3, 5) * 0x1p53 ==
                (double)words[0] * 0x1p21 + (double)(words[1] >> 11));
    for (int i = 0; i < 1000; i++) {
        const double draw = s24i_sample_draw(1, i % 10, i / 10);
        assert_true(draw >= 0 && draw < 1);
        sum += draw;
    }
    assert_true(fabs(sum / 1000 - 0.5) < 0.05);
    assert_true(s24i_sample_draw(1, 0, 1) != s24i_sample_draw(1, 1, 0));
    assert_true(s24i_sample_draw(1, 0, 1) != s24i_sample_draw(2, 0, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_at_a_time), cmocka_unit_test(together),
        cmocka_unit_test(as_if_sorted),  cmocka_unit_test(likeliest),
        cmocka_unit_test(greedy),        cmocka_unit_test(logits_that_are_no_numbers),
        cmocka_unit_test(draws)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
