// SPDX-License-Identifier: Apache-2.0
/*
 * What pruning does to a row of a weight, column after column of those at hand, on the CPU by one
 * thread and on a device by the lanes of a warp, from the same lines.
 * Each rule changes w and leaves in `steps` what the columns beyond those at hand are owed: how far
 * each weight has moved, or, of DROP, its error in units of U's diagonal.
 *
 *   RELAX  each weight that is not 0 goes to its optimum for the others as they are by then
 *   SWAP   which two of four stay is chosen once more: prune/swaps.c
 *   DROP   SparseGPT's, with U in the place of H: prune/sparsegpt.c
 *   PULL   a step of alternating directions: prune/alps.c
 *
 * The last two choose the `keep` of each `group` as they come to it; with a group of 1 `stays` says
 * it beforehand, or the caller says it afterwards.
 */
#ifndef S24_KERNEL_ROW_RULES_H
#define S24_KERNEL_ROW_RULES_H

#include <stdint.h>

#include "base/everywhere.h"

#ifdef __CUDACC__
#define S24I_TOGETHER() __syncwarp()
S24I_CODE double s24i_lanes_sum(double sum)
{
    for (int apart = 16; apart; apart /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    return sum;
}
#else
#define S24I_TOGETHER() ((void)0)
S24I_CODE double s24i_lanes_sum(double sum)
{
    return sum;
}
#endif

typedef enum s24i_row_rule {
    S24I_ROW_RELAX,
    S24I_ROW_SWAP,
    S24I_ROW_DROP,
    S24I_ROW_PULL,
    S24I_ROW_RULES
} s24i_row_rule;

enum { S24I_ROW_COLUMNS = 256 }; /* at hand on a device at most */

/* What all rows have alike. */
typedef struct s24i_row_job {
    s24i_row_rule rule;
    int64_t k, count; /* from a row of h to the next; columns at hand, whole groups */
    const double *h;  /* H or U where its row and its column are the first at hand */
    int keep, group;
    double rho, growth; /* of PULL */
} s24i_row_job;

/* A row's columns at hand; lane 0 of 1 is the CPU's. */
typedef struct s24i_row {
    double *w, *steps;    /* before: the gradient, but DROP's is not read */
    double *d, *u;        /* of PULL */
    const uint8_t *stays; /* of DROP, with a group of 1 */
    int lane, lanes;
} s24i_row;

/*
 * The `keep` of `group` (32 at most) with the largest scores, as bits; of equal scores the higher
 * index is kept. An element stays when fewer than `keep` others beat it.
 */
S24I_CODE uint32_t s24i_keep_most(const double *score, int keep, int group)
{
    uint32_t bits = 0;
    for (int i = 0; i < group; i++) {
        int beaten = 0;
        for (int j = 0; j < group; j++)
            beaten += j > i ? score[j] >= score[i] : score[j] > score[i];
        bits |= (uint32_t)(beaten < keep) << i;
    }
    return bits;
}

/* What column j's step does to the gradient of those after it. */
S24I_CODE void s24i_row_spread(double *to, const double *h, double step, int64_t first,
                               const s24i_row_job *job, const s24i_row *r)
{
    for (int64_t c = first + r->lane; c < job->count; c += r->lanes)
        to[c] += step * h[c];
}

S24I_CODE void s24i_row_relax(const s24i_row_job *job, const s24i_row *r)
{
    for (int64_t j = 0; j < job->count; j++) {
        const double *h = job->h + j * job->k;
        const double step = r->w[j] == 0.0 ? 0.0 : -r->steps[j] / h[j];
        S24I_TOGETHER();
        if (r->lane == 0) {
            r->steps[j] = step;
            r->w[j] += step;
        }
        if (step != 0.0) s24i_row_spread(r->steps, h, step, j + 1, job, r);
        S24I_TOGETHER();
    }
}

/* ---- swaps ----------------------------------------------------------------------------------- */

typedef struct s24i_pair {
    int a, b;      /* a < b stay */
    double wa, wb; /* at their optimum */
    double loss;   /* against all four at zero */
} s24i_pair;

/* c is the gradient with the group's weights at zero, h the group's four rows' squares. */
S24I_CODE s24i_pair s24i_pair_at(int a, int b, const double c[4], const double h[16])
{
    const double ha = h[5 * a], hb = h[5 * b], hab = h[4 * a + b], det = ha * hb - hab * hab;
    s24i_pair found = {a, b, 0.0, 0.0, 0.0};
    if (!(det > 0.0)) return found;
    found.wa = (hab * c[b] - hb * c[a]) / det;
    found.wb = (hab * c[a] - ha * c[b]) / det;
    found.loss = c[a] * found.wa + c[b] * found.wb;
    return found;
}

/* The pair that holds the weights that are not zero. */
S24I_CODE s24i_pair s24i_pair_of(const double w[4], const double c[4], const double h[16])
{
    int kept[4] = {0, 0, 0, 0}, count = 0;
    for (int i = 3; i >= 0; i--)
        if (w[i] != 0.0) kept[count++] = i;
    for (int i = 3; i >= 0 && count < 2; i--)
        if (w[i] == 0.0) kept[count++] = i;
    return kept[0] < kept[1] ? s24i_pair_at(kept[0], kept[1], c, h)
                             : s24i_pair_at(kept[1], kept[0], c, h);
}

/* The best of the six; another than `now` only where it is better beyond rounding. */
S24I_CODE s24i_pair s24i_pair_best(s24i_pair now, const double c[4], const double h[16])
{
    const double margin = 1e-9;
    s24i_pair best = now;
    for (int a = 0; a < 3; a++)
        for (int b = a + 1; b < 4; b++) {
            const s24i_pair other = s24i_pair_at(a, b, c, h);
            if (other.loss < best.loss * (1.0 + margin)) best = other;
        }
    return best;
}

/* 1: a group chose otherwise. */
S24I_CODE int s24i_row_swap(const s24i_row_job *job, const s24i_row *r)
{
    int moved = 0;
    for (int64_t group = 0; group < job->count; group += 4) {
        const double *first = job->h + group * job->k + group;
        double c[4], h[16], w[4], step[4];
        for (int i = 0; i < 4; i++) {
            w[i] = r->w[group + i];
            for (int j = 0; j < 4; j++)
                h[4 * i + j] = first[i * job->k + j];
        }
        for (int i = 0; i < 4; i++) {
            c[i] = r->steps[group + i];
            for (int j = 0; j < 4; j++)
                c[i] -= h[4 * i + j] * w[j];
        }
        const s24i_pair now = s24i_pair_of(w, c, h), best = s24i_pair_best(now, c, h);
        moved |= best.a != now.a || best.b != now.b;
        S24I_TOGETHER();
        for (int i = 0; i < 4; i++) {
            const double value = i == best.a ? best.wa : i == best.b ? best.wb : 0.0;
            step[i] = value - w[i];
            if (r->lane == 0) {
                r->steps[group + i] = step[i];
                r->w[group + i] = value;
            }
        }
        for (int i = 0; i < 4; i++)
            if (step[i] != 0.0)
                s24i_row_spread(r->steps, job->h + (group + i) * job->k, step[i], group + 4, job,
                                r);
        S24I_TOGETHER();
    }
    return moved;
}

/* ---- SparseGPT's ----------------------------------------------------------------------------- */

S24I_CODE uint32_t s24i_row_choose(const s24i_row_job *job, const s24i_row *r, int64_t first)
{
    double score[32];
    for (int i = 0; i < job->group; i++) {
        const double scaled = r->w[first + i] / job->h[(first + i) * (job->k + 1)];
        score[i] = scaled * scaled;
    }
    return s24i_keep_most(score, job->keep, job->group);
}

S24I_CODE void s24i_row_drop(const s24i_row_job *job, const s24i_row *r)
{
    uint32_t bits = 0;
    for (int64_t j = 0; j < job->count; j++) {
        const double *u = job->h + j * job->k;
        const int at = (int)(j % job->group);
        if (job->group == 1)
            bits = r->stays[j];
        else if (at == 0)
            bits = s24i_row_choose(job, r, j);
        const int stays = (int)(bits >> at & 1u);
        const double error = stays ? 0.0 : r->w[j] / u[j];
        S24I_TOGETHER();
        if (r->lane == 0) {
            r->steps[j] = error;
            if (!stays) r->w[j] = 0.0;
        }
        if (!stays) s24i_row_spread(r->w, u, -error, j + 1, job, r);
        S24I_TOGETHER();
    }
}

/* ---- alternating directions ------------------------------------------------------------------ */

/* d becomes what w + u is cut to, and u what lies between, in units of the next ρ. */
S24I_CODE void s24i_row_cut(const s24i_row_job *job, const s24i_row *r, int64_t first)
{
    double score[32];
    for (int i = 0; i < job->group; i++) {
        const double sum = r->w[first + i] + r->u[first + i];
        score[i] = sum * sum * job->h[(first + i) * (job->k + 1)];
    }
    const uint32_t bits = s24i_keep_most(score, job->keep, job->group);
    for (int i = 0; i < job->group; i++) {
        const double sum = r->w[first + i] + r->u[first + i];
        r->d[first + i] = bits >> i & 1u ? sum : 0.0;
        r->u[first + i] = (r->u[first + i] + (r->w[first + i] - r->d[first + i])) / job->growth;
    }
}

S24I_CODE void s24i_row_pull(const s24i_row_job *job, const s24i_row *r)
{
    for (int64_t j = 0; j < job->count; j++) {
        const double *h = job->h + j * job->k;
        const double pull = job->rho * (r->w[j] - r->d[j] + r->u[j]);
        const double step = -(r->steps[j] / h[j] + pull) / (1.0 + job->rho);
        S24I_TOGETHER();
        if (r->lane == 0) {
            r->steps[j] = step;
            r->w[j] += step;
        }
        s24i_row_spread(r->steps, h, step, j + 1, job, r);
        S24I_TOGETHER();
    }
    for (int64_t g = (int64_t)r->lane * job->group; g < job->count && job->group > 1;
         g += (int64_t)r->lanes * job->group)
        s24i_row_cut(job, r, g);
}

/* 1: a group chose otherwise than before, which SWAP alone says. */
S24I_CODE int s24i_row_run(const s24i_row_job *job, const s24i_row *r)
{
    if (job->rule == S24I_ROW_SWAP) return s24i_row_swap(job, r);
    if (job->rule == S24I_ROW_RELAX) s24i_row_relax(job, r);
    if (job->rule == S24I_ROW_DROP) s24i_row_drop(job, r);
    if (job->rule == S24I_ROW_PULL) s24i_row_pull(job, r);
    return 0;
}

/* ---- conjugate gradients --------------------------------------------------------------------- */

/* A row's weights [k] that are not 0 on their way to their common optimum, by conjugate gradients
   in units of the inputs' lengths. */
typedef struct s24i_row_descent {
    double *w, *gradient; /* of all columns */
    double *way;          /* where w goes next, 0 where it is 0 */
    const double *turn;   /* way·H; NULL: the first step, which only finds a way */
    double *left;         /* one number: the gradient's square in those units */
    const double *diagonal;
    int64_t k;
    int lane, lanes;
} s24i_row_descent;

S24I_CODE double s24i_row_left(const s24i_row_descent *r)
{
    double sum = 0.0;
    for (int64_t c = r->lane; c < r->k; c += r->lanes)
        if (r->w[c] != 0.0) sum += r->gradient[c] * r->gradient[c] / r->diagonal[c];
    return s24i_lanes_sum(sum);
}

S24I_CODE void s24i_row_descend(const s24i_row_descent *r)
{
    const double before = r->turn ? *r->left : 0.0;
    double curve = 0.0;
    for (int64_t c = r->lane; c < r->k && r->turn; c += r->lanes)
        curve += r->way[c] * r->turn[c];
    curve = s24i_lanes_sum(curve);
    if (r->turn && (!(curve > 0.0) || !(before > 0.0))) return;
    for (int64_t c = r->lane; c < r->k && r->turn; c += r->lanes) {
        r->w[c] += before / curve * r->way[c];
        r->gradient[c] += before / curve * r->turn[c];
    }
    const double left = s24i_row_left(r), kept = before > 0.0 ? left / before : 0.0;
    for (int64_t c = r->lane; c < r->k; c += r->lanes) {
        const double along = r->turn ? kept * r->way[c] : 0.0;
        r->way[c] = r->w[c] == 0.0 ? 0.0 : along - r->gradient[c] / r->diagonal[c];
    }
    S24I_TOGETHER();
    if (r->lane == 0) *r->left = left;
}

#endif
