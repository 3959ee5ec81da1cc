// SPDX-License-Identifier: Apache-2.0
/*
 * The refinement "swaps": which two of four stay is chosen once more, group after group, with all
 * other weights as they are by then. A criterion chooses before it knows what later groups lose;
 * here each of the six choices is taken with its two weights at their optimum, a system of two
 * equations in the Gram matrix, and the best one stays. No step makes the row's error larger, so it
 * ends: after a sweep in which no group chooses otherwise, or after SWEEPS. Other patterns have too
 * many choices to try all: see swap_pairs.c.
 *
 * Reference for the swap by the Gram matrix: Zimmer and others, "SparseSwaps: tractable LLM pruning
 * mask refinement at scale", 2025. There the weights that stay are those of the dense layer.
 */
#include <string.h>

#include "prune/prune_patterns.h"

enum { SWEEPS = 24 };

typedef struct choice {
    int a, b;      /* a < b stay */
    double wa, wb; /* at their optimum */
    double loss;   /* against all four at zero */
} choice;

/* c is the gradient with the group's weights at zero. */
static choice best_of_pair(int a, int b, const double c[4], const double *const h[4])
{
    const double ha = h[a][a], hb = h[b][b], hab = h[a][b], det = ha * hb - hab * hab;
    choice found = {.a = a, .b = b};
    if (!(det > 0.0)) return found;
    found.wa = (hab * c[b] - hb * c[a]) / det;
    found.wb = (hab * c[a] - ha * c[b]) / det;
    found.loss = c[a] * found.wa + c[b] * found.wb;
    return found;
}

/* The pair that holds the weights that are not zero. */
static choice as_it_is(const double w[4], const double c[4], const double *const h[4])
{
    int kept[4] = {0, 0, 0, 0}, count = 0;
    for (int i = 3; i >= 0; i--)
        if (w[i] != 0.0) kept[count++] = i;
    for (int i = 3; i >= 0 && count < 2; i--)
        if (w[i] == 0.0) kept[count++] = i;
    return kept[0] < kept[1] ? best_of_pair(kept[0], kept[1], c, h)
                             : best_of_pair(kept[1], kept[0], c, h);
}

/* The best of the six; another than `now` only where it is better beyond rounding. */
static choice choose(choice now, const double c[4], const double *const h[4])
{
    const double margin = 1e-9;
    choice best = now;
    for (int a = 0; a < 3; a++)
        for (int b = a + 1; b < 4; b++) {
            const choice other = best_of_pair(a, b, c, h);
            if (other.loss < best.loss * (1.0 + margin)) best = other;
        }
    return best;
}

static void swap_row(const s24i_refit *s, int64_t row, double *restrict w, double *restrict steps)
{
    const int64_t count = s->end - s->begin;
    for (int64_t group = 0; group < count; group += 4) {
        const double *h[4];
        double c[4];
        for (int i = 0; i < 4; i++)
            h[i] = s->h + (s->begin + group + i) * s->k + s->begin + group;
        for (int i = 0; i < 4; i++) {
            c[i] = steps[group + i];
            for (int j = 0; j < 4; j++)
                c[i] -= h[i][j] * w[group + j];
        }
        const choice now = as_it_is(w + group, c, h), best = choose(now, c, h);
        s->moved[row] |= best.a != now.a || best.b != now.b;
        for (int i = 0; i < 4; i++) {
            const double value = i == best.a ? best.wa : i == best.b ? best.wb : 0.0;
            const double step = value - w[group + i];
            steps[group + i] = step;
            w[group + i] = value;
            for (int64_t j = 4; j < count - group && step != 0.0; j++)
                steps[group + j] += step * h[i][j];
        }
    }
}

s24_status s24i_refine_swaps(s24_ctx *ctx, s24i_refit *refit)
{
    int moved = 1;
    if (!s24i_pattern_is_two_four(refit->pattern)) return s24i_swap_pairs(ctx, refit);
    for (int sweep = 0; moved && sweep < SWEEPS; sweep++) {
        memset(refit->moved, 0, (size_t)refit->n);
        s24i_refit_sweep(ctx, refit, swap_row);
        moved = 0;
        for (int64_t r = 0; r < refit->n; r++)
            moved |= refit->moved[r];
    }
    return S24_OK;
}
