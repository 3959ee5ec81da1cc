// SPDX-License-Identifier: Apache-2.0
/*
 * The factor that SparseGPT walks along (cholesky.c), of a matrix that lies on a device. With H =
 * V·Vᵀ, V upper triangular, H⁻¹ = UᵀU with U = V⁻¹: both go from the last rows to the first, and
 * nothing need be turned about. Blocks of S24I_FACTOR_BLOCK on the diagonal are the host's; V gives
 * way to U block by block, and below the diagonal stand zeros.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "prune/far.h"

enum { BLOCK = S24I_FACTOR_BLOCK, CHUNK = 1024 };

typedef struct reversed {
    double l[BLOCK * BLOCK], inverse[BLOCK * BLOCK], floors[BLOCK];
} reversed;

/* The block's rows and columns in reverse order: V of it is L of that. */
static void reverse(double *to, const double *from, int64_t count)
{
    for (int64_t i = 0; i < count * count; i++)
        to[i] = from[count * count - 1 - i];
}

/* V⁻¹ of a diagonal block into the place of the block. Returns the column whose pivot is not
   positive beyond rounding, or −1. */
static int64_t invert_diagonal(s24i_far *far, reversed *r, const double *floors, int64_t begin,
                               int64_t count)
{
    double *at = far->square + begin * (far->k + 1), *block = far->pinned;
    s24i_far_move(far, &(s24i_far_copy){block, at, count, far->k, count, count});
    s24i_far_wait(far);
    if (far->status != S24_OK) return -1;
    reverse(r->l, block, count);
    for (int64_t i = 0; i < count; i++)
        r->floors[i] = floors[begin + count - 1 - i];
    const int64_t bad = s24i_factor_block(r->l, count, count, r->floors);
    if (bad >= 0) return begin + count - 1 - bad;
    s24i_invert_block(r->inverse, count, r->l, count, count);
    reverse(block, r->inverse, count);
    s24i_far_move(far, &(s24i_far_copy){at, block, far->k, count, count, count});
    s24i_far_move(far, &(s24i_far_copy){far->small, block, count, count, count, count});
    s24i_far_wait(far);
    return -1;
}

/* Columns above a block: P ← P·V_jj⁻ᵀ; then what lies above and before loses PPᵀ, chunk by chunk of
   columns, down to the diagonal and some way below; there the block's rows get zeros. */
static void eliminate(s24i_far *far, int64_t begin, int64_t count)
{
    const int64_t k = far->k;
    double *panel = far->square + begin;
    s24i_far_product(far,
                     &(s24i_product){.m = begin,
                                     .n = count,
                                     .depth = count,
                                     .a = panel,
                                     .a_row = k,
                                     .a_depth = 1,
                                     .b = far->small,
                                     .b_row = count,
                                     .b_depth = 1,
                                     .c = far->strip,
                                     .ldc = count,
                                     .sign = 1},
                     0);
    s24i_far_move(far, &(s24i_far_copy){panel, far->strip, k, count, begin, count});
    for (int64_t c = 0; c < begin; c += CHUNK) {
        const int64_t end = c + CHUNK < begin ? c + CHUNK : begin;
        s24i_far_product(far,
                         &(s24i_product){.m = end,
                                         .n = end - c,
                                         .depth = count,
                                         .a = far->strip,
                                         .a_row = count,
                                         .a_depth = 1,
                                         .b = far->strip + c * count,
                                         .b_row = count,
                                         .b_depth = 1,
                                         .c = far->square + c,
                                         .ldc = k,
                                         .sign = -1},
                         1);
    }
    s24i_far_clear(far, far->strip, begin * count);
    s24i_far_move(far,
                  &(s24i_far_copy){far->square + begin * k, far->strip, k, begin, count, begin});
}

/* With U known below row block j:  U[j, >j] = −V_jj⁻¹ · (V[j, >j] · U[>j, >j]). */
static void invert_row_block(s24i_far *far, int64_t begin, int64_t count)
{
    const int64_t k = far->k, end = begin + count, rest = k - end;
    double *rows = far->square + begin * k + end;
    for (int64_t c = 0; c < rest; c += CHUNK) {
        const int64_t depth = c + CHUNK < rest ? c + CHUNK : rest;
        s24i_far_product(far,
                         &(s24i_product){.m = count,
                                         .n = depth - c,
                                         .depth = depth,
                                         .a = rows,
                                         .a_row = k,
                                         .a_depth = 1,
                                         .b = far->square + end * (k + 1) + c,
                                         .b_row = 1,
                                         .b_depth = k,
                                         .c = far->strip + c,
                                         .ldc = rest,
                                         .sign = 1},
                         0);
    }
    s24i_far_product(far,
                     &(s24i_product){.m = count,
                                     .n = rest,
                                     .depth = count,
                                     .a = far->square + begin * (k + 1),
                                     .a_row = k,
                                     .a_depth = 1,
                                     .b = far->strip,
                                     .b_row = 1,
                                     .b_depth = rest,
                                     .c = rows,
                                     .ldc = k,
                                     .sign = -1},
                     0);
}

static s24_status run(s24i_far *far, reversed *r, const double *floors)
{
    const int64_t k = far->k, last = (k - 1) / BLOCK * BLOCK;
    for (int64_t begin = last; begin >= 0; begin -= BLOCK) {
        const int64_t count = k - begin < BLOCK ? k - begin : BLOCK;
        const int64_t bad = invert_diagonal(far, r, floors, begin, count);
        if (bad >= 0) return s24i_no_factor(far->ctx, bad, k);
        eliminate(far, begin, count);
    }
    for (int64_t begin = last; begin >= 0; begin -= BLOCK)
        invert_row_block(far, begin, k - begin < BLOCK ? k - begin : BLOCK);
    return far->status;
}

typedef struct turning {
    double *h;
    int64_t k;
} turning;

/* The upper triangle of the lower one, square by square, which leaves zeros. */
static void turn_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const turning *t = arg;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        const int64_t stop = (b + 1) * BLOCK < t->k ? (b + 1) * BLOCK : t->k;
        for (int64_t first = 0; first < stop; first += BLOCK)
            for (int64_t r = b * BLOCK; r < stop; r++)
                for (int64_t c = first; c < first + BLOCK && c < r; c++) {
                    t->h[c * t->k + r] = t->h[r * t->k + c];
                    t->h[r * t->k + c] = 0.0;
                }
    }
}

s24_status s24i_far_inverse_factor(s24i_far *far, double *h)
{
    const int64_t k = far->k;
    turning turn = {h, k};
    reversed *r = s24_ctx_alloc(far->ctx, sizeof *r + (size_t)k * sizeof(double));
    REQUIRE(far->ctx, r, S24_ERROR_MEMORY,
            "out of memory for the factor of a Gram matrix of width %lld", (long long)k);
    double *floors = (double *)(r + 1);
    for (int64_t i = 0; i < k; i++)
        floors[i] = (double)k * DBL_EPSILON * h[i * k + i];
    s24_ctx_parallel_for(far->ctx, (k + BLOCK - 1) / BLOCK, turn_rows, &turn);
    s24i_far_move(far, &(s24i_far_copy){far->square, h, k, k, k, k});
    s24_status status = run(far, r, floors);
    s24_ctx_free(far->ctx, r);
    return status == S24_OK ? far->status : status;
}
