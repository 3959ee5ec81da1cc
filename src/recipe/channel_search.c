// SPDX-License-Identifier: Apache-2.0
/*
 * RIA's search (Zhang et al., ICLR 2024): channels are dealt out by their size, then one channel of
 * each group is taken out and all of these are given back where they add most, an assignment
 * problem, again and again. Giving each back where it was is one of the ways, so nothing is lost.
 *
 * Of a group with three scores in a row, the largest a and the second b, a fourth x leaves
 * a + max(b, x).
 */
#include "recipe/channel_search.h"

#include <string.h>

#include "model/model.h"

enum { GROUP = 4, MOST_ROUNDS = 24 };

typedef struct search {
    const float *scores;
    int64_t rows, groups;
    int32_t *order;  /* [4 · groups] */
    int out;         /* the place in each group whose channel is out */
    float *second;   /* [groups, rows]: b */
    double *largest; /* [groups]: the sum of a */
    float *gains;    /* [groups (channels that are out), groups] */
} search;

static const float *channel(const search *s, int64_t group, int place)
{
    return s->scores + s->order[GROUP * group + place] * s->rows;
}

static void split_groups(void *arg, int64_t begin, int64_t end, int thread)
{
    const search *s = arg;
    (void)thread;
    for (int64_t g = begin; g < end; g++) {
        const float *x = channel(s, g, (s->out + 1) % GROUP),
                    *y = channel(s, g, (s->out + 2) % GROUP),
                    *z = channel(s, g, (s->out + 3) % GROUP);
        float *second = s->second + g * s->rows;
        s->largest[g] = 0.0;
        for (int64_t r = 0; r < s->rows; r++) {
            const float high = x[r] > y[r] ? x[r] : y[r], low = x[r] > y[r] ? y[r] : x[r];
            const float middle = z[r] > low ? z[r] : low;
            second[r] = middle > high ? high : middle;
            s->largest[g] += (double)(z[r] > high ? z[r] : high);
        }
    }
}

/* In several sums side by side, which a compiler makes vectors of. */
static float sum_of_larger(const float *x, const float *y, int64_t count)
{
    enum { LANES = 16 };
    float sums[LANES] = {0}, sum = 0.0f;
    const int64_t whole = count / LANES * LANES;
    for (int64_t r = 0; r < whole; r += LANES)
        for (int l = 0; l < LANES; l++)
            sums[l] += x[r + l] > y[r + l] ? x[r + l] : y[r + l];
    for (int64_t r = whole; r < count; r++)
        sums[r - whole] += x[r] > y[r] ? x[r] : y[r];
    for (int l = 0; l < LANES; l++)
        sum += sums[l];
    return sum;
}

/* What the channel that is out of a group would add to each. */
static void find_gains(void *arg, int64_t begin, int64_t end, int thread)
{
    const search *s = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const float *x = channel(s, i, s->out);
        for (int64_t g = 0; g < s->groups; g++) {
            s->gains[i * s->groups + g] = sum_of_larger(x, s->second + g * s->rows, s->rows);
        }
    }
}

/* What the groups keep as they are, from the parts of a round. */
static double kept(const search *s)
{
    double sum = 0.0;
    for (int64_t g = 0; g < s->groups; g++)
        sum += s->largest[g] + (double)s->gains[g * s->groups + g];
    return sum;
}

static double measure(search *s, s24_ctx *ctx)
{
    s24_ctx_parallel_for(ctx, s->groups, split_groups, s);
    s24_ctx_parallel_for(ctx, s->groups, find_gains, s);
    return kept(s);
}

/* One round; *gained: what it added. chosen, taken [groups]. */
static s24_status improve(search *s, s24_ctx *ctx, int32_t *chosen, int32_t *taken, double *gained)
{
    double before = measure(s, ctx), after = 0.0;
    TRY(s24i_assign(ctx, chosen, s->gains, s->groups));
    for (int64_t g = 0; g < s->groups; g++) {
        taken[g] = s->order[GROUP * g + s->out];
        after += s->largest[g] + (double)s->gains[g * s->groups + chosen[g]];
    }
    *gained = after - before;
    if (*gained <= 1e-6 * before) {
        *gained = 0.0;
        return S24_OK;
    }
    for (int64_t g = 0; g < s->groups; g++)
        s->order[GROUP * (int64_t)chosen[g] + s->out] = taken[g];
    return S24_OK;
}

/* Channels by their sum, dealt to the groups to and fro; better than what is there, or left. */
static s24_status deal(search *s, s24_ctx *ctx, int32_t *rank)
{
    const int64_t count = GROUP * s->groups;
    double *sums;
    TRY(s24i_alloc_elems(&sums, ctx, count, sizeof *sums, "sums of channels"));
    for (int64_t c = 0; c < count; c++) {
        sums[c] = 0.0;
        for (int64_t r = 0; r < s->rows; r++)
            sums[c] += (double)s->scores[c * s->rows + r];
    }
    for (int64_t c = 0; c < count; c++) { /* of equal sums the earlier first */
        rank[c] = 0;
        for (int64_t d = 0; d < count; d++)
            rank[c] += sums[d] > sums[c] || (sums[d] == sums[c] && d < c);
    }
    s24_ctx_free(ctx, sums);
    const double as_they_are = measure(s, ctx);
    for (int64_t c = 0; c < count; c++) {
        const int64_t turn = rank[c] / s->groups, at = rank[c] % s->groups;
        s->order[GROUP * (turn % 2 ? s->groups - 1 - at : at) + turn] = (int32_t)c;
    }
    if (measure(s, ctx) > as_they_are) return S24_OK;
    for (int64_t c = 0; c < count; c++)
        s->order[c] = (int32_t)c;
    return S24_OK;
}

static s24_status run(search *s, s24_ctx *ctx, int32_t *room)
{
    int idle = 0;
    TRY(deal(s, ctx, room));
    for (int round = 0; round < MOST_ROUNDS && idle < GROUP; round++) {
        double gained;
        s->out = round % GROUP;
        TRY(improve(s, ctx, room, room + s->groups, &gained));
        idle = gained > 0.0 ? 0 : idle + 1;
    }
    return S24_OK;
}

s24_status s24i_channels_search(s24_ctx *ctx, int32_t *order, const float *scores, int64_t rows,
                                int64_t count)
{
    search s = {.scores = scores, .rows = rows, .groups = count / GROUP, .order = order};
    int32_t *room = NULL;
    s24_status status;
    for (int64_t c = 0; c < count; c++)
        order[c] = (int32_t)c;
    TRY_DONE(s24i_alloc_elems(&room, ctx, count, sizeof *room, "channels"));
    TRY_DONE(s24i_alloc_elems(&s.second, ctx, s.groups * rows, sizeof *s.second, "groups"));
    TRY_DONE(s24i_alloc_elems(&s.largest, ctx, s.groups, sizeof *s.largest, "groups"));
    TRY_DONE(s24i_alloc_elems(&s.gains, ctx, s.groups * s.groups, sizeof *s.gains, "gains"));
    status = run(&s, ctx, room);
done:
    s24_ctx_free(ctx, s.gains);
    s24_ctx_free(ctx, s.largest);
    s24_ctx_free(ctx, s.second);
    s24_ctx_free(ctx, room);
    return status;
}
