// SPDX-License-Identifier: Apache-2.0
/* What a pattern's text says, and the choice by scores. */
#ifndef S24_PRUNE_PRUNE_PATTERNS_H
#define S24_PRUNE_PRUNE_PATTERNS_H

#include "prune/prune.h"

enum { S24I_WHOLE = -1 };

struct s24i_pattern {
    int kind;           /* its row in prune_patterns.def */
    int64_t group;      /* columns that are chosen together along k; 1: no groups */
    int64_t keep;       /* of a group, of a block that goes, or the diagonal's width */
    int64_t rows, cols; /* of a block; S24I_WHOLE: all of the weight's */
    int64_t dense;      /* columns before the groups, all of which stay */
    double share;       /* of blocks that go */
};

/* text NULL: 2:4. Errors: ARGUMENT. */
s24_status s24i_pattern_read(s24_ctx *ctx, s24i_pattern *pattern, const char *text);
/* Can a weight of [n, k] have it? */
s24_status s24i_pattern_check(s24_ctx *ctx, const s24i_pattern *pattern, int64_t n, int64_t k);

/* Is it a share of single weights? */
int s24i_pattern_is_unstructured(const s24i_pattern *pattern);

/* A choice by scores. */
typedef struct s24i_choice {
    const s24i_pattern *pattern;
    double *scores; /* [n, k], finite: what is larger stays */
    uint8_t *keep;  /* [n, k]: becomes 1 where a weight stays, else 0 */
    int64_t n, k;
} s24i_choice;
s24_status s24i_choose(s24_ctx *ctx, const s24i_choice *choice);
/* flags[i] = 0 for the `zeros` least of count values, of equal ones the first, 1 for the others. */
void s24i_drop_least(uint8_t *flags, const double *values, int64_t count, int64_t zeros);

static inline int s24i_pattern_is_two_four(const s24i_pattern *pattern)
{
    return pattern->group == 4 && pattern->keep == 2 && !pattern->dense;
}

#endif
