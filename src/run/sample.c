// SPDX-License-Identifier: Apache-2.0
/*
 * Chooses the next token. Candidates are a heap with the largest logit on top, from which no more
 * are taken than top_k, top_p or min_p let through: of a large vocabulary most are never sorted.
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
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

/* ---- the heap -------------------------------------------------------------------------------- */

typedef struct heap {
    s24i_candidate *all;
    int64_t words, left; /* those that were taken stand at the end, the last one first */
} heap;

static void sift(s24i_candidate *all, int64_t count, int64_t at)
{
    const s24i_candidate moving = all[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_before(&all[child + 1], &all[child])) child++;
        if (is_before(&moving, &all[child])) break;
        all[at] = all[child];
    }
    all[at] = moving;
}

static void make_heap(heap *h)
{
    for (int64_t i = h->words / 2; i-- > 0;)
        sift(h->all, h->words, i);
}

/* The candidate in place i of their order, or, where none was asked for in order, any other. */
static const s24i_candidate *at(const heap *h, int64_t i)
{
    return &h->all[h->words - 1 - i];
}

static const s24i_candidate *in_order(heap *h, int64_t i)
{
    while (h->words - h->left <= i) {
        const s24i_candidate first = h->all[0];
        h->all[0] = h->all[--h->left];
        h->all[h->left] = first;
        sift(h->all, h->left, 0);
    }
    return at(h, i);
}

/* ---- who is left ----------------------------------------------------------------------------- */

typedef struct weights {
    float largest;
    double temperature;
} weights;

/* In proportion to its probability; 1 of the largest. */
static double weight_of(const weights *w, const s24i_candidate *c)
{
    return (double)expf((float)(((double)c->logit - (double)w->largest) / w->temperature));
}

static double sum_of(const heap *h, const weights *w, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += weight_of(w, at(h, i));
    return sum;
}

static int64_t keep_top_k(heap *h, int64_t top_k)
{
    int64_t count = 0;
    float last = 0;
    for (; count < h->words; count++) {
        const float logit = in_order(h, count)->logit;
        if (count >= top_k && logit != last) break;
        last = logit;
    }
    return count;
}

/* Of the first `count`: those before which there is less than top_p, and min_p of the largest. */
static int64_t keep_likely(heap *h, const weights *w, int64_t count, const s24_generate_opts *o)
{
    const double most = o->top_p * sum_of(h, w, count);
    double before = 0;
    for (int64_t i = 0; i < count; i++) {
        const double weight = weight_of(w, in_order(h, i));
        if (i && ((o->top_p < 1 && before >= most) || weight < o->min_p)) return i;
        before += weight;
    }
    return count;
}

static int32_t draw(const heap *h, const weights *w, int64_t count, double share)
{
    double left = share * sum_of(h, w, count);
    int32_t id = at(h, 0)->id;
    for (int64_t i = 0; i < count; i++) {
        const double weight = weight_of(w, at(h, i));
        if (weight > 0) id = at(h, i)->id;
        left -= weight;
        if (left < 0) break;
    }
    return id;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* 0: a logit is NaN. */
static int fill(const s24i_sample *s)
{
    int good = 1;
    for (int64_t i = 0; i < s->words; i++) {
        s->candidates[i] = (s24i_candidate){s->logits[i], (int32_t)i};
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

int32_t s24i_sample_next(const s24i_sample *s, const s24_generate_opts *o)
{
    if (!fill(s)) return -1;
    if (o->repeat_penalty != 1) {
        penalise(s, s->prompt, s->prompt_tokens, (float)o->repeat_penalty);
        penalise(s, s->text, s->text_tokens, (float)o->repeat_penalty);
    }
    const s24i_candidate largest = *find_largest(s);
    if (!isfinite(largest.logit)) return -1;
    if (o->temperature == 0) return largest.id;
    const weights w = {largest.logit, o->temperature};
    heap h = {s->candidates, s->words, s->words};
    int64_t count = s->words;
    if (o->top_k || o->top_p < 1 || o->min_p > 0) make_heap(&h);
    if (o->top_k) count = keep_top_k(&h, o->top_k);
    if (o->top_p < 1 || o->min_p > 0) count = keep_likely(&h, &w, count, o);
    return draw(&h, &w, count, s->draw);
}
