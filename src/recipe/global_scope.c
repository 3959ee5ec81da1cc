// SPDX-License-Identifier: Apache-2.0
/*
 * The limit that so many of all scores are under is found by counting: f32 numbers in their order
 * are integers in theirs, of which one digit after another is counted.
 */
#include "recipe/global_scope.h"

#include <math.h>
#include <string.h>

#include "base/try.h"
#include "model/model.h"

enum { DIGIT = 8 };

s24_status s24i_scope_create(s24i_scope *s, s24_ctx *ctx, int64_t scores, int64_t tensors)
{
    *s = (s24i_scope){.gathering = 1, .room = scores};
    TRY(s24i_alloc_elems(&s->scores, ctx, scores + 1, sizeof *s->scores, "scores"));
    return s24i_alloc_elems(&s->parts, ctx, tensors + 1, sizeof *s->parts, "tensors");
}

void s24i_scope_free(s24i_scope *s, s24_ctx *ctx)
{
    s24_ctx_free(ctx, s->parts);
    s24_ctx_free(ctx, s->scores);
}

void s24i_scope_add(s24i_scope *s, const s24_tensor *tensor, const double *scores, int64_t count,
                    int normalize)
{
    double mean = 0.0;
    for (int64_t i = 0; i < count && normalize; i++)
        mean += fabs(scores[i]) / (double)count;
    const double scale = mean > 0.0 ? 1.0 / mean : 1.0;
    s->parts[s->count++] = (s24i_scope_part){tensor, s->used, count, 0};
    for (int64_t i = 0; i < count; i++)
        s->scores[s->used++] = (float)(scores[i] * scale);
}

/* A number that is larger where the score is; −0 is 0. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    score += 0.0f;
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

/* The rank that the zeros-th least of all has, digit by digit from above; *zeros becomes how many
   of that rank are among them. */
static uint32_t find_limit(const s24i_scope *s, int64_t *zeros)
{
    uint32_t limit = 0;
    for (int shift = 32 - DIGIT; shift >= 0; shift -= DIGIT) {
        int64_t counts[1 << DIGIT] = {0};
        for (int64_t i = 0; i < s->used; i++) {
            const uint64_t rank = rank_of(s->scores[i]);
            if (rank >> (shift + DIGIT) == (uint64_t)limit >> (shift + DIGIT))
                counts[rank >> shift & ((1 << DIGIT) - 1)]++;
        }
        uint32_t digit = 0;
        while (digit < (1 << DIGIT) - 1 && *zeros > counts[digit])
            *zeros -= counts[digit++];
        limit |= digit << shift;
    }
    return limit;
}

void s24i_scope_divide(s24i_scope *s, int64_t zeros)
{
    int64_t level = zeros; /* of those at the limit, how many go */
    const uint32_t limit = find_limit(s, &level);
    s->gathering = 0;
    for (int64_t p = 0; p < s->count && zeros > 0; p++) {
        s24i_scope_part *part = &s->parts[p];
        for (int64_t i = part->first; i < part->first + part->count; i++) {
            const uint32_t rank = rank_of(s->scores[i]);
            const int goes = rank < limit || (rank == limit && level > 0);
            level -= goes && rank == limit;
            part->zeros += goes;
        }
    }
}

double s24i_scope_share(const s24i_scope *s, const s24_tensor *tensor)
{
    for (int64_t p = 0; p < s->count; p++)
        if (s->parts[p].tensor == tensor)
            return (double)s->parts[p].zeros / (double)s->parts[p].count;
    return -1.0;
}
