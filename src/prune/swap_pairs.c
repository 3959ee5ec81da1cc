// SPDX-License-Identifier: Apache-2.0
/*
 * Swaps of pairs, for N:M other than 2:4 and for single weights by a share: of each group, or of
 * the row, one weight goes and another place is taken, by those two that lower the row's error
 * most, the new weight at its optimum; again until none does. With g the gradient at w, dropping p
 * and taking q changes the error by
 *
 *     w_p·(w_p·H_pp − 2·g_p) − (g_q − w_p·H_pq)²/H_qq
 *
 * Between rounds what stays moves towards its common optimum. No step makes the error larger, and
 * each row keeps as many weights as it has. Of a long row all weights that stay may go, but only
 * the places that gain most by themselves are tried.
 *
 * Reference: Zimmer and others, "SparseSwaps: tractable LLM pruning mask refinement at scale",
 * 2025.
 */
#include <string.h>

#include "prune/prune_patterns.h"

enum { ROUNDS = 24, TAKERS = 32, SHARE = 16 /* of a group that is swapped in a round at most */ };

typedef struct pairs {
    const s24i_refit *refit;
    const double *diagonal; /* [k], of H */
    int64_t group, keep;    /* columns that are chosen together; keep 0: as many as there are */
} pairs;

typedef struct swap {
    int64_t goes, taken; /* goes −1: the group has a place left */
    double change;       /* of the error */
} swap;

/* The places of a group that hold nothing and would lower the error most. Returns their number. */
static int find_takers(int64_t takers[TAKERS], const pairs *a, const double *w, const double *g,
                       int64_t first)
{
    double gains[TAKERS];
    int count = 0;
    for (int64_t q = first; q < first + a->group; q++) {
        const double gain = g[q] * g[q] / a->diagonal[q];
        if (w[q] != 0.0 || gain == 0.0 || (count == TAKERS && gain <= gains[count - 1])) continue;
        int at = count < TAKERS ? count++ : count - 1;
        for (; at > 0 && gains[at - 1] < gain; at--) {
            gains[at] = gains[at - 1];
            takers[at] = takers[at - 1];
        }
        gains[at] = gain;
        takers[at] = q;
    }
    return count;
}

static swap best_swap(const pairs *a, const double *w, const double *g, int64_t first, int is_full)
{
    int64_t takers[TAKERS];
    const double margin = 1e-9;
    const int count = find_takers(takers, a, w, g, first);
    swap best = {-1, -1, 0.0};
    for (int t = 0; t < count; t++) {
        const int64_t q = takers[t];
        const double *h = a->refit->h + q * a->refit->k, own = a->diagonal[q];
        const double alone = -g[q] * g[q] / own;
        if (!is_full && alone < best.change) best = (swap){-1, q, alone};
        for (int64_t p = first; p < first + a->group && is_full; p++) {
            const double toward = g[q] - w[p] * h[p];
            const double loss = w[p] * (w[p] * a->diagonal[p] - 2.0 * g[p]);
            const double change = loss - toward * toward / own;
            if (w[p] != 0.0 && change < best.change && change < margin * (alone - loss))
                best = (swap){p, q, change};
        }
    }
    return best;
}

/* w[col] += step */
static void move(const pairs *a, double *w, double *g, int64_t col, double step)
{
    const double *h = a->refit->h + col * a->refit->k;
    w[col] += step;
    for (int64_t c = 0; c < a->refit->k; c++)
        g[c] += step * h[c];
}

static int swap_group(const pairs *a, double *w, double *g, int64_t first)
{
    int64_t kept = 0, most = a->group / SHARE + 2;
    int moved = 0;
    for (int64_t c = first; c < first + a->group; c++)
        kept += w[c] != 0.0;
    for (; most > 0; most--) {
        const swap best = best_swap(a, w, g, first, kept >= a->keep);
        if (best.taken < 0) break;
        if (best.goes >= 0) move(a, w, g, best.goes, -w[best.goes]);
        kept += best.goes < 0;
        move(a, w, g, best.taken, -g[best.taken] / a->diagonal[best.taken]);
        moved = 1;
    }
    return moved;
}

static void swap_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const pairs *a = arg;
    const s24i_refit *s = a->refit;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        for (int64_t first = 0; first < s->k; first += a->group)
            s->moved[r] |= (uint8_t)swap_group(a, s->w + r * s->k, s->gradient + r * s->k, first);
}

s24_status s24i_swap_pairs(s24_ctx *ctx, s24i_refit *refit)
{
    const s24i_pattern *pattern = refit->pattern;
    const int grouped = pattern->group > 1;
    double *diagonal = s24_ctx_alloc(ctx, (size_t)refit->k * sizeof *diagonal);
    REQUIRE(ctx, diagonal, S24_ERROR_MEMORY, "out of memory to swap weights of %lld columns",
            (long long)refit->k);
    const pairs a = {refit, diagonal, grouped ? pattern->group : refit->k,
                     grouped ? pattern->keep : 0};
    for (int64_t c = 0; c < refit->k; c++)
        diagonal[c] = refit->h[c * (refit->k + 1)];
    int moved = 1;
    for (int round = 0; moved && round < ROUNDS; round++) {
        s24i_refit_relax(ctx, refit);
        memset(refit->moved, 0, (size_t)refit->n);
        s24i_refit_fetch(refit);
        s24_ctx_parallel_for(ctx, refit->n, swap_rows, (void *)&a);
        s24i_refit_send(refit);
        moved = 0;
        for (int64_t r = 0; r < refit->n; r++)
            moved |= refit->moved[r];
    }
    s24_ctx_free(ctx, diagonal);
    return S24_OK;
}
