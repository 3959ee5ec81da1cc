// SPDX-License-Identifier: Apache-2.0
/*
 * Chooses the next token. Candidates have an order, the likelier first and of equally likely ones
 * the lower id, but are never sorted: what top_k and top_p keep, and the one that is drawn, are
 * places in that order, found by parting the candidates again and again around one of them. Weights
 * are whole numbers, whose sums do not depend on the order they are taken in, so that the result is
 * that of a sort, bit by bit.
 */
#include "run/sample.h"

#include <math.h>

double s24i_sample_draw(uint64_t seed, int64_t number, int64_t index)
{
    uint32_t words[4];
    s24_random(words, seed, (uint64_t)number << 32 | (uint32_t)index);
    return (double)((uint64_t)words[0] << 21 | words[1] >> 11) * 0x1p-53;
}

static int is_before(const s24i_candidate *a, const s24i_candidate *b)
{
    return (a->logit > b->logit) | ((a->logit == b->logit) & (a->id < b->id));
}

static void swap(s24i_candidate *a, s24i_candidate *b)
{
    const s24i_candidate other = *a;
    *a = *b;
    *b = other;
}

/* ---- places in the order --------------------------------------------------------------------- */

static const double ONE = 0x1p40; /* the weight of the likeliest: 2^23 of them have a sum */
/* Of these there are seldom more than a few hundred; so many are parted at once. */
static const uint64_t HEAVY = 1ULL << 32;
enum { FEW = 1024 };

/* One candidate counts as its weight, or as one. */
static uint64_t size_of(const s24i_candidate *c, int by_weight)
{
    return by_weight ? c->weight : 1;
}

static uint64_t sum_of(const s24i_candidate *all, int64_t count, int by_weight)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += size_of(&all[i], by_weight);
    return sum;
}

/* Parts the candidates around one of them, wherever it is: where it stands afterwards. Nothing
   branches on what cannot be foreseen. */
static int64_t part(s24i_candidate *all, int64_t count)
{
    uint32_t words[4];
    int64_t before = 0;
    s24_random(words, 1, (uint64_t)count); /* no order of the logits is always a bad one */
    swap(&all[words[0] % (uint64_t)count], &all[count - 1]);
    const s24i_candidate around = all[count - 1];
    for (int64_t i = 0; i + 1 < count; i++) {
        const int goes = is_before(&all[i], &around);
        swap(&all[i], &all[before]);
        before += goes;
    }
    swap(&all[before], &all[count - 1]);
    return before;
}

/* The place of the first candidate with which those before it are over `target`, which all are
   together; afterwards those before it stand before it. */
static int64_t part_at(s24i_candidate *all, int64_t count, uint64_t target, int by_weight)
{
    int64_t first = 0;
    while (count - first > 1) {
        const int64_t middle = first + part(all + first, count - first);
        const uint64_t before = sum_of(all + first, middle - first, by_weight);
        const uint64_t with = before + size_of(&all[middle], by_weight);
        if (before > target) {
            count = middle;
        } else if (with > target) {
            return middle;
        } else {
            target -= with;
            first = middle + 1;
        }
    }
    return first;
}

/* Puts those of a weight of `least` or more first, which are before all others in the order: how
   many, and their size. Few of many are, so that a branch is foreseen. */
static int64_t take_heavy(s24i_candidate *all, int64_t count, uint64_t least, int by_weight,
                          uint64_t *size)
{
    int64_t taken = 0;
    *size = 0;
    for (int64_t i = 0; i < count; i++) {
        if (all[i].weight < least) continue;
        *size += size_of(&all[i], by_weight);
        swap(&all[i], &all[taken++]);
    }
    return taken;
}

/* That place, among candidates that have weights. It is most often one of the few hundred heaviest,
   which one pass finds before any are parted. */
static int64_t reach(s24i_candidate *all, int64_t count, uint64_t target, int by_weight)
{
    int64_t first = 0;
    for (uint64_t least = HEAVY; least && count - first > FEW; least >>= 8) {
        uint64_t size;
        const int64_t taken = take_heavy(all + first, count - first, least, by_weight, &size);
        if (size > target) {
            count = first + taken;
            break;
        }
        target -= size;
        first += taken;
    }
    return first + part_at(all + first, count - first, target, by_weight);
}

/* ---- who is left, at the front --------------------------------------------------------------- */

static int64_t keep_top_k(s24i_candidate *all, int64_t count, int64_t top_k)
{
    if (top_k >= count) return count;
    const int64_t last = reach(all, count, (uint64_t)top_k - 1, 0);
    int64_t kept = last + 1;
    for (int64_t i = kept; i < count; i++)
        if (all[i].logit == all[last].logit) swap(&all[i], &all[kept++]);
    return kept;
}

/* Those before which there is less than top_p, and the first in any case. */
static int64_t keep_top_p(s24i_candidate *all, int64_t count, double top_p)
{
    const double most = ceil(top_p * (double)sum_of(all, count, 1));
    return reach(all, count, most < 1 ? 0 : (uint64_t)most - 1, 1) + 1;
}

static int64_t keep_min_p(s24i_candidate *all, int64_t count, double min_p)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if ((double)all[i].weight >= min_p * ONE) swap(&all[i], &all[kept++]);
    return kept;
}

static int32_t draw(s24i_candidate *all, int64_t count, double share)
{
    const uint64_t sum = sum_of(all, count, 1);
    const uint64_t target = (uint64_t)(share * (double)sum);
    return all[reach(all, count, target < sum ? target : sum - 1, 1)].id;
}

/* ---- the likeliest --------------------------------------------------------------------------- */

/* Few of them. */
static void sort(s24i_candidate *all, int64_t count)
{
    for (int64_t i = 1; i < count; i++)
        for (int64_t j = i; j > 0 && is_before(&all[j], &all[j - 1]); j--)
            swap(&all[j], &all[j - 1]);
}

void s24i_sample_likeliest(s24_likely_token *likely, int64_t count, const float *logits,
                           int64_t words, s24i_candidate *candidates)
{
    for (int64_t i = 0; i < words; i++)
        candidates[i] = (s24i_candidate){.logit = logits[i], .id = (int32_t)i};
    part_at(candidates, words, (uint64_t)count - 1, 0);
    sort(candidates, count);
    for (int64_t i = 0; i < count; i++)
        likely[i] = (s24_likely_token){candidates[i].id, candidates[i].logit};
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* 0: a logit is NaN. */
static int fill(const s24i_sample *s)
{
    int good = 1;
    for (int64_t i = 0; i < s->words; i++) {
        s->candidates[i] = (s24i_candidate){.logit = s->logits[i], .id = (int32_t)i};
        good &= !isnan(s->logits[i]);
    }
    return good;
}

/* From the model's logit each time, so that a token that comes twice is penalised once. */
static void penalise(const s24i_sample *s, const int32_t *ids, int64_t count, float penalty)
{
    for (int64_t i = 0; i < count; i++) {
        const float logit = s->logits[ids[i]];
        s->candidates[ids[i]].logit = logit < 0 ? logit * penalty : logit / penalty;
    }
}

static const s24i_candidate *find_largest(const s24i_sample *s)
{
    const s24i_candidate *largest = s->candidates;
    for (int64_t i = 1; i < s->words; i++)
        if (s->candidates[i].logit > largest->logit) largest = &s->candidates[i];
    return largest;
}

/* In proportion to its probability. */
static void weigh(const s24i_sample *s, float largest, double temperature)
{
    for (int64_t i = 0; i < s->words; i++) {
        s24i_candidate *c = &s->candidates[i];
        const double below = ((double)c->logit - (double)largest) / temperature;
        c->weight = (uint64_t)((double)expf((float)below) * ONE + 0.5);
    }
}

int32_t s24i_sample_next(const s24i_sample *s, const s24_generate_opts *o)
{
    s24i_candidate *all = s->candidates;
    int64_t count = s->words;
    if (!fill(s)) return -1;
    if (o->repeat_penalty != 1) {
        penalise(s, s->prompt, s->prompt_tokens, (float)o->repeat_penalty);
        penalise(s, s->text, s->text_tokens, (float)o->repeat_penalty);
    }
    const s24i_candidate largest = *find_largest(s);
    if (!isfinite(largest.logit)) return -1;
    if (o->temperature == 0) return largest.id;
    weigh(s, largest.logit, o->temperature);
    if (o->top_k) count = keep_top_k(all, count, o->top_k);
    if (o->top_p < 1) count = keep_top_p(all, count, o->top_p);
    if (o->min_p > 0) count = keep_min_p(all, count, o->min_p);
    return draw(all, count, s->draw);
}
